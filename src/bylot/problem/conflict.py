"""Conflict: which limits cannot be kept together, as few of them as there can be."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from bylot.problem.limits import Limit, listed
from bylot.problem.region import TOLERANCE, Region

PATIENCE, ROOM = 500, 5_000
"""Linear programs, of up to so many numbers, spent on the proof that a conflict is the smallest:
about a second; of larger ones fewer in proportion. After that an irreducible one has to do."""


@dataclass(frozen=True)
class Conflict:
    """Limits that cannot be kept together, although without any one of them the others can.

    If smallest is set, no conflict has fewer limits; otherwise the search for it was cut short.
    """

    limits: tuple[Limit, ...]
    smallest: bool

    def __str__(self) -> str:
        return listed(self.limits)


def find_conflict(
    region: Region, limits: Sequence[Limit], patience: int = PATIENCE
) -> Conflict | None:
    """A conflict between the limits of a region, None if they can all be kept.

    It is the smallest there is, if patience lasts for the proof.
    """
    if region.feasible(region.every):
        return None
    programs = patience * ROOM // max(ROOM, region.rows.size)
    places, proven = smallest(region, irreducible(region), programs)
    return Conflict(tuple(limits[j] for j in places), proven)


def irreducible(region: Region) -> list[int]:
    """A conflict none of whose limits can be spared: leave out each limit that is not needed."""
    needed = region.culprits()
    if region.feasible(needed):  # rounding
        needed = region.every
    for j in list(needed):
        without = [i for i in needed if i != j]
        if not region.feasible(without):
            needed = without
    return needed


def smallest(region: Region, known: list[int], patience: int) -> tuple[list[int], bool]:
    """A conflict with the fewest limits, and True; when out of patience, the known one, and False.

    A *correction* is a set of limits without which the others can be kept. A conflict shares a
    limit with each correction: it could be kept otherwise. So take the smallest set that meets all
    corrections found; no conflict is smaller. If it cannot be kept, it is a conflict. If it can,
    let it grow: what is left out is a new correction (implicit hitting sets; Ignatiev et al. 2015,
    "Smallest MUS extraction with minimal hitting set dualization").
    """
    corrections: list[list[int]] = []
    while patience > 0:
        candidate = smallest_hitting_set(corrections, len(region.every))
        if candidate is None:
            break
        if len(candidate) >= len(known):
            return known, True
        kept = grow(region, candidate)
        if kept is None:
            return candidate, True
        corrections.append([j for j in region.every if j not in kept])
        patience -= 2 + len(corrections) // 3  # what the next hitting set costs, about
    return known, False


def grow(region: Region, candidate: list[int]) -> list[int] | None:
    """Most of the limits that can be kept together with the candidates; None if those cannot be."""
    p = region.witness(candidate)
    if p is None:
        return None
    nearest = region.nearest(candidate)
    if nearest is None:  # rounding
        nearest = p
    # Half the tolerance: a limit that comes for free must not be the one too many.
    free = region.excess(nearest) <= TOLERANCE / 2
    free[candidate] = True
    return np.flatnonzero(free).tolist()


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
