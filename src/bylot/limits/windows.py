"""Windows of the calendar: which limits are for one, where it stands, and what is still to come.

The compiled code knows windows by their edges, instants in a table that the router fills from the
calendar. What was spent in a window is in the budget, as that of a period is.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bylot.limits.forecast import (
    HOUR_US,
    WEEK_HOURS,
    TrafficState,
    forecast_requests,
    make_traffic,
    note_request,
    sum_rates,
)
from bylot.limits.rows import compute_row_units
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.problem import Limit, Problem
from bylot.problem.calendar import Calendar, compute_utc_offset, list_edges
from bylot.problem.change import ProblemChange
from bylot.problem.window_bounds import DAYS_PER_WINDOW, find_least_costs, mark_totals

PERIOD, TOTAL, MEAN = 0, 1, 2
"""What a limit is for: a period of requests; what a window costs in all; an average in a window."""

TABLE_EDGES = 64  # windows that the table reaches ahead
LEAST_BOUND_SHARE = 0.03  # of the way from the cheapest panels to the bound: room for exploration
USUAL_SHARE = 0.5  # of the usual bound, which "refuse" is not paced below
US_PER_DAY = 86_400e6
HISTORY_HOURS = 768  # more than a month
MAX_SLICES = 800  # inner windows of one window: more than the hours of a month
LEVEL_HALVINGS = 30
FIRST_SHARE_REQUESTS, MAX_SHARE_REQUESTS = 10.0, 2_000.0  # that the share of a group counts as
MEAN_ROUNDS = 200.0  # in which an average in a window is brought back to its bound


class WindowRule(NamedTuple):
    """The limits of windows, in the order of all limits, in the signs and units of their rows."""

    kind: Ints  # (d,) PERIOD, TOTAL or MEAN
    calendar: Ints  # (d,) its place among the calendars; -1: none
    amount: Floats  # (d,) what a window may cost, of a TOTAL
    low: Floats  # (d,) the least bound in force, of a TOTAL
    aside: Floats  # (d,) what each request to come needs at least, of a TOTAL
    fewer: Bools  # (d,) may panels get smaller when a TOTAL is nearly spent?
    inner: Ints  # (d,) the limit on the same cost in shorter windows, of a TOTAL; -1: none
    length: Floats  # (d,) microseconds of an average window
    unit: Floats  # (d,) of the rows
    scoped: Bools  # (d,) does it apply to each tenant by itself?
    grouped: Bools  # (d,) does it count the requests of some contexts only?
    traffic: float  # requests per day that are expected at first; 0: unknown


class WindowState(NamedTuple):
    """Where the windows stand."""

    edges: Ints  # (calendars, 64) instants at which windows begin, from some past one on
    place: Ints  # (calendars,) the current window
    offsets: Ints  # (64,) of local time over UTC, at the edges of the first calendar
    requests: Ints  # (d,) of the current window
    requests_before: Ints  # (d,) of the one before
    left: Floats  # (d,) requests to come in it that count, the next one included
    ahead: Floats  # (calendars,) all requests to come in it
    passed: Ints  # (calendars, 2) all requests of it so far; of the one before
    previous: Ints  # (calendars,) when the window before began
    share: Floats  # (d,) of all requests that count, or are of the tenant of this request
    amount: Floats  # (d,) what a window may cost, of a TOTAL: the rule's, or the tenant's own
    applies: Bools  # (d,) which limits count this request?
    by_context: Bools  # (X, d) and requests of each context; (0, d) without groups
    now: Ints  # the time of the last request
    begun: Bools  # has a window begun since bounds were set?
    first: Ints  # (d, 2) decisions before this window, and before the one before
    history: Floats  # (d, 768) what the last hours cost under each TOTAL; (0, 768) without windows
    held: Floats  # (d, 768) what is reserved for decisions of these hours; (0, 768) likewise
    since: Ints  # (d,) the first decision that is counted in them
    hour_first: Ints  # (768,) decisions before each of these hours; (0,) without windows
    hour: Ints  # the last of these hours, since 1970
    traffic: TrafficState

    def migrate(self, new: "WindowState", change: ProblemChange) -> None:
        """Windows of the same calendar go on; `begin_new_windows` begins the others."""
        old_calendars, new_calendars = change.old.calendars, change.new.calendars
        for c, calendar in enumerate(new_calendars):
            if calendar in old_calendars:
                was = old_calendars.index(calendar)
                new.edges[c], new.place[c] = self.edges[was], self.place[was]
                new.ahead[c], new.passed[c] = self.ahead[was], self.passed[was]
                new.previous[c] = self.previous[was]
        if self.offsets.size and new.offsets.size:
            new.offsets[:] = self.offsets
        new.now[:], new.begun[:], new.hour[:] = self.now, new.offsets.size > 0, self.hour
        here, there = change.limits
        for i, j in zip(here.tolist(), there.tolist(), strict=True):
            if change.old.limits[i].calendar == change.new.limits[j].calendar:
                for name in ("requests", "requests_before", "left", "first", "share"):
                    getattr(new, name)[j] = getattr(self, name)[i]
        if self.history.size and new.history.size:
            new.hour_first[:] = self.hour_first
            units = compute_row_units(change.old), compute_row_units(change.new)
            for j, limit in enumerate(change.new.limits):
                i = find_source(change.old.limits, limit)
                if limit.is_total and i is not None:
                    new.history[j] = self.history[i] * (units[0][i] / units[1][j])
                    new.held[j] = self.held[i] * (units[0][i] / units[1][j])
                    new.since[j] = self.since[i]
        if self.offsets.size and new.offsets.size:
            for known, array in zip(self.traffic, new.traffic, strict=True):
                array[:] = known

    def is_valid(self, rule: Any) -> bool:
        amounts = (
            self.requests,
            self.requests_before,
            self.left,
            self.first,
            self.ahead,
            self.passed,
            self.share,
        )
        counted = all(bool((one >= 0).all()) for one in amounts)
        placed = ((self.place >= 0) & (self.place < TABLE_EDGES)).all()
        return bool(counted and placed and self.traffic.is_valid(rule))


def make_window_rule(problem: Problem, units: Floats) -> WindowRule:
    """The limits of windows of a problem; units: of the rows."""
    limits, calendars, totals = problem.limits, problem.calendars, mark_totals(problem)
    low, aside = np.zeros(len(limits)), np.zeros(len(limits))
    if totals.any():
        bounds = problem.bounds
        least = find_least_costs(problem, totals, bounds)
        cheapest = least + LEAST_BOUND_SHARE * np.maximum(bounds - least, 0.0)
        usual = np.array([USUAL_SHARE * (one.when_spent == "refuse") for one in limits]) * bounds
        low = np.where(totals, np.maximum(cheapest, usual), 0.0) / units
        needed = np.array([find_needed_cost(problem, j) for j in range(len(limits))])
        aside = np.where(totals, needed, 0.0) / units
    return WindowRule(
        kind=np.array([find_kind(one) for one in limits], np.int64),
        calendar=np.array(
            [-1 if one.calendar is None else calendars.index(one.calendar) for one in limits],
            np.int64,
        ),
        amount=np.where(totals, [one.bound for one in limits], 0.0) / units,
        low=low,
        aside=aside,
        fewer=np.array([one.is_total and one.when_spent == "fewer" for one in limits], np.bool_),
        traffic=problem.traffic or 0.0,
        inner=np.array([find_inner_limit(limits, j) for j in range(len(limits))], np.int64),
        length=np.array([US_PER_DAY * DAYS_PER_WINDOW.get(one.per or "", 0.0) for one in limits]),
        unit=np.array(units),
        scoped=np.array([one.scope == "tenant" for one in limits], np.bool_),
        grouped=np.array([bool(one.where) for one in limits], np.bool_),
    )


def find_needed_cost(problem: Problem, j: int) -> float:
    """What a request to come needs of a budget: the cheapest panel, or one member where panels may
    get smaller; nothing where requests are refused rather than asked of much cheaper panels.
    """
    limit, cheapest = problem.limits[j], np.sort(problem.rows[j])
    members = {"cheapest": problem.min_members, "fewer": 1, "refuse": 0}[limit.when_spent]
    return float(cheapest[:members].sum())


def find_inner_limit(limits: Sequence[Limit], j: int) -> int:
    """The budget of the same cost in the longest of shorter windows, by its place; -1: none."""
    if not limits[j].is_total or limits[j].scope:
        return -1
    same = [one.key._replace(per="") == limits[j].key._replace(per="") for one in limits]
    budgets = [i for i, one in enumerate(limits) if one.is_total and same[i]]
    days = {i: DAYS_PER_WINDOW[limits[i].per or ""] for i in budgets}
    return max((i for i in budgets if days[i] < days[j]), key=days.__getitem__, default=-1)


def find_source(limits: Sequence[Limit], wanted: Limit) -> int | None:
    """The place of a budget on the same cost of the same requests, of the same windows if there is
    one.
    """
    same = [one.key._replace(per="") == wanted.key._replace(per="") for one in limits]
    found = [i for i, one in enumerate(limits) if one.is_total and same[i]]
    return min(found, key=lambda i: limits[i].key != wanted.key, default=None)


def make_plain_windows(limits: int) -> WindowRule:
    """No limit is for a window."""
    none = np.zeros(limits)
    plain = np.zeros(limits, np.int64)
    marks, nowhere = np.zeros(limits, np.bool_), np.full(limits, -1)
    zeros = (none, none.copy(), none.copy(), marks, nowhere.copy(), none.copy(), np.ones(limits))
    return WindowRule(plain, nowhere, *zeros, marks.copy(), marks.copy(), 0.0)


def find_kind(limit: Limit) -> int:
    """What a limit is for. How many requests of some contexts a period will have is not known
    either, so an average over them is kept as that of a window.
    """
    return TOTAL if limit.is_total else PERIOD if limit.per is None and not limit.where else MEAN


def make_window_state(rule: WindowRule, contexts: int) -> WindowState:
    """No window has begun."""
    d, calendars = rule.kind.size, int(rule.calendar.max(initial=-1)) + 1
    return WindowState(
        edges=np.zeros((calendars, TABLE_EDGES), np.int64),
        place=np.zeros(calendars, np.int64),
        offsets=np.zeros(TABLE_EDGES if calendars else 0, np.int64),
        requests=np.zeros(d, np.int64),
        requests_before=np.zeros(d, np.int64),
        left=np.zeros(d),
        ahead=np.zeros(calendars),
        passed=np.zeros((calendars, 2), np.int64),
        previous=np.zeros(calendars, np.int64),
        share=np.ones(d),
        amount=rule.amount.copy(),
        applies=np.ones(d, np.bool_),
        by_context=np.ones((contexts if rule.grouped.any() else 0, d), np.bool_),
        now=np.zeros(1, np.int64),
        begun=np.zeros(1, np.bool_),
        first=np.zeros((d, 2), np.int64),
        history=np.zeros((d if calendars else 0, HISTORY_HOURS)),
        held=np.zeros((d if calendars else 0, HISTORY_HOURS)),
        since=np.zeros(d, np.int64),
        hour_first=np.zeros(HISTORY_HOURS if calendars else 0, np.int64),
        hour=np.zeros(1, np.int64),
        traffic=make_traffic(rule.traffic, WEEK_HOURS if calendars else 0),
    )


def fill_groups(state: WindowState, limits: Sequence[Limit], x: int, label: str | None) -> None:
    """Write which limits count requests of context x, by its label."""
    if len(state.by_context):
        state.by_context[x] = [limit.counts(label) for limit in limits]


def needs_edges(state: WindowState, at: int) -> bool:
    """Whether a table of edges ends before the window of this instant does."""
    last = state.edges[:, -1]
    return bool(last.size and at >= last.min())


def list_tables(calendars: Sequence[Calendar], state: WindowState, at: int) -> list[list[int]]:
    """The edges of each calendar from now on, and the offsets of local time at those of the first.

    The window that has not been closed stays in front, so that the next request closes it.
    """
    tables = []
    for calendar, edges, place in zip(calendars, state.edges, state.place, strict=True):
        ahead = list_edges(calendar, at, TABLE_EDGES)
        begun = edges[-1] > 0 and edges[place] < ahead[0]
        tables.append([int(edges[place]), *ahead[:-1].tolist()] if begun else ahead.tolist())
    offsets = [compute_utc_offset(calendars[0].zone, edge) for edge in tables[0]]
    return [*tables, offsets]


def fill_tables(state: WindowState, tables: Sequence[Sequence[int]]) -> None:
    """Write what `list_tables` returned; each table begins with its current window."""
    state.edges[:], state.place[:], state.offsets[:] = tables[:-1], 0, tables[-1]


def begin_new_windows(
    old: Problem,
    problem: Problem,
    rule: WindowRule,
    state: WindowState,
    spent: Floats,
    reserved: Floats,
    t: int,
) -> None:
    """After an edit, write what the current windows of new limits have spent and reserved so far.

    That is known by the hours of the history; the hour in which a window began counts as a whole.
    What is reported later about decisions of these hours is booked in the window. Without a history
    of the cost, a window has the decisions after the edit only.

    t: decisions so far
    """
    known = {one.key: one.calendar for one in old.limits}
    for j, limit in enumerate(problem.limits):
        if limit.calendar is None or limit.scope or known.get(limit.key) == limit.calendar:
            continue
        start = int(state.edges[rule.calendar[j], 0]) // HOUR_US
        hours = range(max(start, int(state.hour[0]) - HISTORY_HOURS + 1), int(state.hour[0]) + 1)
        places = [hour % HISTORY_HOURS for hour in hours]
        spent[j] = sum(state.history[j, places].tolist())
        reserved[j] = max(sum(state.held[j, places].tolist()), 0.0)
        has_history = limit.is_total and find_source(old.limits, limit) is not None
        begun = max(state.hour_first[places[0]], state.since[j]) if places else t
        state.first[j] = begun if has_history else t
        state.requests[j] = 0 if limit.where else t - state.first[j, 0]


@jit
def enter_hour(windows: WindowState, at: int, decisions: int) -> None:
    """Forget the oldest hours of the history for those that have passed."""
    hour, size = at // HOUR_US, windows.history.shape[1]
    for passed in range(max(windows.hour[0] + 1, hour - size + 1), hour + 1):
        for j in range(windows.history.shape[0]):
            windows.history[j, passed % size] = 0.0
            windows.held[j, passed % size] = 0.0
        windows.hour_first[passed % size] = decisions
    windows.hour[0] = max(hour, windows.hour[0])


@jit
def book_hour(windows: WindowState, table: Floats, j: int, t: int, cost: float) -> None:
    """Add to the hour of decision t, in `history` or `held`; nothing if they do not count it."""
    size = table.shape[1]
    if table.shape[0] > 0 and t >= windows.since[j]:
        for hour in range(windows.hour[0], max(windows.hour[0] - size, -1), -1):
            if t >= windows.hour_first[hour % size]:
                table[j, hour % size] += cost
                break


@jit
def find_window_end(windows: WindowState, c: int) -> int:
    """The instant at which the current window of a calendar ends."""
    return int(windows.edges[c, min(windows.place[c] + 1, windows.edges.shape[1] - 1)])


@jit
def enter_window(windows: WindowState, c: int, at: int) -> bool:
    """Go on to the window of this instant; whether it is another one."""
    place = windows.place[c]
    while place + 2 < windows.edges.shape[1] and at >= windows.edges[c, place + 1]:
        place += 1
    moved = place != windows.place[c]
    windows.place[c] = place
    return bool(moved)


@jit
def count_requests(windows: WindowState, at: int, requests: float) -> None:
    """Count requests of this instant, whether or not they are answered."""
    note_request(windows.traffic, at + windows.offsets[windows.place[0]], requests)
    for c in range(windows.place.size):
        windows.passed[c, 0] += int(requests)


@jit
def find_level(rule: WindowRule, windows: WindowState, spent: Floats, j: int) -> float:
    """The bound per request at which the budget of a window lasts until its end.

    That is what is left over the requests to come, unless a budget of the same cost in shorter
    windows caps what some of them can spend: with n_s requests and at most c_s in the s-th of
    these, the level x solves sum_s min(n_s x, c_s) = left.
    """
    left, i = windows.amount[j] - spent[j], rule.inner[j]
    level = left / max(windows.left[j], 1.0)
    if i < 0 or left <= 0.0:
        return float(level)
    offset = windows.offsets[windows.place[0]]
    at, end = windows.now[0] + offset, find_window_end(windows, rule.calendar[j]) + offset
    scale = rule.unit[i] / rule.unit[j]
    requests, caps, n = np.empty(MAX_SLICES), np.empty(MAX_SLICES), 0
    start, stop = at, min(find_window_end(windows, rule.calendar[i]) + offset, end)
    requests[0], caps[0], n = windows.left[i], max(rule.amount[i] - spent[i], 0.0) * scale, 1
    while stop < end and n < MAX_SLICES:
        start, stop = stop, min(stop + int(rule.length[i]), end)
        requests[n] = windows.share[i] * sum_rates(windows.traffic, start, stop)
        caps[n] = rule.amount[i] * scale
        n += 1
    total, most = 0.0, 0.0
    for s in range(n):
        total += caps[s]
        most = max(most, caps[s] / max(requests[s], 1.0))
    if total <= left:
        return float(most)
    low, high = level, most
    for _ in range(LEVEL_HALVINGS):
        middle, used = 0.5 * (low + high), 0.0
        for s in range(n):
            used += min(requests[s] * middle, caps[s])
        if used < left:
            low = middle
        else:
            high = middle
    return float(low)


@jit
def forecast_windows(rule: WindowRule, windows: WindowState) -> None:
    """Forecast the requests to come in every window."""
    offset, at = windows.offsets[windows.place[0]], windows.now[0]
    for c in range(windows.place.size):
        end = find_window_end(windows, c)
        windows.ahead[c] = forecast_requests(windows.traffic, at + offset, end + offset)
    for j in range(rule.kind.size):
        fill_requests_left(rule, windows, j)


@jit
def fill_requests_left(rule: WindowRule, windows: WindowState, j: int) -> None:
    """The requests to come in the window of a limit that count: their share of all, at least 1."""
    if rule.calendar[j] >= 0:
        windows.left[j] = max(windows.share[j] * windows.ahead[rule.calendar[j]], 1.0)


@jit
def enter_context(windows: WindowState, x: int) -> None:
    """Say which limits count a request of context x."""
    if windows.by_context.shape[0] > 0:
        for j in range(windows.applies.size):
            windows.applies[j] = windows.by_context[x, j]


@jit
def learn_group_shares(rule: WindowRule, windows: WindowState, decisions: int) -> None:
    """Learn how many of the requests count under limits of some contexts; at first, all do."""
    for j in range(rule.kind.size):
        if rule.grouped[j] and not rule.scoped[j]:
            known = min(decisions + FIRST_SHARE_REQUESTS, MAX_SHARE_REQUESTS)
            counted = 1.0 if windows.applies[j] else 0.0
            windows.share[j] += (counted - windows.share[j]) / known
