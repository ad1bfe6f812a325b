"""One implementation: the same play through the compiled loop, a router in memory, one in a store
that is killed half-way, and one behind a server over each store. All traces are equal.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import bylot
from bylot.environments import Noisy
from bylot.eventlog.stored_router import StoredRouter
from bylot.simulation import PlayRecord
from live_server import live_server

ROUNDS, SEED = 300, 5
POLICIES = ("distinct", "noisy-or", "omd")


def pool() -> bylot.Problem:
    """Six experts, two limits."""
    return bylot.Problem(
        experts=[f"e{i}" for i in range(6)],
        costs={"usd": [1.0, 2.0, 3.0, 1.5, 0.5, 4.0]},
        limits=[bylot.at_most("usd", 6.0), bylot.at_least(bylot.share("new", ["e5"]), 0.3)],
        draws=3,
    )


def world() -> Noisy:
    """Values that are the same in every process."""
    means = np.random.default_rng(3).uniform(0.1, 0.9, size=(2, 6))
    return Noisy(means, worth=0.5)


def same(one: PlayRecord, other: PlayRecord, rounds: slice) -> None:
    """Bit for bit, in all that both tell."""
    for name in (
        "draws",
        "draw_probabilities",
        "rewards",
        "spend",
        "feasible",
        "contexts",
        "replaced",
    ):
        ours, theirs = getattr(one, name)[rounds], getattr(other, name)
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    known = ~np.isnan(one.propensities[rounds])  # the loop does not compute them for omd
    np.testing.assert_array_equal(one.propensities[rounds][known], other.propensities[known])


@pytest.fixture(scope="module", params=POLICIES)
def policy(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each of them through all of it."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def compiled(policy: str) -> PlayRecord:
    """The trace that all others must have."""
    return bylot.simulate(pool(), world(), policy=policy, rounds=ROUNDS, seed=SEED).record


def test_a_router_in_memory(policy: str, compiled: PlayRecord) -> None:
    router = bylot.Router(pool(), policy, seed=SEED)
    same(compiled, bylot.play(router, world(), ROUNDS).record, slice(None))


def test_another_seed_gives_another_trace(policy: str, compiled: PlayRecord) -> None:
    router = bylot.Router(pool(), policy, seed=SEED + 1)
    with pytest.raises(AssertionError):
        same(compiled, bylot.play(router, world(), ROUNDS).record, slice(None))


def test_a_stored_router_that_is_killed_half_way(
    policy: str, compiled: PlayRecord, address: str
) -> None:
    half = ROUNDS // 2
    line = [sys.executable, __file__, address, policy, str(half)]
    done = subprocess.run(line, cwd=Path(__file__).parent, check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    with StoredRouter.open(address, "keystone") as router:
        same(
            compiled,
            bylot.play(router, world(), ROUNDS - half, start=half).record,
            slice(half, None),
        )


def test_a_router_behind_a_server(
    policy: str, compiled: PlayRecord, address: str, tmp_path: Path
) -> None:
    with (
        live_server(tmp_path, store=address) as server,
        bylot.Client(f"http://127.0.0.1:{server.port}", timeout=600) as client,
    ):
        router = client.create("keystone", pool(), policy=policy, seed=SEED)
        same(compiled, bylot.play(router, world(), ROUNDS).record, slice(None))


def first_half(address: str, policy: str, rounds: int) -> None:
    """Play, then be killed without a word of goodbye."""
    router = StoredRouter.create(address, "keystone", pool(), policy, seed=SEED)
    bylot.play(router, world(), rounds)
    signal.raise_signal(signal.SIGKILL)


if __name__ == "__main__":
    first_half(sys.argv[1], sys.argv[2], int(sys.argv[3]))
