"""Feasibility: whether any policy at all can keep the limits, asked before the first decision."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from bylot.errors import InfeasibleLimits
from bylot.problem.limits import LOWER, UPPER, Limit, format_limits
from bylot.problem.polytope import BOUND_TOLERANCE, LimitPolytope
from bylot.problem.validation import check_cost_is_known

MAX_PROOF_PROGRAMS, PROOF_PROGRAM_SIZE = 500, 5_000
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
        return format_limits(self.limits)


def find_conflict(
    region: LimitPolytope, limits: Sequence[Limit], patience: int = MAX_PROOF_PROGRAMS
) -> Conflict | None:
    """A conflict between the limits of a region, None if they can all be kept.

    It is the smallest there is, if patience lasts for the proof.
    """
    if region.feasible(region.every):
        return None
    programs = patience * PROOF_PROGRAM_SIZE // max(PROOF_PROGRAM_SIZE, region.rows.size)
    places, proven = find_smallest_conflict(region, find_irreducible_conflict(region), programs)
    return Conflict(tuple(limits[j] for j in places), proven)


def find_irreducible_conflict(region: LimitPolytope) -> list[int]:
    """A conflict none of whose limits can be spared: leave out each limit that is not needed."""
    needed = region.culprits()
    if region.feasible(needed):  # rounding
        needed = region.every
    for j in list(needed):
        without = [i for i in needed if i != j]
        if not region.feasible(without):
            needed = without
    return needed


def find_smallest_conflict(
    region: LimitPolytope, known: list[int], patience: int
) -> tuple[list[int], bool]:
    """A conflict with the fewest limits, and True; when out of patience, the known one, and False.

    A *correction* is a set of limits without which the others can be kept. A conflict shares a
    limit with each correction: it could be kept otherwise. So take the smallest set that meets all
    corrections found; no conflict is smaller. If it cannot be kept, it is a conflict. If it can,
    let it grow: what is left out is a new correction (implicit hitting sets; Ignatiev et al. 2015,
    "Smallest MUS extraction with minimal hitting set dualization").
    """
    corrections: list[list[int]] = []
    while patience > 0:
        candidate = find_smallest_hitting_set(corrections, len(region.every))
        if candidate is None:
            break
        if len(candidate) >= len(known):
            return known, True
        kept = extend_feasible_set(region, candidate)
        if kept is None:
            return candidate, True
        corrections.append([j for j in region.every if j not in kept])
        patience -= 2 + len(corrections) // 3  # what the next hitting set costs, about
    return known, False


def extend_feasible_set(region: LimitPolytope, candidate: list[int]) -> list[int] | None:
    """Most of the limits that can be kept together with the candidates; None if those cannot be."""
    p = region.witness(candidate)
    if p is None:
        return None
    nearest = region.nearest(candidate)
    if nearest is None:  # rounding
        nearest = p
    # Half the tolerance: a limit that comes for free must not be the one too many.
    free = region.excess(nearest) <= BOUND_TOLERANCE / 2
    free[candidate] = True
    return np.flatnonzero(free).tolist()


def find_smallest_hitting_set(sets: list[list[int]], size: int) -> list[int] | None:
    """The fewest of 0..size-1 that meet each set; None if that is too hard to find.

    >>> find_smallest_hitting_set([[0, 1], [1, 2], [3]], size=4)
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


REMEDY_DIGITS = 6
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
        return format_limits(self.changes)


def find_single_remedies(
    region: LimitPolytope, limits: Sequence[Limit], conflict: Sequence[Limit]
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
            bounds = None if best is None else _first_feasible_rounding(region, {j: best})
            if bounds is not None:
                change = abs(bounds[j] - region.bounds[j]) / region.units[j]
                found.append((change, j, Remedy((limits[j].at(bounds[j]),))))
    return tuple(remedy for _, _, remedy in sorted(found, key=lambda one: one[:2]))


def find_joint_remedy(region: LimitPolytope, limits: Sequence[Limit]) -> Remedy | None:
    """New bounds for several limits at once, with the least sum of relative changes."""
    p = region.nearest()
    if p is None:
        return None
    broken = [j for j in region.every if region.excess(p)[j] > BOUND_TOLERANCE / 2]
    bounds = _first_feasible_rounding(region, {j: float(region.rows[j] @ p) for j in broken})
    return None if bounds is None else Remedy(tuple(limits[j].at(bounds[j]) for j in broken))


def round_outward(value: float, sign: int, digits: int) -> float:
    """Rounded to so many digits, up for an upper bound (sign -1), down for a lower one.

    A few units of a solver's noise in the tenth digit are not worth a whole one in the sixth.

    >>> round_outward(1.2345678, -1, digits=6), round_outward(1.2345678, +1, digits=6)
    (1.23457, 1.23456)
    >>> round_outward(0.30000000000000004, -1, digits=6)
    0.3
    """
    rounding = ROUND_CEILING if sign == UPPER else ROUND_FLOOR
    clean = Context(prec=9, rounding=ROUND_HALF_EVEN).create_decimal(repr(value))
    return float(Context(prec=digits, rounding=rounding).create_decimal(clean))


def _first_feasible_rounding(
    region: LimitPolytope, best: dict[int, float]
) -> dict[int, float] | None:
    """The first rounding of these bounds with which all limits can be kept."""
    for bounds in _candidate_roundings(region, best):
        if region.moved(bounds).feasible(region.every):
            return bounds
    return None


def _candidate_roundings(
    region: LimitPolytope, best: dict[int, float]
) -> Iterator[dict[int, float]]:
    """Six digits as a rule; fewer, thus further out, where rounding errors ask for it."""
    signs, largest = region.signs, region.rows.max(axis=1, initial=0.0)
    nil = {j: 0.0 for j, value in best.items() if value <= BOUND_TOLERANCE * largest[j]}
    for digits in range(REMEDY_DIGITS, 1, -1):
        bounds = {
            j: round_outward(max(value, 0.0), int(signs[j]), digits) for j, value in best.items()
        }
        yield bounds | nil
        if nil:
            yield bounds


if TYPE_CHECKING:
    from bylot.problem.problem import Problem


def reachable_polytope(problem: "Problem") -> LimitPolytope:
    """The averages of all policies: mixtures of sets of 1 to min(M, K) experts."""
    most = float(min(problem.draws, problem.size))
    return LimitPolytope(0.0, 1.0, most, problem.rows, problem.bounds, problem.signs)


def surrogate_polytope(problem: "Problem") -> LimitPolytope:
    """The paper's stand-in: {q >= gamma, sum q = 1}, at most u / M, at least l."""
    bounds = np.where(problem.signs == UPPER, problem.bounds / problem.draws, problem.bounds)
    return LimitPolytope(problem.floor, 1.0, 1.0, problem.rows, bounds, problem.signs)


def full_panels_polytope(problem: "Problem") -> LimitPolytope:
    """The averages of policies that ask exactly min(M, K) different experts every time."""
    members = float(min(problem.draws, problem.size))
    return LimitPolytope(0.0, members, members, problem.rows, problem.bounds, problem.signs)


def require_feasible(problem: "Problem") -> None:
    """Raise InfeasibleLimits if no policy can keep all limits."""
    if not problem.limits:
        return
    region = reachable_polytope(problem)
    conflict = find_conflict(region, problem.limits)
    if conflict is None:
        return
    remedies = find_single_remedies(region, problem.limits, conflict.limits)
    if not remedies:
        joint = find_joint_remedy(region, problem.limits)
        remedies = () if joint is None else (joint,)
    draws = find_sufficient_draws(region)
    most, count = min(problem.draws, problem.size), len(problem.limits)
    kind = "the smallest" if conflict.smallest else "an irreducible"
    together = f" together ({kind} conflict among {count} limits)"
    raise InfeasibleLimits(
        f"no policy that asks {'1' if most == 1 else f'1 to {most}'} of {problem.size} experts per "
        f"request can keep {{limits}}{together if len(conflict.limits) > 1 else ''}",
        limits=conflict.limits,
        remedies=remedies,
        smallest=conflict.smallest,
        draws=draws,
    )


def find_surrogate_conflict(problem: "Problem") -> Conflict | None:
    """Limits whose surrogates conflict, None if the paper's set of q is not empty.

    An irreducible conflict is enough for a warning: no proof that it is the smallest.
    """
    return (
        find_conflict(surrogate_polytope(problem), problem.limits, patience=0)
        if problem.limits
        else None
    )


def find_full_conflict(problem: "Problem") -> Conflict | None:
    """Limits that cannot be kept together if every panel is full, None if they can."""
    if not problem.limits:
        return None
    return find_conflict(full_panels_polytope(problem), problem.limits, patience=0)


def find_reachable_range(problem: "Problem", limit: Limit) -> tuple[float, float]:
    """The smallest and the largest average that the cost of a limit can have while the *other*
    limits of the problem are kept, whatever the policy.

    >>> from bylot.problem import Problem, at_least, at_most
    >>> budget, quota = at_most("usd", 3.0), at_least("junior", 0.5)
    >>> costs = {"usd": [1.0, 2.0, 4.0], "junior": [1, 0, 0]}
    >>> find_reachable_range(
    ...     Problem(["ann", "bob", "eve"], costs, [budget, quota], draws=2), budget
    ... )
    (1.0, 5.5)
    """
    check_cost_is_known(limit, problem.costs)
    region, row = reachable_polytope(problem), problem.costs[limit.name]
    others = [j for j, other in enumerate(problem.limits) if other.key != limit.key]
    low, high = (region.extreme(row, sign, others) for sign in (UPPER, LOWER))
    if low is None or high is None:
        raise region.undecided()
    return low, high


def find_sufficient_draws(region: LimitPolytope) -> int | None:
    """The least sum of p, rounded up, with which the limits can be kept; None if there is none."""
    anyone = replace(region, most=float(region.size))
    total = anyone.extreme(np.ones(region.size), UPPER, region.every)
    if total is None:
        return None
    draws = ceil(total * (1 - BOUND_TOLERANCE))
    return draws if replace(region, most=float(draws)).feasible(region.every) else None
