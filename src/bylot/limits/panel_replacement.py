"""What limits a panel would miss, and which panel to play in its place.

`guard` asks before every round.
"""

from typing import NamedTuple

import numpy as np

from bylot.limits.budget import (
    Budget,
    Guard,
    book_round,
    compute_guarded_cost,
    compute_later_cost,
    find_allowance,
    get_schedule,
)
from bylot.limits.costs import get_guarded_row, is_uncertain
from bylot.limits.windows import MEAN, PERIOD, TOTAL
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.sampling import add_panel_cost
from bylot.numerics.set_selection import choose_top_m, count_available, exchange_dearest


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
def compute_row_excess(
    guard: Guard, budget: Budget, j: int, members: Ints, cost: float, place: int
) -> float:
    """By how much limit j would be missed if a panel of this cost were asked; 0: not at all.

    In a period, (spent + cost + n F + ahead - P b)^+ with n rounds left after it: what the schedule
    from this place on adds. A window may end after any request: nothing comes after it. Where calls
    may cost more than declared, `compute_later_cost` sets aside the rest.
    """
    if guard.windows.kind[j] == TOTAL and cost <= 0.0:
        return 0.0  # it is free, whatever was spent
    n = budget.left[0] - 1 if guard.windows.kind[j] == PERIOD else 0
    later = compute_later_cost(guard, budget, j, n, place, members)
    most = find_allowance(guard, budget, j, budget.windows.requests[j] + 1)
    return float(max(budget.spent[j] + cost + later - most, 0.0))


@jit_embedded
def compute_overrun(
    guard: Guard, budget: Budget, members: Ints, cost: Floats, place: int
) -> Overrun:
    """By how much would limits be missed after a round of this cost, in units of the rows?

    If that is 0 for all limits of a period before a round, the schedule's own next set keeps it so
    (ahead is the most its walk can rise): by induction from the period's start it is 0 at its end,
    n = 0, whatever was drawn in between.
    """
    spent, certain, reserved, aside = 0.0, 0.0, 0.0, 0.0
    for j in range(cost.size):
        if not budget.windows.applies[j]:
            continue
        excess = compute_row_excess(guard, budget, j, members, cost[j], place)
        if guard.windows.kind[j] == TOTAL:
            spent += excess
            aside += compute_aside_excess(guard, budget, j, cost[j])
        elif guard.windows.kind[j] == MEAN or is_uncertain(guard.risk, budget.costs, j):
            reserved += excess
        else:
            certain += excess
    return Overrun(spent, certain, reserved, aside)


@jit_embedded
def compute_aside_excess(guard: Guard, budget: Budget, j: int, cost: float) -> float:
    """By how much a panel takes from what later requests need for the cheapest panels."""
    later = guard.windows.aside[j] * max(budget.windows.left[j] - 1.0, 0.0)
    return float(max(budget.spent[j] + cost + later - budget.windows.amount[j], 0.0))


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
    guard: Guard, budget: Budget, drawn: Ints, available: Bools, varies: bool, missed: Overrun
) -> AdmittedPanel:
    """`guard_panel` for a drawn panel that would miss something."""
    place, plan, members, overrun = budget.place[0], get_schedule(guard, budget), drawn, missed
    after, replaced, next_place = (place + 1) % plan.sets.shape[0], False, place
    for attempt in range(0 if varies else 1, 4):
        if attempt == 0:
            panel, then = lower_panel(guard, budget, drawn, available), place
        elif attempt == 1:
            panel, then = substitute_panel(guard, budget, drawn, available), after
        elif attempt == 2:
            panel, then = find_cheapest_panel(guard, budget, drawn.size, available), place
        elif overrun.spent > 0.0:
            panel, then = find_fitting_panel(guard, budget, available), place
        else:
            break
        if panel.size > 0:
            paid = compute_panel_cost(guard.A, panel)
            counted = compute_guarded_cost(guard, budget, panel) if varies else paid
            new = compute_overrun(guard, budget, panel, counted, then)
            if is_smaller(new, overrun):
                members, overrun, replaced, next_place = panel, new, True, then
        if is_inside(overrun) and overrun.aside <= 0.0:
            break  # nearly always after the first
    budget.place[0] = next_place
    budget.replaced[0] += replaced
    book_round(guard, budget, members, compute_panel_cost(guard.A, members))
    return AdmittedPanel(members, replaced, is_inside(overrun))


@jit_apart
def substitute_panel(guard: Guard, budget: Budget, members: Ints, available: Bools) -> Ints:
    """The schedule's next set; unavailable members are replaced by drawn ones."""
    planned: Ints = get_schedule(guard, budget).sets[budget.place[0]].copy()
    if available.size == 0:
        return planned
    out, n = np.empty(max(planned.size, members.size), np.int64), 0
    chosen, wanted = np.zeros(available.size, np.bool_), min(members.size, guard.fewest)
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
def lower_panel(guard: Guard, budget: Budget, drawn: Ints, available: Bools) -> Ints:
    """The drawn panel with its dearest members exchanged for cheaper experts, as few as necessary
    to miss nothing; empty if that is not enough.

    So a budget of which less is left than a dear call may cost is still spent, on calls that may
    cost less and less. With c the number of the cheapest experts that may be asked, in the rows
    that the drawn panel would miss, the largest c is found by bisection.
    """
    place, scores, lowered = budget.place[0], np.zeros(guard.A.shape[1]), drawn[:0]
    cost = compute_guarded_cost(guard, budget, drawn)
    for j in range(guard.b.size):
        if not budget.windows.applies[j]:
            continue
        total = guard.windows.kind[j] == TOTAL
        excess = compute_row_excess(guard, budget, j, drawn, cost[j], place)
        if excess > 0.0 or (total and compute_aside_excess(guard, budget, j, cost[j]) > 0.0):
            row = get_guarded_row(guard.risk, budget.costs, j)
            for i in range(scores.size):
                scores[i] += row[i]
    order, low, high = np.argsort(scores), 0, scores.size
    while high - low > 1:
        middle = (low + high) // 2
        panel, fits = exchange_dearest(drawn, order, middle, available), False
        if panel.size > 0:
            paid = compute_guarded_cost(guard, budget, panel)
            overrun = compute_overrun(guard, budget, panel, paid, place)
            fits = is_inside(overrun) and overrun.aside <= 0.0
        if fits:
            lowered = panel
        if fits or panel.size == 0:
            low = middle
        else:
            high = middle
    return lowered


@jit_apart
def find_cheapest_panel(guard: Guard, budget: Budget, size: int, available: Bools) -> Ints:
    """The panel that costs least under the limits that would be missed from here on."""
    place, scores = budget.place[0], np.zeros(guard.A.shape[1])
    no_members, kind = np.empty(0, np.int64), guard.windows.kind
    for j in range(guard.b.size):
        if not budget.windows.applies[j]:
            continue
        n = budget.left[0] if kind[j] == PERIOD else 0
        usual = max(guard.b[j], 0.0) if kind[j] != PERIOD else 0.0
        usual += guard.windows.aside[j] * max(budget.windows.left[j] - 1.0, 0.0)
        later = compute_later_cost(guard, budget, j, n, place, no_members) + usual
        most = find_allowance(guard, budget, j, budget.windows.requests[j] + 1)
        if budget.spent[j] + later > most:
            row = get_guarded_row(guard.risk, budget.costs, j)
            for i in range(scores.size):
                scores[i] -= row[i]
    wanted = min(size, count_available(available) if available.size > 0 else scores.size)
    members = choose_top_m(scores, wanted, available)
    while wanted > guard.fewest and scores[members[wanted - 1]] <= 0.0:
        wanted -= 1
    return members[:wanted]


@jit_apart
def find_fitting_panel(guard: Guard, budget: Budget, available: Bools) -> Ints:
    """A panel that fits into what all budgets of windows leave; empty if none was found.

    With one budget it is the cheapest panel, so none is found only if there is none. With several,
    the cheapest in units of what each has left, then the cheapest of each. Where a budget allows
    it, panels of fewer members are tried, down to one.
    """
    K, kind, applies = guard.A.shape[1], guard.windows.kind, budget.windows.applies
    most = min(guard.fewest, count_available(available) if available.size > 0 else K)
    least, no_members = most, np.empty(0, np.int64)
    for j in range(kind.size):
        least = 1 if guard.windows.fewer[j] and applies[j] else least
    for size in range(most, least - 1, -1):
        for chosen in range(-1, kind.size):
            scores = np.zeros(K)
            for j in range(kind.size):
                if kind[j] == TOTAL and applies[j] and chosen in (-1, j):
                    later = compute_later_cost(guard, budget, j, 0, 0, no_members)
                    room = max(budget.windows.amount[j] - budget.spent[j] - later, 1e-300)
                    row = get_guarded_row(guard.risk, budget.costs, j)
                    for i in range(K):
                        scores[i] -= row[i] / room
            if chosen == -1 or (kind[chosen] == TOTAL and applies[chosen]):
                panel = choose_top_m(scores, size, available)
                cost = compute_guarded_cost(guard, budget, panel)
                if compute_overrun(guard, budget, panel, cost, budget.place[0]).spent <= 0.0:
                    return panel
    return no_members
