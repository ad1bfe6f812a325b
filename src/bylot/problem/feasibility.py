"""Feasibility: whether any policy can keep the limits, which of them conflict, and what helps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np

from bylot._text import format_sizes, join_words
from bylot.errors import InfeasibleLimits
from bylot.problem.limits import LOWER, UPPER, Limit, list_contexts
from bylot.problem.polytope import BOUND_TOLERANCE, LimitPolytope
from bylot.problem.window_bounds import mark_totals

if TYPE_CHECKING:
    from bylot.problem.problem import Problem

REMEDY_DIGITS = 6
"""Significant digits of a proposed bound."""

MAX_PROOF_PROGRAMS, PROOF_PROGRAM_SIZE = 500, 5_000
"""Number and size of the linear programs spent on the proof that a conflict is the smallest, about
a second; larger programs are fewer in proportion. Without a proof the conflict is irreducible."""


@dataclass(frozen=True)
class Conflict:
    """Limits that cannot be kept together, although all but any one of them can.

    `smallest` says that no conflict has fewer limits; otherwise the search was cut short.
    """

    limits: tuple[Limit, ...]
    smallest: bool

    def __str__(self) -> str:
        return join_words(map(str, self.limits), "and")


def find_conflict(
    polytope: LimitPolytope, limits: Sequence[Limit], max_programs: int = MAX_PROOF_PROGRAMS
) -> Conflict | None:
    """Find a conflict between limits, None if all can be kept; the smallest, if time allows."""
    if not limits or polytope.can_keep_all():
        return None
    programs = max_programs * PROOF_PROGRAM_SIZE // max(PROOF_PROGRAM_SIZE, polytope.rows.size)
    places, proven = find_smallest_conflict(polytope, find_irreducible_conflict(polytope), programs)
    return Conflict(tuple(limits[j] for j in places), proven)


def find_group_conflict(
    polytope: LimitPolytope, limits: Sequence[Limit], max_programs: int = MAX_PROOF_PROGRAMS
) -> Conflict | None:
    """Find a conflict between limits that count the same requests, None if there is none.

    Whatever the mix of contexts, all limits are kept if those of each context can be kept in it.
    """
    for places in list_counting_limits(limits):
        conflict = find_conflict(polytope.select(places), [limits[j] for j in places], max_programs)
        if conflict is not None:
            return conflict
    return None


def list_counting_limits(limits: Sequence[Limit]) -> list[list[int]]:
    """The places of the limits that count requests of each context, each combination once.

    >>> from bylot.problem.limits import at_most
    >>> list_counting_limits([at_most("usd", 2), at_most("usd", 3, where={"context": ["icu"]})])
    [[0], [0, 1]]
    """
    contexts = [None, *list_contexts(limits)]
    found = (tuple(j for j, limit in enumerate(limits) if limit.counts(x)) for x in contexts)
    return [list(places) for places in dict.fromkeys(found)]


def find_irreducible_conflict(polytope: LimitPolytope) -> list[int]:
    """Find a conflict in which every limit is necessary: drop each limit that is not."""
    needed = polytope.find_culprits()
    if polytope.is_feasible(needed):  # rounding
        needed = polytope.every
    for j in list(needed):
        without = [i for i in needed if i != j]
        if not polytope.is_feasible(without):
            needed = without
    return needed


def find_smallest_conflict(
    polytope: LimitPolytope, known: list[int], max_programs: int
) -> tuple[list[int], bool]:
    """Find a conflict with the fewest limits, and True; out of programs, the known one, and False.

    A *correction* is a set of limits without which the others can be kept, so every conflict
    shares a limit with it. No conflict is smaller than the smallest set that meets all corrections
    found. If that set cannot be kept, it is a conflict. If it can, it grows, and the limits that
    remain are a new correction (implicit hitting sets; Ignatiev et al. 2015, "Smallest MUS
    extraction with minimal hitting set dualization").
    """
    corrections: list[list[int]] = []
    while max_programs > 0:
        candidate = find_smallest_hitting_set(corrections, len(polytope.every))
        if candidate is None:
            break
        if len(candidate) >= len(known):
            return known, True
        p = polytope.find_point(candidate)
        if p is None:
            return candidate, True
        nearest = polytope.find_nearest(candidate)
        # Half the tolerance: a limit that holds by chance must not make the set infeasible.
        broken = polytope.excess(p if nearest is None else nearest) > BOUND_TOLERANCE / 2
        broken[candidate] = False
        corrections.append(np.flatnonzero(broken).tolist())
        max_programs -= 2 + len(corrections) // 3  # about what the next hitting set costs
    return known, False


def find_smallest_hitting_set(sets: list[list[int]], size: int) -> list[int] | None:
    """Find the fewest of 0..size-1 that meet each set; None if the search is too long.

    >>> find_smallest_hitting_set([[0, 1], [1, 2], [3]], size=4)
    [1, 3]
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

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


def find_single_remedies(
    polytope: LimitPolytope, limits: Sequence[Limit], conflict: Sequence[Limit]
) -> tuple[tuple[Limit], ...]:
    """Find for each limit in conflict the nearest sufficient bound; the smallest change first.

    The nearest upper bound is the smallest c_j.p that the *other* limits allow; there is none if
    those conflict themselves.
    """
    found = []
    for j in polytope.every:
        if limits[j] in conflict:
            others = [i for i in polytope.every if i != j]
            best = polytope.find_extreme(polytope.rows[j], int(polytope.signs[j]), others)
            bounds = None if best is None else _first_feasible_rounding(polytope, {j: best})
            if bounds is not None:
                change = abs(bounds[j] - polytope.bounds[j]) / polytope.units[j]
                found.append((change, j, limits[j].at(bounds[j])))
    return tuple((limit,) for _, _, limit in sorted(found, key=lambda one: one[:2]))


def find_joint_remedy(polytope: LimitPolytope, limits: Sequence[Limit]) -> tuple[Limit, ...] | None:
    """Find new bounds for several limits at once, with the least sum of relative changes."""
    p = polytope.find_nearest()
    if p is None:
        return None
    broken = [j for j in polytope.every if polytope.excess(p)[j] > BOUND_TOLERANCE / 2]
    bounds = _first_feasible_rounding(polytope, {j: float(polytope.rows[j] @ p) for j in broken})
    return None if bounds is None else tuple(limits[j].at(bounds[j]) for j in broken)


def round_outward(value: float, sign: int, digits: int) -> float:
    """Round to significant digits: up for an upper bound (sign -1), down for a lower one.

    Solver noise in the tenth digit is removed first.

    >>> round_outward(1.2345678, -1, digits=6), round_outward(1.2345678, +1, digits=6)
    (1.23457, 1.23456)
    >>> round_outward(0.30000000000000004, -1, digits=6)
    0.3
    """
    rounding = ROUND_CEILING if sign == UPPER else ROUND_FLOOR
    clean = Context(prec=9, rounding=ROUND_HALF_EVEN).create_decimal(repr(value))
    return float(Context(prec=digits, rounding=rounding).create_decimal(clean))


def _first_feasible_rounding(
    polytope: LimitPolytope, best: dict[int, float]
) -> dict[int, float] | None:
    """Return bounds of six digits, or of fewer, further out, with which all limits can be kept."""
    largest = polytope.rows.max(axis=1, initial=0.0)
    nil = {j: 0.0 for j, value in best.items() if value <= BOUND_TOLERANCE * largest[j]}
    for digits in range(REMEDY_DIGITS, 1, -1):
        rounded = {
            j: round_outward(max(value, 0.0), int(polytope.signs[j]), digits)
            for j, value in best.items()
        }
        for bounds in (rounded | nil, rounded) if nil else (rounded,):
            if polytope.with_bounds(bounds).is_feasible(polytope.every):
                return bounds
    return None


def reachable_polytope(problem: "Problem") -> LimitPolytope:
    """Return the averages of all policies: mixtures of sets of at most min(M, K) experts.

    A set has at least 1 or, where that is declared, `min_draws` experts.
    """
    return make_panels_polytope(problem, problem.min_members if problem.min_draws else 1)


def surrogate_polytope(problem: "Problem") -> LimitPolytope:
    """Return the paper's surrogate: {q >= gamma, sum q = 1}, at most u / M, at least l."""
    bounds = np.where(problem.signs == UPPER, problem.bounds / problem.draws, problem.bounds)
    return LimitPolytope(problem.floor, 1.0, 1.0, problem.rows, bounds, problem.signs)


def full_panels_polytope(problem: "Problem") -> LimitPolytope:
    """Return the averages of policies that always ask min(M, K) different experts."""
    return make_panels_polytope(problem, min(problem.draws, problem.size))


def make_panels_polytope(problem: "Problem", fewest: int) -> LimitPolytope:
    """Return the mixtures of sets of `fewest` to min(M, K) experts."""
    most = float(min(problem.draws, problem.size))
    return LimitPolytope(0.0, float(fewest), most, problem.rows, problem.bounds, problem.signs)


def require_feasible(problem: "Problem") -> None:
    """Raise InfeasibleLimits if no policy can keep all limits.

    Budgets of the calendar can always be kept, by refusing requests.
    """
    everything = reachable_polytope(problem)
    totals = mark_totals(problem)
    for places in list_counting_limits(problem.limits):
        kept = [j for j in places if not totals[j]]
        require_polytope(problem, everything.select(kept), [problem.limits[j] for j in kept])


def require_polytope(problem: "Problem", polytope: LimitPolytope, limits: Sequence[Limit]) -> None:
    """Raise InfeasibleLimits if these limits cannot be kept together."""
    conflict = find_conflict(polytope, limits)
    if conflict is None:
        return
    single = find_single_remedies(polytope, limits, conflict.limits)
    joint = None if single else find_joint_remedy(polytope, limits)
    together = ""
    if len(conflict.limits) > 1:
        kind = "the smallest" if conflict.smallest else "an irreducible"
        together = f" together ({kind} conflict among {len(problem.limits)} limits)"
    raise InfeasibleLimits(
        f"no policy that asks {format_sizes(int(polytope.fewest), int(polytope.most))} of "
        f"{problem.size} experts per request can keep {{limits}}{together}",
        limits=conflict.limits,
        remedies=single if joint is None else (joint,),
        smallest=conflict.smallest,
        draws=find_sufficient_draws(polytope),
        min_draws=find_sufficient_min_draws(polytope),
    )


def find_average_range(
    problem: "Problem", polytope: LimitPolytope, limit: Limit
) -> tuple[float, float] | None:
    """Find the range of the average of a limit's cost under the *other* limits that count the same
    requests, None if empty.
    """
    others = [
        j
        for j, other in enumerate(problem.limits)
        if other.key != limit.key and other.counted_words == limit.counted_words
    ]
    ends = [polytope.find_extreme(problem.costs[limit.name], s, others) for s in (UPPER, LOWER)]
    return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def find_sufficient_draws(polytope: LimitPolytope) -> int | None:
    """Find the least sum of p, rounded up, that keeps the limits; None if there is none."""
    anyone = replace(polytope, most=float(polytope.size))
    total = anyone.find_extreme(np.ones(polytope.size), UPPER, polytope.every)
    if total is None:
        return None
    draws = ceil(total * (1 - BOUND_TOLERANCE))
    return draws if replace(polytope, most=float(draws)).is_feasible(polytope.every) else None


def find_sufficient_min_draws(polytope: LimitPolytope) -> int | None:
    """Find the largest sum of p, rounded down, that keeps the limits; None if there is none."""
    smaller = replace(polytope, fewest=1.0)
    total = smaller.find_extreme(np.ones(polytope.size), LOWER, polytope.every)
    members = 0 if total is None else floor(total * (1 + BOUND_TOLERANCE))
    if not 1 <= members < polytope.fewest:
        return None
    return members if replace(polytope, fewest=float(members)).is_feasible(polytope.every) else None
