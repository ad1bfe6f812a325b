"""Ledgers: what was spent under each limit in its current window, and when windows end.

A limit has one ledger for everybody, or one for each key, as for each tenant. `place` says which of
them a request is booked in. A request that some limit does not count has no place there.
"""

import numpy as np

from bylot.limits.costs import compute_open_cost, compute_reserve, get_guarded_row, is_varying
from bylot.limits.records import Limits, choose_amount, get_ledger
from bylot.limits.schedule import SUM_TOLERANCE
from bylot.limits.windows import (
    book_hour,
    count_requests,
    enter_hour,
    enter_window,
    find_window_end,
    find_window_start,
    learn_filter_shares,
)
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_scalar
from bylot.numerics.sampling import is_first_draw

EVERYBODY = -2  # the slot of requests that name no key
ARCHIVED = -1  # the slot of a key whose ledgers are gone
UNKNOWN = -3  # the slot of a key that has none yet, whose rows are read from empty ledgers
PRIOR_REQUESTS = 1.0  # that the mean of all keys counts as in the share of one
BEFORE_WEIGHT = 0.5  # of requests in the window before
PANELS_IN_USE = 1_000.0  # the last ones, of which the dearest is known


@jit
def find_places(limits: Limits, counted: Bools) -> None:
    """Write the ledger of each limit for a request with the keys in `limits.keys`.

    counted: (d,) the limits that count the request; empty: all do
    """
    d = limits.rows.size
    for j in range(d):
        column = limits.rows[j].column
        slot = limits.keys[limits.rows[j].scope].slot
        if counted.size > 0 and not counted[j]:
            limits.place[j] = -1
        elif column < 0 or slot == EVERYBODY:
            limits.place[j] = j
        elif slot == ARCHIVED:
            limits.place[j] = -1
        elif slot == UNKNOWN:
            limits.place[j] = d + j
        else:
            limits.place[j] = 2 * d + slot * limits.columns + column


@jit
def find_future_places(limits: Limits, at: int) -> None:
    """Let totals whose window is over at this instant be read from an empty ledger."""
    d = limits.rows.size
    for j in range(d):
        row = limits.rows[j]
        place = limits.place[j]
        if not row.total or place < 0:
            continue
        over = at >= find_window_end(limits, row.window)
        over |= place >= d and limits.ledgers[place].start != find_window_start(limits, row.window)
        if over:
            limits.ledgers[d + j].amount = limits.ledgers[place].amount
            limits.place[j] = d + j


@jit_scalar
def bound_schedule_cost(n: int, mean: float, ahead: float) -> float:
    """Return the most that n rounds of the schedule from a place on can cost: n F + ahead."""
    return n * mean + ahead if n > 0 else 0.0


@jit_scalar
def compute_allowance(requests: int, b: float) -> float:
    """Return what so many requests may cost under a bound, up to rounding."""
    return float(requests * b + SUM_TOLERANCE * requests * abs(b))


@jit_embedded
def find_allowance(limits: Limits, j: int, requests: int) -> float:
    """Return what the window of a limit may cost in the ledger of this request.

    requests: of the window, if the limit is on an average in it
    """
    return find_allowance_of(limits, j, get_ledger(limits, j).amount, requests)


@jit_embedded
def find_allowance_of(limits: Limits, j: int, amount: float, requests: int) -> float:
    """Return what the window of a limit may cost in a ledger with this amount of its own."""
    row = limits.rows[j]
    if row.total:
        return choose_amount(limits, j, amount) * (1.0 + SUM_TOLERANCE)
    return compute_allowance(limits.period if row.planned else requests, row.bound)


@jit
def compute_guarded_cost(limits: Limits, members: Ints) -> Floats:
    """Return (d,) what the guard counts a panel as under each row."""
    cost = np.empty(limits.rows.size)
    fill_guarded_cost(cost, limits, members)
    return cost


@jit_apart
def fill_guarded_cost(cost: Floats, limits: Limits, members: Ints) -> None:
    """Write `compute_guarded_cost`."""
    for j in range(cost.size):
        row = get_guarded_row(limits, j)
        cost[j] = 0.0
        for place in range(members.size):
            cost[j] += row[members[place]] if is_first_draw(members, place) else 0.0


@jit_embedded
def compute_later_cost(limits: Limits, j: int, n: int, place: int, members: Ints) -> float:
    """Return what is to be set aside in row j for n rounds of the schedule, and for what is not
    known yet: the cost of calls without a bill, of a panel about to be asked, and of the rounds.
    """
    if is_varying(limits, j):
        return compute_varying_later_cost(limits, j, n, place, members)
    return bound_schedule_cost(n, limits.mean[j], limits.ahead[place, j])


@jit_apart
def compute_varying_later_cost(limits: Limits, j: int, n: int, place: int, members: Ints) -> float:
    """`compute_later_cost` of a row whose calls may cost more or less than declared."""
    row = get_guarded_row(limits, j)
    quota = limits.quota
    mean = limits.mean[j]
    more = compute_reserved_cost(limits, j)
    if not limits.rows[j].certain:
        more += compute_reserve(limits, j, n, quota, members)
        mean = 0.0
        for i in range(row.size):
            mean += quota[i] * row[i]
    return bound_schedule_cost(n, mean, limits.ahead[place, j]) + more


@jit
def compute_reserved_cost(limits: Limits, j: int) -> float:
    """Return what calls without a bill may cost beyond what is booked: at most if the limit is
    certain, else as expected.
    """
    if limits.rows[j].certain:
        return float(get_ledger(limits, j).reserved)
    return compute_open_cost(limits, j, limits.means[j], limits.A[j])


@jit
def advance_windows(limits: Limits, at: int) -> None:
    """Close the windows that are over at this instant, and count the request."""
    enter_hour(limits, at)
    for c in range(limits.windows.size):
        start = find_window_start(limits, c)
        if enter_window(limits, c, at):
            window = limits.windows[c]
            limits.clock[0].begun = True
            window.previous = start
            window.requests_before = window.requests
            window.requests = 0
            for j in range(limits.rows.size):
                if limits.rows[j].window == c:
                    close_window(limits, j, j)
    count_requests(limits, at, 1.0)
    learn_filter_shares(limits)
    limits.clock[0].now = at


@jit_apart
def close_window(limits: Limits, j: int, place: int) -> None:
    """Judge the window of a ledger of limit j, and begin the next one with nothing spent."""
    ledger = limits.ledgers[place]
    waiting = limits.waiting
    most = find_allowance_of(limits, j, ledger.amount, ledger.requests)
    limits.learned[j].missed += ledger.spent > most
    ledger.before = ledger.spent
    ledger.spent = 0.0
    ledger.requests_before = ledger.requests
    ledger.requests = 0
    ledger.first_before = ledger.first
    ledger.first = limits.clock[0].rounds
    ledger.reserved_before = ledger.reserved
    ledger.reserved = 0.0
    for i in range(waiting.shape[1]):
        waiting[j, i] = 0


@jit
def begin_key_windows(limits: Limits) -> None:
    """Begin new windows of the keys of this request where their last ones are over, and compute
    what share of all requests they have.

    With r requests of a key and R of all in this window, r', R' in the one before, and n keys, the
    share is (r + r'/2 + 1) / (R + R'/2 + n): at first that of an average key.
    """
    d = limits.rows.size
    for j in range(d):
        place = limits.place[j]
        if place < d:
            continue
        ledger = limits.ledgers[place]
        window = limits.windows[limits.rows[j].window]
        start = find_window_start(limits, limits.rows[j].window)
        if ledger.start != start:
            close_window(limits, j, place)
            ledger.start_before = ledger.start
            ledger.start = start
        before = ledger.requests_before if ledger.start_before == window.previous else 0
        seen = ledger.requests + BEFORE_WEIGHT * before + PRIOR_REQUESTS
        all_seen = window.requests + BEFORE_WEIGHT * window.requests_before
        known = limits.keys[limits.rows[j].scope].known
        ledger.share = min(seen / (all_seen + PRIOR_REQUESTS * known), 1.0)


@jit_embedded
def wait_for_bill(limits: Limits, j: int, members: Ints) -> float:
    """Wait for the bill of a panel in row j, and return what it may cost more than declared. Calls
    of each expert are not counted for single keys.
    """
    held = 0.0
    for place in range(members.size):
        if is_first_draw(members, place):
            held += limits.excess[j, members[place]]
            if limits.rows[j].column < 0:
                limits.waiting[j, members[place]] += 1
    limits.ledgers[limits.place[j]].reserved += held
    return held


@jit_embedded
def note_panel_cost(limits: Limits, j: int, cost: float) -> None:
    """Note what a panel costs that is in use: the dearest one is forgotten little by little."""
    learned = limits.learned[j]
    faded = learned.dearest + (cost - learned.dearest) / PANELS_IN_USE
    learned.dearest = max(cost, faded)


@jit_embedded
def book_round(limits: Limits, members: Ints, cost: Floats) -> None:
    """Charge a round; after the last of a period the next one begins with nothing spent."""
    clock = limits.clock[0]
    for j in range(cost.size):
        if limits.place[j] >= 0:
            ledger = limits.ledgers[limits.place[j]]
            ledger.spent += cost[j]
            note_panel_cost(limits, j, cost[j])
            held = wait_for_bill(limits, j, members)
            if not limits.rows[j].planned:
                ledger.requests += 1
                book_hour(limits, limits.history, j, clock.rounds, cost[j])
                book_hour(limits, limits.held, j, clock.rounds, held)
    clock.left -= 1
    clock.rounds += 1
    for j in range(cost.size):  # a period of some contexts has as many requests of its own
        row = limits.rows[j]
        of_contexts = not row.planned and not row.total and row.window < 0
        if of_contexts and limits.ledgers[j].requests >= limits.period:
            close_window(limits, j, j)
    if clock.left == 0:
        begin_period(limits)


@jit_apart
def begin_period(limits: Limits) -> None:
    """Judge the period that is over, and begin the next one with nothing spent."""
    clock = limits.clock[0]
    clock.left = limits.period
    clock.first_before = clock.first
    clock.first = clock.rounds
    for j in range(limits.rows.size):
        if limits.rows[j].planned:
            close_window(limits, j, j)
