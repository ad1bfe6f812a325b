"""Settlement: what calls really cost is booked in the window of their decision, and learned."""

import math
from collections.abc import Mapping

import numpy as np

from bylot.limits.costs import CostSurprise, clip_mean, is_uncertain, learn_cost, learn_noise
from bylot.limits.ledger import compute_allowance, compute_reserved_cost, find_allowance
from bylot.limits.records import FallbackSchedule, Limits
from bylot.limits.rows import compute_row_units
from bylot.limits.schedule import SCHEDULE_ROUNDS
from bylot.limits.schedule_planning import fill_schedule, find_quota
from bylot.limits.windows import book_hour
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.sampling import select_first
from bylot.problem import Problem

FIRST_PLAN_REPORTS = 10  # between two schedules, at least
LAST_PLAN_REPORTS = 500  # and at most
PLAN_GROWTH = 5  # or a fifth of all reports so far
RESERVE_TOLERANCE = 1e-9  # of a decision's reserve, by which sums of such may be rounded


@jit
def book_correction(limits: Limits, t: int, j: int, more: float) -> None:
    """Book in row j what decision t cost beyond what is booked, in its window.

    In the current one pacing and guard continue from it. The one before is judged again. Of an
    older one nothing is known any more. A limit that does not count this request ignores it.
    """
    if limits.place[j] < 0:
        return
    ledger = limits.ledgers[limits.place[j]]
    if not limits.rows[j].planned:
        book_hour(limits, limits.history, j, t, more)
    first, before = find_first_decisions(limits, j)
    if t >= first:
        ledger.spent += more
    elif t >= before:
        most = find_allowance(limits, j, ledger.requests_before)
        limits.learned[j].missed -= ledger.before > most
        ledger.before += more
        limits.learned[j].missed += ledger.before > most


@jit
def find_first_decisions(limits: Limits, j: int) -> tuple[int, int]:
    """Return the first decision of the current window of a limit, and of the one before."""
    if limits.rows[j].planned:
        return int(limits.clock[0].first), int(limits.clock[0].first_before)
    ledger = limits.ledgers[limits.place[j]]
    return int(ledger.first), int(ledger.first_before)


@jit
def change_reserve(limits: Limits, t: int, j: int, more: float) -> None:
    """Change what is reserved in row j for decision t, in its window."""
    if more == 0.0 or limits.place[j] < 0:
        return
    ledger = limits.ledgers[limits.place[j]]
    first, before = find_first_decisions(limits, j)
    if t >= first:
        ledger.reserved = add_to_reserve(ledger.reserved, more)
    elif t >= before:
        ledger.reserved_before = add_to_reserve(ledger.reserved_before, more)
    if not limits.rows[j].planned:
        book_hour(limits, limits.held, j, t, more)


@jit
def add_to_reserve(reserve: float, more: float) -> float:
    """Return the changed reserve, 0 where only a rounding error is left."""
    changed = reserve + more
    return changed if changed > RESERVE_TOLERANCE * abs(more) else 0.0


@jit
def settle_calls(
    limits: Limits, t: int, members: Ints, more: Floats, spend: Floats, held: Floats
) -> None:
    """Book and learn what decision t cost; of the costs given, nothing was reported before.

    members: distinct; more: (d,) beyond the declared costs, NaN: not reported; spend: (d, members)
    of each member, NaN: not reported; held: (d,) what is reserved for the decision, empty: as for
    one of now
    """
    clock = limits.clock[0]
    uncertain = False
    for j in range(more.size):
        if math.isnan(more[j]) or not limits.rows[j].varies:
            continue
        learn_calls(limits, j, members, more[j], spend[j])
        book_correction(limits, t, j, more[j])
        for i in members:
            sign = 1.0 if limits.rows[j].bound >= 0.0 else -1.0
            limits.means[j, i] = clip_mean(limits.means[j, i], limits.A[j, i], sign)
        limits.learned[j].reports += 1
        uncertain |= is_uncertain(limits, j)
        forget_calls(limits, t, j, members)
        reserved = held[j] if held.size > 0 else limits.excess[j][members].sum()
        change_reserve(limits, t, j, -reserved)
    clock.settled += 1
    if uncertain and clock.settled >= clock.next_plan:
        update_schedule(limits)


@jit
def learn_calls(limits: Limits, j: int, members: Ints, more: float, spend: Floats) -> None:
    """Learn the cost of each member that was reported, and of the others together by the rest."""
    total = more
    n = 0
    rest = np.empty(members.size, np.int64)
    error = 0.0
    squares = 0.0
    largest = 0.0
    for place in range(members.size):
        i = members[place]
        total += limits.A[j, i]
        if math.isnan(spend[place]):
            rest[n] = i
            n += 1
        else:
            found = learn_cost(limits, j, members[place : place + 1], spend[place])
            error += found.error
            squares += found.squares
            largest = max(largest, found.largest)
            total -= spend[place]
    if n > 0:
        found = learn_cost(limits, j, rest[:n], total)
        error += found.error
        squares += found.squares
        largest = max(largest, found.largest)
    learn_noise(limits, j, CostSurprise(error, squares, largest))


@jit
def forget_calls(limits: Limits, t: int, j: int, members: Ints) -> None:
    """Wait no longer for a bill of what these members cost in row j in decision t."""
    if limits.place[j] >= 0 and t >= find_first_decisions(limits, j)[0]:
        for i in members:
            limits.waiting[j, i] = max(limits.waiting[j, i] - 1, 0)


@jit
def release_calls(limits: Limits, t: int, rows: Ints, members: Ints, held: Floats) -> None:
    """Wait no longer for a bill of decision t in these rows, and release what is reserved for it.

    members: those that are still experts; held: (d,) in units of the rows
    """
    for j in rows:
        forget_calls(limits, t, j, members)
        change_reserve(limits, t, j, -held[j])


@jit
def correct_spend(limits: Limits, t: int, more: Floats) -> None:
    """Book what decision t cost beyond what is booked; more: (d,), NaN: nothing."""
    for j in range(more.size):
        if not math.isnan(more[j]):
            book_correction(limits, t, j, more[j])


@jit
def cancel_round(
    limits: Limits, t: int, less: Floats, members: Ints, held: Floats, in_period: bool
) -> None:
    """Undo decision t: spent -= cost in its window, and if it is of the current period there as
    well, which then has one more to come, left += 1.

    If the panel was cheaper than the schedule's mean F, the rest of the period has up to F - cost
    less slack than the guard counted on: without any to spare it plays the schedule from here on,
    and reports the limit as out of reach.

    less: (d,) the negated cost, NaN: none; members, held: as in `release_calls`
    """
    release_calls(limits, t, np.arange(limits.rows.size), members, held)
    for j in range(less.size):
        planned = limits.rows[j].planned
        if planned and not in_period:
            continue
        made = limits.clock[0].rounds if planned else t
        if not math.isnan(less[j]):
            book_correction(limits, made, j, less[j])
        if not planned and limits.place[j] >= 0 and t >= find_first_decisions(limits, j)[0]:
            ledger = limits.ledgers[limits.place[j]]
            ledger.requests = max(ledger.requests - 1, 0)
    limits.clock[0].left += in_period


@jit
def exchange_call(limits: Limits, t: int, failed: int, added: int, more: Floats) -> None:
    """Wait for a bill of what one expert cost in decision t instead of another.

    more: (d,) by which the reserve of the decision changes, in units of the rows
    """
    for j in range(limits.rows.size):
        if limits.place[j] >= 0 and t >= find_first_decisions(limits, j)[0]:
            limits.waiting[j, failed] = max(limits.waiting[j, failed] - 1, 0)
            limits.waiting[j, added] += limits.rows[j].column < 0
        change_reserve(limits, t, j, more[j])


@jit
def make_planning_rows(limits: Limits, means: Floats) -> Floats:
    """Return (d, K) the most that calls can cost where that is certain, else these means."""
    rows = means.copy()
    for j in range(rows.shape[0]):
        if limits.rows[j].certain and limits.rows[j].planned:
            rows[j, :] = limits.worst[j]
    return rows


@jit
def list_bounds(limits: Limits) -> Floats:
    """Return (d,) the bounds of the limits."""
    bounds = np.empty(limits.rows.size)
    for j in range(bounds.size):
        bounds[j] = limits.rows[j].bound
    return bounds


@jit
def make_empty_schedule(limits: Limits) -> FallbackSchedule:
    """Return room for a schedule of learned costs."""
    d, K = limits.A.shape
    return FallbackSchedule(
        np.empty((SCHEDULE_ROUNDS, limits.most), np.int64),
        np.empty(d),
        np.empty((SCHEDULE_ROUNDS, d)),
        np.empty(K),
    )


@jit
def update_schedule(limits: Limits) -> None:
    """Compute the schedule of the learned costs, and use it if that endangers no certain limit.

    A limit without a reserve, such as a share, was kept so far by the schedule in use: the new one
    must keep it too from here on, spent + n F + ahead <= P b, and in later periods from any of its
    places, P F + max ahead <= P b: what was saved in this period proves nothing about the next one.
    """
    clock = limits.clock[0]
    n = clock.left
    rows = make_planning_rows(limits, limits.means)
    margin, quota = find_quota(rows, list_bounds(limits), limits.fewest, limits.most)
    made = make_empty_schedule(limits)
    fill_schedule(made, quota, rows)
    safe = True
    for j in range(limits.rows.size):
        row = limits.rows[j]
        if row.planned and not is_uncertain(limits, j):
            later = compute_reserved_cost(limits, j) + n * made.mean[j]
            most = compute_allowance(limits.period, row.bound)
            safe &= limits.ledgers[j].spent + later + made.ahead[0, j] <= most
            safe &= limits.period * made.mean[j] + made.ahead[:, j].max() <= most
    if safe:
        use_schedule(limits, made)
        limits.planned[:, :] = limits.means
        clock.margin = margin
        clock.plans += 1
        clock.place = 0
    wait = min(max(clock.settled // PLAN_GROWTH, FIRST_PLAN_REPORTS), LAST_PLAN_REPORTS)
    clock.next_plan = clock.settled + wait


@jit
def use_schedule(limits: Limits, made: FallbackSchedule) -> None:
    """Write a schedule into the one in use."""
    cycle, width = made.sets.shape
    limits.sets[:cycle, :width] = made.sets
    limits.mean[:] = made.mean
    limits.ahead[:cycle, :] = made.ahead
    limits.quota[:] = made.quota
    limits.clock[0].cycle = cycle
    limits.clock[0].width = width


@jit
def derive_schedule(limits: Limits) -> None:
    """Compute the schedule in use again from the means that it was computed from."""
    if limits.clock[0].plans > 0:
        rows = make_planning_rows(limits, limits.planned)
        _, quota = find_quota(rows, list_bounds(limits), limits.fewest, limits.most)
        made = make_empty_schedule(limits)
        fill_schedule(made, quota, rows)
        use_schedule(limits, made)


def scale_corrections(problem: Problem, more: Mapping[str, float]) -> Floats:
    """(d,) amounts by name of the cost, in the signs and units of the rows; NaN: not named."""
    beyond = np.array([more.get(limit.name, np.nan) for limit in problem.limits])
    return np.asarray(-problem.signs * beyond / compute_row_units(problem))


def scale_spend(
    problem: Problem,
    draws: Ints,
    more: Mapping[str, float],
    by_member: Mapping[str, Mapping[str, float]],
) -> tuple[Ints, Floats, Floats]:
    """The members of a panel, what it cost, and what each member did, for `settle_calls`."""
    members = select_first(draws, draws)
    spend, turn = np.full((len(problem.limits), members.size), np.nan), -problem.signs
    names, units = [problem.experts[i] for i in members.tolist()], compute_row_units(problem)
    for j, limit in enumerate(problem.limits):
        if limit.name in by_member:
            known = by_member[limit.name]
            spend[j] = [turn[j] * known.get(name, np.nan) / units[j] for name in names]
    return members, scale_corrections(problem, more), spend


def scale_reserve(problem: Problem, held: Mapping[str, float]) -> Floats:
    """(d,) what is reserved for a decision, by name of the cost, in units of the rows."""
    named = np.array([held.get(limit.name, 0.0) * (limit.sign < 0) for limit in problem.limits])
    return np.asarray(named / compute_row_units(problem))
