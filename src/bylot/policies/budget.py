"""The budget of the current period: its report, corrections, pacing, and change of problem."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.policies.base import BoundPolicy, ProblemChange
from bylot.policies.constraint_rows import compute_row_units
from bylot.policies.guard import (
    SUM_TOLERANCE,
    Budget,
    Guard,
    bound_schedule_cost,
    compute_allowance,
)
from bylot.problem import Problem


class BudgetReport(NamedTuple):
    """The current period; the arrays have an entry per limit."""

    period: int
    played: int  # rounds of it
    spent: Floats  # mean cost of these rounds; NaN before the first
    in_force: Floats  # the bound that panels are drawn under now
    within_reach: Bools  # can the limit still hold at the end of the period?
    short: Bools  # would the experts available at the last decision miss it?
    lost: Bools  # would any panels miss it, whoever is available?
    missed: Ints  # periods that ended outside the limit
    replaced: int  # panels that the guard replaced, in all periods

    def of(self, j: int) -> tuple[float | None, float, bool, bool, bool, int]:
        """One limit: mean cost (None before the first round), then the fields above in order."""
        mean = float(self.spent[j]) if self.played else None
        reach = bool(self.within_reach[j]), bool(self.short[j]), bool(self.lost[j])
        return mean, float(self.in_force[j]), *reach, int(self.missed[j])


def report_budget(problem: Problem, rule: Any, state: Any) -> BudgetReport | None:
    """The budget in the units and signs of the problem; None without a guard.

    A limit is within reach if the fallback schedule would still satisfy it, and so would the
    experts available at the last decision. It is lost if even the cheapest panels of all experts in
    every round left would end outside: spent + n least > P b.
    """
    guard = getattr(rule, "guard", None)
    if guard is None or not guard.on:
        return None
    budget: Budget = state.budget
    unit = -problem.signs * compute_row_units(problem)  # + 0.0 below turns -0 into 0
    left, place = int(budget.left[0]), int(budget.place[0])
    played = guard.period - left
    most = [compute_allowance(guard, j) for j in range(len(problem.limits))]
    reach = [
        budget.spent[j] + bound_schedule_cost(guard, left, place, j) <= most[j]
        and not budget.short[j]
        for j in range(len(most))
    ]
    return BudgetReport(
        period=guard.period,
        played=played,
        spent=budget.spent * unit / played + 0.0 if played else np.full(len(reach), np.nan),
        in_force=(state.bounds if played else guard.b) * unit + 0.0,  # a new period has none yet
        within_reach=np.array(reach, np.bool_),
        short=budget.short,
        lost=~np.array(reach, np.bool_)
        & (budget.spent + left * compute_min_panel_costs(guard, problem.draws) > most),
        missed=budget.missed,
        replaced=int(budget.replaced[0]),
    )


def compute_min_panel_costs(guard: Guard, draws: int) -> Floats:
    """The cost of the cheapest panel under each row: full, or of at least one member."""
    ranked = np.sort(guard.A, axis=1)[:, :draws]
    if not guard.full:
        ranked[:, 1:] = np.minimum(ranked[:, 1:], 0.0)
    total: Floats = ranked.sum(axis=1)
    return total


def is_valid_budget(guard: Guard, budget: Budget) -> bool:
    """Validate a budget loaded from disk."""
    return bool(
        1 <= budget.left[0] <= guard.period
        and 0 <= budget.place[0] < len(guard.schedule.sets)
        and budget.replaced[0] >= 0
        and (budget.missed >= 0).all()
    )


def correct_spend(problem: Problem, rule: Any, state: Any, more: Mapping[str, float]) -> None:
    """Charge the current period what was spent beyond the stated costs, by cost name.

    spent_j += -sign_j more_j / unit_j, so that pacing and guard continue from what was really
    spent. The guarantee assumes that the schedule costs what is stated: if panels cost more, a
    period may end above a bound by the difference. Policies without a budget use stated costs only.
    """
    guard = getattr(rule, "guard", None)
    if guard is not None:
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
    """Continue the current period under another guard.

    A limit with the same bound keeps what was spent or saved; of one with another bound only the
    overspend is kept, as savings were made under another bound; a new one counts as just satisfied.
    """
    guard, budget = old.rule.guard, old.state.budget
    over, (here, there) = np.zeros(new.rule.guard.b.size), change.limits
    same = change.old.bounds[here] == change.new.bounds[there]
    unit, units = compute_row_units(change.old)[here], compute_row_units(change.new)[there]
    spent = budget.spent - (guard.period - budget.left[0]) * guard.b  # beyond the bounds so far
    more = spent[here] * unit / units
    over[there] = np.where(same, more, np.maximum(more, 0.0))
    continue_period(guard, budget, new.rule.guard, new.state.budget, over)


def continue_period(old: Guard, was: Budget, new: Guard, now: Budget, over: Floats) -> None:
    """Set n rounds of the period as played, at spent = n b + over.

    over: the overspend so far, in units of the new rows

    The other P - n rounds must suffice for the guard and its schedule from place 0:
    over + (P - n) F + ahead <= (P - n) b. So n is the number of rounds played, or less: then the
    period ends later. An overspend that a whole period cannot make up for is dropped and counts as
    a missed period.
    """
    room, ahead, least = new.b - new.schedule.mean, new.schedule.ahead[0], 1
    if new.on:
        most = np.maximum(new.period * room - ahead, 0.0)
        now.missed[:] += over > most + SUM_TOLERANCE * new.period * np.abs(new.b)
        over = np.minimum(over, most)
        short = over + ahead > SUM_TOLERANCE * np.abs(new.b)
        needed = (over + ahead)[short] / np.maximum(room[short], SUM_TOLERANCE)
        least = math.ceil(min(float(needed.max(initial=1.0)), new.period))
    n = min(old.period - int(was.left[0]), new.period - least)
    now.left[0] = new.period - n
    now.spent[:] = n * new.b + over


DEFAULT_PACE = 1.25  # by which a limit may be loosened after cheap rounds; 1: not at all


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


def check_pace(pace: Any) -> None:
    """Raise if the pace is not a factor in [1, 2] or None."""
    number = isinstance(pace, (int, float)) and not isinstance(pace, bool)
    if pace is not None and not (number and 1 <= pace <= 2):
        raise PolicyError(
            "setting pace",
            got=pace,
            expected="a factor from 1 to 2, or None for fixed bounds",
            remedy=f"the default is {DEFAULT_PACE}",
        )


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
