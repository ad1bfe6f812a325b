"""The keeper: batches of commands, and what is left of them when the store fails."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bylot import policies
from bylot.errors import (
    DecisionNotFound,
    DecisionStateError,
    IdempotencyKeyReused,
    LeaseLost,
    RewardConflict,
    RouterBusy,
    RouterExists,
    RouterNotFound,
    StoreCorrupted,
    StoreUnavailable,
)
from bylot.eventlog import command_handler as keeping
from bylot.eventlog.audit import audit_router
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import (
    ActivateDecision,
    CancelDecision,
    CreateRouter,
    DeleteRouter,
    EditRouter,
    GetDecision,
    GetRouter,
    MakeDecision,
    RecordReward,
)
from bylot.eventlog.repository import RouterRepository
from bylot.problem import Limit, Problem, at_least, at_most, share
from bylot.router import persistence
from bylot.router.config import RouterConfig
from bylot.store import Event, Snapshot, Store, open_store
from stores import Opener

SECOND = 1_000_000


def terms(limits: Sequence[Limit] = (), **others: Any) -> RouterConfig:
    """A small pool, with these limits beside its own."""
    bounds = [at_most("usd", 4.5), *limits]
    pool = Problem(["ann", "bob", "eve"], {"usd": [1.0, 2.0, 4.0]}, bounds, draws=2)
    policy = policies.policy_to_data(policies.find_policy("distinct"))
    return RouterConfig(problem=persistence.problem_to_data(pool), policy=policy, **others)


def asked(keeper: CommandHandler, *batch: Any, at: int = SECOND) -> Any:
    """The answer to one command, raised if it is an error; or the answers to several."""
    answers = keeper.perform(batch, at)
    if len(answers) > 1:
        return answers
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


@pytest.fixture
def keeper(store: Store) -> CommandHandler:
    """A keeper with one router."""
    made = CommandHandler(RouterRepository(store, "me", every=20))
    asked(made, CreateRouter("triage", terms()))
    return made


class Failing:
    """A store whose next appends fail: before anything is written, or after all of it was."""

    def __init__(self, store: Store, error: Exception, *, after: bool = False) -> None:
        self.store, self.error, self.after, self.times = store, error, after, 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def append(self, events: Sequence[Event], snapshots: Sequence[Snapshot] = ()) -> None:
        """Fail once."""
        if self.times == 0 or self.after:
            self.store.append(events, snapshots)
        if self.times:
            self.times -= 1
            raise self.error


def fail(keeper: CommandHandler, error: Exception, *, after: bool = False) -> None:
    """Let the next commit fail."""
    broken: Any = Failing(keeper.store, error, after=after)
    keeper.repository.store = keeper.store = broken


def test_answers_are_given_after_the_lines_are_in_the_store(
    keeper: CommandHandler, opened: Opener
) -> None:
    first, second = asked(keeper, MakeDecision("triage"), MakeDecision("triage", context="x"))
    lines = opened().events(first.id and 1)
    assert [line.kind for line in lines] == ["created", "decided", "decided"]
    assert asked(keeper, GetDecision(second.id)).decision == second


def test_a_batch_is_one_transaction(keeper: CommandHandler) -> None:
    class Counting(Failing):
        def append(self, events: Sequence[Event], snapshots: Sequence[Snapshot] = ()) -> None:
            self.times += 1
            self.store.append(events, snapshots)

    counting: Any = Counting(keeper.store, StoreUnavailable(""))
    keeper.repository.store = counting
    asked(keeper, *[MakeDecision("triage") for _ in range(10)])
    assert counting.times == 2  # it began at one


def test_a_key_gives_the_same_decision_again_and_is_refused_to_another_request(
    keeper: CommandHandler, opened: Opener
) -> None:
    first = asked(keeper, MakeDecision("triage", context="x", key="k"))
    same_batch = asked(keeper, MakeDecision("triage", key="j"), MakeDecision("triage", key="j"))
    assert same_batch[0] == same_batch[1]
    keeper.close()
    later = CommandHandler(RouterRepository(opened(), "you"))
    assert asked(later, MakeDecision("triage", context="x", key="k"), at=99 * SECOND) == first
    for other in (
        MakeDecision("triage", key="k"),
        MakeDecision("triage", context="x", available=("ann", "bob"), key="k"),
    ):
        with pytest.raises(IdempotencyKeyReused):
            asked(later, other)
    assert asked(later, GetRouter("triage")).status.decisions == 2


def test_a_reward_counts_once_also_within_a_batch(keeper: CommandHandler) -> None:
    made = asked(keeper, MakeDecision("triage"))
    once, twice, other = asked(
        keeper, RecordReward(made.id, 0.5), RecordReward(made.id, 0.5), RecordReward(made.id, 0.6)
    )
    assert (once.receipt, twice.receipt) == ("learned", "duplicate")
    assert isinstance(other, RewardConflict)
    assert asked(keeper, RecordReward(made.id, 0.5)).receipt == "duplicate"
    assert asked(keeper, GetRouter("triage")).status.rewards == 1


@pytest.mark.parametrize("id_", ["", "d1", "triage.1.99", "triage.9.1", "nobody.1.1", "triage.1.0"])
def test_what_is_no_decision_is_unknown(keeper: CommandHandler, id_: str) -> None:
    asked(keeper, MakeDecision("triage"))
    for command in (
        RecordReward(id_, 0.5),
        GetDecision(id_),
        CancelDecision(id_),
        ActivateDecision(id_),
    ):
        with pytest.raises(DecisionNotFound):
            asked(keeper, command)


def test_one_error_leaves_the_rest_of_a_batch_alone(keeper: CommandHandler) -> None:
    answers = asked(
        keeper,
        MakeDecision("triage"),
        MakeDecision("nobody"),
        MakeDecision("triage", available=()),
        MakeDecision("triage"),
    )
    assert isinstance(answers[1], RouterNotFound)
    assert isinstance(answers[2], Exception)
    assert (answers[0].t, answers[3].t) == (0, 1)


@pytest.mark.parametrize("after", [False, True])
def test_after_a_failed_commit_the_router_is_what_the_store_says(
    keeper: CommandHandler, after: bool
) -> None:
    asked(keeper, MakeDecision("triage", key="before"))
    fail(keeper, StoreUnavailable("gone"), after=after)
    answers = keeper.perform([MakeDecision("triage", key="k"), GetRouter("triage")], SECOND)
    assert all(isinstance(one, StoreUnavailable) for one in answers)
    retried = asked(keeper, MakeDecision("triage", key="k"))
    assert retried.t == 1
    assert asked(keeper, GetRouter("triage")).status.decisions == 2
    assert audit_router(keeper.store, "triage").fault is None


def test_a_rival_that_wrote_first_is_noticed_and_nothing_is_written_twice(
    keeper: CommandHandler, opened: Opener
) -> None:
    asked(keeper, CreateRouter("other", terms()))
    asked(keeper, MakeDecision("triage"), MakeDecision("other"))
    with pytest.raises(RouterBusy):
        asked(CommandHandler(RouterRepository(opened(), "you")), MakeDecision("triage"))
    keeper.store.release("me")  # as if our lease had run out
    rival = CommandHandler(RouterRepository(opened(), "you"))
    asked(rival, MakeDecision("triage"))
    here, there = keeper.perform([MakeDecision("triage"), MakeDecision("other")], SECOND)
    assert isinstance(here, LeaseLost)
    assert there.t == 1
    with pytest.raises(RouterBusy):
        asked(keeper, MakeDecision("triage"))
    assert audit_router(keeper.store, "triage").decisions == 2
    rival.close()
    assert asked(keeper, MakeDecision("triage")).t == 2


def test_an_unforeseen_error_lets_go_of_one_router_and_of_no_line(
    keeper: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(keeper, CreateRouter("other", terms()))
    fold = keeper.repository.get("triage", 0)
    draw = fold.core.decide

    def broken(context: str | None, up: Any) -> Any:
        draw(context, up)
        raise ZeroDivisionError if context == "bad" else RuntimeError

    monkeypatch.setattr(fold.core, "decide", lambda c, up: broken(c, up) if c else draw(c, up))
    answers = asked(
        keeper,
        MakeDecision("triage"),
        MakeDecision("triage", context="bad"),
        MakeDecision("other"),
        MakeDecision("triage"),
    )
    assert isinstance(answers[1], ZeroDivisionError)
    assert (answers[0].t, answers[2].t, answers[3].t) == (0, 0, 1)
    assert audit_router(keeper.store, "triage").fault is None


def test_snapshots_are_taken_now_and_then_and_lead_to_the_same_state(
    keeper: CommandHandler, opened: Opener
) -> None:
    for n in range(60):
        made = asked(keeper, MakeDecision("triage", context=str(n % 3)))
        asked(keeper, RecordReward(made.id, n / 60))
    number = keeper.repository.get("triage", 0).number
    kept = opened().snapshot(number)
    assert kept is not None
    assert 20 <= kept.seq < 121
    assert audit_router(opened(), "triage").fault is None
    live = keeper.repository.get("triage", 0).fingerprint()
    keeper.close()
    again = opened()
    assert RouterRepository(again, "you").get("triage", 0).fingerprint() == live
    last = again.snapshot(number)
    assert last is not None
    assert last.seq == 120


def test_a_damaged_snapshot_is_done_without_and_a_damaged_log_is_refused_by_name(
    keeper: CommandHandler, opened: Opener
) -> None:
    asked(keeper, CreateRouter("healthy", terms()))
    for _ in range(30):
        asked(keeper, MakeDecision("triage"))
    number = keeper.repository.get("triage", 0).number
    live = keeper.repository.get("triage", 0).fingerprint()
    keeper.close()
    store = opened()
    kept = store.snapshot(number)
    assert kept is not None
    store.append([], [kept._replace(body=kept.body[:-1] + b"x")])
    assert RouterRepository(store, "you").get("triage", 0).fingerprint() == live
    assert audit_router(store, "triage").fault is not None
    store.release("you")
    last = store.events(number)[-1]
    store.append([last._replace(seq=last.seq + 1)])  # not what any router of ours would write
    keeper = CommandHandler(RouterRepository(store, "me"))
    with pytest.raises(StoreCorrupted, match=r"'triage'.*event 31"):
        asked(keeper, MakeDecision("triage"))
    with pytest.raises(StoreCorrupted):
        asked(keeper, MakeDecision("triage"))
    assert asked(keeper, MakeDecision("healthy")).t == 0


def test_waits_that_are_over_are_closed_by_the_sweep(store: Store) -> None:
    keeper = CommandHandler(RouterRepository(store, "me"))
    asked(keeper, CreateRouter("triage", terms(wait=10.0, default=0.25)))
    made = asked(keeper, MakeDecision("triage"), at=SECOND)
    keeper.sweep(11 * SECOND)
    assert asked(keeper, GetDecision(made.id)).state == "waiting"
    keeper.sweep(11 * SECOND + 1)
    assert asked(keeper, GetDecision(made.id)).state == "closed"
    assert asked(keeper, GetDecision(made.id)).learned == 0.25
    assert asked(keeper, GetRouter("triage")).status.counters.defaulted == 1
    assert asked(keeper, RecordReward(made.id, 0.5), at=12 * SECOND).receipt == "late"
    assert audit_router(store, "triage").fault is None


def test_a_view_stays_as_it_was_while_its_router_goes_on(keeper: CommandHandler) -> None:
    asked(keeper, *[MakeDecision("triage")] * 3)
    view = asked(keeper, GetRouter("triage"))
    then = msgspec.json.encode(view)
    made = asked(keeper, *[MakeDecision("triage")] * 600)
    asked(keeper, *(RecordReward(one.id, 0.5, {"usd": 1.0}) for one in made))
    assert msgspec.json.encode(view) == then
    assert msgspec.json.encode(asked(keeper, GetRouter("triage"))) != then


def test_a_sweep_of_many_is_done_in_slices_and_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "MAX_CLOSES_PER_SWEEP", 3)
    keeper = CommandHandler(RouterRepository(store, "me"))
    asked(keeper, CreateRouter("triage", terms(wait=1.0)))
    keeper.perform([MakeDecision("triage")] * 5, SECOND)
    waiting = []
    for more in (True, False, False):
        assert keeper.sweep(9 * SECOND) is more
        waiting.append(asked(keeper, GetRouter("triage")).status.waiting)
    assert waiting == [2, 0, 0]


def test_a_recalled_decision_tells_what_it_taught(keeper: CommandHandler) -> None:
    told, silent = asked(keeper, MakeDecision("triage"), MakeDecision("triage"))
    asked(keeper, RecordReward(told.id, 0.5))
    assert asked(keeper, GetDecision(told.id)).learned == 0.5
    assert asked(keeper, GetDecision(silent.id)).learned is None


def test_deferred_decisions_are_activated_or_cancelled(keeper: CommandHandler) -> None:
    made = asked(keeper, MakeDecision("triage", defer=True))
    with pytest.raises(DecisionStateError):
        asked(keeper, RecordReward(made.id, 0.5))
    assert asked(keeper, ActivateDecision(made.id)) == made
    assert asked(keeper, RecordReward(made.id, 0.5)).receipt == "learned"
    other = asked(keeper, MakeDecision("triage", defer=True))
    asked(keeper, CancelDecision(other.id))
    assert asked(keeper, GetDecision(other.id)).state == "cancelled"


def test_an_edit_makes_a_version_and_must_know_the_one_before(keeper: CommandHandler) -> None:
    asked(keeper, MakeDecision("triage"))
    view = asked(keeper, EditRouter("triage", terms(paused=("eve",)), version=1))
    assert view.config.version == 2
    assert "eve" not in asked(keeper, MakeDecision("triage")).subset
    with pytest.raises(DecisionStateError, match="version 2, not 1"):
        asked(keeper, EditRouter("triage", terms(), version=1))
    assert audit_router(keeper.store, "triage").fault is None


def test_names_are_taken_checked_and_free_again(keeper: CommandHandler) -> None:
    with pytest.raises(RouterExists):
        asked(keeper, CreateRouter("triage", terms()))
    for bad in ("", "Triage", "a.b", "a" * 64, "-a"):
        with pytest.raises(Exception, match="invalid router name"):
            asked(keeper, CreateRouter(bad, terms()))
    old = asked(keeper, MakeDecision("triage"))
    asked(keeper, DeleteRouter("triage"))
    with pytest.raises(RouterNotFound):
        asked(keeper, GetRouter("triage"))
    asked(keeper, CreateRouter("triage", terms()))
    asked(keeper, MakeDecision("triage"))
    with pytest.raises(DecisionNotFound):
        asked(keeper, RecordReward(old.id, 0.5))


def test_leases_are_kept_while_they_are_renewed(keeper: CommandHandler, opened: Opener) -> None:
    keeper.renew()
    assert "triage" in keeper.repository.opened
    keeper.store.release("me")
    RouterRepository(opened(), "you").get("triage", 0)
    keeper.renew()
    assert "triage" not in keeper.repository.opened


def test_what_came_before_a_delete_or_a_create_is_written_or_refused(
    keeper: CommandHandler,
) -> None:
    asked(keeper, CreateRouter("other", terms()))
    asked(keeper, MakeDecision("other"))
    for command in (DeleteRouter("triage"), CreateRouter("third", terms())):
        fail(keeper, StoreUnavailable("gone"))
        answers = keeper.perform([MakeDecision("other"), command], SECOND)
        assert isinstance(answers[0], StoreUnavailable)
    assert asked(keeper, MakeDecision("other")).t == 1
    assert audit_router(keeper.store, "other").fault is None


def test_a_refusal_that_rests_on_a_line_that_was_not_written_is_none(
    keeper: CommandHandler,
) -> None:
    made = asked(keeper, MakeDecision("triage"))
    fail(keeper, StoreUnavailable("gone"))
    answers = keeper.perform([RecordReward(made.id, 0.5), RecordReward(made.id, 0.7)], SECOND)
    assert all(isinstance(one, StoreUnavailable) for one in answers)
    assert asked(keeper, RecordReward(made.id, 0.7)).receipt == "learned"


def test_neither_a_snapshot_nor_another_router_keeps_a_line_from_being_written(
    keeper: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(keeper, CreateRouter("other", terms()))
    asked(keeper, MakeDecision("triage"))
    monkeypatch.setattr(
        keeper.repository.opened["triage"].aggregate, "take_snapshot", lambda: 1 / 0
    )
    keeper.repository.opened["triage"].snapshot_due = 0
    first, second = asked(keeper, MakeDecision("triage"), MakeDecision("other"))
    assert (first.t, second.t) == (1, 0)
    assert asked(keeper, MakeDecision("triage")).t == 2
    fold = keeper.repository.opened["other"].aggregate
    append = fold.append
    monkeypatch.setattr(fold, "append", lambda *a, **k: append(*a, **k)._replace(at=2**70))
    good, bad = asked(keeper, MakeDecision("triage"), MakeDecision("other"))
    assert good.t == 3
    assert isinstance(bad, Exception)


def test_a_damaged_router_neither_stops_the_sweep_nor_keeps_its_name(
    keeper: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = terms(wait=10.0)
    asked(keeper, CreateRouter("bad", waits))
    asked(keeper, CreateRouter("good", waits))
    made = asked(keeper, MakeDecision("good"))
    asked(keeper, MakeDecision("bad"))

    def damaged(at: int) -> None:
        raise StoreCorrupted("line 1")

    monkeypatch.setattr(keeper.repository.opened["bad"].aggregate, "close_due", damaged)
    keeper.sweep(60 * SECOND)
    assert asked(keeper, GetDecision(made.id)).state == "closed"
    with pytest.raises(StoreCorrupted):
        asked(keeper, MakeDecision("bad"), at=60 * SECOND)
    asked(keeper, DeleteRouter("bad"))
    asked(keeper, CreateRouter("bad", waits))
    assert asked(keeper, MakeDecision("bad")).t == 0


def test_a_router_in_other_hands_is_not_deleted(keeper: CommandHandler, opened: Opener) -> None:
    keeper.store.release("me")
    rival = CommandHandler(RouterRepository(opened(), "you"))
    asked(rival, MakeDecision("triage"))
    with pytest.raises(RouterBusy):
        asked(keeper, DeleteRouter("triage"))
    assert asked(rival, MakeDecision("triage")).t == 1


def change(file: Path) -> None:
    """Put another expert in the place of one, in the first decision of a store."""
    with contextlib.closing(sqlite3.connect(file)) as db:
        other = "CAST(replace(body, x'a3616e6e', x'a3626f62') AS BLOB)"  # ann becomes bob
        db.execute(f"UPDATE events SET body = {other} WHERE seq = 1")
        db.commit()


def test_a_line_that_was_changed_is_not_learned_from(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/b.db"
    keeper = CommandHandler(RouterRepository(open_store(place), "me"))
    asked(keeper, CreateRouter("triage", terms()))
    made = asked(keeper, MakeDecision("triage", key="k"))
    keeper.close()
    change(tmp_path / "b.db")
    again = CommandHandler(RouterRepository(open_store(place), "me"))
    with pytest.raises(StoreCorrupted, match="event 1 of the log"):
        asked(again, RecordReward(made.id, 0.5))
    with pytest.raises(StoreCorrupted, match="event 1 of the log"):
        asked(again, MakeDecision("triage", key="k"))
    again.close()


def test_a_line_that_was_changed_is_not_learned_from_when_a_reward_is_replayed(
    tmp_path: Path,
) -> None:
    place = f"sqlite:///{tmp_path}/b.db"
    keeper = CommandHandler(RouterRepository(open_store(place), "me"))
    asked(keeper, CreateRouter("triage", terms()))
    made = asked(keeper, MakeDecision("triage"))
    keeper.close()  # with a snapshot: the decision is before it, its reward after it
    with contextlib.closing(open_store(place)) as killed:
        asked(CommandHandler(RouterRepository(killed, "me")), RecordReward(made.id, 0.5))
    change(tmp_path / "b.db")
    again = CommandHandler(RouterRepository(open_store(place), "me"))
    with pytest.raises(StoreCorrupted, match="event 1 of the log"):
        asked(again, MakeDecision("triage"))
    again.close()


def test_a_reward_that_was_noted_beside_pending_ones_is_known_again(store: Store) -> None:
    keeper = CommandHandler(RouterRepository(store, "me"))
    asked(keeper, CreateRouter("triage", terms(wait=99.0, aggregate="last")))
    made = asked(keeper, MakeDecision("triage"))
    asked(keeper, RecordReward(made.id, 0.5, key="k1"))
    asked(keeper, EditRouter("triage", terms(wait=99.0)))
    told = RecordReward(made.id, 0.3, {"usd": 50.0}, "k2")
    assert asked(keeper, told).receipt == "noted"
    spent = asked(keeper, GetRouter("triage")).status.costs["usd"].settled
    assert asked(keeper, told).receipt == "duplicate"
    with pytest.raises(RewardConflict):
        asked(keeper, RecordReward(made.id, 0.9, {"usd": 50.0}, "k2"))
    assert asked(keeper, GetRouter("triage")).status.costs["usd"].settled == spent
    assert audit_router(store, "triage").fault is None


def test_an_audit_knows_of_cancelled_decisions_and_of_costs_that_came_and_went(
    store: Store,
) -> None:
    keeper = CommandHandler(RouterRepository(store, "me"))
    seniors = at_least(share("senior", ["eve"]), 0.1)
    both = terms(limits=[seniors])
    asked(keeper, CreateRouter("triage", both))
    made = [asked(keeper, MakeDecision("triage")) for _ in range(6)]
    asked(keeper, EditRouter("triage", terms()))
    asked(keeper, EditRouter("triage", both))
    made.append(asked(keeper, MakeDecision("triage")))
    for one in (made[0], made[5], made[6]):
        asked(keeper, CancelDecision(one.id))
    assert audit_router(store, "triage").fault is None
    costs = asked(keeper, GetRouter("triage")).status.costs
    assert costs["senior"].settled == costs["senior"].stated == 0.0
    keeper.repository.opened["triage"].aggregate.stated["usd"] += 1.0
    keeper.repository.opened["triage"].snapshot_due = 0
    asked(keeper, MakeDecision("triage"))
    assert audit_router(store, "triage").fault is not None
