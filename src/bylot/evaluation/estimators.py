"""Estimators: what a target would have earned, from weights and rewards of a log.

w_t = P'_t(A_t) / P_t(A_t): the target's over the log's chance of the panel drawn in round t. All
speak of V = mean_t E[r_t(A)], A drawn by the target in the rounds that were used.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.evaluation.intervals import Interval, certain, skewed, symmetric
from bylot.kernels.compile import Floats

SEQUENCE, SET = "draw weights", "set weights"
NORMALISED, ROBUST, CERTAIN = "self-normalised", "doubly robust", "certain"


class Estimate(NamedTuple):
    """A value, its standard error, and an interval that covers at the stated level."""

    name: str
    value: float
    error: float
    interval: Interval


def mean_of(terms: Floats) -> tuple[float, float]:
    """The mean and its standard error."""
    n = terms.size
    return float(terms.mean()), float(terms.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf


def weighted(weights: Floats, rewards: Floats, level: float, name: str = SET) -> Estimate:
    """V = mean_t w_t r_t, unbiased: sum_A P(A) (P'(A) / P(A)) r(A) = sum_A P'(A) r(A).

    With w_t the ratio of the *draws*, prod_j q'(i_j) / q(i_j), it is unbiased too; the ratio of the
    sets is the conditional expectation of that given the set, so its variance is no larger.
    """
    terms = weights * rewards
    return Estimate(name, *mean_of(terms), skewed(terms, level))


def normalised(weights: Floats, rewards: Floats, level: float) -> Estimate:
    """V = sum_t w_t r_t / sum_t w_t: consistent, with a bias of order 1/n, and never outside the
    rewards that were seen. Its error is sqrt(sum_t w_t^2 (r_t - V)^2) / sum_t w_t (delta method).
    """
    total = float(weights.sum()) or math.nan  # nothing to go by
    value = float(weights @ rewards) / total
    deviations = weights * (rewards - value)
    error = math.sqrt(float(deviations @ deviations)) / total
    return Estimate(NORMALISED, value, error, symmetric(value, error, deviations, level))


def doubly_robust(
    weights: Floats, rewards: Floats, told: Floats, expected: Floats, level: float
) -> Estimate:
    """V = mean_t m_t(P') + w_t (r_t - m_t(A_t)), with m_t a model of the reward made of earlier
    rounds only and m_t(P') its expectation under the target: unbiased, whatever the model.
    """
    terms = expected + weights * (rewards - told)
    return Estimate(ROBUST, *mean_of(terms), skewed(terms, level))


def surely(weights: Floats, rewards: Floats, low: float, high: float, level: float) -> Estimate:
    """The value of `weighted` within an interval that holds for any number of rounds."""
    value, error = mean_of(weights * (rewards - low) + low)
    interval = certain(weights, rewards, low, high, level)
    return Estimate(CERTAIN, float(np.clip(value, *interval)), error, interval)
