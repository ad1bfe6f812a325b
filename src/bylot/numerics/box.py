"""The sets of the dual player: a box prod_j [low_j, high_j], and the unit ball of multipliers.

Ends of the box may be infinite; the meaning of the box is left to the problem.
"""

import math

import numpy as np

from bylot.numerics.jit import Floats, jit, jit_inline

EDGE_ROUNDING = 1e-12


@jit
def box_support(low: Floats, high: Floats, w: Floats) -> float:
    """h(w) = max of w.x over the box = sum_j (high_j w_j if w_j > 0, low_j w_j if w_j < 0).

    >>> box_support(np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([1.0, -1.0]))
    1.0
    """
    h = 0.0
    for j in range(low.size):
        if w[j] > 0.0:
            h += high[j] * w[j]
        elif w[j] < 0.0:  # w_j = 0 adds nothing, not 0 * inf
            h += low[j] * w[j]
    return h


@jit
def dual_slope_at(low: float, high: float, u: float, w: float) -> float:
    """Compute one coordinate of `dual_slope`."""
    if w > 0.0:
        return u - high
    if w < 0.0:
        return u - low
    gap = u - min(max(u, low), high)
    # A u on the edge is known up to rounding only, which must not move a multiplier from zero.
    return gap if abs(gap) > EDGE_ROUNDING * max(abs(u), abs(min(max(u, low), high))) else 0.0


@jit
def dual_slope(low: Floats, high: Floats, u: Floats, w: Floats) -> Floats:
    """Compute the shortest subgradient at w of the dual's payoff f(w) = w.u - h(w).

    All subgradients are u - x with x a maximiser of w.x over the box. Where w_j = 0 every x_j of
    [low_j, high_j] is one, and the shortest difference is u_j - clip(u_j, low_j, high_j): zero if
    u_j lies inside, so a limit that is kept does not move a multiplier from zero.

    >>> low, high = np.array([0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0])
    >>> dual_slope(low, high, np.array([0.5, 0.5, 1.5]), np.array([1.0, 0.0, 0.0]))
    array([-0.5,  0. ,  0.5])
    """
    s = np.empty(low.size)
    for j in range(low.size):
        s[j] = dual_slope_at(low[j], high[j], u[j], w[j])
    return s


@jit
def box_distance(low: Floats, high: Floats, x: Floats) -> float:
    """Compute the Euclidean distance to the box: the length of max(low - x, x - high, 0).

    >>> box_distance(np.array([0.0, -np.inf]), np.array([1.0, 2.0]), np.array([4.0, 6.0]))
    5.0
    """
    total = 0.0
    for j in range(low.size):
        gap = max(low[j] - x[j], x[j] - high[j], 0.0)
        total += gap * gap
    return float(np.sqrt(total))


@jit_inline
def clip_to_unit_ball(w: Floats) -> None:
    """Move w, in place, to the nearest point of the unit ball: w / max(1, |w|).

    >>> w = np.array([3.0, 4.0])
    >>> clip_to_unit_ball(w)
    >>> w
    array([0.6, 0.8])
    """
    square = 0.0
    for j in range(w.size):
        square += w[j] * w[j]
    if square > 1.0:
        length = math.sqrt(square)
        for j in range(w.size):
            w[j] /= length
