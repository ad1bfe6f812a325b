"""The joint distribution of how many members of a panel belong to a group and how many do not.

Exact, for i.i.d. draws and for sets of a fixed size.
"""

import math

import numpy as np

from bylot.numerics.jit import Bools, Floats, jit


@jit
def repeated_draw_series(q: Floats, group: Bools, of_group: bool, M: int) -> Floats:
    """(M + 1, M + 1) coefficients of x^n y^k in prod_{i of the group} (1 + y (e^{q_i x} - 1)).

    Times n!, it is the mass of all sequences of n draws with exactly k different experts.
    """
    series = np.zeros((M + 1, M + 1))
    series[0, 0] = 1.0
    for i in range(q.size):
        if group[i] != of_group or q[i] == 0.0:
            continue
        for n in range(M, 0, -1):  # from above: sums are not read again
            for k in range(n, 0, -1):
                factor = 1.0
                for times in range(1, n + 1):
                    factor *= q[i] / times
                    series[n, k] += factor * series[n - times, k - 1]
    return series


@jit
def iid_group_counts(q: Floats, group: Bools, M: int) -> Floats:
    """(M + 1, M + 1) probabilities of j members of the group and l others in M i.i.d. draws.

    M! [x^M y^j z^l] of the product of the two series above; only positive terms are added.

    >>> iid_group_counts(np.array([0.5, 0.5]), np.array([True, False]), 2)
    array([[0.  , 0.25, 0.  ],
           [0.25, 0.5 , 0.  ],
           [0.  , 0.  , 0.  ]])
    """
    inside = repeated_draw_series(q, group, True, M)
    outside = repeated_draw_series(q, group, False, M)
    p, ways = np.zeros((M + 1, M + 1)), math.exp(math.lgamma(M + 1.0))
    for n in range(M + 1):
        for j in range(n + 1):
            for other in range(M - n + 1):
                p[j, other] += ways * inside[n, j] * outside[M - n, other]
    return p


@jit
def head_count_distribution(coins: Floats, group: Bools, of_group: bool, most: int) -> Floats:
    """Probabilities of 0, 1, ..., most heads among the independent coins of the group."""
    p = np.zeros(most + 1)
    p[0] = 1.0
    for i in range(coins.size):
        if group[i] != of_group:
            continue
        for m in range(most, 0, -1):
            p[m] = (1.0 - coins[i]) * p[m] + coins[i] * p[m - 1]
        p[0] *= 1.0 - coins[i]
    return p


@jit
def fixed_size_group_counts(coins: Floats, group: Bools, m: int) -> Floats:
    """(m + 1, m + 1) probabilities of j members of the group and m - j others in a set of m.

    The distribution is that of the coins of `conditional_poisson`, given m heads in all.

    >>> coins, group = np.array([0.5, 0.5, 0.5]), np.array([True, False, False])
    >>> fixed_size_group_counts(coins, group, 2).round(12)
    array([[0.        , 0.        , 0.33333333],
           [0.        , 0.66666667, 0.        ],
           [0.        , 0.        , 0.        ]])
    """
    inside = head_count_distribution(coins, group, True, m)
    outside = head_count_distribution(coins, group, False, m)
    p, total = np.zeros((m + 1, m + 1)), 0.0
    for j in range(m + 1):
        p[j, m - j] = inside[j] * outside[m - j]
        total += p[j, m - j]
    return p / total
