"""The keeper: batches of commands, and what is left of them when the store fails."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bylot import codec, policies
from bylot.durable import keeper as keeping
from bylot.durable.audit import audit
from bylot.durable.commands import (
    Activate,
    Cancel,
    Create,
    Decide,
    Delete,
    Edit,
    Recall,
    Reward,
    Show,
)
from bylot.durable.keeper import Keeper
from bylot.durable.terms import Terms
from bylot.errors import (
    Fenced,
    KeyReused,
    NameTaken,
    NoSuchDecision,
    NoSuchRouter,
    NotNow,
    RewardConflict,
    RouterBusy,
    StoreDamaged,
    StoreDown,
)
from bylot.problem import Limit, Problem, at_least, at_most, share
from bylot.store import Event, Snapshot, Store, open_store
from stores import Opener

SECOND = 1_000_000


def terms(limits: Sequence[Limit] = (), **others: Any) -> Terms:
    """A small pool, with these limits beside its own."""
    bounds = [at_most("usd", 4.5), *limits]
    pool = Problem(["ann", "bob", "eve"], {"usd": [1.0, 2.0, 4.0]}, bounds, draws=2)
    policy = policies.write(policies.named("distinct"))
    return Terms(problem=codec.write_problem(pool), policy=policy, **others)


def asked(keeper: Keeper, *batch: Any, at: int = SECOND) -> Any:
    """The answer to one command, raised if it is an error; or the answers to several."""
    answers = keeper.perform(batch, at)
    if len(answers) > 1:
        return answers
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


@pytest.fixture
def keeper(store: Store) -> Keeper:
    """A keeper with one router."""
    made = Keeper(store, "me", every=20)
    asked(made, Create("triage", terms()))
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


def fail(keeper: Keeper, error: Exception, *, after: bool = False) -> None:
    """Let the next commit fail."""
    broken: Any = Failing(keeper.store, error, after=after)
    keeper.shelf.store = keeper.shelf.pending.store = keeper.store = broken


def test_answers_are_given_after_the_lines_are_in_the_store(keeper: Keeper, opened: Opener) -> None:
    first, second = asked(keeper, Decide("triage"), Decide("triage", context="x"))
    lines = opened().events(first.id and 1)
    assert [line.kind for line in lines] == ["created", "decided", "decided"]
    assert asked(keeper, Recall(second.id)).decision == second


def test_a_batch_is_one_transaction(keeper: Keeper) -> None:
    class Counting(Failing):
        def append(self, events: Sequence[Event], snapshots: Sequence[Snapshot] = ()) -> None:
            self.times += 1
            self.store.append(events, snapshots)

    counting: Any = Counting(keeper.store, StoreDown(""))
    keeper.shelf.store = counting
    asked(keeper, *[Decide("triage") for _ in range(10)])
    assert counting.times == 2  # it began at one


def test_a_key_gives_the_same_decision_again_and_is_refused_to_another_request(
    keeper: Keeper, opened: Opener
) -> None:
    first = asked(keeper, Decide("triage", context="x", key="k"))
    same_batch = asked(keeper, Decide("triage", key="j"), Decide("triage", key="j"))
    assert same_batch[0] == same_batch[1]
    keeper.close()
    later = Keeper(opened(), "you")
    assert asked(later, Decide("triage", context="x", key="k"), at=99 * SECOND) == first
    for other in (
        Decide("triage", key="k"),
        Decide("triage", context="x", available=("ann", "bob"), key="k"),
    ):
        with pytest.raises(KeyReused):
            asked(later, other)
    assert asked(later, Show("triage")).status["decisions"] == 2


def test_a_reward_counts_once_also_within_a_batch(keeper: Keeper) -> None:
    made = asked(keeper, Decide("triage"))
    once, twice, other = asked(
        keeper, Reward(made.id, 0.5), Reward(made.id, 0.5), Reward(made.id, 0.6)
    )
    assert (once.receipt, twice.receipt) == ("learned", "duplicate")
    assert isinstance(other, RewardConflict)
    assert asked(keeper, Reward(made.id, 0.5)).receipt == "duplicate"
    assert asked(keeper, Show("triage")).status["rewards"] == 1


@pytest.mark.parametrize("id_", ["", "d1", "triage.1.99", "triage.9.1", "nobody.1.1", "triage.1.0"])
def test_what_is_no_decision_is_unknown(keeper: Keeper, id_: str) -> None:
    asked(keeper, Decide("triage"))
    for command in (Reward(id_, 0.5), Recall(id_), Cancel(id_), Activate(id_)):
        with pytest.raises(NoSuchDecision):
            asked(keeper, command)


def test_one_error_leaves_the_rest_of_a_batch_alone(keeper: Keeper) -> None:
    answers = asked(
        keeper, Decide("triage"), Decide("nobody"), Decide("triage", available=()), Decide("triage")
    )
    assert isinstance(answers[1], NoSuchRouter)
    assert isinstance(answers[2], Exception)
    assert (answers[0].t, answers[3].t) == (0, 1)


@pytest.mark.parametrize("after", [False, True])
def test_after_a_failed_commit_the_router_is_what_the_store_says(
    keeper: Keeper, after: bool
) -> None:
    asked(keeper, Decide("triage", key="before"))
    fail(keeper, StoreDown("gone"), after=after)
    answers = keeper.perform([Decide("triage", key="k"), Show("triage")], SECOND)
    assert all(isinstance(one, StoreDown) for one in answers)
    retried = asked(keeper, Decide("triage", key="k"))
    assert retried.t == 1
    assert asked(keeper, Show("triage")).status["decisions"] == 2
    assert audit(keeper.store, "triage").fault is None


def test_a_rival_that_wrote_first_is_noticed_and_nothing_is_written_twice(
    keeper: Keeper, opened: Opener
) -> None:
    asked(keeper, Create("other", terms()))
    asked(keeper, Decide("triage"), Decide("other"))
    with pytest.raises(RouterBusy):
        asked(Keeper(opened(), "you"), Decide("triage"))
    keeper.store.release("me")  # as if our lease had run out
    rival = Keeper(opened(), "you")
    asked(rival, Decide("triage"))
    here, there = keeper.perform([Decide("triage"), Decide("other")], SECOND)
    assert isinstance(here, Fenced)
    assert there.t == 1
    with pytest.raises(RouterBusy):
        asked(keeper, Decide("triage"))
    assert audit(keeper.store, "triage").decisions == 2
    rival.close()
    assert asked(keeper, Decide("triage")).t == 2


def test_an_unforeseen_error_lets_go_of_one_router_and_of_no_line(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(keeper, Create("other", terms()))
    fold = keeper.shelf.fold("triage", 0)
    draw = fold.router.draw

    def broken(context: str | None, up: Any) -> Any:
        draw(context, up)
        raise ZeroDivisionError if context == "bad" else RuntimeError

    monkeypatch.setattr(fold.router, "draw", lambda c, up: broken(c, up) if c else draw(c, up))
    answers = asked(
        keeper, Decide("triage"), Decide("triage", context="bad"), Decide("other"), Decide("triage")
    )
    assert isinstance(answers[1], ZeroDivisionError)
    assert (answers[0].t, answers[2].t, answers[3].t) == (0, 0, 1)
    assert audit(keeper.store, "triage").fault is None


def test_snapshots_are_taken_now_and_then_and_lead_to_the_same_state(
    keeper: Keeper, opened: Opener
) -> None:
    for n in range(60):
        made = asked(keeper, Decide("triage", context=str(n % 3)))
        asked(keeper, Reward(made.id, n / 60))
    number = keeper.shelf.fold("triage", 0).number
    kept = opened().snapshot(number)
    assert kept is not None
    assert 20 <= kept.seq < 121
    assert audit(opened(), "triage").fault is None
    live = keeper.shelf.fold("triage", 0).fingerprint()
    keeper.close()
    again = opened()
    assert Keeper(again, "you").shelf.fold("triage", 0).fingerprint() == live
    last = again.snapshot(number)
    assert last is not None
    assert last.seq == 120


def test_a_damaged_snapshot_is_done_without_and_a_damaged_log_is_refused_by_name(
    keeper: Keeper, opened: Opener
) -> None:
    asked(keeper, Create("healthy", terms()))
    for _ in range(30):
        asked(keeper, Decide("triage"))
    number = keeper.shelf.fold("triage", 0).number
    live = keeper.shelf.fold("triage", 0).fingerprint()
    keeper.close()
    store = opened()
    kept = store.snapshot(number)
    assert kept is not None
    store.append([], [kept._replace(body=kept.body[:-1] + b"x")])
    assert Keeper(store, "you").shelf.fold("triage", 0).fingerprint() == live
    assert audit(store, "triage").fault is not None
    store.release("you")
    last = store.last(number)
    assert last is not None
    store.append([last._replace(seq=last.seq + 1)])  # not what any router of ours would write
    keeper = Keeper(store, "me")
    with pytest.raises(StoreDamaged, match=r"'triage'.*line 31"):
        asked(keeper, Decide("triage"))
    with pytest.raises(StoreDamaged):
        asked(keeper, Decide("triage"))
    assert asked(keeper, Decide("healthy")).t == 0


def test_waits_that_are_over_are_closed_by_the_sweep(store: Store) -> None:
    keeper = Keeper(store, "me")
    asked(keeper, Create("triage", terms(wait=10.0, default=0.25)))
    made = asked(keeper, Decide("triage"), at=SECOND)
    keeper.sweep(11 * SECOND)
    assert asked(keeper, Recall(made.id)).state == "waiting"
    keeper.sweep(11 * SECOND + 1)
    assert asked(keeper, Recall(made.id)).state == "closed"
    assert asked(keeper, Recall(made.id)).learned == 0.25
    assert asked(keeper, Show("triage")).status["counts"]["defaulted"] == 1
    assert asked(keeper, Reward(made.id, 0.5), at=12 * SECOND).receipt == "late"
    assert audit(store, "triage").fault is None


def test_a_view_stays_as_it_was_while_its_router_goes_on(keeper: Keeper) -> None:
    asked(keeper, *[Decide("triage")] * 3)
    view = asked(keeper, Show("triage"))
    then = msgspec.json.encode(view)
    made = asked(keeper, *[Decide("triage")] * 600)
    asked(keeper, *(Reward(one.id, 0.5, {"usd": 1.0}) for one in made))
    assert msgspec.json.encode(view) == then
    assert msgspec.json.encode(asked(keeper, Show("triage"))) != then


def test_a_sweep_of_many_is_done_in_slices_and_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "SLICE", 3)
    keeper = Keeper(store, "me")
    asked(keeper, Create("triage", terms(wait=1.0)))
    keeper.perform([Decide("triage")] * 5, SECOND)
    waiting = []
    for more in (True, False, False):
        assert keeper.sweep(9 * SECOND) is more
        waiting.append(asked(keeper, Show("triage")).status["waiting"])
    assert waiting == [2, 0, 0]


def test_a_recalled_decision_tells_what_it_taught(keeper: Keeper) -> None:
    told, silent = asked(keeper, Decide("triage"), Decide("triage"))
    asked(keeper, Reward(told.id, 0.5))
    assert asked(keeper, Recall(told.id)).learned == 0.5
    assert asked(keeper, Recall(silent.id)).learned is None


def test_deferred_decisions_are_activated_or_cancelled(keeper: Keeper) -> None:
    made = asked(keeper, Decide("triage", defer=True))
    with pytest.raises(NotNow):
        asked(keeper, Reward(made.id, 0.5))
    assert asked(keeper, Activate(made.id)) == made
    assert asked(keeper, Reward(made.id, 0.5)).receipt == "learned"
    other = asked(keeper, Decide("triage", defer=True))
    asked(keeper, Cancel(other.id))
    assert asked(keeper, Recall(other.id)).state == "cancelled"


def test_an_edit_makes_a_version_and_must_know_the_one_before(keeper: Keeper) -> None:
    asked(keeper, Decide("triage"))
    view = asked(keeper, Edit("triage", terms(paused=("eve",)), version=1))
    assert view.terms.version == 2
    assert "eve" not in asked(keeper, Decide("triage")).subset
    with pytest.raises(NotNow, match="version 2, not 1"):
        asked(keeper, Edit("triage", terms(), version=1))
    assert audit(keeper.store, "triage").fault is None


def test_names_are_taken_checked_and_free_again(keeper: Keeper) -> None:
    with pytest.raises(NameTaken):
        asked(keeper, Create("triage", terms()))
    for bad in ("", "Triage", "a.b", "a" * 64, "-a"):
        with pytest.raises(Exception, match="name of a router"):
            asked(keeper, Create(bad, terms()))
    old = asked(keeper, Decide("triage"))
    asked(keeper, Delete("triage"))
    with pytest.raises(NoSuchRouter):
        asked(keeper, Show("triage"))
    asked(keeper, Create("triage", terms()))
    asked(keeper, Decide("triage"))
    with pytest.raises(NoSuchDecision):
        asked(keeper, Reward(old.id, 0.5))


def test_leases_are_kept_while_they_are_renewed(keeper: Keeper, opened: Opener) -> None:
    keeper.renew()
    assert "triage" in keeper.shelf.folds
    keeper.store.release("me")
    Keeper(opened(), "you").shelf.fold("triage", 0)
    keeper.renew()
    assert "triage" not in keeper.shelf.folds


def test_what_came_before_a_delete_or_a_create_is_written_or_refused(keeper: Keeper) -> None:
    asked(keeper, Create("other", terms()))
    asked(keeper, Decide("other"))
    for command in (Delete("triage"), Create("third", terms())):
        fail(keeper, StoreDown("gone"))
        answers = keeper.perform([Decide("other"), command], SECOND)
        assert isinstance(answers[0], StoreDown)
    assert asked(keeper, Decide("other")).t == 1
    assert audit(keeper.store, "other").fault is None


def test_a_refusal_that_rests_on_a_line_that_was_not_written_is_none(keeper: Keeper) -> None:
    made = asked(keeper, Decide("triage"))
    fail(keeper, StoreDown("gone"))
    answers = keeper.perform([Reward(made.id, 0.5), Reward(made.id, 0.7)], SECOND)
    assert all(isinstance(one, StoreDown) for one in answers)
    assert asked(keeper, Reward(made.id, 0.7)).receipt == "learned"


def test_neither_a_snapshot_nor_another_router_keeps_a_line_from_being_written(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(keeper, Create("other", terms()))
    asked(keeper, Decide("triage"))
    monkeypatch.setattr(keeper.shelf.folds["triage"], "freeze", lambda: 1 / 0)
    keeper.shelf.due["triage"] = 0
    first, second = asked(keeper, Decide("triage"), Decide("other"))
    assert (first.t, second.t) == (1, 0)
    assert asked(keeper, Decide("triage")).t == 2
    fold = keeper.shelf.folds["other"]
    line = fold.line
    monkeypatch.setattr(fold, "line", lambda *a, **k: line(*a, **k)._replace(at=2**70))
    good, bad = asked(keeper, Decide("triage"), Decide("other"))
    assert good.t == 3
    assert isinstance(bad, Exception)


def test_a_damaged_router_neither_stops_the_sweep_nor_keeps_its_name(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = terms(wait=10.0)
    asked(keeper, Create("bad", waits))
    asked(keeper, Create("good", waits))
    made = asked(keeper, Decide("good"))
    asked(keeper, Decide("bad"))

    def damaged(at: int) -> None:
        raise StoreDamaged("line 1")

    monkeypatch.setattr(keeper.shelf.folds["bad"], "close_due", damaged)
    keeper.sweep(60 * SECOND)
    assert asked(keeper, Recall(made.id)).state == "closed"
    with pytest.raises(StoreDamaged):
        asked(keeper, Decide("bad"), at=60 * SECOND)
    asked(keeper, Delete("bad"))
    asked(keeper, Create("bad", waits))
    assert asked(keeper, Decide("bad")).t == 0


def test_a_router_in_other_hands_is_not_deleted(keeper: Keeper, opened: Opener) -> None:
    keeper.store.release("me")
    rival = Keeper(opened(), "you")
    asked(rival, Decide("triage"))
    with pytest.raises(RouterBusy):
        asked(keeper, Delete("triage"))
    assert asked(rival, Decide("triage")).t == 1


def change(file: Path) -> None:
    """Put another expert in the place of one, in the first decision of a store."""
    with contextlib.closing(sqlite3.connect(file)) as db:
        other = "CAST(replace(body, x'a3616e6e', x'a3626f62') AS BLOB)"  # ann becomes bob
        db.execute(f"UPDATE events SET body = {other} WHERE seq = 1")
        db.commit()


def test_a_line_that_was_changed_is_not_learned_from(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/b.db"
    keeper = Keeper(open_store(place), "me")
    asked(keeper, Create("triage", terms()))
    made = asked(keeper, Decide("triage", key="k"))
    keeper.close()
    change(tmp_path / "b.db")
    again = Keeper(open_store(place), "me")
    with pytest.raises(StoreDamaged, match="line 1 of the log"):
        asked(again, Reward(made.id, 0.5))
    with pytest.raises(StoreDamaged, match="line 1 of the log"):
        asked(again, Decide("triage", key="k"))
    again.close()


def test_a_line_that_was_changed_is_not_learned_from_when_a_reward_is_replayed(
    tmp_path: Path,
) -> None:
    place = f"sqlite:///{tmp_path}/b.db"
    keeper = Keeper(open_store(place), "me")
    asked(keeper, Create("triage", terms()))
    made = asked(keeper, Decide("triage"))
    keeper.close()  # with a snapshot: the decision is before it, its reward after it
    with contextlib.closing(open_store(place)) as killed:
        asked(Keeper(killed, "me"), Reward(made.id, 0.5))
    change(tmp_path / "b.db")
    again = Keeper(open_store(place), "me")
    with pytest.raises(StoreDamaged, match="line 1 of the log"):
        asked(again, Decide("triage"))
    again.close()


def test_a_reward_that_was_noted_beside_pending_ones_is_known_again(store: Store) -> None:
    keeper = Keeper(store, "me")
    asked(keeper, Create("triage", terms(wait=99.0, aggregate="last")))
    made = asked(keeper, Decide("triage"))
    asked(keeper, Reward(made.id, 0.5, key="k1"))
    asked(keeper, Edit("triage", terms(wait=99.0)))
    told = Reward(made.id, 0.3, {"usd": 50.0}, "k2")
    assert asked(keeper, told).receipt == "noted"
    spent = asked(keeper, Show("triage")).status["costs"]["usd"]["settled"]
    assert asked(keeper, told).receipt == "duplicate"
    with pytest.raises(RewardConflict):
        asked(keeper, Reward(made.id, 0.9, {"usd": 50.0}, "k2"))
    assert asked(keeper, Show("triage")).status["costs"]["usd"]["settled"] == spent
    assert audit(store, "triage").fault is None


def test_an_audit_knows_of_cancelled_decisions_and_of_costs_that_came_and_went(
    store: Store,
) -> None:
    keeper = Keeper(store, "me")
    seniors = at_least(share("senior", ["eve"]), 0.1)
    both = terms(limits=[seniors])
    asked(keeper, Create("triage", both))
    made = [asked(keeper, Decide("triage")) for _ in range(6)]
    asked(keeper, Edit("triage", terms()))
    asked(keeper, Edit("triage", both))
    made.append(asked(keeper, Decide("triage")))
    for one in (made[0], made[5], made[6]):
        asked(keeper, Cancel(one.id))
    assert audit(store, "triage").fault is None
    costs = asked(keeper, Show("triage")).status["costs"]
    assert costs["senior"]["settled"] == costs["senior"]["stated"] == 0.0
    keeper.shelf.folds["triage"].accounts.stated["usd"] += 1.0
    keeper.shelf.due["triage"] = 0
    asked(keeper, Decide("triage"))
    assert audit(store, "triage").fault is not None
