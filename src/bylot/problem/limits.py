"""Limits: what the long-run average of a cost, per request, must stay under or above.

Which costs and experts exist is the problem's business; here a limit only checks itself.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real

from bylot.errors import ProblemError

UPPER, LOWER = -1, +1
"""The sign of a limit: -1 for an upper bound, +1 for a lower one."""

MIN_POSITIVE_COST, MAX_COST = 1e-100, 1e100
"""Costs and bounds are 0 or between these, so that no product of a few of them can overflow."""


@dataclass(frozen=True)
class Share:
    """A group of experts, counted: an indicator cost, 1 for members and 0 for the others."""

    group: str
    members: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.group, str) or not self.group:
            raise ProblemError(
                f"a share needs a name for its group, got {self.group!r}; "
                "write share('junior', ['ann', 'bob'])"
            )
        if not self.members:
            raise ProblemError(
                f"share {self.group!r} has no members, so its average is always 0; "
                "name at least one expert, or leave it out"
            )
        name, times = Counter(self.members).most_common(1)[0]
        if times > 1:
            raise ProblemError(
                f"share {self.group!r} names {name!r} {times} times; name each member once"
            )


@dataclass(frozen=True)
class Limit:
    """One side of a promise: the average over requests of the summed cost of the distinct experts
    consulted is at most (sign -1) or at least (sign +1) the bound.

    >>> print(Limit("usd", 2.0, UPPER))
    at_most('usd', 2.0)
    """

    cost: str | Share
    bound: float
    sign: int

    def __post_init__(self) -> None:
        if not isinstance(self.cost, str | Share):
            raise ProblemError(
                f"a limit is on the name of a cost or on a share, got {self.cost!r}; "
                "write at_most('usd', 2.0) or at_least(share('junior', ['ann']), 0.3)"
            )
        if self.sign not in (UPPER, LOWER):
            raise ProblemError(
                f"limit on {self.name!r}: sign={self.sign!r} is neither -1 (upper) nor +1 (lower); "
                "use at_most or at_least"
            )
        object.__setattr__(self, "bound", _check_bound(self.name, self.side, self.bound))

    @property
    def name(self) -> str:
        """The name of the cost that is limited."""
        return self.cost.group if isinstance(self.cost, Share) else self.cost

    @property
    def side(self) -> str:
        """The function that makes such a limit: at_most or at_least."""
        return "at_most" if self.sign == UPPER else "at_least"

    @property
    def key(self) -> tuple[str, int]:
        """What is limited at most once: a cost, on one side."""
        return self.name, self.sign

    def at(self, bound: float) -> "Limit":
        """The same limit with another bound."""
        return Limit(self.cost, bound, self.sign)

    def __str__(self) -> str:
        return f"{self.side}({self.name!r}, {self.bound!r})"


def at_most(cost: str | Share, bound: float) -> Limit:
    """The average of this cost per request stays at or under the bound.

    >>> at_most("usd", 2)
    Limit(cost='usd', bound=2.0, sign=-1)
    """
    return Limit(cost, bound, UPPER)


def at_least(cost: str | Share, bound: float) -> Limit:
    """The average of this cost per request stays at or above the bound.

    >>> print(at_least(share("junior", ["ann", "bob"]), 0.3))
    at_least('junior', 0.3)
    """
    return Limit(cost, bound, LOWER)


def share(group: str, members: Iterable[str]) -> Share:
    """Count the members of a group: a limit on it bounds their number per request.

    At least 0.3 means 0.3 members per request on average, so three members in ten requests.
    """
    if isinstance(members, str):
        raise ProblemError(
            f"share {group!r}: members={members!r} is one string, a list of names is needed; "
            f"write share({group!r}, [{members!r}])"
        )
    return Share(group, tuple(members))


def format_limits(limits: Sequence[Limit]) -> str:
    """In words.

    >>> format_limits([at_most("usd", 2), at_least("usd", 1), at_most("gpu", 3)])
    "at_most('usd', 2.0), at_least('usd', 1.0) and at_most('gpu', 3.0)"
    """
    *others, last = map(str, limits)
    return f"{', '.join(others)} and {last}" if others else last


def float_from_real(given: object) -> float | None:
    """A real number as a float, None if it is something else; True is no number.

    >>> float_from_real(2), float_from_real("2"), float_from_real(True)
    (2.0, None, None)
    """
    if isinstance(given, bool) or not isinstance(given, Real):
        return None
    try:
        return float(given) + 0.0  # -0.0 becomes 0.0
    except OverflowError:  # an integer of over 300 digits
        return math.inf


def _check_bound(name: str, side: str, bound: object) -> float:
    given, value = f"limit on {name!r}: {side}={bound!r}", float_from_real(bound)
    if value is None or math.isnan(value):
        raise ProblemError(f"{given} is not a number; give a finite bound of 0 or more")
    if value == math.inf:
        what = "allows everything" if side == "at_most" else "can never be reached"
        raise ProblemError(f"{given} {what}; a bound is finite, leave this limit out")
    if value < 0:
        raise ProblemError(f"{given} is negative, but costs never are; use 0 or more")
    if value and not MIN_POSITIVE_COST <= value <= MAX_COST:
        raise ProblemError(
            f"{given} is neither 0 nor between {MIN_POSITIVE_COST} and {MAX_COST}; measure in another unit"
        )
    return value
