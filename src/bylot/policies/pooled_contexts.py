"""What contexts add to a belief that all of them share: a deviation per expert, and an offset.

b_x = beta + d_x + a_x / M with d_x ~ N(0, tau2) for each expert and a_x ~ N(0, 0.03) before the
first reward: a context that was never seen starts from what all others know. Deviations are
independent of each other, so a context takes memory for 2 K numbers, not for pairs; tau2 is
learned. `noisy_or_posterior` has the shared belief. With one context there is nothing to add.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit

PRIOR_SPREAD = 0.02  # tau2, variance of a deviation
MIN_SPREAD, MAX_SPREAD = 0.001, 0.03
SPREAD_BATCH = 200  # rewards between two steps of tau2
SPREAD_PRIOR_INFORMATION, SPREAD_MEMORY, MAX_SPREAD_STEP = 0.2, 0.9, 0.5  # of log tau2
PRIOR_OFFSET_VARIANCE = 0.03
DEVIATION_SCALE = 0.5  # of sampled deviations, relative to that of the shared belief


class ContextDeviations(NamedTuple):
    """A row per context. The posterior of d_i is N(m D, D) with 1 / D = info + 1 / tau2: tau2 can
    change without a pass over the contexts.
    """

    info: Floats  # (X, K)
    moment: Floats  # (X, K) m
    offset: Floats  # (X,) a
    offset_variance: Floats  # (X,)
    learned: Ints  # (X,) rewards in all contexts when one of this context last came
    spread: Floats  # one number: tau2
    slope: Floats  # (2,) derivative of the log-likelihood by log tau2, and its information
    contexts: Ints  # one number: how many have been visited

    def is_valid(self, rule: Any) -> bool:
        spread, variances = self.spread[0], self.offset_variance
        return bool(
            (self.info >= 0).all()
            and MIN_SPREAD <= spread <= MAX_SPREAD
            and np.isfinite(self.moment).all()
            and np.isfinite(self.offset).all()
            and ((variances > 0) & (variances <= PRIOR_OFFSET_VARIANCE)).all()
            and np.isfinite(self.slope).all()
            and self.slope[1] >= 0
            and 0 <= self.contexts[0] <= len(self.info)
            and (self.learned >= 0).all()
        )


def make_deviations(contexts: int, size: int) -> ContextDeviations:
    """No deviations before the first reward."""
    return ContextDeviations(
        info=np.zeros((contexts, size)),
        moment=np.zeros((contexts, size)),
        offset=np.zeros(contexts),
        offset_variance=np.full(contexts, PRIOR_OFFSET_VARIANCE),
        learned=np.zeros(contexts, np.int64),
        spread=np.full(1, PRIOR_SPREAD),
        slope=np.zeros(2),
        contexts=np.zeros(1, np.int64),
    )


@jit
def restart_deviations(deviations: ContextDeviations) -> None:
    """Forget what contexts add, but not by how much they differ."""
    for x in range(deviations.offset.size):
        deviations.offset[x], deviations.learned[x] = 0.0, 0
        deviations.offset_variance[x] = PRIOR_OFFSET_VARIANCE
        for i in range(deviations.info.shape[1]):
            deviations.info[x, i], deviations.moment[x, i] = 0.0, 0.0


@jit
def are_pooled(deviations: ContextDeviations) -> bool:
    """Is there more than one context?"""
    return bool(deviations.contexts[0] > 1)


@jit
def add_sampled_deviations(
    b: Floats, deviations: ContextDeviations, x: int, members: int, scale: float, z: Floats
) -> None:
    """b_i += d_i + a / M + scale sqrt(D_i) z_i, for a panel of so many members."""
    rest, share = 1.0 / deviations.spread[0], deviations.offset[x] / members
    for i in range(deviations.info.shape[1]):
        D = 1.0 / (deviations.info[x, i] + rest)
        b[i] += deviations.moment[x, i] * D + share + scale * math.sqrt(D) * z[i]


def compute_mean_deviations(deviations: ContextDeviations, x: int, members: int) -> Floats:
    """(K,) d_i + a / M, the mean of what context x adds to b_i; 0 with one context."""
    D = 1.0 / (deviations.info[x] + 1.0 / deviations.spread[0])
    return np.asarray(deviations.moment[x] * D + deviations.offset[x] / members)


class PanelDeviation(NamedTuple):
    """What a context adds to the log of what a panel misses."""

    mean: float
    variance: float
    lean: float  # derivative of the mean by log tau2


@jit
def predict_deviation(deviations: ContextDeviations, x: int, members: Ints) -> PanelDeviation:
    """sum_A d + a, its variance, and sum_A d D / tau2; 0 with one context."""
    if not are_pooled(deviations):
        return PanelDeviation(0.0, 0.0, 0.0)
    rest, mean, variance, lean = 1.0 / deviations.spread[0], 0.0, 0.0, 0.0
    for i in members:
        D = 1.0 / (deviations.info[x, i] + rest)
        d = deviations.moment[x, i] * D
        mean += d
        variance += D
        lean += d * D * rest
    mean += deviations.offset[x]
    variance += deviations.offset_variance[x]
    return PanelDeviation(mean, variance, lean)


@jit
def update_deviations(
    deviations: ContextDeviations, x: int, members: Ints, step: float, factor: float
) -> None:
    """d += D step and D -= factor D^2 for every member, and the same for the offset."""
    rest, V = 1.0 / deviations.spread[0], deviations.offset_variance[x]
    for i in members:
        D = 1.0 / (deviations.info[x, i] + rest)
        d, less = deviations.moment[x, i] * D + D * step, D - factor * D * D
        deviations.info[x, i] = max(1.0 / less - rest, 0.0)
        deviations.moment[x, i] = d / less
    deviations.offset[x] += V * step
    deviations.offset_variance[x] = V - factor * V * V


@jit
def learn_spread(deviations: ContextDeviations, n: int, lean: float, step: float, f: float) -> None:
    """Add to the slope of the log-likelihood in log tau2; every batch of rewards, take a step."""
    slope, spread = deviations.slope, deviations.spread
    slope[0] += step * lean
    slope[1] += f * lean * lean
    if n % SPREAD_BATCH == 0:
        move = slope[0] / (slope[1] + SPREAD_PRIOR_INFORMATION)
        growth = math.exp(min(max(move, -MAX_SPREAD_STEP), MAX_SPREAD_STEP))
        spread[0] = min(max(spread[0] * growth, MIN_SPREAD), MAX_SPREAD)
        slope[0] = 0.0
        slope[1] *= SPREAD_MEMORY


@jit
def forget_deviations(deviations: ContextDeviations, x: int, n: int, growth: float) -> None:
    """Fade the deviations of a context by the n-th reward of all, whose variances grow each time;
    done when a reward of the context comes.
    """
    fade = growth ** (deviations.learned[x] - n)
    for i in range(deviations.info.shape[1]):
        deviations.info[x, i] *= fade
        deviations.moment[x, i] *= fade
    V = deviations.offset_variance[x]
    more = min(V / fade, PRIOR_OFFSET_VARIANCE)
    deviations.offset_variance[x] = more
    deviations.learned[x] = n
