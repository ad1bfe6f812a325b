"""Windows of the calendar: which limits are for one, where it stands, and what is still to come.

The compiled code knows windows by their edges, instants in a table that the router fills from the
calendar. What was spent in a window is in the budget, as that of a period is.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.policies.base import ProblemChange
from bylot.policies.traffic_forecast import (
    TrafficState,
    forecast_requests,
    make_traffic,
    note_request,
)
from bylot.problem import Problem
from bylot.problem.calendar import Calendar, compute_utc_offset, list_edges
from bylot.problem.window_bounds import find_least_costs, mark_totals

PERIOD, TOTAL, MEAN = 0, 1, 2
"""What a limit is for: a period of requests; what a window costs in all; an average in a window."""

TABLE_EDGES = 64  # windows that the table reaches ahead
LEAST_BOUND_SHARE = 0.03  # of the way from the cheapest panels to the bound: room for exploration
USUAL_SHARE = 0.5  # of the usual bound, which "refuse" is not paced below
MEAN_ROUNDS = 200.0  # in which an average in a window is brought back to its bound


class WindowRule(NamedTuple):
    """The limits of windows, in the order of all limits, in the signs and units of their rows."""

    kind: Ints  # (d,) PERIOD, TOTAL or MEAN
    calendar: Ints  # (d,) its place among the calendars; -1: none
    amount: Floats  # (d,) what a window may cost, of a TOTAL
    low: Floats  # (d,) the least bound in force, of a TOTAL
    fewer: Bools  # (d,) may panels get smaller when a TOTAL is nearly spent?


class WindowState(NamedTuple):
    """Where the windows stand."""

    edges: Ints  # (calendars, 64) instants at which windows begin, from some past one on
    place: Ints  # (calendars,) the current window
    offsets: Ints  # (64,) of local time over UTC, at the edges of the first calendar
    requests: Ints  # (d,) of the current window
    left: Floats  # (d,) requests to come in it, the next one included
    first: Ints  # (d, 2) decisions before this window, and before the one before
    traffic: TrafficState

    def migrate(self, new: "WindowState", change: ProblemChange) -> None:
        """Windows of the same calendar go on; tables of others are filled at the next request."""
        here, there = change.limits
        old_calendars, new_calendars = change.old.calendars, change.new.calendars
        for c, calendar in enumerate(new_calendars):
            if calendar in old_calendars:
                was = old_calendars.index(calendar)
                new.edges[c], new.place[c] = self.edges[was], self.place[was]
        if self.offsets.size and new.offsets.size:
            new.offsets[:] = self.offsets
        for name in ("requests", "left", "first"):
            getattr(new, name)[there] = getattr(self, name)[here]
        for known, array in zip(self.traffic, new.traffic, strict=True):
            array[:] = known

    def is_valid(self, rule: Any) -> bool:
        counted = (self.requests >= 0).all() and (self.left >= 0).all() and (self.first >= 0).all()
        placed = ((self.place >= 0) & (self.place < TABLE_EDGES)).all()
        return bool(counted and placed and self.traffic.is_valid(rule))


def make_window_rule(problem: Problem, units: Floats) -> WindowRule:
    """The limits of windows of a problem; units: of the rows."""
    limits, calendars, totals = problem.limits, problem.calendars, mark_totals(problem)
    low = np.zeros(len(limits))
    if totals.any():
        bounds = problem.bounds
        least = find_least_costs(problem, totals, bounds)
        cheapest = least + LEAST_BOUND_SHARE * np.maximum(bounds - least, 0.0)
        usual = np.array([USUAL_SHARE * (one.when_spent == "refuse") for one in limits]) * bounds
        low = np.where(totals, np.maximum(cheapest, usual), 0.0) / units
    return WindowRule(
        kind=np.array([find_kind(one.is_total, one.calendar) for one in limits], np.int64),
        calendar=np.array(
            [-1 if one.calendar is None else calendars.index(one.calendar) for one in limits],
            np.int64,
        ),
        amount=np.where(totals, [one.bound for one in limits], 0.0) / units,
        low=low,
        fewer=np.array([one.is_total and one.when_spent == "fewer" for one in limits], np.bool_),
    )


def make_plain_windows(limits: int) -> WindowRule:
    """No limit is for a window."""
    none = np.zeros(limits)
    plain = np.zeros(limits, np.int64)
    return WindowRule(plain, np.full(limits, -1), none, none.copy(), np.zeros(limits, np.bool_))


def find_kind(is_total: bool, calendar: Calendar | None) -> int:
    """What a limit is for."""
    return TOTAL if is_total else PERIOD if calendar is None else MEAN


def make_window_state(rule: WindowRule) -> WindowState:
    """No window has begun."""
    d, calendars = rule.kind.size, int(rule.calendar.max(initial=-1)) + 1
    return WindowState(
        edges=np.zeros((calendars, TABLE_EDGES), np.int64),
        place=np.zeros(calendars, np.int64),
        offsets=np.zeros(TABLE_EDGES if calendars else 0, np.int64),
        requests=np.zeros(d, np.int64),
        left=np.zeros(d),
        first=np.zeros((d, 2), np.int64),
        traffic=make_traffic(),
    )


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


@jit
def forecast_windows(rule: WindowRule, windows: WindowState, at: int) -> None:
    """Forecast the requests to come in every window."""
    offset = windows.offsets[windows.place[0]]
    for j in range(rule.kind.size):
        c = rule.calendar[j]
        if c >= 0:
            end = find_window_end(windows, c)
            windows.left[j] = forecast_requests(windows.traffic, at + offset, end + offset)
