"""M i.i.d. draws: inclusion probabilities, expected costs, probabilities of sets and their scores.

An expert is drawn with probability 1 - (1 - q)^M. The probability of a *set* A is
P(A) = sum over B in A of (-1)^|A - B| Q(B)^M with Q(B) the mass of B. The terms of this sum cancel
(a panel of twelve with one dominant member loses all digits); its generating function does not:

    P(A) = M! [x^M] prod_{i in A} (e^{q_i x} - 1) = M! prod_{i in A} q_i [x^D] prod_{i in A} f_i(x),

with f_i(x) = (e^{q_i x} - 1) / (q_i x) = 1 + q_i x / 2! + q_i^2 x^2 / 3! + ... and D = M - |A|: a
product of power series with positive coefficients, cut after x^D, which is short where few draws
were duplicates. Each series starts at one, so tiny masses do not underflow.
"""

import math

import numpy as np

from bylot.numerics.embedded import jit_embedded
from bylot.numerics.jit import Floats, jit
from bylot.numerics.scratch_arrays import borrow_row, scratch_floats


@jit
def multiply_series(product: Floats, q: float, first: int) -> None:
    """Multiply a power series, cut at its length, by f with coefficients q^k / (k + first)!.

    first = 1 is (e^{q x} - 1) / (q x), and first = 0 is e^{q x}.
    """
    for n in range(product.size - 1, 0, -1):  # from above: lower coefficients are still p's
        factor, total = 1.0, product[n]
        for k in range(1, n + 1):
            factor *= q / (k + first)
            total += product[n - k] * factor
        product[n] = total


@jit_embedded
def fill_one(product: Floats) -> None:
    """Write the power series of 1."""
    for n in range(product.size):
        product[n] = 0.0
    product[0] = 1.0


@jit_embedded
def find_largest(masses: Floats) -> float:
    """The largest of positive numbers."""
    largest = 0.0
    for i in range(masses.size):
        largest = max(largest, masses[i])
    return largest


@jit
def log_iid_set_probability(masses: Floats, count: int) -> float:
    """Return log P(A): all of A and nothing else in `count` i.i.d. draws; masses are q over A.

    >>> np.exp(log_iid_set_probability(np.array([0.5, 0.25]), 2)).round(12).item()
    0.25
    """
    degree = count - masses.size
    if degree < 0:
        return -np.inf
    largest = find_largest(masses)  # scales x, so that powers of a tiny mass do not underflow
    product, log = scratch_floats(degree + 1), degree * math.log(largest)
    fill_one(product)
    for i in range(masses.size):
        multiply_series(product, masses[i] / largest, 1)
        log += math.log(masses[i])
    return log + math.lgamma(count + 1.0) + math.log(product[degree])


@jit
def fill_iid_set_score(score: Floats, masses: Floats, count: int) -> None:
    """Write the gradient of log P(A) in the masses of A's members (others do not enter).

    d P(A) / d q_i = M! [x^M] x e^{q_i x} prod_{j != i} (e^{q_j x} - 1), with running products over
    the members before i and after i.
    """
    n, largest = masses.size, find_largest(masses)
    degree = count - n
    cells = (n + 1) * (degree + 1)
    space = scratch_floats(cells)
    before = space.reshape((n + 1, degree + 1))
    after, moved = scratch_floats(degree + 1), scratch_floats(degree + 1)
    fill_one(borrow_row(before, 0))
    fill_one(after)
    for i in range(n):
        for k in range(degree + 1):
            before[i + 1, k] = before[i, k]
        multiply_series(borrow_row(before, i + 1), masses[i] / largest, 1)
    for i in range(n - 1, -1, -1):
        for k in range(degree + 1):
            moved[k] = after[k]
        multiply_series(moved, masses[i] / largest, 0)
        all_but = 0.0
        for k in range(degree + 1):
            all_but += before[i, k] * moved[degree - k]
        score[i] = all_but / (before[n, degree] * masses[i])
        multiply_series(after, masses[i] / largest, 1)


@jit
def iid_inclusion(q: Floats, M: int) -> Floats:
    """Compute the probability of being drawn at least once: p_i = 1 - (1 - q_i)^M.

    By p <- p (1 - q) + q, M times: sums of positive terms only, so a tiny q keeps all its digits.

    >>> iid_inclusion(np.array([0.5, 0.25]), 2)
    array([0.75  , 0.4375])
    """
    p = np.zeros(q.size)
    for _ in range(M):
        for i in range(q.size):
            p[i] = p[i] * (1.0 - q[i]) + q[i]
    return p


@jit
def iid_inclusion_slope(q: Floats, M: int) -> Floats:
    """Compute the derivative of `iid_inclusion`: M (1 - q_i)^(M-1).

    >>> iid_inclusion_slope(np.array([0.5, 0.25]), 2)
    array([1. , 1.5])
    """
    slope = np.full_like(q, M)
    for _ in range(M - 1):
        slope = slope * (1.0 - q)
    return slope


@jit
def expected_panel_costs(q: Floats, rows: Floats, M: int) -> Floats:
    """Compute expected costs h_j(q) = sum_i rows[j, i] (1 - (1 - q_i)^M), concave in q.

    >>> expected_panel_costs(np.array([0.5, 0.5]), np.array([[1.0, 3.0]]), 2)
    array([3.])
    """
    costs = np.zeros(rows.shape[0])
    add_expected_costs(costs, rows, iid_inclusion(q, M))
    return costs


@jit
def add_expected_costs(out: Floats, rows: Floats, p: Floats) -> None:
    """Add expected costs sum_i rows[j, i] p_i to out, given inclusion probabilities p.

    Four rows at a time, as an addition waits for the one before it; the last row may be among them
    several times.
    """
    last = rows.shape[0] - 1
    for j in range(0, rows.shape[0], 4):
        j1, j2, j3 = min(j + 1, last), min(j + 2, last), min(j + 3, last)
        t0, t1, t2, t3 = out[j], out[j1], out[j2], out[j3]
        for i in range(p.size):
            t0 += rows[j, i] * p[i]
            t1 += rows[j1, i] * p[i]
            t2 += rows[j2, i] * p[i]
            t3 += rows[j3, i] * p[i]
        out[j], out[j1], out[j2], out[j3] = t0, t1, t2, t3


@jit
def expected_panel_costs_slope(q: Floats, rows: Floats, M: int) -> Floats:
    """Compute gradients of `expected_panel_costs`, by cost: rows[j, i] M (1 - q_i)^(M-1).

    >>> expected_panel_costs_slope(np.array([0.5, 0.5]), np.array([[1.0, 3.0]]), 2)
    array([[1., 3.]])
    """
    return rows * iid_inclusion_slope(q, M)
