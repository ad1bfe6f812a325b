"""Estimators of a target's reward from weights and rewards of a log, and their intervals.

w_t = P'_t(A_t) / P_t(A_t): the target's over the log's probability of the panel drawn in round t.
All estimate V = mean_t E[r_t(A)], A drawn by the target in the rounds that were used.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import lsqr
from scipy.special import stdtrit

from bylot.numerics.jit import Floats, Ints

DRAW_WEIGHTS, SET_WEIGHTS = "draw weights", "set weights"
SELF_NORMALISED, DOUBLY_ROBUST, FINITE_SAMPLE = "self-normalised", "doubly robust", "finite-sample"
AS_PLAYED = "as played"
PLAYED_WIDENING = 1.1  # of errors: the distance of distributions played lately from the present one
FEW_ROUNDS = 100.0  # effective ones, below which errors are underestimated
LAMBDA_GRID = 0.5 ** np.arange(1, 13)  # lambda below: for samples of a dozen to 10^8
RIDGE_PENALTY = 1.0  # as if each expert had been seen in one more round, adding nothing
MAX_LOG_PARTS = 64  # the first 1/64 of a log is predicted without a model


class ConfidenceInterval(NamedTuple):
    """From low to high."""

    low: float
    high: float


class RewardEstimate(NamedTuple):
    """A value, its standard error, and its confidence interval."""

    name: str
    value: float
    error: float
    interval: ConfidenceInterval

    def clip(self, low: float, high: float) -> "RewardEstimate":
        """The same within the range of rewards.

        An interval that is not defined, or that no possible reward is in, is the whole range.

        >>> RewardEstimate("", 1.1, 0.2, ConfidenceInterval(0.7, 1.5)).clip(0.0, 1.0).interval
        ConfidenceInterval(low=0.7, high=1.0)
        """
        inside = ConfidenceInterval(max(low, self.interval.low), min(high, self.interval.high))
        interval = inside if inside.low <= inside.high else ConfidenceInterval(low, high)
        return self._replace(value=min(max(low, self.value), high), interval=interval)


def compute_mean_and_error(terms: Floats) -> tuple[float, float]:
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


def estimate_as_played(rewards: Floats, level: float) -> RewardEstimate:
    """V = mean_t r_t, of rounds that were played with distributions close to the target.

    Its error is widened: measured errors are up to a tenth larger than those of the mean, as the
    target is not quite what was played.
    """
    name, value, error, (low, high) = estimate_by_weights(
        np.ones(rewards.size), rewards, level, AS_PLAYED
    )
    low, high = (value + PLAYED_WIDENING * (end - value) for end in (low, high))
    return RewardEstimate(name, value, PLAYED_WIDENING * error, ConfidenceInterval(low, high))


def estimate_self_normalised(weights: Floats, rewards: Floats, level: float) -> RewardEstimate:
    """V = sum_t w_t r_t / sum_t w_t: a bias of order 1/n, and within the range of the rewards.

    Its error is sqrt(sum_t w_t^2 (r_t - V)^2) / sum_t w_t (delta method). The interval V +- t error
    is asymptotic; it also holds for a learning policy whose distributions converge (martingale
    central limit theorem).
    """
    total = float(weights.sum()) or math.nan
    value = float(weights @ rewards) / total
    deviations = weights * (rewards - value)
    error = math.sqrt(float(deviations @ deviations)) / total
    far = find_student_quantile(deviations, level) * error if weights.size > 1 else math.inf
    return RewardEstimate(
        SELF_NORMALISED, value, error, ConfidenceInterval(value - far, value + far)
    )


def estimate_doubly_robust(
    weights: Floats, rewards: Floats, predicted: Floats, expected: Floats, level: float
) -> RewardEstimate:
    """V = mean_t m_t(P') + w_t (r_t - m_t(A_t)), unbiased for any model m_t of earlier rounds.

    m_t(P') is the model's expectation under the target. If few rounds tell about the target, those
    with the largest weights may not have come up yet, and the error is underestimated. It is then
    at least s / sqrt(n_eff) with s^2 = sum_t w_t (r_t - m_t)^2 / sum_t w_t, as of n_eff rounds of
    the target itself, and the interval is Student's with n_eff - 1 degrees of freedom.
    """
    residuals, total, square = rewards - predicted, float(weights.sum()), float(weights @ weights)
    terms = expected + weights * residuals
    value, error = compute_mean_and_error(terms)
    effective = total**2 / square if square > 0.0 else 0.0
    if not 1.0 < effective < FEW_ROUNDS:
        return RewardEstimate(
            DOUBLY_ROBUST, value, error, make_skewness_corrected_interval(terms, level)
        )
    error = max(error, math.sqrt(float(weights @ residuals**2) / total / effective))
    far = float(stdtrit(effective - 1.0, (1.0 + level) / 2.0)) * error
    return RewardEstimate(DOUBLY_ROBUST, value, error, ConfidenceInterval(value - far, value + far))


def estimate_finite_sample(
    weights: Floats, rewards: Floats, low: float, high: float, level: float
) -> RewardEstimate:
    """The mean of w_t r_t, clipped to an interval that holds for any number of rounds.

    The interval covers the mean expected reward of the rounds with at least this probability, also
    with unbounded weights and learning policies; it needs correct propensities and rewards in
    [low, high]. Each side has half of the error probability:

    V >= low + span L(w (r - low) / span),  V <= high - span L(w (high - r) / span).
    """
    span, alpha = high - low, (1.0 - level) / 2.0
    up = low + span * find_lower_confidence_bound(weights * (rewards - low) / span, alpha)
    down = high - span * find_lower_confidence_bound(weights * (high - rewards) / span, alpha)
    value, error = compute_mean_and_error(weights * (rewards - low) + low)
    return RewardEstimate(
        FINITE_SAMPLE, float(np.clip(value, up, down)), error, ConfidenceInterval(up, down)
    )


def make_skewness_corrected_interval(terms: Floats, level: float) -> ConfidenceInterval:
    """An interval for the mean of skewed terms, as weighted rewards are: few of them are large.

    With T = (mean - V) / error and a = skewness / sqrt(n), Hall's transformation (1992)

        g(T) = T + a T^2 / 3 + a^2 T^3 / 27 + a / 6 = ((1 + a T / 3)^3 - 1) / a + a / 6

    is normal to a higher order than T; the interval contains the V with |g(T)| <= t.
    """
    value, spread = float(terms.mean()), float(terms.std())
    if terms.size < 2:
        return ConfidenceInterval(-math.inf, math.inf)
    if spread == 0.0:
        return ConfidenceInterval(value, value)
    error, units = spread / math.sqrt(terms.size - 1), (terms - value) / spread
    a, t = float((units**3).mean()) / math.sqrt(terms.size), find_student_quantile(units, level)
    low, high = (value - error * invert_hall_transform(y, a) for y in (t, -t))
    return ConfidenceInterval(low, high)


def invert_hall_transform(y: float, a: float) -> float:
    """The T with g(T) = y; y itself without skewness.

    >>> T = invert_hall_transform(2.0, 0.3)
    >>> round(T + 0.3 * T**2 / 3 + 0.3**2 * T**3 / 27 + 0.3 / 6, 12)
    2.0
    """
    return y if abs(a) < 1e-9 else 3.0 / a * (float(np.cbrt(1.0 + a * (y - a / 6.0))) - 1.0)


def find_student_quantile(deviations: Floats, level: float) -> float:
    """Student's quantile, with the degrees of freedom of the error (Satterthwaite, 1946):

    2 (sum d^2)^2 / (sum d^4 - (sum d^2)^2 / n), which is n for normal d, and few for few large d.
    """
    squares = deviations**2
    over = float(((squares - squares.mean()) ** 2).sum())
    freedom = 2.0 * float(squares.sum()) ** 2 / over if over > 0.0 else math.inf
    return float(stdtrit(freedom, (1.0 + level) / 2.0))


def find_lower_confidence_bound(x: Floats, alpha: float) -> float:
    """L(x): with probability 1 - alpha at most the mean of E[x_t | the past], for x_t >= 0.

    With any guess g_t in [0, 1] that depends on the past only, and 0 < lambda < 1,

        exp(sum_t lambda (x_t - E x_t) - psi(lambda) (x_t - g_t)^2),  psi(l) = -log(1 - l) - l,

    is a supermartingale, as exp(l d - psi(l) d^2) <= 1 + l d for d >= -1 (Fan, Grama and Liu, 2015;
    Howard et al., 2021; for unbounded weights Waudby-Smith et al., 2024). Hence

        L = mean x - (psi(lambda) sum_t (x_t - g_t)^2 + log(1 / alpha)) / (lambda n).

    The best lambda of a fixed grid is taken, with alpha divided among them.

    >>> find_lower_confidence_bound(np.ones(1_000), 0.025) > 0.97
    True
    """
    n = x.size
    before = np.concatenate([[0.0], np.cumsum(x)[:-1]])
    guess = np.minimum(1.0, (0.5 + before) / np.arange(1, n + 1))
    spread = float(((x - guess) ** 2).sum())
    psi = -np.log1p(-LAMBDA_GRID) - LAMBDA_GRID
    penalty = psi * spread + math.log(LAMBDA_GRID.size / alpha)
    return max(0.0, float((x.mean() - penalty / (LAMBDA_GRID * n)).max()))


class RewardModel(NamedTuple):
    """r(A) = b_x + sum_{i in A} beta_xi: a model for all contexts, and corrections for each.

    It is linear in the members, so its expectation under a target needs inclusion probabilities
    only. A better model makes intervals shorter; a worse one never makes an estimate wrong.
    """

    level: float
    slope: Floats  # (K,)
    corrections: dict[int, tuple[float, Floats]]

    def predict(self, rows: csr_array | Floats, contexts: Ints) -> Floats:
        """The reward of rows of memberships, or of inclusion probabilities."""
        reward = np.asarray(self.level + rows @ self.slope, np.float64)
        for x in np.unique(contexts).tolist():
            if x in self.corrections:
                level, slope = self.corrections[x]
                here = np.flatnonzero(contexts == x)
                reward[here] += level + rows[here] @ slope
        return reward


def fit_ridge(rows: csr_array, rewards: Floats) -> tuple[float, Floats]:
    """Level and slope by ridge regression; the mean row has the mean reward."""
    middle, mean = np.asarray(rows.mean(axis=0)).ravel(), float(rewards.mean())
    slope = lsqr(rows, rewards - mean, damp=RIDGE_PENALTY**0.5)[0]
    return mean - float(middle @ slope), slope


def fit_reward_model(rows: csr_array, contexts: Ints, rewards: Floats) -> RewardModel:
    """Fit all rounds, then the residuals of each context if there are several."""
    model = RewardModel(*fit_ridge(rows, rewards), {})
    different = np.unique(contexts)
    if different.size > 1:
        left = rewards - model.predict(rows, contexts)
        for x in different.tolist():
            here = np.flatnonzero(contexts == x)
            model.corrections[x] = fit_ridge(rows[here], left[here])
    return model


def split_log(n: int) -> list[int]:
    """Where a log of n rounds is cut: each part is as long as all before it.

    >>> split_log(100)
    [0, 1, 3, 6, 12, 25, 50, 100]
    """
    cuts = [n]
    while cuts[-1] > max(1, n // MAX_LOG_PARTS):
        cuts.append(cuts[-1] // 2)
    return [0, *reversed(cuts)]


def predict_from_earlier_rounds(
    rows: csr_array, inclusion: Floats, at: Ints, contexts: Ints, rewards: Floats, start: float
) -> tuple[Floats, Floats]:
    """The model's reward of each round's panel, and its expectation under the target.

    Each part of the log is predicted by a model of the parts before it, the first by the constant
    `start`. The usual cross-fitting would use rounds whose probabilities a learning policy chose
    after seeing this round's reward, which biases the estimate.

    rows: (n, K) memberships; inclusion: (P, K) the target's inclusion probabilities by stratum;
    at: (n,) the stratum of each round.
    """
    predicted, expected = np.full(rewards.size, start), np.full(rewards.size, start)
    for begin, end in pairwise(split_log(rewards.size)[1:]):
        model = fit_reward_model(rows[:begin], contexts[:begin], rewards[:begin])
        predicted[begin:end] = model.predict(rows[begin:end], contexts[begin:end])
        keys = np.stack([at, contexts])[:, begin:end]
        strata, back = np.unique(keys, axis=1, return_inverse=True)
        expected[begin:end] = model.predict(inclusion[strata[0]], strata[1])[back]
    return predicted, expected
