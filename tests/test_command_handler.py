"""The command handler: batches of commands, and their state after failures of the store."""

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
from bylot.eventlog import command_handler
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
from bylot.router.config import RouterConfig, problem_to_data
from bylot.store import Event, Store, open_store
from stores import Opener

SECOND = 1_000_000


def make_config(limits: Sequence[Limit] = (), **options: Any) -> RouterConfig:
    """The config of a small problem, with these additional limits."""
    bounds = [at_most("usd", 4.5), *limits]
    pool = Problem(["ann", "bob", "eve"], {"usd": [1.0, 2.0, 4.0]}, bounds, draws=2)
    policy = policies.policy_to_data(policies.find_policy("distinct"))
    return RouterConfig(problem=problem_to_data(pool), policy=policy, **options)


def perform(handler: CommandHandler, *batch: Any, at: int = SECOND) -> Any:
    """The answer to one command, raised if it is an error; or the answers to several."""
    answers = handler.perform(batch, at)
    if len(answers) > 1:
        return answers
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


@pytest.fixture
def handler(store: Store) -> CommandHandler:
    """A command handler with one router."""
    new_handler = CommandHandler(RouterRepository(store, "me", every=20))
    perform(new_handler, CreateRouter("triage", make_config()))
    return new_handler


class FailingStore:
    """A store whose next appends fail: before anything is written, or after all of it was."""

    def __init__(self, store: Store, error: Exception, *, after: bool = False) -> None:
        self.store, self.error, self.after, self.times = store, error, after, 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def append(self, events: Sequence[Event], *more: Any) -> None:
        """Append, and raise the error once."""
        if self.times == 0 or self.after:
            self.store.append(events, *more)
        if self.times:
            self.times -= 1
            raise self.error


def fail_next_commit(handler: CommandHandler, error: Exception, *, after: bool = False) -> None:
    """Make the next commit fail."""
    fail_in_decide: Any = FailingStore(handler.store, error, after=after)
    handler.repository.store = handler.store = fail_in_decide


def test_answers_are_returned_after_the_events_are_stored(
    handler: CommandHandler, open_store_again: Opener
) -> None:
    first, second = perform(handler, MakeDecision("triage"), MakeDecision("triage", context="x"))
    events = open_store_again().events(first.id and 1)
    assert [event.kind for event in events] == ["created", "decided", "decided"]
    assert perform(handler, GetDecision(second.id)).decision == second


def test_a_batch_is_one_transaction(handler: CommandHandler) -> None:
    class CountingStore(FailingStore):
        def append(self, events: Sequence[Event], *more: Any) -> None:
            self.times += 1
            self.store.append(events, *more)

    counting: Any = CountingStore(handler.store, StoreUnavailable(""))
    handler.repository.store = counting
    perform(handler, *[MakeDecision("triage") for _ in range(10)])
    assert counting.times == 2  # it starts at one


def test_a_key_returns_the_same_decision_and_is_refused_for_another_request(
    handler: CommandHandler, open_store_again: Opener
) -> None:
    first = perform(handler, MakeDecision("triage", context="x", key="k"))
    same_batch = perform(handler, MakeDecision("triage", key="j"), MakeDecision("triage", key="j"))
    assert same_batch[0] == same_batch[1]
    handler.close()
    later = CommandHandler(RouterRepository(open_store_again(), "you"))
    assert perform(later, MakeDecision("triage", context="x", key="k"), at=99 * SECOND) == first
    for other in (
        MakeDecision("triage", key="k"),
        MakeDecision("triage", context="x", available=("ann", "bob"), key="k"),
    ):
        with pytest.raises(IdempotencyKeyReused):
            perform(later, other)
    assert perform(later, GetRouter("triage")).status.decisions == 2


def test_a_reward_counts_once_also_within_a_batch(handler: CommandHandler) -> None:
    decision = perform(handler, MakeDecision("triage"))
    once, twice, other = perform(
        handler,
        RecordReward(decision.id, 0.5),
        RecordReward(decision.id, 0.5),
        RecordReward(decision.id, 0.6),
    )
    assert (once.receipt, twice.receipt) == ("learned", "duplicate")
    assert isinstance(other, RewardConflict)
    assert perform(handler, RecordReward(decision.id, 0.5)).receipt == "duplicate"
    assert perform(handler, GetRouter("triage")).status.rewards == 1


@pytest.mark.parametrize(
    "id_",
    [
        "",
        "d1",
        "triage.1.99.{tag}",
        "triage.9.1.{tag}",
        "unknown.1.1.{tag}",
        "triage.1.0.{tag}",
        "triage.1.1",
        "triage.1.1.",
        "triage.1.1.{wrong}",
    ],
)
def test_an_unknown_decision_is_an_error(handler: CommandHandler, id_: str) -> None:
    tag = perform(handler, MakeDecision("triage")).id.rpartition(".")[2]
    id_ = id_.format(tag=tag, wrong=f"{int(tag, 16) ^ 1:08x}")
    for command in (
        RecordReward(id_, 0.5),
        GetDecision(id_),
        CancelDecision(id_),
        ActivateDecision(id_),
    ):
        with pytest.raises(DecisionNotFound):
            perform(handler, command)


def test_an_error_does_not_affect_the_rest_of_a_batch(handler: CommandHandler) -> None:
    answers = perform(
        handler,
        MakeDecision("triage"),
        MakeDecision("unknown"),
        MakeDecision("triage", available=()),
        MakeDecision("triage"),
    )
    assert isinstance(answers[1], RouterNotFound)
    assert isinstance(answers[2], Exception)
    assert (answers[0].t, answers[3].t) == (0, 1)


@pytest.mark.parametrize("after", [False, True])
def test_after_a_failed_commit_the_router_equals_the_store(
    handler: CommandHandler, after: bool
) -> None:
    perform(handler, MakeDecision("triage", key="before"))
    fail_next_commit(handler, StoreUnavailable("gone"), after=after)
    answers = handler.perform([MakeDecision("triage", key="k"), GetRouter("triage")], SECOND)
    assert all(isinstance(one, StoreUnavailable) for one in answers)
    retried = perform(handler, MakeDecision("triage", key="k"))
    assert retried.t == 1
    assert perform(handler, GetRouter("triage")).status.decisions == 2
    assert audit_router(handler.store, "triage").fault is None


def test_a_write_of_another_server_is_detected_and_nothing_is_written_twice(
    handler: CommandHandler, open_store_again: Opener
) -> None:
    perform(handler, CreateRouter("other", make_config()))
    perform(handler, MakeDecision("triage"), MakeDecision("other"))
    with pytest.raises(RouterBusy):
        perform(CommandHandler(RouterRepository(open_store_again(), "you")), MakeDecision("triage"))
    handler.store.release("me")  # as if the lease had expired
    other_handler = CommandHandler(RouterRepository(open_store_again(), "you"))
    perform(other_handler, MakeDecision("triage"))
    own_answer, other_answer = handler.perform(
        [MakeDecision("triage"), MakeDecision("other")], SECOND
    )
    assert isinstance(own_answer, LeaseLost)
    assert other_answer.t == 1
    with pytest.raises(RouterBusy):
        perform(handler, MakeDecision("triage"))
    assert audit_router(handler.store, "triage").decisions == 2
    other_handler.close()
    assert perform(handler, MakeDecision("triage")).t == 2


def test_an_unexpected_error_reloads_one_router_and_loses_no_event(
    handler: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform(handler, CreateRouter("other", make_config()))
    aggregate = handler.repository.get("triage", 0)
    draw = aggregate.core.decide

    def fail_in_decide(context: str | None, *others: Any, **inputs: Any) -> Any:
        draw(context, *others, **inputs)
        raise ZeroDivisionError if context == "bad" else RuntimeError

    monkeypatch.setattr(
        aggregate.core,
        "decide",
        lambda c, *others, **inputs: (fail_in_decide if c else draw)(c, *others, **inputs),
    )
    answers = perform(
        handler,
        MakeDecision("triage"),
        MakeDecision("triage", context="bad"),
        MakeDecision("other"),
        MakeDecision("triage"),
    )
    assert isinstance(answers[1], ZeroDivisionError)
    assert (answers[0].t, answers[2].t, answers[3].t) == (0, 0, 1)
    assert audit_router(handler.store, "triage").fault is None


def test_snapshots_are_taken_regularly_and_restore_the_same_state(
    handler: CommandHandler, open_store_again: Opener
) -> None:
    for n in range(60):
        decision = perform(handler, MakeDecision("triage", context=str(n % 3)))
        perform(handler, RecordReward(decision.id, n / 60))
    number = handler.repository.get("triage", 0).number
    snapshot = open_store_again().snapshot(number)
    assert snapshot is not None
    assert 20 <= snapshot.seq < 121
    assert audit_router(open_store_again(), "triage").fault is None
    fingerprint = handler.repository.get("triage", 0).fingerprint()
    handler.close()
    reopened = open_store_again()
    assert RouterRepository(reopened, "you").get("triage", 0).fingerprint() == fingerprint
    last = reopened.snapshot(number)
    assert last is not None
    assert last.seq == 120


def test_a_damaged_snapshot_is_ignored_and_a_damaged_log_is_refused(
    handler: CommandHandler, open_store_again: Opener
) -> None:
    perform(handler, CreateRouter("healthy", make_config()))
    for _ in range(30):
        perform(handler, MakeDecision("triage"))
    number = handler.repository.get("triage", 0).number
    fingerprint = handler.repository.get("triage", 0).fingerprint()
    handler.close()
    store = open_store_again()
    snapshot = store.snapshot(number)
    assert snapshot is not None
    store.append([], [snapshot._replace(body=snapshot.body[:-1] + b"x")])
    assert RouterRepository(store, "you").get("triage", 0).fingerprint() == fingerprint
    assert audit_router(store, "triage").fault is not None
    store.release("you")
    last = store.events(number)[-1]
    store.append([last._replace(seq=last.seq + 1)])  # not an event that a router would write
    handler = CommandHandler(RouterRepository(store, "me"))
    with pytest.raises(StoreCorrupted, match=r"'triage'.*event 31"):
        perform(handler, MakeDecision("triage"))
    with pytest.raises(StoreCorrupted):
        perform(handler, MakeDecision("triage"))
    assert perform(handler, MakeDecision("healthy")).t == 0


def test_the_sweep_closes_decisions_after_their_deadline(store: Store) -> None:
    handler = CommandHandler(RouterRepository(store, "me"))
    perform(handler, CreateRouter("triage", make_config(wait=10.0, default=0.25)))
    decision = perform(handler, MakeDecision("triage"), at=SECOND)
    handler.sweep(11 * SECOND)
    assert perform(handler, GetDecision(decision.id)).state == "waiting"
    handler.sweep(11 * SECOND + 1)
    assert perform(handler, GetDecision(decision.id)).state == "closed"
    assert perform(handler, GetDecision(decision.id)).learned == 0.25
    assert perform(handler, GetRouter("triage")).status.counters.defaulted == 1
    assert perform(handler, RecordReward(decision.id, 0.5), at=12 * SECOND).receipt == "late"
    assert audit_router(store, "triage").fault is None


def test_a_view_does_not_change_with_its_router(handler: CommandHandler) -> None:
    perform(handler, *[MakeDecision("triage")] * 3)
    view = perform(handler, GetRouter("triage"))
    encoded = msgspec.json.encode(view)
    decision = perform(handler, *[MakeDecision("triage")] * 600)
    perform(handler, *(RecordReward(one.id, 0.5, {"usd": 1.0}) for one in decision))
    assert msgspec.json.encode(view) == encoded
    assert msgspec.json.encode(perform(handler, GetRouter("triage"))) != encoded


def test_a_long_sweep_is_done_in_slices_and_reports_whether_more_is_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_handler, "MAX_CLOSES_PER_SWEEP", 3)
    handler = CommandHandler(RouterRepository(store, "me"))
    perform(handler, CreateRouter("triage", make_config(wait=1.0)))
    handler.perform([MakeDecision("triage")] * 5, SECOND)
    waiting = []
    for more in (True, False, False):
        assert handler.sweep(9 * SECOND) is more
        waiting.append(perform(handler, GetRouter("triage")).status.waiting)
    assert waiting == [2, 0, 0]


def test_a_decision_record_has_the_learned_reward(handler: CommandHandler) -> None:
    reward, unrewarded = perform(handler, MakeDecision("triage"), MakeDecision("triage"))
    perform(handler, RecordReward(reward.id, 0.5))
    assert perform(handler, GetDecision(reward.id)).learned == 0.5
    assert perform(handler, GetDecision(unrewarded.id)).learned is None


def test_deferred_decisions_are_activated_or_cancelled(handler: CommandHandler) -> None:
    decision = perform(handler, MakeDecision("triage", defer=True))
    with pytest.raises(DecisionStateError):
        perform(handler, RecordReward(decision.id, 0.5))
    assert perform(handler, ActivateDecision(decision.id)) == decision
    assert perform(handler, RecordReward(decision.id, 0.5)).receipt == "learned"
    other = perform(handler, MakeDecision("triage", defer=True))
    perform(handler, CancelDecision(other.id))
    assert perform(handler, GetDecision(other.id)).state == "cancelled"


def test_an_edit_increases_the_version_and_checks_the_previous_one(handler: CommandHandler) -> None:
    perform(handler, MakeDecision("triage"))
    view = perform(handler, EditRouter("triage", make_config(paused=("eve",)), version=1))
    assert view.config.version == 2
    assert "eve" not in perform(handler, MakeDecision("triage")).subset
    with pytest.raises(DecisionStateError, match="version 2, not 1"):
        perform(handler, EditRouter("triage", make_config(), version=1))
    assert audit_router(handler.store, "triage").fault is None


def test_names_are_unique_validated_and_reusable(handler: CommandHandler) -> None:
    with pytest.raises(RouterExists):
        perform(handler, CreateRouter("triage", make_config()))
    for invalid_name in ("", "Triage", "a.b", "a" * 64, "-a"):
        with pytest.raises(Exception, match="invalid router name"):
            perform(handler, CreateRouter(invalid_name, make_config()))
    old = perform(handler, MakeDecision("triage"))
    perform(handler, DeleteRouter("triage"))
    with pytest.raises(RouterNotFound):
        perform(handler, GetRouter("triage"))
    perform(handler, CreateRouter("triage", make_config()))
    perform(handler, MakeDecision("triage"))
    with pytest.raises(DecisionNotFound):
        perform(handler, RecordReward(old.id, 0.5))


def test_a_router_is_dropped_when_its_lease_is_lost(
    handler: CommandHandler, open_store_again: Opener
) -> None:
    handler.renew()
    assert "triage" in handler.repository.opened
    handler.store.release("me")
    RouterRepository(open_store_again(), "you").get("triage", 0)
    handler.renew()
    assert "triage" not in handler.repository.opened


def test_commands_before_a_delete_or_create_are_written_or_refused(
    handler: CommandHandler,
) -> None:
    perform(handler, CreateRouter("other", make_config()))
    perform(handler, MakeDecision("other"))
    for command in (DeleteRouter("triage"), CreateRouter("third", make_config())):
        fail_next_commit(handler, StoreUnavailable("gone"))
        answers = handler.perform([MakeDecision("other"), command], SECOND)
        assert isinstance(answers[0], StoreUnavailable)
    assert perform(handler, MakeDecision("other")).t == 1
    assert audit_router(handler.store, "other").fault is None


def test_an_answer_based_on_an_unwritten_event_is_an_error(
    handler: CommandHandler,
) -> None:
    decision = perform(handler, MakeDecision("triage"))
    fail_next_commit(handler, StoreUnavailable("gone"))
    answers = handler.perform(
        [RecordReward(decision.id, 0.5), RecordReward(decision.id, 0.7)], SECOND
    )
    assert all(isinstance(one, StoreUnavailable) for one in answers)
    assert perform(handler, RecordReward(decision.id, 0.7)).receipt == "learned"


def test_failures_of_snapshots_and_other_routers_do_not_prevent_a_write(
    handler: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform(handler, CreateRouter("other", make_config()))
    perform(handler, MakeDecision("triage"))
    monkeypatch.setattr(
        handler.repository.opened["triage"].aggregate, "take_snapshot", lambda: 1 / 0
    )
    handler.repository.opened["triage"].snapshot_due = 0
    first, second = perform(handler, MakeDecision("triage"), MakeDecision("other"))
    assert (first.t, second.t) == (1, 0)
    assert perform(handler, MakeDecision("triage")).t == 2
    aggregate = handler.repository.opened["other"].aggregate
    append = aggregate.append
    monkeypatch.setattr(aggregate, "append", lambda *a, **k: append(*a, **k)._replace(at=2**70))
    accepted, refused = perform(handler, MakeDecision("triage"), MakeDecision("other"))
    assert accepted.t == 3
    assert isinstance(refused, Exception)


def test_a_damaged_router_does_not_stop_the_sweep_and_can_be_deleted(
    handler: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_with_wait = make_config(wait=10.0)
    perform(handler, CreateRouter("bad", config_with_wait))
    perform(handler, CreateRouter("good", config_with_wait))
    decision = perform(handler, MakeDecision("good"))
    perform(handler, MakeDecision("bad"))

    def raise_corrupted(at: int) -> None:
        raise StoreCorrupted("line 1")

    monkeypatch.setattr(handler.repository.opened["bad"].aggregate, "close_due", raise_corrupted)
    handler.sweep(60 * SECOND)
    assert perform(handler, GetDecision(decision.id)).state == "closed"
    with pytest.raises(StoreCorrupted):
        perform(handler, MakeDecision("bad"), at=60 * SECOND)
    perform(handler, DeleteRouter("bad"))
    perform(handler, CreateRouter("bad", config_with_wait))
    assert perform(handler, MakeDecision("bad")).t == 0


def test_a_router_leased_by_another_server_is_not_deleted(
    handler: CommandHandler, open_store_again: Opener
) -> None:
    handler.store.release("me")
    other_handler = CommandHandler(RouterRepository(open_store_again(), "you"))
    perform(other_handler, MakeDecision("triage"))
    with pytest.raises(RouterBusy):
        perform(handler, DeleteRouter("triage"))
    assert perform(other_handler, MakeDecision("triage")).t == 1


def damage_first_decision(file: Path) -> None:
    """Replace an expert in the first decision of a store."""
    with contextlib.closing(sqlite3.connect(file)) as db:
        other = "CAST(replace(body, x'a3616e6e', x'a3626f62') AS BLOB)"  # ann becomes bob
        db.execute(f"UPDATE events SET body = {other} WHERE seq = 1")
        db.commit()


def test_a_changed_event_is_not_learned_from(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/b.db"
    handler = CommandHandler(RouterRepository(open_store(address), "me"))
    perform(handler, CreateRouter("triage", make_config()))
    decision = perform(handler, MakeDecision("triage", key="k"))
    handler.close()
    damage_first_decision(tmp_path / "b.db")
    reopened = CommandHandler(RouterRepository(open_store(address), "me"))
    with pytest.raises(StoreCorrupted, match="event 1 of the log"):
        perform(reopened, RecordReward(decision.id, 0.5))
    with pytest.raises(StoreCorrupted, match="event 1 of the log"):
        perform(reopened, MakeDecision("triage", key="k"))
    reopened.close()


def test_a_changed_event_is_not_learned_from_when_a_reward_is_replayed(
    tmp_path: Path,
) -> None:
    address = f"sqlite:///{tmp_path}/b.db"
    handler = CommandHandler(RouterRepository(open_store(address), "me"))
    perform(handler, CreateRouter("triage", make_config()))
    decision = perform(handler, MakeDecision("triage"))
    handler.close()  # writes a snapshot between the decision and its reward
    with contextlib.closing(open_store(address)) as killed_store:
        perform(
            CommandHandler(RouterRepository(killed_store, "me")), RecordReward(decision.id, 0.5)
        )
    damage_first_decision(tmp_path / "b.db")
    reopened = CommandHandler(RouterRepository(open_store(address), "me"))
    with pytest.raises(StoreCorrupted, match="event 1 of the log"):
        perform(reopened, MakeDecision("triage"))
    reopened.close()


def test_a_repeated_noted_reward_is_a_duplicate(store: Store) -> None:
    handler = CommandHandler(RouterRepository(store, "me"))
    perform(handler, CreateRouter("triage", make_config(wait=99.0, aggregate="last")))
    decision = perform(handler, MakeDecision("triage"))
    perform(handler, RecordReward(decision.id, 0.5, key="k1"))
    perform(handler, EditRouter("triage", make_config(wait=99.0)))
    reward = RecordReward(decision.id, 0.3, {"usd": 50.0}, "k2")
    assert perform(handler, reward).receipt == "noted"
    spent = perform(handler, GetRouter("triage")).status.costs["usd"].settled
    assert perform(handler, reward).receipt == "duplicate"
    with pytest.raises(RewardConflict):
        perform(handler, RecordReward(decision.id, 0.9, {"usd": 50.0}, "k2"))
    assert perform(handler, GetRouter("triage")).status.costs["usd"].settled == spent
    assert audit_router(store, "triage").fault is None


def test_an_audit_handles_cancelled_decisions_and_removed_costs(
    store: Store,
) -> None:
    handler = CommandHandler(RouterRepository(store, "me"))
    seniors = at_least(share("senior", ["eve"]), 0.1)
    with_seniors = make_config(limits=[seniors])
    perform(handler, CreateRouter("triage", with_seniors))
    decision = [perform(handler, MakeDecision("triage")) for _ in range(6)]
    perform(handler, EditRouter("triage", make_config()))
    perform(handler, EditRouter("triage", with_seniors))
    decision.append(perform(handler, MakeDecision("triage")))
    for one in (decision[0], decision[5], decision[6]):
        perform(handler, CancelDecision(one.id))
    assert audit_router(store, "triage").fault is None
    costs = perform(handler, GetRouter("triage")).status.costs
    assert costs["senior"].settled == costs["senior"].stated == 0.0
    handler.repository.opened["triage"].aggregate.tally.stated["usd"] += 1.0
    handler.repository.opened["triage"].snapshot_due = 0
    perform(handler, MakeDecision("triage"))
    assert audit_router(store, "triage").fault is not None


@pytest.mark.parametrize("reads", [0, 1])
@pytest.mark.parametrize("command", [ActivateDecision, CancelDecision])
def test_a_failed_read_leaves_no_event_behind(
    handler: CommandHandler, monkeypatch: pytest.MonkeyPatch, command: Any, reads: int
) -> None:
    made = perform(handler, MakeDecision("triage", defer=True))
    read, left = handler.store.decision_events, [reads]

    def failing(router: int, seq: int) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise StoreUnavailable("gone")
        return read(router, seq)

    monkeypatch.setattr(handler.store, "decision_events", failing)
    try:
        perform(handler, command(made.id))
        done = True
    except StoreUnavailable:
        done = False
    monkeypatch.undo()
    assert (perform(handler, GetDecision(made.id)).state == "deferred") is not done


def test_the_key_of_a_cancelled_decision_is_refused(handler: CommandHandler) -> None:
    made = perform(handler, MakeDecision("triage", key="k"))
    assert perform(handler, MakeDecision("triage", key="k")) == made
    perform(handler, CancelDecision(made.id))
    with pytest.raises(DecisionStateError, match=rf"{made.id} was cancelled; use another key"):
        perform(handler, MakeDecision("triage", key="k"))
    other = perform(handler, MakeDecision("triage", key="l"))
    perform(handler, RecordReward(other.id, 0.5))
    assert perform(handler, MakeDecision("triage", key="l")) == other
