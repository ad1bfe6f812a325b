"""Panels of `min_draws` to M members: the exploration of `noisy-or`, and what panels cost at least.

`distinct`, which draws the panels of exploration rounds, draws them of one size: the largest that
keeps the limits by itself.
"""

import numpy as np

from bylot._text import format_sizes
from bylot.errors import PolicyError
from bylot.limits.guard import bind_guard, check_full_panels
from bylot.limits.pacing import make_pace
from bylot.limits.rows import find_slater_point
from bylot.numerics.jit import Bools, Floats, jit
from bylot.numerics.set_selection import count_available
from bylot.policies.distinct import Distinct, DistinctRule
from bylot.problem import Problem


def bind_explorer(
    problem: Problem, horizon: int | None, settings: Distinct, explores: bool
) -> DistinctRule:
    """The rule of `distinct` for exploration, with the guard and the pace of all panels.

    Where sizes differ, panels may be paced as far as the margin of all sizes allows, unless those
    of one size explore.
    """
    if problem.min_draws is None:
        check_full_panels(problem, "noisy-or")
        return settings.bind(problem, horizon)
    guard, margin = bind_guard(problem, horizon, problem.min_members, settings.guard)
    one_size = find_problem_of_one_size(problem)
    if one_size is None:
        if explores:
            sizes = format_sizes(problem.min_draws, problem.draws)
            what = f"no panels of one size from {sizes} can keep the limits, as exploration must"
            raise PolicyError(what, remedy="use explore=0, or loosen the limits")
        one_size = make_problem_of_size(problem, problem.min_members, limited=False)
    if explores:
        margin = min(margin, find_slater_point(one_size).margin)
    members, full = min(problem.draws, problem.size), problem.min_draws == problem.draws
    rule = Distinct(pace=settings.pace, guard=False).bind(one_size, horizon)
    pace = make_pace(settings.pace, margin, guard.A, members, full)
    return rule._replace(draws=problem.draws, guard=guard, pace=pace)


def find_problem_of_one_size(problem: Problem) -> Problem | None:
    """The problem with the largest number of draws that keep the limits by themselves."""
    for size in range(min(problem.draws, problem.size), problem.min_members - 1, -1):
        one_size = make_problem_of_size(problem, size)
        if one_size.full_conflict is None:
            return one_size
    return None


def make_problem_of_size(problem: Problem, size: int, limited: bool = True) -> Problem:
    """The same problem with so many draws, and no fewer."""
    return Problem.known(
        experts=problem.experts,
        costs=dict(problem.costs),
        limits=problem.limits if limited else (),
        draws=size,
        floor=problem.floor,
        period=problem.period,
    )


@jit
def compute_least_costs(A: Floats, fewest: int, most: int, available: Bools) -> Floats:
    """(d,) what panels of these sizes cost at least, under each row by itself."""
    costs, size = np.zeros(A.shape[0]), min(most, count_available(available))
    for j in range(A.shape[0]):
        ranked = np.sort(A[j][available])
        for n in range(size):
            costs[j] += ranked[n] if n < fewest else min(ranked[n], 0.0)
    return costs
