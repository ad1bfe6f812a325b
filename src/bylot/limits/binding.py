"""Binding: the limits of a problem in numbers, for panels of some sizes, and their first state."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bylot._scopes import SCOPE_NAMES
from bylot.errors import PolicyError
from bylot.limits.costs import (
    DECLARED_REPORTS,
    FIRST_NOISE,
    LEAST_COST_FRACTION,
    MIN_COST_SCALE,
)
from bylot.limits.forecast import make_hours
from bylot.limits.ledger import EVERYBODY
from bylot.limits.pacing import compute_cheapest_panel, compute_kappa
from bylot.limits.records import (
    CLOCK,
    HOUR,
    KEY,
    LEARNED,
    LEDGER,
    NO_AMOUNT,
    ROW,
    WINDOW,
    FallbackSchedule,
    LimitRule,
    LimitState,
    LimitTables,
    Records,
)
from bylot.limits.report import PromiseName, name_promise
from bylot.limits.rows import (
    ConstraintRows,
    SlaterPoint,
    compute_row_units,
    find_slater_point,
    make_constraint_rows,
    make_largest_cost_rows,
)
from bylot.limits.schedule import (
    SCHEDULE_ROUNDS,
    compute_shortest_period,
    plan_schedule,
    schedule_from_sets,
)
from bylot.limits.windows import HISTORY_HOURS, TABLE_EDGES
from bylot.numerics.jit import Bools, Floats
from bylot.problem import Limit, Problem
from bylot.problem.window_bounds import DAYS_PER_WINDOW, find_least_costs, mark_totals

DEFAULT_PERIOD_ROUNDS = 5_000  # without a horizon and a period of the problem
LEAST_BOUND_SHARE = 0.03  # of the way from the cheapest panels to the bound: room for exploration
USUAL_SHARE = 0.5  # of the usual bound, which "refuse" is not paced below
US_PER_DAY = 86_400e6


class Pace(NamedTuple):
    """How bounds in force are set."""

    high: float | None  # factor by which they may exceed the limits; None: they do not move
    requests: int  # after which they are set again; 0: never


class LargestCosts(NamedTuple):
    """What the schedule counts calls as, where it keeps limits whatever calls cost."""

    worst: Floats  # (d, K) the most that a call can cost, where the promise is certain; else A
    certain: Bools  # (d,)


def get_period(problem: Problem, horizon: int | None) -> int:
    """Return the rounds at whose end limits are to hold: the horizon, or the problem's period."""
    return horizon or problem.period or DEFAULT_PERIOD_ROUNDS


def bind_limits(
    problem: Problem,
    horizon: int | None,
    fewest: int,
    on: bool,
    pace: Pace,
    full: bool | None = None,
) -> LimitRule:
    """Return the limits of a problem for panels of `fewest` members or more.

    The margin is that of all panels of these sizes; a policy that cannot keep it sets its own.

    full: has every panel as many members? By default if `fewest` says so
    """
    rows = make_constraint_rows(problem)
    period = get_period(problem, horizon)
    margin, quota = find_common_point(problem, fewest, rows)
    largest, plan = plan_largest_costs(problem, rows, fewest, period, quota)
    most = min(problem.draws, problem.size)
    records = make_rows(problem, rows, largest.certain)
    full = fewest == most if full is None else full
    records["kappa"] = compute_kappa(rows.A, most, full)
    records["cheapest"] = compute_cheapest_panel(rows.A, most if full else fewest, most)
    if on:
        check_period(records, largest.worst, plan, period)
    caps = make_largest_cost_rows(problem, rows)
    least = LEAST_COST_FRACTION * np.abs(rows.A).mean(axis=1, keepdims=True)
    return LimitRule(
        rows=records,
        A=rows.A,
        worst=largest.worst,
        scale=np.maximum(np.maximum(np.abs(rows.A), least), MIN_COST_SCALE),
        excess=np.where(np.isfinite(caps), np.maximum(caps - rows.A, 0.0), 0.0),
        schedule=plan,
        on=on,
        fewest=fewest,
        most=most,
        draws=problem.draws,
        period=period,
        high=0.0 if pace.high is None else float(pace.high),
        margin=margin,
        columns=int((records["column"] >= 0).sum()),
        paced=pace.requests,
        traffic=problem.traffic or 0.0,
    )


def get_rows(rule: LimitRule) -> ConstraintRows:
    """Return the limits as rows A p <= b."""
    return ConstraintRows(rule.A, rule.rows["bound"].copy())


def make_rows(problem: Problem, rows: ConstraintRows, certain: Bools) -> Records:
    """Return (d,) the limits of a problem as records, without what depends on the panels."""
    limits = problem.limits
    units = compute_row_units(problem)
    totals = mark_totals(problem)
    calendars = problem.calendars
    records = np.zeros(len(limits), ROW)
    records["bound"] = rows.b
    records["unit"] = units
    records["certain"] = certain
    records["amount"] = np.where(totals, [limit.bound for limit in limits], 0.0) / units
    if totals.any():
        bounds = problem.bounds
        least = find_least_costs(problem, totals, bounds)
        cheapest = least + LEAST_BOUND_SHARE * np.maximum(bounds - least, 0.0)
        refusing = np.array([limit.when_spent == "refuse" for limit in limits])
        usual = USUAL_SHARE * refusing * bounds
        records["low"] = np.where(totals, np.maximum(cheapest, usual), 0.0) / units
        needed = np.array([find_needed_cost(problem, j) for j in range(len(limits))])
        records["aside"] = np.where(totals, needed, 0.0) / units
    columns = 0
    for j, limit in enumerate(limits):
        row = records[j]
        row["length"] = US_PER_DAY * DAYS_PER_WINDOW.get(limit.per or "", 0.0)
        row["window"] = -1 if limit.calendar is None else calendars.index(limit.calendar)
        if limit.scope is None:
            row["column"] = -1
        else:
            row["scope"] = SCOPE_NAMES.index(limit.scope)
            row["column"] = columns
            columns += 1
        row["inner"] = find_inner_limit(limits, j)
        row["total"] = limit.is_total
        row["planned"] = limit.per is None and not limit.where
        row["filtered"] = bool(limit.where)
        row["fewer"] = limit.is_total and limit.when_spent == "fewer"
        row["varies"] = not limit.is_derived
    return records


def check_period(records: Records, worst: Floats, plan: FallbackSchedule, period: int) -> None:
    """Refuse a period that is too short for the schedule to keep the limits at its end."""
    planned = records["planned"]
    judged = plan._replace(mean=plan.mean[planned], ahead=plan.ahead[:, planned])
    rows = ConstraintRows(worst[planned], records["bound"][planned])
    shortest = compute_shortest_period(rows, judged)
    if period < shortest:
        least = f"use at least {shortest:,} as the problem's period or the horizon"
        loose = "loosen the limits, or use 'omd', which keeps them in the long run only"
        raise PolicyError(
            f"a period of {period:,} rounds is too short to guarantee the limits at its end",
            remedy=least if shortest < math.inf else loose,
        )


def find_common_point(problem: Problem, fewest: int, rows: ConstraintRows) -> SlaterPoint:
    """The Slater point of all limits or, if limits of some contexts conflict with others, of those
    that count all requests.
    """
    found = find_slater_point(problem, fewest)
    if problem.has_groups and found.margin <= 0.0:
        plain = np.array([not limit.where for limit in problem.limits])
        found = find_slater_point(problem, fewest, ConstraintRows(rows.A[plain], rows.b[plain]))
    return found


def plan_largest_costs(
    problem: Problem, rows: ConstraintRows, fewest: int, period: int, quota: Floats
) -> tuple[LargestCosts, FallbackSchedule]:
    """Return what is certain, and a schedule that keeps as many limits as possible whatever calls
    cost.

    A limit that bounds a declared cost from above is certain if some schedule keeps it at the
    largest costs of calls. Limits are tried together, then one after the other. Budgets of windows
    count calls at their largest costs wherever these are declared: what does not fit is not asked,
    so that no schedule is needed to be certain.

    quota: of a schedule, if no limit is certain
    """
    totals = mark_totals(problem)
    caps = make_largest_cost_rows(problem, rows)
    capped = np.isfinite(caps).all(axis=1)
    possible = np.flatnonzero(capped & ~totals).tolist()
    kept: list[int] = []
    plan = None
    trials = [possible] if possible else []
    for chosen in (*trials, *([j] for j in possible)):
        tried = try_largest_costs(problem, rows, caps, [*kept, *chosen], fewest, period)
        if tried is not None:
            kept = [*kept, *chosen]
            plan = tried
            if chosen == possible:
                break
    if plan is None:
        plan = plan_schedule(rows, quota, period)
    certain = np.zeros(len(caps), np.bool_)
    certain[kept] = True
    budgets = totals & capped
    worst = np.where((certain | budgets)[:, None], caps, rows.A)
    if budgets.any():
        plan = schedule_from_sets(plan.sets, worst)
    return LargestCosts(worst, certain | budgets), plan


def try_largest_costs(
    problem: Problem,
    rows: ConstraintRows,
    caps: Floats,
    chosen: list[int],
    fewest: int,
    period: int,
) -> FallbackSchedule | None:
    """Return a schedule that keeps the chosen rows at the largest costs of calls."""
    worst = rows.A.copy()
    worst[chosen] = caps[chosen]
    tight = ConstraintRows(worst, rows.b)
    margin, quota = find_slater_point(problem, fewest, tight)
    if margin <= 0.0:
        return None
    plan = plan_schedule(tight, quota, period)
    return plan if compute_shortest_period(tight, plan) <= period else None


def find_promises(problem: Problem, fewest: int) -> list[PromiseName]:
    """Return what a guard of panels of `fewest` members or more promises at the start."""
    rows = make_constraint_rows(problem)
    quota = np.full(problem.size, fewest / problem.size)
    largest, _ = plan_largest_costs(problem, rows, fewest, get_period(problem, None), quota)
    records = make_rows(problem, rows, largest.certain)
    return [name_promise(row) for row in records]


def find_needed_cost(problem: Problem, j: int) -> float:
    """Return what a request to come needs of a budget: the cheapest panel, or one member where
    panels may get smaller. Where requests are refused rather than asked of much cheaper panels, it
    needs nothing.
    """
    limit = problem.limits[j]
    members = {"cheapest": problem.min_members, "fewer": 1, "refuse": 0}[limit.when_spent]
    return float(np.sort(problem.rows[j])[:members].sum())


def find_inner_limit(limits: Sequence[Limit], j: int) -> int:
    """Return the place of the budget of the same cost in the longest of shorter windows, or -1."""
    if not limits[j].is_total or limits[j].scope:
        return -1
    same = [limit.key._replace(per="") == limits[j].key._replace(per="") for limit in limits]
    budgets = [i for i, limit in enumerate(limits) if limit.is_total and same[i]]
    days = {i: DAYS_PER_WINDOW[limits[i].per or ""] for i in budgets}
    return max((i for i in budgets if days[i] < days[j]), key=days.__getitem__, default=-1)


def is_possible(tables: LimitTables | None) -> bool:
    """Return whether requests can have led to this state of limits."""
    if tables is None:
        return True
    rule, state = tables
    clock = state.clock[0]
    counts = (
        state.ledgers["requests"],
        state.ledgers["requests_before"],
        state.ledgers["first"],
        state.ledgers["to_come"],
        state.ledgers["share"],
        state.learned["missed"],
        state.learned["reports"],
        state.learned["noise"],
        state.learned["squares"],
        state.waiting,
        state.windows["requests"],
        state.windows["requests_before"],
        state.windows["ahead"],
        *(state.hours[name] for name in ("mean", "weeks", "rate", "before")),
        *(state.clock[name] for name in ("rounds", "replaced", "asked", "settled")),
        *(state.clock[name] for name in ("next_plan", "plans")),
    )
    edges = (state.windows["place"] >= 0) & (state.windows["place"] < TABLE_EDGES)
    return bool(
        all((count >= 0).all() for count in counts)
        and 1 <= clock["left"] <= rule.period
        and 0 <= clock["place"] < clock["cycle"] <= len(state.sets)
        and (clock["plans"] > 0 or clock["cycle"] == len(rule.schedule.sets))
        and 1 <= clock["width"] <= state.sets.shape[1]
        and (state.weight >= DECLARED_REPORTS).all()
        and edges.all()
    )


def make_ledgers(count: int) -> Records:
    """Return empty ledgers."""
    ledgers = np.zeros(count, LEDGER)
    ledgers["amount"] = NO_AMOUNT
    ledgers["share"] = 1.0
    return ledgers


def make_keys() -> Records:
    """Return the keys of a request that names none."""
    keys = np.zeros(len(SCOPE_NAMES), KEY)
    keys["slot"] = EVERYBODY
    return keys


def start_limits(rule: LimitRule, contexts: int) -> LimitState:
    """Return the state before the first request: no window has begun, and nothing was spent.

    `KeyLedgers.join` adds the ledgers of keys.
    """
    d, K = rule.A.shape
    calendars = int(rule.rows["window"].max(initial=-1)) + 1
    timed = d if calendars else 0
    squares = rule.most * (rule.scale**2).mean(axis=1)
    learned = np.zeros(d, LEARNED)
    learned["noise"] = FIRST_NOISE * squares
    learned["squares"] = squares
    learned["peak"] = 1.0
    learned["dearest"] = rule.rows["cheapest"]
    plan = rule.schedule
    cycle, width = plan.sets.shape
    sets = np.zeros((max(cycle, SCHEDULE_ROUNDS), max(width, rule.most)), np.int64)
    sets[:cycle, :width] = plan.sets
    ahead = np.zeros((len(sets), d))
    ahead[:cycle] = plan.ahead
    clock = np.zeros(1, CLOCK)
    clock["left"] = rule.period
    clock["cycle"] = cycle
    clock["width"] = width
    clock["local_hour"] = clock["first_hour"] = -1
    return LimitState(
        ledgers=make_ledgers(2 * d),
        keys=make_keys(),
        place=np.arange(d),
        counts=np.ones((contexts if rule.rows["filtered"].any() else 0, d), np.bool_),
        learned=learned,
        means=rule.A.copy(),
        weight=np.full((d, K), DECLARED_REPORTS),
        waiting=np.zeros((d, K), np.int64),
        planned=rule.A.copy(),
        sets=sets,
        mean=plan.mean.copy(),
        ahead=ahead,
        quota=plan.quota.copy(),
        bounds=rule.rows["bound"].copy(),
        clock=clock,
        windows=np.zeros(calendars, WINDOW),
        edges=np.zeros((calendars, TABLE_EDGES), np.int64),
        offsets=np.zeros(TABLE_EDGES if calendars else 0, np.int64),
        hours=make_hours(rule.traffic) if calendars else np.zeros(0, HOUR),
        history=np.zeros((timed, HISTORY_HOURS)),
        held=np.zeros((timed, HISTORY_HOURS)),
        hour_first=np.zeros(HISTORY_HOURS if calendars else 0, np.int64),
    )


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
