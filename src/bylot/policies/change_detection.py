"""A test for an abrupt fall of rewards, after which a policy starts to learn anew.

Page's cumulative sums of (baseline - reward) / sd - drift, one for each of three sizes of a fall.
With independent rewards, a million of them pass between two false alarms.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, jit

FALL_DRIFTS = np.array([0.5, 0.2, 0.07])  # in standard deviations of a reward
FALL_LIMITS = np.array([12.6, 31.5, 77.0])  # of the sums
PRIOR_REWARDS = 20.0  # of the initial variance
VARIANCE_RATE = 0.002  # per reward; more until there are 1 / rate
INITIAL_VARIANCE, MIN_VARIANCE = 0.1, 1e-6


class ChangeTest(NamedTuple):
    """A row per distribution that moves."""

    sums: Floats  # (R, 3)
    arrived: Floats  # (R,) rewards since the last step
    excess: Floats  # (R,) their sum beyond the baselines
    squares: Floats  # (R,) and of its squares
    known: Floats  # (R,) rewards that the variance is estimated from
    variance: Floats  # (R,)

    def migrate(self, new: "ChangeTest", change: Any) -> None:
        """Rewards do not depend on who is in the pool."""
        for was, now in zip(self, new, strict=True):
            now[:] = was

    def is_valid(self, rule: Any) -> bool:
        return bool((self.sums >= 0).all() and (self.variance > 0).all())


def make_change_test(rows: int) -> ChangeTest:
    """No reward yet."""
    return ChangeTest(
        sums=np.zeros((rows, FALL_DRIFTS.size)),
        arrived=np.zeros(rows),
        excess=np.zeros(rows),
        squares=np.zeros(rows),
        known=np.zeros(rows),
        variance=np.full(rows, INITIAL_VARIANCE),
    )


@jit
def note_reward(test: ChangeTest, x: int, centered: float) -> None:
    """Count a reward; the order of rewards between two steps does not matter."""
    test.arrived[x] += 1.0
    test.excess[x] += centered
    test.squares[x] += centered * centered


@jit
def detect_fall(test: ChangeTest, x: int) -> bool:
    """Have rewards fallen? Asked at every step, with the rewards since the last one."""
    n, fell = test.arrived[x], False
    if n > 0.0:
        sd = math.sqrt(test.variance[x])
        for k in range(FALL_DRIFTS.size):
            more = -test.excess[x] / sd - n * FALL_DRIFTS[k]
            test.sums[x, k] = max(test.sums[x, k] + more, 0.0)
            fell |= test.sums[x, k] > FALL_LIMITS[k]
        test.known[x] += n
        rate = min(max(VARIANCE_RATE, 1.0 / (test.known[x] + PRIOR_REWARDS)) * n, 1.0)
        mean = test.squares[x] / n
        test.variance[x] = max(test.variance[x] + rate * (mean - test.variance[x]), MIN_VARIANCE)
    test.arrived[x] = test.excess[x] = test.squares[x] = 0.0
    if fell:
        for k in range(FALL_DRIFTS.size):
            test.sums[x, k] = 0.0
    return fell
