"""Costs that are reported without a reward are booked and learned; the decision stays open."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bylot import Receipt, Router
from bylot.errors import DecisionStateError, RewardConflict, RewardError
from bylot.eventlog.audit import LoggedCosts
from bylot.eventlog.decision_log import LogReader
from bylot.router.core import RouterCore, iterate_arrays
from bylot.server.dashboard.router_view import latest_decision
from limit_tables import get_limits, iterate_numbers
from logged_aggregate import SECOND, LoggedRouter, decode_body, make_problem_with_frank
from sample_problem import make_five_expert_problem

PAID: Any = {"spend": {"usd": 2.5}, "key": "gateway"}


def list_logged_entries(logged: LoggedRouter) -> list[Any]:
    """The log as `bylot evaluate` reads it."""
    reader = LogReader("triage.1")
    for event in logged.log:
        reader.apply(event.seq, event.of, event.seal.hex(), decode_body(event))
    return reader.read(())


def assert_log_gives_the_state(logged: LoggedRouter) -> None:
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()
    before = logged.aggregate.fingerprint()
    logged.reopen()
    assert logged.aggregate.fingerprint() == before


@pytest.mark.parametrize("reopened", [False, True])
def test_costs_are_booked_and_the_decision_waits_for_its_reward(reopened: bool) -> None:
    logged = LoggedRouter()
    one = logged.decide()
    assert logged.reward(one, **PAID) == "settled"
    if reopened:
        logged.reopen()
    assert logged.record(one).state == "waiting"
    status = logged.aggregate.status()
    assert (status.rewards, status.waiting) == (0, 1)
    assert_allclose(status.costs["usd"].settled, 2.5, rtol=1e-12)
    before = logged.aggregate.fingerprint()
    assert logged.reward(one, **PAID) == "duplicate"
    with pytest.raises(RewardConflict, match="already has spend"):
        logged.reward(one, spend={"usd": 3.0}, key="gateway")
    assert logged.aggregate.fingerprint() == before
    assert logged.reward(one, 0.5, key="gateway") == "learned", "a key has one bill and one reward"
    with pytest.raises(RewardConflict, match=r"already has reward 0\.5 under key 'gateway', got"):
        logged.reward(one, 0.25, key="gateway")
    assert logged.record(one).learned == 0.5
    assert [(found.value, found.receipt) for found in logged.record(one).rewards] == [
        (None, "settled"),
        (0.5, "learned"),
    ]
    assert_log_gives_the_state(logged)


def assert_equal_states(core: RouterCore, other: RouterCore) -> None:
    """Require the same numbers in the states of policy and limits."""
    for mine, theirs in zip(iterate_arrays(core.state), iterate_arrays(other.state), strict=True):
        assert_array_equal(mine, theirs)
    tables = (iterate_numbers(get_limits(each)) for each in (core, other))
    for mine, theirs in zip(*tables, strict=True):
        assert_array_equal(mine, theirs)


def test_costs_before_the_reward_teach_as_costs_with_it() -> None:
    apart, together = LoggedRouter(), LoggedRouter()
    for n in range(40):
        spend = {"usd": 1.0 + n % 3}
        one, other = apart.decide(), together.decide()
        apart.reward(one, spend=spend, key="gateway")
        apart.reward(one, 0.5)
        together.reward(other, 0.5, spend=spend)
    assert_equal_states(apart.aggregate.core, together.aggregate.core)
    state = get_limits(apart.aggregate.core).state
    assert state.learned["reports"].tolist() == [40, 0, 40]
    assert apart.aggregate.status().costs == together.aggregate.status().costs


def test_a_later_report_corrects_and_teaches_no_more() -> None:
    logged = LoggedRouter()
    one = logged.decide()
    logged.reward(one, **PAID)
    means = get_limits(logged.aggregate.core).state.means.copy()
    assert logged.reward(one, 0.5, spend={"usd": 4.0, "junior": 1.0}) == "learned"
    state = get_limits(logged.aggregate.core).state
    reports = state.learned["reports"].tolist()
    assert reports == [1, 1, 1], "junior was reported for the first time"
    assert_array_equal(state.means[0], means[0])
    assert logged.reward(one, spend={"usd": 3.0}, key="invoice") == "settled"
    assert_allclose(logged.aggregate.status().costs["usd"].settled, 3.0, rtol=1e-12)
    assert_log_gives_the_state(logged)


@pytest.mark.parametrize("aggregate", ["earliest", "last", "sum"])
def test_aggregation_ignores_costs_without_a_reward(aggregate: str) -> None:
    logged = LoggedRouter(wait=1.0, aggregate=aggregate)
    one, two = logged.decide(0), logged.decide(0)
    logged.reward(one, None, 1, spend={"usd": 2.0}, key="a")
    logged.reward(one, 0.25, 2, key="b")
    logged.reward(one, None, 3, spend={"usd": 3.0}, key="c")
    logged.reward(two, None, 4, **PAID)
    closed = dict(logged.close(3 * SECOND))
    assert closed == ({two: None} if aggregate == "earliest" else {one: 0.25, two: None})
    assert logged.record(one).learned == 0.25
    counters = logged.aggregate.tally.counters
    assert (counters.learned, counters.missing, counters.noted) == (1, 1, 0)
    assert logged.record(two).state == "closed", "nobody has rewarded it"
    assert_log_gives_the_state(logged)


def test_costs_of_a_decision_that_is_closed_are_booked() -> None:
    logged = LoggedRouter(wait=1.0)
    one, two = logged.decide(0), logged.decide(0)
    assert logged.reward(two, None, SECOND + 1, **PAID) == "settled", "late, and not closed yet"
    logged.close(2 * SECOND)
    assert logged.reward(one, None, 3 * SECOND, **PAID) == "settled"
    assert logged.reward(one, None, 3 * SECOND, **PAID) == "duplicate"
    assert_allclose(logged.aggregate.status().costs["usd"].settled, 5.0, rtol=1e-12)
    assert logged.reward(one, 0.5, 4 * SECOND) == "late", "costs are no reward"
    assert logged.aggregate.tally.counters.late == 1
    assert_log_gives_the_state(logged)


def test_a_dropped_decision_with_costs_alone_is_missing() -> None:
    logged = LoggedRouter(memory=1)
    logged.reward(logged.decide(), **PAID)
    logged.decide()
    assert logged.aggregate.tally.counters.missing == 1


def test_costs_are_booked_without_learning_if_the_pool_has_changed() -> None:
    logged = LoggedRouter()
    one = logged.decide()
    logged.edit(make_problem_with_frank(3.0))
    assert logged.reward(one, **PAID) == "settled"
    assert logged.record(one).state == "waiting"
    assert not get_limits(logged.aggregate.core).state.learned["reports"].any()
    assert_allclose(logged.aggregate.status().costs["usd"].settled, 2.5, rtol=1e-12)
    assert logged.reward(one, 0.5) == "noted"
    assert_log_gives_the_state(logged)


def test_a_decision_with_costs_cannot_be_cancelled_and_a_deferred_one_has_none() -> None:
    logged = LoggedRouter()
    one, two = logged.decide(), logged.decide(defer=True)
    logged.reward(one, **PAID)
    with pytest.raises(DecisionStateError, match="is settled; it cannot be cancelled"):
        logged.aggregate.cancel(0, one)
    with pytest.raises(DecisionStateError, match="is deferred"):
        logged.reward(two, **PAID)


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"spend": {}},
        {"spend": {"usd": -1.0}},
        {"spend": {"eur": 1.0}},
        {"spend": {"usd": {"zoe": 1.0}}},
        {"spend": {"usd": 1.0}, "members": {}},
        {"spend": {"usd": 1.0}, "winner": "ann"},
    ],
)
def test_an_invalid_settlement_is_refused_and_changes_nothing(report: Any) -> None:
    logged, router = LoggedRouter(), Router(make_five_expert_problem())
    one, decision = logged.decide(), router.decide()
    before, state = logged.aggregate.fingerprint(), pickle.dumps(router.core.totals)
    with pytest.raises(RewardError):
        logged.reward(one, **report)
    with pytest.raises(RewardError):
        router.reward(decision.id, **report)
    assert logged.aggregate.fingerprint() == before
    assert pickle.dumps(router.core.totals) == state
    assert not router.engine.open.find(0).rewards


def test_pages_and_logs_show_settled_costs_and_no_reward() -> None:
    logged = LoggedRouter()
    one, two = logged.decide(), logged.decide()
    for seq in (one, two):
        logged.reward(seq, **PAID)
    logged.reward(two, 0.75)
    rows = [latest_decision(logged.record(seq)) for seq in (one, two)]
    assert [(row["reward"], row["state"]) for row in rows] == [
        (None, "waiting"),
        (0.75, "rewarded"),
    ]
    assert {part["name"]: part["value"] for part in rows[0]["spend"]}["usd"] == 2.5
    first, second = list_logged_entries(logged)
    assert (first.reward, second.reward, first.spend["usd"]) == (None, 0.75, 2.5)


# In memory.


def test_a_router_in_memory_settles_as_a_stored_one(tmp_path: Path) -> None:
    router, logged = Router(make_five_expert_problem()), LoggedRouter()
    for n in range(30):
        spend = {"usd": 1.0 + n % 4}
        decision, seq = router.decide(), logged.decide()
        assert router.reward(decision.id, spend=spend) is Receipt.SETTLED
        logged.reward(seq, spend=spend, key="gateway")
        if n == 10:
            router.save(tmp_path / "router.bylot")
            router = copy.copy(Router.load(tmp_path / "router.bylot"))
        assert router.reward(decision.id, spend=spend) is Receipt.DUPLICATE
        with pytest.raises(RewardConflict, match="already has spend"):
            router.reward(decision.id, spend={"usd": 9.0})
        corrected: Any = {"spend": {"usd": 2.0, "junior": 1.0}} if n % 2 else {}
        assert router.reward(decision.id, 0.5, **corrected) is Receipt.LEARNED
        logged.reward(seq, 0.5, **corrected)
        assert router.reward(decision.id, spend=spend) is Receipt.DUPLICATE
        assert router.reward(decision.id, 0.5, **corrected) is Receipt.DUPLICATE
    core, other = router.core, logged.aggregate.core
    assert_equal_states(core, other)
    assert_array_equal(core.totals.spent, other.totals.spent)


def test_costs_in_memory_are_reported_before_the_reward_with_it_or_later() -> None:
    router = Router(make_five_expert_problem(), memory=1)
    decision = router.decide()
    router.reward(decision.id, 0.5)
    assert router.reward(decision.id, spend={"usd": 1.0}) is Receipt.SETTLED
    assert router.reward(decision.id, spend={"usd": 1.0}) is Receipt.DUPLICATE
    assert router.status().costs["usd"].settled == 1.0
    other = router.decide()
    router.reward(other.id, spend={"usd": 1.0})
    assert router.status().waiting == 1
    router.decide()
    assert len(router.engine.open) == 1, "the other one is no longer held"
    assert router.reward(other.id, spend={"usd": 1.0}) is Receipt.LATE


# Any sequence.

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["decide", "settle", "reward", "cancel", "close", "reopen"]),
        st.integers(0, 5),
        st.integers(0, 8),
    ),
    max_size=40,
)


def apply_step(logged: LoggedRouter, made: list[int], verb: str, which: int, number: int) -> None:
    at = logged.aggregate.at + number * SECOND // 8
    if verb == "decide" or not made:
        made.append(logged.decide(at, context="ab"[which % 2]))
    elif verb == "settle":
        key = f"k{number % 3}"
        logged.reward(made[-1 - which % len(made)], None, at, spend={"usd": number / 2}, key=key)
    elif verb == "reward":
        logged.reward(made[-1 - which % len(made)], number / 8, at, key=f"k{number}")
    elif verb == "cancel":
        logged.append(logged.aggregate.cancel(at, made[-1 - which % len(made)]))
    elif verb == "close":
        logged.close(at)
    else:
        logged.reopen()


@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_after_any_steps_the_ledger_is_the_sum_of_the_log(steps: Any) -> None:
    logged, made = LoggedRouter(wait=1.0, aggregate="last"), list[int]()
    for step in steps:
        try:
            apply_step(logged, made, *step)
        except (RewardConflict, DecisionStateError):
            continue
    costs, core = LoggedCosts(), logged.aggregate.core
    for event in logged.log:
        costs.add(event, core.sums.uncounted.since)
    for name, settled in core.sums.list_spent().items():
        sums = logged.aggregate.tally.stated[name], settled
        assert_allclose(sums, costs.totals(name, 0), rtol=1e-9, atol=1e-9)
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()


def test_an_old_body_has_the_bytes_it_had_before() -> None:
    logged = LoggedRouter()
    one = logged.decide()
    logged.reward(one, 0.5)
    half = b"\xcb?\xe0" + bytes(6)
    assert logged.log[-1].body == b"\x82\xa5value" + half + b"\xa7receipt\xa7learned"
