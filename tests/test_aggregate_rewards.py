"""Rewards count once, in time, by the probabilities of their decision; costs are settled."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict
from numpy.testing import assert_allclose

from bylot import Problem, at_least, at_most, share
from bylot.errors import DecisionNotFound, DecisionStateError, RewardConflict, RewardError
from bylot.eventlog import open_decisions
from bylot.eventlog.events import DecisionMade
from bylot.eventlog.history import decision_from_event
from bylot.policies.base import compute_distribution
from logged_aggregate import SECOND, Diary, decided, with_frank
from small import five


def law_of(diary: Diary) -> Any:
    """The law of the first context."""
    router = diary.fold.core
    return compute_distribution(router.rule, router.state, 0, router.mask_available(None))


def counts(diary: Diary) -> dict[str, int]:
    """The counts that are not 0."""
    return {name: n for name, n in asdict(diary.fold.counters).items() if n}


# Once.


@pytest.mark.parametrize("reopened", [False, True])
def test_a_reward_is_learned_once_and_another_value_is_a_conflict(reopened: bool) -> None:
    diary = Diary()
    one = diary.decide()
    if reopened:
        diary.reopen()
    assert diary.reward(one, 0.5) == "learned"
    before = diary.fold.fingerprint()
    assert diary.reward(one, 0.5) == "duplicate"
    with pytest.raises(RewardConflict, match=r"triage\.1\.1 already has reward 0\.5, got 0\.6"):
        diary.reward(one, 0.6)
    assert diary.fold.fingerprint() == before
    assert diary.fold.core.totals.rewards[0] == 1


def test_of_rewards_with_different_keys_the_earliest_is_learned_and_the_others_are_noted() -> None:
    diary = Diary()
    one = diary.decide()
    assert diary.reward(one, 0.5, key="x") == "learned"
    before = str(diary.fold.core.status())
    assert diary.reward(one, 0.7, key="y") == "noted"
    assert diary.reward(one, 0.7, key="y") == "duplicate"
    with pytest.raises(RewardConflict, match="under key 'x'"):
        diary.reward(one, 0.7, key="x")
    assert diary.reward(one, 0.7) == "noted", "no key is a key of its own"
    assert str(diary.fold.core.status()) == before
    assert counts(diary) == {"learned": 1, "noted": 2}


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, np.inf, "much", None, True])
def test_what_is_no_reward_is_refused_and_changes_nothing(value: Any) -> None:
    diary = Diary()
    one = diary.decide()
    before = diary.fold.fingerprint()
    with pytest.raises(RewardError, match="nothing was changed"):
        diary.reward(one, value)
    assert diary.fold.fingerprint() == before


@pytest.mark.parametrize("seq", [0, 2, 3, -1, 10**12])
def test_a_reward_of_what_is_no_decision_is_refused(seq: int) -> None:
    diary = Diary()
    diary.reward(diary.decide(), 0.5)
    with pytest.raises(DecisionNotFound, match=rf"triage\.1\.{seq}"):
        diary.reward(seq, 0.5)


def test_a_decision_that_is_no_longer_held_takes_rewards_but_learns_nothing() -> None:
    diary = Diary(memory=2)
    one, two, _ = diary.decide(), diary.decide(), diary.decide()
    assert diary.reward(one, 0.5) == "late"
    assert diary.reward(one, 0.5) == "duplicate"
    with pytest.raises(RewardConflict):
        diary.reward(one, 0.6)
    assert diary.reward(two, 0.5) == "learned"
    assert counts(diary) == {"learned": 1, "late": 1, "missing": 1}


# By the probabilities of the decision.


def test_learning_uses_the_odds_that_were_written_down_however_late() -> None:
    diary = Diary(policy="omd")
    first = diary.decide()
    for _ in range(25):  # q moves twice meanwhile
        diary.reward(diary.decide(), 0.25)
    line: DecisionMade = decided(diary.log[first])
    diary.reopen()
    state = diary.fold.core.state
    before, mean = state.g[0].copy(), 0.25
    diary.reward(first, 0.75)
    expected = np.zeros(5)
    for seat, odds in zip(line.seats, np.frombuffer(line.draw_probabilities), strict=True):
        expected[seat] += (0.75 - mean) / 10 / odds
    assert_allclose(state.g[0] - before, expected, rtol=1e-9, atol=1e-12)
    now = law_of(diary)[list(line.seats)]
    assert np.abs(now - np.frombuffer(line.draw_probabilities)).max() > 1e-3, (
        "those of now would be others"
    )


@pytest.mark.parametrize("policy", ["distinct", "tangent"])
def test_the_order_of_rewards_within_a_batch_makes_no_difference(policy: str) -> None:
    values = [0.1, 0.9, 0.4, 0.3, 0.8, 0.2, 0.7, 0.6, 0.5, 0.95]

    def played(orders: list[list[int]], values: list[float]) -> Any:
        diary = Diary(policy=policy)
        for order in orders:
            batch = [diary.decide() for _ in range(10)]
            for place in order:
                diary.reward(batch[place], values[place])
                diary.reward(batch[place], values[place])  # twice is once
        diary.decide()  # takes the last step
        return law_of(diary)

    straight = played([list(range(10))] * 6, values)
    shuffled = played(
        [[int(i) for i in np.random.default_rng(n).permutation(10)] for n in range(6)], values
    )
    assert_allclose(shuffled, straight, rtol=1e-9)
    crossed = played([list(range(10))] * 6, values[::-1])
    assert np.abs(crossed - straight).max() > 1e-4, "whose reward it is does make one"


# In time.


def test_without_a_reward_in_time_nothing_is_learned_unless_there_is_a_default() -> None:
    silent, pessimist = Diary(wait=1.0), Diary(wait=1.0, default=0.0)
    for diary, value in ((silent, None), (pessimist, 0.0)):
        one = diary.decide(0)
        assert diary.fold.open.first_due() == (SECOND, one)
        assert diary.close(SECOND) == ()
        assert diary.close(SECOND + 1) == ((one, value),)
        assert diary.fold.open.first_due() is None
        assert diary.reward(one, 0.5, 2 * SECOND) == "late"
        assert diary.fold.core.totals.rewards[0] == (value is not None)
    assert counts(silent) == {"missing": 1, "late": 1}
    assert counts(pessimist) == {"defaulted": 1, "late": 1}


def test_what_is_not_kept_at_hand_is_learned_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(fresh: int) -> tuple[str, int]:
        monkeypatch.setattr(open_decisions, "MAX_CACHED_TICKETS", fresh)
        diary = Diary(wait=9.0, default=0.25)
        seqs = [diary.decide(n, context="ab"[n % 2]) for n in range(30)]
        at_hand = sum(one.ticket is not None for _, one in diary.fold.open)
        for n, seq in enumerate(seqs[:20]):
            assert diary.reward(seq, n / 20, 40 + n, spend={"usd": 1.0}) == "learned"
        assert len(diary.close(10 * SECOND)) == 10
        return diary.fold.fingerprint(), at_hand

    (few, at_hand), (all_of_them, all_at_hand) = told(3), told(100)
    assert (at_hand, all_at_hand) == (3, 30)
    assert few == all_of_them


def test_a_reward_after_the_time_is_late_even_before_the_decision_is_closed() -> None:
    diary = Diary(wait=1.0)
    one, two = diary.decide(0), diary.decide(5)
    assert diary.reward(one, 0.5, SECOND + 1) == "late"
    assert diary.reward(one, 0.5, SECOND + 2) == "duplicate"
    assert diary.reward(two, 0.5, SECOND + 5) == "learned"
    assert diary.close(2 * SECOND) == ((one, None),)


def test_decisions_are_closed_in_the_order_in_which_their_time_is_up() -> None:
    diary = Diary(wait=1.0)
    seqs = [diary.decide(n) for n in range(5)]
    assert [seq for seq, _ in diary.close(9 * SECOND, most=2)] == seqs[:2]
    assert [seq for seq, _ in diary.close(9 * SECOND)] == seqs[2:]


@pytest.mark.parametrize(("aggregate", "value"), [("last", 0.25), ("sum", 0.75)])
@pytest.mark.parametrize("reopened", [False, True])
def test_the_last_or_the_sum_is_learned_when_the_time_is_up(
    aggregate: str, value: float, reopened: bool
) -> None:
    diary = Diary(wait=1.0, aggregate=aggregate)
    one = diary.decide(0)
    assert diary.reward(one, 0.5, 1, key="x") == "pending"
    if reopened:
        diary.reopen()
    assert diary.reward(one, 0.25, 2, key="y") == "pending"
    assert diary.reward(one, 0.5, 3, key="x") == "duplicate"
    with pytest.raises(RewardConflict):
        diary.reward(one, 0.25, 3, key="x")
    assert diary.fold.core.totals.rewards[0] == 0
    assert diary.close(2 * SECOND) == ((one, value),)
    assert diary.reward(one, 0.5, 2 * SECOND, key="x") == "duplicate"
    assert diary.fold.core.totals.total[0] == value


def test_a_sum_that_is_no_reward_is_refused_when_it_is_told() -> None:
    diary = Diary(wait=1.0, aggregate="sum")
    one = diary.decide(0)
    diary.reward(one, 0.75, key="x")
    before = diary.fold.fingerprint()
    with pytest.raises(RewardError, match=r"would sum to 1\.25"):
        diary.reward(one, 0.5, key="y")
    assert diary.fold.fingerprint() == before
    assert diary.reward(one, 0.25, key="z") == "pending"


# Deferred, cancelled.


def test_a_deferred_decision_waits_for_nothing_until_it_is_activated() -> None:
    diary = Diary(wait=1.0)
    one = diary.decide(0, defer=True)
    assert diary.fold.open.first_due() is None
    with pytest.raises(DecisionStateError, match="activate it first"):
        diary.reward(one, 0.5, 1)
    diary.note(diary.fold.activate(5 * SECOND, one))
    assert diary.fold.open.first_due() == (6 * SECOND, one)
    with pytest.raises(DecisionStateError, match="is waiting, not deferred"):
        diary.fold.activate(5 * SECOND, one)
    assert diary.reward(one, 0.5, 6 * SECOND) == "learned"
    with pytest.raises(DecisionStateError, match="is rewarded, not deferred"):
        diary.fold.activate(6 * SECOND, one)


@pytest.mark.parametrize("defer", [False, True])
def test_a_cancelled_decision_costs_nothing_and_takes_no_reward(defer: bool) -> None:
    diary = Diary()
    diary.reward(diary.decide(), 0.5)
    router = diary.fold.core
    spent, account = router.totals.spent.copy(), router.state.budget.spent.copy()
    one = diary.decide(defer=defer)
    assert router.totals.spent.sum() > spent.sum()
    diary.note(diary.fold.cancel(9, one))
    assert_allclose(router.totals.spent, spent, atol=1e-12)
    assert_allclose(router.state.budget.spent, account, atol=1e-12)
    with pytest.raises(DecisionStateError, match="was cancelled"):
        diary.reward(one, 0.5)
    with pytest.raises(DecisionStateError, match="is cancelled; it cannot be cancelled"):
        diary.fold.cancel(9, one)
    with pytest.raises(DecisionStateError, match="is rewarded; it cannot be cancelled"):
        diary.fold.cancel(9, 1)
    assert counts(diary) == {"learned": 1, "cancelled": 1}


def test_a_decision_can_be_looked_up_in_every_state_of_its_life() -> None:
    diary = Diary(wait=1.0)
    seqs = [diary.decide(0, context="a", defer=n == 1) for n in range(5)]
    diary.reward(seqs[2], 0.5, 1, spend={"usd": 2.0}, key="x", by="me")
    diary.note(diary.fold.cancel(2, seqs[3]))

    def states() -> list[str]:
        return [diary.record(seq).state for seq in seqs]

    assert states() == ["waiting", "deferred", "rewarded", "cancelled", "waiting"]
    diary.close(2 * SECOND, most=1)
    assert states() == ["closed", "deferred", "rewarded", "cancelled", "waiting"]
    found = diary.record(seqs[2])
    assert found.decision == decision_from_event("triage", diary.log[seqs[2]])
    (told,) = found.rewards
    assert (told.value, told.receipt, told.spend, told.key, told.by) == (
        0.5,
        "learned",
        {"usd": 2.0},
        "x",
        "me",
    )
    assert (found.decision.id, found.decision.at) == (
        f"triage.1.{seqs[2]}",
        "1970-01-01T00:00:00.000000Z",
    )


# What panels cost.


def test_the_real_cost_takes_the_place_of_the_stated_one() -> None:
    diary = Diary()
    one, two = diary.decide(), diary.decide()
    stated = decided(diary.log[one]).spend["usd"] + decided(diary.log[two]).spend["usd"]
    diary.reward(one, 0.5, spend={"usd": 7.5})
    other = decided(diary.log[two]).spend["usd"]
    cost = diary.fold.status().costs["usd"]
    assert_allclose([cost.stated, cost.settled], [stated, 7.5 + other], rtol=1e-12)
    diary.reward(one, 0.5, spend={"usd": 3.0}, key="late news")
    limit = diary.fold.status().limits[0]
    assert_allclose(limit.mean, (3.0 + other) / 2, rtol=1e-12)
    assert limit.current is not None
    assert limit.current.mean is not None
    assert_allclose(limit.current.mean, (3.0 + other) / 2, rtol=1e-12)
    assert_allclose(sum(diary.fold.timeline.spent["usd"]), 3.0 + other, rtol=1e-12)


def test_a_late_reward_settles_the_cost_all_the_same() -> None:
    diary = Diary(wait=1.0)
    one = diary.decide(0)
    diary.close(2 * SECOND)
    assert diary.reward(one, 0.5, 3 * SECOND, spend={"usd": 9.0}) == "late"
    assert_allclose(diary.fold.status().costs["usd"].settled, 9.0, rtol=1e-12)


def test_the_same_reward_with_another_cost_is_a_conflict() -> None:
    diary = Diary()
    one = diary.decide()
    diary.reward(one, 0.5, spend={"usd": 2.0})
    assert diary.reward(one, 0.5, spend={"usd": 2.0}) == "duplicate"
    for other in ({"usd": 3.0}, None, {}):
        with pytest.raises(RewardConflict, match="already has spend"):
            diary.reward(one, 0.5, spend=other)


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
def test_a_cost_that_cannot_be_is_refused_and_changes_nothing(spend: Any, words: str) -> None:
    diary = Diary()
    one = diary.decide()
    before = diary.fold.fingerprint()
    with pytest.raises(RewardError, match=words):
        diary.reward(one, 0.5, spend=spend)
    assert diary.fold.fingerprint() == before


def test_a_share_counts_members_and_cannot_be_settled() -> None:
    pair = at_least(share("junior", ["bob"]), 0.2)
    diary = Diary(Problem(["ann", "bob", "cat"], {"usd": [1.0, 2.0, 3.0]}, [pair], draws=1))
    one = diary.decide()
    with pytest.raises(
        RewardError, match="no cost 'junior' to settle; the costs that can be settled are 'usd'"
    ):
        diary.reward(one, 0.5, spend={"junior": 1.0})
    assert diary.reward(one, 0.5, spend={"usd": 1.0}) == "learned"


@pytest.mark.parametrize("policy", ["distinct", "tangent"])
def test_a_policy_that_is_told_real_costs_of_twice_the_stated_keeps_its_limit(policy: str) -> None:
    bound, period = 3.0, 500
    pool = Problem(
        ["ann", "bob", "cat", "dan"],
        {"usd": [4.0, 3.0, 0.0, 0.0]},
        [at_most("usd", bound)],
        draws=2,
        period=period,
    )

    def average(told: bool) -> float:
        diary, total = Diary(pool, policy), 0.0
        for _ in range(3 * period):
            line = decided(diary.log[one := diary.decide()])
            value, real = 0.1 + 0.4 * len({"ann", "bob"} & {*line.draws}), 2 * line.spend["usd"]
            diary.reward(one, value, spend={"usd": real} if told else None)
            total += real
        return total / (3 * period)

    # The guard lets a panel pass by its stated cost: a period is over by one panel's at most.
    assert average(told=True) <= bound + 7.0 / period
    assert average(told=False) > 1.3 * bound


# After an edit.


def test_a_reward_from_before_a_change_of_limits_is_learned_and_of_the_pool_noted() -> None:
    diary = Diary()
    one, two, three = diary.decide(), diary.decide(), diary.decide()
    loose = Problem(
        five().experts, dict(five().costs), [at_most("usd", 3.5)], draws=2, floor=five().floor
    )
    diary.edit(loose)
    assert diary.reward(one, 0.5) == "learned"
    diary.edit(with_frank(3.0))
    rewards = int(diary.fold.core.totals.rewards[0])
    assert diary.reward(two, 0.5, spend={"usd": 1.0, "ms": 2.0}) == "noted"
    assert diary.reward(two, 0.5, spend={"usd": 1.0, "ms": 2.0}) == "duplicate"
    diary.reopen()
    assert diary.reward(three, 0.5) == "noted"
    assert diary.fold.core.totals.rewards[0] == rewards
    assert diary.reward(diary.decide(), 0.5) == "learned"


def test_sums_go_on_by_the_names_of_costs_and_a_new_one_counts_from_its_first_decision() -> None:
    diary = Diary()
    for _ in range(10):
        diary.reward(diary.decide(), 0.5)
    spent = diary.fold.status().costs["usd"].settled
    diary.edit(with_frank(3.0))
    costs = diary.fold.status().costs
    assert list(costs) == ["junior", "usd", "ms"]
    assert costs["usd"].settled == spent
    assert (costs["ms"].settled, costs["ms"].decisions) == (0.0, 0)
    line = decided(diary.log[diary.decide()])
    limit = diary.fold.status().limits[2]
    assert (limit.cost, limit.mean) == ("ms", line.spend["ms"])
    assert {*diary.fold.timeline.spent} == {"junior", "usd", "ms"}
    diary.edit(five())
    assert list(diary.fold.status().costs) == ["usd", "junior"]
    assert_allclose(diary.fold.status().costs["usd"].settled, spent + line.spend["usd"])


def test_pending_rewards_survive_an_edit_of_how_they_are_added_up() -> None:
    diary = Diary(wait=1.0, aggregate="sum")
    one = diary.decide(0)
    diary.reward(one, 0.5, key="x")
    diary.reward(one, 0.25, key="y")
    diary.edit(aggregate="earliest")
    assert diary.reward(one, 0.1, key="z") == "noted"
    assert diary.close(2 * SECOND) == ((one, 0.5),)
