"""What limits a panel would miss, and which panel to play in its place.

`guard` asks for the second if a proposed panel would miss a limit.
"""

from typing import NamedTuple

import numpy as np

from bylot.limits.costs import get_guarded_row, is_uncertain
from bylot.limits.ledger import (
    book_round,
    compute_guarded_cost,
    compute_later_cost,
    find_allowance,
)
from bylot.limits.records import Limits, find_amount, get_ledger
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.sampling import add_panel_cost
from bylot.numerics.set_selection import choose_top_m, count_available, exchange_dearest

MAX_BALANCED_TRIALS = 32  # panels that are tried to keep averages together


class Overrun(NamedTuple):
    """By how much limits would be missed, in units of the rows."""

    spent: float  # of budgets of windows, which nothing may exceed
    certain: float  # of the limits of a period that no report can endanger
    reserved: float  # of those that are kept by a reserve, and of averages in windows
    aside: float  # of what is set aside in budgets of windows for the requests to come


class AdmittedPanel(NamedTuple):
    """The panel that is played."""

    members: Ints
    replaced: bool  # is it another than the one that was drawn?
    kept: bool  # can every limit still hold after it?


@jit
def compute_panel_cost(A: Floats, members: Ints) -> Floats:
    """The cost of a panel under each row."""
    cost = np.empty(A.shape[0])
    fill_panel_cost(cost, A, members)
    return cost


@jit_embedded
def fill_panel_cost(cost: Floats, A: Floats, members: Ints) -> None:
    """Write `compute_panel_cost`."""
    for j in range(cost.size):
        cost[j] = 0.0
    add_panel_cost(cost, A, members)


@jit_embedded
def compute_row_excess(limits: Limits, j: int, members: Ints, cost: float, place: int) -> float:
    """By how much limit j would be missed if a panel of this cost were asked; 0: not at all.

    In a period, (spent + cost + n F + ahead - P b)^+ with n rounds left after it: what the schedule
    from this place on adds. A window may end after any request: nothing comes after it. Where calls
    may cost more than declared, `compute_later_cost` sets aside the rest.
    """
    if limits.rows[j].total and cost <= 0.0:
        return 0.0  # it is free, whatever was spent
    n = limits.clock[0].left - 1 if limits.rows[j].planned else 0
    later = compute_later_cost(limits, j, n, place, members)
    most = find_allowance(limits, j, get_ledger(limits, j).requests + 1)
    return float(max(get_ledger(limits, j).spent + cost + later - most, 0.0))


@jit_embedded
def compute_overrun(limits: Limits, members: Ints, cost: Floats, place: int) -> Overrun:
    """By how much would limits be missed after a round of this cost, in units of the rows?

    If that is 0 for all limits of a period before a round, the schedule's own next set keeps it so
    (ahead is the most its walk can rise): by induction from the period's start it is 0 at its end,
    n = 0, whatever was drawn in between.
    """
    spent, certain, reserved, aside = 0.0, 0.0, 0.0, 0.0
    for j in range(cost.size):
        if limits.place[j] < 0:
            continue
        excess = compute_row_excess(limits, j, members, cost[j], place)
        if limits.rows[j].total:
            spent += excess
            aside += compute_aside_excess(limits, j, cost[j])
        elif not limits.rows[j].planned or is_uncertain(limits, j):
            reserved += excess
        else:
            certain += excess
    return Overrun(spent, certain, reserved, aside)


@jit_embedded
def compute_aside_excess(limits: Limits, j: int, cost: float) -> float:
    """By how much a panel takes from what later requests need for the cheapest panels."""
    later = limits.rows[j].aside * max(get_ledger(limits, j).to_come - 1.0, 0.0)
    return float(max(get_ledger(limits, j).spent + cost + later - find_amount(limits, j), 0.0))


@jit
def is_smaller(new: Overrun, old: Overrun) -> bool:
    """Does it miss less? Budgets of windows come first, then limits that are certain."""
    if new.spent != old.spent:
        return bool(new.spent < old.spent)
    if new.certain != old.certain:
        return bool(new.certain < old.certain)
    if new.reserved != old.reserved:
        return bool(new.reserved < old.reserved)
    return bool(new.aside < old.aside)


@jit
def is_inside(overrun: Overrun) -> bool:
    """Is no limit missed?"""
    return bool(overrun.spent + overrun.certain + overrun.reserved <= 0.0)


@jit_apart
def replace_panel(
    limits: Limits, drawn: Ints, available: Bools, varies: bool, missed: Overrun
) -> AdmittedPanel:
    """`guard_panel` for a drawn panel that would miss something."""
    clock = limits.clock[0]
    place = clock.place
    members = drawn
    overrun = missed
    after = (place + 1) % clock.cycle
    replaced = False
    next_place = place
    for attempt in range(0 if varies else 1, 5):
        if attempt == 0:
            panel, then = lower_panel(limits, drawn, available), place
        elif attempt == 1:
            panel, then = substitute_panel(limits, drawn, available), after
        elif attempt == 2:
            panel, then = find_cheapest_panel(limits, drawn.size, available), place
        elif attempt == 3 and overrun.spent > 0.0:
            panel, then = find_fitting_panel(limits, available), place
        elif attempt == 4 and overrun.reserved > 0.0 and has_open_average(limits):
            panel, then = find_balanced_panel(limits, drawn.size, available), place
        else:
            continue
        if panel.size > 0:
            paid = compute_panel_cost(limits.A, panel)
            counted = compute_guarded_cost(limits, panel) if varies else paid
            new = compute_overrun(limits, panel, counted, then)
            if is_smaller(new, overrun):
                members, overrun, replaced, next_place = panel, new, True, then
        if is_inside(overrun) and overrun.aside <= 0.0:
            break  # nearly always after the first
    limits.clock[0].place = next_place
    limits.clock[0].replaced += replaced
    book_round(limits, members, compute_panel_cost(limits.A, members))
    return AdmittedPanel(members, replaced, is_inside(overrun))


@jit_apart
def substitute_panel(limits: Limits, members: Ints, available: Bools) -> Ints:
    """The schedule's next set; unavailable members are replaced by drawn ones."""
    clock = limits.clock[0]
    planned: Ints = limits.sets[clock.place, : clock.width].copy()
    if available.size == 0:
        return planned
    out, n = np.empty(max(planned.size, members.size), np.int64), 0
    chosen, wanted = np.zeros(available.size, np.bool_), min(members.size, limits.fewest)
    for i in planned:
        if available[i] and not chosen[i]:
            out[n] = i
            chosen[i] = True
            n += 1
    for i in members:
        if n < wanted and not chosen[i]:
            out[n] = i
            chosen[i] = True
            n += 1
    return out[:n]


@jit_apart
def lower_panel(limits: Limits, drawn: Ints, available: Bools) -> Ints:
    """The drawn panel with its dearest members exchanged for cheaper experts, as few as necessary
    to miss nothing; empty if that is not enough.

    So a budget of which less is left than a dear call may cost is still spent, on calls that may
    cost less and less. With c the number of the cheapest experts that may be asked, in the rows
    that the drawn panel would miss, the largest c is found by bisection.
    """
    place, scores, lowered = limits.clock[0].place, np.zeros(limits.A.shape[1]), drawn[:0]
    cost = compute_guarded_cost(limits, drawn)
    for j in range(limits.rows.size):
        if limits.place[j] < 0:
            continue
        total = limits.rows[j].total
        excess = compute_row_excess(limits, j, drawn, cost[j], place)
        if excess > 0.0 or (total and compute_aside_excess(limits, j, cost[j]) > 0.0):
            row = get_guarded_row(limits, j)
            for i in range(scores.size):
                scores[i] += row[i]
    order, low, high = np.argsort(scores), 0, scores.size
    while high - low > 1:
        middle = (low + high) // 2
        panel, fits = exchange_dearest(drawn, order, middle, available), False
        if panel.size > 0:
            paid = compute_guarded_cost(limits, panel)
            overrun = compute_overrun(limits, panel, paid, place)
            fits = is_inside(overrun) and overrun.aside <= 0.0
        if fits:
            lowered = panel
        if fits or panel.size == 0:
            low = middle
        else:
            high = middle
    return lowered


@jit_apart
def find_cheapest_panel(limits: Limits, size: int, available: Bools) -> Ints:
    """The panel that costs least under the limits that would be missed from here on."""
    place, scores = limits.clock[0].place, np.zeros(limits.A.shape[1])
    no_members = np.empty(0, np.int64)
    for j in range(limits.rows.size):
        if limits.place[j] < 0:
            continue
        n = limits.clock[0].left if limits.rows[j].planned else 0
        usual = max(limits.rows[j].bound, 0.0) if not limits.rows[j].planned else 0.0
        usual += limits.rows[j].aside * max(get_ledger(limits, j).to_come - 1.0, 0.0)
        later = compute_later_cost(limits, j, n, place, no_members) + usual
        most = find_allowance(limits, j, get_ledger(limits, j).requests + 1)
        if get_ledger(limits, j).spent + later > most:
            row = get_guarded_row(limits, j)
            for i in range(scores.size):
                scores[i] -= row[i]
    wanted = min(size, count_available(available) if available.size > 0 else scores.size)
    members = choose_top_m(scores, wanted, available)
    while wanted > limits.fewest and scores[members[wanted - 1]] <= 0.0:
        wanted -= 1
    return members[:wanted]


@jit_apart
def find_fitting_panel(limits: Limits, available: Bools) -> Ints:
    """A panel that fits into what all budgets of windows leave; empty if none was found.

    With one budget it is the cheapest panel, so none is found only if there is none. With several,
    the cheapest in units of what each has left, then the cheapest of each. Where a budget allows
    it, panels of fewer members are tried, down to one.
    """
    K = limits.A.shape[1]
    most = min(limits.fewest, count_available(available) if available.size > 0 else K)
    least, no_members = most, np.empty(0, np.int64)
    for j in range(limits.rows.size):
        least = 1 if limits.rows[j].fewer and limits.place[j] >= 0 else least
    for size in range(most, least - 1, -1):
        for chosen in range(-1, limits.rows.size):
            scores = np.zeros(K)
            for j in range(limits.rows.size):
                if limits.rows[j].total and limits.place[j] >= 0 and chosen in (-1, j):
                    later = compute_later_cost(limits, j, 0, 0, no_members)
                    room = max(find_amount(limits, j) - get_ledger(limits, j).spent - later, 1e-300)
                    row = get_guarded_row(limits, j)
                    for i in range(K):
                        scores[i] -= row[i] / room
            if chosen == -1 or (limits.rows[chosen].total and limits.place[chosen] >= 0):
                panel = choose_top_m(scores, size, available)
                cost = compute_guarded_cost(limits, panel)
                if compute_overrun(limits, panel, cost, limits.clock[0].place).spent <= 0.0:
                    return panel
    return no_members


@jit
def has_open_average(limits: Limits) -> bool:
    """Return whether this request counts under a limit on an average that may end with it."""
    some = False
    for j in range(limits.rows.size):
        row = limits.rows[j]
        some |= limits.place[j] >= 0 and not row.total and not row.planned
    return bool(some)


@jit_apart
def find_balanced_panel(limits: Limits, size: int, available: Bools) -> Ints:
    """A panel after which every limit holds, if one is found; else the last that was tried.

    A panel is the cheapest under a weighted sum of the rows; rows that it would miss weigh more in
    the next trial. So averages that pull in opposite directions are kept together.
    """
    place = limits.clock[0].place
    d, K = limits.A.shape
    wanted = min(size, count_available(available) if available.size > 0 else K)
    weights = np.ones(d)
    panel = np.empty(0, np.int64)
    missed = True
    for _ in range(MAX_BALANCED_TRIALS):
        scores = np.zeros(K)
        for j in range(d):
            if limits.place[j] >= 0:
                row = get_guarded_row(limits, j)
                for i in range(K):
                    scores[i] -= weights[j] * row[i]
        panel = choose_top_m(scores, wanted, available)
        cost = compute_guarded_cost(limits, panel)
        missed = False
        for j in range(d):
            if limits.place[j] >= 0 and compute_row_excess(limits, j, panel, cost[j], place) > 0.0:
                weights[j] += 1.0
                missed = True
        if not missed:
            break
    return panel
