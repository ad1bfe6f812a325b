"""The probability of a *set* under M i.i.d. draws, and its score.

P(A) = sum over B in A of (-1)^|A - B| Q(B)^M with Q(B) the mass of B. Evaluated as written the
terms cancel (a panel of twelve with one giant loses all digits); its generating function has
nothing to cancel:

    P(A) = M! [x^M] prod_{i in A} (e^{q_i x} - 1),

a product of power series with positive coefficients, cut after x^M.
"""

import numpy as np

from bylot.kernels.compile import Floats, compiled


@compiled
def series(q: float, count: int, start: int) -> Floats:
    """Coefficients of e^{q x} - (1 if start == 1): q^n / n! for start <= n <= count."""
    out = np.zeros(count + 1)
    term = 1.0
    for n in range(count + 1):
        if n >= start:
            out[n] = term
        term *= q / (n + 1)
    return out


@compiled
def times(f: Floats, g: Floats) -> Floats:
    """The product of two power series, cut at the common length."""
    out = np.zeros(f.size)
    for i in range(f.size):
        for j in range(f.size - i):
            out[i + j] += f[i] * g[j]
    return out


@compiled
def log_set_probability(masses: Floats, count: int) -> float:
    """log P(A): all of A and nothing else in `count` i.i.d. draws; masses are q over A.

    >>> np.exp(log_set_probability(np.array([0.5, 0.25]), 2)).round(12).item()
    0.25
    """
    if masses.size > count:
        return -np.inf
    largest = masses.max()  # x is scaled by it, or powers of a tiny mass would underflow
    product, exponent = peeled(masses / largest, count)
    exponent += count * np.log(largest)
    top = product[count - masses.size]
    for n in range(2, count + 1):
        exponent += np.log(n)
    return float(np.log(top) + exponent)


@compiled
def peeled(masses: Floats, count: int) -> tuple[Floats, float]:
    """prod (e^{q_i x} - 1) / (q_i x), and log prod q_i: the small factors kept apart.

    Each factor 1 + q x / 2! + q^2 x^2 / 3! + ... starts at one, so tiny masses do not underflow.
    """
    product = np.zeros(count + 1)
    product[0] = 1.0
    log = 0.0
    for q in masses:
        product = times(product, shifted(q, count))
        log += np.log(q)
    return product, log


@compiled
def shifted(q: float, count: int) -> Floats:
    """Coefficients of (e^{q x} - 1) / (q x): q^n / (n + 1)!."""
    return series(q, count + 1, 1)[1:] / q


@compiled
def set_score(masses: Floats, count: int) -> Floats:
    """The gradient of log P(A) in the masses of A's members (others do not enter).

    d P(A) / d q_i = M! [x^M] x e^{q_i x} prod_{j != i} (e^{q_j x} - 1).

    >>> set_score(np.array([0.5, 0.25]), 2)  # P = 2 q_0 q_1
    array([2., 4.])
    """
    score = np.empty(masses.size)
    largest = masses.max()
    masses = masses / largest
    product, _ = peeled(masses, count)
    top = product[count - masses.size]
    for i in range(masses.size):
        others = np.concatenate((masses[:i], masses[i + 1 :]))
        rest, _ = peeled(others, count)
        moved = times(rest, series(masses[i], count, 0))
        score[i] = moved[count - masses.size] / (top * masses[i] * largest)
    return score
