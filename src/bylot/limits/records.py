"""The arrays of limits: what each is in numbers, and what has happened under it.

`LimitRule` holds what is declared, `LimitState` what has happened. Compiled code gets both as one
pointer, `Limits`, whose type is the same for every problem and policy, so that what takes only a
`Limits` is compiled once.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.experimental import structref

from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_entry

F8, I8, B1 = np.float64, np.int64, np.bool_

ROW = np.dtype(
    [
        ("bound", F8),  # per request, in units of the row; negative for a minimum
        ("unit", F8),  # of the row, in that of the cost
        ("amount", F8),  # what a window may cost, of a total
        ("low", F8),  # the least bound in force, of a total
        ("aside", F8),  # what each request to come needs at least, of a total
        ("kappa", F8),  # by which the costs of two panels can differ
        ("cheapest", F8),  # what a panel costs at least
        ("length", F8),  # microseconds of an average window
        ("window", I8),  # place among the calendars; -1: none
        ("scope", I8),  # whose ledger it is: place among the scopes
        ("column", I8),  # place among the rows that have a ledger for each key; -1: none
        ("inner", I8),  # the total on the same cost in shorter windows; -1: none
        ("total", B1),  # is the bound for the sum of a window?
        ("planned", B1),  # is the number of requests to come known? Then the schedule covers them
        ("filtered", B1),  # does it count the requests of some contexts only?
        ("fewer", B1),  # may panels get smaller when a total is nearly spent?
        ("varies", B1),  # is it a declared cost, which a call may exceed?
        ("certain", B1),  # is it kept whatever calls cost, up to their largest costs?
    ],
    align=True,
)
"""A limit in numbers: one-sided, in a unit of its own, negated for a minimum."""

LEDGER = np.dtype(
    [
        ("spent", F8),  # in this window, in units of the row; as declared until it is reported
        ("before", F8),  # in the window before
        ("reserved", F8),  # what decisions without a bill can cost beyond what is booked
        ("reserved_before", F8),  # the same in the window before
        ("amount", F8),  # what this window may cost, of a total; NO_AMOUNT: as the row says
        ("share", F8),  # of all requests that count here
        ("to_come", F8),  # requests of this window that will count, the next one included
        ("start", I8),  # of the window in microseconds, of the ledger of a key; 0: there was none
        ("start_before", I8),
        ("requests", I8),  # of this window
        ("requests_before", I8),
        ("first", I8),  # decisions before this window
        ("first_before", I8),  # and before the window before
    ],
    align=True,
)
"""What was spent under one limit in its current window, by everybody or by one key.

A key is the name of one tenant, or of whatever else limits are for each of."""

KEY = np.dtype([("slot", I8), ("known", I8)], align=True)
"""The key of a request in one scope: where its ledgers are, and how many keys there are."""

LEARNED = np.dtype(
    [
        ("noise", F8),  # squared errors of reports
        ("squares", F8),  # and the squared means that they belong to
        ("peak", F8),  # the largest excess of a report over its mean, in sizes of the largest call
        ("dearest", F8),  # what the dearest of the last panels costs; it fades
        ("reports", I8),  # decisions whose cost was reported
        ("missed", I8),  # windows that ended outside: by an outage, or by what calls cost
        ("since", I8),  # the first decision that the hourly history counts
        ("short", B1),  # would the available experts miss the limit?
    ],
    align=True,
)
"""What is known about one limit, of all its ledgers."""

WINDOW = np.dtype(
    [
        ("place", I8),  # of the current window in the table of edges
        ("previous", I8),  # when the window before began
        ("requests", I8),  # all requests of this window
        ("requests_before", I8),
        ("ahead", F8),  # all requests to come in it
    ],
    align=True,
)
"""Where the windows of one calendar stand."""

HOUR = np.dtype([("mean", F8), ("weeks", F8), ("rate", F8), ("before", F8)], align=True)
"""Requests in one hour of the week: their mean, over how many weeks, how many are expected, and how
many in all hours of the week before it."""

CLOCK = np.dtype(
    [
        ("rounds", I8),  # decisions so far
        ("first", I8),  # before this period
        ("first_before", I8),  # before the period before
        ("left", I8),  # rounds of this period still to play, this one included
        ("place", I8),  # of the schedule, to be played next
        ("cycle", I8),  # sets of the schedule
        ("width", I8),  # places of each set
        ("replaced", I8),  # rounds in which the guard replaced the proposed panel
        ("asked", I8),  # requests, rounded up when the problem changes: bounds are then due
        ("settled", I8),  # decisions
        ("next_plan", I8),  # settled decisions after which the next schedule is due
        ("plans", I8),  # schedules of learned costs that were put to use
        ("margin", F8),  # of the schedule of learned costs
        ("now", I8),  # the time of the last request
        ("hour", I8),  # the last hour of the history, since 1970
        ("local_hour", I8),  # of the last request, since 1970; -1: there was none
        ("first_hour", I8),
        ("first_at", I8),  # local time of the first request
        ("last_at", I8),  # and of the last one
        ("hour_requests", F8),  # of this local hour
        ("all_requests", F8),
        ("recent", F8),  # requests of the last minutes
        ("usual", F8),  # and those that are usual; both fade
        ("alarm", B1),  # is any limit short?
        ("begun", B1),  # has a window begun since bounds were set?
    ],
    align=True,
)
"""Where period, schedule, learned costs and traffic stand."""

NO_AMOUNT = -1.0
Records = npt.NDArray[Any]


class FallbackSchedule(NamedTuple):
    """L sets, one per round, repeated.

    With a_s = A 1[set s] the cost of its rounds under the one-sided rows and F their mean, n rounds
    from place s on cost at most n F + ahead[s], whatever n is.
    """

    sets: Ints  # (L, m); one of fewer than m members names its first again
    mean: Floats  # (d,) F
    ahead: Floats  # (L, d)
    quota: Floats  # (K,) the share of the rounds in which each expert is asked


class LimitRule(NamedTuple):
    """What is declared. Nothing writes into it."""

    rows: Records  # (d,) of ROW
    A: Floats  # (d, K) costs of a call as declared, in units of the rows
    worst: Floats  # (d, K) the most that a call can cost, where that is certain; else A
    scale: Floats  # (d, K) the size of the declared cost, never 0
    excess: Floats  # (d, K) of the largest cost of a call over the declared one; 0: no largest
    schedule: FallbackSchedule  # of the declared costs
    on: bool  # off: it keeps the ledgers, and admits every panel
    fewest: int  # members of a panel, if as many are available
    most: int
    draws: int
    period: int
    high: float  # factor by which bounds in force may exceed limits; 0: bounds do not move
    margin: float  # of Slater; half of it is kept, so that rows stay feasible
    columns: int  # rows that have a ledger for each key
    paced: int  # requests after which bounds in force are set again; 0: never
    traffic: float  # requests per day that are expected at first; 0: unknown


class LimitState(NamedTuple):
    """What has happened, d limits and K experts."""

    ledgers: Records  # (2 d + slots x columns,) of LEDGER: everybody's, empty ones, those of keys
    keys: Records  # (scopes,) of KEY, of this request
    place: Ints  # (d,) the ledger of each limit for this request; -1: it does not count it
    counts: Bools  # (X, d) which limits count requests of each context; (0, d): all do
    learned: Records  # (d,) of LEARNED
    means: Floats  # (d, K) of one call; as declared before the first report
    weight: Floats  # (d, K) reports that each mean counts as
    waiting: Ints  # (d, K) calls of this window whose cost was not reported
    planned: Floats  # (d, K) the means that the schedule was computed from
    sets: Ints  # (L, m) the schedule in use, of which `clock` has the size
    mean: Floats  # (d,)
    ahead: Floats  # (L, d)
    quota: Floats  # (K,)
    bounds: Floats  # (d,) in force
    clock: Records  # one CLOCK
    windows: Records  # (calendars,) of WINDOW
    edges: Ints  # (calendars, 64) instants at which windows begin, from some past one on
    offsets: Ints  # (64,) of local time over UTC, at the edges of the first calendar
    hours: Records  # (169,) of HOUR; (0,) without windows
    history: Floats  # (d, 768) what the last hours cost under each total; (0, 768) without windows
    held: Floats  # (d, 768) what is reserved for decisions of these hours; (0, 768) likewise
    hour_first: Ints  # (768,) decisions before each of these hours; (0,) without windows


class LimitTables(NamedTuple):
    """Rule and state."""

    rule: LimitRule
    state: LimitState

    @property
    def follows_clock(self) -> bool:
        """Whether the time of a request matters: rows have windows of the calendar."""
        return self.state.windows.size > 0

    @property
    def reads_labels(self) -> bool:
        """Whether it depends on the labels of a request in which ledgers it counts."""
        return self.rule.columns > 0 or len(self.state.counts) > 0


@structref.register
class LimitsType(types.StructRef):  # type: ignore[misc]
    """The compiled side of `Limits`."""


RULE_FIELDS = tuple(name for name in LimitRule._fields if name not in ("schedule", "traffic"))
FIELDS = (*RULE_FIELDS, *LimitState._fields)


class Limits(structref.StructRefProxy):  # type: ignore[misc]
    """Rule and state in one pointer: the arrays of both, not copies."""


structref.define_proxy(Limits, LimitsType, list(FIELDS))


@jit_entry
def point_to_limits(rule: LimitRule, state: LimitState) -> Limits:
    """Return a pointer; the constructor of numba's proxy would be compiled in every process."""
    return Limits(
        rule.rows,
        rule.A,
        rule.worst,
        rule.scale,
        rule.excess,
        rule.on,
        rule.fewest,
        rule.most,
        rule.draws,
        rule.period,
        rule.high,
        rule.margin,
        rule.columns,
        rule.paced,
        state.ledgers,
        state.keys,
        state.place,
        state.counts,
        state.learned,
        state.means,
        state.weight,
        state.waiting,
        state.planned,
        state.sets,
        state.mean,
        state.ahead,
        state.quota,
        state.bounds,
        state.clock,
        state.windows,
        state.edges,
        state.offsets,
        state.hours,
        state.history,
        state.held,
        state.hour_first,
    )


@jit
def get_ledger(limits: Limits, j: int) -> Any:
    """Return the ledger of limit j for this request, or everybody's if the limit has no place."""
    place = limits.place[j]
    return limits.ledgers[place if place >= 0 else j]


@jit
def find_amount(limits: Limits, j: int) -> float:
    """Return what the window of a total may cost in the ledger of this request."""
    return choose_amount(limits, j, get_ledger(limits, j).amount)


@jit
def choose_amount(limits: Limits, j: int, amount: float) -> float:
    """Return the amount of a ledger, or that of its limit if it has none of its own."""
    return float(limits.rows[j].amount if amount == NO_AMOUNT else amount)
