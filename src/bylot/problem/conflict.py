"""Conflict: which limits cannot be kept together, as few of them as there can be."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from bylot.problem.limits import Limit
from bylot.problem.region import TOLERANCE, Region

PATIENCE = 1_000
"""Linear programs spent on the *smallest* conflict (at up to 1,000 experts, in proportion fewer
above), before an irreducible one has to do: about two seconds."""


@dataclass(frozen=True)
class Conflict:
    """Limits that cannot be kept together, although without any one of them the others can.

    If smallest is set, no conflict has fewer limits; otherwise the search for it was cut short.
    """

    limits: tuple[Limit, ...]
    smallest: bool

    def __str__(self) -> str:
        *others, last = map(str, self.limits)
        return f"{', '.join(others)} and {last}" if others else last


def find_conflict(region: Region, limits: Sequence[Limit]) -> Conflict | None:
    """The smallest conflict between these limits of the region, None if they can all be kept."""
    if region.feasible(region.every):
        return None
    places = smallest(region, PATIENCE * 1_000 // max(1_000, region.size))
    proven = places is not None
    chosen = irreducible(region) if places is None else places
    return Conflict(tuple(limits[j] for j in chosen), proven)


def smallest(region: Region, patience: int) -> list[int] | None:
    """A conflict with the fewest limits, None if that takes more linear programs than allowed.

    A *correction* is a set of limits without which the others can be kept. A conflict shares a
    limit with each correction: it could be kept otherwise. So take the smallest set that meets all
    corrections known; if it cannot be kept it is a smallest conflict, and if it can, let it grow
    as long as it can, and what is left out is a correction not known yet.
    """
    corrections: list[list[int]] = []
    spent = 0
    while spent < patience:
        candidate = smallest_hitting_set(corrections, len(region.every))
        if candidate is None:
            return None
        kept, tried = grow(region, candidate)
        spent += tried
        if kept is None:
            return candidate
        corrections.append([j for j in region.every if j not in kept])
        if not corrections[-1]:  # only rounding can bring us here: all limits, one at a time
            return None
    return None


def grow(region: Region, candidate: list[int]) -> tuple[set[int] | None, int]:
    """As many limits as can be kept with the candidates, None if not even those; programs spent."""
    p = region.witness(candidate)
    if p is None:
        return None, 1
    # Half the tolerance: a limit that comes for free must not be the one too many.
    kept = set(candidate) | set(np.flatnonzero(region.excess(p) <= TOLERANCE / 2).tolist())
    left = [j for j in region.every if j not in kept]
    for j in left:
        if region.feasible(kept | {j}):
            kept.add(j)
    return kept, 1 + len(left)


def irreducible(region: Region) -> list[int]:
    """A conflict none of whose limits can be spared: leave out each limit that is not needed."""
    needed = region.every
    for j in region.every:
        without = [i for i in needed if i != j]
        if not region.feasible(without):
            needed = without
    return needed


def smallest_hitting_set(sets: list[list[int]], size: int) -> list[int] | None:
    """The fewest of 0..size-1 that meet each set; None if that is too hard to find.

    >>> smallest_hitting_set([[0, 1], [1, 2], [3]], size=4)
    [1, 3]
    """
    if not sets:
        return []
    member = np.zeros((len(sets), size))
    for row, places in zip(member, sets, strict=True):
        row[places] = 1.0
    answer = milp(
        np.ones(size),
        integrality=np.ones(size, dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(member, lb=1.0),
        options={"node_limit": 10_000},
    )
    return np.flatnonzero(answer.x > 0.5).tolist() if answer.status == 0 else None
