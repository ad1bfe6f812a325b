"""Two tests for an abrupt change, after which a policy starts over.

A fall of rewards: Page's cumulative sums of (baseline - reward) / sd - drift, one for each of three
sizes of a fall. About a million independent rewards pass between two false alarms on average.

Other skills, even if rewards do not fall: bets that a recent belief, which forgets, predicts what
panels miss better than the belief in use (`add_evidence`). `recent_belief` and `member_belief` have
these beliefs.
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
MAX_LOSS, MIN_CHANCE = 0.5, 1e-3  # share that a bet may lose; the least 1 - expected in its bound
CHANGE_EVIDENCE = 1e6  # from which skills have changed: so many rewards between false alarms
FIRST_BET = 200.0  # rewards before the first bet
MAX_BET_NOISE = 0.5  # variance of a miss over its mean: where it is more, a wrong model may win
RECENT_HALF_LIFE, RECENT_BATCH = 300.0, 10  # rewards; a recent belief forgets after every batch
RECENT_GROWTH = 2.0 ** (RECENT_BATCH / RECENT_HALF_LIFE)  # of variances in a batch
PRIOR_EXPERTS = 2.0  # experts that the prior counts for, in the spread of skills


class ChangeTest(NamedTuple):
    """The test for a fall, with a row per distribution that moves."""

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
        restart_sums(test, x)
    return fell


@jit
def restart_sums(test: ChangeTest, x: int) -> None:
    """Start the cumulative sums again."""
    for k in range(FALL_DRIFTS.size):
        test.sums[x, k] = 0.0


@jit
def add_evidence(
    evidence: Floats, expected: float, recent: float, variance: float, miss: float
) -> bool:
    """Bet on a miss; returns whether there is enough evidence of a change.

    R = (1 + R) (1 + bet (miss - expected)), where the bet grows fastest if the recent belief is
    right: bet = d / (variance + d^2) with d = recent - expected. If misses have the expected mean,
    whatever else their distribution, a factor is 1 on average and R - n a martingale: R reaches
    10^6 after 10^6 rewards or more on average, and among n of them with probability n / 10^6 at
    most (Shiryaev and Roberts).
    """
    d = recent - expected
    bet = d / (variance + d * d)
    bet = min(max(bet, -MAX_LOSS / max(1.0 - expected, MIN_CHANCE)), MAX_LOSS / expected)
    factor = 1.0 + bet * (miss - expected)
    evidence[0] = min((1.0 + evidence[0]) * factor, CHANGE_EVIDENCE)
    return bool(evidence[0] >= CHANGE_EVIDENCE)


@jit
def bet_on_recent(
    evidence: Floats,
    rewards: float,
    noise: float,
    expected: float,
    recent: float,
    variance: float,
    miss: float,
) -> bool:
    """`add_evidence`, unless too few rewards are known, or they are nearly all 0 or 1."""
    if rewards < FIRST_BET or noise >= MAX_BET_NOISE:
        return False
    return add_evidence(evidence, expected, recent, variance, miss)


@jit
def fit_skills(
    beta: Floats, variance: Floats, prior_mean: float, prior_variance: float
) -> tuple[float, float]:
    """The mean and variance of skills over experts, from a belief about each.

    After a change, skills are drawn again, as those before it were. An expert counts as much as is
    known about it, and the prior as two experts do.
    """
    whole, mean, spread = PRIOR_EXPERTS, PRIOR_EXPERTS * prior_mean, PRIOR_EXPERTS * prior_variance
    for i in range(beta.size):
        known = max(1.0 - variance[i] / prior_variance, 0.0)
        whole += known
        mean += known * beta[i]
    mean /= whole
    for i in range(beta.size):
        known = max(1.0 - variance[i] / prior_variance, 0.0)
        spread += known * ((beta[i] - mean) ** 2 + variance[i])
    return mean, min(spread / whole, prior_variance)


@jit
def forget_skill(beta: Floats, i: int, variance: float, mean: float, spread: float) -> float:
    """Move a recent belief about an expert towards what experts are like, by as much as its
    variance allows; returns the factor by which that grows, at most to the spread.
    """
    beta[i] += (1.0 - 1.0 / RECENT_GROWTH) * min(variance / spread, 1.0) * (mean - beta[i])
    return float(min(RECENT_GROWTH, max(spread / variance, 1.0)))
