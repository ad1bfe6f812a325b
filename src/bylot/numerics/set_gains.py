"""Gains of sets of experts with worths w (K, R), where a set A has f(A) = sum_r max_{i in A} w_ir.

Owns the sums over all rows r, which searches for sets repeat; `optima.set_search` owns the search.
"""

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit


@jit
def compute_excess(ranked: Floats, ranking: Ints, v: Floats) -> Floats:
    """Compute sum_r (w_ir - v_r)^+ of every expert i: what it adds to a set with the maxima v.

    ranked, ranking: (R, K) worths in falling order, and whose they are.

    >>> ranked, ranking = np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[0, 1], [1, 0]])
    >>> compute_excess(ranked, ranking, np.array([0.5, 1.0]))
    array([0.5, 2. ])
    """
    (R, K), excess = ranked.shape, np.zeros(ranked.shape[1])
    for r in range(R):
        for p in range(K):
            over = ranked[r, p] - v[r]
            if over <= 0.0:  # as are those of the rest
                break
            excess[ranking[r, p]] += over
    return excess


@jit
def compute_exchange_gains(ranked: Floats, ranking: Ints, worth: Floats, members: Ints) -> Floats:
    """Compute what expert i adds to the members without the n-th, [n, i], and to all, [m, i].

    Without the n-th, the maximum of a row falls to its second largest where the n-th has the
    largest, so one pass over the worths is enough for all n.

    >>> worth = np.array([[1.0, 0.0], [0.0, 3.0], [2.0, 1.0]])
    >>> ranking = np.argsort(-worth.T, axis=1)
    >>> ranked = np.take_along_axis(worth.T, ranking, axis=1)
    >>> compute_exchange_gains(ranked, ranking, worth, np.array([0, 1]))
    array([[1., 0., 2.],
           [0., 3., 2.],
           [0., 0., 1.]])
    """
    (R, K), m = ranked.shape, members.size
    gains, common = np.zeros((m + 1, K)), np.zeros(K)
    for r in range(R):
        first, second, holder = 0.0, 0.0, m
        for n in range(m):
            w = worth[members[n], r]
            if w > first:
                second, first, holder = first, w, n
            elif w > second:
                second = w
        for p in range(K):
            w = ranked[r, p]
            if w <= second:  # as is the rest
                break
            added, i = max(w - first, 0.0), ranking[r, p]
            common[i] += added
            gains[holder, i] += w - second - added
    for i in range(K):
        for n in range(m):
            gains[n, i] += common[i]
        gains[m, i] = common[i]
    return gains
