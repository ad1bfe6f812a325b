"""Exact Euclidean projections onto the floored simplex, and onto it cut by one row a.q <= b.

Every distribution here is q = floor + p with p >= 0 and sum p = r, where r = 1 - K floor is the
mass above the floor, so the floor holds to the last bit. Callers check the input.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, jit
from bylot.numerics.simd import (
    SIMD_WIDTH,
    keep_lanes,
    load_lanes,
    max_by_lane,
    max_lanes,
    splat,
    sum_lanes,
)

MACHINE_EPS = 2.0**-52
RESIDUAL_TOLERANCE = 1e-14  # of sum q = 1, and of a.q = b relative to max |a|
ROW_TOLERANCE = 1e-13  # relative to max |a|: a row violated by less is kept, as b may be rounded
FLAT_SPREAD = 1e-10  # costs with a smaller relative squared spread count as equal
MIN_FREE_MASS = 1e-15  # with less mass above the floor, the simplex is the point q = floor
SUM_BLOCK = 1_024  # terms per partial sum: rounding grows with BLOCK / WIDTH + K / BLOCK
MAX_JOINT_PASSES = 16  # passes in which both multipliers step at once, before lam is bracketed
PASSES_BEFORE_BISECTION = 64  # passes before the bracket is halved instead of Newton's steps
MAX_REFINEMENTS = 20  # solves of one problem, each from where the last one ended
MAX_PASSES = 2_000  # not reached on finite input; stops the loop on NaN


class Projection(NamedTuple):
    """The nearest point, the multiplier of the row, and whether any point keeps the row."""

    q: Floats
    multiplier: float
    feasible: bool


class RowMultipliers(NamedTuple):
    """Multipliers of p_i = max(0, y_i - tau - lam d_i): tau of the mass, lam of the row."""

    tau: float
    lam: float
    exact: bool  # residuals within the tolerance; if not, at the rounding of the scale of y


class FreeSums(NamedTuple):
    """Sums over the free set F = {i : p_i >= 0}: of 1, p, d, d^2 and d p."""

    n: float
    p: float
    d: float
    dd: float
    dp: float


@jit
def solve_threshold(y: Floats, r: float, tau: float) -> float:
    """Find the tau with sum_i max(0, y_i - tau) = r, by Newton's method from any finite tau.

    The sum is convex and falls with tau: the first step lands left of the root; each later step
    goes right and drops points for good, until rounding stops it.
    """
    for turn in range(y.size + MAX_PASSES):
        n, mass = 0.0, 0.0
        for block in range(0, y.size, SUM_BLOCK):
            count, over = splat(0.0), splat(0.0)
            for i in range(block, min(block + SUM_BLOCK, y.size), SIMD_WIDTH):
                p = load_lanes(y, i, -np.inf) - tau
                count = count + keep_lanes(p, splat(1.0))
                over = over + keep_lanes(p, p)
            n += sum_lanes(count)
            mass += sum_lanes(over)
        if n == 0.0:
            tau = y.max() - r
            continue
        ahead = tau + (mass - r) / n
        if turn > 0 and ahead <= tau:
            break
        tau = ahead
    return tau


@jit
def fill_simplex_point(p: Floats, y: Floats, r: float) -> float:
    """Write p_i = max(0, y_i - tau) with sum p = r; p may be y itself. Returns tau.

    The second solve starts from y - tau, whose free entries are at most r, and so corrects the
    rounding of tau at the scale of y.
    """
    if r <= MIN_FREE_MASS:
        tau = y.max()
        p[:] = 0.0
        return float(tau)
    tau = solve_threshold(y, r, max((y.sum() - r) / y.size, y.max() - r))
    for i in range(y.size):
        p[i] = y[i] - tau
    rest = solve_threshold(p, r, 0.0)
    for i in range(p.size):
        p[i] = max(0.0, p[i] - rest)
    return tau + rest


@jit
def sum_free_set(y: Floats, a: Floats, beta: float, tau: float, lam: float) -> FreeSums:
    """Compute `FreeSums` at p_i = y_i - tau - lam d_i with d_i = a_i - beta, in one pass."""
    n, sp, sd, sdd, sdp = 0.0, 0.0, 0.0, 0.0, 0.0
    for block in range(0, y.size, SUM_BLOCK):
        N, P, D, DD, DP = splat(0.0), splat(0.0), splat(0.0), splat(0.0), splat(0.0)
        for i in range(block, min(block + SUM_BLOCK, y.size), SIMD_WIDTH):
            d = load_lanes(a, i, 0.0) - beta
            v = (load_lanes(y, i, -np.inf) - tau) - lam * d
            N = N + keep_lanes(v, splat(1.0))
            p, d = keep_lanes(v, v), keep_lanes(v, d)
            P = P + p
            D = D + d
            DD = DD + d * d
            DP = DP + d * p
        n, sp, sd = n + sum_lanes(N), sp + sum_lanes(P), sd + sum_lanes(D)
        sdd, sdp = sdd + sum_lanes(DD), sdp + sum_lanes(DP)
    return FreeSums(n, sp, sd, sdd, sdp)


@jit
def add_entering_point(
    F: FreeSums, y: Floats, a: Floats, beta: float, tau: float, lam: float
) -> FreeSums:
    """Add the first point that enters F as lam moves towards the solution.

    While all free points cost the same, d_F, the row's residual does not depend on lam, until a
    point j on the other side of beta enters, where lam has changed by v_j / (d_j - d_F),
    v_j = y_j - tau - lam d_j < 0.
    """
    d_F = F.d / F.n
    first, nearest = -1, np.inf
    for j in range(y.size):
        d = a[j] - beta
        v = (y[j] - tau) - lam * d
        if v < 0.0 and d * d_F <= 0.0 and abs(v / (d - d_F)) < nearest:
            first, nearest = j, abs(v / (d - d_F))
    if first < 0:
        return F
    d = a[first] - beta
    v = (y[first] - tau) - lam * d
    return FreeSums(F.n + 1.0, F.p + v, F.d + d, F.dd + d * d, F.dp + d * v)


@jit
def row_newton_step(
    F: FreeSums, y: Floats, a: Floats, beta: float, r: float, tau: float, lam: float
) -> float:
    """Compute the change of lam in Newton's step of both equations on the free set.

    n dtau + sum d dlam = sum p - r and sum d dtau + sum d^2 dlam = sum d p, hence
    dlam = (sum d p - mean d (sum p - r)) / sum (d - mean d)^2.
    """
    mean = F.d / F.n
    spread = F.dd - mean * F.d
    if spread <= FLAT_SPREAD * F.dd:
        F = add_entering_point(F, y, a, beta, tau, lam)
        mean = F.d / F.n
        spread = F.dd - mean * F.d
        if spread <= FLAT_SPREAD * F.dd:  # no such point: the row is slack for every lam
            return -np.inf if F.dp < 0.0 else 0.0
    return (F.dp - mean * (F.p - r)) / spread


@jit
def bracket_midpoint(low: float, high: float) -> float:
    """Return the midpoint of a bracket; the geometric one if it spans decades."""
    if 0.0 < 16.0 * low < high:
        return math.sqrt(low) * math.sqrt(high)
    return 0.5 * low + 0.5 * high


@jit
def solve_row_multipliers(
    y: Floats, a: Floats, beta: float, r: float, size: float, start: RowMultipliers, least: float
) -> RowMultipliers:
    """Find multipliers with sum p = r and d.p <= 0, lam >= least, complementary; beta > min a.

    phi(lam) = d.p(lam), with tau(lam) such that sum p = r, is piecewise linear and decreasing.
    Newton's method on tau and lam together mostly needs two to six passes; the residuals decide.
    It can cycle: after MAX_JOINT_PASSES lam moves only from an exact tau, where the sign of phi is
    known, and stays inside the bracket of those signs. It can be slow: after
    PASSES_BEFORE_BISECTION the bracket is halved (or, while it has no end, lam doubled).
    """
    tau, lam, low, high = start.tau, start.lam, -np.inf, np.inf
    for turn in range(MAX_PASSES):
        F = sum_free_set(y, a, beta, tau, lam)
        if F.n == 0.0:  # tau lies above every point
            top = y[0] - lam * (a[0] - beta)
            for i in range(y.size):
                top = max(top, y[i] - lam * (a[i] - beta))
            tau = top - r
            continue
        excess = F.p - r
        rounding = 2.0 * MACHINE_EPS * (F.n * abs(tau) + abs(lam) * math.sqrt(F.n * F.dd))
        bound = max(RESIDUAL_TOLERANCE, rounding)
        whole = abs(excess) <= bound
        if whole and (abs(F.dp) <= bound * size or (lam == least and F.dp < 0.0)):
            return RowMultipliers(tau, lam, bound == RESIDUAL_TOLERANCE)
        if whole and F.dp > 0.0:
            low = lam
        elif whole:
            high = lam
        step = 0.0
        if whole or turn < MAX_JOINT_PASSES:
            step = max(row_newton_step(F, y, a, beta, r, tau, lam), least - lam)
        if turn >= PASSES_BEFORE_BISECTION and whole and high == np.inf:
            step = max(step, lam)
        elif (turn >= PASSES_BEFORE_BISECTION and whole) or not low < lam + step < high:
            step = bracket_midpoint(max(low, least), high) - lam if whole else 0.0
            if whole and not low < lam + step < high:
                return RowMultipliers(tau, lam, False)  # the bracket contains no other number
        tau += excess / F.n - step * (F.d / F.n)
        lam += step
    return RowMultipliers(tau, lam, False)


@jit
def fill_cheapest_face(
    q: Floats, z: Floats, floor: float, r: float, a: Floats, least: float
) -> float:
    """Write the nearest point among those with the smallest a.q; returns its multiplier.

    They have all mass r on {i : a_i = least}. The multiplier of the row a.q <= min a.q is the
    smallest lam with z_j - tau <= lam (a_j - least) for the others.
    """
    face, n, top, lam = np.empty(z.size, np.int64), 0, z[0], 0.0
    for i in range(z.size):
        top = max(top, z[i])
        face[n] = i
        n += 1 if a[i] == least else 0
    p = np.empty(n)
    for k in range(n):
        p[k] = z[face[k]] - top
    tau = fill_simplex_point(p, p, r)
    for j in range(z.size):
        over = (z[j] - top) - tau
        if a[j] > least and over > lam * (a[j] - least):
            lam = over / (a[j] - least)
    q[:] = floor
    for k in range(n):
        q[face[k]] += p[k]
    return lam if r > MIN_FREE_MASS else 0.0


@jit
def summarise_inputs(z: Floats, a: Floats) -> tuple[float, float, float, float, float]:
    """Return sum and maximum of z, and sum, minimum and maximum of a, in one pass."""
    Z, A, top, least, most = splat(0.0), splat(0.0), splat(z[0]), splat(-a[0]), splat(a[0])
    for i in range(0, z.size, SIMD_WIDTH):
        y, c = load_lanes(z, i, z[0]), load_lanes(a, i, a[0])
        Z = Z + y
        A = A + c
        top = max_by_lane(top, y)
        most = max_by_lane(most, c)
        least = max_by_lane(least, -1.0 * c)
    spare = float(-z.size % SIMD_WIDTH)  # lanes of the last load past the end
    z_sum, a_sum = sum_lanes(Z) - spare * z[0], sum_lanes(A) - spare * a[0]
    return z_sum, max_lanes(top), a_sum, -max_lanes(least), max_lanes(most)


@jit
def fill_halfspace_projection(
    q: Floats, z: Floats, floor: float, a: Floats, b: float
) -> tuple[float, bool]:
    """Write `project_onto_halfspace` into q, which may be z itself.

    Returns the multiplier of the row, and whether it can be kept.
    """
    z_sum, top, a_sum, least, most = summarise_inputs(z, a)
    r = 1.0 - z.size * floor
    size = max(abs(least), abs(most))
    # The mean cost allowed to the mass above the floor: the row is d.p <= 0.
    beta = (b - floor * a_sum) / r if r > MIN_FREE_MASS else least
    if beta <= least:
        missed = (floor * a_sum + r * least) - b
        price = fill_cheapest_face(q, z, floor, r, a, least)
        return price, missed <= ROW_TOLERANCE * size
    for i in range(z.size):
        q[i] = z[i] - top
    lam, start = 0.0, RowMultipliers(max(z_sum / z.size - top - r / z.size, -r), 0.0, False)
    for turn in range(MAX_REFINEMENTS):
        tau, step, exact = solve_row_multipliers(q, a, beta, r, size, start, -lam)
        lam += step
        if exact or turn == MAX_REFINEMENTS - 1:
            for i in range(z.size):
                q[i] = floor + max(0.0, (q[i] - tau) - step * (a[i] - beta))
            break
        # The same problem from there: free entries, and so the rounding, are at most r.
        for i in range(z.size):
            q[i] = (q[i] - tau) - step * (a[i] - beta)
        start = RowMultipliers(0.0, 0.0, False)
    return lam, True


@jit
def project_onto_halfspace(z: Floats, floor: float, a: Floats, b: float) -> Projection:
    """Project onto {sum q = 1, q >= floor, a.q <= b}; returns also the multiplier of the row.

    q_i = max(floor, z_i - tau - lam a_i), lam >= 0 and lam (b - a.q) = 0; lam is in the units
    of z per unit of a. If the set is empty, q is the nearest point among those with the least a.q,
    lam the multiplier of the row through that point, and `feasible` is False.

    >>> project_onto_halfspace(np.array([0.5, 0.5]), 0.0, np.array([1.0, 0.0]), 0.25)
    Projection(q=array([0.25, 0.75]), multiplier=0.5, feasible=True)
    >>> project_onto_halfspace(np.array([0.5, 0.5]), 0.25, np.array([1.0, 0.0]), 0.2)
    Projection(q=array([0.25, 0.75]), multiplier=0.5, feasible=False)
    """
    q = np.empty(z.size)
    multiplier, feasible = fill_halfspace_projection(q, z, floor, a, b)
    return Projection(q, multiplier, feasible)
