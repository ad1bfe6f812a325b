"""Feasibility: whether any policy at all can keep the limits, asked before the first decision."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.problem.conflict import Conflict, find_conflict
from bylot.problem.limits import LOWER, UPPER, Limit
from bylot.problem.reading import known_cost
from bylot.problem.region import TOLERANCE, Region
from bylot.problem.remedy import Remedy, joint_change, single_changes

if TYPE_CHECKING:
    from bylot.problem.problem import Problem

SHOWN = 6
"""Remedies that a message spells out; the exception carries all."""


def within_reach(problem: "Problem") -> Region:
    """The averages of all policies: mixtures of sets of 1 to min(M, K) experts."""
    most = float(min(problem.draws, problem.size))
    return Region(0.0, 1.0, most, problem.rows, problem.bounds, problem.signs)


def surrogate(problem: "Problem") -> Region:
    """The paper's stand-in: {q >= gamma, sum q = 1}, at most u / M, at least l."""
    bounds = np.where(problem.signs == UPPER, problem.bounds / problem.draws, problem.bounds)
    return Region(problem.floor, 1.0, 1.0, problem.rows, bounds, problem.signs)


def always_full(problem: "Problem") -> Region:
    """The averages of policies that ask exactly min(M, K) different experts every time."""
    members = float(min(problem.draws, problem.size))
    return Region(0.0, members, members, problem.rows, problem.bounds, problem.signs)


def require_feasible(problem: "Problem") -> None:
    """Raise InfeasibleLimits if no policy can keep all limits."""
    if not problem.limits:
        return
    region = within_reach(problem)
    conflict = find_conflict(region, problem.limits)
    if conflict is None:
        return
    remedies = single_changes(region, problem.limits, conflict.limits)
    if not remedies:
        joint = joint_change(region, problem.limits)
        remedies = () if joint is None else (joint,)
    draws = enough_draws(region)
    message = explain(problem, conflict, remedies, draws)
    raise InfeasibleLimits(message, conflict.limits, remedies, conflict.smallest, draws)


def surrogate_conflict(problem: "Problem") -> Conflict | None:
    """Limits whose surrogates conflict, None if the paper's set of q is not empty.

    An irreducible conflict is enough for a warning: no proof that it is the smallest.
    """
    return find_conflict(surrogate(problem), problem.limits, patience=0) if problem.limits else None


def full_conflict(problem: "Problem") -> Conflict | None:
    """Limits that cannot be kept together if every panel is full, None if they can."""
    if not problem.limits:
        return None
    return find_conflict(always_full(problem), problem.limits, patience=0)


def range_of(problem: "Problem", limit: Limit) -> tuple[float, float]:
    """The smallest and the largest average that the cost of a limit can have while the *other*
    limits of the problem are kept, whatever the policy.

    >>> from bylot.problem import Problem, at_least, at_most
    >>> budget, quota = at_most("usd", 3.0), at_least("junior", 0.5)
    >>> costs = {"usd": [1.0, 2.0, 4.0], "junior": [1, 0, 0]}
    >>> range_of(Problem(["ann", "bob", "eve"], costs, [budget, quota], draws=2), budget)
    (1.0, 5.5)
    """
    known_cost(limit, problem.costs)
    region, row = within_reach(problem), problem.costs[limit.name]
    others = [j for j, other in enumerate(problem.limits) if other.key != limit.key]
    low, high = (region.extreme(row, sign, others) for sign in (UPPER, LOWER))
    if low is None or high is None:
        raise region.undecided()
    return low, high


def enough_draws(region: Region) -> int | None:
    """The least sum of p, rounded up, with which the limits can be kept; None if there is none."""
    anyone = replace(region, most=float(region.size))
    total = anyone.extreme(np.ones(region.size), UPPER, region.every)
    if total is None:
        return None
    draws = ceil(total * (1 - TOLERANCE))
    return draws if replace(region, most=float(draws)).feasible(region.every) else None


def explain(
    problem: "Problem", conflict: Conflict, remedies: Sequence[Remedy], draws: int | None
) -> str:
    """What cannot be kept, and all that would help."""
    return " ".join(
        [
            f"no policy that asks {_team(problem)} experts per request can keep {conflict}"
            f"{_minimality(problem, conflict)}.",
            *_proposal(remedies),
            *([f"Or draw more experts per request: draws={draws}."] if draws else []),
        ]
    )


def _team(problem: "Problem") -> str:
    most = min(problem.draws, problem.size)
    return f"{'1' if most == 1 else f'1 to {most}'} of {problem.size}"


def _minimality(problem: "Problem", conflict: Conflict) -> str:
    if len(conflict.limits) == 1:
        return ""
    if conflict.smallest:
        return f" together (the smallest conflict among {len(problem.limits)} limits)"
    return f" together (an irreducible conflict among {len(problem.limits)} limits)"


def _proposal(remedies: Sequence[Remedy]) -> list[str]:
    if not remedies:
        return []
    if len(remedies[0].changes) > 1:
        return [f"No single change would do, the nearest that do together: {remedies[0]}."]
    if len(remedies) == 1:
        return [f"The nearest bound that would do: {remedies[0]}."]
    more = len(remedies) - SHOWN
    rest = f" or one of {more} more in .remedies" if more > 0 else ""
    return [f"Any one of these would do: {' or '.join(map(str, remedies[:SHOWN]))}{rest}."]
