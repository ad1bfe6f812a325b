"""Exact Euclidean projections: on the floored simplex, on it cut by one row, on the unit ball.

Several rows at once are left to `bylot.kernels.rows`; checking the input is left to the callers.

Every distribution here is q = floor + p with p >= 0 and sum p = r, where r = 1 - K floor is the
mass above the floor, so the floor holds to the last bit whatever happens to p.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats, compiled
from bylot.kernels.lanes import WIDTH, kept, larger, largest, load, splat, total

EPS = 2.0**-52
SMALL = 1e-14  # a residual of sum q = 1, or of a.q = b over max |a|, that counts as none
TOUCH = 1e-13  # a row missed by this share of max |a| is kept: whoever put b on the edge rounded it
FLAT = 1e-10  # a spread of costs, squared and relative, below which they are all the same
POINT = 1e-15  # with less than this above the floor the simplex is the single point q = floor
BLOCK = 1_024  # terms summed apart, so that rounding grows with BLOCK / WIDTH + K / BLOCK
JOINT = 16  # passes in which both multipliers may step at once, before lam is bracketed
HALVING = 64  # passes after which the bracket is halved rather than trusted to Newton's steps
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

    n: float
    p: float
    d: float
    dd: float
    dp: float


@compiled
def level(y: Floats, r: float, tau: float) -> float:
    """The tau with sum_i max(0, y_i - tau) = r, by Newton's method from any finite tau.

    The sum is convex and falls with tau: the first step lands left of the root, from where each
    step goes right and drops points for good; one that does not is rounding, and the end.
    """
    for turn in range(y.size + PASSES):
        n, mass = 0.0, 0.0
        for block in range(0, y.size, BLOCK):
            count, over = splat(0.0), splat(0.0)
            for i in range(block, min(block + BLOCK, y.size), WIDTH):
                p = load(y, i, -np.inf) - tau
                count = count + kept(p, splat(1.0))
                over = over + kept(p, p)
            n += total(count)
            mass += total(over)
        if n == 0.0:
            tau = y.max() - r
            continue
        ahead = tau + (mass - r) / n
        if turn > 0 and ahead <= tau:
            break
        tau = ahead
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
    n, sp, sd, sdd, sdp = 0.0, 0.0, 0.0, 0.0, 0.0
    for block in range(0, y.size, BLOCK):
        N, P, D, DD, DP = splat(0.0), splat(0.0), splat(0.0), splat(0.0), splat(0.0)
        for i in range(block, min(block + BLOCK, y.size), WIDTH):
            d = load(a, i, 0.0) - beta
            v = (load(y, i, -np.inf) - tau) - lam * d
            N = N + kept(v, splat(1.0))
            p, d = kept(v, v), kept(v, d)
            P = P + p
            D = D + d
            DD = DD + d * d
            DP = DP + d * p
        n, sp, sd = n + total(N), sp + total(P), sd + total(D)
        sdd, sdp = sdd + total(DD), sdp + total(DP)
    return Free(n, sp, sd, sdd, sdp)


@compiled
def joined(F: Free, y: Floats, a: Floats, beta: float, tau: float, lam: float) -> Free:
    """F with the first point to enter as lam moves towards the row's balance.

    While all free points cost the same, d_F, the row's residual does not depend on lam: tau
    follows, and nothing moves until a point j on the other side of beta enters, where lam
    has changed by v_j / (d_j - d_F), v_j = y_j - tau - lam d_j < 0.
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
    return Free(F.n + 1.0, F.p + v, F.d + d, F.dd + d * d, F.dp + d * v)


@compiled
def row_step(F: Free, y: Floats, a: Floats, beta: float, r: float, at: Dual) -> float:
    """The change of lam in Newton's step of both equations on the free set.

    n dtau + sum d dlam = sum p - r and sum d dtau + sum d^2 dlam = sum d p, hence
    dlam = (sum d p - mean d (sum p - r)) / sum (d - mean d)^2.
    """
    mean = F.d / F.n
    spread = F.dd - mean * F.d
    if spread <= FLAT * F.dd:
        F = joined(F, y, a, beta, at.tau, at.lam)
        mean = F.d / F.n
        spread = F.dd - mean * F.d
        if spread <= FLAT * F.dd:  # no such point: the row is slack however small lam is
            return -np.inf if F.dp < 0.0 else 0.0
    return (F.dp - mean * (F.p - r)) / spread


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
    """Multipliers with sum p = r and d.p <= 0, lam >= least, complementary; beta > min a.

    phi(lam) = d.p(lam), with tau(lam) keeping sum p = r, is piecewise linear and falls. Newton's
    method steps tau and lam together and mostly ends in two to six passes; the answer counts
    only if the residuals say so. It can cycle: past JOINT passes lam moves only from an exact
    tau, where the sign of phi is known, and stays inside the bracket of those signs. It can
    crawl: past HALVING passes the bracket is halved (or, while it has no end, lam doubled).
    """
    tau, lam, low, high = start.tau, start.lam, -np.inf, np.inf
    for turn in range(PASSES):
        F = free_sums(y, a, beta, tau, lam)
        if F.n == 0.0:  # tau lies above every point
            top = y[0] - lam * (a[0] - beta)
            for i in range(y.size):
                top = max(top, y[i] - lam * (a[i] - beta))
            tau = top - r
            continue
        excess = F.p - r
        bound = max(SMALL, 2.0 * EPS * (F.n * abs(tau) + abs(lam) * math.sqrt(F.n * F.dd)))
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
        tau += excess / F.n - step * (F.d / F.n)
        lam += step
    return Dual(tau, lam, False)


@compiled
def fill_face(q: Floats, z: Floats, floor: float, r: float, a: Floats, least: float) -> float:
    """Write the nearest of the points with the smallest a.q into q; returns its multiplier.

    They have all mass r on {i : a_i = least}. The multiplier is the smallest lam that holds the
    others down, z_j - tau <= lam (a_j - least): the one of the row a.q <= min a.q.
    """
    face, n, top, lam = np.empty(z.size, np.int64), 0, z[0], 0.0
    for i in range(z.size):
        top = max(top, z[i])
        face[n] = i
        n += 1 if a[i] == least else 0
    p = np.empty(n)
    for k in range(n):
        p[k] = z[face[k]] - top
    tau = fill_mass(p, p, r)
    for j in range(z.size):
        over = (z[j] - top) - tau
        if a[j] > least and over > lam * (a[j] - least):
            lam = over / (a[j] - least)
    q[:] = floor
    for k in range(n):
        q[face[k]] += p[k]
    return lam if r > POINT else 0.0


class Outline(NamedTuple):
    """What a first look at z and a tells: sums and extremes."""

    z: float
    top: float
    a: float
    least: float
    most: float


@compiled
def outline(z: Floats, a: Floats) -> Outline:
    """Sum and largest of z; sum, least and largest of a: one pass."""
    Z, A, top, least, most = splat(0.0), splat(0.0), splat(z[0]), splat(-a[0]), splat(a[0])
    for i in range(0, z.size, WIDTH):
        y, c = load(z, i, z[0]), load(a, i, a[0])
        Z = Z + y
        A = A + c
        top = larger(top, y)
        most = larger(most, c)
        least = larger(least, -1.0 * c)
    spare = float(-z.size % WIDTH)  # lanes of the last load beyond the end
    return Outline(
        total(Z) - spare * z[0],
        largest(top),
        total(A) - spare * a[0],
        -largest(least),
        largest(most),
    )


@compiled
def fill_halfspace(q: Floats, z: Floats, floor: float, a: Floats, b: float) -> Row:
    """`onto_halfspace`, written into q (which may be z itself): no array is made."""
    seen = outline(z, a)
    r = 1.0 - z.size * floor
    size = max(abs(seen.least), abs(seen.most))
    # The mean cost allowed to the mass above the floor, so that the row reads d.p <= 0.
    beta = (b - floor * seen.a) / r if r > POINT else seen.least
    if beta <= seen.least:
        missed = (floor * seen.a + r * seen.least) - b
        return Row(fill_face(q, z, floor, r, a, seen.least), missed <= TOUCH * size)
    for i in range(z.size):
        q[i] = z[i] - seen.top
    lam, start = 0.0, Dual(max(seen.z / z.size - seen.top - r / z.size, -r), 0.0, False)
    for _ in range(ROUNDS):
        tau, step, exact = balance(q, a, beta, r, size, start, -lam)
        for i in range(z.size):
            q[i] = (q[i] - tau) - step * (a[i] - beta)
        lam += step
        if exact:
            break
        # The same problem seen from there: free entries are no larger than r, nor is rounding.
        start = Dual(0.0, 0.0, False)
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
