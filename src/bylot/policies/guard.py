"""The guard: a panel is played only if the rest of the period can still keep every limit.

The rest is what the fallback schedule would cost from its next place on, which is known exactly.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.kernels.compile import Floats, Ints, compiled
from bylot.kernels.draw import add_cost
from bylot.policies.onesided import Rows
from bylot.policies.schedule import Schedule

ROUNDING = 5e-13  # of a bound, which a sum of a period's costs may be off by


class Guard(NamedTuple):
    """A period of P rounds, its one-sided limits A p <= b, and the schedule to fall back on."""

    period: int
    A: Floats  # (d, K)
    b: Floats  # (d,)
    schedule: Schedule


class Account(NamedTuple):
    """What was spent in this period, and where the schedule stands."""

    spent: Floats  # (d,), in units of the one-sided rows
    left: Ints  # rounds of this period still to play, this one included
    place: Ints  # of the schedule, to be played next
    replaced: Ints  # rounds in which the guard played the schedule instead, in all periods


def guarded(rows: Rows, schedule: Schedule, period: int) -> Guard:
    """The guard of a period, if that is long enough for it to promise anything."""
    shortest = shortest_period(rows, schedule)
    if period < shortest:
        least = f"at least {shortest:,}" if shortest < math.inf else "limits that leave some room"
        raise PolicyError(
            f"a period of {period:,} rounds is too short to promise the limits at its end; "
            f"give {least}"
        )
    return Guard(period, rows.A, rows.b, schedule)


def shortest_period(rows: Rows, schedule: Schedule) -> float:
    """The least P with P F_j + max_s ahead_sj <= P b_j for all limits; infinite if there is none.

    >>> from bylot.policies.schedule import schedule
    >>> rows = Rows(np.array([[1.0, 0.0]]), np.array([0.75]))
    >>> shortest_period(rows, schedule(np.array([0.5, 0.5]), rows.A, cycle=2))
    2
    """
    room, ahead = rows.b - schedule.mean, schedule.ahead.max(axis=0, initial=0.0)
    tight = ahead > 0
    if (room[tight] <= 0).any() or (room < -ROUNDING * np.abs(rows.b)).any():
        return math.inf
    return max(1, math.ceil(float((ahead[tight] / room[tight]).max(initial=1.0)) - ROUNDING))


def opened(guard: Guard) -> Account:
    """An account before the first round."""
    return Account(
        spent=np.zeros(guard.b.size),
        left=np.full(1, guard.period),
        place=np.zeros(1, np.int64),
        replaced=np.zeros(1, np.int64),
    )


@compiled
def cost_of(A: Floats, members: Ints) -> Floats:
    """What a panel costs under each row."""
    cost = np.zeros(A.shape[0])
    add_cost(cost, A, members)
    return cost


@compiled
def safe(guard: Guard, account: Account, cost: Floats) -> bool:
    """Can the schedule still keep every limit after a round of this cost?

    spent + cost + n F + ahead <= P b with n rounds left after it. If that holds before a round, the
    schedule's own next set keeps it (ahead is the most its walk can rise), so by induction from the
    period's start it holds at its end, n = 0, whatever was drawn in between.
    """
    n, P = account.left[0] - 1, guard.period
    mean, ahead = guard.schedule.mean, guard.schedule.ahead
    for j in range(cost.size):
        rest = n * mean[j] + ahead[account.place[0], j] if n > 0 else 0.0
        if account.spent[j] + cost[j] + rest > P * guard.b[j] + ROUNDING * P * abs(guard.b[j]):
            return False
    return True


@compiled
def settle(guard: Guard, account: Account, cost: Floats, fallback: bool) -> None:
    """Book a round; after the last of a period the next one begins with nothing spent."""
    for j in range(cost.size):
        account.spent[j] += cost[j]
    if fallback:
        account.place[0] = (account.place[0] + 1) % guard.schedule.sets.shape[0]
        account.replaced[0] += 1
    account.left[0] -= 1
    if account.left[0] == 0:
        account.left[0] = guard.period
        for j in range(cost.size):
            account.spent[j] = 0.0
