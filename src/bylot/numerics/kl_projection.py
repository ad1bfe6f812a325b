"""Entropic (KL) projection of a law of M different experts on linear rows A p <= b.

The law is p = (1 - eps) pi(theta) + eps p0, pi(theta) the chances of `bylot.numerics.conditional_poisson` to be
in the set; for M = 1 they are softmax(theta). The nearest law to theta = z that keeps the rows is
theta = z - A' lam, with the prices lam in [0, cap] that minimise the convex dual

    F(lam) = (1 - eps) log e_M(e^{z - A' lam}) + lam.(b - eps A p0),    slope  b - A p.

Where no p keeps the rows, the cap makes it the p that minimises (1 - eps) KL + cap sum of excesses.
Newton's method: the lowest point of a quadratic model of F in the box of prices (`boxed`), and a
line search towards it. Rows come signed, all upper, and scaled to max |A_j| = 1; who makes them is
left to the policies. Written out in loops, which compile faster than array expressions.
"""

from typing import NamedTuple

import numpy as np

from bylot.numerics.box_qp import solve_box_qp
from bylot.numerics.conditional_poisson import (
    fill_count_table,
    fill_inclusion,
    fill_softmax,
    nth_largest,
)
from bylot.numerics.jit import Floats, Ints, jit, jit_inline
from bylot.numerics.simd import SIMD_WIDTH, load_lanes, splat, sum_lanes

MAX_MULTIPLIER = 200.0  # the highest price of a row
SOLVED_RESIDUAL = 1e-10  # a residual that counts as none
MAX_NEWTON_STEPS = 100  # of Newton's method; a handful is usual
MAX_LINE_SEARCH_TRIALS = 40  # points of a line search; one is usual
ARMIJO_FRACTION = 1e-4  # of the decrease that the slope promises, which a step must keep
WOLFE_FRACTION = (
    0.5  # of the slope at the start, at most, at the end of a step too short for values to tell
)
VALUE_ROUNDING = 1e-14  # of the terms of F, that rounding may have made
RIDGE_FRACTION = 1e-12  # of the largest curvature, added to all: rows may say the same
MIN_RIDGE = 1e-30  # the least ridge, where there is no curvature at all
SHORT_STEP = 0.1  # a step this short tells the curvature better than the model does


class KlProjection(NamedTuple):
    """How good a projection is."""

    residual: float  # of the prices' optimality: about 0, whether the rows can be kept or not
    excess: float  # of the row that is missed by most, max (A p - b)_j; at most about 0: all kept
    evaluations: int


class DualProblem(NamedTuple):
    """The dual problem, (1 - eps) log e_M(e^{z - A' lam}) + lam.r over 0 <= lam <= cap."""

    z: Floats  # (K,), shifted so that its M-th largest is 0
    A: Floats  # (d, K)
    r: Floats  # (d,), b - eps A p0
    share: float  # 1 - eps
    cap: float
    M: int
    table: Floats  # room for the law of a point
    coins: Floats


class DualPoint(NamedTuple):
    """Prices, the slope of F there, and the law."""

    lam: Floats
    slope: Floats
    theta: Floats
    pi: Floats


class Secant(NamedTuple):
    """The last step: prices moved by s, slopes by y; whether the curvature is to learn from it."""

    s: Floats
    y: Floats
    tells: bool


class LineSearch(NamedTuple):
    """What a line search came to: how far along the step, F there, points tried."""

    t: float  # 0: nowhere lower
    value: float
    trials: int


@jit_inline
def dot_product(x: Floats, y: Floats) -> float:
    """Sum of x_i y_i, eight at a time."""
    acc = splat(0.0)
    for i in range(0, x.size, SIMD_WIDTH):
        acc = acc + load_lanes(x, i, 0.0) * load_lanes(y, i, 0.0)
    return sum_lanes(acc)


@jit
def evaluate_dual(at: DualPoint, rows: DualProblem) -> float:
    """Write slope, theta and pi at the prices at.lam; returns F."""
    d, K = rows.A.shape
    value = 0.0
    for i in range(K):
        at.theta[i] = rows.z[i]
    for j in range(d):
        price = at.lam[j]
        if price > 0.0:
            value += price * rows.r[j]
            for i in range(K):
                at.theta[i] -= price * rows.A[j, i]
    if rows.M == 1:
        log_z = fill_softmax(at.pi, at.theta)
    else:
        log_z = fill_count_table(rows.table, rows.coins, at.theta, rows.M)
        fill_inclusion(at.pi, rows.table, rows.coins, rows.M)
    for j in range(d):
        at.slope[j] = rows.r[j] - rows.share * dot_product(rows.A[j], at.pi)
    return value + rows.share * log_z


@jit
def dual_residual(at: DualPoint, cap: float) -> float:
    """max_j |lam_j - clip(lam_j - slope_j, 0, cap)|: zero if and only if lam is optimal."""
    worst = 0.0
    for j in range(at.lam.size):
        g = at.slope[j]
        worst = max(worst, min(abs(g), at.lam[j] if g > 0.0 else cap - at.lam[j]))
    return worst


@jit
def fill_covariance_diagonal(c: Floats, pi: Floats, M: int) -> float:
    """Write c with diag c - c c' / sum c ~ Cov, the covariance of 1[i in A]; returns sum c.

    For M = 1 it is c = pi, exactly. Otherwise c_i - c_i^2 / sum c should be v_i = pi_i (1 - pi_i),
    the variance, and two turns of c_i = v_i + c_i^2 / sum c come close: the error of the Hessian is
    a half to a tenth of what it is with c = v, the limit for large sets.
    """
    whole = 0.0
    for i in range(pi.size):
        c[i] = pi[i] if M == 1 else pi[i] * (1.0 - pi[i])
        whole += c[i]
    if M == 1 or whole < MIN_RIDGE:
        return whole
    for _ in range(2):
        part, whole = 1.0 / whole, 0.0
        for i in range(pi.size):
            c[i] = pi[i] * (1.0 - pi[i]) + part * c[i] * c[i]
            whole += c[i]
    return whole


@jit
def dual_hessian(at: DualPoint, rows: DualProblem, chosen: Ints, n: int) -> Floats:
    """(1 - eps) A Cov A' on the n rows chosen, with a ridge."""
    H, c, w = np.empty((n, n)), np.empty(at.pi.size), np.empty(at.pi.size)
    whole = max(fill_covariance_diagonal(c, at.pi, rows.M), MIN_RIDGE)
    for a in range(n):
        row = rows.A[chosen[a]]
        mean = dot_product(c, row) / whole
        for i in range(c.size):
            w[i] = rows.share * c[i] * (row[i] - mean)
        for k in range(a + 1):
            H[a, k] = H[k, a] = dot_product(w, rows.A[chosen[k]])
    for a in range(n):
        H[a, a] += RIDGE_FRACTION * whole
    return H


@jit
def apply_bfgs_update(H: Floats, chosen: Ints, last: Secant) -> None:
    """H + y y' / s.y - H s s' H / s.H s, which maps the last step to what came of it (BFGS)."""
    n, sHs, sy = H.shape[0], 0.0, 0.0
    Hs = np.zeros(n)
    for a in range(n):
        for k in range(n):
            Hs[a] += H[a, k] * last.s[chosen[k]]
        sHs += last.s[chosen[a]] * Hs[a]
        sy += last.s[chosen[a]] * last.y[chosen[a]]
    if sHs > 0.0 and sy > 0.01 * sHs:
        for a in range(n):
            for k in range(n):
                H[a, k] += last.y[chosen[a]] * last.y[chosen[k]] / sy - Hs[a] * Hs[k] / sHs


@jit
def fill_newton_direction(s: Floats, at: DualPoint, rows: DualProblem, last: Secant) -> None:
    """Write the way to the lowest point of the model, over the rows with a price or an excess.

    The others stay out: one that the step makes missed is a row of the next.
    """
    n, chosen = 0, np.empty(s.size, np.int64)
    for j in range(s.size):
        s[j] = 0.0
        if at.lam[j] > 0.0 or at.slope[j] < 0.0:
            chosen[n] = j
            n += 1
    H = dual_hessian(at, rows, chosen, n)
    if last.tells:
        apply_bfgs_update(H, chosen, last)
    x, g, low, high = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for a in range(n):
        j = chosen[a]
        g[a], low[a], high[a] = at.slope[j], -at.lam[j], rows.cap - at.lam[j]
    solve_box_qp(x, H, g, low, high)
    for a in range(n):
        s[chosen[a]] = x[a]


@jit
def search_line(
    there: DualPoint, here: DualPoint, s: Floats, value: float, rows: DualProblem
) -> LineSearch:
    """Go along s from here as far as F falls enough, and write the point there.

    F is convex: a point that is too far is followed by the one where the tangents at both ends
    meet. Near the optimum values are all rounding; slopes still tell.
    """
    first, size, t = 0.0, 1.0 + abs(value), 1.0
    for j in range(s.size):
        first += s[j] * here.slope[j]
        size += here.lam[j] + abs(s[j])
    for trial in range(MAX_LINE_SEARCH_TRIALS if first < 0.0 else 0):
        slope = 0.0
        for j in range(s.size):
            there.lam[j] = min(max(here.lam[j] + t * s[j], 0.0), rows.cap)
        new = evaluate_dual(there, rows)
        for j in range(s.size):
            slope += s[j] * there.slope[j]
        enough = new <= value + ARMIJO_FRACTION * t * first
        if enough or (slope <= -WOLFE_FRACTION * first and new <= value + VALUE_ROUNDING * size):
            return LineSearch(t, new, trial + 1)
        meet = (new - value - slope * t) / (first - slope)
        t = min(max(meet, 0.01 * t), 0.7 * t)
    return LineSearch(0.0, value, MAX_LINE_SEARCH_TRIALS if first < 0.0 else 0)


@jit
def update_secant(last: Secant, here: DualPoint, there: DualPoint, M: int) -> Secant:
    """The secant of the step from here to there.

    It tells if the step was short, so that F is the quadratic it was taken for, and if no price
    became zero, as that row may be out of the next step. For M = 1 the model is exact already.
    """
    tells = M > 1
    for j in range(last.s.size):
        last.s[j] = there.lam[j] - here.lam[j]
        last.y[j] = there.slope[j] - here.slope[j]
        tells &= abs(last.s[j]) <= SHORT_STEP and (there.lam[j] > 0.0 or last.s[j] == 0.0)
    return Secant(last.s, last.y, tells)


@jit
def minimise_dual(at: DualPoint, rows: DualProblem, value: float) -> int:
    """Move a point to the minimum of F; returns the number of evaluations."""
    d, K = rows.A.shape
    here, there = at, DualPoint(np.empty(d), np.empty(d), np.empty(K), np.empty(K))
    s, last, evaluations = np.empty(d), Secant(np.empty(d), np.empty(d), False), 0
    gap = dual_residual(here, rows.cap)
    for _ in range(MAX_NEWTON_STEPS):
        fill_newton_direction(s, here, rows, last)
        found = search_line(there, here, s, value, rows)
        evaluations += found.trials
        if found.t == 0.0:
            break
        after = dual_residual(there, rows.cap)
        if after >= gap and found.value >= value:  # rounding allows no more
            break
        last = update_secant(last, here, there, rows.M)
        here, there, value, gap = there, here, found.value, after
        if gap <= SOLVED_RESIDUAL:
            break
    for j in range(d):
        at.lam[j], at.slope[j] = here.lam[j], here.slope[j]
    for i in range(K):
        at.theta[i], at.pi[i] = here.theta[i], here.pi[i]
    return evaluations


@jit
def kl_project(
    theta: Floats,
    pi: Floats,
    lam: Floats,
    z: Floats,
    A: Floats,
    b: Floats,
    M: int,
    eps: float,
    p0: Floats,
    cap: float = MAX_MULTIPLIER,
) -> KlProjection:
    """Write the law nearest to z that keeps A p <= b: theta (K,), its pi (K,), the prices lam (d,).

    An entry of z may be -inf: an expert that is down, as long as M are up. theta may be z itself.

    >>> theta, pi, lam, A = np.empty(2), np.empty(2), np.empty(1), np.array([[1.0, 0.0]])
    >>> done = kl_project(theta, pi, lam, np.zeros(2), A, np.array([0.25]), 1, 0.0, np.zeros(2))
    >>> pi.round(12), np.exp(lam).round(9)  # the first is to be a third of the second
    (array([0.25, 0.75]), array([3.]))
    """
    d, K = A.shape
    top = nth_largest(z, M)
    table = np.empty((K + 1 if M > 1 else 0, M + 1))
    rows = DualProblem(np.empty(K), A, np.empty(d), 1.0 - eps, cap, M, table, np.empty(K))
    for i in range(K):
        rows.z[i] = z[i] - top
    for j in range(d):
        lam[j], rows.r[j] = 0.0, b[j] - eps * dot_product(A[j], p0)
    at = DualPoint(lam, np.empty(d), theta, pi)
    value, evaluations, excess = evaluate_dual(at, rows), 1, -np.inf
    if dual_residual(at, cap) > SOLVED_RESIDUAL:
        evaluations += minimise_dual(at, rows, value)
    for j in range(d):
        excess = max(excess, -at.slope[j])
    for i in range(K):
        theta[i] += top
    return KlProjection(dual_residual(at, cap), excess, evaluations)
