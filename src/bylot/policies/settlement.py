"""What panels cost in fact, where that is known only after they were booked as stated.

A panel that was never used cost nothing, and was no round of the period either.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bylot.policies.onesided import units
from bylot.problem import Problem


def correct(problem: Problem, rule: Any, state: Any, more: Mapping[str, float]) -> None:
    """Book in the current period what was spent beyond what was stated, by the names of costs.

    account.spent_j += -sign_j more_j / unit_j, so that pacing and guard go on from what was really
    spent. The guard promises that its rota will cost what is stated: where panels cost more than
    that, a period may end above a bound by what the rota was short of, and the next one begins with
    nothing spent all the same. Policies without an account steer by stated costs only.
    """
    guard = getattr(rule, "guard", None)
    if guard is not None:
        beyond = np.array([more.get(limit.name, 0.0) for limit in problem.limits])
        state.account.spent[:] -= problem.signs * beyond / units(problem)


def played(rule: Any, state: Any) -> int:
    """Rounds of the current period so far; 0 for policies without an account."""
    guard = getattr(rule, "guard", None)
    return 0 if guard is None else int(guard.period - state.account.left[0])


def take_back(problem: Problem, rule: Any, state: Any, spend: Mapping[str, float]) -> None:
    """A round of the current period, of this cost, was none: the period has one more to come.

    spent -= cost and left += 1, so that the account is of the rounds that are used. If the panel
    was cheaper than the rota's mean F, the rest of the period has up to F - cost less room than the
    guard counted on: where there was none to spare it plays its rota from here on, and the limit is
    told as out of reach.
    """
    correct(problem, rule, state, {name: -cost for name, cost in spend.items()})
    state.account.left[0] += 1
