"""Exact Euclidean projection on the floored simplex cut by several rows at once.

One row has a faster kernel of its own, `bylot.kernels.project.onto_halfspace`. As there,
q = floor + p with p >= 0 and sum p = r. Row j reads D_j p <= t_j, with costs scaled to [0, 1].

The multipliers lam >= 0 maximise the concave dual, whose slope is the excess D p(lam) - t, where
p(lam) is the projection of y - D^T lam on {p >= 0, sum p = r}. A proximal-point step subtracts
|delta|^2 / 2 sigma, delta being the change of lam: that makes the Hessian regular whatever the
rows, duplicates included, and leaves row j an excess delta_j / sigma. The excess goes to zero if
the rows can be kept; if not, to the one of least Euclidean norm, and p to the nearest point that
has it (Chiche and Gilbert, "How the augmented Lagrangian algorithm can deal with an infeasible
convex quadratic optimization problem", 2016).
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Bools, Floats, compiled
from bylot.kernels.project import EPS, POINT, level

KEPT = 1e-13  # an excess, in parts of max |A_j|, that counts as none
CLOSE = 1e-11  # one that is left as it is if a step does not halve it
GAP = 1e-13  # between the least excess and what was found, in parts of a row's range
NOISE = 4 * EPS  # rounding of a sum that should be zero, in parts of its terms
FAR = 1e22  # the longest proximal-point step, in scales of z: its square root is not yet rounding
STEPS = 40  # proximal-point steps
REFINE = 4  # solutions of one step, each from the last
NEWTON = 60  # Newton steps in each
TRIALS = 60  # points of a line search


class RowsProjection(NamedTuple):
    """Nearest point, the price of each row there, and whether any point keeps all rows."""

    q: Floats
    multipliers: Floats
    feasible: bool


class Cut(NamedTuple):
    """The rows as D p <= t, in parts of the largest cost: A_j = min A_j + unit_j D_j."""

    D: Floats  # (d, K); zero for a row that no p can miss, or none can change
    t: Floats
    unit: Floats


@compiled
def scaled(A: Floats, b: Floats, floor: float, r: float) -> Cut:
    """Rows over unit_j = max |A_j|: t_j = (b_j - floor sum A_j - r min A_j) / unit_j."""
    D, t, unit = np.zeros(A.shape), np.zeros(b.size), np.ones(b.size)
    for j in range(b.size):
        least, most = A[j].min(), A[j].max()
        if least < 0.0 or most > 0.0:
            unit[j] = max(abs(least), abs(most))
        t[j] = (b[j] - (floor * A[j].sum() + r * least)) / unit[j]
        if t[j] < r * (most - least) / unit[j]:
            D[j] = (A[j] - least) / unit[j]
    return Cut(D, t, unit)


@compiled
def settle(p: Floats, y: Floats, D: Floats, delta: Floats, r: float, tau: float) -> float:
    """Write p_i = y_i - (D^T delta)_i - tau with sum of max(0, p) = r; returns tau.

    The negative entries stay: they are how far the clamped points are from moving. The level
    is found twice, the second time at the scale of p, where rounding does not show.
    """
    p[:] = y
    for j in range(delta.size):
        if delta[j] != 0.0:
            for i in range(p.size):
                p[i] -= delta[j] * D[j, i]
    tau = level(p, r, tau)
    p -= tau
    p -= level(p, r, 0.0)
    return tau


@compiled
def excess(p: Floats, cut: Cut) -> Floats:
    """D max(0, p) - t: by how much each row is missed."""
    over = -cut.t
    for j in range(over.size):
        cost = 0.0
        for i in range(p.size):
            cost += cut.D[j, i] * max(0.0, p[i])
        over[j] += cost
    return over


@compiled
def triangle(W: Floats) -> Floats:
    """Upper triangular R with R^T R = W W^T; W is used up.

    Modified Gram-Schmidt: W W^T itself would have the square of the condition number.
    """
    R = np.zeros((W.shape[0], W.shape[0]))
    for j in range(W.shape[0]):
        R[j, j] = math.sqrt(np.sum(W[j] * W[j]))
        W[j] /= R[j, j]
        for k in range(j + 1, W.shape[0]):
            R[j, k] = np.sum(W[j] * W[k])
            W[k] -= R[j, k] * W[j]
    return R


@compiled
def curvature(p: Floats, D: Floats, sigma: float) -> Floats:
    """R with R^T R = sum over free i of (D_i - mean D)(D_i - mean D)^T + I / sigma."""
    free = np.flatnonzero(p >= 0.0)
    W = np.zeros((D.shape[0], free.size + D.shape[0]))
    for j in range(D.shape[0]):
        mean = 0.0
        for k in range(free.size):
            W[j, k] = D[j, free[k]]
            mean += W[j, k] / free.size
        W[j, : free.size] -= mean
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
def step_length(y: Floats, cut: Cut, r: float, sigma: float, at: Floats, delta: Floats, s: Floats) -> float:
    """The t in (0, 1] at which the proximal dual is largest on delta + t s, to a tenth of its slope.

    The slope s.(excess - (at + delta + t s) / sigma) falls with t; the rule of false position,
    with the older end halved, brackets its zero. Slopes still tell when values are rounding.
    """
    p, tau, t, low, high, up, down, first = np.empty(y.size), 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0
    for trial in range(TRIALS):
        tau = settle(p, y, cut.D, delta + t * s, r, tau)
        slope = np.sum(s * (excess(p, cut) - (at + delta + t * s) / sigma))
        if trial == 0:
            first, up, t = slope, slope, 1.0
            continue
        if abs(slope) <= 0.1 * first or (t == 1.0 and slope >= 0.0):
            break
        if slope > 0.0:
            low, up, down = t, slope, 0.5 * down
        else:
            high, up, down = t, 0.5 * up if trial > 1 else up, slope
        t = low + (high - low) * up / (up - down)
    return t


@compiled
def newton(y: Floats, cut: Cut, r: float, lam: Floats, sigma: float, at: Floats) -> Floats:
    """The delta >= -lam that maximises dual(lam + delta) - |at + delta|^2 / 2 sigma.

    The dual is piecewise quadratic: once the free points and rows are right a step is exact.
    """
    delta, p, tau = np.zeros(lam.size), np.empty(y.size), 0.0
    for _ in range(NEWTON):
        tau = settle(p, y, cut.D, delta, r, tau)
        g = (at + delta) / sigma - excess(p, cut)
        wrong = np.where(lam + delta > 0.0, np.abs(g), -g)
        if wrong.max() <= NOISE * (1.0 + np.sum(p >= 0.0) * np.abs(delta).max()):
            break
        s = bounded(curvature(p, cut.D, sigma), g, -(lam + delta))
        t = step_length(y, cut, r, sigma, at, delta, s)
        if t == 0.0:
            break
        delta = np.maximum(delta + t * s, -lam)
    return delta


@compiled
def proximal(y: Floats, cut: Cut, r: float, lam: Floats, sigma: float) -> Floats:
    """The step delta >= -lam that maximises dual(lam + delta) - |delta|^2 / 2 sigma.

    y moves to y - D^T delta - tau. Seen from there the problem is the same but for rounding,
    which is then that of p and not of delta: so it is solved again, as long as delta matters.
    """
    delta, start = np.zeros(lam.size), y.copy()
    for _ in range(REFINE):
        more = newton(y, cut, r, lam + delta, sigma, delta)
        delta = np.maximum(delta + more, -lam)
        if 2.0 * np.abs(more).max() > np.abs(delta).max():  # a new answer, not a finer one
            settle(y, start, cut.D, delta, r, 0.0)
        else:
            settle(y, y, cut.D, more, r, 0.0)
        if np.abs(more).max() <= 1.0:
            break
    return delta


@compiled
def gap(p: Floats, u: Floats, cut: Cut) -> float:
    """By how much u.(D p) is above the least that it can be with the same mass."""
    price = np.zeros(p.size)
    for j in range(u.size):
        price += u[j] * cut.D[j]
    return float(np.sum((price - price.min()) * np.maximum(p, 0.0)))


@compiled
def least_excess(p: Floats, cut: Cut, r: float) -> Floats:
    """The excess u >= 0 of least norm that the rows can be kept up to; p moves to where it is.

    Steps of the proximal-point method for |u|^2 / 2: from p to the minimum of that plus
    |p' - p|^2 / 2 sigma. Long steps reach the end of the flattest slopes, short ones are exact.
    u is least if no p' has a smaller u.(D p').
    """
    none, reach = np.zeros(cut.t.size), 10.0
    u = np.maximum(excess(p, cut), 0.0)
    for _ in range(STEPS):
        norm = math.sqrt(np.sum(u * u))
        if np.all(u <= KEPT) or gap(p, u, cut) <= GAP * norm or reach < 1.0:
            break
        trial = np.maximum(p, 0.0)
        proximal(trial, cut, r, none, reach / norm)
        after = np.maximum(excess(trial, cut), 0.0)
        if np.sum(after * after) <= norm * norm * (1.0 + NOISE):
            p[:], u = trial, after
            reach = min(100.0 * reach, 1e11)
        else:
            reach *= 0.1
    return u


@compiled
def wrong(y: Floats, cut: Cut, lam: Floats) -> float:
    """Norm of the excess of rows, and of the slack of rows that have a price."""
    over = excess(y, cut)
    return math.sqrt(np.sum(np.where(lam > 0.0, over, np.maximum(over, 0.0)) ** 2))


@compiled
def nearest(y: Floats, cut: Cut, r: float) -> Floats:
    """Move y to y - D^T lam - tau, whose positive part is the p nearest to y; returns lam.

    Longer proximal-point steps leave less wrong, until they are all rounding: one that does
    not help is taken back and tried shorter.
    """
    lam, scale, start = np.zeros(cut.t.size), max(1.0, -y.min()), y.copy()
    sigma = 10.0 * scale
    settle(y, y, cut.D, lam, r, -r)
    left = wrong(y, cut, lam)
    for _ in range(STEPS):
        if left <= KEPT:
            break
        trial = y.copy()
        delta = proximal(trial, cut, r, lam, sigma)
        if np.any(-delta > lam + delta):
            settle(trial, start, cut.D, lam + delta, r, 0.0)
            delta += proximal(trial, cut, r, lam + delta, sigma)
        after = wrong(trial, cut, lam + delta)
        if after <= left + 0.1 * KEPT:
            y[:] = trial
            lam += delta
            if left <= CLOSE and 2.0 * after > left:
                break
            left = after
            sigma = min(100.0 * sigma, FAR * scale)
        elif left <= CLOSE:
            break
        else:
            sigma *= 0.1
    return lam


@compiled
def onto_rows(z: Floats, floor: float, A: Floats, b: Floats) -> RowsProjection:
    """Nearest point of {sum q = 1, q >= floor, A q <= b}, with the multipliers of the rows.

    q_i = max(floor, z_i - tau - (A^T lam)_i), lam >= 0 and lam_j (b_j - A_j q) = 0. If the set is
    empty, `feasible` is False and q is the nearest of the points that miss the rows by least:
    the Euclidean norm of max(0, A_j q - b_j) / max |A_j| is the smallest there is, and lam are multipliers of the rows that such a point just keeps.

    >>> A, b = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([0.25, 0.125])
    >>> q, multipliers, feasible = onto_rows(np.array([0.5, 0.5, 0.0]), 0.0, A, b)
    >>> q, multipliers, feasible
    (array([0.25 , 0.125, 0.625]), array([0.875, 1.   ]), True)
    """
    r = 1.0 - z.size * floor
    cut = scaled(A, b, floor, r)
    y, p = z - z.max(), np.empty(z.size)
    if r <= POINT:
        feasible = bool(np.all(cut.t >= -KEPT))
        return RowsProjection(np.full(z.size, floor), np.zeros(b.size), feasible)
    settle(p, y, cut.D, np.zeros(b.size), r, -r)
    u = least_excess(p, cut, r)
    lam = nearest(y, Cut(cut.D, cut.t + u, cut.unit), r)
    feasible = bool(np.all(u <= KEPT))
    return RowsProjection(floor + np.maximum(y, 0.0), lam / cut.unit, feasible)
