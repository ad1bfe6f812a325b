"""Drawing a panel from a distribution, and what its reward says about the gradient."""

from typing import NamedTuple

import numpy as np

from bylot.kernels.chance import Chance, uniforms
from bylot.kernels.compile import Bools, Floats, Ints, compiled

DRAWS = 0  # the stream that panels are drawn from; other uses of chance take other numbers


class Panel(NamedTuple):
    """M i.i.d. draws, and the probability that each of them had."""

    draws: Ints
    odds: Floats


@compiled
def draw(q: Floats, count: int, chance: Chance) -> Panel:
    """`count` i.i.d. draws from q: draw_j = min{i : q_0 + ... + q_i > u_j}.

    An expert without mass is never drawn. q need not sum to one: it is normalised by its sum.

    >>> draw(np.array([0.0, 1.0, 0.0]), 2, Chance(seed=0, t=0))
    Panel(draws=array([1, 1]), odds=array([1., 1.]))
    """
    mass = np.cumsum(q)
    total = mass[-1]
    draws = np.searchsorted(mass, uniforms(chance, DRAWS, count) * total, side="right")
    odds = np.empty(count)
    for j in range(count):
        # Rounding may carry u * total up to total itself: step back to an expert that has mass.
        while draws[j] == q.size or q[draws[j]] == 0.0:
            draws[j] -= 1
        odds[j] = q[draws[j]] / total
    return Panel(draws, odds)


@compiled
def restrict(q: Floats, up: Bools) -> Floats:
    """q on the experts that are up, renormalised: q_i 1[up_i] / sum of q over those up.

    With all of them up it is q itself, bit for bit.

    >>> restrict(np.array([0.2, 0.3, 0.5]), np.array([True, True, False]))
    array([0.4, 0.6, 0. ])
    """
    if up.all():
        return q.copy()
    held: Floats = np.where(up, q, 0.0)
    total = float(held.sum())
    return held / total


@compiled
def add_gradient(g: Floats, draws: Ints, odds: Floats, reward: float) -> None:
    """Add to g the unbiased estimate of the gradient of the expected reward (paper, Lemma 1).

    g_i += reward / q_i * (number of draws equal to i), with odds = q[draws].
    """
    for j in range(draws.size):
        g[draws[j]] += reward / odds[j]


@compiled
def gradient(draws: Ints, odds: Floats, reward: float, size: int) -> Floats:
    """The estimate of Lemma 1 on its own.

    >>> gradient(np.array([0, 2, 2]), np.array([0.5, 0.25, 0.25]), 1.0, 3)
    array([2., 0., 8.])
    """
    g = np.zeros(size)
    add_gradient(g, draws, odds, reward)
    return g


@compiled
def distinct(draws: Ints) -> Ints:
    """The subset: every drawn expert once, in the order of the first draw.

    >>> distinct(np.array([4, 1, 4]))
    array([4, 1])
    """
    subset = np.empty(draws.size, np.int64)
    size = 0
    for j in range(draws.size):
        if not (subset[:size] == draws[j]).any():
            subset[size] = draws[j]
            size += 1
    return subset[:size].copy()
