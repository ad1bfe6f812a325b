"""How many of a panel's members are of a group, and how many are not: exactly, for both laws.

Owns sums over all panels that have a closed form; which group is asked about is left to others.
"""

import math

import numpy as np

from bylot.numerics.jit import Bools, Floats, jit


@jit
def repeated_draw_series(q: Floats, group: Bools, of_group: bool, M: int) -> Floats:
    """(M + 1, M + 1) coefficients of x^n y^k in prod_{i of the group} (1 + y (e^{q_i x} - 1)).

    Times n!, it is the mass of all sequences of n draws that consist of exactly k of them.
    """
    series = np.zeros((M + 1, M + 1))
    series[0, 0] = 1.0
    for i in range(q.size):
        if group[i] != of_group or q[i] == 0.0:
            continue
        for n in range(M, 0, -1):  # from above: what is added to is not read again
            for k in range(n, 0, -1):
                factor = 1.0
                for times in range(1, n + 1):
                    factor *= q[i] / times
                    series[n, k] += factor * series[n - times, k - 1]
    return series


@jit
def iid_group_counts(q: Floats, group: Bools, M: int) -> Floats:
    """(M + 1, M + 1) chances of j members of the group and l others among M i.i.d. draws from q.

    M! [x^M y^j z^l] of the product of the two series above; only positive terms are added.

    >>> iid_group_counts(np.array([0.5, 0.5]), np.array([True, False]), 2)
    array([[0.  , 0.25, 0.  ],
           [0.25, 0.5 , 0.  ],
           [0.  , 0.  , 0.  ]])
    """
    inside, outside = (
        repeated_draw_series(q, group, True, M),
        repeated_draw_series(q, group, False, M),
    )
    chances, ways = np.zeros((M + 1, M + 1)), math.exp(math.lgamma(M + 1.0))
    for n in range(M + 1):
        for j in range(n + 1):
            for other in range(M - n + 1):
                chances[j, other] += ways * inside[n, j] * outside[M - n, other]
    return chances


@jit
def head_count_distribution(coins: Floats, group: Bools, of_group: bool, most: int) -> Floats:
    """Chances of 0, 1, ..., most heads among the coins of the group, tossed independently."""
    chances = np.zeros(most + 1)
    chances[0] = 1.0
    for i in range(coins.size):
        if group[i] != of_group:
            continue
        for m in range(most, 0, -1):
            chances[m] = (1.0 - coins[i]) * chances[m] + coins[i] * chances[m - 1]
        chances[0] *= 1.0 - coins[i]
    return chances


@jit
def fixed_size_group_counts(coins: Floats, group: Bools, m: int) -> Floats:
    """(m + 1, m + 1) chances of j members of the group and m - j others in a set of exactly m.

    The law is that of the coins, see `kernels.poisson`, given m heads in all.

    >>> fixed_size_group_counts(np.array([0.5, 0.5, 0.5]), np.array([True, False, False]), 2).round(
    ...     12
    ... )
    array([[0.        , 0.        , 0.33333333],
           [0.        , 0.66666667, 0.        ],
           [0.        , 0.        , 0.        ]])
    """
    inside, outside = (
        head_count_distribution(coins, group, True, m),
        head_count_distribution(coins, group, False, m),
    )
    chances, total = np.zeros((m + 1, m + 1)), 0.0
    for j in range(m + 1):
        chances[j, m - j] = inside[j] * outside[m - j]
        total += chances[j, m - j]
    return chances / total
