"""The probability of a *set* under M i.i.d. draws, and its score.

P(A) = sum over B in A of (-1)^|A - B| Q(B)^M with Q(B) the mass of B. The terms of this sum cancel
(a panel of twelve with one dominant member loses all digits); its generating function does not:

    P(A) = M! [x^M] prod_{i in A} (e^{q_i x} - 1) = M! prod_{i in A} q_i [x^D] prod_{i in A} f_i(x),

with f_i(x) = (e^{q_i x} - 1) / (q_i x) = 1 + q_i x / 2! + q_i^2 x^2 / 3! + ... and D = M - |A|: a
product of power series with positive coefficients, cut after x^D, which is short where few draws
were duplicates. Each series starts at one, so tiny masses do not underflow.
"""

import math

import numpy as np

from bylot.numerics.jit import Floats, jit


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


@jit
def log_iid_set_probability(masses: Floats, count: int) -> float:
    """Return log P(A): all of A and nothing else in `count` i.i.d. draws; masses are q over A.

    >>> np.exp(log_iid_set_probability(np.array([0.5, 0.25]), 2)).round(12).item()
    0.25
    """
    degree = count - masses.size
    if degree < 0:
        return -np.inf
    largest = masses.max()  # scales x, so that powers of a tiny mass do not underflow
    product, log = np.zeros(degree + 1), degree * math.log(largest)
    product[0] = 1.0
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
    n, largest = masses.size, masses.max()
    degree = count - n
    before, after = np.zeros((n + 1, degree + 1)), np.zeros(degree + 1)
    before[0, 0] = after[0] = 1.0
    for i in range(n):
        for k in range(degree + 1):
            before[i + 1, k] = before[i, k]
        multiply_series(before[i + 1], masses[i] / largest, 1)
    moved = np.empty(degree + 1)
    for i in range(n - 1, -1, -1):
        for k in range(degree + 1):
            moved[k] = after[k]
        multiply_series(moved, masses[i] / largest, 0)
        all_but = 0.0
        for k in range(degree + 1):
            all_but += before[i, k] * moved[degree - k]
        score[i] = all_but / (before[n, degree] * masses[i])
        multiply_series(after, masses[i] / largest, 1)
