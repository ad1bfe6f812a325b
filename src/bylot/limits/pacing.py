"""Pacing: the bounds in force, by which a budget is spent evenly over its period or window."""

import math
from typing import NamedTuple

import numpy as np

from bylot.limits.budget import Budget, Guard, get_schedule
from bylot.limits.costs import (
    RESERVE_SIGMAS,
    compute_open_cost,
    compute_reserve,
    is_uncertain,
    is_varying,
)
from bylot.limits.windows import (
    MEAN,
    MEAN_ROUNDS,
    PERIOD,
    TOTAL,
    fill_requests_left,
    find_level,
    forecast_windows,
)
from bylot.numerics.embedded import jit_apart
from bylot.numerics.jit import Floats, jit

LEAD, MAX_LEAD = 0.5, 0.02  # of the largest excess, in rounds; of a period, at most
DEFAULT_PACE = 1.25  # by which a limit may be loosened after cheap rounds; 1: not at all


class Pace(NamedTuple):
    """How far bounds in force may differ from the limits."""

    high: float  # factor; 0: bounds do not move
    margin: float  # of Slater; half of it is kept, so that rows stay feasible
    most: Floats  # (d,) kappa, by which the costs of two rounds can differ


def make_pace(pace: float | None, margin: float, A: Floats, members: int, full: bool) -> Pace:
    """The pace for panels of so many members, or at most so many. What every expert costs is in all
    full panels and needs no reserve.

    >>> make_pace(1.25, 0.1, np.array([[1000.0, 1001.0]]), members=2, full=True).most
    array([2.])
    """
    dearest = np.ptp(A, axis=1) if full else np.abs(A).max(axis=1)
    return Pace(0.0 if pace is None else float(pace), margin, members * dearest)


@jit_apart
def fill_paced_bounds(bounds: Floats, guard: Guard, budget: Budget, pace: Pace) -> None:
    """Write b'_j = (P b_j - kappa_j - spent_j) / n, clipped to b_j - margin/2 |b_j| and
    b_j + (high - 1) |b_j|, with n of P rounds left. Calls without a report count at their
    learned means, with a reserve. A minimum that this period has reached already no longer binds.

    Of the budget of a window: (amount - spent) / n with n requests to come by the forecast. An
    average in a window, whose end nobody knows in requests, is kept inside all the time.
    """
    known = np.empty(bounds.size)
    if budget.windows.place.size > 0:
        forecast_windows(guard.windows, budget.windows)
        budget.windows.begun[0] = False
    for j in range(bounds.size):
        known[j] = compute_known_cost(guard, budget, j)
    for j in range(bounds.size):
        bounds[j] = compute_paced_bound(guard, budget, pace, j, known)


@jit_apart
def fill_tenant_bounds(bounds: Floats, guard: Guard, budget: Budget, pace: Pace) -> None:
    """Write the bounds in force of the limits for each tenant, for the tenant of this request."""
    known = np.zeros(bounds.size)  # of other limits: nothing, as none is inside a tenant's
    for j in range(bounds.size):
        if guard.windows.scoped[j]:
            known[j] = compute_known_cost(guard, budget, j)
            fill_requests_left(guard.windows, budget.windows, j)
            bounds[j] = compute_paced_bound(guard, budget, pace, j, known)


@jit
def compute_known_cost(guard: Guard, budget: Budget, j: int) -> float:
    """Return what was spent under a limit, what open calls are expected to cost, and a reserve.

    Calls of single tenants are not counted by expert, so they count at their largest costs.
    """
    spent, costs = budget.spent[j], budget.costs
    if guard.windows.scoped[j] and guard.risk.certain[j]:
        spent += costs.open[j]
    elif is_varying(guard.risk, costs, j):
        spent += compute_open_cost(costs, j, costs.means[j], guard.A[j])
    if is_uncertain(guard.risk, costs, j):
        quota, no_members = get_schedule(guard, budget).quota, np.empty(0, np.int64)
        spent += compute_reserve(guard.risk, costs, j, 0, quota, no_members)
    return float(spent)


@jit
def compute_paced_bound(guard: Guard, budget: Budget, pace: Pace, j: int, known: Floats) -> float:
    """The bound in force of one limit; known: (d,) what was spent under each.

    Where costs are learned and the guard is on, two things are added.

    - The noise of costs leaves a part unspent. So b'_j may be higher, by 3 standard errors of the
      mean cost of n panels.
    - The guard reserves the largest excess of a call over its mean, e times the largest call. In
      about the last e rounds it therefore asks cheaper panels, which save the part `margin` of b_j.
      Pacing spends half of that earlier: b'_j n / (n - margin e / 2).
    """
    P, n, b, kind = guard.period, budget.left[0], guard.b[j], guard.windows.kind[j]
    windows, spent = budget.windows, known[j]
    if kind == TOTAL:
        return float(max(find_level(guard.windows, windows, known, j), guard.windows.low[j]))
    if pace.high <= 0.0:
        return float(b)
    fair = (P * b - pace.most[j] - spent) / n
    if kind == MEAN:
        to_come = windows.left[j] if guard.windows.calendar[j] >= 0 else P - windows.requests[j]
        rounds = min(max(to_come, 1.0), MEAN_ROUNDS)
        fair = b + (windows.requests[j] * b - pace.most[j] - spent) / rounds
    margin = pace.margin
    if budget.costs.plans[2] > 0:
        margin = min(margin, max(budget.costs.margin[0], 0.0))
    if kind == PERIOD and b < 0.0 and pace.high > 1.0 and spent <= P * b:
        return 0.0
    low, high = b - 0.5 * margin * abs(b), b + (pace.high - 1.0) * abs(b)
    learned = guard.on and is_uncertain(guard.risk, budget.costs, j)
    if learned and kind == PERIOD and pace.high > 1.0:
        high += RESERVE_SIGMAS * math.sqrt(budget.costs.noise[j, 0] / n)
        lead = min(LEAD * margin * budget.costs.peak[j], MAX_LEAD * P) if b > 0.0 else 0.0
        fair *= n / max(n - lead, 1.0)
    return float(min(max(fair, low), high))


@jit
def loosen_bounds(guard: Guard, bounds: Floats) -> Floats:
    """(d,) the looser of the bounds in force and the limits.

    Mirror ascent projects its logits onto these, and only what it plays onto the bounds in force:
    otherwise the tight bounds of the last rounds of a period would move logits for the next one.
    """
    loose = np.empty(bounds.size)
    for j in range(bounds.size):
        loose[j] = max(bounds[j], guard.b[j])
    return loose
