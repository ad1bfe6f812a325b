"""Remedy: the nearest bounds that limits in conflict could be kept with."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context

from bylot.problem.limits import UPPER, Limit, listed
from bylot.problem.region import TOLERANCE, Region

DIGITS = 6
"""Significant digits of a proposed bound."""


@dataclass(frozen=True)
class Remedy:
    """New bounds; with these in place of the old ones, all limits can be kept."""

    changes: tuple[Limit, ...]

    def apply(self, limits: Iterable[Limit]) -> tuple[Limit, ...]:
        """The limits, with those that this remedy changes replaced.

        >>> from bylot.problem.limits import at_least, at_most
        >>> before = [at_most("usd", 1.0), at_least("usd", 0.5)]
        >>> print(*Remedy((at_most("usd", 2.0),)).apply(before))
        at_most('usd', 2.0) at_least('usd', 0.5)
        """
        new = {limit.key: limit for limit in self.changes}
        return tuple(new.get(limit.key, limit) for limit in limits)

    def __str__(self) -> str:
        return listed(self.changes)


def single_changes(
    region: Region, limits: Sequence[Limit], conflict: Sequence[Limit]
) -> tuple[Remedy, ...]:
    """For each limit in conflict, the nearest bound that would do alone; the smallest change first.

    The nearest upper bound is the smallest c_j.p that the *other* limits allow; if those are in
    conflict among themselves, there is none.
    """
    found = []
    for j in region.every:
        if limits[j] in conflict:
            others = [i for i in region.every if i != j]
            best = region.extreme(region.rows[j], int(region.signs[j]), others)
            bounds = None if best is None else _verified(region, {j: best})
            if bounds is not None:
                change = abs(bounds[j] - region.bounds[j]) / region.units[j]
                found.append((change, j, Remedy((limits[j].at(bounds[j]),))))
    return tuple(remedy for _, _, remedy in sorted(found, key=lambda one: one[:2]))


def joint_change(region: Region, limits: Sequence[Limit]) -> Remedy | None:
    """New bounds for several limits at once, with the least sum of relative changes."""
    p = region.nearest()
    if p is None:
        return None
    broken = [j for j in region.every if region.excess(p)[j] > TOLERANCE / 2]
    bounds = _verified(region, {j: float(region.rows[j] @ p) for j in broken})
    return None if bounds is None else Remedy(tuple(limits[j].at(bounds[j]) for j in broken))


def outward(value: float, sign: int, digits: int) -> float:
    """Rounded to so many digits, up for an upper bound (sign -1), down for a lower one.

    A few units of a solver's noise in the tenth digit are not worth a whole one in the sixth.

    >>> outward(1.2345678, -1, digits=6), outward(1.2345678, +1, digits=6)
    (1.23457, 1.23456)
    >>> outward(0.30000000000000004, -1, digits=6)
    0.3
    """
    rounding = ROUND_CEILING if sign == UPPER else ROUND_FLOOR
    clean = Context(prec=9, rounding=ROUND_HALF_EVEN).create_decimal(repr(value))
    return float(Context(prec=digits, rounding=rounding).create_decimal(clean))


def _verified(region: Region, best: dict[int, float]) -> dict[int, float] | None:
    """The first rounding of these bounds with which all limits can be kept."""
    for bounds in _roundings(region, best):
        if region.moved(bounds).feasible(region.every):
            return bounds
    return None


def _roundings(region: Region, best: dict[int, float]) -> Iterator[dict[int, float]]:
    """Six digits as a rule; fewer, thus further out, where rounding errors ask for it."""
    signs, largest = region.signs, region.rows.max(axis=1, initial=0.0)
    nil = {j: 0.0 for j, value in best.items() if value <= TOLERANCE * largest[j]}
    for digits in range(DIGITS, 1, -1):
        bounds = {j: outward(max(value, 0.0), int(signs[j]), digits) for j, value in best.items()}
        yield bounds | nil
        if nil:
            yield bounds
