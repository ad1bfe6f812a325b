"""The guard: a panel is played only if the rest of the period can still satisfy every limit.

The rest is the cost of the fallback schedule from its next place on, which is known exactly.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.sampling import add_panel_cost
from bylot.numerics.set_selection import choose_top_m
from bylot.policies.base import ProblemChange
from bylot.policies.constraint_rows import ConstraintRows
from bylot.policies.fallback_schedule import (
    SCHEDULE_ROUNDS,
    FallbackSchedule,
    make_fallback_schedule,
)
from bylot.problem import Problem

DEFAULT_PERIOD_ROUNDS = 5_000  # without a horizon and a period of the problem
SCHEDULE_LENGTHS = tuple(factor * SCHEDULE_ROUNDS for factor in (1, 10, 100))  # short ones first
LIMIT_TOLERANCE = 1e-9  # excess of an expected cost that counts as 0
SUM_TOLERANCE = 5e-13  # relative rounding error of the sum of a period's costs


class Guard(NamedTuple):
    """A period of P rounds, its one-sided limits A p <= b, and the schedule to fall back on."""

    on: bool  # off: it keeps the budget, and admits every panel
    full: bool  # must a panel have as many members as the schedule's largest?
    period: int
    A: Floats  # (d, K)
    b: Floats  # (d,)
    schedule: FallbackSchedule


class AdmittedPanel(NamedTuple):
    """The panel that is played."""

    members: Ints
    replaced: bool  # by that of the schedule
    kept: bool  # can every limit still hold after it?


class Budget(NamedTuple):
    """What was spent in this period, and the position in the schedule."""

    spent: Floats  # (d,), in units of the one-sided rows
    left: Ints  # rounds of this period still to play, this one included
    place: Ints  # of the schedule, to be played next
    replaced: Ints  # rounds in which the guard played the schedule instead, in all periods
    missed: Ints  # (d,) periods that ended outside a limit, which takes an outage
    short: Bools  # (d,) would the available experts miss a limit?
    alarm: Bools  # any of them? Asked in every round, which a call would make slow

    def migrate(self, new: "Budget", change: ProblemChange) -> None:
        """Counts since the first decision continue, but for missed periods of a limit whose bound
        changed; `migrate_period` does the rest, which needs both guards.
        """
        new.replaced[:] = self.replaced
        here, there = change.limits
        same = change.old.bounds[here] == change.new.bounds[there]
        new.missed[there[same]] = self.missed[here[same]]


def get_period(problem: Problem, horizon: int | None) -> int:
    """The rounds at whose end limits are to hold: the horizon, or the problem's period."""
    return horizon or problem.period or DEFAULT_PERIOD_ROUNDS


def make_guard(
    rows: ConstraintRows, plan: FallbackSchedule, period: int, *, full: bool = True, on: bool = True
) -> Guard:
    """The guard of a period, if that is long enough for a guarantee."""
    shortest = compute_shortest_period(rows, plan)
    if on and period < shortest:
        least = f"use at least {shortest:,} as the problem's period or the horizon"
        loose = "loosen the limits, or use 'omd', which keeps them in the long run only"
        raise PolicyError(
            f"a period of {period:,} rounds is too short to guarantee the limits at its end",
            remedy=least if shortest < math.inf else loose,
        )
    return Guard(on, full, period, rows.A, rows.b, plan)


def plan_fallback_schedule(rows: ConstraintRows, quota: Floats, period: int) -> FallbackSchedule:
    """The schedule of these quotas, in the shortest cycle that keeps the limits in the period."""
    plans = []
    for cycle in SCHEDULE_LENGTHS:
        plans.append(make_fallback_schedule(quota, rows.A, cycle))
        if compute_shortest_period(rows, plans[-1]) <= period:
            return plans[-1]
    return min(plans, key=lambda plan: compute_shortest_period(rows, plan))


def find_shortest_period(rows: ConstraintRows, quota: Floats) -> float:
    """The shortest period at whose end some schedule of these quotas satisfies the limits."""
    return min(
        compute_shortest_period(rows, make_fallback_schedule(quota, rows.A, cycle))
        for cycle in SCHEDULE_LENGTHS
    )


def compute_shortest_period(rows: ConstraintRows, plan: FallbackSchedule) -> float:
    """The least P with P F_j + max_s ahead_sj <= P b_j for all limits; infinite if there is none.

    >>> rows = ConstraintRows(np.array([[1.0, 0.0]]), np.array([0.75]))
    >>> compute_shortest_period(rows, make_fallback_schedule(np.array([0.5, 0.5]), rows.A, cycle=2))
    2
    """
    room, ahead = rows.b - plan.mean, plan.ahead.max(axis=0, initial=0.0)
    tight = ahead > SUM_TOLERANCE * np.abs(rows.b)
    if (room[tight] <= 0).any() or (room < -SUM_TOLERANCE * np.abs(rows.b)).any():
        return math.inf
    return max(1, math.ceil(float((ahead[tight] / room[tight]).max(initial=1.0)) - SUM_TOLERANCE))


def open_budget(guard: Guard) -> Budget:
    """The budget before the first round."""
    return Budget(
        spent=np.zeros(guard.b.size),
        left=np.full(1, guard.period),
        place=np.zeros(1, np.int64),
        replaced=np.zeros(1, np.int64),
        missed=np.zeros(guard.b.size, np.int64),
        short=np.zeros(guard.b.size, np.bool_),
        alarm=np.zeros(1, np.bool_),
    )


@jit
def compute_panel_cost(A: Floats, members: Ints) -> Floats:
    """The cost of a panel under each row."""
    cost = np.zeros(A.shape[0])
    add_panel_cost(cost, A, members)
    return cost


@jit
def compute_loss(guard: Guard, budget: Budget, cost: Floats, place: int) -> float:
    """By how much would the schedule from this place on miss limits, after a round of this cost?

    sum_j (spent + cost + n F + ahead - P b)_j^+ with n rounds left after it, in units of the rows.
    If that is 0 before a round, the schedule's own next set keeps it so (ahead is the most its walk
    can rise): by induction from the period's start it is 0 at its end, n = 0, whatever was drawn in
    between.
    """
    n, total = budget.left[0] - 1, 0.0
    for j in range(cost.size):
        over = (
            budget.spent[j]
            + cost[j]
            + bound_schedule_cost(guard, n, place, j)
            - compute_allowance(guard, j)
        )
        total += max(over, 0.0)
    return total


@jit
def bound_schedule_cost(guard: Guard, n: int, place: int, j: int) -> float:
    """The most that n rounds of the schedule from a place on can cost at any time: n F + ahead."""
    plan = guard.schedule
    return n * plan.mean[j] + plan.ahead[place, j] if n > 0 else 0.0


@jit
def compute_allowance(guard: Guard, j: int) -> float:
    """What a period may cost under a limit, P b, up to rounding."""
    b = guard.b[j]
    return float(guard.period * b + SUM_TOLERANCE * guard.period * abs(b))


@jit
def book_round(guard: Guard, budget: Budget, cost: Floats) -> None:
    """Charge a round; after the last of a period the next one begins with nothing spent."""
    for j in range(cost.size):
        budget.spent[j] += cost[j]
    budget.left[0] -= 1
    if budget.left[0] == 0:
        budget.left[0] = guard.period
        for j in range(cost.size):
            budget.missed[j] += budget.spent[j] > compute_allowance(guard, j)
            budget.spent[j] = 0.0


@jit
def guard_panel(guard: Guard, budget: Budget, members: Ints, available: Bools) -> AdmittedPanel:
    """Admit a panel, or replace it by the next of the schedule; either is charged.

    The schedule misses nothing unless there was an outage in this period. Then the panel that
    misses least is played: the drawn one, the schedule's, or the cheapest.
    """
    cost, place = compute_panel_cost(guard.A, members), budget.place[0]
    loss = compute_loss(guard, budget, cost, place)
    replaced, on = False, place
    if guard.on and loss > 0.0:
        drawn, after = members, (place + 1) % guard.schedule.sets.shape[0]
        for planned in (True, False):
            if planned:
                panel, then = substitute_panel(guard, place, drawn, available), after
            else:
                panel, then = find_cheapest_panel(guard, budget, drawn.size, available), place
            paid = compute_panel_cost(guard.A, panel)
            less = compute_loss(guard, budget, paid, then)
            if less < loss:
                members, cost, loss, replaced, on = panel, paid, less, True, then
            if loss <= 0.0:
                break  # as for the schedule's, unless there was an outage
    budget.place[0] = on
    budget.replaced[0] += replaced
    book_round(guard, budget, cost)
    return AdmittedPanel(members, replaced, loss <= 0.0)


@jit
def find_cheapest_panel(guard: Guard, budget: Budget, size: int, available: Bools) -> Ints:
    """The panel that costs least under the limits that the schedule would miss from here on."""
    n, place, scores = budget.left[0], budget.place[0], np.zeros(guard.A.shape[1])
    for j in range(guard.b.size):
        if budget.spent[j] + bound_schedule_cost(guard, n, place, j) > compute_allowance(guard, j):
            scores -= guard.A[j]
    wanted = min(size, available.sum() if available.size > 0 else scores.size)
    members = choose_top_m(scores, wanted, available)
    while not guard.full and wanted > 1 and scores[members[wanted - 1]] <= 0.0:
        wanted -= 1
    return members[:wanted]


@jit
def is_outside_bounds(costs: Floats, bounds: Floats) -> bool:
    """Is any of the expected costs beyond its bound?"""
    some = False
    for j in range(bounds.size):
        some |= costs[j] > bounds[j] + LIMIT_TOLERANCE
    return some


@jit
def forecast_shortfall(guard: Guard, budget: Budget, costs: Floats, bounds: Floats) -> bool:
    """Mark the limits that panels of these expected costs would miss by the period's end: above
    the bound in force, and above what is left of the period.
    """
    some, n = False, budget.left[0]
    for j in range(bounds.size):
        needed = (compute_allowance(guard, j) - budget.spent[j]) / n
        budget.short[j] = (
            costs[j] > bounds[j] + LIMIT_TOLERANCE and costs[j] > needed + LIMIT_TOLERANCE
        )
        some |= budget.short[j]
    budget.alarm[0] = some
    return some


@jit
def substitute_panel(guard: Guard, place: int, members: Ints, available: Bools) -> Ints:
    """The schedule's next set; unavailable members are replaced by drawn ones."""
    planned: Ints = guard.schedule.sets[place].copy()
    if available.size == 0:
        return planned
    out, n = np.empty(max(planned.size, members.size), np.int64), 0
    wanted = members.size if guard.full else 1
    for k in range(planned.size):
        if available[planned[k]] and not is_among_first(out, n, planned[k]):
            out[n] = planned[k]
            n += 1
    for k in range(members.size):
        if n < wanted and not is_among_first(out, n, members[k]):
            out[n] = members[k]
            n += 1
    return out[:n]


@jit
def is_among_first(members: Ints, n: int, one: int) -> bool:
    """Is this expert among the first n?"""
    found = False
    for k in range(n):
        found |= members[k] == one
    return found
