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


def books(problem: Problem, rule: Any, state: Any) -> Books | None:
    """The account in the problem's own units and signs; None where no guard is at work.

    A limit is within reach if the guard's rota would still keep it, and so would those experts that
    were up at the last decision. One that is not is lost if even the panels that cost least under
    it, from all experts and in every round left, would end outside: spent + n least > P b.
    """
    guard = getattr(rule, "guard", None)
    if guard is None or not guard.on:
        return None
    account: Account = state.account
    unit = -problem.signs * units(problem)  # of the one-sided rows, in which nothing may be -0
    left, place = int(account.left[0]), int(account.place[0])
    played = guard.period - left
    most = [allowed(guard, j) for j in range(len(problem.limits))]
    reach = [
        account.spent[j] + owed(guard, left, place, j) <= most[j] and not account.short[j]
        for j in range(len(most))
    ]
    return Books(
        period=guard.period,
        played=played,
        spent=account.spent * unit / played + 0.0 if played else np.full(len(reach), np.nan),
        in_force=(state.bounds if played else guard.b) * unit + 0.0,  # a new period has none yet
        within_reach=np.array(reach, np.bool_),
        short=account.short,
        lost=~np.array(reach, np.bool_)
        & (account.spent + left * least(guard, problem.draws) > most),
        missed=account.missed,
        replaced=int(account.replaced[0]),
    )


def least(guard: Guard, draws: int) -> Floats:
    """What the panel that costs least under each row costs: of so many members, or of fewer, if it
    need not be full; of one at least.
    """
    ranked = np.sort(guard.A, axis=1)[:, :draws]
    if not guard.full:
        ranked[:, 1:] = np.minimum(ranked[:, 1:], 0.0)
    total: Floats = ranked.sum(axis=1)
    return total


def fair(guard: Guard, account: Account) -> bool:
    """Could this be an account of ours? Asked of files."""
    return bool(
        1 <= account.left[0] <= guard.period
        and 0 <= account.place[0] < len(guard.schedule.sets)
        and account.replaced[0] >= 0
        and (account.missed >= 0).all()
    )
