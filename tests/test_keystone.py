"""One implementation: the same play through the compiled loop, a router in memory, one in a store
that is killed half-way, and one behind a server over each store. All traces are equal.
"""

import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bylot
from bylot.environments import Noisy
from bylot.errors import IgnoredFeedbackWarning
from bylot.trace import PlayRecord
from live_server import live_server
from stored_router import StoredRouter

ROUNDS, SEED = 300, 5
PLAYS = ("distinct", "noisy-or", "omd", "ts+members", "noisy-or+members", "noisy-or+winner")
"""A policy, and the feedback if it is more than the reward."""


def make_problem() -> bylot.Problem:
    """Six experts, two limits."""
    return bylot.Problem(
        experts=[f"e{i}" for i in range(6)],
        costs={"usd": [1.0, 2.0, 3.0, 1.5, 0.5, 4.0]},
        limits=[bylot.at_most("usd", 6.0), bylot.at_least(bylot.share("new", ["e5"]), 0.3)],
        draws=3,
    )


def make_environment() -> Noisy:
    """Values that are the same in every process."""
    means = np.random.default_rng(3).uniform(0.1, 0.9, size=(2, 6))
    return Noisy(means, worth=0.5)


def assert_records_equal(one: PlayRecord, other: PlayRecord, rounds: slice) -> None:
    """The records are equal bit for bit, in all that both have."""
    for name in (
        "draws",
        "draw_probabilities",
        "rewards",
        "spend",
        "feasible",
        "contexts",
        "replaced",
        "scores",
        "winners",
    ):
        expected, found = getattr(one, name)[rounds], getattr(other, name)
        np.testing.assert_array_equal(expected, found, err_msg=name)
    known = ~np.isnan(one.propensities[rounds])  # the loop does not compute them for omd
    np.testing.assert_array_equal(one.propensities[rounds][known], other.propensities[known])


@pytest.fixture(scope="module", params=PLAYS)
def played(request: pytest.FixtureRequest) -> str:
    """A policy and its feedback."""
    return request.param  # type: ignore[no-any-return]


def settings_of(played: str, seed: int = SEED) -> dict[str, Any]:
    """What a simulation, a router and a server take alike."""
    policy, _, feedback = played.partition("+")
    return {"policy": policy, "seed": seed, "feedback": feedback or "panel"}


@pytest.fixture(scope="module")
def compiled_record(played: str) -> PlayRecord:
    """The record of the compiled loop, which all others must equal."""
    given = settings_of(played)
    return bylot.simulate(make_problem(), make_environment(), rounds=ROUNDS, **given).record


def make_router(played: str, seed: int = SEED) -> bylot.Router:
    """A router in memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredFeedbackWarning)
        return bylot.Router(make_problem(), **settings_of(played, seed))


def test_a_router_in_memory_gives_the_compiled_trace(
    played: str, compiled_record: PlayRecord
) -> None:
    router = make_router(played)
    assert_records_equal(
        compiled_record, bylot.play(router, make_environment(), ROUNDS).record, slice(None)
    )


def test_another_seed_gives_another_trace(played: str, compiled_record: PlayRecord) -> None:
    router = make_router(played, SEED + 1)
    with pytest.raises(AssertionError):
        assert_records_equal(
            compiled_record, bylot.play(router, make_environment(), ROUNDS).record, slice(None)
        )


def test_a_stored_router_killed_half_way_gives_the_compiled_trace(
    played: str, compiled_record: PlayRecord, address: str
) -> None:
    half = ROUNDS // 2
    command = [sys.executable, __file__, address, played, str(half)]
    process = subprocess.run(command, cwd=Path(__file__).parent, check=False, timeout=300)
    assert process.returncode == -signal.SIGKILL
    with StoredRouter(address, "keystone") as router:
        assert_records_equal(
            compiled_record,
            bylot.play(router, make_environment(), ROUNDS - half, start=half).record,
            slice(half, None),
        )


def test_a_router_behind_a_server_gives_the_compiled_trace(
    played: str, compiled_record: PlayRecord, address: str, tmp_path: Path
) -> None:
    with (
        live_server(tmp_path, store=address) as server,
        bylot.Client(f"http://127.0.0.1:{server.port}", timeout=600) as client,
    ):
        router = client.create("keystone", make_problem(), **settings_of(played))
        assert_records_equal(
            compiled_record, bylot.play(router, make_environment(), ROUNDS).record, slice(None)
        )


def play_first_half_and_die(address: str, played: str, rounds: int) -> None:
    """Play, then die by SIGKILL."""
    router = StoredRouter.create(address, "keystone", make_problem(), **settings_of(played))
    bylot.play(router, make_environment(), rounds)
    signal.raise_signal(signal.SIGKILL)


if __name__ == "__main__":
    play_first_half_and_die(sys.argv[1], sys.argv[2], int(sys.argv[3]))
