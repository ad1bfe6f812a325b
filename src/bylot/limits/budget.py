"""The budget of the current period or window: what it may cost, and what it did."""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.limits.costs import (
    CostRisk,
    LearnedCosts,
    compute_open_cost,
    compute_reserve,
    get_guarded_row,
    is_varying,
    migrate_learned_costs,
    start_learned_costs,
)
from bylot.limits.rows import ConstraintRows, compute_row_units
from bylot.limits.schedule import SUM_TOLERANCE, FallbackSchedule
from bylot.limits.windows import (
    HISTORY_HOURS,
    MEAN,
    PERIOD,
    TOTAL,
    WindowRule,
    WindowState,
    book_hour,
    count_requests,
    enter_hour,
    enter_window,
    learn_group_shares,
    make_window_state,
)
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_scalar
from bylot.numerics.sampling import is_first_draw
from bylot.problem.change import BoundPolicy, ProblemChange


class Guard(NamedTuple):
    """A period of P rounds, its one-sided limits A p <= b, and the schedule to fall back on."""

    on: bool  # off: it keeps the budget, and admits every panel
    fewest: int  # members of a panel, if as many are available
    most: int
    period: int
    A: Floats  # (d, K) as declared
    b: Floats  # (d,)
    risk: CostRisk
    windows: WindowRule
    schedule: FallbackSchedule

    @property
    def rows(self) -> ConstraintRows:
        """The limits."""
        return ConstraintRows(self.A, self.b)


class Budget(NamedTuple):
    """What was spent in this period or window, and the position in the schedule."""

    spent: Floats  # (d,), in units of the one-sided rows; as declared until it is reported
    before: Floats  # (d,) in the period or window before
    rounds: Ints  # so far; before this period; before the period before
    left: Ints  # rounds of this period still to play, this one included
    place: Ints  # of the schedule, to be played next
    replaced: Ints  # rounds in which the guard replaced the drawn panel, in all periods
    missed: Ints  # (d,) those that ended outside a limit: by an outage, or by what calls cost
    short: Bools  # (d,) would the available experts miss a limit?
    alarm: Bools  # any of them? Asked in every round, which a call would make slow
    costs: LearnedCosts
    windows: WindowState

    def migrate(self, new: "Budget", change: ProblemChange) -> None:
        """Counts go on, but for a limit whose bound changed; `migrate_period` does the rest."""
        new.replaced[:] = self.replaced
        here, there = change.limits
        same = change.same_limits
        new.missed[there[same]] = self.missed[here[same]]
        new.rounds[:] = self.rounds
        scoped = np.array([limit.scope is not None for limit in change.new.limits], np.bool_)
        new.windows.first[~scoped] = self.rounds[0]
        new.windows.since[:] = self.rounds[0]
        migrate_learned_costs(self.costs, new.costs, change)
        self.windows.migrate(new.windows, change)
        migrate_reserves(self.costs, new, change)

    def is_valid(self, rule: Any) -> bool:
        place, sets = self.place[0], get_schedule(rule.guard, self).sets
        counted = self.replaced[0] >= 0 and (self.missed >= 0).all() and self.costs.is_valid()
        placed = 1 <= self.left[0] <= rule.guard.period and 0 <= place < len(sets)
        return bool(placed and counted and self.windows.is_valid(rule))


def migrate_reserves(old: LearnedCosts, new: Budget, change: ProblemChange) -> None:
    """Keep the reserves of decisions without a report, which no edit changes.

    That of a new window is computed by `begin_new_windows`; those of tenants are in their ledgers.
    A new limit in periods, or the first largest costs of a limit, count all calls that are out.
    """
    units, new_units = compute_row_units(change.old), compute_row_units(change.new)
    known = {limit.key for limit in change.old.limits if limit.name in change.old.max_costs}
    for i, j in zip(*(places.tolist() for places in change.limits), strict=True):
        new.costs.open[j] = old.open[i] * units[i] / new_units[j]
        new.costs.open_before[j] = old.open_before[i] * units[i] / new_units[j]
    matched = change.limits[1].tolist()
    for j, limit in enumerate(change.new.limits):
        in_periods = limit.per is None and not limit.where
        largest = change.new.max_costs.get(limit.name)
        is_new = limit.key not in known and (in_periods or j in matched)
        if largest is not None and limit.sign < 0 and limit.scope is None and is_new:
            excess = (largest - change.new.costs[limit.name]) / new_units[j]
            more = max(float(new.costs.waiting[j] @ excess) - float(new.costs.open[j]), 0.0)
            new.costs.open[j] += more
            if len(new.windows.held):
                new.windows.held[j, new.windows.hour[0] % HISTORY_HOURS] += more


def open_budget(guard: Guard, contexts: int) -> Budget:
    """The budget before the first round."""
    return Budget(
        spent=np.zeros(guard.b.size),
        before=np.zeros(guard.b.size),
        rounds=np.zeros(3, np.int64),
        left=np.full(1, guard.period),
        place=np.zeros(1, np.int64),
        replaced=np.zeros(1, np.int64),
        missed=np.zeros(guard.b.size, np.int64),
        short=np.zeros(guard.b.size, np.bool_),
        alarm=np.zeros(1, np.bool_),
        costs=start_learned_costs(guard.A, guard.risk, guard.most),
        windows=make_window_state(guard.windows, contexts),
    )


@jit
def get_mean_rows(guard: Guard, budget: Budget) -> Floats:
    """(d, K) what a call of each expert costs on average, in the signs and units of the rows."""
    return budget.costs.means


@jit
def get_schedule(guard: Guard, budget: Budget) -> FallbackSchedule:
    """The fallback schedule in use: of the declared costs, or of learned ones."""
    return budget.costs.schedule if budget.costs.plans[2] > 0 else guard.schedule


@jit
def compute_guarded_cost(guard: Guard, budget: Budget, members: Ints) -> Floats:
    """(d,) what the guard counts a panel as under each row."""
    cost = np.empty(guard.b.size)
    fill_guarded_cost(cost, guard, budget, members)
    return cost


@jit_apart
def fill_guarded_cost(cost: Floats, guard: Guard, budget: Budget, members: Ints) -> None:
    """Write `compute_guarded_cost`."""
    for j in range(cost.size):
        row, cost[j] = get_guarded_row(guard.risk, budget.costs, j), 0.0
        for place in range(members.size):
            cost[j] += row[members[place]] if is_first_draw(members, place) else 0.0


@jit_embedded
def compute_later_cost(
    guard: Guard, budget: Budget, j: int, n: int, place: int, members: Ints
) -> float:
    """What is to be set aside in row j for n rounds of the schedule, and for what is not known yet:
    the cost of calls without a report, of a panel about to be asked, and of the rounds themselves.
    """
    if is_varying(guard.risk, budget.costs, j):
        return compute_varying_later_cost(guard, budget, j, n, place, members)
    if budget.costs.plans[2] > 0:
        plan = budget.costs.schedule
        return bound_schedule_cost(n, plan.mean[j], plan.ahead[place, j])
    return bound_schedule_cost(n, guard.schedule.mean[j], guard.schedule.ahead[place, j])


@jit_apart
def compute_varying_later_cost(
    guard: Guard, budget: Budget, j: int, n: int, place: int, members: Ints
) -> float:
    """`compute_later_cost` of a row whose calls may cost more or less than declared."""
    plan, costs = get_schedule(guard, budget), budget.costs
    row, mean = get_guarded_row(guard.risk, costs, j), plan.mean[j]
    more = compute_reserved_cost(guard, budget, j)
    if not guard.risk.certain[j]:
        more += compute_reserve(guard.risk, costs, j, n, plan.quota, members)
        mean = 0.0
        for i in range(row.size):
            mean += plan.quota[i] * row[i]
    return bound_schedule_cost(n, mean, plan.ahead[place, j]) + more


@jit
def compute_reserved_cost(guard: Guard, budget: Budget, j: int) -> float:
    """What calls without a report may cost beyond what is booked: at most if the limit is certain,
    else as expected.
    """
    if guard.risk.certain[j]:
        return float(budget.costs.open[j])
    return compute_open_cost(budget.costs, j, budget.costs.means[j], guard.A[j])


@jit_scalar
def bound_schedule_cost(n: int, mean: float, ahead: float) -> float:
    """The most that n rounds of the schedule from a place on can cost at any time: n F + ahead."""
    return n * mean + ahead if n > 0 else 0.0


@jit_scalar
def compute_allowance(period: int, b: float) -> float:
    """What a period may cost under a limit, P b, up to rounding."""
    return float(period * b + SUM_TOLERANCE * period * abs(b))


@jit_embedded
def find_allowance(guard: Guard, budget: Budget, j: int, requests: int) -> float:
    """What the current period or window may cost under a limit.

    requests: of the window, if the limit is on an average in it
    """
    kind = guard.windows.kind[j]
    if kind == TOTAL:
        return float(budget.windows.amount[j] * (1.0 + SUM_TOLERANCE))
    return compute_allowance(requests if kind == MEAN else guard.period, guard.b[j])


@jit
def advance_windows(guard: Guard, budget: Budget, at: int) -> None:
    """Close the windows that are over at this instant, and count the request."""
    windows = budget.windows
    enter_hour(windows, at, budget.rounds[0])
    for c in range(windows.place.size):
        start = windows.edges[c, windows.place[c]]
        if enter_window(windows, c, at):
            windows.begun[0] = True
            windows.previous[c] = start
            windows.passed[c, 1] = windows.passed[c, 0]
            windows.passed[c, 0] = 0
            for j in range(guard.b.size):
                if guard.windows.calendar[j] == c:
                    close_window(guard, budget, j)
    count_requests(windows, at, 1.0)
    learn_group_shares(guard.windows, windows, budget.rounds[0])
    windows.now[0] = at


@jit_apart
def close_window(guard: Guard, budget: Budget, j: int) -> None:
    """Judge the window of a limit, and begin the next one with nothing spent."""
    windows, waiting = budget.windows, budget.costs.waiting
    budget.missed[j] += budget.spent[j] > find_allowance(guard, budget, j, windows.requests[j])
    budget.before[j] = budget.spent[j]
    budget.spent[j] = 0.0
    windows.requests_before[j] = windows.requests[j]
    windows.requests[j] = 0
    windows.first[j, 1] = windows.first[j, 0]
    windows.first[j, 0] = budget.rounds[0]
    budget.costs.open_before[j] = budget.costs.open[j]
    budget.costs.open[j] = 0.0
    for i in range(waiting.shape[1]):
        waiting[j, i] = 0


@jit_embedded
def wait_for_report(guard: Guard, budget: Budget, j: int, members: Ints) -> float:
    """Wait for a report of what a panel costs in row j, and return what it may cost more than
    declared. Calls of each expert are not counted for single tenants.
    """
    held = 0.0
    for place in range(members.size):
        if is_first_draw(members, place):
            held += guard.risk.excess[j, members[place]]
            if not guard.windows.scoped[j]:
                budget.costs.waiting[j, members[place]] += 1
    budget.costs.open[j] += held
    return held


@jit_embedded
def book_round(guard: Guard, budget: Budget, members: Ints, cost: Floats) -> None:
    """Charge a round; after the last of a period the next one begins with nothing spent."""
    kind, windows = guard.windows.kind, budget.windows
    for j in range(cost.size):
        if windows.applies[j]:
            budget.spent[j] += cost[j]
            held = wait_for_report(guard, budget, j, members)
            if kind[j] != PERIOD:
                windows.requests[j] += 1
                book_hour(windows, windows.history, j, budget.rounds[0], cost[j])
                book_hour(windows, windows.held, j, budget.rounds[0], held)
    budget.left[0] -= 1
    budget.rounds[0] += 1
    for j in range(cost.size):  # a period of a group has as many requests of its own
        of_group = kind[j] == MEAN and guard.windows.calendar[j] < 0
        if of_group and windows.requests[j] >= guard.period:
            close_window(guard, budget, j)
    if budget.left[0] == 0:
        begin_period(guard, budget)


@jit_apart
def begin_period(guard: Guard, budget: Budget) -> None:
    """Judge the period that is over, and begin the next one with nothing spent."""
    waiting = budget.costs.waiting
    budget.left[0] = guard.period
    budget.rounds[2] = budget.rounds[1]
    budget.rounds[1] = budget.rounds[0]
    for j in range(guard.b.size):
        if guard.windows.kind[j] != PERIOD:
            continue
        budget.missed[j] += budget.spent[j] > compute_allowance(guard.period, guard.b[j])
        budget.before[j] = budget.spent[j]
        budget.spent[j] = 0.0
        budget.costs.open[j] = 0.0
        for i in range(waiting.shape[1]):
            waiting[j, i] = 0


def count_played_rounds(rule: Any, state: Any) -> int:
    """Rounds of the current period so far; 0 for policies without a budget."""
    guard = getattr(rule, "guard", None)
    return 0 if guard is None else int(guard.period - state.budget.left[0])


def migrate_period(change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
    """Continue the current period under another guard: n rounds played, at spent = n b + over.

    A limit with the same bound keeps what was spent or saved; of one with another bound only the
    overspend is kept, as savings were made under another bound; a new one counts as just satisfied.

    The other P - n rounds must suffice for the guard and its schedule from place 0, also for what
    calls without a report may cost beyond what is booked, open:
    over + open + (P - n) F + ahead <= (P - n) b. So n is the number of rounds played, or less: then
    the period ends later. An overspend that a whole period cannot make up for is dropped and counts
    as a missed period.
    """
    was, now, budget = old.rule.guard, new.rule.guard, new.state.budget
    over, (here, there), played = np.zeros(now.b.size), change.limits, count_played_rounds(*old[1:])
    same, in_period = change.same_limits, now.windows.kind == PERIOD
    unit, units = compute_row_units(change.old)[here], compute_row_units(change.new)[there]
    more = (old.state.budget.spent - played * was.b)[here] * unit / units  # beyond the bounds
    later = np.where(in_period, compute_open_costs(now, budget), 0.0)
    over[there] = np.where(same, more, np.maximum(more, -np.maximum(later[there], 0.0)))
    over = np.where(in_period, over, 0.0)
    least = 1
    if now.on:
        room, ahead = now.b - now.schedule.mean, np.where(in_period, now.schedule.ahead[0], 0.0)
        most = np.maximum(now.period * room - ahead, 0.0)
        budget.missed[:] += over > most + SUM_TOLERANCE * now.period * np.abs(now.b)
        over = np.minimum(over, most)
        ahead = ahead + later
        short = over + ahead > SUM_TOLERANCE * np.abs(now.b)
        needed = (over + ahead)[short] / np.maximum(room[short], SUM_TOLERANCE)
        least = math.ceil(min(float(needed.max(initial=1.0)), now.period))
    n = min(played, now.period - least)
    budget.left[0] = now.period - n
    budget.spent[:] = np.where(in_period, n * now.b + over, 0.0)
    migrate_window_spend(change, old, new)


def migrate_window_spend(change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
    """Keep what was spent in windows that go on, and in those before them if bounds are the same;
    `begin_new_windows` says what others have spent.
    """
    was, now, kinds = old.state.budget, new.state.budget, new.rule.guard.windows.kind
    units = compute_row_units(change.old), compute_row_units(change.new)
    pairs = zip(*(one.tolist() for one in change.limits), change.same_limits.tolist(), strict=True)
    for i, j, same in pairs:
        if kinds[j] != PERIOD and change.old.limits[i].calendar == change.new.limits[j].calendar:
            ratio = units[0][i] / units[1][j]
            now.spent[j], now.before[j] = was.spent[i] * ratio, was.before[i] * ratio
            if not same:
                now.before[j], now.windows.first[j, 1] = 0.0, now.windows.first[j, 0]


def compute_open_costs(guard: Guard, budget: Budget) -> Floats:
    """(d,) what calls without a report may cost beyond what is booked, as the guard counts them."""
    open_costs = np.zeros(guard.b.size)
    for j in range(guard.b.size):
        if is_varying(guard.risk, budget.costs, j):
            open_costs[j] = compute_reserved_cost(guard, budget, j)
    return open_costs
