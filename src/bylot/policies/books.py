"""What a policy that guards its limits can tell of them, in the units they were given in."""

from typing import Any, NamedTuple

import numpy as np

from bylot.kernels.compile import Bools, Floats, Ints
from bylot.policies.guard import Account, Guard, allowed, owed
from bylot.policies.onesided import units
from bylot.problem import Problem


class Books(NamedTuple):
    """The current period; the arrays have an entry per limit."""

    period: int
    played: int  # rounds of it
    spent: Floats  # mean cost of these rounds; NaN before the first
    in_force: Floats  # the bound that panels are drawn under now
    within_reach: Bools  # can the limit still be kept at the period's end?
    missed: Ints  # periods that ended outside the limit
    replaced: int  # panels that the guard replaced, in all periods

    def of(self, j: int) -> tuple[float | None, float, bool, int]:
        """One limit: its mean cost, None before the first round, the bound in force, the reach, and
        how many periods missed it.
        """
        mean = float(self.spent[j]) if self.played else None
        return mean, float(self.in_force[j]), bool(self.within_reach[j]), int(self.missed[j])


def books(problem: Problem, rule: Any, state: Any) -> Books | None:
    """The account in the problem's own units and signs; None where no guard is at work.

    A limit is within reach if the guard's rota would still keep it, and so would those experts that
    were up at the last decision.
    """
    guard = getattr(rule, "guard", None)
    if guard is None or not guard.on:
        return None
    account: Account = state.account
    unit = -problem.signs * units(problem)  # of the one-sided rows, in which nothing may be -0
    left, place = int(account.left[0]), int(account.place[0])
    played = guard.period - left
    reach = [
        account.spent[j] + owed(guard, left, place, j) <= allowed(guard, j) and not account.short[j]
        for j in range(len(problem.limits))
    ]
    return Books(
        period=guard.period,
        played=played,
        spent=account.spent * unit / played + 0.0 if played else np.full(len(reach), np.nan),
        in_force=(state.bounds if played else guard.b) * unit + 0.0,  # a new period has none yet
        within_reach=np.array(reach, np.bool_),
        missed=account.missed,
        replaced=int(account.replaced[0]),
    )


def fair(guard: Guard, account: Account) -> bool:
    """Could this be an account of ours? Asked of files."""
    return bool(
        1 <= account.left[0] <= guard.period
        and 0 <= account.place[0] < len(guard.schedule.sets)
        and account.replaced[0] >= 0
        and (account.missed >= 0).all()
    )
