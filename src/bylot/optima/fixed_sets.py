"""The best fixed set of experts: what asking the same panel in every request could earn."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, LinearConstraint, milp

from bylot.numerics.jit import Floats
from bylot.optima.iid_optimum import stack_values
from bylot.optima.objective import ValueStack
from bylot.optima.set_search import SET_COST_SLACK, Members, SetSearch, SetValues
from bylot.problem import Problem

MAX_BRANCHING_WORK = 10**9  # operations of branch and bound, some seconds


@dataclass(frozen=True, eq=False)
class BestSet:
    """The same panel in every request: its members, reward and cost.

    Attributes
    ----------
    members
        Names in the order of the problem; empty if no set keeps the upper limits.
    value
        Mean over rounds of r_t(members).
    cost
        (d,) cost of the set under each limit, in every request.
    feasible
        Whether the set keeps all limits. If not, no fixed set does, though a mixture of panels
        may: minimum shares of more groups than M experts cover exclude every set. This is then
        the best set under the upper limits alone, and no benchmark.
    proved
        Whether no set is better. If False, it is the best that greedy search and swaps found.
    """

    members: tuple[str, ...]
    value: float
    cost: Floats
    feasible: bool
    proved: bool


def best_set(problem: Problem, values: ArrayLike | ValueStack) -> BestSet:
    """Find the set A of at most M experts that maximises mean_t r_t(A) within the limits.

    Parameters
    ----------
    problem
        Experts, costs, limits and the number of draws M.
    values
        Array (T, N, K) or (N, K), or a `ValueStack`, as for `optimum`.

    Returns
    -------
    BestSet
        The set; `.feasible` and `.proved` say what is known about it.

    Examples
    --------
    >>> from bylot.problem import at_most
    >>> trio = Problem(["a", "b", "c"], {"usd": [1, 1, 2]}, [at_most("usd", 2)], draws=2)
    >>> best = best_set(trio, [[0.5, 0.0, 0.9], [0.0, 0.5, 0.0]])
    >>> best.members, best.value, best.feasible
    (('a', 'b'), 1.0, True)
    """
    sets = SetValues.of(stack_values(problem, values), problem.draws, fewer=True)
    rows, bounds = problem.rows / problem.peaks[:, None], problem.bounds / problem.peaks
    upper = problem.signs < 0
    search = SetSearch(sets, np.zeros(problem.size), rows, bounds, upper)
    found, feasible = search_fixed_set(search), True
    if found is None:
        search = search._replace(rows=rows[upper], bounds=bounds[upper], upper=upper[upper])
        found, feasible = search_fixed_set(search) or ((), True), False
    members, proved = found
    chosen = sorted(members)
    return BestSet(
        members=tuple(problem.experts[i] for i in chosen),
        value=sets.value(members),
        cost=problem.rows[:, chosen].sum(axis=1),
        feasible=feasible,
        proved=proved,
    )


def search_fixed_set(search: SetSearch) -> tuple[Members, bool] | None:
    """The best set within the limits and whether that is proved; None if there is none."""
    seed = find_feasible_set(search)
    if seed is None:
        return None
    starts = [search.improve(search.greedy(start)) for start in ((), seed)]
    first = max(starts, key=search.merit)
    best, ceiling = search.branch(first, MAX_BRANCHING_WORK // search.sets.worth.size)
    kept, value = search.merit(best)
    return (best, ceiling <= value + 1e-12 * abs(value)) if kept else None


def find_feasible_set(search: SetSearch) -> Members | None:
    """A set within all limits with a large sum of single rewards; None if there is none."""
    K = len(search.sets.worth)
    low = np.where(search.upper, -np.inf, search.bounds - SET_COST_SLACK)
    high = np.where(search.upper, search.bounds + SET_COST_SLACK, np.inf)
    limits = [LinearConstraint(np.ones((1, K)), 1, search.sets.most)]
    if len(search.rows):
        limits.append(LinearConstraint(search.rows, low, high))
    alone = -search.sets.worth.sum(axis=1)
    best = milp(alone, constraints=limits, integrality=np.ones(K, np.int64), bounds=Bounds(0, 1))
    return None if best.x is None else tuple(np.flatnonzero(best.x > 0.5).tolist())
