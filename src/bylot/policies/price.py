"""What a limit costs: the prices of recent projections, over the lengths of their steps.

A step of length s maximises s <g, p> less a divergence, subject to the rows; the multiplier of a
row, over s, is thus in rewards per unit of the row. Summed over steps before it is divided, so that
short steps do not shout, and older ones fade.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats, compiled
from bylot.policies.onesided import units
from bylot.problem import Problem

FADING = 0.99  # of what a step weighs, at every later one


class Till(NamedTuple):
    """Prices and lengths, summed."""

    paid: Floats  # (d,)
    gone: Floats  # one number


def empty(rows: int) -> Till:
    """Nothing paid."""
    return Till(np.zeros(rows), np.zeros(1))


@compiled
def pay(till: Till, prices: Floats, s: float) -> None:
    """Book a step. One of no length has prices too, of limits in force that moved."""
    till.gone[0] = FADING * till.gone[0] + s
    for j in range(prices.size):
        till.paid[j] = FADING * till.paid[j] + prices[j]


def in_rewards(problem: Problem, till: Till, share: float = 1.0) -> Floats:
    """Rewards of [0, 1] per unit of each bound, of one-sided rows that were divided by `share`."""
    if till.gone[0] <= 0:
        return np.full(len(problem.limits), np.nan)
    per_row: Floats = till.paid / till.gone[0]
    return per_row / (units(problem) * share)
