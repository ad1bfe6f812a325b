"""What becomes of a reward: by what was told before, by the time, and by the terms."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from bylot.api import ReceiptName
from bylot.errors import DecisionError, DecisionStateError, RewardConflict, RewardError
from bylot.eventlog.events import RewardReceived
from bylot.eventlog.open_decisions import OpenDecision
from bylot.policies.validation import is_reward_in_range
from bylot.problem import Problem
from bylot.problem.limits import MAX_COST
from bylot.problem.validation import suggest_known_name
from bylot.router.config import RewardAggregation, RouterConfig

RewardsByKey = Mapping[str | None, RewardReceived]


def is_repeated_reward(told: RewardsByKey, new: RewardReceived, id: str) -> bool:
    """Was this told before? The same key with something else is a conflict; no key is one too."""
    old = told.get(new.key)
    if old is None:
        return False
    which = "" if new.key is None else f" under the key {new.key!r}"
    if old.value != new.value:
        raise RewardConflict(
            f"decision {id} already has reward {old.value}{which}; it cannot become {new.value}"
        )
    if old.spend != new.spend:
        raise RewardConflict(
            f"decision {id} already has spend {old.spend}{which}; it cannot become {new.spend}"
        )
    return True


def receipt_for_open_decision(
    held: OpenDecision,
    at: int,
    terms: RouterConfig,
    same_pool: bool,
    id: str,  # noqa: A002, RUF100
) -> ReceiptName:
    """What becomes of a reward of an open decision."""
    if held.deferred:
        raise DecisionStateError(
            f"decision {id} is deferred; activate it first, then tell its reward"
        )
    if not same_pool:
        return "noted"
    if held.over(at):
        return "late"
    if terms.aggregate == "earliest" or held.due < 0:
        return "noted" if held.pending else "learned"
    return "pending"


def receipt_for_closed_decision(told: Collection[RewardReceived]) -> ReceiptName:
    """What becomes of a reward of a decision that is done with."""
    return "noted" if any(one.receipt != "late" for one in told) else "late"


def check_reward_sum(
    held: OpenDecision,
    value: float,
    bounds: tuple[float, float],
    id: str,  # noqa: A002, RUF100
) -> None:
    """A sum of rewards must be one itself."""
    total = sum(held.pending) + value
    if not is_reward_in_range(total, *bounds):
        raise RewardError(
            f"with {value} the rewards of decision {id} would be {total} in all, which is outside "
            f"{list(bounds)}; nothing was changed"
        )


def aggregate_rewards(
    values: list[float], how: RewardAggregation, bounds: tuple[float, float]
) -> float:
    """What counts of several rewards; terms may have changed since they were told, so that a sum
    may have to be cut.

    >>> [aggregate_rewards([0.25, 0.5], how, (0.0, 1.0)) for how in ("earliest", "last", "sum")]
    [0.25, 0.5, 0.75]
    """
    if how != "sum":
        return values[0 if how == "earliest" else -1]
    return min(max(sum(values), bounds[0]), bounds[1])


def check_spend(spend: Any, problem: Problem) -> dict[str, float] | None:
    """Costs by name, finite and 0 or more, or an error; shares count members, which are known."""
    if spend is None:
        return None
    if not isinstance(spend, Mapping):
        raise RewardError(f"spend={spend!r} given; wanted what each cost was, such as {{'usd': 2}}")
    counted = {one.name for one in problem.limits if one.is_derived}
    costs = [name for name in problem.costs if name not in counted]
    for name, cost in spend.items():
        if name not in costs:
            remedy = suggest_known_name(name, costs, "costs that can be settled")
            raise RewardError(f"spend on {name!r}: {remedy}; nothing was changed")
        number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
        if not number or not 0 <= cost <= MAX_COST:
            raise RewardError(
                f"spend on {name!r} is {cost!r}; wanted a number from 0 to {MAX_COST:g}; "
                "nothing was changed"
            )
    return {name: float(cost) for name, cost in spend.items()}


def compute_cost_corrections(
    spend: Mapping[str, float], stated: Mapping[str, float], told: Iterable[RewardReceived]
) -> dict[str, float]:
    """How much more that is than was booked: as told last, or else as stated.

    >>> compute_cost_corrections({"usd": 5.0}, {"usd": 2.0, "ms": 9.0}, [])
    {'usd': 3.0}
    """
    booked = dict(stated)
    for one in told:
        booked.update(one.spend or {})
    return {name: cost - booked.get(name, 0.0) for name, cost in spend.items()}


def check_storable_text(what: str, text: str | None) -> None:
    """Refuse what is no text, or one that cannot be written down, such as half of a character."""
    if text is None or (isinstance(text, str) and text.isascii()):
        return
    try:
        text.encode()
    except (AttributeError, UnicodeError):
        raise DecisionError(f"{what} {text!r} is not a text that can be kept") from None
