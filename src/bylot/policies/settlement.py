"""What panels cost in fact, where that is known only after they were booked as stated."""

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
