"""Pacing: the bounds in force, by which a budget is spent evenly over its period or window."""

import math

import numpy as np

from bylot.limits.costs import (
    RESERVE_SIGMAS,
    compute_open_cost,
    compute_reserve,
    is_uncertain,
    is_varying,
)
from bylot.limits.records import Limits, get_ledger
from bylot.limits.windows import (
    MEAN_ROUNDS,
    fill_requests_to_come,
    find_level,
    forecast_windows,
)
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Floats, jit

LEAD = 0.5  # of the largest excess, in rounds
MAX_LEAD = 0.02  # of a period
DEFAULT_PACE = 1.25  # by which a limit may be loosened after cheap rounds; 1: not at all


def compute_kappa(A: Floats, members: int, full: bool) -> Floats:
    """Return (d,) by how much the costs of two panels of at most so many members can differ.

    What every expert costs is in all full panels and needs no reserve.

    >>> compute_kappa(np.array([[1000.0, 1001.0]]), members=2, full=True)
    array([2.])
    """
    dearest = np.ptp(A, axis=1) if full else np.abs(A).max(axis=1)
    return np.asarray(members * dearest)


def compute_cheapest_panel(A: Floats, fewest: int, most: int) -> Floats:
    """Return (d,) what a panel of `fewest` to `most` members costs at least, under each row.

    >>> compute_cheapest_panel(np.array([[3.0, 1.0], [-3.0, -1.0]]), fewest=1, most=2)
    array([ 1., -4.])
    """
    sums = np.sort(A, axis=1)[:, :most].cumsum(axis=1)
    return np.asarray(sums[:, fewest - 1 :].min(axis=1))


@jit_apart
def fill_paced_bounds(limits: Limits) -> None:
    """Write b'_j = (P b_j - range_j - spent_j) / n, clipped to b_j - margin/2 |b_j| and
    b_j + (high - 1) |b_j|, with n of P rounds left. Calls without a report count at their
    learned means, with a reserve. A minimum that this period has reached already no longer binds.

    Of the budget of a window: (amount - spent) / n with n requests to come by the forecast. An
    average in a window, whose end nobody knows in requests, is kept inside all the time.
    """
    known = np.empty(limits.rows.size)
    if limits.windows.size > 0:
        forecast_windows(limits)
        limits.clock[0].begun = False
    for j in range(known.size):
        known[j] = compute_known_cost(limits, j)
    for j in range(known.size):
        limits.bounds[j] = compute_paced_bound(limits, j, known)


@jit_apart
def fill_key_bounds(limits: Limits) -> None:
    """Write the bounds in force of the limits for each key, for the keys of this request."""
    known = np.zeros(limits.rows.size)  # of other limits: nothing, as none is inside that of a key
    for j in range(known.size):
        if limits.rows[j].column >= 0:
            known[j] = compute_known_cost(limits, j)
            fill_requests_to_come(limits, j)
            limits.bounds[j] = compute_paced_bound(limits, j, known)


@jit
def compute_known_cost(limits: Limits, j: int) -> float:
    """Return what was spent under a limit, what open calls are expected to cost, and a reserve.

    Calls of single keys are not counted by expert, so they count at their largest costs.
    """
    row = limits.rows[j]
    ledger = get_ledger(limits, j)
    spent = ledger.spent
    if row.column >= 0 and row.certain:
        spent += ledger.reserved
    elif is_varying(limits, j):
        spent += compute_open_cost(limits, j, limits.means[j], limits.A[j])
    if is_uncertain(limits, j):
        spent += compute_reserve(limits, j, 0, limits.quota, np.empty(0, np.int64))
    return float(spent)


@jit
def compute_paced_bound(limits: Limits, j: int, known: Floats) -> float:
    """Return the bound in force of one limit.

    Where costs are learned and the guard is on, two things are added.

    - The noise of costs leaves a part unspent. So b'_j may be higher, by 3 standard errors of the
      mean cost of n panels.
    - The guard reserves the largest excess of a call over its mean, e times the largest call. In
      about the last e rounds it therefore asks cheaper panels, which save the part `margin` of b_j.
      Pacing spends half of that earlier: b'_j n / (n - margin e / 2).

    known: (d,) what was spent under each limit
    """
    row = limits.rows[j]
    clock = limits.clock[0]
    P = limits.period
    n = clock.left
    b = row.bound
    spent = known[j]
    if row.total:
        return float(max(find_level(limits, known, j), row.low))
    if limits.high <= 0.0:
        return float(b)
    kept = compute_cost_range(limits, j)
    fair = (P * b - kept - spent) / n
    if not row.planned:
        ledger = get_ledger(limits, j)
        to_come = ledger.to_come if row.window >= 0 else P - ledger.requests
        rounds = min(max(to_come, 1.0), MEAN_ROUNDS)
        fair = b + (ledger.requests * b - kept - spent) / rounds
    margin = limits.margin
    if clock.plans > 0:
        margin = min(margin, max(clock.margin, 0.0))
    if row.planned and b < 0.0 and limits.high > 1.0 and spent <= P * b:
        return 0.0
    low = b - 0.5 * margin * abs(b)
    high = b + (limits.high - 1.0) * abs(b)
    learned = limits.on and is_uncertain(limits, j)
    if learned and row.planned and limits.high > 1.0:
        high += RESERVE_SIGMAS * math.sqrt(limits.learned[j].noise / n)
        lead = 0.0
        if b > 0.0:
            lead = min(LEAD * margin * limits.learned[j].peak, MAX_LEAD * P)
        fair *= n / max(n - lead, 1.0)
    return float(min(max(fair, low), high))


@jit_embedded
def compute_cost_range(limits: Limits, j: int) -> float:
    """Return by how much the costs of two panels can differ, of which pacing keeps one aside.

    With a guard, which lets no panel exceed the limit, it is that of panels in use: an expert that
    is too dear to be asked ties up nothing. Without one it is that of all panels.
    """
    if not limits.on:
        return float(limits.rows[j].kappa)
    return float(limits.learned[j].dearest - limits.rows[j].cheapest)


@jit
def loosen_bounds(limits: Limits) -> Floats:
    """Return (d,) the looser of the bounds in force and the limits, for requests of all contexts.

    Mirror ascent projects its logits onto these, and only what it plays onto the bounds in force:
    otherwise the tight bounds of the last rounds of a period would move logits for the next one.
    A limit of some contexts binds only these.
    """
    loose = np.empty(limits.rows.size)
    for j in range(loose.size):
        row = limits.rows[j]
        loose[j] = max(limits.bounds[j], row.bound) if row.column < 0 else row.bound
        if row.filtered:
            loose[j] = max(loose[j], find_dearest_cost(limits, j))
    return loose


@jit
def find_dearest_cost(limits: Limits, j: int) -> float:
    """Return a bound that no panel exceeds."""
    dearest = 0.0
    for i in range(limits.means.shape[1]):
        dearest = max(dearest, limits.means[j, i])
    return float(limits.most * dearest + 1.0)


@jit
def get_context_bounds(limits: Limits, context: int) -> Floats:
    """Return (d,) the bounds in force for requests of a context, whoever sends them."""
    bounds: Floats = limits.bounds
    if limits.columns == 0 and limits.counts.shape[0] == 0:
        return bounds
    bounds = np.empty(limits.rows.size)
    for j in range(bounds.size):
        row = limits.rows[j]
        bounds[j] = limits.bounds[j] if row.column < 0 else row.bound
        if row.filtered and not limits.counts[context, j]:
            bounds[j] = find_dearest_cost(limits, j)
    return bounds


@jit
def get_request_bounds(limits: Limits) -> Floats:
    """Return (d,) the bounds in force for this request, very loose where it does not count."""
    bounds: Floats = limits.bounds
    if limits.columns == 0 and limits.counts.shape[0] == 0:
        return bounds
    bounds = np.empty(limits.rows.size)
    for j in range(bounds.size):
        bounds[j] = limits.bounds[j] if limits.place[j] >= 0 else find_dearest_cost(limits, j)
    return bounds
