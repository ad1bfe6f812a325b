"""Substitutes: who can take the place of a member that failed, and which of them does."""

import numpy as np

from bylot.limits.records import LimitTables
from bylot.limits.rows import make_constraint_rows, make_largest_cost_rows
from bylot.numerics.jit import Bools, Floats
from bylot.numerics.philox import SUBSTITUTE_STREAM, RngKey, draw_uniforms
from bylot.numerics.sampling import fill_cumulative, find_first_above
from bylot.problem import Problem


def mark_substitutes(problem: Problem, tables: LimitTables | None, failed: int) -> Bools:
    """(K,) the experts whose calls weigh no more than those of the failed one under any limit.

    A_ji <= A_jf in every row A p <= b of the limits: as declared, at the largest costs of calls
    where these are declared, and at the learned means. So no limit gets worse by the exchange, and
    the guard can still keep what it has promised.

    >>> from bylot.problem import at_least, at_most
    >>> costs = {"usd": [2.0, 1.0, 1.0, 3.0], "junior": [1, 1, 0, 1]}
    >>> limits = [at_most("usd", 3.0), at_least("junior", 0.3)]
    >>> mark_substitutes(Problem(["a", "b", "c", "d"], costs, limits, draws=2), None, 0)
    array([ True,  True, False, False])
    """
    declared = make_constraint_rows(problem)
    compared = [declared.A, make_largest_cost_rows(problem, declared)]
    if tables is not None:
        compared.append(tables.state.means)
    rows = np.concatenate(compared)
    return np.asarray((rows <= rows[:, failed : failed + 1]).all(axis=0))


def draw_substitute(q: Floats, candidates: Bools, rng: RngKey, number: int) -> int:
    """Draw one of the candidates from q, or with equal chances if q has none of them.

    number: of earlier exchanges in this decision, each of which has used a random number
    """
    mass, weights = np.empty(q.size), np.where(candidates, q, 0.0)
    if not weights.any():
        weights = candidates.astype(np.float64)
    fill_cumulative(weights, mass)
    u = draw_uniforms(rng, SUBSTITUTE_STREAM, number + 1)[number]
    return int(find_first_above(mass, u * mass[-1]))
