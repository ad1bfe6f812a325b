"""Windows of the calendar: which limits are for one, where it stands, and what is still to come.

The compiled code knows windows by their edges, instants in a table that the router fills from the
calendar. What was spent in a window is in its ledger (`ledger.py`).
"""

from collections.abc import Sequence

import numpy as np

from bylot._windows import WINDOW_WORDS
from bylot.errors import ValuesError
from bylot.limits.forecast import HOUR_US, forecast_requests, note_request, sum_rates
from bylot.limits.records import Limits, LimitState, find_amount, get_ledger
from bylot.numerics.jit import Floats, Ints, jit
from bylot.problem import Limit, Problem
from bylot.problem.calendar import LONGEST_DAYS, Calendar, list_edges
from bylot.problem.instants import compute_utc_offset

TABLE_EDGES = 64  # windows that the table reaches ahead
HISTORY_HOURS = 24 * round(LONGEST_DAYS + 1)  # more than the longest window has
MAX_SLICES = HISTORY_HOURS + 32  # inner windows of one window
LEVEL_HALVINGS = 30
FIRST_SHARE_REQUESTS = 10.0  # that the first share of some contexts counts as
MAX_SHARE_REQUESTS = 2_000.0  # that any share counts as at most
MEAN_ROUNDS = 200.0  # in which an average in a window is brought back to its bound


def check_times(problem: Problem, times: Ints | None, rounds: int) -> Ints:
    """Require the times of all rounds if limits are of the calendar; empty if none are."""
    if not problem.calendars:
        return np.empty(0, np.int64)
    if times is None:
        raise ValuesError(
            f"limits per {WINDOW_WORDS} need to know when requests arrive",
            remedy="pass times=Traffic('daily', per_day=2000).arrivals(rounds, seed)",
        )
    arrivals = np.ascontiguousarray(times, np.int64)
    if arrivals.shape != (rounds,) or (np.diff(arrivals) < 0).any():
        raise ValuesError(
            f"times of shape {arrivals.shape}",
            expected=f"{rounds:,} instants in microseconds since 1970 that never go back",
        )
    return arrivals


def note_context_label(
    state: LimitState, limits: Sequence[Limit], x: int, label: str | None
) -> None:
    """Write which limits count requests of context x, by its label."""
    if len(state.counts):
        state.counts[x] = [limit.counts(label) for limit in limits]


def needs_edges(state: LimitState, at: int) -> bool:
    """Return whether a table of edges ends before the window of this instant does."""
    last = state.edges[:, -1]
    return bool(last.size and at >= last.min())


def list_tables(calendars: Sequence[Calendar], state: LimitState, at: int) -> list[list[int]]:
    """Return the edges of each calendar from now on, and the offsets of local time at those of the
    first.

    The window that has not been closed stays in front, so that the next request closes it.
    """
    tables = []
    places = state.windows["place"].tolist()
    for calendar, edges, place in zip(calendars, state.edges, places, strict=True):
        ahead = list_edges(calendar, at, TABLE_EDGES)
        begun = edges[-1] > 0 and edges[place] < ahead[0]
        tables.append([int(edges[place]), *ahead[:-1].tolist()] if begun else ahead.tolist())
    offsets = [compute_utc_offset(calendars[0].zone, edge) for edge in tables[0]]
    return [*tables, offsets]


def list_due_tables(problem: Problem, state: LimitState, at: int) -> list[list[int]] | None:
    """Return the tables for this instant if those of the state end before it; None if not."""
    return list_tables(problem.calendars, state, at) if needs_edges(state, at) else None


def fill_tables(state: LimitState, tables: Sequence[Sequence[int]]) -> None:
    """Write what `list_tables` returned; each table begins with its current window."""
    state.edges[:] = tables[:-1]
    state.windows["place"] = 0
    state.offsets[:] = tables[-1]


@jit
def enter_hour(limits: Limits, at: int) -> None:
    """Forget the oldest hours of the history for those that have passed."""
    clock = limits.clock[0]
    hour = at // HOUR_US
    size = limits.history.shape[1]
    for passed in range(max(clock.hour + 1, hour - size + 1), hour + 1):
        for j in range(limits.history.shape[0]):
            limits.history[j, passed % size] = 0.0
            limits.held[j, passed % size] = 0.0
        limits.hour_first[passed % size] = clock.rounds
    clock.hour = max(hour, clock.hour)


@jit
def book_hour(limits: Limits, table: Floats, j: int, t: int, cost: float) -> None:
    """Add to the hour of decision t, in `history` or `held`, unless they do not count it."""
    size = table.shape[1]
    hour = limits.clock[0].hour
    if table.shape[0] > 0 and t >= limits.learned[j].since:
        for back in range(hour, max(hour - size, -1), -1):
            if t >= limits.hour_first[back % size]:
                table[j, back % size] += cost
                break


@jit
def find_window_start(limits: Limits, c: int) -> int:
    """Return the instant at which the current window of a calendar began."""
    return int(limits.edges[c, limits.windows[c].place])


@jit
def find_window_end(limits: Limits, c: int) -> int:
    """Return the instant at which the current window of a calendar ends."""
    return int(limits.edges[c, min(limits.windows[c].place + 1, limits.edges.shape[1] - 1)])


@jit
def enter_window(limits: Limits, c: int, at: int) -> bool:
    """Go on to the window of this instant, and return whether it is another one."""
    window = limits.windows[c]
    place = window.place
    while place + 2 < limits.edges.shape[1] and at >= limits.edges[c, place + 1]:
        place += 1
    moved = place != window.place
    window.place = place
    return bool(moved)


@jit
def count_requests(limits: Limits, at: int, requests: float) -> None:
    """Count requests of this instant, whether or not they are answered."""
    note_request(limits, at + find_offset(limits), requests)
    for c in range(limits.windows.size):
        limits.windows[c].requests += int(requests)


@jit
def find_offset(limits: Limits) -> int:
    """Return the offset of local time over UTC."""
    return int(limits.offsets[limits.windows[0].place])


@jit
def find_level(limits: Limits, known: Floats, j: int) -> float:
    """Return the bound per request at which the budget of a window lasts until its end.

    That is what is left over the requests to come, unless a budget of the same cost in shorter
    windows caps what some of them can spend: with n_s requests and at most c_s in the s-th of
    these, the level x solves sum_s min(n_s x, c_s) = left.

    known: (d,) what was spent under each limit
    """
    rows = limits.rows
    left = find_amount(limits, j) - known[j]
    i = rows[j].inner
    level = left / max(get_ledger(limits, j).to_come, 1.0)
    if i < 0 or left <= 0.0:
        return float(level)
    offset = find_offset(limits)
    at = limits.clock[0].now + offset
    end = find_window_end(limits, rows[j].window) + offset
    scale = rows[i].unit / rows[j].unit
    requests = np.empty(MAX_SLICES)
    caps = np.empty(MAX_SLICES)
    start = at
    stop = min(find_window_end(limits, rows[i].window) + offset, end)
    requests[0] = get_ledger(limits, i).to_come
    caps[0] = max(rows[i].amount - known[i], 0.0) * scale
    n = 1
    while stop < end and n < MAX_SLICES:
        start, stop = stop, min(stop + int(rows[i].length), end)
        requests[n] = get_ledger(limits, i).share * sum_rates(limits, start, stop)
        caps[n] = rows[i].amount * scale
        n += 1
    total = 0.0
    most = 0.0
    for s in range(n):
        total += caps[s]
        most = max(most, caps[s] / max(requests[s], 1.0))
    if total <= left:
        return float(most)
    low = level
    high = most
    for _ in range(LEVEL_HALVINGS):
        middle = 0.5 * (low + high)
        used = 0.0
        for s in range(n):
            used += min(requests[s] * middle, caps[s])
        if used < left:
            low = middle
        else:
            high = middle
    return float(low)


@jit
def forecast_windows(limits: Limits) -> None:
    """Forecast the requests to come in every window."""
    offset = find_offset(limits)
    at = limits.clock[0].now
    for c in range(limits.windows.size):
        end = find_window_end(limits, c)
        limits.windows[c].ahead = forecast_requests(limits, at + offset, end + offset)
    for j in range(limits.rows.size):
        fill_requests_to_come(limits, j)


@jit
def fill_requests_to_come(limits: Limits, j: int) -> None:
    """Write how many requests to come in the window of a limit will count, at least 1."""
    c = limits.rows[j].window
    if c >= 0:
        ledger = get_ledger(limits, j)
        ledger.to_come = max(ledger.share * limits.windows[c].ahead, 1.0)


@jit
def learn_filter_shares(limits: Limits) -> None:
    """Learn how many of the requests count under limits of some contexts; at first, all do."""
    for j in range(limits.rows.size):
        row = limits.rows[j]
        if row.filtered and row.column < 0:
            known = min(limits.clock[0].rounds + FIRST_SHARE_REQUESTS, MAX_SHARE_REQUESTS)
            counted = 1.0 if limits.place[j] >= 0 else 0.0
            ledger = limits.ledgers[j]
            ledger.share += (counted - ledger.share) / known
