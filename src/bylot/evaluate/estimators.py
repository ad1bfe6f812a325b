"""Estimators: what a target would have earned, from weights and rewards of a log.

w_t = P'_t(A_t) / P_t(A_t): the target's over the log's chance of the panel drawn in round t. All
speak of V = mean_t E[r_t(A)], A drawn by the target in the rounds that were used.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import lsqr
from scipy.special import stdtrit

from bylot.numerics.jit import Floats, Ints

LAMBDA_GRID = 0.5 ** np.arange(1, 13)  # lambda below: for samples of a dozen to a hundred million


class ConfidenceInterval(NamedTuple):
    """Between low and high."""

    low: float
    high: float


def make_symmetric_interval(
    value: float, error: float, deviations: Floats, level: float
) -> ConfidenceInterval:
    """value +- t error, t the quantile of (1 + level) / 2 by Student's law: right as rounds grow
    many.

    Rounds may depend on earlier ones, as those of a learning policy do, if their variance settles
    down (the martingale central limit theorem); it does for laws that converge.
    """
    far = find_student_quantile(deviations, level) * error
    return ConfidenceInterval(value - far, value + far)


def make_skewness_corrected_interval(terms: Floats, level: float) -> ConfidenceInterval:
    """Around the mean of terms whose law may be lopsided, as that of weights is: a few large ones
    that have not come yet are missing from mean and error both.

    With T = (mean - V) / error and a = skewness / sqrt(n), Hall's transformation (1992)

        g(T) = T + a T^2 / 3 + a^2 T^3 / 27 + a / 6 = ((1 + a T / 3)^3 - 1) / a + a / 6

    is normal to a higher order than T; the interval is of the V with |g(T)| <= t.
    """
    value, spread = float(terms.mean()), float(terms.std())
    if terms.size < 2:
        return ConfidenceInterval(-math.inf, math.inf)
    if spread == 0.0:
        return ConfidenceInterval(value, value)
    error, units = spread / math.sqrt(terms.size - 1), (terms - value) / spread
    a, t = float((units**3).mean()) / math.sqrt(terms.size), find_student_quantile(units, level)
    return ConfidenceInterval(
        value - error * invert_hall_transform(t, a), value - error * invert_hall_transform(-t, a)
    )


def invert_hall_transform(y: float, a: float) -> float:
    """The T with g(T) = y; y itself, where nothing is lopsided.

    >>> T = invert_hall_transform(2.0, 0.3)
    >>> round(T + 0.3 * T**2 / 3 + 0.3**2 * T**3 / 27 + 0.3 / 6, 12)
    2.0
    """
    return y if abs(a) < 1e-9 else 3.0 / a * (float(np.cbrt(1.0 + a * (y - a / 6.0))) - 1.0)


def find_student_quantile(deviations: Floats, level: float) -> float:
    """Student's, with as many degrees of freedom as the error is worth (Satterthwaite, 1946):

    2 (sum d^2)^2 / (sum d^4 - (sum d^2)^2 / n), which is n for normal d, and few for few large d.
    """
    squares = deviations**2
    over = float(((squares - squares.mean()) ** 2).sum())
    freedom = 2.0 * float(squares.sum()) ** 2 / over if over > 0.0 else math.inf
    return float(stdtrit(freedom, (1.0 + level) / 2.0))


def make_finite_sample_interval(
    weights: Floats, rewards: Floats, low: float, high: float, level: float
) -> ConfidenceInterval:
    """Covers the mean of the rounds' expected rewards with at least this probability, for any
    number of rounds, unbounded weights and logs that learn; it only needs right odds and rewards
    in [low, high]. Each side has half of what may go wrong:

    V >= low + span L(w (r - low) / span),  V <= high - span L(w (high - r) / span).
    """
    span, alpha = high - low, (1.0 - level) / 2.0
    up = low + span * find_lower_confidence_bound(weights * (rewards - low) / span, alpha)
    down = high - span * find_lower_confidence_bound(weights * (high - rewards) / span, alpha)
    return ConfidenceInterval(up, down)


def find_lower_confidence_bound(x: Floats, alpha: float) -> float:
    """L(x): with probability 1 - alpha at most the mean of E[x_t | the past], for x_t >= 0.

    With any guess g_t in [0, 1] that knows only the past, and 0 < lambda < 1,

        exp(sum_t lambda (x_t - E x_t) - psi(lambda) (x_t - g_t)^2),  psi(l) = -log(1 - l) - l,

    is a supermartingale, as exp(l d - psi(l) d^2) <= 1 + l d for d >= -1 (Fan, Grama and Liu, 2015;
    Howard et al., 2021; for weights without a bound Waudby-Smith et al., 2024). Hence

        L = mean x - (psi(lambda) sum_t (x_t - g_t)^2 + log(1 / alpha)) / (lambda n).

    The best of a fixed grid of lambda is taken, alpha shared out among them.

    >>> find_lower_confidence_bound(np.ones(1_000), 0.025) > 0.97
    True
    """
    n = x.size
    before = np.concatenate([[0.0], np.cumsum(x)[:-1]])
    guess = np.minimum(1.0, (0.5 + before) / np.arange(1, n + 1))
    spread = float(((x - guess) ** 2).sum())
    psi = -np.log1p(-LAMBDA_GRID) - LAMBDA_GRID
    bounds = x.mean() - (psi * spread + math.log(LAMBDA_GRID.size / alpha)) / (LAMBDA_GRID * n)
    return max(0.0, float(bounds.max()))


DRAW_WEIGHTS, SET_WEIGHTS = "draw weights", "set weights"
SELF_NORMALISED, DOUBLY_ROBUST, FINITE_SAMPLE = "self-normalised", "doubly robust", "certain"


class RewardEstimate(NamedTuple):
    """A value, its standard error, and an interval that covers at the stated level."""

    name: str
    value: float
    error: float
    interval: ConfidenceInterval


def compute_mean_and_error(terms: Floats) -> tuple[float, float]:
    """The mean and its standard error."""
    n = terms.size
    return float(terms.mean()), float(terms.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf


def estimate_by_weights(
    weights: Floats, rewards: Floats, level: float, name: str = SET_WEIGHTS
) -> RewardEstimate:
    """V = mean_t w_t r_t, unbiased: sum_A P(A) (P'(A) / P(A)) r(A) = sum_A P'(A) r(A).

    With w_t the ratio of the *draws*, prod_j q'(i_j) / q(i_j), it is unbiased too; the ratio of the
    sets is the conditional expectation of that given the set, so its variance is no larger.
    """
    terms = weights * rewards
    return RewardEstimate(
        name, *compute_mean_and_error(terms), make_skewness_corrected_interval(terms, level)
    )


def estimate_self_normalised(weights: Floats, rewards: Floats, level: float) -> RewardEstimate:
    """V = sum_t w_t r_t / sum_t w_t: consistent, with a bias of order 1/n, and never outside the
    rewards that were seen. Its error is sqrt(sum_t w_t^2 (r_t - V)^2) / sum_t w_t (delta method).
    """
    total = float(weights.sum()) or math.nan  # nothing to go by
    value = float(weights @ rewards) / total
    deviations = weights * (rewards - value)
    error = math.sqrt(float(deviations @ deviations)) / total
    return RewardEstimate(
        SELF_NORMALISED, value, error, make_symmetric_interval(value, error, deviations, level)
    )


def estimate_doubly_robust(
    weights: Floats, rewards: Floats, told: Floats, expected: Floats, level: float
) -> RewardEstimate:
    """V = mean_t m_t(P') + w_t (r_t - m_t(A_t)), with m_t a model of the reward made of earlier
    rounds only and m_t(P') its expectation under the target: unbiased, whatever the model.
    """
    terms = expected + weights * (rewards - told)
    return RewardEstimate(
        DOUBLY_ROBUST,
        *compute_mean_and_error(terms),
        make_skewness_corrected_interval(terms, level),
    )


def estimate_finite_sample(
    weights: Floats, rewards: Floats, low: float, high: float, level: float
) -> RewardEstimate:
    """The value of `estimate_by_weights` within an interval that holds for any number of rounds."""
    value, error = compute_mean_and_error(weights * (rewards - low) + low)
    interval = make_finite_sample_interval(weights, rewards, low, high, level)
    return RewardEstimate(FINITE_SAMPLE, float(np.clip(value, *interval)), error, interval)


RIDGE_PENALTY = 1.0  # as if each expert had been seen in one round more, adding nothing
MAX_LOG_PARTS = 64  # the first of this many parts of a log is left to no model


class RewardModel(NamedTuple):
    """A fitted line for all, and what it lacks in each context."""

    level: float
    slope: Floats  # (K,)
    own: dict[int, tuple[float, Floats]]

    def at(self, rows: csr_array | Floats, contexts: Ints) -> Floats:
        """The model's reward of rows of memberships, or of chances to be a member."""
        told = np.asarray(self.level + rows @ self.slope, np.float64)
        for x in np.unique(contexts).tolist():
            if x in self.own:
                level, slope = self.own[x]
                here = np.flatnonzero(contexts == x)
                told[here] += level + rows[here] @ slope
        return told


def fit_ridge(rows: csr_array, rewards: Floats) -> tuple[float, Floats]:
    """The level and slope of least |rewards - level - rows slope|^2 + RIDGE |slope|^2, the level
    being that at which the mean row has the mean reward.
    """
    middle, mean = np.asarray(rows.mean(axis=0)).ravel(), float(rewards.mean())
    slope = lsqr(rows, rewards - mean, damp=RIDGE_PENALTY**0.5)[0]
    return mean - float(middle @ slope), slope


def fit_reward_model(rows: csr_array, contexts: Ints, rewards: Floats) -> RewardModel:
    """One line for all rounds, then one for what it lacks in each context, if there are several."""
    level, slope = fit_ridge(rows, rewards)
    shared = RewardModel(level, slope, {})
    different = np.unique(contexts)
    if different.size > 1:
        left = rewards - shared.at(rows, contexts)
        for x in different.tolist():
            here = np.flatnonzero(contexts == x)
            shared.own[x] = fit_ridge(rows[here], left[here])
    return shared


def split_log(n: int) -> list[int]:
    """Where a log of n rounds is cut: halves of halves, so that each part is as long as all before.

    >>> split_log(100)
    [0, 1, 3, 6, 12, 25, 50, 100]
    """
    cuts = [n]
    while cuts[-1] > max(1, n // MAX_LOG_PARTS):
        cuts.append(cuts[-1] // 2)
    return [0, *reversed(cuts)]


def predict_from_earlier_rounds(
    rows: csr_array, chances: Floats, at: Ints, contexts: Ints, rewards: Floats, start: float
) -> tuple[Floats, Floats]:
    """For every round the model's reward of the panel, and its expectation under the target.

    Each part of the log is told by a model of the parts before it only, the first by a constant
    `start`. A model of other parts at random (the usual cross-fitting) would know rounds whose odds
    a learning policy chose after seeing this one's reward, and the estimate would be biased.

    rows: (n, K) memberships; chances: (P, K) the target's chances to be a member by place; at: (n,)
    the place of each round.
    """
    told, expected = np.full(rewards.size, start), np.full(rewards.size, start)
    cuts = split_log(rewards.size)
    for begin, end in pairwise(cuts[1:]):
        lines = fit_reward_model(rows[:begin], contexts[:begin], rewards[:begin])
        told[begin:end] = lines.at(rows[begin:end], contexts[begin:end])
        places, back = np.unique(
            np.stack([at, contexts])[:, begin:end], axis=1, return_inverse=True
        )
        expected[begin:end] = lines.at(chances[places[0]], places[1])[back]
    return told, expected
