"""Limits as rows A p <= b: their units, the slack they leave, and max entropy within them."""

from typing import NamedTuple

import numpy as np

from bylot.numerics.jit import Floats
from bylot.numerics.kl_projection import kl_project
from bylot.numerics.result_cache import recall_result
from bylot.problem import Problem


class ConstraintRows(NamedTuple):
    """A (d, K) and b (d,): costs in units of their own, negated for a minimum."""

    A: Floats
    b: Floats


def make_constraint_rows(problem: Problem) -> ConstraintRows:
    """The limits of a problem as rows that do not depend on the units of costs.

    >>> from bylot.problem import at_least, at_most
    >>> costs = {"usd": [2.0, 4.0], "junior": [0, 1]}
    >>> limits = [at_most("usd", 3.0), at_least("junior", 0.3)]
    >>> rows = make_constraint_rows(Problem(["a", "b"], costs, limits, draws=1))
    >>> rows.A.tolist(), rows.b.tolist()
    ([[0.6666666666666666, 1.3333333333333333], [-0.0, -3.3333333333333335]], [1.0, -1.0])
    """
    turn = -problem.signs / compute_row_units(problem)
    return ConstraintRows(problem.rows * turn[:, None], problem.bounds * turn)


def compute_row_units(problem: Problem) -> Floats:
    """The unit of each row: the bound, or the largest cost if that is less or the bound is 0.

    With the largest cost alone, a budget of 0.001 beside a price of 100 would be rounding error.
    """
    bounded = (problem.bounds > 0) & (problem.bounds < problem.peaks)
    return np.where(bounded, problem.bounds, problem.peaks)


def make_largest_cost_rows(problem: Problem, rows: ConstraintRows) -> Floats:
    """(d, K) the most that a call can cost; infinite where it is not declared, and for minima."""
    caps, units = np.full(rows.A.shape, np.inf), compute_row_units(problem)
    for j, limit in enumerate(problem.limits):
        if limit.sign < 0 and limit.name in problem.max_costs:
            caps[j] = problem.max_costs[limit.name] / units[j]
    return caps


class SlaterPoint(NamedTuple):
    """delta, and inclusion probabilities that satisfy all limits tightened by the factor delta.

    They are a vertex of a polytope: all but d + 1 of them are 0 or 1.
    """

    margin: float
    quota: Floats  # (K,), of sum min(M, K), or less where panels may have fewer members


def find_slater_point(
    problem: Problem, fewest: int | None = None, rows: ConstraintRows | None = None
) -> SlaterPoint:
    """The largest delta with C_j p <= (1 - delta) u_j and C_j p >= (1 + delta) l_j for all limits.

    sum p = min(M, K), or anything from `fewest` to that. rows: of other costs, if given.

    >>> from bylot.problem import at_most
    >>> pair = Problem(["a", "b"], {"usd": [0.0, 1.0]}, [at_most("usd", 2.0)], draws=2)
    >>> find_slater_point(pair)
    SlaterPoint(margin=0.5, quota=array([1., 1.]))
    >>> find_slater_point(pair, fewest=1)
    SlaterPoint(margin=1.0, quota=array([1., 0.]))
    """
    A, b = make_constraint_rows(problem) if rows is None else rows
    K, members = problem.size, min(problem.draws, problem.size)
    empty = 0.0 if fewest is None else float(members - fewest)
    x = recall_result(
        "slater", (A, b, members, empty), lambda: solve_slater_program(A, b, members, empty)
    )
    if x is None:  # HiGHS misses an interior thinner than its tolerance
        return SlaterPoint(0.0, np.full(K, members / K))
    return SlaterPoint(float(x[-1]), np.clip(x[:K], 0.0, 1.0))


def solve_slater_program(A: Floats, b: Floats, members: int, empty: float) -> Floats | None:
    """The shares p, of the empty places, and delta; None if there are none."""
    from scipy.optimize import linprog  # it takes longer to load than all else a router needs

    K = A.shape[1]
    found = linprog(  # over p, empty places, and delta
        np.append(np.zeros(K + 1), -1.0),
        A_ub=np.column_stack([A, np.zeros(len(b)), np.abs(b)]) if len(b) else None,
        b_ub=b if len(b) else None,
        A_eq=np.append(np.ones(K + 1), 0.0)[None],
        b_eq=[float(members)],
        bounds=[*[(0.0, 1.0)] * K, (0.0, empty), (0.0, 1.0)],
        method="highs-ds",  # a vertex, not a point inside a face
    )
    return found.x


MIN_ROW_SLACK = 1e-6  # of a limit, in units of its row


def compute_price_units(problem: Problem) -> Floats:
    """The amount of each limit that a price is for, chosen so that a price of 1 is high for any.

    The slack of a maximum above the cheapest panel, or of the most expensive panel above a minimum:
    a reward is at most 1, so all of it is worth at most 1, and by concavity so is the last unit.
    What all experts have in common every full panel pays. At most what two experts differ by, or
    one costs where a panel may do without it, as most minima are small shares.
    """
    rows, members, fewest = (
        np.sort(problem.rows),
        min(problem.draws, problem.size),
        problem.min_members,
    )
    below = problem.bounds - rows[:, :fewest].sum(axis=1)
    above = rows[:, -members:].sum(axis=1) - problem.bounds
    single = np.ptp(rows, axis=1) if fewest == members else rows[:, -1]
    slack = np.minimum(np.where(problem.signs > 0, above, below), single)
    return np.asarray(np.maximum(slack, MIN_ROW_SLACK * compute_row_units(problem)))


BOUND_TIGHTENING = 0.05  # of every bound, unless the Slater margin is less than twice that


def solve_max_entropy(rows: ConstraintRows, members: int, margin: float) -> tuple[Floats, Floats]:
    """Logits and inclusion probabilities of panels of `members` experts, as near to equal as limits
    A p <= b allow, tightened a little: equal shares would exhaust a tight budget.
    """
    K = rows.A.shape[1]
    theta, inclusion, multipliers = np.zeros(K), np.empty(K), np.zeros(rows.b.size)
    b = rows.b - min(BOUND_TIGHTENING, margin / 2) * np.abs(rows.b)
    A = np.ascontiguousarray(rows.A)
    kl_project(theta, inclusion, multipliers, np.zeros(K), A, b, members, 0.0, np.zeros(K))
    return theta, inclusion
