"""The guard: a panel is played only if the rest of the period can still satisfy every limit.

The rest is the cost of the fallback schedule from its next place on. That is known exactly if calls
cost what is declared; else it is that of the largest costs, or of learned means with a reserve.
"""

import math
from typing import Any

import numpy as np

from bylot.errors import PolicyError
from bylot.limits.budget import (
    Budget,
    Guard,
    advance_windows,
    book_round,
    compute_allowance,
    compute_later_cost,
    fill_guarded_cost,
)
from bylot.limits.costs import (
    CostRisk,
    get_guarded_row,
    has_varying_cost,
    make_declared_risk,
    make_exact_risk,
    make_largest_cost_rows,
)
from bylot.limits.panel_replacement import (
    AdmittedPanel,
    compute_overrun,
    fill_panel_cost,
    find_fitting_panel,
    is_inside,
    replace_panel,
)
from bylot.limits.panel_replacement import compute_panel_cost as compute_panel_cost
from bylot.limits.report import PromiseName, name_promise
from bylot.limits.rows import (
    ConstraintRows,
    SlaterPoint,
    compute_row_units,
    find_slater_point,
    make_constraint_rows,
)
from bylot.limits.schedule import (
    FallbackSchedule,
    compute_shortest_period,
    plan_schedule,
    schedule_from_sets,
)
from bylot.limits.windows import (
    MEAN,
    PERIOD,
    TOTAL,
    WindowRule,
    count_requests,
    enter_context,
    find_window_end,
    make_plain_windows,
    make_window_rule,
)
from bylot.numerics.dispatch import dispatch_by_type
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.scratch_arrays import scratch_floats
from bylot.numerics.set_selection import choose_top_m, count_available
from bylot.problem import Problem

DEFAULT_PERIOD_ROUNDS = 5_000  # without a horizon and a period of the problem
LIMIT_TOLERANCE = 1e-9  # excess of an expected cost that counts as 0


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
    windows: WindowRule | None = None,
) -> Guard:
    """The guard of a period, if that is long enough for a guarantee; by default costs are exact."""
    risk = make_exact_risk(rows.A) if risk is None else risk
    windows = make_plain_windows(rows.b.size) if windows is None else windows
    in_period = windows.kind == PERIOD
    judged = plan._replace(mean=plan.mean[in_period], ahead=plan.ahead[:, in_period])
    shortest = compute_shortest_period(
        ConstraintRows(risk.worst[in_period], rows.b[in_period]), judged
    )
    if on and period < shortest:
        least = f"use at least {shortest:,} as the problem's period or the horizon"
        loose = "loosen the limits, or use 'omd', which keeps them in the long run only"
        what = f"a period of {period:,} rounds is too short to guarantee the limits at its end"
        raise PolicyError(what, remedy=least if shortest < math.inf else loose)
    most = max(fewest, plan.sets.shape[1])
    return Guard(on, fewest, most, period, rows.A, rows.b, risk, windows, plan)


def bind_guard(problem: Problem, horizon: int | None, fewest: int, on: bool) -> tuple[Guard, float]:
    """The guard of a problem for panels of `fewest` members or more, and delta."""
    rows, period = make_constraint_rows(problem), get_period(problem, horizon)
    margin, quota = find_common_point(problem, fewest, rows)
    risk, plan = plan_certain_schedule(problem, rows, fewest, period)
    if plan is None:
        plan = plan_schedule(rows, quota, period)
    windows = make_window_rule(problem, compute_row_units(problem))
    risk, plan = count_largest_costs(problem, rows, windows, risk, plan)
    guard = make_guard(rows, plan, period, fewest, on, risk, windows)
    return guard._replace(most=min(problem.draws, problem.size)), margin


def find_common_point(problem: Problem, fewest: int, rows: ConstraintRows) -> SlaterPoint:
    """The Slater point of all limits or, if limits of some contexts conflict with others, of those
    that count all requests.
    """
    found = find_slater_point(problem, fewest)
    if problem.has_groups and found.margin <= 0.0:
        plain = np.array([not limit.where for limit in problem.limits])
        found = find_slater_point(problem, fewest, ConstraintRows(rows.A[plain], rows.b[plain]))
    return found


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
    capped = [j for j in range(len(caps)) if np.isfinite(caps[j]).all()]
    possible = [j for j in capped if not problem.limits[j].is_total]
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


def count_largest_costs(
    problem: Problem,
    rows: ConstraintRows,
    windows: WindowRule,
    risk: CostRisk,
    plan: FallbackSchedule,
) -> tuple[CostRisk, FallbackSchedule]:
    """Let budgets of windows count calls at their largest costs, where these are declared: what
    does not fit is not asked, so that no schedule is needed to be certain.
    """
    caps = make_largest_cost_rows(problem, rows)
    capped = (windows.kind == TOTAL) & np.isfinite(caps).all(axis=1)
    if not capped.any():
        return risk, plan
    worst = np.where(capped[:, None], caps, risk.worst)
    risk = risk._replace(worst=worst, certain=risk.certain | capped)
    return risk, schedule_from_sets(plan.sets, worst)


def find_promises(problem: Problem, fewest: int) -> list[PromiseName]:
    """What a guard of panels of `fewest` members or more promises for each limit at the start."""
    rows, period = make_constraint_rows(problem), get_period(problem, None)
    risk, plan = plan_certain_schedule(problem, rows, fewest, period)
    if plan is None:
        plan = plan_schedule(rows, np.full(problem.size, fewest / problem.size), period)
    windows = make_window_rule(problem, compute_row_units(problem))
    risk, _ = count_largest_costs(problem, rows, windows, risk, plan)
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


@jit_embedded
def guard_panel(guard: Guard, budget: Budget, members: Ints, available: Bools) -> AdmittedPanel:
    """Admit a panel, or replace it (`replace_panel`); either is charged.

    The schedule misses nothing, unless experts were unavailable in this period, calls cost more
    than was counted on, or windows of the calendar leave less. Then the panel that misses least is
    played: the drawn one, the schedule's, the cheapest, or one that fits what windows leave. Where
    costs vary, `lower_panel` is tried first.
    """
    place, varies = budget.place[0], has_varying_cost(guard.risk, budget.costs)
    cost, counted = scratch_floats(guard.b.size), scratch_floats(guard.b.size)
    fill_panel_cost(cost, guard.A, members)
    if varies:
        fill_guarded_cost(counted, guard, budget, members)
    overrun = compute_overrun(guard, budget, members, counted if varies else cost, place)
    if not guard.on or (is_inside(overrun) and overrun.aside <= 0.0):
        book_round(guard, budget, members, cost)
        return AdmittedPanel(members, False, is_inside(overrun))
    return replace_panel(guard, budget, members, available, varies, overrun)


@jit_apart
def find_spent_limit(guard: Guard, budget: Budget, at: int, available: Bools) -> int:
    """The budget of a window that leaves no panel at this instant, by its place; -1: none does.

    Nothing changes, not even the window: requests that are refused leave no trace in a log.
    """
    kind, near, ended = guard.windows.kind, False, False
    for j in range(kind.size):
        if kind[j] == TOTAL and budget.windows.applies[j]:
            over = at >= find_window_end(budget.windows, guard.windows.calendar[j])
            dearest = guard.most * get_guarded_row(guard.risk, budget.costs, j).max()
            near |= find_room(guard, budget, j, over) < dearest
            ended |= over
    if not (near and guard.on):
        return -1
    if not ended:
        return choose_spent_limit(guard, budget, available)
    costs = budget.costs
    spent, waiting, pending = budget.spent.copy(), costs.waiting.copy(), costs.open.copy()
    for j in range(kind.size):
        if kind[j] == TOTAL and at >= find_window_end(budget.windows, guard.windows.calendar[j]):
            budget.spent[j] = costs.open[j] = 0.0  # as the next window will begin
            costs.waiting[j, :] = 0
    found = choose_spent_limit(guard, budget, available)
    budget.spent[:] = spent
    costs.waiting[:, :] = waiting
    costs.open[:] = pending
    return found


@jit
def find_room(guard: Guard, budget: Budget, j: int, ended: bool) -> float:
    """What the budget of a window leaves for panels; all of it in a window that begins."""
    amount = budget.windows.amount[j]
    if ended:
        return float(amount)
    later = compute_later_cost(guard, budget, j, 0, 0, np.empty(0, np.int64))
    return float(amount - budget.spent[j] - later)


@jit_apart
def choose_spent_limit(guard: Guard, budget: Budget, available: Bools) -> int:
    """If no panel fits: of the budgets too small for their cheapest panel, that of the longest
    windows; if each would do by itself, the one with the least room. -1 if a panel fits.
    """
    if find_fitting_panel(guard, budget, available).size > 0:
        return -1
    found, longest, least, tightest = -1, 0.0, np.inf, -1
    some = count_available(available) if available.size > 0 else guard.A.shape[1]
    for j in range(guard.windows.kind.size):
        if guard.windows.kind[j] != TOTAL or not budget.windows.applies[j]:
            continue
        members = 1 if guard.windows.fewer.any() else guard.fewest
        row = get_guarded_row(guard.risk, budget.costs, j)
        cheapest = row[choose_top_m(-row, min(members, some), available)].sum()
        room, length = find_room(guard, budget, j, False), guard.windows.length[j]
        if room < cheapest and length >= longest:
            found, longest = j, length
        if room / max(budget.windows.amount[j], 1e-300) < least:
            tightest, least = j, room / max(budget.windows.amount[j], 1e-300)
    return found if found >= 0 else tightest


@jit
def is_outside_bounds(costs: Floats, bounds: Floats) -> bool:
    """Is any of the expected costs beyond its bound?"""
    some = False
    for j in range(bounds.size):
        some |= costs[j] > bounds[j] + LIMIT_TOLERANCE
    return some


@jit_apart
def forecast_shortfall(guard: Guard, budget: Budget, costs: Floats, bounds: Floats) -> bool:
    """Mark the limits that such panels would miss: above the bound in force and what is left."""
    some, n, kind = False, budget.left[0], guard.windows.kind
    for j in range(bounds.size):
        needed = (compute_allowance(guard.period, guard.b[j]) - budget.spent[j]) / n
        if kind[j] != PERIOD:
            asked = budget.windows.requests[j] + 1  # a TOTAL is kept by refusing requests
            needed = asked * guard.b[j] - budget.spent[j] if kind[j] == MEAN else np.inf
        short = costs[j] > max(bounds[j], needed) + LIMIT_TOLERANCE
        budget.short[j] = short and budget.windows.applies[j]
        some |= budget.short[j]
    budget.alarm[0] = some
    return some


def enter(rule: Any, state: Any, x: int) -> None:
    """`enter_context` of a policy with a budget; nothing for others, as those in plain Python."""


def advance(rule: Any, state: Any, at: int) -> None:
    """`advance_windows` of a policy with a budget; nothing for others."""
    raise NotImplementedError("compiled code only")


def find_spent(rule: Any, state: Any, at: int, available: Bools) -> int:
    """`find_spent_limit` of a policy with a budget; -1 for others."""
    raise NotImplementedError("compiled code only")


def note_refused(rule: Any, state: Any, at: int, requests: int) -> None:
    """Count requests that were refused, which are traffic too; nothing without windows."""
    raise NotImplementedError("compiled code only")


def ignore_refused(rule: Any, state: Any, at: int, requests: int) -> None:
    """`note_refused`: nothing."""


def note_refused_budget(rule: Any, state: Any, at: int, requests: int) -> None:
    """`note_refused`: in the budget of the state."""
    count_requests(state.budget.windows, at, float(requests))


def ignore_time(rule: Any, state: Any, at: int) -> None:
    """`advance`: nothing."""


def find_nothing_spent(rule: Any, state: Any, at: int, available: Bools) -> int:
    """`find_spent`: none is."""
    return -1


def ignore_context(rule: Any, state: Any, x: int) -> None:
    """`enter`: nothing."""


def enter_budget(rule: Any, state: Any, x: int) -> None:
    """`enter`: in the budget of the state."""
    enter_context(state.budget.windows, x)


def advance_budget(rule: Any, state: Any, at: int) -> None:
    """`advance`: the windows of the budget in the state."""
    advance_windows(rule.guard, state.budget, at)


def find_spent_budget(rule: Any, state: Any, at: int, available: Bools) -> int:
    """`find_spent`: by the budget in the state."""
    return find_spent_limit(rule.guard, state.budget, at, available)


dispatch_by_type(enter, default=ignore_context)
dispatch_by_type(advance, default=ignore_time)
dispatch_by_type(find_spent, default=find_nothing_spent)
dispatch_by_type(note_refused, default=ignore_refused)
