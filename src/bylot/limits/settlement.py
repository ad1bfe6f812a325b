"""Settlement: what calls really cost is booked in the period of their decision, and learned."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bylot.limits.budget import (
    Budget,
    Guard,
    compute_allowance,
    compute_reserved_cost,
    find_allowance,
    migrate_period,
)
from bylot.limits.costs import (
    CostSurprise,
    clip_mean,
    is_uncertain,
    learn_cost,
    learn_noise,
)
from bylot.limits.rows import compute_row_units
from bylot.limits.schedule import FallbackSchedule
from bylot.limits.schedule_planning import fill_schedule, find_quota
from bylot.limits.windows import PERIOD, book_hour
from bylot.numerics.dispatch import dispatch_by_type
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.sampling import select_first
from bylot.problem import Problem
from bylot.problem.change import BoundPolicy, ProblemChange

FIRST_PLAN_REPORTS, LAST_PLAN_REPORTS = 10, 500  # between two schedules, at least and at most
PLAN_GROWTH = 5  # or a fifth of all reports so far
RESERVE_TOLERANCE = 1e-9  # of a decision's reserve, by which sums of such may be rounded


@jit
def book_correction(guard: Guard, budget: Budget, t: int, j: int, more: float) -> None:
    """Book in row j what decision t cost beyond what is booked, in its period or window.

    In the current one pacing and guard continue from it. The one before is judged again. Of an
    older one nothing is known any more. A limit that does not count this request ignores it.
    """
    if not budget.windows.applies[j]:
        return
    if guard.windows.kind[j] != PERIOD:
        book_hour(budget.windows, budget.windows.history, j, t, more)
    first, before = find_first_decisions(guard, budget, j)
    if t >= first:
        budget.spent[j] += more
    elif t >= before:
        most = find_allowance(guard, budget, j, budget.windows.requests_before[j])
        budget.missed[j] -= budget.before[j] > most
        budget.before[j] += more
        budget.missed[j] += budget.before[j] > most


@jit
def find_first_decisions(guard: Guard, budget: Budget, j: int) -> tuple[int, int]:
    """The first decision of the current period or window of a limit, and of the one before."""
    if guard.windows.kind[j] == PERIOD:
        return int(budget.rounds[1]), int(budget.rounds[2])
    return int(budget.windows.first[j, 0]), int(budget.windows.first[j, 1])


@jit
def change_reserve(guard: Guard, budget: Budget, t: int, j: int, more: float) -> None:
    """Change what is reserved in row j for decision t, in its period or window."""
    if more == 0.0 or not budget.windows.applies[j]:
        return
    first, before = find_first_decisions(guard, budget, j)
    if t >= first:
        budget.costs.open[j] = add_to_reserve(budget.costs.open[j], more)
    elif t >= before:
        budget.costs.open_before[j] = add_to_reserve(budget.costs.open_before[j], more)
    if guard.windows.kind[j] != PERIOD:
        book_hour(budget.windows, budget.windows.held, j, t, more)


@jit
def add_to_reserve(reserve: float, more: float) -> float:
    """Return the changed reserve, 0 where only a rounding error is left."""
    changed = reserve + more
    return changed if changed > RESERVE_TOLERANCE * abs(more) else 0.0


@jit
def settle_calls(
    guard: Guard,
    budget: Budget,
    t: int,
    members: Ints,
    more: Floats,
    spend: Floats,
    held: Floats,
) -> None:
    """Book and learn what decision t cost; of the costs given, nothing was reported before.

    members: distinct; more: (d,) beyond the declared costs, NaN: not reported; spend: (d, members)
    of each member, NaN: not reported; held: (d,) what is reserved for the decision, empty: as for
    one of now
    """
    risk, costs, uncertain = guard.risk, budget.costs, False
    for j in range(more.size):
        if math.isnan(more[j]) or not risk.varies[j]:
            continue
        learn_calls(guard, budget, j, members, more[j], spend[j])
        book_correction(guard, budget, t, j, more[j])
        for i in members:
            sign = 1.0 if guard.b[j] >= 0.0 else -1.0
            costs.means[j, i] = clip_mean(costs.means[j, i], guard.A[j, i], sign)
        costs.reports[j] += 1
        uncertain |= is_uncertain(risk, costs, j)
        forget_calls(guard, budget, t, j, members)
        reserved = held[j] if held.size > 0 else risk.excess[j][members].sum()
        change_reserve(guard, budget, t, j, -reserved)
    costs.plans[0] += 1
    if uncertain and costs.plans[0] >= costs.plans[1]:
        update_schedule(guard, budget)


def settle(
    rule: Any, state: Any, t: int, members: Ints, more: Floats, spend: Floats, held: Floats
) -> None:
    """`settle_calls` of a policy with a budget; nothing for others, which use declared costs."""
    raise NotImplementedError("compiled code only")


def ignore_settlement(
    rule: Any, state: Any, t: int, members: Ints, more: Floats, spend: Floats, held: Floats
) -> None:
    """`settle`: nothing."""


def settle_budget(
    rule: Any, state: Any, t: int, members: Ints, more: Floats, spend: Floats, held: Floats
) -> None:
    """`settle`: in the budget of the state."""
    settle_calls(rule.guard, state.budget, t, members, more, spend, held)


dispatch_by_type(settle, default=ignore_settlement)


@jit
def learn_calls(
    guard: Guard, budget: Budget, j: int, members: Ints, more: float, spend: Floats
) -> None:
    """Learn the cost of each member that was reported, and of the others together by the rest."""
    total, n, rest = more, 0, np.empty(members.size, np.int64)
    error, squares, largest = 0.0, 0.0, 0.0
    for place in range(members.size):
        i = members[place]
        total += guard.A[j, i]
        if math.isnan(spend[place]):
            rest[n] = i
            n += 1
        else:
            one = members[place : place + 1]
            found = learn_cost(guard.risk, budget.costs, j, one, spend[place])
            error, squares = error + found.error, squares + found.squares
            largest = max(largest, found.largest)
            total -= spend[place]
    if n > 0:
        found = learn_cost(guard.risk, budget.costs, j, rest[:n], total)
        error, squares = error + found.error, squares + found.squares
        largest = max(largest, found.largest)
    learn_noise(budget.costs, j, CostSurprise(error, squares, largest))


@jit
def forget_calls(guard: Guard, budget: Budget, t: int, j: int, members: Ints) -> None:
    """Wait no longer for a report of what these members cost in row j in decision t."""
    waiting, of_now = budget.costs.waiting, t >= find_first_decisions(guard, budget, j)[0]
    if of_now and budget.windows.applies[j]:
        for i in members:
            waiting[j, i] = max(waiting[j, i] - 1, 0)


@jit
def make_planning_rows(guard: Guard, means: Floats) -> Floats:
    """(d, K) the most that calls can cost under limits that are certain, else these means."""
    rows = means.copy()
    for j in range(rows.shape[0]):
        if guard.risk.certain[j] and guard.windows.kind[j] == PERIOD:
            rows[j, :] = guard.risk.worst[j]
    return rows


@jit
def update_schedule(guard: Guard, budget: Budget) -> None:
    """Compute the schedule of the learned costs, and use it if that endangers no certain limit.

    A limit without a reserve, such as a share, was kept so far by the schedule in use: the new one
    must keep it too from here on, spent + n F + ahead <= P b, and in later periods from any of its
    places, P F + max ahead <= P b: what was saved in this period proves nothing about the next one.
    """
    costs, n = budget.costs, budget.left[0]
    rows = make_planning_rows(guard, costs.means)
    margin, quota = find_quota(rows, guard.b, guard.fewest, guard.most)
    old = costs.schedule
    made = FallbackSchedule(
        np.empty_like(old.sets), np.empty_like(old.mean), old.ahead.copy(), old.quota.copy()
    )
    fill_schedule(made, quota, rows)
    safe = True
    for j in range(guard.b.size):
        if guard.windows.kind[j] == PERIOD and not is_uncertain(guard.risk, costs, j):
            later = compute_reserved_cost(guard, budget, j) + n * made.mean[j]
            most = compute_allowance(guard.period, guard.b[j])
            safe &= budget.spent[j] + later + made.ahead[0, j] <= most
            safe &= guard.period * made.mean[j] + made.ahead[:, j].max() <= most
    if safe:
        copy_schedule(made, old)
        costs.planned[:, :] = costs.means
        costs.margin[0] = margin
        costs.plans[2] += 1
        budget.place[0] = 0
    wait = min(max(costs.plans[0] // PLAN_GROWTH, FIRST_PLAN_REPORTS), LAST_PLAN_REPORTS)
    costs.plans[1] = costs.plans[0] + wait


@jit
def copy_schedule(made: FallbackSchedule, out: FallbackSchedule) -> None:
    """Write one schedule into another."""
    out.sets[:, :] = made.sets
    out.mean[:] = made.mean
    out.ahead[:, :] = made.ahead
    out.quota[:] = made.quota


@jit
def derive_schedule(guard: Guard, budget: Budget) -> None:
    """Compute the schedule in use again from the means that it was computed from."""
    if budget.costs.plans[2] > 0:
        rows = make_planning_rows(guard, budget.costs.planned)
        _, quota = find_quota(rows, guard.b, guard.fewest, guard.most)
        fill_schedule(budget.costs.schedule, quota, rows)


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


def release_calls(
    rule: Any, state: Any, t: int, rows: Iterable[int], members: Ints, held: Floats
) -> None:
    """Wait no longer for a report of decision t in these rows, and release what is reserved for it.

    members: those that are still experts; held: (d,) in units of the rows
    """
    for j in rows:
        forget_calls(rule.guard, state.budget, t, j, members)
        change_reserve(rule.guard, state.budget, t, j, -float(held[j]))


def correct_spend(
    problem: Problem, rule: Any, state: Any, more: Mapping[str, float], t: int | None = None
) -> None:
    """Charge the period of decision t, by default the current one, what was spent beyond what is
    booked, by cost name: spent_j += -sign_j more_j / unit_j. Pacing and guard continue from there.
    Policies without a budget use declared costs only.
    """
    guard = getattr(rule, "guard", None)
    if guard is not None:
        at = int(state.budget.rounds[0]) if t is None else t
        for j, amount in enumerate(scale_corrections(problem, more).tolist()):
            if not math.isnan(amount):
                book_correction(guard, state.budget, at, j, amount)


def cancel_round(
    problem: Problem,
    rule: Any,
    state: Any,
    t: int,
    spend: Mapping[str, float],
    members: Ints,
    held: Floats,
    in_period: bool,
) -> None:
    """Undo decision t of this cost: spent -= cost in its window, and if it is of the current period
    there as well, which then has one more to come, left += 1.

    If the panel was cheaper than the schedule's mean F, the rest of the period has up to F - cost
    less slack than the guard counted on: without any to spare it plays the schedule from here on,
    and reports the limit as out of reach.

    members, held: as in `release_calls`
    """
    guard, budget, now = rule.guard, state.budget, int(state.budget.rounds[0])
    release_calls(rule, state, t, range(guard.b.size), members, held)
    less = scale_corrections(problem, {name: -cost for name, cost in spend.items()})
    for j, amount in enumerate(less.tolist()):
        plain = guard.windows.kind[j] == PERIOD
        if plain and not in_period:
            continue
        made = now if plain else t
        if not math.isnan(amount):
            book_correction(guard, budget, made, j, amount)
        if not plain and budget.windows.applies[j] and t >= budget.windows.first[j, 0]:
            budget.windows.requests[j] = max(budget.windows.requests[j] - 1, 0)
    budget.left[0] += in_period


def exchange_call(rule: Any, state: Any, t: int, failed: int, added: int, more: Floats) -> None:
    """Wait for a report of what one expert cost in decision t instead of another.

    more: (d,) by which the reserve of the decision changes, in units of the rows
    """
    guard, budget = rule.guard, state.budget
    for j in range(guard.b.size):
        if budget.windows.applies[j] and t >= find_first_decisions(guard, budget, j)[0]:
            forget_calls(guard, budget, t, j, np.array([failed], np.int64))
            budget.costs.waiting[j, added] += not guard.windows.scoped[j]
        change_reserve(guard, budget, t, j, float(more[j]))


def continue_period(change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
    """Continue the current period under another guard, with the schedule of the learned costs."""
    migrate_period(change, old, new)
    if new.state.budget.costs.reports.any():
        update_schedule(new.rule.guard, new.state.budget)
