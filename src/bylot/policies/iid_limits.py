"""Limits on the exact expected cost of i.i.d. draws, as rows that are tangent to it.

h_j(q) = sum_i A_ji (1 - (1 - q_i)^M) is concave where A is positive, so its tangent at any q is an
over-estimate: a q that satisfies the tangent row of an upper limit satisfies the limit. It is also
the loosest there is through h(q); M A.q <= b, the paper's, is the tangent at 0. For a lower limit,
-h is convex, and a tangent alone is not safe: there it is drawn a second time, at the result.
"""

import warnings
from collections.abc import Callable

import numpy as np

from bylot.errors import OutOfReachWarning, PolicyError
from bylot.limits.guard import LIMIT_TOLERANCE
from bylot.limits.rows import BOUND_TIGHTENING, ConstraintRows, solve_max_entropy
from bylot.numerics.iid_sets import expected_panel_costs
from bylot.numerics.jit import Floats, jit
from bylot.numerics.kl_projection import kl_project
from bylot.policies.mirror_ascent import fill_mixture
from bylot.problem import Problem

SAFE_BOUND_HALVINGS = 60
MAX_SAFE_BOUND_PRICE = 1e6  # of h in units of c.q: cost does not matter
MAX_ROW_VALUES = 500  # different costs of a row; pairs of more take long, and have little to gain


def make_safe_rows(rows: ConstraintRows, M: int) -> ConstraintRows:
    """A q <= b* for one-sided limits h(q) <= b.

    >>> make_safe_rows(ConstraintRows(np.array([[1.0, 0.0]]), np.array([0.75])), 2).b.round(9)
    array([0.5])
    >>> make_safe_rows(ConstraintRows(np.array([[-1.0, 0.0]]), np.array([-0.75])), 2).b.round(9)
    array([-0.5])
    """
    sides = [
        find_safe_upper_bound(row, b, M) if b >= 0 else -find_safe_lower_bound(-row, -b, M)
        for row, b in zip(rows.A, rows.b, strict=True)
    ]
    return ConstraintRows(rows.A, np.array(sides))


def compute_hit_probability(q: Floats, M: int) -> Floats:
    """1 - (1 - q)^M, also where q is tiny."""
    return np.asarray(-np.expm1(M * np.log1p(-np.minimum(q, 1.0 - 2.0**-53))))


def bisect_threshold(
    low: float, high: float, too_low: Callable[[float], bool], halvings: int = SAFE_BOUND_HALVINGS
) -> tuple[float, float]:
    """A tiny interval around the threshold from which a value is no longer too low."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return low, high


def find_safe_upper_bound(c: Floats, u: float, M: int) -> float:
    """b* of an upper limit: the q that maximise mu h(q) - c.q spend least for their h(q), which
    grows with the price mu; at b* it is u.
    """

    def kept(mu: float) -> bool:
        return float(c @ compute_hit_probability(maximize_priced_cost(c, mu, M), M)) <= u

    if M == 1 or not kept(1.0 / MAX_SAFE_BOUND_PRICE):
        return u / M
    low, high = bisect_threshold(1.0 / MAX_SAFE_BOUND_PRICE, MAX_SAFE_BOUND_PRICE, kept)
    if high == MAX_SAFE_BOUND_PRICE:  # no distribution costs more than u
        return float(c.max())
    return max(u / M, float(c @ maximize_priced_cost(c, low, M)))


def maximize_priced_cost(c: Floats, mu: float, M: int) -> Floats:
    """The q on the simplex that maximises mu h(q) - c.q, zero where nothing is paid.

    (1 - q_i)^(M-1) = (1 + nu / c_i) / (mu M), nu such that the q_i sum to 1: to at most 1, with
    nu = 0, where there is someone to be had for nothing.
    """
    paid = c[c > 0]

    def at(nu: float) -> Floats:
        root = np.maximum(1.0 + nu / paid, 0.0) / (mu * M)
        return np.clip(1.0 - root ** (1.0 / (M - 1)), 0.0, 1.0)

    q = np.zeros(c.size)
    if paid.size == c.size or at(0.0).sum() > 1.0:
        _, nu = bisect_threshold(-paid.max(), mu * M * paid.max(), lambda nu: at(nu).sum() > 1.0)
        q[c > 0] = at(nu)
    else:
        q[c > 0] = at(0.0)
    return q


def find_safe_lower_bound(c: Floats, l: float, M: int) -> float:  # noqa: E741
    """b* of a lower limit. h is concave, so its least value where c.q >= b is at a corner of that
    set: one expert alone, or two of them with c.q = b.
    """
    values = np.unique(c)
    if values.size > MAX_ROW_VALUES or l > values[-1]:  # one expert gives less: nothing is safe
        return l

    def least(b: float) -> float:
        more, less = values[values >= b], values[values < b]
        high, low = more[:, None], less[None, :]
        share = (b - low) / (high - low)
        hit, other = compute_hit_probability(share, M), compute_hit_probability(1.0 - share, M)
        return float(min(more.min(initial=np.inf), (high * hit + low * other).min(initial=np.inf)))

    return bisect_threshold(0.0, l, lambda b: least(b) < l)[1]


def find_safe_distribution(problem: Problem, safe: ConstraintRows) -> Floats:
    """The maximum-entropy distribution inside the safe set, with some slack if there is any."""
    for margin in (1.0, 0.0):
        _, q = solve_max_entropy(safe, 1, margin)
        if (safe.A @ q - safe.b).max(initial=0.0) <= LIMIT_TOLERANCE:
            return q
    what = "no fixed set of distributions keeps {limits} with certainty, as 'strict' requires"
    remedy = "use 'tangent', whose set moves with its distribution, or loosen the limits"
    raise PolicyError(what, limits=problem.limits, remedy=remedy)


@jit
def project_onto_rows(
    theta: Floats, q: Floats, prices: Floats, rows: ConstraintRows, eps: float, explore: Floats
) -> None:
    """KL-project theta so that q = (1 - eps) softmax(theta) + eps f0 satisfies A q <= b."""
    pi = np.empty(q.size)
    kl_project(theta, pi, prices, theta, rows.A, rows.b, 1, eps, explore)
    fill_mixture(q, pi, eps, explore)


MAX_TANGENT_ITERATIONS = 60  # of drawing tangents at the last result, until the results stand still
MARGIN_HALVINGS = 10  # of what is not known of the margin: to a thousandth of it


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
        what = "no distribution of independent draws was found that keeps all limits"
        remedy = "use 'distinct': it asks different experts, which helps minimum shares"
        warning = OutOfReachWarning(f"{what}, so the guard will replace many panels", remedy=remedy)
        warnings.warn(warning, stacklevel=3)
    return margin, solve_max_entropy_draws(rows, M, min(BOUND_TIGHTENING, margin / 2))[0]
