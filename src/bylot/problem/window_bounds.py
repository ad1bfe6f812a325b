"""What budgets of the calendar mean per request, at the traffic that is expected.

A budget per day has no bound per request until one knows how many requests come. The bounds here
are what policies are bound with; what they draw under follows the forecast of each window.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bylot._windows import WINDOW_SIZES
from bylot.errors import ProblemError
from bylot.numerics.jit import Bools, Floats
from bylot.problem.limits import UPPER, Limit
from bylot.problem.polytope import LimitPolytope

if TYPE_CHECKING:
    from bylot.problem.problem import Problem

DAYS_PER_WINDOW = {str(name): float(size.mean_days) for name, size in WINDOW_SIZES.items()}
"""Days of an average window."""

LEAST_ROOM = 0.05  # of what the cheapest panels cost, which a bound is above
UNKNOWN_TRAFFIC_SHARE = 0.25  # of the way from the cheapest panels to random ones


def mark_totals(problem: "Problem") -> Bools:
    """(d,) which limits are budgets of a window."""
    return np.array([limit.is_total for limit in problem.limits], np.bool_)


def compute_request_bounds(problem: "Problem", one_tenant: bool = False) -> Floats:
    """(d,) the bound of each limit per request: of a budget, its part at the expected traffic.

    It is at least what the cheapest panels cost that keep the other limits, and a little more: the
    budget of a window that is too small for its requests is kept by refusing some. Without an
    expected traffic, as of one tenant or of some contexts, it is between the cheapest panels and
    random ones.

    one_tenant: all requests are of one tenant, whose traffic is that of the problem
    """
    bounds = np.array([limit.bound for limit in problem.limits], dtype=np.float64)
    totals = mark_totals(problem)
    if not totals.any():
        return bounds
    least = find_least_costs(problem, totals, bounds)
    random = min(problem.draws, problem.size) * problem.rows.mean(axis=1)
    for j in np.flatnonzero(totals).tolist():
        limit = problem.limits[j]
        floor = (1.0 + LEAST_ROOM) * least[j]
        counted = replace(limit, scope=None) if one_tenant else limit
        requests = count_window_requests(counted, problem.traffic)
        if requests is None:
            fair = least[j] + UNKNOWN_TRAFFIC_SHARE * max(random[j] - least[j], 0.0)
        else:
            fair = limit.bound / requests
        bounds[j] = max(fair, floor)
    return bounds


def count_window_requests(limit: Limit, traffic: float | None) -> float | None:
    """The requests of an average window of a budget, at least one; None: unknown, or no budget.
    Of one tenant, or of some contexts, they are not known.

    >>> from bylot.problem.limits import at_most
    >>> count_window_requests(at_most("usd", 500, per="week"), 2_000)
    14000.0
    """
    if traffic is None or limit.per is None or not limit.is_total or limit.scope or limit.where:
        return None
    return max(traffic * DAYS_PER_WINDOW[limit.per], 1.0)


def restate_per_request(problem: "Problem") -> "Problem":
    """The problem with limits on averages over all requests, at its traffic, for optima.

    A cost may be limited in several kinds of windows, so each has a cost of its own. All requests
    are of one tenant. A budget has no bound per request while the traffic is not known.
    """
    require_known_optimum(problem)
    if not problem.calendars:
        return problem
    totals = [limit for limit in problem.limits if limit.is_total]
    if totals and problem.traffic is None:
        raise ProblemError(
            f"{totals[0].words} has no bound per request while the traffic is not known",
            remedy="give the requests per day: traffic=2000 in Python, traffic: 2000 in the "
            "problem file, or --traffic 2000",
        )
    costs = dict(problem.costs)
    limits = list(problem.limits)
    bounds = compute_request_bounds(problem, one_tenant=True)
    for j, limit in enumerate(problem.limits):
        if limit.per is not None:
            costs[limit.words] = problem.rows[j]
            limits[j] = Limit(limit.words, float(bounds[j]), limit.sign)
    return problem.replace(costs=costs, limits=limits)


def require_known_optimum(problem: "Problem") -> None:
    """Refuse limits whose optimum is not known."""
    if not has_known_optimum(problem):
        raise ProblemError(
            "the optimum of limits on some contexts is not known",
            remedy="leave `where` out to compare",
        )


def has_known_optimum(problem: "Problem") -> bool:
    """Return whether optima are known: they are not under limits on some contexts."""
    return not problem.has_groups


def find_least_costs(problem: "Problem", totals: Bools, bounds: Floats) -> Floats:
    """(d,) what panels cost that keep the other limits and are the cheapest under all budgets.

    Budgets are weighed by the largest cost of each. Panels of M experts are tried first.
    """
    K = problem.size
    others = np.flatnonzero(~totals)
    rows = problem.rows
    most = min(problem.draws, problem.size)
    scaled = (rows[totals] / problem.peaks[totals, None]).sum(axis=0)
    for fewest in dict.fromkeys((most, problem.min_members, 1)):
        polytope = LimitPolytope(
            0.0, float(fewest), float(most), rows[others], bounds[others], problem.signs[others]
        )
        p = polytope.find_extreme_point(scaled, UPPER, polytope.every)
        if p is not None:
            return np.asarray(rows @ p)
    return np.asarray(rows @ np.full(K, most / K))  # the limits conflict, which is found elsewhere
