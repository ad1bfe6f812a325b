"""What a policy that guards its limits can tell of them, in the units they were given in."""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Bools, Floats
from bylot.policies.guard import Account, Guard, allowed, owed
from bylot.problem import Problem


class Books(NamedTuple):
    """The current period; the arrays have an entry per limit."""

    period: int
    played: int  # rounds of it
    spent: Floats  # mean cost of these rounds; NaN before the first
    in_force: Floats  # the bound that panels are drawn under now
    within_reach: Bools  # can the limit still be kept at the period's end?
    replaced: int  # panels that the guard replaced, in all periods


def books(problem: Problem, guard: Guard, account: Account, in_force: Floats) -> Books:
    """The account in the problem's own units and signs."""
    unit = -problem.signs * problem.peaks  # of the one-sided rows
    left, place = int(account.left[0]), int(account.place[0])
    played = guard.period - left
    reach = [
        account.spent[j] + owed(guard, left, place, j) <= allowed(guard, j)
        for j in range(len(problem.limits))
    ]
    return Books(
        period=guard.period,
        played=played,
        spent=account.spent * unit / played if played else np.full(len(reach), np.nan),
        in_force=in_force * unit,
        within_reach=np.array(reach, np.bool_),
        replaced=int(account.replaced[0]),
    )


def fair(guard: Guard, account: Account) -> bool:
    """Could this be an account of ours? Asked of files."""
    return bool(
        1 <= account.left[0] <= guard.period
        and 0 <= account.place[0] < len(guard.schedule.sets)
        and account.replaced[0] >= 0
    )
