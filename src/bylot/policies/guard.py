"""The guard: a panel is played only if the rest of the period can still satisfy every limit.

The rest is the cost of the fallback schedule from its next place on. That is known exactly if calls
cost what is declared; else it is that of the largest costs, or of learned means with a reserve.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.sampling import add_panel_cost
from bylot.numerics.set_selection import choose_top_m, count_available
from bylot.policies.budget import (
    Budget,
    Guard,
    PromiseName,
    book_round,
    compute_allowance,
    compute_guarded_cost,
    compute_later_cost,
    get_schedule,
    name_promise,
)
from bylot.policies.constraint_rows import ConstraintRows, find_slater_point, make_constraint_rows
from bylot.policies.fallback_schedule import (
    FallbackSchedule,
    compute_shortest_period,
    plan_schedule,
)
from bylot.policies.learned_costs import (
    CostRisk,
    get_guarded_row,
    has_varying_cost,
    is_uncertain,
    make_declared_risk,
    make_exact_risk,
    make_largest_cost_rows,
)
from bylot.problem import Problem

DEFAULT_PERIOD_ROUNDS = 5_000  # without a horizon and a period of the problem
LIMIT_TOLERANCE = 1e-9  # excess of an expected cost that counts as 0


class Overrun(NamedTuple):
    """By how much limits would be missed, in units of the rows."""

    certain: float  # of the limits that no report can endanger: they come first
    reserved: float  # of those that are kept by a reserve


class AdmittedPanel(NamedTuple):
    """The panel that is played."""

    members: Ints
    replaced: bool  # by that of the schedule, or by the cheapest
    kept: bool  # can every limit still hold after it?


def get_period(problem: Problem, horizon: int | None) -> int:
    """The rounds at whose end limits are to hold: the horizon, or the problem's period."""
    return horizon or problem.period or DEFAULT_PERIOD_ROUNDS


def make_guard(
    rows: ConstraintRows,
    plan: FallbackSchedule,
    period: int,
    fewest: int = 1,
    on: bool = True,
    risk: CostRisk | None = None,
) -> Guard:
    """The guard of a period, if that is long enough for a guarantee; by default costs are exact."""
    risk = make_exact_risk(rows.A) if risk is None else risk
    shortest = compute_shortest_period(ConstraintRows(risk.worst, rows.b), plan)
    if on and period < shortest:
        least = f"use at least {shortest:,} as the problem's period or the horizon"
        loose = "loosen the limits, or use 'omd', which keeps them in the long run only"
        what = f"a period of {period:,} rounds is too short to guarantee the limits at its end"
        raise PolicyError(what, remedy=least if shortest < math.inf else loose)
    most = max(fewest, plan.sets.shape[1])
    return Guard(on, fewest, most, period, rows.A, rows.b, risk, plan)


def bind_guard(problem: Problem, horizon: int | None, fewest: int, on: bool) -> tuple[Guard, float]:
    """The guard of a problem for panels of `fewest` members or more, and delta."""
    rows, period = make_constraint_rows(problem), get_period(problem, horizon)
    margin, quota = find_slater_point(problem, fewest)
    risk, plan = plan_certain_schedule(problem, rows, fewest, period)
    if plan is None:
        plan = plan_schedule(rows, quota, period)
    guard = make_guard(rows, plan, period, fewest, on, risk)
    return guard._replace(most=min(problem.draws, problem.size)), margin


def plan_certain_schedule(
    problem: Problem, rows: ConstraintRows, fewest: int, period: int
) -> tuple[CostRisk, FallbackSchedule | None]:
    """What varies, and a schedule that keeps as many limits as possible whatever calls cost.

    A limit that bounds a declared cost from above is certain if some schedule keeps it at the
    largest costs of calls. Limits are tried together, then one after the other. None: there is no
    such limit.
    """
    risk = make_declared_risk(problem, rows)
    caps = make_largest_cost_rows(problem, rows)
    possible = [j for j in range(len(caps)) if np.isfinite(caps[j]).all()]
    chosen, plan = try_largest_costs(problem, rows, caps, possible, fewest, period), None
    if chosen is not None:
        return risk._replace(worst=chosen[0], certain=mark_rows(possible, len(caps))), chosen[1]
    kept: list[int] = []
    for j in possible:
        chosen = try_largest_costs(problem, rows, caps, [*kept, j], fewest, period)
        if chosen is not None:
            kept.append(j)
            plan = chosen[1]
            risk = risk._replace(worst=chosen[0], certain=mark_rows(kept, len(caps)))
    return risk, plan


def find_promises(problem: Problem, fewest: int) -> list[PromiseName]:
    """What a guard of panels of `fewest` members or more promises for each limit at the start."""
    rows, period = make_constraint_rows(problem), get_period(problem, None)
    risk, _ = plan_certain_schedule(problem, rows, fewest, period)
    return [name_promise(risk, j) for j in range(rows.b.size)]


def mark_rows(chosen: list[int], count: int) -> Bools:
    """A mask of these rows."""
    mask = np.zeros(count, np.bool_)
    mask[chosen] = True
    return mask


def try_largest_costs(
    problem: Problem,
    rows: ConstraintRows,
    caps: Floats,
    chosen: list[int],
    fewest: int,
    period: int,
) -> tuple[Floats, FallbackSchedule] | None:
    """The rows with the largest costs of calls in some of them, and a schedule that keeps them."""
    worst = rows.A.copy()
    worst[chosen] = caps[chosen]
    tight = ConstraintRows(worst, rows.b)
    if not chosen:
        return None
    margin, quota = find_slater_point(problem, fewest, tight)
    if margin <= 0.0:
        return None
    plan = plan_schedule(tight, quota, period)
    return (worst, plan) if compute_shortest_period(tight, plan) <= period else None


def check_full_panels(problem: Problem, policy: str) -> int:
    """The size of every panel, if full panels can satisfy the limits."""
    members = min(problem.draws, problem.size)
    if problem.full_conflict is not None:
        what = f"{policy} asks {members} different experts every time, which cannot keep {{limits}}"
        remedy = "use 'tangent', which may ask fewer, 'noisy-or' with min_draws, or fewer draws"
        if problem.min_draws is not None:
            remedy = f"use 'noisy-or', which may ask {problem.min_draws}, or fewer draws"
        raise PolicyError(what, limits=problem.full_conflict.limits, remedy=remedy)
    return members


@jit
def compute_panel_cost(A: Floats, members: Ints) -> Floats:
    """The cost of a panel under each row."""
    cost = np.zeros(A.shape[0])
    add_panel_cost(cost, A, members)
    return cost


@jit
def compute_overrun(
    guard: Guard, budget: Budget, members: Ints, cost: Floats, place: int
) -> Overrun:
    """By how much would the schedule from this place on miss limits, after a round of this cost?

    sum_j (spent + cost + n F + ahead - P b)_j^+ with n rounds left after it, in units of the rows.
    If that is 0 before a round, the schedule's own next set keeps it so (ahead is the most its walk
    can rise): by induction from the period's start it is 0 at its end, n = 0, whatever was drawn in
    between. Where calls may cost more than declared, `compute_later_cost` sets aside the rest.
    """
    n, certain, reserved = budget.left[0] - 1, 0.0, 0.0
    for j in range(cost.size):
        later = compute_later_cost(guard, budget, j, n, place, members)
        most = compute_allowance(guard.period, guard.b[j])
        excess = max(budget.spent[j] + cost[j] + later - most, 0.0)
        if is_uncertain(guard.risk, budget.costs, j):
            reserved += excess
        else:
            certain += excess
    return Overrun(certain, reserved)


@jit
def is_smaller(new: Overrun, old: Overrun) -> bool:
    """Does it miss less? A limit that is certain is never given up for one kept by a reserve."""
    if new.certain != old.certain:
        return bool(new.certain < old.certain)
    return bool(new.reserved < old.reserved)


@jit
def guard_panel(guard: Guard, budget: Budget, members: Ints, available: Bools) -> AdmittedPanel:
    """Admit a panel, or replace it by the next of the schedule; either is charged.

    The schedule misses nothing, unless experts were unavailable in this period or calls cost more
    than was counted on. Then the panel that misses least is played: the drawn one, the schedule's,
    or the cheapest.
    """
    place, varies = budget.place[0], has_varying_cost(guard.risk, budget.costs)
    cost = compute_panel_cost(guard.A, members)
    counted = compute_guarded_cost(guard, budget, members) if varies else cost
    overrun = compute_overrun(guard, budget, members, counted, place)
    replaced, next_place = False, place
    if guard.on and overrun.certain + overrun.reserved > 0.0:
        drawn, after = members, (place + 1) % get_schedule(guard, budget).sets.shape[0]
        for planned in (True, False):
            if planned:
                panel, then = substitute_panel(guard, budget, drawn, available), after
            else:
                panel, then = find_cheapest_panel(guard, budget, drawn.size, available), place
            paid = compute_panel_cost(guard.A, panel)
            counted = compute_guarded_cost(guard, budget, panel) if varies else paid
            new = compute_overrun(guard, budget, panel, counted, then)
            if is_smaller(new, overrun):
                members, cost, overrun, replaced, next_place = panel, paid, new, True, then
            if overrun.certain + overrun.reserved <= 0.0:
                break  # nearly always after the schedule's
    budget.place[0] = next_place
    budget.replaced[0] += replaced
    book_round(guard, budget, members, cost)
    return AdmittedPanel(members, replaced, overrun.certain + overrun.reserved <= 0.0)


@jit
def find_cheapest_panel(guard: Guard, budget: Budget, size: int, available: Bools) -> Ints:
    """The panel that costs least under the limits that the schedule would miss from here on."""
    n, place, scores = budget.left[0], budget.place[0], np.zeros(guard.A.shape[1])
    no_members = np.empty(0, np.int64)
    for j in range(guard.b.size):
        later = compute_later_cost(guard, budget, j, n, place, no_members)
        if budget.spent[j] + later > compute_allowance(guard.period, guard.b[j]):
            row = get_guarded_row(guard.risk, budget.costs, j)
            for i in range(scores.size):
                scores[i] -= row[i]
    wanted = min(size, count_available(available) if available.size > 0 else scores.size)
    members = choose_top_m(scores, wanted, available)
    while wanted > guard.fewest and scores[members[wanted - 1]] <= 0.0:
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
    """Mark the limits that such panels would miss: above the bound in force and what is left."""
    some, n = False, budget.left[0]
    for j in range(bounds.size):
        needed = (compute_allowance(guard.period, guard.b[j]) - budget.spent[j]) / n
        budget.short[j] = costs[j] > max(bounds[j], needed) + LIMIT_TOLERANCE
        some |= budget.short[j]
    budget.alarm[0] = some
    return some


@jit
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
