"""Rules for rewards: receipts, aggregation, and the actual costs that come with them."""

from collections.abc import Iterable, Mapping
from typing import Any

from bylot.api import ReceiptName
from bylot.errors import DecisionStateError, RewardConflict, RewardError
from bylot.eventlog.events import RewardReceived
from bylot.eventlog.open_decisions import OpenDecision
from bylot.policies.validation import RunConfig, is_reward_in_range
from bylot.problem import Problem
from bylot.problem.limits import MAX_COST
from bylot.problem.validation import suggest_known_name
from bylot.router.config import RewardAggregation

MAX_REWARDS_PER_DECISION = 100
MAX_SPEND_FACTOR = 1_000  # actual costs may be so many times those of the dearest panel


def check_reward_count(one: OpenDecision, id: str) -> None:
    """Refuse a reward of a decision that has too many."""
    if len(one.rewards) >= MAX_REWARDS_PER_DECISION:
        raise DecisionStateError(
            f"decision {id} has {len(one.rewards)} rewards, and takes at most "
            f"{MAX_REWARDS_PER_DECISION}",
            remedy="combine rewards before you report them; nothing was changed",
        )


def check_same_reward(
    old: RewardReceived, value: float, spend: dict[str, float] | None, id: str
) -> None:
    """Refuse another reward under the key of an old one."""
    which = "" if old.key is None else f" under key {old.key!r}"
    for what, was, now in (("reward", old.value, value), ("spend", old.spend, spend)):
        if was != now:
            raise RewardConflict(f"decision {id} already has {what} {was}{which}, got {now}")


def choose_receipt(
    one: OpenDecision, is_open: bool, at: int, how: RewardAggregation, same_pool: bool, id: str
) -> ReceiptName:
    """What to do with a reward of a decision."""
    if not is_open:
        known = any(reward.receipt != "late" for reward in one.rewards.values())
        return "noted" if known else "late"
    if one.is_deferred:
        raise DecisionStateError(f"decision {id} is deferred", remedy="activate it first")
    if not same_pool:
        return "noted"
    if 0 <= one.due < at:
        return "late"
    if how == "earliest" or one.due < 0:
        return "noted" if one.pending else "learned"
    return "pending"


def check_reward_sum(one: OpenDecision, value: float, run: RunConfig, id: str) -> None:
    """A sum of rewards must be in the range of rewards itself."""
    total = sum(one.pending) + value
    if not is_reward_in_range(total, run.low, run.high):
        raise RewardError(
            f"with {value} the rewards of decision {id} would sum to {total}",
            expected=f"at most a number in [{run.low}, {run.high}]",
            remedy="nothing was changed",
        )


def aggregate_rewards(values: list[float], how: RewardAggregation, run: RunConfig) -> float:
    """The one reward that counts. The configuration may have changed since the rewards came, so a
    sum is clipped to the range.

    >>> unit = RunConfig(seed=0, horizon=None, low=0.0, high=1.0)
    >>> [aggregate_rewards([0.25, 0.5], how, unit) for how in ("earliest", "last", "sum")]
    [0.25, 0.5, 0.75]
    """
    if how != "sum":
        return values[0 if how == "earliest" else -1]
    return min(max(sum(values), run.low), run.high)


def check_spend(spend: Any, problem: Problem) -> dict[str, float] | None:
    """Actual costs by name, finite and at least 0; derived costs follow from the panel."""
    if spend is None:
        return None
    if not isinstance(spend, Mapping):
        raise RewardError("spend", got=spend, expected="costs by name, such as {'usd': 2}")
    derived = {one.name for one in problem.limits if one.is_derived}
    costs = [name for name in problem.costs if name not in derived]
    for name, cost in spend.items():
        if name not in costs:
            remedy = suggest_known_name(name, costs, "costs that can be settled")
            remedy = f"{remedy}; nothing was changed"
            raise RewardError(f"no cost {name!r} to settle", remedy=remedy)
        number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
        if not number or not 0 <= cost <= MAX_COST:
            expected, remedy = f"a number from 0 to {MAX_COST:g}", "nothing was changed"
            raise RewardError(f"spend on {name!r}", got=cost, expected=expected, remedy=remedy)
    return {name: float(cost) for name, cost in spend.items()}


def check_spend_range(spend: Mapping[str, float] | None, problem: Problem) -> None:
    """Refuse costs so high that sums would lose the costs of other decisions by rounding."""
    for name, cost in (spend or {}).items():
        dearest = problem.draws * (float(problem.costs[name].max()) or 1.0)
        if cost > MAX_SPEND_FACTOR * dearest:
            raise RewardError(
                f"spend on {name!r}",
                got=cost,
                expected=f"at most {MAX_SPEND_FACTOR * dearest:g}, {MAX_SPEND_FACTOR:,} times the "
                "stated cost of the dearest panel",
                remedy="check the unit; nothing was changed",
            )


def compute_cost_corrections(
    spend: Mapping[str, float], stated: Mapping[str, float], rewards: Iterable[RewardReceived]
) -> dict[str, float]:
    """The difference to what is booked: the spend of the last reward, or else the stated cost.

    >>> compute_cost_corrections({"usd": 5.0}, {"usd": 2.0, "ms": 9.0}, [])
    {'usd': 3.0}
    """
    booked = dict(stated)
    for one in rewards:
        booked.update(one.spend or {})
    return {name: cost - booked.get(name, 0.0) for name, cost in spend.items()}
