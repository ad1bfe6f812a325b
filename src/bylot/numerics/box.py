"""Boxes prod_j [low_j, high_j]: support and slope for the dual player, and a small QP.

Ends may be infinite; the meaning of a box is left to the caller. Written in loops: each array
expression would add a second to compilation.
"""

import math

import numpy as np

from bylot.numerics.jit import Bools, Floats, jit, jit_inline

EDGE_ROUNDING = 1e-12
GRADIENT_ROUNDING = 2.0**-46  # relative to its terms, a smaller gradient is rounding


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
    """Compute one coordinate of the shortest subgradient at w of the dual's payoff w.u - h(w).

    All subgradients are u - x with x a maximiser of w.x over the box. Where w_j = 0 every x_j of
    [low_j, high_j] is one, and the shortest difference is u_j - clip(u_j, low_j, high_j): zero if
    u_j lies inside, so a limit that is kept does not move a multiplier from zero.

    >>> dual_slope_at(0.0, 1.0, 0.5, 1.0), dual_slope_at(0.0, 1.0, 0.5, 0.0)
    (-0.5, 0.0)
    """
    if w > 0.0:
        return u - high
    if w < 0.0:
        return u - low
    gap = u - min(max(u, low), high)
    # A u on the edge is known up to rounding only, which must not move a multiplier from zero.
    return gap if abs(gap) > EDGE_ROUNDING * max(abs(u), abs(min(max(u, low), high))) else 0.0


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


@jit
def fill_newton_step(y: Floats, H: Floats, slope: Floats, held: Bools, L: Floats) -> None:
    """Write the step y of all variables that are not held, H y = -slope, by Cholesky into L.

    A pivot that is not positive, by rounding, stops the step in that direction.
    """
    d = slope.size
    for a in range(d):
        y[a] = 0.0 if held[a] else -slope[a]
        for c in range(a + 1):
            if held[a] or held[c]:
                L[a, c] = 0.0
                continue
            h = H[a, c]
            for k in range(c):
                h -= L[a, k] * L[c, k]
            if c < a:
                L[a, c] = h / L[c, c]
                y[a] -= L[a, c] * y[c]
            else:
                L[a, a] = math.sqrt(h) if h > 0.0 else np.inf
                y[a] /= L[a, a]
    for a in range(d - 1, -1, -1):
        if not held[a]:
            for k in range(a + 1, d):
                y[a] -= L[k, a] * y[k]
            y[a] /= L[a, a]


@jit
def fill_qp_gradient(slope: Floats, H: Floats, g: Floats, x: Floats) -> None:
    """Write g + H x, and zero where that may be rounding."""
    for j in range(x.size):
        slope[j], size = g[j], abs(g[j])
        for k in range(x.size):
            term = H[j, k] * x[k]
            slope[j] += term
            size += abs(term)
        if abs(slope[j]) <= GRADIENT_ROUNDING * size:
            slope[j] = 0.0


@jit
def release_worst_bound(held: Bools, slope: Floats, x: Floats, low: Floats, high: Floats) -> bool:
    """Release the held variable with the steepest descent; returns whether there was one."""
    worst, most = -1, 0.0
    for j in range(x.size):
        inward = -slope[j] if x[j] == low[j] else slope[j]
        if held[j] and low[j] < high[j] and inward > most:
            worst, most = j, inward
    if worst >= 0:
        held[worst] = False
    return worst >= 0


@jit
def solve_box_qp(x: Floats, H: Floats, g: Floats, low: Floats, high: Floats) -> None:
    """Write the x in [low, high] that minimises g.x + x.H x / 2, by a primal active set.

    H is positive definite, low <= 0 <= high. From x = 0 every step descends: a variable is held
    when it reaches a bound, and released, steepest first, when its slope points inward.

    >>> x, wall = np.empty(2), np.array([2.0, 2.0])
    >>> solve_box_qp(x, np.eye(2), np.array([-1.0, 3.0]), -wall, wall)
    >>> x
    array([ 1., -2.])
    """
    d = g.size
    y, slope, held, L = np.empty(d), np.empty(d), np.empty(d, np.bool_), np.empty((d, d))
    for j in range(d):
        x[j], slope[j] = 0.0, g[j]
        held[j] = (low[j] == 0.0 and g[j] >= 0.0) or (high[j] == 0.0 and g[j] <= 0.0)
    for _ in range(20 + 10 * d):
        fill_newton_step(y, H, slope, held, L)
        share, blocking = 1.0, -1
        for j in range(d):
            room = (low[j] if y[j] < 0.0 else high[j]) - x[j]
            if abs(room) < share * abs(y[j]):
                share, blocking = room / y[j], j
        for j in range(d):
            x[j] = min(max(x[j] + share * y[j], low[j]), high[j])
        if blocking >= 0:
            x[blocking] = low[blocking] if y[blocking] < 0.0 else high[blocking]
            held[blocking] = True
        fill_qp_gradient(slope, H, g, x)
        if blocking < 0 and not release_worst_bound(held, slope, x, low, high):
            break
