"""What becomes of a reward: by what was told before, by the time, and by the terms."""

from collections.abc import Collection, Mapping

from bylot.durable.bodies import Receipt, Rewarded
from bylot.durable.held import Held
from bylot.durable.terms import Aggregate, Terms
from bylot.errors import NotNow, RewardConflict, RewardError
from bylot.policies.terms import within

Told = Mapping[str | None, Rewarded]


def repeated(told: Told, new: Rewarded, id: str) -> bool:  # noqa: A002
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


def receipt_when_open(held: Held, at: int, terms: Terms, same_pool: bool, id: str) -> Receipt:  # noqa: A002
    """What becomes of a reward of an open decision."""
    if held.deferred:
        raise NotNow(f"decision {id} is deferred; activate it first, then tell its reward")
    if not same_pool:
        return "noted"
    if held.over(at):
        return "late"
    if terms.aggregate == "earliest" or held.due < 0:
        return "noted" if held.pending else "learned"
    return "pending"


def receipt_when_closed(told: Collection[Rewarded]) -> Receipt:
    """What becomes of a reward of a decision that is done with."""
    return "noted" if any(one.receipt != "late" for one in told) else "late"


def check_sum(held: Held, value: float, bounds: tuple[float, float], id: str) -> None:  # noqa: A002
    """A sum of rewards must be one itself."""
    total = sum(held.pending) + value
    if not within(total, *bounds):
        raise RewardError(
            f"with {value} the rewards of decision {id} would be {total} in all, which is outside "
            f"{list(bounds)}; nothing was changed"
        )


def aggregated(values: list[float], how: Aggregate, bounds: tuple[float, float]) -> float:
    """What counts of several rewards; terms may have changed since they were told, so that a sum
    may have to be cut.

    >>> [aggregated([0.25, 0.5], how, (0.0, 1.0)) for how in ("earliest", "last", "sum")]
    [0.25, 0.5, 0.75]
    """
    if how != "sum":
        return values[0 if how == "earliest" else -1]
    return min(max(sum(values), bounds[0]), bounds[1])
