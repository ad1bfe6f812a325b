"""Intervals: how far an estimate may be from what the target would have earned.

Owns the two kinds there are, one for large samples and one for any; which estimate they are put
around is left to the estimators.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from bylot.kernels.compile import Floats

GRID = 0.5 ** np.arange(1, 13)  # lambda below: for samples of a dozen to a hundred million


class Interval(NamedTuple):
    """Between low and high."""

    low: float
    high: float


def symmetric(value: float, error: float, deviations: Floats, level: float) -> Interval:
    """value +- t error, t the quantile of (1 + level) / 2 by Student's law: right as rounds grow
    many.

    Rounds may depend on earlier ones, as those of a learning policy do, if their variance settles
    down (the martingale central limit theorem); it does for laws that converge.
    """
    far = quantile(deviations, level) * error
    return Interval(value - far, value + far)


def skewed(terms: Floats, level: float) -> Interval:
    """Around the mean of terms whose law may be lopsided, as that of weights is: a few large ones
    that have not come yet are missing from mean and error both.

    With T = (mean - V) / error and a = skewness / sqrt(n), Hall's transformation (1992)

        g(T) = T + a T^2 / 3 + a^2 T^3 / 27 + a / 6 = ((1 + a T / 3)^3 - 1) / a + a / 6

    is normal to a higher order than T; the interval is of the V with |g(T)| <= t.
    """
    value, spread = float(terms.mean()), float(terms.std())
    if terms.size < 2:
        return Interval(-math.inf, math.inf)
    if spread == 0.0:
        return Interval(value, value)
    error, units = spread / math.sqrt(terms.size - 1), (terms - value) / spread
    a, t = float((units**3).mean()) / math.sqrt(terms.size), quantile(units, level)
    return Interval(value - error * unskewed(t, a), value - error * unskewed(-t, a))


def unskewed(y: float, a: float) -> float:
    """The T with g(T) = y; y itself, where nothing is lopsided.

    >>> T = unskewed(2.0, 0.3)
    >>> round(T + 0.3 * T**2 / 3 + 0.3**2 * T**3 / 27 + 0.3 / 6, 12)
    2.0
    """
    return y if abs(a) < 1e-9 else 3.0 / a * (float(np.cbrt(1.0 + a * (y - a / 6.0))) - 1.0)


def quantile(deviations: Floats, level: float) -> float:
    """Student's, with as many degrees of freedom as the error is worth (Satterthwaite, 1946):

    2 (sum d^2)^2 / (sum d^4 - (sum d^2)^2 / n), which is n for normal d, and few for few large d.
    """
    squares = deviations**2
    over = float(((squares - squares.mean()) ** 2).sum())
    freedom = 2.0 * float(squares.sum()) ** 2 / over if over > 0.0 else math.inf
    return float(stdtrit(freedom, (1.0 + level) / 2.0))


def certain(weights: Floats, rewards: Floats, low: float, high: float, level: float) -> Interval:
    """Covers the mean of the rounds' expected rewards with at least this probability, for any
    number of rounds, unbounded weights and logs that learn; it only needs right odds and rewards
    in [low, high]. Each side has half of what may go wrong:

    V >= low + span L(w (r - low) / span),  V <= high - span L(w (high - r) / span).
    """
    span, alpha = high - low, (1.0 - level) / 2.0
    up = low + span * least(weights * (rewards - low) / span, alpha)
    down = high - span * least(weights * (high - rewards) / span, alpha)
    return Interval(up, down)


def least(x: Floats, alpha: float) -> float:
    """L(x): with probability 1 - alpha at most the mean of E[x_t | the past], for x_t >= 0.

    With any guess g_t in [0, 1] that knows only the past, and 0 < lambda < 1,

        exp(sum_t lambda (x_t - E x_t) - psi(lambda) (x_t - g_t)^2),  psi(l) = -log(1 - l) - l,

    is a supermartingale, as exp(l d - psi(l) d^2) <= 1 + l d for d >= -1 (Fan, Grama and Liu, 2015;
    Howard et al., 2021; for weights without a bound Waudby-Smith et al., 2024). Hence

        L = mean x - (psi(lambda) sum_t (x_t - g_t)^2 + log(1 / alpha)) / (lambda n).

    The best of a fixed grid of lambda is taken, alpha shared out among them.

    >>> least(np.ones(1_000), 0.025) > 0.97
    True
    """
    n = x.size
    before = np.concatenate([[0.0], np.cumsum(x)[:-1]])
    guess = np.minimum(1.0, (0.5 + before) / np.arange(1, n + 1))
    spread = float(((x - guess) ** 2).sum())
    psi = -np.log1p(-GRID) - GRID
    bounds = x.mean() - (psi * spread + math.log(GRID.size / alpha)) / (GRID * n)
    return max(0.0, float(bounds.max()))
