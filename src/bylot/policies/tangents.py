"""Limits on the exact expected cost of i.i.d. draws, as rows that are tangent to it.

h_j(q) = sum_i A_ji (1 - (1 - q_i)^M) is concave where A is positive, so its tangent at any q is an
over-estimate: a law that keeps the tangent row of an upper limit keeps the limit. The row is also
the loosest there is through h(q); M A.q <= b, the paper's, is the tangent at 0. For a lower limit,
-h is convex, and a tangent alone is not safe: there it is drawn a second time, at the result.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats, compiled
from bylot.kernels.inclusion import expected_costs
from bylot.kernels.tilt import Tilt, tilt
from bylot.policies.guard import KEPT
from bylot.policies.mildest import TIGHTER
from bylot.policies.onesided import Rows

TURNS = 60  # of drawing tangents at the last result, until the results stand still
HALVINGS = 10  # of what is not known of the margin: to a thousandth of it


@compiled
def fill_tangents(At: Floats, bt: Floats, A: Floats, b: Floats, q: Floats, M: int) -> None:
    """Write the rows At p <= bt tangent at q to h_j(p) <= b_j, each divided by M.

    h_j(q) + M sum_i A_ji (1 - q_i)^(M-1) (p_i - q_i) <= b_j.

    >>> At, bt, one = np.empty((1, 2)), np.empty(1), np.ones((1, 2))
    >>> fill_tangents(At, bt, one, np.array([1.5]), np.array([0.5, 0.5]), 2)  # h = 1.5 there
    >>> At, bt
    (array([[0.5, 0.5]]), array([0.5]))
    """
    d, K = A.shape
    for j in range(d):
        bt[j] = b[j] / M
    for i in range(K):
        stay = 1.0
        for _ in range(M - 1):
            stay *= 1.0 - q[i]
        drawn = 1.0 - stay * (1.0 - q[i])
        for j in range(d):
            At[j, i] = A[j, i] * stay
            bt[j] += A[j, i] * (stay * q[i] - drawn / M)


@compiled
def fill_mixture(q: Floats, pi: Floats, eps: float, mild: Floats) -> None:
    """Write q = (1 - eps) pi + eps f0."""
    for i in range(q.size):
        q[i] = (1.0 - eps) * pi[i] + eps * mild[i]


@compiled
def keep(
    theta: Floats,
    q: Floats,
    prices: Floats,
    A: Floats,
    b: Floats,
    M: int,
    eps: float,
    mild: Floats,
) -> Tilt:
    """Move theta as little as it must for q = (1 - eps) softmax(theta) + eps f0 to keep h(q) <= b.

    q comes as the law that the tangents are drawn at, and leaves as the new one.
    """
    d, K = A.shape
    At, bt, pi, z = np.empty((d, K)), np.empty(d), np.empty(K), theta.copy()
    fill_tangents(At, bt, A, b, q, M)
    found = tilt(theta, pi, prices, z, At, bt, 1, eps, mild)
    fill_mixture(q, pi, eps, mild)
    if lower(b):
        fill_tangents(At, bt, A, b, q, M)
        found = tilt(theta, pi, prices, z, At, bt, 1, eps, mild)
        fill_mixture(q, pi, eps, mild)
    return found


@compiled
def lower(b: Floats) -> bool:
    """Is any one-sided limit a minimum?"""
    some = False
    for j in range(b.size):
        some |= b[j] < 0.0
    return some


class MildLaw(NamedTuple):
    """The law of largest entropy found inside limits, and by how much it misses one of them."""

    theta: Floats
    q: Floats
    excess: float


def mildest_draws(rows: Rows, M: int, tighter: float) -> MildLaw:
    """max entropy over q with h(q) <= b, every bound tightened by this part of itself."""
    K, d = rows.A.shape[1], rows.b.size
    b = rows.b - tighter * np.abs(rows.b)
    theta, q, prices, nothing = np.zeros(K), np.full(K, 1.0 / K), np.zeros(d), np.zeros(K)
    for _ in range(TURNS):
        theta[:], before = 0.0, q.copy()
        keep(theta, q, prices, rows.A, b, M, 0.0, nothing)
        if np.abs(q - before).max() <= 1e-12:
            break
    missed = (expected_costs(q, rows.A, M) - b).max(initial=-np.inf)
    return MildLaw(theta, q, float(missed))


def margin_of_draws(rows: Rows, M: int, most: float) -> float:
    """The largest tightening, at most `most`, that i.i.d. draws are found to keep; 0 if none is.

    It may be less than there is: upper limits on h are not convex, and the search is local.
    """
    low, high = 0.0, most
    if mildest_draws(rows, M, most).excess <= KEPT:
        return most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if mildest_draws(rows, M, middle).excess <= KEPT:
            low = middle
        else:
            high = middle
    return low


def floor_of_draws(rows: Rows, M: int, margin: float) -> Floats:
    """f0: the mildest law inside limits tightened a little, which is mixed into every draw."""
    return mildest_draws(rows, M, min(TIGHTER, margin / 2)).q
