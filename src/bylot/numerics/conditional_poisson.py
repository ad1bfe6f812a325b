"""The conditional Poisson distribution of sets of M experts: P(A) ~ prod_{i in A} e^{theta_i}.

Toss a coin for every expert, heads with probability p_i = x_i / (1 + x_i), x_i = e^{theta_i - tau},
and keep the tosses with exactly M heads: the result has this distribution, whatever tau. Sums over
all sets of M are then probabilities of counts of heads: row k, column m of the table is the
probability of m heads among the first k coins. Those are sums of positive numbers below one; tau is
chosen so that M heads are not rare (`fill_coins`), so nothing relevant underflows.

Mixtures of two distributions, and the choice of theta, are left to the policies.
"""

import math

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import RngKey
from bylot.numerics.scratch_arrays import no_bools
from bylot.numerics.set_selection import choose_top_m
from bylot.numerics.variates import next_word, open_stream, open_uniform_from_word

CERTAIN_LOGIT = 300.0  # theta - tau from which on a coin always lands heads
PRODUCT_LIMIT = 1e100  # larger products are stored as logarithms
MIN_DIVISOR = 1e-250  # smaller probabilities are not divided by


@jit
def restrict_logits(theta: Floats, available: Bools) -> Floats:
    """Set theta to -inf for experts that are not available; an empty mask stands for all.

    Sets of min(M, number available) experts then have the distribution among the available.

    >>> restrict_logits(np.array([0.5, 1.5]), np.array([True, False]))
    array([ 0.5, -inf])
    """
    if available.size == 0:
        return theta
    part = np.empty(theta.size)
    for i in range(theta.size):
        part[i] = theta[i] if available[i] else -np.inf
    return part


@jit
def nth_largest(values: Floats, n: int) -> float:
    """Return the n-th largest value, 1 <= n <= size.

    >>> nth_largest(np.array([0.1, 0.9, 0.5, 0.9]), 3)
    0.5
    """
    return float(values[choose_top_m(values, n, no_bools())[n - 1]])


@jit
def fill_coins(coins: Floats, theta: Floats, M: int) -> float:
    """Write the probability of heads p_i of each coin; returns sum_i log(1 + x_i) + M tau.

    From v, the M-th largest theta, tau is raised until the x below it sum to at most M. Then the
    probability of M heads is at least (2 e)^{-M}, and mostly about M^{-1/2}. p_i is zero if theta_i
    is 745 or more below v, or -inf (not available).
    """
    v = nth_largest(theta, M)
    others, above = -float(M), 0.0
    for i in range(theta.size):
        far = theta[i] - v
        if far > CERTAIN_LOGIT:
            above += far - CERTAIN_LOGIT
            far = CERTAIN_LOGIT
        coins[i] = math.exp(far)
        others += min(1.0, coins[i])
    scale = min(1.0, M / max(others, 1.0))
    log, product = above + M * (v - math.log(scale)), 1.0
    for i in range(theta.size):
        x = scale * coins[i]
        coins[i] = x / (1.0 + x)
        product *= 1.0 + x
        if product > PRODUCT_LIMIT:
            log += math.log(product)
            product = 1.0
    return log + math.log(product)


@jit
def fill_count_table(table: Floats, coins: Floats, theta: Floats, M: int) -> float:
    """Write the distribution into coins (K,) and table (K + 1, M + 1 or more); returns log Z.

    table[k, m] = P(m heads among the first k coins), and
    Z = e_M(e^theta) = sum over |A| = M of prod_{i in A} e^{theta_i} = table[K, M] e^log.

    >>> table, coins = np.empty((4, 3)), np.empty(3)
    >>> np.exp(fill_count_table(table, coins, np.log([1.0, 2.0, 3.0]), 2)).round(12).item()
    11.0
    """
    log = fill_coins(coins, theta, M)
    for m in range(M + 1):
        table[0, m] = 0.0
    table[0, 0] = 1.0
    for k in range(theta.size):
        heads = coins[k]
        tails = 1.0 - heads
        table[k + 1, 0] = tails * table[k, 0]
        for m in range(1, M + 1):
            table[k + 1, m] = tails * table[k, m] + heads * table[k, m - 1]
    return log + math.log(table[theta.size, M])


@jit
def fill_inclusion(pi: Floats, table: Floats, coins: Floats, M: int) -> None:
    """Write the probability pi_i that each expert is in the set, given the table.

    pi_i = p_i P(M - 1 other heads) / (p_i P(M - 1 other heads) + (1 - p_i) P(M other heads)): the
    others before i are in the table; rest[m] is the probability of M - m heads after i.
    """
    rest = np.zeros(M + 1)
    rest[M] = 1.0
    for i in range(coins.size - 1, -1, -1):
        heads = coins[i]
        tails, fewer, enough = 1.0 - heads, 0.0, 0.0
        for m in range(M):
            fewer += table[i, m] * rest[m + 1]
            enough += table[i, m] * rest[m]
            rest[m] = tails * rest[m] + heads * rest[m + 1]
        enough += table[i, M] * rest[M]
        rest[M] *= tails
        pi[i] = heads * fewer / (heads * fewer + tails * enough)


@jit
def find_last_member(table: Floats, k: int, m: int, u: float) -> int:
    """Find the last of m members among the first k, where u is uniform on (0, 1).

    All m are among the first j with probability e_m(x_1..x_j) / e_m(x_1..x_k), where
    e_m(x_1..x_j) = table[j, m] / table[j, 0]. An expert of probability zero does not change it, so
    rounding cannot select one.
    """
    level, low, high = u * table[k, m] / table[k, 0], m - 1, k
    while high - low > 1:
        middle = (low + high) // 2
        if table[middle, m] / table[middle, 0] <= level:
            low = middle
        else:
            high = middle
    return low


@jit
def draw_set(table: Floats, coins: Floats, M: int, rng: RngKey, stream: int) -> Ints:
    """Draw M different experts, in ascending order.

    From the last one down, by search. Where table[k, 0], the probability of no heads among the
    first k, is too small to divide by, coin by coin: with m still to be found among the first
    k + 1, expert k is a member with probability p_k table[k, m - 1] / table[k + 1, m].
    """
    members, m, k, s = np.empty(M, np.int64), M, coins.size, open_stream(rng, stream)
    while m > 0:
        bits, s = next_word(s)
        if table[k, 0] > MIN_DIVISOR:
            k = find_last_member(table, k, m, open_uniform_from_word(bits))
        else:
            k -= 1
            # m > k: all that are left are needed; the table may have underflowed there
            u = open_uniform_from_word(bits)
            if m <= k and u * table[k + 1, m] >= coins[k] * table[k, m - 1]:
                continue
        m -= 1
        members[m] = k
    return members


@jit
def log_fixed_set_probability(members: Ints, theta: Floats, log_z: float) -> float:
    """Return log P(A) = sum_{i in A} theta_i - log Z, with log Z from `fill_count_table`.

    >>> log_fixed_set_probability(np.array([0, 2]), np.array([1.0, 9.0, 2.0]), 10.0)
    -7.0
    """
    log = -log_z
    for i in members:
        log += theta[i]
    return log


@jit
def fill_softmax(pi: Floats, theta: Floats) -> float:
    """Write pi_i = e^{theta_i} / sum e^theta; returns log sum e^theta.

    >>> pi = np.empty(2)
    >>> round(fill_softmax(pi, np.array([800.0, 800.0])), 6), pi
    (800.693147, array([0.5, 0.5]))
    """
    top, mass = theta[0], 0.0
    for i in range(theta.size):
        top = max(top, theta[i])
    for i in range(theta.size):
        pi[i] = math.exp(theta[i] - top)
        mass += pi[i]
    for i in range(theta.size):
        pi[i] /= mass
    return float(top + math.log(mass))
