"""A decision that the gateway holds: others change nothing about it until it is settled.

The hold is a fact of the log: replays, snapshots and other servers know it. Costs that come for a
cancelled decision are booked.
"""

from typing import Any

import pytest
from numpy.testing import assert_allclose

from bylot.errors import DecisionInUse, DecisionStateError, RewardError
from bylot.eventlog.audit import LoggedCosts, book_totals
from bylot.eventlog.commands import MakeDecision, ReplaceMember
from bylot.problem import Problem, at_most
from bylot.router.reward_rules import MAX_REWARDS_PER_DECISION
from limit_tables import get_limits
from logged_aggregate import SECOND, LoggedRouter, decode_decision, make_problem_with_frank

GATEWAY = "gateway"
COSTS: Any = {"spend": {"usd": 2.5}}
PAID: Any = {**COSTS, "key": GATEWAY, "holder": GATEWAY}


def hold(logged: LoggedRouter, at: int = 0) -> int:
    """Make a decision as the gateway does."""
    return logged.decide(at, holder=GATEWAY)


def assert_log_gives_the_state(logged: LoggedRouter) -> None:
    """A replay gives the same state, and its sums are those of the log."""
    replayed = logged.replay_log()
    assert replayed.fingerprint() == logged.aggregate.fingerprint()
    costs = LoggedCosts()
    for event in logged.log:
        costs.add(event, replayed.core.sums.uncounted.since)
    for key, booked in book_totals(replayed).items():
        assert_allclose(booked, costs.all_totals(replayed.core)[key], atol=1e-9)


def assert_held(logged: LoggedRouter, of: int) -> None:
    """Nobody but the gateway changes anything that it has to settle."""
    before = logged.aggregate.fingerprint()
    member = decode_decision(logged.log[of]).draws[0]
    for attempt in (
        lambda: logged.aggregate.cancel(0, of),
        lambda: logged.aggregate.cancel(0, of, "me", "another part"),
        lambda: logged.aggregate.replace(0, of, ReplaceMember(f"triage.1.{of}", member)),
        lambda: logged.reward(of, **COSTS),
        lambda: logged.reward(of, 0.5, key="user", **COSTS),
    ):
        with pytest.raises(
            DecisionInUse,
            match=r"is in use: the gateway will report its costs|only the gateway reports",
        ):
            attempt()
    assert_keys_are_reserved(logged, of)
    assert logged.aggregate.fingerprint() == before


def assert_keys_are_reserved(logged: LoggedRouter, of: int) -> None:
    for key in (GATEWAY, "gateway/judge:gpt", "gateway/"):
        with pytest.raises(RewardError, match="reports of the gateway have it"):
            logged.reward(of, 0.5, key=key)


@pytest.mark.parametrize("how", ["running", "reopened", "replayed"])
def test_only_the_holder_changes_a_decision_until_it_is_settled(how: str) -> None:
    logged = LoggedRouter()
    of = hold(logged)
    if how == "reopened":
        logged.reopen()
    elif how == "replayed":
        logged.aggregate = logged.replay_log()
    assert_held(logged, of)
    assert logged.reward(of, **PAID) == "settled"
    assert logged.reward(of, **PAID) == "duplicate"
    assert_keys_are_reserved(logged, of)
    with pytest.raises(DecisionInUse, match="only the gateway reports the costs"):
        logged.reward(of, key="correction", spend={"usd": 0.0})  # or chats would be free
    with pytest.raises(DecisionStateError, match="is settled; it cannot be cancelled any more"):
        logged.aggregate.cancel(0, of)
    assert logged.reward(of, 0.5, key="user") == "learned"
    assert_allclose(logged.aggregate.status().costs["usd"].settled, 2.5)
    assert_log_gives_the_state(logged)


def test_other_keys_and_decisions_of_callers_are_free() -> None:
    logged = LoggedRouter()
    of = hold(logged)
    assert logged.reward(of, 0.5, key="gatewayed") == "learned"
    own = logged.decide()
    assert logged.reward(own, 0.5, key=GATEWAY) == "learned"
    logged.append(logged.aggregate.cancel(0, logged.decide()))
    assert_log_gives_the_state(logged)


def test_the_holder_replaces_members_and_cancels() -> None:
    logged = LoggedRouter()
    of = logged.decide(holder=GATEWAY, available=("ann", "dan"))
    command = ReplaceMember(f"triage.1.{of}", "dan", ("cat", "eve"), holder=GATEWAY)
    assert logged.append(logged.aggregate.replace(0, of, command)) is not None
    assert_held(logged, of)
    unused = hold(logged)
    logged.append(logged.aggregate.cancel(0, unused, None, GATEWAY))
    assert logged.record(unused).state == "cancelled"
    assert_log_gives_the_state(logged)


def test_a_callers_reward_does_not_end_the_hold() -> None:
    logged = LoggedRouter()
    of = hold(logged)
    assert logged.reward(of, 0.5, key="user") == "learned"
    assert logged.record(of).state == "rewarded"
    with pytest.raises(DecisionInUse):
        logged.reward(of, key="costs", **COSTS)
    with pytest.raises(DecisionStateError):
        logged.aggregate.cancel(0, of)
    assert logged.reward(of, **PAID) == "settled"
    assert_allclose(logged.aggregate.status().costs["usd"].settled, 2.5)
    assert_log_gives_the_state(logged)


def test_a_held_decision_whose_wait_is_over_is_settled_by_its_holder() -> None:
    logged = LoggedRouter(wait=1.0)
    of = hold(logged)
    assert logged.close(3 * SECOND) == ((of, None),)
    logged.reopen()
    with pytest.raises(DecisionInUse):
        logged.reward(of, key="costs", **COSTS)
    with pytest.raises(DecisionStateError, match="is closed; it cannot be cancelled any more"):
        logged.aggregate.cancel(4 * SECOND, of)
    assert logged.reward(of, at=4 * SECOND, **PAID) == "settled"
    assert_allclose(logged.aggregate.status().costs["usd"].settled, 2.5)
    assert_log_gives_the_state(logged)


def test_a_settlement_may_have_neither_costs_nor_scores() -> None:
    logged = LoggedRouter()
    of = hold(logged)
    stated = logged.aggregate.status().costs["usd"].settled
    assert logged.reward(of, key=GATEWAY, holder=GATEWAY) == "settled"
    assert logged.reward(of, key=GATEWAY, holder=GATEWAY) == "duplicate"
    assert logged.aggregate.status().costs["usd"].settled == stated
    with pytest.raises(RewardError):
        logged.reward(of, key="empty")
    assert_log_gives_the_state(logged)


@pytest.mark.parametrize("aggregate", ["last", "sum"])
def test_rewards_of_callers_do_not_keep_the_holder_from_settling(aggregate: str) -> None:
    logged = LoggedRouter(wait=1.0, aggregate=aggregate)
    of = hold(logged)
    for n in range(MAX_REWARDS_PER_DECISION):
        assert logged.reward(of, 1.0 if n == 0 else 0.0, key=f"user-{n}") == "pending"
    with pytest.raises(DecisionStateError, match="takes at most"):
        logged.reward(of, 0.0, key="one more")
    assert logged.reward(of, 0.75, **PAID) == "pending"
    assert_allclose(logged.aggregate.status().costs["usd"].settled, 2.5)
    assert logged.close(3 * SECOND) == ((of, 0.75 if aggregate == "last" else 1.0),)
    assert_log_gives_the_state(logged)


def test_an_edit_of_the_pool_keeps_the_hold() -> None:
    logged = LoggedRouter()
    of = hold(logged)
    logged.edit(make_problem_with_frank(3.0))
    with pytest.raises(DecisionInUse):
        logged.aggregate.cancel(0, of)
    assert logged.reward(of, 0.5, **PAID) == "noted"
    assert_allclose(logged.aggregate.status().costs["usd"].settled, 2.5)
    assert_log_gives_the_state(logged)


def make_day_router() -> LoggedRouter:
    """A router with a budget per day."""
    costs = {"usd": [2.0, 1.0, 1.5]}
    return LoggedRouter(
        Problem(["ann", "bob", "eve"], costs, [at_most("usd", 100, per="day")], draws=1)
    )


@pytest.mark.parametrize("make_router", [LoggedRouter, make_day_router])
@pytest.mark.parametrize("holder", [None, GATEWAY])
def test_costs_of_a_cancelled_decision_are_booked_in_full(
    make_router: Any, holder: str | None
) -> None:
    logged = make_router()
    used = logged.decide()
    logged.reward(used, 0.5, spend={"usd": 1.0})
    of = logged.decide(holder=holder)
    logged.append(logged.aggregate.cancel(0, of, None, holder))
    others = [logged.decide(1) for _ in range(3)]
    limits = get_limits(logged.aggregate.core).state
    waiting = limits.waiting.copy()
    means = limits.means.copy()
    with pytest.raises(DecisionStateError, match="was cancelled; report costs without a reward"):
        logged.reward(of, 0.5, **COSTS, key=GATEWAY, holder=holder)
    assert logged.reward(of, **COSTS, key=GATEWAY, holder=holder) == "settled"
    assert logged.reward(of, **COSTS, key=GATEWAY, holder=holder) == "duplicate"
    assert logged.reward(of, spend={"usd": 3.0}, key=f"{GATEWAY}/more", holder=holder) == "settled"
    status = logged.aggregate.status(1)
    stated = sum(decode_decision(logged.log[seq]).spend["usd"] for seq in others)
    assert_allclose(status.costs["usd"].settled, 4.0 + stated)
    assert status.costs["usd"].decisions == 4
    window = status.limits[0].window
    assert window is None or window.spent == pytest.approx(4.0 + stated)
    assert (limits.waiting == waiting).all()
    assert (limits.means == means).all()
    assert logged.record(of).state == "cancelled"
    assert logged.record(of).learned is None
    assert_log_gives_the_state(logged)
    logged.reopen()
    assert logged.reward(of, **COSTS, key=GATEWAY, holder=holder) == "duplicate"


def test_snapshots_without_held_decisions_have_the_bytes_of_before() -> None:
    logged = LoggedRouter()
    logged.decide()
    assert b"holders" not in logged.aggregate.encode()
    hold(logged)
    assert b"holders" in logged.aggregate.encode()


def test_a_log_has_the_holder_of_a_decision() -> None:
    logged = LoggedRouter()
    of = hold(logged)
    assert decode_decision(logged.log[of]).holder == GATEWAY
    assert MakeDecision("triage").holder is None


@pytest.mark.parametrize("factor", [0.0, 1e-4])
def test_an_edit_of_costs_does_not_keep_the_holder_from_settling(factor: float) -> None:
    logged = make_day_router()
    of = hold(logged)
    costs = {"usd": [2.0 * factor, factor, 1.5 * factor]} if factor else {"tok": [1.0, 1.0, 1.0]}
    limits = [at_most(next(iter(costs)), 100, per="day")]
    logged.edit(Problem(["ann", "bob", "eve"], costs, limits, draws=1), at=1)
    assert logged.reward(of, at=2, **PAID) == "settled"
    status = logged.aggregate.status(3)
    assert status.costs.keys() == costs.keys()
    if factor:
        assert_allclose(status.costs["usd"].settled, 2.5)
    assert_log_gives_the_state(logged)
