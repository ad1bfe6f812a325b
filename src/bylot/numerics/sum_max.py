"""The sum-max reward of a panel, and its exact expectation Phi(q) with slope and curvature.

Sort a row of V decreasingly, v_(1) >= ... >= v_(K) >= v_(K+1) = 0, and let Q_l be the mass of q on
the l best experts. The best of M draws is worth at least v_(l) unless all draws fall below, so

    Phi(q) = sum_k sum_l (v_(l) - v_(l+1)) (1 - (1 - Q_l)^M).

On the simplex 1 - Q_l = R_l, the mass *below* the l best. Summing from the worst expert upwards
gives R_l by additions only, and value, slope and curvature as suffix sums of the same pass. Powers
are repeated products. `order` is the sorting of each row, computed once per stack by
`sort_experts` and good for every q, M and weighting.
"""

import numpy as np
import numpy.typing as npt

from bylot.numerics.jit import Floats, Ints, jit, jit_inline

SortOrder = npt.NDArray[np.int16] | npt.NDArray[np.int32]

SORT_BLOCK_VALUES = 2**16
"""Values sorted at a time, so that the intermediate arrays stay in the processor's cache."""


@jit_inline
def sum_max(values: Floats, draws: Ints) -> float:
    """Compute the reward of a panel, r(A) = sum_k max_{i in A} V[k, i]; 0 if it is empty.

    >>> sum_max(np.array([[0.9, 0.1, 0.4], [0.0, 0.7, 0.2]]), np.array([0, 2, 2]))
    1.1
    """
    total = 0.0
    if draws.size == 0:
        return total
    for k in range(values.shape[0]):
        best = values[k, np.uint64(draws[0])]  # unsigned: no check for negative indices
        for j in range(1, draws.size):
            best = max(best, values[k, np.uint64(draws[j])])
        total += best
    return total


def sort_experts(values: Floats) -> SortOrder:
    """Sort the experts of each row from best to worst, ties by index, as small integers.

    >>> sort_experts(np.array([[[0.1, 0.9, 0.1]]]))
    array([[[1, 0, 2]]], dtype=int16)
    """
    K = values.shape[-1]
    order: SortOrder = np.empty(values.shape, np.int16 if K <= 2**15 else np.int32)
    rows, sorted_rows = values.reshape(-1, K), order.reshape(-1, K)
    many = -(-SORT_BLOCK_VALUES // K)
    for start in range(0, len(rows), many):
        sorted_rows[start : start + many] = sort_rows(rows[start : start + many])
    return order


def sort_rows(rows: Floats) -> Ints:
    """Sort the indices of each row from best to worst, ties by index.

    The bits of a non-negative float grow with it, and the index fits into the lowest bits:
    sorting integers is far faster than argsort.
    """
    K = rows.shape[1]
    low = np.uint64((1 << (K - 1).bit_length()) - 1)
    keys = (rows + 0.0).view(np.uint64)  # a copy, without any -0.0
    np.invert(keys, out=keys)
    keys &= ~low
    keys |= np.arange(K, dtype=np.uint64)
    keys.sort(axis=1)
    keys &= low
    order = keys.view(np.int64)
    found = rows.ravel().take(order + K * np.arange(len(rows))[:, None])
    astray = (found[:, 1:] > found[:, :-1]).any(axis=1)  # nearly equal values may be out of order
    if astray.any():
        order[astray] = np.argsort(-rows[astray], axis=1, kind="stable")
    return order


@jit_inline
def integer_power(x: float, n: int) -> float:
    """Compute x^n by repeated products, x^0 = 1. Usual powers take no loop, and no other value.

    >>> integer_power(0.5, 3)
    0.125
    """
    if n == 3:
        return x * x * x
    if n == 4:
        return x * x * x * x
    if n == 5:
        return x * x * x * x * x
    product = 1.0
    for _ in range(n):
        product *= x
    return product


@jit
def expected_rewards(qs: Floats, values: Floats, order: SortOrder, M: int) -> Floats:
    """Compute Phi^{r_t}(q_t) of all rounds: qs (T, K), or (1, K) for all, values (T, N, K) -> (T,).

    >>> values = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    >>> expected_rewards(np.array([[0.5, 0.5], [0.0, 1.0]]), values, sort_experts(values), 2)
    array([0.75, 1.  ])
    """
    T, N, K = values.shape
    rewards = np.zeros(T)
    for t in range(T):
        q = qs[min(t, qs.shape[0] - 1)]
        for k in range(N):
            v, s = values[t, k], order[t, k]
            phi, R, below = 0.0, 0.0, 0.0
            for p in range(K - 1, -1, -1):
                i = np.uint32(s[p])  # unsigned: no check for negative indices
                phi += (v[i] - below) * (1.0 - integer_power(R, M))
                below = v[i]
                R += q[i]
            rewards[t] += phi
    return rewards


@jit
def reward_and_slope(
    q: Floats, values: Floats, order: SortOrder, M: int, weights: Floats
) -> tuple[float, Floats]:
    """Compute sum_t weights_t Phi^{r_t}(q) and its slope, the derivative of the formula in Q above:

    slope[s_i] = sum_t weights_t sum_k M sum_{l >= i} (v_(l) - v_(l+1)) R_l^(M-1),

    s_i being the i-th best expert of the row. The gradient of Lemma 1, the derivative of the
    M-homogeneous extension of Phi, exceeds it by M Phi_{M-1}(q) for every expert, which makes no
    difference within the simplex.

    >>> values = np.array([[[0.0, 1.0]]])
    >>> reward_and_slope(np.array([0.5, 0.5]), values, sort_experts(values), 2, np.ones(1))
    (0.75, array([0., 1.]))
    """
    T, N, K = values.shape
    phi, slope = 0.0, np.zeros(K)
    for t in range(T):
        for k in range(N):
            v, s = values[t, k], order[t, k]
            row, R, below, suffix = 0.0, 0.0, 0.0, 0.0
            for p in range(K - 1, -1, -1):
                i = np.uint32(s[p])
                step = weights[t] * (v[i] - below)
                others = integer_power(R, M - 1)
                row += step * (1.0 - others * R)
                suffix += step * others
                slope[i] += suffix
                below = v[i]
                R += q[i]
            phi += row
    return phi, M * slope


@jit
def reward_hessian(q: Floats, values: Floats, order: SortOrder, M: int, weights: Floats) -> Floats:
    """Compute the Hessian of the formula of `reward_and_slope`, negative semidefinite:

    H[s_i, s_j] = -sum_t weights_t sum_k M (M-1) sum_{l >= max(i, j)} (v_(l) - v_(l+1)) R_l^(M-2).

    >>> values = np.array([[[0.0, 1.0]]])
    >>> reward_hessian(np.array([0.5, 0.5]), values, sort_experts(values), 2, np.ones(1))
    array([[-0., -0.],
           [-0., -2.]])
    """
    T, N, K = values.shape
    half = np.zeros((K, K))
    s, suffixes = np.zeros(K, np.uint32), np.zeros(K)
    for t in range(T):
        for k in range(N):
            if M < 2:
                break
            v = values[t, k]
            R, below, suffix = 0.0, 0.0, 0.0
            for p in range(K - 1, -1, -1):
                i = s[p] = np.uint32(order[t, k, p])
                suffix += weights[t] * (v[i] - below) * integer_power(R, M - 2)
                suffixes[p] = suffix
                below = v[i]
                R += q[i]
            for p in range(K):
                if suffixes[p] == 0.0:  # the rest adds nothing
                    break
                row = half[s[p]]
                for j in range(p):
                    row[s[j]] += suffixes[p]
                row[s[p]] += 0.5 * suffixes[p]
    return -M * (M - 1.0) * (half + half.T)
