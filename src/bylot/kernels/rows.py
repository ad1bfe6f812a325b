"""Exact Euclidean projection on the floored simplex cut by several rows at once.

One row has a faster kernel of its own, `bylot.kernels.project.onto_halfspace`. As there,
q = floor + p with p >= 0 and sum p = r; row j reads D_j p <= 0 with D_ji = (A_ji - beta_j) / s_j,
where beta_j is the mean cost that the mass above the floor may have and s_j = max A_j - min A_j.

The multipliers lam >= 0 maximise the concave dual of slope D p(lam), where p(lam) is the
projection of y - D^T lam on {p >= 0, sum p = r}. A proximal-point step adds -|delta|^2 / 2 sigma
to it, which makes the Hessian regular whatever the rows, duplicates included, and leaves each row
an excess delta_j / sigma. That goes to zero if the rows can be kept, and else to the excess of
least Euclidean norm, the p to the nearest point that has it (Chiche and Gilbert, "How the
augmented Lagrangian algorithm can deal with an infeasible convex quadratic optimization
problem", 2016).
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Bools, Floats, compiled
from bylot.kernels.project import EPS, POINT, level, onto_simplex

KEPT = 1e-13  # an excess, in parts of max |A_j|, that counts as none
GAP = 1e-12  # relative, between the excess found and a bound below any excess
STEPS = 60  # proximal-point steps
NEWTON = 200  # Newton steps in each
TRIALS = 60  # points of a line search


class RowsProjection(NamedTuple):
    """Nearest point, the price of each row there, and whether any point keeps all rows."""

    q: Floats
    multipliers: Floats
    feasible: bool


@compiled
def settle(p: Floats, y: Floats, D: Floats, delta: Floats, r: float, tau: float) -> float:
    """Write p_i = y_i - (D^T delta)_i - tau with sum of max(0, p) = r; returns tau.

    The negative entries are kept: they are how far the clamped points are from moving.
    """
    p[:] = y
    for j in range(delta.size):
        if delta[j] != 0.0:
            for i in range(p.size):
                p[i] -= delta[j] * D[j, i]
    tau = level(p, r, tau)
    for i in range(p.size):
        p[i] -= tau
    return tau


@compiled
def excess(p: Floats, D: Floats) -> Floats:
    """D max(0, p): by how much each row is missed."""
    over = np.zeros(D.shape[0])
    for j in range(D.shape[0]):
        for i in range(p.size):
            over[j] += D[j, i] * max(0.0, p[i])
    return over


@compiled
def triangle(W: Floats) -> Floats:
    """R of the QR factors of W^T, upper triangular with R^T R = W W^T; W is used up.

    Modified Gram-Schmidt: W W^T itself would have the square of the condition number.
    """
    d = W.shape[0]
    R = np.zeros((d, d))
    for j in range(d):
        R[j, j] = math.sqrt(np.sum(W[j] * W[j]))
        if R[j, j] == 0.0:
            continue
        W[j] /= R[j, j]
        for k in range(j + 1, d):
            R[j, k] = np.sum(W[j] * W[k])
            W[k] -= R[j, k] * W[j]
    return R


@compiled
def curvature(p: Floats, D: Floats, sigma: float) -> Floats:
    """R with R^T R = sum over free i of (D_i - mean D)(D_i - mean D)^T + I / sigma."""
    d = D.shape[0]
    free = np.flatnonzero(p >= 0.0)
    W = np.zeros((d, free.size + d))
    for j in range(d):
        mean = 0.0
        for k in range(free.size):
            W[j, k] = D[j, free[k]]
            mean += W[j, k] / free.size
        for k in range(free.size):
            W[j, k] -= mean
        W[j, free.size + j] = 1.0 / math.sqrt(sigma)
    return triangle(W)


@compiled
def solve(R: Floats, h: Floats, passive: Bools) -> Floats:
    """x with (R^T R x)_j = h_j for the passive j, and x_j = 0 for the others."""
    chosen = np.flatnonzero(passive)
    T = triangle(np.ascontiguousarray(R[:, chosen].T))
    x = h[chosen]
    for j in range(chosen.size):  # T^T first, then T
        x[j] = (x[j] - np.sum(T[:j, j] * x[:j])) / T[j, j]
    for j in range(chosen.size - 1, -1, -1):
        x[j] = (x[j] - np.sum(T[j, j + 1 :] * x[j + 1 :])) / T[j, j]
    full = np.zeros(h.size)
    full[chosen] = x
    return full


@compiled
def bounded(R: Floats, g: Floats, low: Floats) -> Floats:
    """The x >= low, low <= 0, that minimises g.x + |R x|^2 / 2, by a primal active set.

    Coordinates leave the set when they reach their bound, and enter it, worst first, while
    the slope there says that they should.
    """
    x, passive = np.zeros(g.size), (low < 0.0) | (g < 0.0)
    for _ in range(20 + 10 * g.size):
        held = np.where(passive, 0.0, x)
        goal = held + solve(R, -g - R.T @ (R @ held), passive)
        share, blocking = 1.0, -1
        for j in range(g.size):
            if passive[j] and goal[j] < low[j] and low[j] - x[j] > share * (goal[j] - x[j]):
                share, blocking = (low[j] - x[j]) / (goal[j] - x[j]), j
        x += share * (goal - x)
        if blocking >= 0:
            x[blocking], passive[blocking] = low[blocking], False
            continue
        slope = np.where(passive, 0.0, g + R.T @ (R @ x))
        worst = np.argmin(slope)
        if slope[worst] >= -EPS * np.abs(g).max():
            break
        passive[worst] = True
    return x


@compiled
def step_length(y: Floats, D: Floats, r: float, sigma: float, delta: Floats, s: Floats) -> float:
    """Where on delta + t s, 0 <= t <= 1, the proximal dual is largest, to a tenth of its slope.

    The slope s.(D p(delta + t s) - (delta + t s) / sigma) falls with t: Illinois' rule of false
    position brackets its zero. Slopes, not values: they still tell when values are all rounding.
    """
    p, tau, t, low, high, up, down = np.empty(y.size), 0.0, 1.0, 0.0, 1.0, 0.0, 0.0
    first = 0.0
    for trial in range(TRIALS):
        at = delta + t * s
        tau = settle(p, y, D, at, r, tau)
        slope = np.sum(s * (excess(p, D) - at / sigma))
        if trial == 0:
            if slope >= 0.0:
                return 1.0
            settle(p, y, D, delta, r, tau)
            first = np.sum(s * (excess(p, D) - delta / sigma))
            up, down = first, slope
        elif abs(slope) <= 0.1 * first:
            break
        elif slope > 0.0:
            low, up, down = t, slope, 0.5 * down
        else:
            high, up, down = t, 0.5 * up, slope
        t = low + (high - low) * up / (up - down)
    return t
