"""Exact Euclidean projection on the floored simplex cut by several rows at once.

One row has a faster kernel of its own, `bylot.kernels.project.onto_halfspace`. As there,
q = floor + p with p >= 0 and sum p = r. Row j reads D_j p <= t_j.

The multipliers lam >= 0 maximise the concave dual, whose slope is the excess D p(lam) - t, where
p(lam) is the projection of y - D^T lam on {p >= 0, sum p = r}. A proximal-point step adds
-|delta|^2 / 2 sigma, delta being the change of lam: that makes the Hessian regular whatever the
rows, duplicates included, and leaves row j an excess delta_j / sigma, which goes to zero if the
rows can be kept. If they cannot, the same steps, from p instead of y and with no multipliers to
begin with, lead to the excess of least Euclidean norm; with it allowed, the rows can be kept.

Written out in loops, as each array expression would add a second to the compiling.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.kernels.bounded import bounded_minimum, dot, norm, triangle
from bylot.kernels.compile import Floats, compiled
from bylot.kernels.project import EPS, POINT, level

KEPT = 1e-13  # an excess, in parts of max |A_j|, that counts as none
CLOSE = 1e-11  # one that is left as it is if a step does not halve it
GAP = 1e-13  # between u.(D p) and the least that it can be, in parts of |u|
NOISE = 4 * EPS  # rounding of a sum that should be zero, in parts of its terms
FAR = 1e22  # the longest step sigma, in scales of z: 1 / sqrt(FAR) is not yet rounding
WIDE = 1e13  # the longest step sigma |u| towards the least excess
STEPS = 40  # proximal-point steps
FEW = 6  # of them, before asking if the rows can be kept at all
REFINE = 4  # solutions of one step, each seen from the last
NEWTON = 60  # Newton steps in each
TRIALS = 60  # points of a line search


class RowsProjection(NamedTuple):
    """Nearest point, the price of each row there, and whether any point keeps all rows."""

    q: Floats
    multipliers: Floats
    feasible: bool


class Cut(NamedTuple):
    """The rows as D p <= t for p >= 0 of mass r, in parts of unit_j = max |A_j|."""

    D: Floats  # (d, K), (A_j - min A_j) / unit_j; zero for a row that every p keeps
    t: Floats
    unit: Floats
    r: float


class Step(NamedTuple):
    """Maximise dual(lam + delta) - |at + delta|^2 / 2 sigma over delta >= -lam, seen from y."""

    y: Floats
    cut: Cut
    lam: Floats
    sigma: float
    at: Floats


@compiled
def scaled(A: Floats, b: Floats, floor: float, r: float) -> Cut:
    """The rows with their costs from zero up: t_j = (b_j - floor sum A_j - r min A_j) / unit_j."""
    D, t, unit = np.zeros(A.shape), np.zeros(b.size), np.ones(b.size)
    for j in range(b.size):
        least, most, total = A[j, 0], A[j, 0], 0.0
        for i in range(A.shape[1]):
            least, most, total = min(least, A[j, i]), max(most, A[j, i]), total + A[j, i]
        if least < 0.0 or most > 0.0:
            unit[j] = max(abs(least), abs(most))
        t[j] = (b[j] - (floor * total + r * least)) / unit[j]
        if t[j] < r * (most - least) / unit[j]:
            for i in range(A.shape[1]):
                D[j, i] = (A[j, i] - least) / unit[j]
    return Cut(D, t, unit, r)


@compiled
def plus(x: Floats, s: Floats, t: float) -> Floats:
    """x + t s."""
    y = x.copy()
    for j in range(x.size):
        y[j] += t * s[j]
    return y


@compiled
def raised(x: Floats, c: float) -> Floats:
    """x_i + c."""
    y = x.copy()
    for i in range(x.size):
        y[i] += c
    return y


@compiled
def largest(x: Floats) -> float:
    """max |x_j|."""
    most = 0.0
    for j in range(x.size):
        most = max(most, abs(x[j]))
    return most


@compiled
def lower(p: Floats, r: float, tau: float) -> float:
    """Take tau from p so that max(0, p) has mass r; returns tau, looked for from the one given."""
    tau = level(p, r, tau)
    for i in range(p.size):
        p[i] -= tau
    return tau


@compiled
def settle(p: Floats, y: Floats, cut: Cut, delta: Floats, tau: float) -> float:
    """Write p_i = y_i - (D^T delta)_i - tau, max(0, p) having mass r; returns tau.

    The negative entries stay: they are how far the clamped points are from moving. The level
    is found twice, the second time at the scale of p, where rounding does not show.
    """
    for i in range(p.size):
        p[i] = y[i]
    for j in range(delta.size):
        for i in range(p.size):
            p[i] -= delta[j] * cut.D[j, i]
    tau = lower(p, cut.r, tau)
    lower(p, cut.r, 0.0)
    return tau


@compiled
def excess(p: Floats, cut: Cut) -> Floats:
    """D max(0, p) - t: by how much each row is missed."""
    over = np.empty(cut.t.size)
    for j in range(over.size):
        cost = 0.0
        for i in range(p.size):
            cost += cut.D[j, i] * max(0.0, p[i])
        over[j] = cost - cut.t[j]
    return over


@compiled
def curvature(p: Floats, D: Floats, sigma: float) -> Floats:
    """R with R^T R = sum over free i of (D_i - mean D)(D_i - mean D)^T + I / sigma."""
    d, K = D.shape
    W = np.zeros((d, K + d))
    for j in range(d):
        n, mean = 0, 0.0
        for i in range(K):
            if p[i] >= 0.0:
                n, mean = n + 1, mean + D[j, i]
        mean /= n
        for i in range(K):
            if p[i] >= 0.0:
                W[j, i] = D[j, i] - mean
        W[j, K + j] = 1.0 / math.sqrt(sigma)
    return triangle(W, d)


@compiled
def gradient(p: Floats, step: Step, delta: Floats) -> Floats:
    """Slope of minus the objective of a step: (at + delta) / sigma - excess."""
    g = excess(p, step.cut)
    for j in range(g.size):
        g[j] = (step.at[j] + delta[j]) / step.sigma - g[j]
    return g


@compiled
def step_length(step: Step, delta: Floats, s: Floats) -> float:
    """A t in [0, 1] up to which the objective rises on delta + t s, and then by a tenth at most.

    Its slope falls with t; the rule of false position, with the older end halved, brackets the
    zero. A t on the near side cannot be worse than none. Slopes still tell when values are all
    rounding.
    """
    p, tau, t, low, high = np.empty(step.y.size), 0.0, 0.0, 0.0, 1.0
    first, up, down = 0.0, 0.0, 0.0
    for trial in range(TRIALS):
        here = plus(delta, s, t)
        tau = settle(p, step.y, step.cut, here, tau)
        slope = -dot(s, gradient(p, step, here))
        if slope >= 0.0:
            low, up, down = t, slope, 0.5 * down
        else:
            high, up, down = t, 0.5 * up if trial > 1 else up, slope
        if trial == 0:
            first, t = slope, 1.0
        elif low == 1.0 or 0.0 <= slope <= 0.1 * first:
            break
        else:
            t = low + (high - low) * up / (up - down)
    return low


@compiled
def newton(step: Step) -> Floats:
    """The delta of a step. Once the free points and rows are right, a Newton step is exact."""
    d, p, tau = step.lam.size, np.empty(step.y.size), 0.0
    delta, low = np.zeros(d), np.empty(d)
    for _ in range(NEWTON):
        tau = settle(p, step.y, step.cut, delta, tau)
        g, amiss = gradient(p, step, delta), 0.0
        for j in range(d):
            low[j] = -(step.lam[j] + delta[j])
            amiss = max(amiss, abs(g[j]) if low[j] < 0.0 else -g[j])
        if amiss <= NOISE * (1.0 + p.size * largest(delta)):
            break
        s = bounded_minimum(curvature(p, step.cut.D, step.sigma), g, low)
        t = step_length(step, delta, s)
        if t == 0.0:
            break
        for j in range(d):
            delta[j] = max(delta[j] + t * s[j], -step.lam[j])
    return delta


@compiled
def proximal(y: Floats, cut: Cut, lam: Floats, sigma: float) -> Floats:
    """The delta >= -lam that maximises dual(lam + delta) - |delta|^2 / 2 sigma.

    y moves to y - D^T delta - tau. Seen from there the problem is the same but for rounding,
    which is then that of p and not of delta: so it is solved again, as long as delta matters.
    """
    delta, start = np.zeros(lam.size), y.copy()
    for _ in range(REFINE):
        more = newton(Step(y, cut, plus(lam, delta, 1.0), sigma, delta.copy()))
        for j in range(lam.size):
            delta[j] = max(delta[j] + more[j], -lam[j])
        if 2.0 * largest(more) > largest(delta):  # a new answer, not a finer one
            settle(y, start, cut, delta, 0.0)
        else:
            settle(y, y, cut, more, 0.0)
        if largest(more) <= 1.0:
            break
    return delta


@compiled
def amount(y: Floats, cut: Cut, lam: Floats) -> float:
    """Norm of what is wrong: the excess of rows, and the slack of rows that have a price."""
    over = excess(y, cut)
    for j in range(over.size):
        if lam[j] == 0.0:
            over[j] = max(0.0, over[j])
    return norm(over)


@compiled
def ahead(y: Floats, start: Floats, cut: Cut, lam: Floats, sigma: float) -> Floats:
    """lam after a proximal-point step, and y with it.

    A multiplier that falls to less than half was far too large, and so is the rounding that it
    left in y: then y is made anew from the start, and the step done again from there.
    """
    for _ in range(2):
        before, lam = lam, plus(lam, proximal(y, cut, lam, sigma), 1.0)
        fell = False
        for j in range(lam.size):
            fell |= 2.0 * lam[j] < before[j]
        if not fell:
            break
        settle(y, start, cut, lam, 0.0)
    return lam


@compiled
def nearest(y: Floats, cut: Cut, steps: int) -> Floats:
    """Move y to y - D^T lam - tau, whose positive part is the p nearest to y; returns lam.

    Longer proximal-point steps leave less wrong, until they are all rounding: one that does
    not help is taken back and tried shorter.
    """
    lam, scale, start = np.zeros(cut.t.size), max(1.0, largest(y)), y.copy()
    sigma = 1e3 * scale
    settle(y, y, cut, lam, -cut.r)
    left = amount(y, cut, lam)
    for _ in range(steps):
        if left <= KEPT:
            break
        trial = y.copy()
        tried = ahead(trial, start, cut, lam, sigma)
        after = amount(trial, cut, tried)
        if after <= left + 0.1 * KEPT:
            for i in range(y.size):
                y[i] = trial[i]
            lam, before, left = tried, left, after
            if before <= CLOSE and 2.0 * left > before:
                break
            sigma = min(100.0 * sigma, FAR * scale)
        elif left <= CLOSE:
            break
        else:
            sigma *= 0.1
    return lam


@compiled
def gap(p: Floats, u: Floats, cut: Cut) -> float:
    """By how much u.(D p) is above the least that it can be: sum_i p_i (w_i - min w), w = D^T u."""
    w, least, over = np.zeros(p.size), np.inf, 0.0
    for j in range(u.size):
        for i in range(p.size):
            w[i] += u[j] * cut.D[j, i]
    for i in range(p.size):
        least = min(least, w[i])
    for i in range(p.size):
        over += max(0.0, p[i]) * (w[i] - least)
    return over


@compiled
def positive(x: Floats) -> Floats:
    """max(0, x_i)."""
    y = np.empty(x.size)
    for i in range(x.size):
        y[i] = max(0.0, x[i])
    return y


@compiled
def least_excess(y: Floats, cut: Cut) -> Floats:
    """The smallest u >= 0, by Euclidean norm, for which some p has D p <= t + u.

    Proximal-point steps for |u|^2 / 2: from p to the minimum of that + |p' - p|^2 / 2 sigma.
    Long ones reach the end of the flattest slopes. u is least if no p' has a smaller u.(D p').
    """
    none, reach, p = np.zeros(cut.t.size), 10.0, np.empty(y.size)
    settle(p, y, cut, none, -cut.r)
    u = positive(excess(p, cut))
    for _ in range(STEPS):
        if largest(u) <= KEPT or gap(p, u, cut) <= GAP * norm(u) or reach < 1.0:
            break
        trial = positive(p)
        proximal(trial, cut, none, reach / norm(u))
        after = positive(excess(trial, cut))
        if norm(after) <= norm(u) * (1.0 + NOISE):
            p, u = trial, after
            reach = min(100.0 * reach, WIDE)
        else:
            reach *= 0.1
    return u


@compiled
def onto_rows(z: Floats, floor: float, A: Floats, b: Floats) -> RowsProjection:
    """Nearest point of {sum q = 1, q >= floor, A q <= b}, with the multipliers of the rows.

    q_i = max(floor, z_i - tau - (A^T lam)_i), lam >= 0 and lam_j (b_j - A_j q) = 0. If the set is
    empty, `feasible` is False and q is the nearest of the points that miss the rows by least:
    no point has a smaller Euclidean norm of max(0, A_j q - b_j) / max |A_j|. The multipliers
    are then those of the rows that q just keeps.

    >>> A, b = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([0.25, 0.125])
    >>> q, multipliers, feasible = onto_rows(np.array([0.5, 0.5, 0.0]), 0.0, A, b)
    >>> q, multipliers, feasible
    (array([0.25 , 0.125, 0.625]), array([0.875, 1.   ]), True)
    """
    cut, none = scaled(A, b, floor, 1.0 - z.size * floor), np.zeros(b.size)
    y = np.zeros(z.size)
    if cut.r <= POINT:
        u, lam = positive(excess(y, cut)), none
    else:
        start = raised(z, -z.max())
        y, u = start.copy(), none
        lam = nearest(y, cut, FEW)
        if amount(y, cut, lam) > KEPT:
            y, u = start.copy(), least_excess(start, cut)
            lam = nearest(y, Cut(cut.D, plus(cut.t, u, 1.0), cut.unit, cut.r), STEPS)
    for j in range(b.size):
        lam[j] /= cut.unit[j]
    return RowsProjection(raised(positive(y), floor), lam, largest(u) <= KEPT)
