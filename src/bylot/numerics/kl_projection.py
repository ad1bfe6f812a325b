"""Entropic (KL) projection of a distribution of sets of M experts onto linear rows A p <= b.

The inclusion probabilities are p = (1 - eps) pi(theta) + eps p0, with pi(theta) those of
`conditional_poisson`; for M = 1 they are softmax(theta). The distribution nearest to theta = z that
keeps the rows is theta = z - A' lam, with multipliers lam in [0, cap] that minimise the convex dual

    F(lam) = (1 - eps) log e_M(e^{z - A' lam}) + lam.(b - eps A p0),    slope  b - A p.

Where no p keeps the rows, the cap makes it the p that minimises (1 - eps) KL + cap sum of excesses.
Newton's method: minimise a quadratic model of F on the box of multipliers, then search the line
towards that point. All rows are upper bounds, scaled to max |A_j| = 1 by the caller. Written in
loops, which compile faster than array expressions.
"""

from typing import NamedTuple

import numpy as np

from bylot.numerics import conditional_poisson
from bylot.numerics.box import solve_box_qp
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.simd import dot_product

MAX_MULTIPLIER = 200.0
SOLVED_RESIDUAL = 1e-10  # a smaller residual counts as zero
MAX_NEWTON_STEPS = 100  # a handful is usual
MAX_LINE_SEARCH_TRIALS = 40  # one is usual
ARMIJO_FRACTION = 1e-4  # of the predicted decrease, which a step must achieve
WOLFE_FRACTION = 0.5  # largest final slope, relative to the first, where values are all rounding
VALUE_ROUNDING = 1e-14  # relative to the terms of F
RIDGE_FRACTION = 1e-12  # of the largest curvature, added to the diagonal: rows may be dependent
MIN_RIDGE = 1e-30  # where there is no curvature at all
SHORT_STEP = 0.1  # the secant of a shorter step is more accurate than the model


class KlProjection(NamedTuple):
    """The quality of a projection."""

    residual: float  # of optimality: about 0, whether or not the rows can be kept
    excess: float  # max (A p - b)_j; at most about 0 if all rows are kept
    evaluations: int


class DualProblem(NamedTuple):
    """The dual problem, (1 - eps) log e_M(e^{z - A' lam}) + lam.r over 0 <= lam <= cap."""

    z: Floats  # (K,), shifted so that its M-th largest is 0
    A: Floats  # (d, K)
    r: Floats  # (d,), b - eps A p0
    share: float  # 1 - eps
    cap: float
    M: int
    table: Floats  # workspace, like coins
    coins: Floats


class DualPoint(NamedTuple):
    """Multipliers, the slope of F there, and the distribution."""

    lam: Floats
    slope: Floats
    theta: Floats
    pi: Floats


class Secant(NamedTuple):
    """The last step: multipliers moved by s, slopes by y."""

    s: Floats
    y: Floats
    is_informative: bool  # whether to correct the curvature by it


@jit
def evaluate_dual(at: DualPoint, rows: DualProblem) -> float:
    """Write slope, theta and pi at the multipliers at.lam; returns F."""
    d, K = rows.A.shape
    value = 0.0
    for i in range(K):
        at.theta[i] = rows.z[i]
    for j in range(d):
        lam = at.lam[j]
        if lam > 0.0:
            value += lam * rows.r[j]
            for i in range(K):
                at.theta[i] -= lam * rows.A[j, i]
    if rows.M == 1:
        log_z = conditional_poisson.fill_softmax(at.pi, at.theta)
    else:
        M, table, coins = rows.M, rows.table, rows.coins
        log_z = conditional_poisson.fill_count_table(table, coins, at.theta, M)
        conditional_poisson.fill_inclusion(at.pi, table, coins, M)
    for j in range(d):
        at.slope[j] = rows.r[j] - rows.share * dot_product(rows.A[j], at.pi)
    return value + rows.share * log_z


@jit
def dual_residual(at: DualPoint, cap: float) -> float:
    """Compute max_j |lam_j - clip(lam_j - slope_j, 0, cap)|: zero if and only if lam is optimal."""
    worst = 0.0
    for j in range(at.lam.size):
        g = at.slope[j]
        worst = max(worst, min(abs(g), at.lam[j] if g > 0.0 else cap - at.lam[j]))
    return worst


@jit
def fill_covariance_diagonal(c: Floats, pi: Floats, M: int) -> float:
    """Write c with diag c - c c' / sum c ~ Cov, the covariance of 1[i in A]; returns sum c.

    For M = 1, c = pi exactly. Otherwise c_i - c_i^2 / sum c should be the variance
    v_i = pi_i (1 - pi_i), and two iterations of c_i = v_i + c_i^2 / sum c come close: the error of
    the Hessian is a half to a tenth of that with c = v, the limit for large sets.
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
    """Compute (1 - eps) A Cov A' on the n chosen rows, with a ridge."""
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
    """Add y y' / s.y - H s s' H / s.H s (BFGS), so that H maps the last step s to y."""
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
    """Write the step to the minimum of the model over rows with a multiplier or an excess.

    A row that the step violates takes part in the next step.
    """
    n, chosen = 0, np.empty(s.size, np.int64)
    for j in range(s.size):
        s[j] = 0.0
        if at.lam[j] > 0.0 or at.slope[j] < 0.0:
            chosen[n] = j
            n += 1
    H = dual_hessian(at, rows, chosen, n)
    if last.is_informative:
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
) -> tuple[float, float, int]:
    """Go along s from here until F falls enough, and write the point there.

    Returns the fraction of the step, 0 if no lower point was found, F there, and the points tried.

    F is convex: if a point is too far, the next is where the tangents at both ends meet. Near the
    optimum the values are all rounding; then the slopes decide.
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
            return t, new, trial + 1
        meet = (new - value - slope * t) / (first - slope)
        t = min(max(meet, 0.01 * t), 0.7 * t)
    return 0.0, value, MAX_LINE_SEARCH_TRIALS if first < 0.0 else 0


@jit
def update_secant(last: Secant, here: DualPoint, there: DualPoint, M: int) -> Secant:
    """Compute the secant of the step from here to there.

    It is informative if the step was short, so that F is nearly quadratic, and no multiplier became
    zero, as that row may leave the next step. For M = 1 the model is exact already.
    """
    useful = M > 1
    for j in range(last.s.size):
        last.s[j] = there.lam[j] - here.lam[j]
        last.y[j] = there.slope[j] - here.slope[j]
        useful &= abs(last.s[j]) <= SHORT_STEP and (there.lam[j] > 0.0 or last.s[j] == 0.0)
    return Secant(last.s, last.y, useful)


@jit
def minimise_dual(at: DualPoint, rows: DualProblem, value: float) -> int:
    """Move a point to the minimum of F; returns the number of evaluations."""
    d, K = rows.A.shape
    here, there = at, DualPoint(np.empty(d), np.empty(d), np.empty(K), np.empty(K))
    s, last, evaluations = np.empty(d), Secant(np.empty(d), np.empty(d), False), 0
    gap = dual_residual(here, rows.cap)
    for _ in range(MAX_NEWTON_STEPS):
        fill_newton_direction(s, here, rows, last)
        t, new, trials = search_line(there, here, s, value, rows)
        evaluations += trials
        if t == 0.0:
            break
        after = dual_residual(there, rows.cap)
        if after >= gap and new >= value:  # at the accuracy of rounding
            break
        last = update_secant(last, here, there, rows.M)
        here, there, value, gap = there, here, new, after
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
    """Project z onto A p <= b: write theta (K,), its pi (K,) and the multipliers lam (d,).

    An entry of z may be -inf (not available), if M others are not. theta may be z itself.

    >>> theta, pi, lam, A = np.empty(2), np.empty(2), np.empty(1), np.array([[1.0, 0.0]])
    >>> done = kl_project(theta, pi, lam, np.zeros(2), A, np.array([0.25]), 1, 0.0, np.zeros(2))
    >>> pi.round(12), np.exp(lam).round(9)  # the first must be a third of the second
    (array([0.25, 0.75]), array([3.]))
    """
    d, K = A.shape
    top = conditional_poisson.nth_largest(z, M)
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
