"""Exact Euclidean projections: on the floored simplex, on it cut by one row, on the unit ball.

Several rows at once are left to `bylot.kernels.rows`; checking the input is left to the callers.

Every distribution here is q = floor + p with p >= 0 and sum p = r, where r = 1 - K floor is the
mass above the floor, so the floor holds to the last bit whatever happens to p.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats, compiled

EPS = 2.0**-52
SMALL = 1e-14  # a residual of sum q = 1, or of a.q = b over max |a|, that counts as none
TOUCH = 1e-13  # a row missed by this share of max |a| is kept: whoever put b on the edge rounded it
POINT = 1e-15  # with less than this above the floor the simplex is the single point q = floor
JOINT = 16  # passes in which both multipliers may step at once, before lam is bracketed
HALVING = 64  # passes after which the bracket is halved rather than trusted to Newton's steps
BLOCK = 64  # terms summed apart: the rounding of a sum of K grows with 64 + K / 64, not with K
ROUNDS = 20  # solves of one problem, each seen from where the last one ended
PASSES = 2_000  # never reached on finite input: it stops NaN from looping for ever


class Projection(NamedTuple):
    """Nearest point, the price of the row there, and whether any point keeps the row."""

    q: Floats
    multiplier: float
    feasible: bool


class Row(NamedTuple):
    """What a projection says about its row: its multiplier, and whether it can be kept."""

    multiplier: float
    feasible: bool


class Dual(NamedTuple):
    """Multipliers of p_i = max(0, y_i - tau - lam d_i): tau of the mass, lam of the row."""

    tau: float
    lam: float
    exact: bool  # residuals below SMALL; if not, they are at the rounding of the scale of y


class Free(NamedTuple):
    """Sums over the free set F = {i : p_i >= 0}: its size, and of p, d, d^2 and d p."""

    n: int
    p: float
    d: float
    dd: float
    dp: float


@compiled
def onto_ball(w: Floats) -> Floats:
    """Nearest point of the unit Euclidean ball: w / max(1, |w|).

    >>> onto_ball(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """
    return w / max(1.0, math.sqrt(np.sum(w * w)))


@compiled
def level(y: Floats, r: float, tau: float) -> float:
    """The tau with sum_i max(0, y_i - tau) = r, by Newton's method from any finite tau.

    The sum is convex and falls with tau: the first step lands left of the root, from where each
    step goes right and drops points for good; one that does not is rounding, and the end.
    """
    for turn in range(y.size + PASSES):
        n, total = 0, 0.0
        for block in range(0, y.size, BLOCK):
            p = 0.0
            for i in range(block, min(block + BLOCK, y.size)):
                over = y[i] - tau
                n += over >= 0.0
                p += max(0.0, over)
            total += p
        if n == 0:
            tau = y.max() - r
        elif turn > 0 and total <= r:
            break
        else:
            tau += (total - r) / n
    return tau


@compiled
def fill_mass(p: Floats, y: Floats, r: float) -> float:
    """Write p_i = max(0, y_i - tau) with sum p = r; p may be y itself. Returns tau.

    The second solve starts from y - tau, whose free entries are no larger than r: what rounding
    did to tau at the scale of y is made good at the scale of p.
    """
    if r <= POINT:
        tau = y.max()
        p[:] = 0.0
        return float(tau)
    tau = level(y, r, max((y.sum() - r) / y.size, y.max() - r))
    for i in range(y.size):
        p[i] = y[i] - tau
    rest = level(p, r, 0.0)
    for i in range(p.size):
        p[i] = max(0.0, p[i] - rest)
    return tau + rest


@compiled
def onto_simplex(z: Floats, floor: float) -> Floats:
    """Nearest point of {sum q = 1, q >= floor}: q_i = max(floor, z_i - tau) with sum q = 1.

    >>> onto_simplex(np.array([0.75, 0.5, -1.0]), 0.0)
    array([0.625, 0.375, 0.   ])
    """
    q = np.empty(z.size)
    fill_mass(q, z, 1.0 - z.size * floor)
    q += floor
    return q


@compiled
def free_sums(y: Floats, a: Floats, beta: float, tau: float, lam: float) -> Free:
    """The sums of `Free` at p_i = y_i - tau - lam d_i with d_i = a_i - beta: one pass."""
    n, P, D, DD, DP = 0, 0.0, 0.0, 0.0, 0.0
    for block in range(0, y.size, BLOCK):
        sp, sd, sdd, sdp = 0.0, 0.0, 0.0, 0.0
        for i in range(block, min(block + BLOCK, y.size)):
            d = a[i] - beta
            p = (y[i] - tau) - lam * d
            # Selected, not branched on: which points are free is not for a processor to guess.
            free = p >= 0.0
            d = d if free else 0.0
            p = p if free else 0.0
            n += free
            sp += p
            sd += d
            sdd += d * d
            sdp += d * p
        P, D, DD, DP = P + sp, D + sd, DD + sdd, DP + sdp
    return Free(n, P, D, DD, DP)


@compiled
def joined(F: Free, y: Floats, a: Floats, beta: float, tau: float, lam: float) -> Free:
    """F with the first point to enter as lam moves towards the row's balance.

    While all free points cost the same, d_F, the row's residual does not depend on lam: tau
    follows, and nothing moves until a point j on the other side of beta enters, where
    lam changes by v_j / (d_j - d_F), v_j = y_j - tau - lam d_j < 0.
    """
    d_F = F.d / F.n
    first, nearest = -1, np.inf
    for j in range(y.size):
        d = a[j] - beta
        v = (y[j] - tau) - lam * d
        if v < 0.0 and d * d_F < 0.0 and v / (d - d_F) * math.copysign(1.0, d_F) < nearest:
            first, nearest = j, v / (d - d_F) * math.copysign(1.0, d_F)
    if first < 0:
        return F
    d = a[first] - beta
    v = (y[first] - tau) - lam * d
    return Free(F.n + 1, F.p + v, F.d + d, F.dd + d * d, F.dp + d * v)


@compiled
def row_step(F: Free, y: Floats, a: Floats, beta: float, r: float, at: Dual) -> float:
    """The change of lam in Newton's step of both equations on the free set.

    n dtau + sum d dlam = sum p - r and sum d dtau + sum d^2 dlam = sum d p, hence
    dlam = (sum d p - mean d (sum p - r)) / sum (d - mean d)^2; zero if nothing else can move.
    """
    spread = F.dd - F.d * F.d / F.n
    if spread <= 1e-10 * F.dd:
        F = joined(F, y, a, beta, at.tau, at.lam)
        spread = F.dd - F.d * F.d / F.n
        if spread <= 1e-10 * F.dd:
            return -np.inf if F.dp < 0.0 else 0.0
    return (F.dp - F.d * (F.p - r) / F.n) / spread


@compiled
def between(low: float, high: float) -> float:
    """A point inside a bracket: half way, or half way in decades if it spans several."""
    if 0.0 < 16.0 * low < high:
        return math.sqrt(low) * math.sqrt(high)
    return 0.5 * low + 0.5 * high


@compiled
def balance(
    y: Floats, a: Floats, beta: float, r: float, size: float, start: Dual, least: float
) -> Dual:
    """Multipliers with sum p = r and d.p <= 0, lam >= least, complementary; `beta` > min a.

    phi(lam) = d.p(lam), with tau(lam) keeping sum p = r, is piecewise linear and falls. Newton's
    method steps tau and lam together and mostly ends in two to six passes; the answer counts
    only if the residuals say so. It can cycle: past JOINT passes lam moves only from an exact
    tau, where the sign of phi is known, and stays inside the bracket of those signs. It can
    crawl: past HALVING passes the bracket is halved (or, while it has no end, lam doubled).
    """
    tau, lam, low, high = start.tau, start.lam, -np.inf, np.inf
    for turn in range(PASSES):
        F = free_sums(y, a, beta, tau, lam)
        if F.n == 0:  # tau lies above every point
            tau = np.max(y - lam * (a - beta)) - r
            continue
        excess = F.p - r
        noise = 2.0 * EPS * (F.n * abs(tau) + abs(lam) * math.sqrt(F.n * F.dd))
        bound = max(SMALL, noise)
        whole = abs(excess) <= bound
        if whole and (abs(F.dp) <= bound * size or (lam == least and F.dp < 0.0)):
            return Dual(tau, lam, bound == SMALL)
        if whole and F.dp > 0.0:
            low = lam
        elif whole:
            high = lam
        step = 0.0
        if whole or turn < JOINT:
            step = max(row_step(F, y, a, beta, r, Dual(tau, lam, False)), least - lam)
        if turn >= HALVING and whole and high == np.inf:
            step = max(step, lam)
        elif (turn >= HALVING and whole) or not low < lam + step < high:
            step = between(max(low, least), high) - lam if whole else 0.0
            if whole and not low < lam + step < high:
                return Dual(tau, lam, False)  # no number is left inside the bracket
        tau += (excess - F.d * step) / F.n
        lam += step
    return Dual(tau, lam, False)


@compiled
def fill_face(q: Floats, z: Floats, floor: float, r: float, a: Floats, least: float) -> float:
    """Write the nearest of the points with the smallest a.q into q; returns its multiplier.

    They have all mass r on {i : a_i = least}. The multiplier is the smallest lam that holds the
    others down, z_j - tau <= lam (a_j - least): the one of the row a.q <= min a.q.
    """
    face = np.flatnonzero(a == least)
    top, p, lam = z.max(), np.empty(face.size), 0.0
    tau = fill_mass(p, z[face] - top, r)
    for j in range(z.size):
        over = (z[j] - top) - tau
        if a[j] > least and over > lam * (a[j] - least):
            lam = over / (a[j] - least)
    q[:] = floor
    for k in range(face.size):
        q[face[k]] += p[k]
    return lam if r > POINT else 0.0


@compiled
def fill_halfspace(q: Floats, z: Floats, floor: float, a: Floats, b: float) -> Row:
    """`onto_halfspace`, written into q (which may be z itself): no array is made."""
    top, total, cost, least, most = -np.inf, 0.0, 0.0, np.inf, -np.inf
    for i in range(z.size):
        total += z[i]
        cost += a[i]
        top = max(top, z[i])
        least = min(least, a[i])
        most = max(most, a[i])
    r = 1.0 - z.size * floor
    size = max(abs(least), abs(most))
    missed = (floor * cost + r * least) - b
    if missed >= 0.0 or r <= POINT:
        return Row(fill_face(q, z, floor, r, a, least), missed <= TOUCH * size)
    beta = (b - floor * cost) / r  # mean cost allowed to the mass above the floor: d.p <= 0
    start = Dual(max((total - r) / z.size, top - r), 0.0, False)
    tau, lam, exact = balance(z, a, beta, r, size, start, 0.0)
    for i in range(z.size):
        q[i] = (z[i] - tau) - lam * (a[i] - beta)
    for _ in range(ROUNDS):
        if exact:
            break
        # The same problem seen from there: free entries are no larger than q, nor is rounding.
        tau, step, exact = balance(q, a, beta, r, size, Dual(0.0, 0.0, False), -lam)
        for i in range(z.size):
            q[i] = (q[i] - tau) - step * (a[i] - beta)
        lam += step
    for i in range(z.size):
        q[i] = floor + max(0.0, q[i])
    return Row(lam, True)


@compiled
def onto_halfspace(z: Floats, floor: float, a: Floats, b: float) -> Projection:
    """Nearest point of {sum q = 1, q >= floor, a.q <= b}, with the multiplier of the row.

    q_i = max(floor, z_i - tau - lam a_i), lam >= 0 and lam (b - a.q) = 0; lam is in the units
    of z per unit of a. If the set is empty, q is the nearest of the points with the least a.q,
    lam the multiplier of the row that such a point just keeps, and `feasible` is False.

    >>> onto_halfspace(np.array([0.5, 0.5]), 0.0, np.array([1.0, 0.0]), 0.25)
    Projection(q=array([0.25, 0.75]), multiplier=0.5, feasible=True)
    >>> onto_halfspace(np.array([0.5, 0.5]), 0.25, np.array([1.0, 0.0]), 0.2)
    Projection(q=array([0.25, 0.75]), multiplier=0.5, feasible=False)
    """
    q = np.empty(z.size)
    row = fill_halfspace(q, z, floor, a, b)
    return Projection(q, row.multiplier, row.feasible)
