"""Stored routers learn from a log: events, replays, batches, HTTP, and the command line."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from bylot import Client, errors, evaluate
from bylot.cli import main
from bylot.client import AsyncClient, RemoteRouter
from bylot.evaluate import LogEntry
from bylot.eventlog.commands import LearnRounds
from bylot.eventlog.events import RoundsLearned, encode_body, rehash_event
from bylot.problem import Problem, at_most
from bylot.router.past_rounds import PastRound
from bylot.router.router import Router
from bylot.server import peers
from live_server import ServerClient, assert_error
from logged_aggregate import LoggedRouter

POOL = Problem(
    ["ann", "bob", "eve", "zoe"],
    {"usd": [1.0, 2.0, 4.0, 1.0]},
    [at_most("usd", 4.0)],
    draws=2,
)
FILE = """
draws: 2
costs: {usd: dollars}
experts:
  - {name: ann, usd: 1.0}
  - {name: bob, usd: 2.0}
  - {name: eve, usd: 4.0}
  - {name: zoe, usd: 1.0}
limits:
  - {cost: usd, at_most: 4.0, per: request}
"""


def make_rounds(count: int) -> list[PastRound]:
    """Panels in two contexts, some with scores and with what they really cost."""
    rng = np.random.default_rng(7)
    rounds = []
    for t in range(count):
        panel = tuple(POOL.experts[i] for i in rng.choice(4, 2, replace=False))
        scores = {name: float(rng.random() < 0.2 + 0.5 * (name == "eve")) for name in panel}
        best = max(scores.values())
        spend = {"usd": float(rng.uniform(1, 8))} if t % 3 else {}
        rounds.append(PastRound(panel, best, f"kind {t % 2}", scores, spend=spend))
    return rounds


def learn(logged: LoggedRouter, rounds: list[PastRound], after: int) -> None:
    command = LearnRounds("triage", tuple(rounds), after, by="me")
    logged.append(logged.aggregate.learn_rounds(5, command))


def test_a_replay_learns_the_rounds_again_bit_for_bit() -> None:
    logged, rounds = LoggedRouter(POOL, "noisy-or", feedback="members"), make_rounds(203)
    learn(logged, rounds[:100], 0)
    logged.reopen()
    learn(logged, rounds[100:], 100)
    learn(logged, rounds[100:], 100)  # the answer was lost: the same batch again
    assert [event.kind for event in logged.log] == ["created", "learned", "learned"]
    logged.reward(logged.decide(context="kind 0"), 1.0)
    status = logged.aggregate.status()
    assert status.counters is not None
    assert (status.counters.past, status.counters.learned, status.decisions) == (203, 1, 1)
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()
    body = logged.aggregate.decode(logged.log[1])
    assert isinstance(body, RoundsLearned)
    changed = structs.replace(body, rounds=body.rounds[1:])
    event = logged.log[1]._replace(body=encode_body(changed))
    logged.log[1] = rehash_event(logged.log[0].seal, event)
    with pytest.raises(errors.StoreCorrupted, match="event 2"):
        logged.replay_log()


def test_rounds_are_learned_in_order_and_before_decisions() -> None:
    logged, rounds = LoggedRouter(POOL, "noisy-or", feedback="members"), make_rounds(20)
    with pytest.raises(errors.DecisionStateError, match="has learned 0 rounds, not 10"):
        learn(logged, rounds[10:], 10)
    learn(logged, rounds[:10], 0)
    logged.decide()
    before = logged.aggregate.fingerprint()
    with pytest.raises(errors.DecisionStateError, match="before the first one"):
        learn(logged, rounds[10:], 10)
    assert logged.aggregate.fingerprint() == before


def test_a_batch_travels_between_servers() -> None:
    command = LearnRounds("triage", tuple(make_rounds(3)), 7, by="me")
    assert peers.decode_command(peers.encode_command(command)) == command


@contextmanager
def create(server: ServerClient, name: str) -> Iterator[RemoteRouter]:
    """A new router of the server."""
    with Client(str(server.base_url)) as client:
        yield client.create(name, POOL, "noisy-or", seed=3, feedback="members")


def test_a_served_router_learns_what_one_in_memory_learns(server: ServerClient) -> None:
    rounds = make_rounds(1_203)
    seen: list[int] = []
    ours = Router(POOL, "noisy-or", seed=3, feedback="members")
    ours.learn_from(rounds)
    with create(server, "taught") as served:
        served.learn_from(rounds[:700], seen.append)
        served.learn_from(rounds[700:], seen.append)
        assert seen == [500, 700, 1_200, 1_203]
        served.client.send(served.calls.learn_rounds(rounds[1_200:], 1_200))  # its answer was lost
        with pytest.raises(errors.BylotError, match="has learned 1,203 rounds, not 1,200"):
            served.client.send(served.calls.learn_rounds(rounds[:3], 1_200))
        panels = [[router.decide("kind 1").draws for _ in range(30)] for router in (ours, served)]
        assert panels[0] == panels[1]
        with pytest.raises(errors.BylotError, match="before the first one"):
            served.client.send(served.calls.learn_rounds(rounds[:1], 1_203))


def test_a_router_that_is_awaited_learns_too(server: ServerClient) -> None:
    async def learn_all() -> int:
        async with AsyncClient(str(server.base_url)) as client:
            router = await client.create("awaited", POOL, "noisy-or", feedback="members")
            await router.learn_from(make_rounds(501))
            status = await router.status()
            return 0 if status.counters is None else status.counters.past

    assert asyncio.run(learn_all()) == 501


def test_invalid_rounds_are_refused_over_http(server: ServerClient) -> None:
    path = "/v1/routers/untaught/rounds"
    good = {"panel": ["ann", "bob"], "reward": 1.0, "context": "cafe\u0301"}
    with create(server, "untaught"):
        for wrong, words in [
            ({**good, "reward": 2.0}, "invalid reward 2.0"),
            ({**good, "panel": ["ann", "bab"]}, "no expert 'bab'"),
            ({**good, "context": ""}, "context"),
            ({**good, "price": 1.0}, "price"),
        ]:
            error = assert_error(server.post(path, json={"rounds": [good, wrong]}), 422)
            assert words in str(error)
    assert_error(server.post(path, json={"rounds": []}), 422)
    assert_error(server.post(path, json={"rounds": [good], "after": 4}), 409)
    learned = server.post(path, json={"rounds": [good]})
    assert learned.status_code == 200
    assert learned.json()["status"]["counters"]["past"] == 1
    assert server.decide("/v1/routers/untaught", context="caf\xe9")
    assert server.get("/v1/routers/untaught/status").json()["contexts"] == 1


def write_files(folder: Path, reward: float) -> tuple[str, str]:
    entries = [LogEntry(f"d{t}", t, ("ann", "bob"), 0.5, context="a") for t in range(700)]
    entries += [LogEntry("e", 800, ("ann", "gone"), 0.5), LogEntry("f", 801, ("ann",), None)]
    entries.append(LogEntry("g", 802, ("eve", "zoe"), reward, context="b"))
    evaluate.write_log(folder / "log.jsonl", entries)
    (folder / "pool.yaml").write_text(FILE)
    return str(folder / "pool.yaml"), str(folder / "log.jsonl")


def test_a_router_is_created_from_a_log_on_the_command_line(
    server: ServerClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BYLOT_SERVER", str(server.base_url))
    problem, log = write_files(tmp_path, reward=1.0)
    words = ["router", "create", "successor", problem, "--learn-from", log]
    assert main([*words, "--policy", "noisy-or"]) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-2:] == [
        "... learned 500 of 701 rounds",
        "... learned 701 of 701 rounds",
    ]
    assert printed.out.endswith(
        "log.jsonl: 701 rounds to learn from, 2 left out\n"
        "  1 with experts that this router does not have\n"
        "  1 without a reward\n"
    )
    assert main(["router", "show", "successor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"]["counters"]["past"] == 701


@pytest.mark.parametrize(
    ("reward", "policy", "contexts", "message"),
    [
        (1.5, "noisy-or", "9", "invalid reward 1.5: expected a number in [0.0, 1.0] for decision"),
        (1.0, "distinct", "9", "distinct cannot learn from a log"),
        (1.0, "noisy-or", "1", "context 'b' would be number 2"),  # in the second batch
    ],
)
def test_no_half_made_router_is_left(
    server: ServerClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    reward: float,
    policy: str,
    contexts: str,
    message: str,
) -> None:
    monkeypatch.setenv("BYLOT_SERVER", str(server.base_url))
    problem, log = write_files(tmp_path, reward)
    words = ["router", "create", "half", problem, "--learn-from", log, "--policy", policy]
    assert main([*words, "--max-contexts", contexts]) == 1
    assert message in capsys.readouterr().err
    assert server.get("/v1/routers/half").status_code == 404
