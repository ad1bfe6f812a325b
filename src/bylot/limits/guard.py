"""The guard: a panel is played only if the rest of the period can still satisfy every limit.

The rest is the cost of the fallback schedule from its next place on. That is known exactly if calls
cost what is declared; else it is that of the largest costs, or of learned means with a reserve.
"""

import numpy as np

from bylot.limits.costs import get_guarded_row, has_varying_cost
from bylot.limits.ledger import (
    book_round,
    compute_allowance,
    compute_later_cost,
    fill_guarded_cost,
    find_future_places,
)
from bylot.limits.panel_replacement import (
    AdmittedPanel,
    compute_overrun,
    fill_panel_cost,
    find_fitting_panel,
    is_inside,
    replace_panel,
)
from bylot.limits.records import Limits, find_amount, get_ledger
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.scratch_arrays import scratch_floats
from bylot.numerics.set_selection import choose_top_m, count_available

LIMIT_TOLERANCE = 1e-9  # excess of an expected cost that counts as 0


@jit_embedded
def guard_panel(limits: Limits, members: Ints, available: Bools) -> AdmittedPanel:
    """Admit a panel, or replace it (`replace_panel`); either is charged.

    The schedule misses nothing, unless experts were unavailable in this period, calls cost more
    than was counted on, or windows of the calendar leave less. Then the panel that misses least is
    played: the proposed one, the schedule's, the cheapest, or one that fits what windows leave.
    Where costs vary, `lower_panel` is tried first.
    """
    place = limits.clock[0].place
    varies = has_varying_cost(limits)
    cost = scratch_floats(limits.rows.size)
    counted = scratch_floats(limits.rows.size)
    fill_panel_cost(cost, limits.A, members)
    if varies:
        fill_guarded_cost(counted, limits, members)
    overrun = compute_overrun(limits, members, counted if varies else cost, place)
    if not limits.on or (is_inside(overrun) and overrun.aside <= 0.0):
        book_round(limits, members, cost)
        return AdmittedPanel(members, False, is_inside(overrun))
    return replace_panel(limits, members, available, varies, overrun)


@jit_apart
def find_spent_limit(limits: Limits, at: int, available: Bools) -> int:
    """Return the budget of a window that leaves no panel at this instant, by its place; -1: none.

    The ledgers of this request are known (`find_places`). Nothing changes, not even the window:
    requests that are refused leave no trace in a log.
    """
    near = False
    before = limits.place.copy()
    find_future_places(limits, at)
    for j in range(limits.rows.size):
        if limits.rows[j].total and limits.place[j] >= 0:
            near |= find_room(limits, j) < limits.most * get_guarded_row(limits, j).max()
    found = choose_spent_limit(limits, available) if near and limits.on else -1
    limits.place[:] = before
    return found


@jit
def find_room(limits: Limits, j: int) -> float:
    """Return what the budget of a window leaves for panels."""
    later = compute_later_cost(limits, j, 0, 0, np.empty(0, np.int64))
    return float(find_amount(limits, j) - get_ledger(limits, j).spent - later)


@jit_apart
def choose_spent_limit(limits: Limits, available: Bools) -> int:
    """Return the budget to blame if no panel fits, and -1 if one does.

    Of the budgets too small for their cheapest panel it is that of the longest windows. If each
    would do by itself, it is the one with the least room.
    """
    if find_fitting_panel(limits, available).size > 0:
        return -1
    found = -1
    longest = 0.0
    least = np.inf
    tightest = -1
    members = limits.fewest
    some = count_available(available) if available.size > 0 else limits.A.shape[1]
    for j in range(limits.rows.size):
        if limits.rows[j].fewer:
            members = 1
    for j in range(limits.rows.size):
        if not limits.rows[j].total or limits.place[j] < 0:
            continue
        row = get_guarded_row(limits, j)
        cheapest = row[choose_top_m(-row, min(members, some), available)].sum()
        room = find_room(limits, j)
        length = limits.rows[j].length
        if room < cheapest and length >= longest:
            found = j
            longest = length
        part = room / max(find_amount(limits, j), 1e-300)
        if part < least:
            tightest = j
            least = part
    return found if found >= 0 else tightest


@jit
def is_outside_bounds(costs: Floats, bounds: Floats) -> bool:
    """Return whether any of the expected costs is beyond its bound."""
    some = False
    for j in range(bounds.size):
        some |= costs[j] > bounds[j] + LIMIT_TOLERANCE
    return some


@jit_apart
def forecast_shortfall(limits: Limits, costs: Floats) -> None:
    """Mark the limits that panels of such costs would miss: above the bound in force and what is
    left.
    """
    some = False
    for j in range(costs.size):
        row = limits.rows[j]
        ledger = get_ledger(limits, j)
        needed = np.inf  # a total is kept by refusing requests
        if row.planned:
            most = compute_allowance(limits.period, row.bound)
            needed = (most - ledger.spent) / limits.clock[0].left
        elif not row.total:
            needed = (ledger.requests + 1) * row.bound - ledger.spent
        short = costs[j] > max(limits.bounds[j], needed) + LIMIT_TOLERANCE
        limits.learned[j].short = short and limits.place[j] >= 0
        some |= limits.learned[j].short
    limits.clock[0].alarm = some


@jit_apart
def clear_shortfall(limits: Limits) -> None:
    """Mark no limit as missed, as every expert is available again."""
    for j in range(limits.rows.size):
        limits.learned[j].short = False
    limits.clock[0].alarm = False
