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


@jit
def sum_largest_excess(
    caps: Floats, worth: Floats, v: Floats, rest: Ints, charges: Floats, need: int, room: int
) -> float:
    """Sum the largest excesses less charges of `need` to `room` experts of the rest.

    caps: upper bounds of these numbers, which spare computing most of them; those that are computed
    replace their bounds.

    >>> worth, caps = np.array([[3.0], [5.0], [4.0]]), np.full(3, 9.0)
    >>> sum_largest_excess(caps, worth, np.ones(1), np.arange(3), np.ones(3), 0, 2), caps
    (5.0, array([1., 3., 2.]))
    """
    largest = np.full(room, -np.inf)  # in falling order
    order = np.argsort(-caps)
    for p in range(order.size):
        j = order[p]
        if room == 0 or largest[room - 1] >= caps[j]:
            break
        if caps[j] <= 0.0 and (need <= 0 or largest[need - 1] >= caps[j]):
            break
        net, row = 0.0, worth[rest[j]]
        for r in range(v.size):
            net += max(row[r] - v[r], 0.0)
        net -= charges[rest[j]]
        caps[j] = net
        place = room
        while place > 0 and net > largest[place - 1]:
            place -= 1
        for k in range(room - 1, place, -1):
            largest[k] = largest[k - 1]
        if place < room:
            largest[place] = net
    total = 0.0
    for k in range(room):
        if largest[k] > 0.0 or k < need:
            total += largest[k]
    return total
