"""The budget of the current period: what it may cost, what it did, and how it is paced."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_scalar
from bylot.policies.base import BoundPolicy, ProblemChange
from bylot.policies.constraint_rows import ConstraintRows, compute_row_units
from bylot.policies.fallback_schedule import SUM_TOLERANCE, FallbackSchedule
from bylot.policies.validation import SettingKind, is_number_in
from bylot.problem import Problem


class Guard(NamedTuple):
    """A period of P rounds, its one-sided limits A p <= b, and the schedule to fall back on."""

    on: bool  # off: it keeps the budget, and admits every panel
    fewest: int  # members of a panel, if as many are available
    period: int
    A: Floats  # (d, K)
    b: Floats  # (d,)
    schedule: FallbackSchedule

    @property
    def rows(self) -> ConstraintRows:
        """The limits."""
        return ConstraintRows(self.A, self.b)


class Budget(NamedTuple):
    """What was spent in this period, and the position in the schedule."""

    spent: Floats  # (d,), in units of the one-sided rows
    left: Ints  # rounds of this period still to play, this one included
    place: Ints  # of the schedule, to be played next
    replaced: Ints  # rounds in which the guard played the schedule instead, in all periods
    missed: Ints  # (d,) periods that ended outside a limit, which takes an outage
    short: Bools  # (d,) would the available experts miss a limit?
    alarm: Bools  # any of them? Asked in every round, which a call would make slow

    def migrate(self, new: "Budget", change: ProblemChange) -> None:
        """Counts go on, but for a limit whose bound changed; `migrate_period` does the rest."""
        new.replaced[:] = self.replaced
        here, there = change.limits
        same = change.old.bounds[here] == change.new.bounds[there]
        new.missed[there[same]] = self.missed[here[same]]

    def is_valid(self, rule: Any) -> bool:
        place, sets = self.place[0], rule.guard.schedule.sets
        counted = self.replaced[0] >= 0 and (self.missed >= 0).all()
        return bool(1 <= self.left[0] <= rule.guard.period and 0 <= place < len(sets) and counted)


def open_budget(guard: Guard) -> Budget:
    """The budget before the first round."""
    return Budget(
        spent=np.zeros(guard.b.size),
        left=np.full(1, guard.period),
        place=np.zeros(1, np.int64),
        replaced=np.zeros(1, np.int64),
        missed=np.zeros(guard.b.size, np.int64),
        short=np.zeros(guard.b.size, np.bool_),
        alarm=np.zeros(1, np.bool_),
    )


@jit
def get_mean_rows(guard: Guard, budget: Budget) -> Floats:
    """(d, K) what a call of each expert costs on average, in the signs and units of the rows."""
    return guard.A


@jit_scalar
def bound_schedule_cost(n: int, mean: float, ahead: float) -> float:
    """The most that n rounds of the schedule from a place on can cost at any time: n F + ahead."""
    return n * mean + ahead if n > 0 else 0.0


@jit_scalar
def compute_allowance(period: int, b: float) -> float:
    """What a period may cost under a limit, P b, up to rounding."""
    return float(period * b + SUM_TOLERANCE * period * abs(b))


@jit
def book_round(guard: Guard, budget: Budget, cost: Floats) -> None:
    """Charge a round; after the last of a period the next one begins with nothing spent."""
    for j in range(cost.size):
        budget.spent[j] += cost[j]
    budget.left[0] -= 1
    if budget.left[0] == 0:
        budget.left[0] = guard.period
        for j in range(cost.size):
            budget.missed[j] += budget.spent[j] > compute_allowance(guard.period, guard.b[j])
            budget.spent[j] = 0.0


class LimitInPeriod(Struct, frozen=True):
    """One limit in the current period, at whose end the guard enforces it."""

    mean: float | None  # over the decisions of this period; None before the first
    in_force: float  # the bound that panels are drawn under now
    within_reach: bool  # the guard and the experts available last can still meet the limit
    short: bool  # the experts available last would miss it
    lost: bool  # every panel at stated cost would miss it, whichever experts are available
    missed: int  # periods that ended outside the limit since it has this bound


class BudgetReport(NamedTuple):
    """The current period, and every limit in it."""

    period: int
    played: int  # rounds of it
    replaced: int  # panels that the guard replaced, in all periods
    limits: list[LimitInPeriod]


def report_budget(problem: Problem, rule: Any, state: Any) -> BudgetReport | None:
    """The budget in the units and signs of the problem; None without a guard.

    A limit is within reach if the fallback schedule would still satisfy it, and so would the
    experts available at the last decision. It is lost if even the cheapest panels of all experts in
    every round left would end outside: spent + n least > P b.
    """
    guard: Guard | None = getattr(rule, "guard", None)
    if guard is None or not guard.on:
        return None
    budget: Budget = state.budget
    unit = -problem.signs * compute_row_units(problem)  # + 0.0 below turns -0 into 0
    left, place = int(budget.left[0]), int(budget.place[0])
    played, least = guard.period - left, compute_min_panel_costs(guard, problem.draws)
    bounds = state.bounds if played else guard.b  # a new period has none in force yet
    limits, ahead = [], guard.schedule.ahead[place]
    for j, spent in enumerate(budget.spent):
        most, short = compute_allowance(guard.period, guard.b[j]), bool(budget.short[j])
        later = bound_schedule_cost(left, guard.schedule.mean[j], ahead[j])
        reach = bool(spent + later <= most) and not short
        mean = float(spent * unit[j] / played + 0.0) if played else None
        lost = not reach and bool(spent + left * least[j] > most)
        in_force = float(bounds[j] * unit[j] + 0.0)
        limits.append(LimitInPeriod(mean, in_force, reach, short, lost, int(budget.missed[j])))
    return BudgetReport(guard.period, played, int(budget.replaced[0]), limits)


def compute_min_panel_costs(guard: Guard, draws: int) -> Floats:
    """The cost of the cheapest panel of at most so many members under each row."""
    ranked = np.sort(guard.A, axis=1)[:, :draws]
    ranked[:, guard.fewest :] = np.minimum(ranked[:, guard.fewest :], 0.0)
    return np.asarray(ranked.sum(axis=1))


def correct_spend(problem: Problem, rule: Any, state: Any, more: Mapping[str, float]) -> None:
    """Charge the current period what was spent beyond the stated costs, by cost name.

    spent_j += -sign_j more_j / unit_j, so that pacing and guard continue from what was really
    spent. The guarantee assumes that the schedule costs what is stated: if panels cost more, a
    period may end above a bound by the difference. Policies without a budget use stated costs only.
    """
    if getattr(rule, "guard", None) is not None:
        beyond = np.array([more.get(limit.name, 0.0) for limit in problem.limits])
        state.budget.spent[:] -= problem.signs * beyond / compute_row_units(problem)


def count_played_rounds(rule: Any, state: Any) -> int:
    """Rounds of the current period so far; 0 for policies without a budget."""
    guard = getattr(rule, "guard", None)
    return 0 if guard is None else int(guard.period - state.budget.left[0])


def cancel_round(problem: Problem, rule: Any, state: Any, spend: Mapping[str, float]) -> None:
    """Undo a round of the current period of this cost: spent -= cost and left += 1.

    If the panel was cheaper than the schedule's mean F, the rest of the period has up to F - cost
    less slack than the guard counted on: without any to spare it plays the schedule from here on,
    and reports the limit as out of reach.
    """
    correct_spend(problem, rule, state, {name: -cost for name, cost in spend.items()})
    state.budget.left[0] += 1


def migrate_period(change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
    """Continue the current period under another guard: n rounds played, at spent = n b + over.

    A limit with the same bound keeps what was spent or saved; of one with another bound only the
    overspend is kept, as savings were made under another bound; a new one counts as just satisfied.

    The other P - n rounds must suffice for the guard and its schedule from place 0:
    over + (P - n) F + ahead <= (P - n) b. So n is the number of rounds played, or less: then the
    period ends later. An overspend that a whole period cannot make up for is dropped and counts as
    a missed period.
    """
    was, now, budget = old.rule.guard, new.rule.guard, new.state.budget
    over, (here, there), played = np.zeros(now.b.size), change.limits, count_played_rounds(*old[1:])
    same = change.old.bounds[here] == change.new.bounds[there]
    unit, units = compute_row_units(change.old)[here], compute_row_units(change.new)[there]
    more = (old.state.budget.spent - played * was.b)[here] * unit / units  # beyond the bounds
    over[there] = np.where(same, more, np.maximum(more, 0.0))
    least = 1
    if now.on:
        room, ahead = now.b - now.schedule.mean, now.schedule.ahead[0]
        most = np.maximum(now.period * room - ahead, 0.0)
        budget.missed[:] += over > most + SUM_TOLERANCE * now.period * np.abs(now.b)
        over = np.minimum(over, most)
        short = over + ahead > SUM_TOLERANCE * np.abs(now.b)
        needed = (over + ahead)[short] / np.maximum(room[short], SUM_TOLERANCE)
        least = math.ceil(min(float(needed.max(initial=1.0)), now.period))
    n = min(played, now.period - least)
    budget.left[0] = now.period - n
    budget.spent[:] = n * now.b + over


DEFAULT_PACE = 1.25  # by which a limit may be loosened after cheap rounds; 1: not at all
PACE_SETTING = SettingKind(
    "a factor from 1 to 2, or None for fixed bounds",
    lambda value: value is None or is_number_in(value, 1, 2),
)


class Pace(NamedTuple):
    """How far bounds in force may differ from the limits."""

    high: float  # factor; 0: bounds do not move
    margin: float  # of Slater; half of it is kept, so that rows stay feasible
    most: Floats  # (d,) kappa, by which the costs of two rounds can differ


def make_pace(pace: float | None, margin: float, A: Floats, members: int, full: bool) -> Pace:
    """The pace for panels of so many members, or at most so many. What every expert costs is in all
    full panels and needs no reserve.

    >>> make_pace(1.25, 0.1, np.array([[1000.0, 1001.0]]), members=2, full=True).most
    array([2.])
    """
    dearest = np.ptp(A, axis=1) if full else np.abs(A).max(axis=1)
    return Pace(0.0 if pace is None else float(pace), margin, members * dearest)


@jit
def fill_paced_bounds(bounds: Floats, guard: Guard, budget: Budget, pace: Pace) -> None:
    """Write b'_j = (P b_j - kappa_j - spent_j) / n, clipped to b_j - margin/2 |b_j| and
    b_j + (high - 1) |b_j|, with n of P rounds left. A minimum that this period has reached already
    no longer binds.
    """
    P, n = guard.period, budget.left[0]
    for j in range(bounds.size):
        b = guard.b[j]
        bounds[j] = b
        if pace.high > 0.0:
            fair = (P * b - pace.most[j] - budget.spent[j]) / n
            low, high = b - 0.5 * pace.margin * abs(b), b + (pace.high - 1.0) * abs(b)
            bounds[j] = min(max(fair, low), high)
            if b < 0.0 and pace.high > 1.0 and budget.spent[j] <= P * b:
                bounds[j] = 0.0
