"""Rewards count once, in time, by the probabilities of their decision; costs are settled."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict
from numpy.testing import assert_allclose

from bylot import Problem, at_least, at_most, share
from bylot.errors import DecisionNotFound, DecisionStateError, RewardConflict, RewardError
from bylot.eventlog import aggregate
from bylot.eventlog.history import show_events
from bylot.limits.request import View
from bylot.policies.base import compute_distribution
from bylot.router.changes import PackedDecision
from bylot.router.core_status import report_status
from bylot.store import DecisionEvents
from logged_aggregate import SECOND, LoggedRouter, decode_decision, make_problem_with_frank
from sample_problem import make_five_expert_problem


def compute_first_distribution(logged: LoggedRouter) -> Any:
    """The distribution of the first context."""
    router = logged.aggregate.core
    view = View(router.book.pointer, 0, router.mask_available(None), False, False)
    return compute_distribution(router.rule, router.state, view)


def list_nonzero_counters(logged: LoggedRouter) -> dict[str, int]:
    """The numbers of events that are not 0."""
    counters = asdict(logged.aggregate.tally.counters)
    return {name: n for name, n in counters.items() if n and isinstance(n, int)}


# Once.


@pytest.mark.parametrize("reopened", [False, True])
def test_a_reward_is_learned_once_and_another_value_is_a_conflict(reopened: bool) -> None:
    logged = LoggedRouter()
    one = logged.decide()
    if reopened:
        logged.reopen()
    assert logged.reward(one, 0.5) == "learned"
    before = logged.aggregate.fingerprint()
    assert logged.reward(one, 0.5) == "duplicate"
    with pytest.raises(RewardConflict, match=r"triage\.1\.1 already has reward 0\.5, got 0\.6"):
        logged.reward(one, 0.6)
    assert logged.aggregate.fingerprint() == before
    assert logged.aggregate.core.totals.rewards[0] == 1


def test_only_the_earliest_of_rewards_with_different_keys_is_learned() -> None:
    logged = LoggedRouter()
    one = logged.decide()
    assert logged.reward(one, 0.5, key="x") == "learned"
    before = str(report_status(logged.aggregate.core))
    assert logged.reward(one, 0.7, key="y") == "noted"
    assert logged.reward(one, 0.7, key="y") == "duplicate"
    with pytest.raises(RewardConflict, match="under key 'x'"):
        logged.reward(one, 0.7, key="x")
    assert logged.reward(one, 0.7) == "noted", "no key counts as a separate key"
    assert str(report_status(logged.aggregate.core)) == before
    assert list_nonzero_counters(logged) == {"learned": 1, "noted": 2}


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, np.inf, "much", None])
def test_an_invalid_reward_is_refused_and_changes_nothing(value: Any) -> None:
    logged = LoggedRouter()
    one = logged.decide()
    before = logged.aggregate.fingerprint()
    with pytest.raises(RewardError, match="nothing was changed"):
        logged.reward(one, value)
    assert logged.aggregate.fingerprint() == before


@pytest.mark.parametrize("seq", [0, 2, 3, -1, 10**12])
def test_a_reward_of_an_unknown_decision_is_refused(seq: int) -> None:
    logged = LoggedRouter()
    logged.reward(logged.decide(), 0.5)
    with pytest.raises(DecisionNotFound, match=rf"triage\.1\.{seq}"):
        logged.reward(seq, 0.5)


def test_a_dropped_decision_accepts_rewards_but_learns_nothing() -> None:
    logged = LoggedRouter(memory=2)
    one, two, _ = logged.decide(), logged.decide(), logged.decide()
    assert logged.reward(one, 0.5) == "late"
    assert logged.reward(one, 0.5) == "duplicate"
    with pytest.raises(RewardConflict):
        logged.reward(one, 0.6)
    assert logged.reward(two, 0.5) == "learned"
    assert list_nonzero_counters(logged) == {"learned": 1, "late": 1, "missing": 1}


# By the probabilities of the decision.


def test_learning_uses_the_recorded_probabilities_even_if_the_reward_is_late() -> None:
    logged = LoggedRouter(policy="omd")
    first = logged.decide()
    for _ in range(25):  # q changes twice in the meantime
        logged.reward(logged.decide(), 0.25)
    event: PackedDecision = decode_decision(logged.log[first])
    logged.reopen()
    state = logged.aggregate.core.state
    before, mean = state.g[0].copy(), 0.25
    logged.reward(first, 0.75)
    expected = np.zeros(5)
    for position_of_expert, probability in zip(
        event.seats, np.frombuffer(event.draw_probabilities), strict=True
    ):
        expected[position_of_expert] += (0.75 - mean) / 10 / probability
    assert_allclose(state.g[0] - before, expected, rtol=1e-9, atol=1e-12)
    current = compute_first_distribution(logged)[list(event.seats)]
    assert np.abs(current - np.frombuffer(event.draw_probabilities)).max() > 1e-3, (
        "the current probabilities differ"
    )


@pytest.mark.parametrize("policy", ["distinct", "tangent"])
def test_the_order_of_rewards_within_a_batch_makes_little_difference(policy: str) -> None:
    values = [0.1, 0.9, 0.4, 0.3, 0.8, 0.2, 0.7, 0.6, 0.5, 0.95]

    def play_batches(orders: list[list[int]], values: list[float]) -> Any:
        logged = LoggedRouter(policy=policy)
        for order in orders:
            batch = [logged.decide() for _ in range(10)]
            for position in order:
                logged.reward(batch[position], values[position])
                logged.reward(batch[position], values[position])  # a duplicate
        logged.decide()  # takes the last step
        return compute_first_distribution(logged)

    in_order = play_batches([list(range(10))] * 6, values)
    shuffled = play_batches(
        [[int(i) for i in np.random.default_rng(n).permutation(10)] for n in range(6)], values
    )
    reversed_values = play_batches([list(range(10))] * 6, values[::-1])
    by_order, by_value = (np.abs(one - in_order).max() for one in (shuffled, reversed_values))
    assert by_order < 0.005  # the belief is updated one by one; the gradient does not depend on it
    assert by_value > 5 * by_order, "the assignment of rewards does make a difference"


# In time.


def test_without_a_reward_in_time_only_the_default_is_learned() -> None:
    without_default, with_default = LoggedRouter(wait=1.0), LoggedRouter(wait=1.0, default=0.0)
    for logged, value in ((without_default, None), (with_default, 0.0)):
        one = logged.decide(0)
        assert logged.aggregate.engine.open.first_due() == (SECOND, one)
        assert logged.close(SECOND) == ()
        assert logged.close(SECOND + 1) == ((one, value),)
        assert logged.aggregate.engine.open.first_due() is None
        assert logged.reward(one, 0.5, 2 * SECOND) == "late"
        assert logged.aggregate.core.totals.rewards[0] == (value is not None)
    assert list_nonzero_counters(without_default) == {"missing": 1, "late": 1}
    assert list_nonzero_counters(with_default) == {"defaulted": 1, "late": 1}


def test_decisions_that_are_not_cached_are_learned_from_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def play_with_cache(max_cached: int) -> tuple[str, int]:
        monkeypatch.setattr(aggregate, "MAX_CACHED_BYTES", max_cached * 2_400)
        logged = LoggedRouter(wait=9.0, default=0.25)
        seqs = [logged.decide(n, context="ab"[n % 2]) for n in range(30)]
        cached = sum(one.made is not None for _, one in logged.aggregate.engine.open)
        for n, seq in enumerate(seqs[:20]):
            assert logged.reward(seq, n / 20, 40 + n, spend={"usd": 1.0}) == "learned"
        assert len(logged.close(10 * SECOND)) == 10
        return logged.aggregate.fingerprint(), cached

    (with_few_cached, cached), (with_all_cached, all_cached) = (
        play_with_cache(3),
        play_with_cache(100),
    )
    assert (cached, all_cached) == (3, 30)
    assert with_few_cached == with_all_cached


def test_fewer_decisions_of_a_large_pool_are_cached() -> None:
    names = [f"e{n}" for n in range(400)]
    logged = LoggedRouter(Problem(experts=names, costs={"usd": [1.0] * 400}, draws=2))
    logged.aggregate.engine.open.max_bytes = 22_000
    for available, count in ((None, 4), (tuple(names[:300]), 3)):  # the latter have a mask too
        for n in range(20):
            logged.decide(n, available=available)
        assert sum(one.made is not None for _, one in logged.aggregate.engine.open) == count


def test_a_reward_after_the_deadline_is_late_even_before_the_decision_is_closed() -> None:
    logged = LoggedRouter(wait=1.0)
    one, two = logged.decide(0), logged.decide(5)
    assert logged.reward(one, 0.5, SECOND + 1) == "late"
    assert logged.reward(one, 0.5, SECOND + 2) == "duplicate"
    assert logged.reward(two, 0.5, SECOND + 5) == "learned"
    assert logged.close(2 * SECOND) == ((one, None),)


def test_decisions_are_closed_in_the_order_of_their_deadlines() -> None:
    logged = LoggedRouter(wait=1.0)
    seqs = [logged.decide(n) for n in range(5)]
    assert [seq for seq, _ in logged.close(9 * SECOND, most=2)] == seqs[:2]
    assert [seq for seq, _ in logged.close(9 * SECOND)] == seqs[2:]


@pytest.mark.parametrize(("aggregate", "value"), [("last", 0.25), ("sum", 0.75)])
@pytest.mark.parametrize("reopened", [False, True])
def test_the_last_or_the_sum_is_learned_at_the_deadline(
    aggregate: str, value: float, reopened: bool
) -> None:
    logged = LoggedRouter(wait=1.0, aggregate=aggregate)
    one = logged.decide(0)
    assert logged.reward(one, 0.5, 1, key="x") == "pending"
    if reopened:
        logged.reopen()
    assert logged.reward(one, 0.25, 2, key="y") == "pending"
    assert logged.reward(one, 0.5, 3, key="x") == "duplicate"
    with pytest.raises(RewardConflict):
        logged.reward(one, 0.25, 3, key="x")
    assert logged.aggregate.core.totals.rewards[0] == 0
    assert logged.close(2 * SECOND) == ((one, value),)
    assert logged.reward(one, 0.5, 2 * SECOND, key="x") == "duplicate"
    assert logged.aggregate.core.totals.total[0] == value


def test_a_reward_whose_sum_leaves_the_range_is_refused() -> None:
    logged = LoggedRouter(wait=1.0, aggregate="sum")
    one = logged.decide(0)
    logged.reward(one, 0.75, key="x")
    before = logged.aggregate.fingerprint()
    with pytest.raises(RewardError, match=r"would sum to 1\.25"):
        logged.reward(one, 0.5, key="y")
    assert logged.aggregate.fingerprint() == before
    assert logged.reward(one, 0.25, key="z") == "pending"


# Deferred, cancelled.


def test_a_deferred_decision_has_no_deadline_until_it_is_activated() -> None:
    logged = LoggedRouter(wait=1.0)
    one = logged.decide(0, defer=True)
    assert logged.aggregate.engine.open.first_due() is None
    with pytest.raises(DecisionStateError, match="activate it first"):
        logged.reward(one, 0.5, 1)
    logged.append(logged.aggregate.activate(5 * SECOND, one))
    assert logged.aggregate.engine.open.first_due() == (6 * SECOND, one)
    with pytest.raises(DecisionStateError, match="is waiting, not deferred"):
        logged.aggregate.activate(5 * SECOND, one)
    assert logged.reward(one, 0.5, 6 * SECOND) == "learned"
    with pytest.raises(DecisionStateError, match="is rewarded, not deferred"):
        logged.aggregate.activate(6 * SECOND, one)


@pytest.mark.parametrize("defer", [False, True])
def test_a_cancelled_decision_costs_nothing_and_takes_no_reward(defer: bool) -> None:
    logged = LoggedRouter()
    logged.reward(logged.decide(), 0.5)
    router = logged.aggregate.core
    assert router.book.tables is not None
    ledgers = router.book.tables.state.ledgers
    spent, booked = router.totals.spent.copy(), ledgers["spent"].copy()
    assert booked.any()
    one = logged.decide(defer=defer)
    assert router.totals.spent.sum() > spent.sum()
    assert (ledgers["spent"] != booked).any()
    logged.append(logged.aggregate.cancel(9, one))
    assert_allclose(router.totals.spent, spent, atol=1e-12)
    assert_allclose(ledgers["spent"], booked, atol=1e-12)
    with pytest.raises(DecisionStateError, match="was cancelled"):
        logged.reward(one, 0.5)
    with pytest.raises(DecisionStateError, match="is cancelled; it cannot be cancelled"):
        logged.aggregate.cancel(9, one)
    with pytest.raises(DecisionStateError, match="is rewarded; it cannot be cancelled"):
        logged.aggregate.cancel(9, 1)
    assert list_nonzero_counters(logged) == {"learned": 1, "cancelled": 1}


def test_a_decision_can_be_looked_up_in_every_state() -> None:
    logged = LoggedRouter(wait=1.0)
    seqs = [logged.decide(0, context="a", defer=n == 1) for n in range(5)]
    logged.reward(seqs[2], 0.5, 1, spend={"usd": 2.0}, key="x", by="me")
    logged.append(logged.aggregate.cancel(2, seqs[3]))

    def states() -> list[str]:
        return [logged.record(seq).state for seq in seqs]

    assert states() == ["waiting", "deferred", "rewarded", "cancelled", "waiting"]
    logged.close(2 * SECOND, most=1)
    assert states() == ["closed", "deferred", "rewarded", "cancelled", "waiting"]
    found = logged.record(seqs[2])
    assert found.decision == show_events("triage", DecisionEvents(logged.log[seqs[2]], ()))
    (reward,) = found.rewards
    assert (reward.value, reward.receipt, reward.spend, reward.key, reward.by) == (
        0.5,
        "learned",
        {"usd": 2.0},
        "x",
        "me",
    )
    assert (found.decision.id, found.decision.at) == (
        f"triage.1.{seqs[2]}.{logged.log[seqs[2]].seal[:4].hex()}",
        "1970-01-01T00:00:00.000000Z",
    )


# Costs of panels.


def test_the_real_cost_replaces_the_stated_one() -> None:
    logged = LoggedRouter()
    one, two = logged.decide(), logged.decide()
    stated = (
        decode_decision(logged.log[one]).spend["usd"]
        + decode_decision(logged.log[two]).spend["usd"]
    )
    logged.reward(one, 0.5, spend={"usd": 7.5})
    other = decode_decision(logged.log[two]).spend["usd"]
    cost = logged.aggregate.status().costs["usd"]
    assert_allclose([cost.stated, cost.settled], [stated, 7.5 + other], rtol=1e-12)
    logged.reward(one, 0.5, spend={"usd": 3.0}, key="late news")
    limit = logged.aggregate.status().limits[0]
    assert_allclose(limit.mean, (3.0 + other) / 2, rtol=1e-12)
    assert limit.current is not None
    assert limit.current.mean is not None
    assert_allclose(limit.current.mean, (3.0 + other) / 2, rtol=1e-12)
    assert_allclose(sum(logged.aggregate.tally.timeline.spent["usd"]), 3.0 + other, rtol=1e-12)


def test_a_late_reward_settles_the_cost() -> None:
    logged = LoggedRouter(wait=1.0)
    one = logged.decide(0)
    logged.close(2 * SECOND)
    assert logged.reward(one, 0.5, 3 * SECOND, spend={"usd": 9.0}) == "late"
    assert_allclose(logged.aggregate.status().costs["usd"].settled, 9.0, rtol=1e-12)


def test_a_cost_that_follows_a_late_reward_is_counted_in_full() -> None:
    logged = LoggedRouter(wait=1.0)
    one = logged.decide(0)
    logged.close(2 * SECOND)
    assert logged.reward(one, 0.5, 3 * SECOND) == "late"
    assert not logged.aggregate.tally.counters.settled
    logged.reward(one, None, 4 * SECOND, key="bill", spend={"usd": 1.5})
    assert logged.aggregate.tally.counters.settled["usd"] == 1.5


def test_decisions_that_wait_for_their_activation_need_no_reward_before() -> None:
    logged = LoggedRouter()
    decisions = [logged.decide(SECOND * n, defer=True) for n in range(3)]
    assert logged.aggregate.tally.arrivals.decisions == 0
    logged.aggregate.activate(3 * SECOND, decisions[0])
    assert logged.aggregate.tally.arrivals.decisions == 1


def test_the_same_reward_with_another_cost_is_a_conflict() -> None:
    logged = LoggedRouter()
    one = logged.decide()
    logged.reward(one, 0.5, spend={"usd": 2.0})
    assert logged.reward(one, 0.5, spend={"usd": 2.0}) == "duplicate"
    for other in ({"usd": 3.0}, None, {}):
        with pytest.raises(RewardConflict, match="already has spend"):
            logged.reward(one, 0.5, spend=other)


@pytest.mark.parametrize(
    ("spend", "words"),
    [
        ({"usd": -1.0}, "'usd' -1.0: expected"),
        ({"usd": np.inf}, "'usd' inf: expected"),
        ({"usd": np.nan}, "'usd' nan: expected"),
        ({"usd": True}, "'usd' True: expected"),
        ({"usd": "2"}, "'usd' '2': expected"),
        ({"eur": 1.0}, "did you mean 'usd'|the costs"),
        ([("usd", 1.0)], "expected costs by name"),
    ],
)
def test_an_invalid_cost_is_refused_and_changes_nothing(spend: Any, words: str) -> None:
    logged = LoggedRouter()
    one = logged.decide()
    before = logged.aggregate.fingerprint()
    with pytest.raises(RewardError, match=words):
        logged.reward(one, 0.5, spend=spend)
    assert logged.aggregate.fingerprint() == before


def test_a_share_counts_members_and_cannot_be_settled() -> None:
    limit = at_least(share("junior", ["bob"]), 0.2)
    logged = LoggedRouter(
        Problem(["ann", "bob", "cat"], {"usd": [1.0, 2.0, 3.0]}, [limit], draws=1)
    )
    one = logged.decide()
    with pytest.raises(
        RewardError, match="no cost 'junior' to settle; the costs that can be settled are 'usd'"
    ):
        logged.reward(one, 0.5, spend={"junior": 1.0})
    assert logged.reward(one, 0.5, spend={"usd": 1.0}) == "learned"


@pytest.mark.parametrize("policy", ["distinct", "tangent"])
def test_a_policy_keeps_its_limit_if_real_costs_are_reported(policy: str) -> None:
    bound, period = 3.0, 500
    pool = Problem(
        ["ann", "bob", "cat", "dan"],
        {"usd": [4.0, 3.0, 0.0, 0.0]},
        [at_most("usd", bound)],
        draws=2,
        period=period,
    )

    def play_and_average_cost(report: bool) -> float:
        logged, total = LoggedRouter(pool, policy), 0.0
        for _ in range(3 * period):
            event = decode_decision(logged.log[one := logged.decide()])
            value, real_cost = (
                0.1 + 0.4 * len({"ann", "bob"} & {*event.draws}),
                2 * event.spend["usd"],
            )
            logged.reward(one, value, spend={"usd": real_cost} if report else None)
            total += real_cost
        return total / (3 * period)

    # The guard checks stated costs, so a period exceeds the bound by one panel at most.
    assert play_and_average_cost(report=True) <= bound + 7.0 / period
    assert play_and_average_cost(report=False) > 1.3 * bound


# After an edit.


def test_an_open_reward_is_learned_after_a_change_of_limits_and_noted_after_one_of_the_pool() -> (
    None
):
    logged = LoggedRouter()
    one, two, three = logged.decide(), logged.decide(), logged.decide()
    loose = Problem(
        make_five_expert_problem().experts,
        dict(make_five_expert_problem().costs),
        [at_most("usd", 3.5)],
        draws=2,
        floor=make_five_expert_problem().floor,
    )
    logged.edit(loose)
    assert logged.reward(one, 0.5) == "learned"
    logged.edit(make_problem_with_frank(3.0))
    rewards = int(logged.aggregate.core.totals.rewards[0])
    assert logged.reward(two, 0.5, spend={"usd": 1.0, "ms": 2.0}) == "noted"
    assert logged.reward(two, 0.5, spend={"usd": 1.0, "ms": 2.0}) == "duplicate"
    logged.reopen()
    assert logged.reward(three, 0.5) == "noted"
    assert logged.aggregate.core.totals.rewards[0] == rewards
    assert logged.reward(logged.decide(), 0.5) == "learned"


def test_sums_of_costs_are_kept_by_name_and_a_new_cost_starts_at_0() -> None:
    logged = LoggedRouter()
    for _ in range(10):
        logged.reward(logged.decide(), 0.5)
    spent = logged.aggregate.status().costs["usd"].settled
    logged.edit(make_problem_with_frank(3.0))
    costs = logged.aggregate.status().costs
    assert list(costs) == ["junior", "usd", "ms"]
    assert costs["usd"].settled == spent
    assert (costs["ms"].settled, costs["ms"].decisions) == (0.0, 0)
    event = decode_decision(logged.log[logged.decide()])
    limit = logged.aggregate.status().limits[2]
    assert (limit.cost, limit.mean) == ("ms", event.spend["ms"])
    assert {*logged.aggregate.tally.timeline.spent} == {"junior", "usd", "ms"}
    logged.edit(make_five_expert_problem())
    assert list(logged.aggregate.status().costs) == ["usd", "junior"]
    assert_allclose(logged.aggregate.status().costs["usd"].settled, spent + event.spend["usd"])


def test_pending_rewards_survive_an_edit_of_their_aggregation() -> None:
    logged = LoggedRouter(wait=1.0, aggregate="sum")
    one = logged.decide(0)
    logged.reward(one, 0.5, key="x")
    logged.reward(one, 0.25, key="y")
    logged.edit(aggregate="earliest")
    assert logged.reward(one, 0.1, key="z") == "noted"
    assert logged.close(2 * SECOND) == ((one, 0.5),)


def test_a_pending_reward_from_before_a_change_of_the_pool_is_noted() -> None:
    logged = LoggedRouter(wait=1.0, aggregate="last")
    one = logged.decide(0)
    assert logged.reward(one, 0.5, 1) == "pending"
    logged.edit(make_problem_with_frank(3.0), 2)
    assert logged.close(3 * SECOND) == ((one, None),)
    assert list_nonzero_counters(logged) == {"noted": 1}
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()
