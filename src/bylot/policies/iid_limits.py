"""Limits on the exact expected cost of i.i.d. draws, as rows that are tangent to it.

h_j(q) = sum_i A_ji (1 - (1 - q_i)^M) is concave where A is positive, so its tangent at any q is an
over-estimate: a q that satisfies the tangent row of an upper limit satisfies the limit. It is also
the loosest there is through h(q); M A.q <= b, the paper's, is the tangent at 0. For a lower limit,
-h is convex, and a tangent alone is not safe: there it is drawn a second time, at the result.
"""

import warnings
from collections.abc import Callable

import numpy as np

from bylot.errors import OutOfReachWarning
from bylot.limits.guard import LIMIT_TOLERANCE
from bylot.limits.rows import BOUND_TIGHTENING, ConstraintRows
from bylot.numerics.iid_sets import expected_panel_costs
from bylot.numerics.jit import Floats, jit
from bylot.numerics.kl_projection import kl_project
from bylot.policies.mirror_ascent import fill_mixture

MAX_TANGENT_ITERATIONS = 60  # of drawing tangents at the last result, until the results stand still
MARGIN_HALVINGS = 10  # of what is not known of the margin: to a thousandth of it


def bisect_threshold(
    low: float, high: float, too_low: Callable[[float], bool], halvings: int
) -> tuple[float, float]:
    """Return a tiny interval around the threshold from which a value is no longer too low."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return low, high


@jit
def fill_tangent_rows(At: Floats, bt: Floats, A: Floats, b: Floats, q: Floats, M: int) -> None:
    """Write the rows At p <= bt tangent at q to h_j(p) <= b_j, each divided by M.

    h_j(q) + M sum_i A_ji (1 - q_i)^(M-1) (p_i - q_i) <= b_j.

    >>> At, bt, one = np.empty((1, 2)), np.empty(1), np.ones((1, 2))
    >>> fill_tangent_rows(At, bt, one, np.array([1.5]), np.array([0.5, 0.5]), 2)  # h = 1.5 there
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


@jit
def project_onto_tangents(
    theta: Floats, q: Floats, prices: Floats, rows: ConstraintRows, M: int, eps: float, f0: Floats
) -> None:
    """KL-project theta so that q = (1 - eps) softmax(theta) + eps f0 satisfies h(q) <= b.

    q is the point of the tangents on entry, and the new distribution on return. With a lower limit,
    tangents are drawn a second time.
    """
    d, K = rows.A.shape
    At, bt, pi, z = np.empty((d, K)), np.empty(d), np.empty(K), theta.copy()
    lower = False
    for j in range(d):
        lower |= rows.b[j] < 0.0
    for _ in range(2 if lower else 1):
        fill_tangent_rows(At, bt, rows.A, rows.b, q, M)
        kl_project(theta, pi, prices, z, At, bt, 1, eps, f0)
        fill_mixture(q, pi, eps, f0)


def solve_max_entropy_draws(rows: ConstraintRows, M: int, tighter: float) -> tuple[Floats, float]:
    """max entropy over q with h(q) <= b, tightened by this part of b; and how far q misses that."""
    K, d = rows.A.shape[1], rows.b.size
    rows = ConstraintRows(rows.A, rows.b - tighter * np.abs(rows.b))
    theta, q, prices, nothing = np.zeros(K), np.full(K, 1.0 / K), np.zeros(d), np.zeros(K)
    for _ in range(MAX_TANGENT_ITERATIONS):
        theta[:], before = 0.0, q.copy()
        project_onto_tangents(theta, q, prices, rows, M, 0.0, nothing)
        if np.abs(q - before).max() <= 1e-12:
            break
    return q, float((expected_panel_costs(q, rows.A, M) - rows.b).max(initial=-np.inf))


def find_iid_exploration(rows: ConstraintRows, M: int, most: float) -> tuple[float, Floats]:
    """The largest tightening, at most `most`, that i.i.d. draws are found to keep, 0 if none is;
    and f0: the maximum-entropy distribution inside slightly tighter limits, mixed into each draw.

    There may be a larger one: upper limits on h are not convex, and the search is local.
    """

    def kept(tighter: float) -> bool:
        return solve_max_entropy_draws(rows, M, tighter)[1] <= LIMIT_TOLERANCE

    margin = most if kept(most) else bisect_threshold(0.0, most, kept, MARGIN_HALVINGS)[0]
    if margin <= 0.0 and not kept(0.0):
        warning = OutOfReachWarning(
            "no distribution of independent draws was found that keeps all limits, so the guard "
            "will replace many panels",
            remedy="use 'distinct': it asks different experts, which helps minimum shares",
        )
        warnings.warn(warning, stacklevel=3)
    return margin, solve_max_entropy_draws(rows, M, min(BOUND_TIGHTENING, margin / 2))[0]
