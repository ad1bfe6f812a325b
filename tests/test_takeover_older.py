"""Routers of an older version, whose logs cannot be replayed, begin anew from what can be read."""

import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from bylot import evaluate
from bylot.cli import main
from bylot.errors import StoreCorrupted
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import (
    EditRouter,
    GetRouter,
    GetTenant,
    LearnRounds,
    MakeDecision,
    SetTenant,
)
from bylot.eventlog.loading import load_aggregate
from bylot.eventlog.repository import RouterRepository
from bylot.problem import Problem, at_most
from bylot.router.config import problem_from_data, problem_to_data
from bylot.router.past_rounds import PastRound
from bylot.store import RouterRow, Store, open_store
from bylot.store.log_ends import LogEnd
from handlers import perform_now
from stored_router import StoredRouter

OLDER_STORE = Path(__file__).with_name("older_store.json")
"""What a version before the first release wrote, event by event: router 'triage' (noisy-or, scores
of members, bounds of a tenant, an edit of the pool), and router 'sorting' (distinct)."""


@pytest.fixture
def older(tmp_path: Path) -> str:
    """A store with the events of the older version."""
    address = f"sqlite:///{tmp_path}/bylot.db"
    open_store(address).close()
    content = json.loads(OLDER_STORE.read_text())
    rows = [
        (*event[:6], base64.b64decode(event[6]), base64.b64decode(event[7]))
        for event in content["events"]
    ]
    with closing(sqlite3.connect(tmp_path / "bylot.db")) as db, db:
        db.executemany(
            "INSERT INTO routers (number, name, created) VALUES (?, ?, ?)", content["routers"]
        )
        db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return address


def list_names(address: str) -> list[str]:
    with closing(open_store(address, read_only=True)) as store:
        return [row.name for row in store.routers()]


def migrate(address: str, *words: str) -> int:
    return main(["store", "migrate", "--store", address, *words])


def test_nothing_is_changed_before_it_is_asked_for(
    older: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert migrate(older, "--out", str(tmp_path / "logs")) == 0
    printed = capsys.readouterr().out
    assert "triage cannot be loaded: " in printed
    assert "  can be taken over: configuration, version 2\n" in printed
    assert "  can be taken over: own bounds of 1 of 1 tenants\n" in printed
    assert "  can be taken over: log of 40 decisions\n" in printed
    assert printed.endswith("make a backup, stop all servers, and add --take-over\n")
    assert list_names(older) == ["sorting", "triage"]
    assert not (tmp_path / "logs").exists()


def test_routers_begin_anew_with_what_an_older_version_has_learned(
    older: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "logs"
    assert migrate(older, "--take-over", "--out", str(out), "--json") == 0
    taken = json.loads(capsys.readouterr().out)["routers"]
    assert taken["sorting"][1] == "nothing learned: distinct cannot learn from a log"
    assert list_names(older) == ["sorting", "sorting--old2", "triage", "triage--old1"]
    with closing(open_store(older)) as store:
        handler = CommandHandler(RouterRepository(store, "new"))
        view = perform_now(handler, GetRouter("triage"))
        assert view.config.problem["experts"] == ["ann", "bob", "eve", "max"]
        assert view.config.feedback == "members"
        assert view.status.decisions == 0
        assert view.status.contexts == 2
        problem = problem_from_data(view.config.problem)
        log = evaluate.read_log(out / "triage.1.jsonl", problem, gone=["zoe"])
        assert len(log.entries) == 40
        learned = evaluate.select_rounds(log, feedback="members")
        assert view.status.counters.past == len(learned.rounds) > 20
        assert learned.left_out["without a reward"] == 4
        assert any(round.spend for round in learned.rounds)
        acme, umbrella = (
            perform_now(handler, GetTenant("triage", name)).windows[0]
            for name in ("acme", "umbrella")
        )
        assert (acme.bound, umbrella.bound) == (900.0, 5000.0)
        assert acme.spent == 0.0
        command = MakeDecision("triage", context="er", keys={"tenant": "acme"})
        decision = perform_now(handler, command)
        assert decision.t == 0
        handler.close()
    with closing(open_store(older)) as store:
        row = store.find("triage")
        assert row is not None
        assert load_aggregate(store, row).core.t == 1  # its log proves itself from here on
    assert migrate(older, "--take-over", "--out", str(out)) == 0
    assert "cannot be loaded" not in capsys.readouterr().out
    assert list_names(older) == ["sorting", "sorting--old2", "triage", "triage--old1"]


def test_a_takeover_that_was_interrupted_can_be_repeated(
    older: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("bylot.eventlog.takeover.start_copy", stop)
        assert migrate(older, "--take-over", "--out", str(tmp_path)) == 130
    assert list_names(older) == ["sorting--old2", "triage"]
    assert migrate(older, "--take-over", "--out", str(tmp_path)) == 0
    assert list_names(older) == ["sorting", "sorting--old2", "triage", "triage--old1"]


@pytest.fixture
def unloadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all routers appear to have logs of another version."""

    def refuse(store: Store, row: RouterRow) -> None:
        raise StoreCorrupted("its log is of another version")

    monkeypatch.setattr("bylot.eventlog.takeover.load_aggregate", refuse)


def edit_problem(router: StoredRouter, problem: Problem) -> None:
    config = structs.replace(router.config, problem=problem_to_data(problem))
    router.send(EditRouter(router.name, config))


PRICED = Problem(["ann", "bob", "eve"], {"usd": [1.0, 2.0, 4.0]}, [at_most("usd", 5.0)], draws=2)


@pytest.mark.usefixtures("unloadable")
def test_declared_prices_from_before_an_edit_are_no_bills(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/bylot.db"
    with StoredRouter.create(address, "triage", PRICED, "noisy-or") as router:
        for _ in range(30):
            router.reward(router.decide().id, 0.5)
        edit_problem(router, PRICED.replace(costs={"usd": [1.0, 2.0, 1.0]}))
    assert migrate(address, "--take-over", "--out", str(tmp_path)) == 0
    with closing(open_store(address)) as store:
        row = store.find("triage")
        assert row is not None
        means = load_aggregate(store, row).core.book.kept.state.means[0]
    assert means * 2.0 == pytest.approx([1.0, 2.0, 1.0], rel=1e-9)


@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize("name", ["triage", "a" * 63])
def test_a_router_can_be_taken_over_again_whatever_its_name(name: str, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/bylot.db"
    with StoredRouter.create(address, name, PRICED, "noisy-or") as router:
        router.reward(router.decide().id, 0.5)
    assert migrate(address, "--take-over", "--out", str(tmp_path)) == 0
    assert list_names(address) == sorted([name, f"{name[:40]}--old1"])
    assert migrate(address, "--take-over", "--out", str(tmp_path)) == 0
    assert list_names(address) == sorted([name, f"{name[:40]}--old1", f"{name[:40]}--old2"])


@pytest.mark.usefixtures("unloadable")
def test_bounds_of_tenants_that_fit_no_limit_any_more_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"sqlite:///{tmp_path}/bylot.db"
    limit = at_most("usd", 50.0, per="month", scope="tenant")
    problem = PRICED.replace(limits=[limit], traffic=10.0)
    with StoredRouter.create(address, "triage", problem, "noisy-or") as router:
        router.send(SetTenant("triage", "acme", (limit.at(70.0),)))
        daily = at_most("usd", 9.0, per="day", scope="tenant")
        edit_problem(router, problem.replace(limits=[daily]))
    assert migrate(address, "--take-over", "--out", str(tmp_path)) == 0
    assert "taken over: own bounds of 0 of 1 tenants" in capsys.readouterr().out


@pytest.mark.usefixtures("unloadable")
def test_what_a_router_had_learned_from_a_log_is_learned_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"sqlite:///{tmp_path}/bylot.db"
    pool = Problem(["ann", "bob", "eve"], {"usd": [1.0, 2.0, 4.0]}, draws=2)
    rounds = (PastRound(("ann", "bob"), 0.0), PastRound(("ann", "eve"), 1.0))
    with StoredRouter.create(address, "triage", pool, "noisy-or") as router:
        router.send(LearnRounds("triage", rounds, 0))
        router.reward(router.decide().id, 0.5)

    assert migrate(address, "--take-over", "--out", str(tmp_path)) == 0
    expected = "3 of 3 rounds learned, 2 of them from a log"
    assert expected in capsys.readouterr().out
    with StoredRouter(address, "triage") as router:
        counters = router.status().counters
        assert counters is not None
        assert counters.past == 3


def test_a_damaged_log_is_not_taken_over(
    older: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "bylot.db")) as db, db:
        db.execute("UPDATE events SET at = at + 1 WHERE router = 1 AND seq = 7")
    assert migrate(older, "--take-over", "--out", str(tmp_path)) == 1
    assert "left as it is: router 'triage': event 7 of its log was changed" in (
        capsys.readouterr().out
    )
    assert list_names(older) == ["sorting", "sorting--old2", "triage"]


@pytest.mark.usefixtures("unloadable")
def test_a_router_that_has_only_learned_from_a_log_learns_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"sqlite:///{tmp_path}/bylot.db"
    rounds = (PastRound(("ann", "bob"), 0.0), PastRound(("ann", "eve"), 1.0))
    with StoredRouter.create(address, "triage", PRICED, "noisy-or") as router:
        router.send(LearnRounds("triage", rounds, 0))
        edit_problem(router, PRICED.replace(draws=1))
    assert migrate(address, "--take-over", "--out", str(tmp_path)) == 0
    assert "0 of 2 rounds learned, 2 of them from a log" in capsys.readouterr().out


def test_a_log_that_has_lost_its_end_is_not_taken_over(
    older: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_store(older)) as store:
        row = store.find("triage")
        assert row is not None
        last = store.last_seq(row.number)
        assert last is not None
        event = store.event(row.number, last)
        assert event is not None
        store.ends.record({row.number: LogEnd(last, event.seal)})
    with closing(sqlite3.connect(tmp_path / "bylot.db")) as db, db:
        db.execute("DELETE FROM events WHERE router = 1 AND seq = ?", (last,))
    assert migrate(older, "--take-over", "--out", str(tmp_path)) == 1
    assert "left as it is: router 'triage': its log ends before event" in capsys.readouterr().out
    assert "triage" in list_names(older)


def test_a_log_of_a_later_version_is_left_to_that(
    older: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bylot.eventlog.events.LOG_VERSION", 0)
    assert migrate(older, "--take-over", "--out", str(tmp_path)) == 1
    assert "which is newer than 0; use the bylot that wrote it" in capsys.readouterr().out
