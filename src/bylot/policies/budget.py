"""What a policy that guards its limits can tell of them, in the units they were given in."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.jit import Bools, Floats, Ints, jit
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
    within_reach: Bools  # can the limit still be kept at the period's end?
    short: Bools  # would those who were up at the last decision miss it?
    lost: Bools  # would any panels miss it, whoever is up?
    missed: Ints  # periods that ended outside the limit
    replaced: int  # panels that the guard replaced, in all periods

    def of(self, j: int) -> tuple[float | None, float, bool, bool, bool, int]:
        """One limit: its mean cost, None before the first round, the bound in force, the reach, who
        would miss it, and how many periods did.
        """
        mean = float(self.spent[j]) if self.played else None
        reach = bool(self.within_reach[j]), bool(self.short[j]), bool(self.lost[j])
        return mean, float(self.in_force[j]), *reach, int(self.missed[j])


def report_budget(problem: Problem, rule: Any, state: Any) -> BudgetReport | None:
    """The account in the problem's own units and signs; None where no guard is at work.

    A limit is within reach if the guard's rota would still keep it, and so would those experts that
    were up at the last decision. One that is not is lost if even the panels that cost least under
    it, from all experts and in every round left, would end outside: spent + n least > P b.
    """
    guard = getattr(rule, "guard", None)
    if guard is None or not guard.on:
        return None
    account: Budget = state.account
    unit = -problem.signs * compute_row_units(
        problem
    )  # of the one-sided rows, in which nothing may be -0
    left, place = int(account.left[0]), int(account.place[0])
    played = guard.period - left
    most = [compute_allowance(guard, j) for j in range(len(problem.limits))]
    reach = [
        account.spent[j] + bound_schedule_cost(guard, left, place, j) <= most[j]
        and not account.short[j]
        for j in range(len(most))
    ]
    return BudgetReport(
        period=guard.period,
        played=played,
        spent=account.spent * unit / played + 0.0 if played else np.full(len(reach), np.nan),
        in_force=(state.bounds if played else guard.b) * unit + 0.0,  # a new period has none yet
        within_reach=np.array(reach, np.bool_),
        short=account.short,
        lost=~np.array(reach, np.bool_)
        & (account.spent + left * compute_min_panel_costs(guard, problem.draws) > most),
        missed=account.missed,
        replaced=int(account.replaced[0]),
    )


def compute_min_panel_costs(guard: Guard, draws: int) -> Floats:
    """What the panel that costs least under each row costs: of so many members, or of fewer, if it
    need not be full; of one at least.
    """
    ranked = np.sort(guard.A, axis=1)[:, :draws]
    if not guard.full:
        ranked[:, 1:] = np.minimum(ranked[:, 1:], 0.0)
    total: Floats = ranked.sum(axis=1)
    return total


def is_valid_budget(guard: Guard, account: Budget) -> bool:
    """Could this be an account of ours? Asked of files."""
    return bool(
        1 <= account.left[0] <= guard.period
        and 0 <= account.place[0] < len(guard.schedule.sets)
        and account.replaced[0] >= 0
        and (account.missed >= 0).all()
    )


def correct_spend(problem: Problem, rule: Any, state: Any, more: Mapping[str, float]) -> None:
    """Book in the current period what was spent beyond what was stated, by the names of costs.

    account.spent_j += -sign_j more_j / unit_j, so that pacing and guard go on from what was really
    spent. The guard promises that its rota will cost what is stated: where panels cost more than
    that, a period may end above a bound by what the rota was short of, and the next one begins with
    nothing spent all the same. Policies without an account steer by stated costs only.
    """
    guard = getattr(rule, "guard", None)
    if guard is not None:
        beyond = np.array([more.get(limit.name, 0.0) for limit in problem.limits])
        state.account.spent[:] -= problem.signs * beyond / compute_row_units(problem)


def count_played_rounds(rule: Any, state: Any) -> int:
    """Rounds of the current period so far; 0 for policies without an account."""
    guard = getattr(rule, "guard", None)
    return 0 if guard is None else int(guard.period - state.account.left[0])


def cancel_round(problem: Problem, rule: Any, state: Any, spend: Mapping[str, float]) -> None:
    """A round of the current period, of this cost, was none: the period has one more to come.

    spent -= cost and left += 1, so that the account is of the rounds that are used. If the panel
    was cheaper than the rota's mean F, the rest of the period has up to F - cost less room than the
    guard counted on: where there was none to spare it plays its rota from here on, and the limit is
    told as out of reach.
    """
    correct_spend(problem, rule, state, {name: -cost for name, cost in spend.items()})
    state.account.left[0] += 1


def continue_period(old: Guard, was: Budget, new: Guard, now: Budget, over: Floats) -> None:
    """Go on with the period of another guard: n rounds of it are played, at spent = n b + over.

    over: what was spent beyond the bounds so far, in units of the new rows (`compute_overspend`)

    The rest, P - n rounds, must do for the guard to keep its promise with its rota from place 0 on:
    over + (P - n) F + ahead <= (P - n) b. So n is the rounds that were played, or fewer: then the
    period ends later. What not even a whole period can make up for is let go, and counts as a
    period that missed the limit.
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


def compute_overspend(guard: Guard, account: Budget) -> Floats:
    """What the rounds of this period cost beyond its bounds, spent - n b; negative: less."""
    played: Floats = account.spent - (guard.period - account.left[0]) * guard.b
    return played


DEFAULT_PACE = 1.25  # how far a limit may be loosened after frugal rounds; 1 keeps it as it is


class Pace(NamedTuple):
    """How far limits in force may leave the limits."""

    high: float  # HI; 0: they do not move at all
    margin: float  # of Slater, half of which is never used up, so that rows stay feasible
    most: Floats  # (d,) kappa, that one round can cost more than another


def make_pace(pace: float | None, margin: float, A: Floats, members: int, full: bool) -> Pace:
    """The pace of laws whose panels have so many members, or if they need not be full, at most so
    many: what every expert costs is in all full panels, and no reason for any reserve.

    >>> make_pace(1.25, 0.1, np.array([[1000.0, 1001.0]]), members=2, full=True).most
    array([2.])
    """
    dearest = np.ptp(A, axis=1) if full else np.abs(A).max(axis=1)
    return Pace(0.0 if pace is None else float(pace), margin, members * dearest)


def check_pace(pace: Any) -> None:
    """Refuse a pace that is none."""
    number = isinstance(pace, (int, float)) and not isinstance(pace, bool)
    if pace is not None and not (number and 1 <= pace <= 2):
        raise PolicyError(
            f"pace={pace!r} is no factor between 1 and 2; the default is {DEFAULT_PACE}, 1 keeps every round "
            "inside the limits in expectation, None holds limits as they are"
        )


@jit
def fill_paced_bounds(bounds: Floats, guard: Guard, account: Budget, pace: Pace) -> None:
    """Write b'_j = (P b_j - kappa_j - spent_j) / n, clipped to b_j - margin/2 |b_j| and
    b_j + (HI - 1) |b_j|, for one-sided limits A p <= b with n of P rounds left. A minimum that this
    period has reached already is none for the rest of it.
    """
    P, n = guard.period, account.left[0]
    for j in range(bounds.size):
        b = guard.b[j]
        bounds[j] = b
        if pace.high > 0.0:
            fair = (P * b - pace.most[j] - account.spent[j]) / n
            low, high = b - 0.5 * pace.margin * abs(b), b + (pace.high - 1.0) * abs(b)
            bounds[j] = min(max(fair, low), high)
            if b < 0.0 and pace.high > 1.0 and account.spent[j] <= P * b:
                bounds[j] = 0.0
