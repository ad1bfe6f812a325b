"""The smallest quadratic program: a few variables, bounded below, the Hessian given as R^T R.

Written out in loops, as each array expression would add a second to the compiling.
"""

import math

import numpy as np

from bylot.kernels.compile import Bools, Floats, compiled
from bylot.kernels.project import EPS


@compiled
def dot(x: Floats, y: Floats) -> float:
    """Sum of x_i y_i."""
    s = 0.0
    for i in range(x.size):
        s += x[i] * y[i]
    return s


@compiled
def norm(x: Floats) -> float:
    """Euclidean length."""
    return math.sqrt(dot(x, x))


@compiled
def triangle(W: Floats, count: int) -> Floats:
    """Upper triangular R with R^T R = W W^T, W being the first `count` rows; they are used up.

    Modified Gram-Schmidt on the rows of W: W W^T itself would square the condition number.
    """
    R = np.zeros((count, count))
    for j in range(count):
        R[j, j] = norm(W[j])
        for i in range(W.shape[1]):
            W[j, i] /= R[j, j]
        for k in range(j + 1, count):
            R[j, k] = dot(W[j], W[k])
            for i in range(W.shape[1]):
                W[k, i] -= R[j, k] * W[j, i]
    return R


@compiled
def slope(R: Floats, g: Floats, x: Floats) -> Floats:
    """g + R^T R x."""
    s = g.copy()
    for j in range(x.size):
        share = dot(R[j], x)
        for k in range(x.size):
            s[k] += share * R[j, k]
    return s


@compiled
def goal(R: Floats, g: Floats, x: Floats, passive: Bools) -> Floats:
    """x, with its passive coordinates moved to where their slopes (g + R^T R x)_j are zero."""
    W, chosen, held, n = np.empty(R.shape), np.empty(x.size, np.int64), x.copy(), 0
    for j in range(x.size):
        if passive[j]:
            for i in range(x.size):
                W[n, i] = R[i, j]
            chosen[n], held[j] = j, 0.0
            n += 1
    s, T = slope(R, g, held), triangle(W, n)
    for j in range(n):  # T^T first, then T
        h = -s[chosen[j]]
        for k in range(j):
            h -= T[k, j] * held[chosen[k]]
        held[chosen[j]] = h / T[j, j]
    for j in range(n - 1, -1, -1):
        h = held[chosen[j]]
        for k in range(j + 1, n):
            h -= T[j, k] * held[chosen[k]]
        held[chosen[j]] = h / T[j, j]
    return held


@compiled
def bounded_minimum(R: Floats, g: Floats, low: Floats) -> Floats:
    """The x >= low, low <= 0, that minimises g.x + |R x|^2 / 2, by a primal active set.

    Coordinates leave the set when they reach their bound, and enter it, worst first, while
    the slope there says that they should.

    >>> bounded_minimum(np.eye(2), np.array([-1.0, 3.0]), np.array([-2.0, -2.0]))
    array([ 1., -2.])
    """
    d, small = g.size, EPS * norm(g)
    x, passive = np.zeros(d), np.empty(d, np.bool_)
    for j in range(d):
        passive[j] = low[j] < 0.0 or g[j] < 0.0
    for _ in range(20 + 10 * d):
        y, share, blocking = goal(R, g, x, passive), 1.0, -1
        for j in range(d):
            if passive[j] and y[j] < low[j] and low[j] - x[j] > share * (y[j] - x[j]):
                share, blocking = (low[j] - x[j]) / (y[j] - x[j]), j
        for j in range(d):
            x[j] += share * (y[j] - x[j])
        if blocking >= 0:
            x[blocking], passive[blocking] = low[blocking], False
            continue
        s, worst = slope(R, g, x), -1
        for j in range(d):
            if not passive[j] and s[j] < -small and (worst < 0 or s[j] < s[worst]):
                worst = j
        if worst < 0:
            break
        passive[worst] = True
    return x
