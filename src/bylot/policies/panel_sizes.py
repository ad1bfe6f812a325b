"""Panels of `min_draws` to M members: the exploration of `noisy-or`.

Its panels are of one size: the largest that keeps the limits by itself.
"""

import numpy as np

from bylot._text import format_sizes
from bylot.errors import PolicyError
from bylot.limits.records import LimitRule
from bylot.limits.rows import find_slater_point, make_constraint_rows, solve_max_entropy
from bylot.policies.set_distributions import SetTables, make_tables
from bylot.problem import Problem


def find_exploration(problem: Problem, limits: LimitRule, explores: bool) -> tuple[SetTables, int]:
    """Return the maximum-entropy distribution of panels of one size inside the limits, and the
    size. Without exploration it stands for nothing.
    """
    if not explores:
        return make_tables(np.zeros(1), 1), 1
    one_size = problem if problem.min_draws is None else find_problem_of_one_size(problem)
    if one_size is None:
        sizes = format_sizes(problem.min_draws or 1, problem.draws)
        raise PolicyError(
            f"no panels of one size from {sizes} can keep the limits, as exploration must",
            remedy="use explore=0, or loosen the limits",
        )
    members = min(one_size.draws, one_size.size)
    margin = min(limits.margin, find_slater_point(one_size).margin)
    theta, _ = solve_max_entropy(make_constraint_rows(one_size), members, margin)
    return make_tables(theta - np.sort(theta)[-members], members), members


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
