"""The conditional Poisson law: exactly M different experts, P(A) ~ prod_{i in A} e^{theta_i}.

Toss a coin for every expert, heads with chance p_i = x_i / (1 + x_i) where x_i = e^{theta_i - tau},
and keep the tosses with exactly M heads: that is the law, whatever tau. Sums over all sets of M are
then probabilities of counts of heads: the table's row k, column m, is the chance of m heads among
the first k coins. Those are sums of positive numbers below one, and with tau chosen so that M heads
are no rare event (`fill_coins`) nothing that matters underflows, however far the theta are apart.

Owns one law at a time; mixtures of two, and what theta should be, are left to the policies.
"""

import math

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import RngKey
from bylot.numerics.variates import next_word, open_stream, open_uniform_from_word

CERTAIN_LOGIT = 300.0  # theta this far above tau: a coin that lands heads, whatever is done with it
PRODUCT_LIMIT = 1e100  # a product is kept as a logarithm from here on
MIN_DIVISOR = 1e-250  # a chance this small is not divided by


@jit
def restrict_logits(theta: Floats, up: Bools) -> Floats:
    """theta of the experts that are up, -inf for the others; an empty mask stands for all.

    The law of min(M, number up) experts with these theta is the law among those up.

    >>> restrict_logits(np.array([0.5, 1.5]), np.array([True, False]))
    array([ 0.5, -inf])
    """
    if up.size == 0:
        return theta
    held = np.full(theta.size, -np.inf)
    for i in range(theta.size):
        if up[i]:
            held[i] = theta[i]
    return held


@jit
def nth_largest(values: Floats, n: int) -> float:
    """The n-th largest value, 1 <= n <= size.

    >>> nth_largest(np.array([0.1, 0.9, 0.5, 0.9]), 3)
    0.5
    """
    top = np.full(n, -np.inf)  # from the largest down
    for i in range(values.size):
        x, place = values[i], n - 1
        if x > top[place]:
            while place > 0 and x > top[place - 1]:
                top[place] = top[place - 1]
                place -= 1
            top[place] = x
    return float(top[n - 1])


@jit
def fill_coins(coins: Floats, theta: Floats, M: int) -> float:
    """Write the chance of heads p_i of each coin; returns sum_i log(1 + x_i) + M tau.

    From v, the M-th largest theta, tau is raised just so far that those below it have a sum of x of
    at most M. Then M heads have a chance of (2 e)^{-M} at least, and mostly of about M^{-1/2}. Who
    is 745 or more below v has a p_i of zero, as do those that are down (theta = -inf).
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
    """Write the law of M experts into coins (K,) and table (K + 1, M + 1 or more); returns log Z.

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
    """Write the chance of every expert to be in the set, given the table of its law.

    pi_i = p_i P(M - 1 other heads) / (p_i P(M - 1 other heads) + (1 - p_i) P(M other heads)): the
    others are those before i, in the table, and those after i, where rest[m] is the chance of M - m
    heads.
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
    """The last of m members among the first k, where u is uniform on (0, 1).

    They all are among the first j with chance e_m(x_1..x_j) / e_m(x_1..x_k), x_i the odds of the
    coins, and e_m(x_1..x_j) = table[j, m] / table[j, 0]. Whoever has no chance adds nothing to it,
    so that no rounding can pick them.
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
def draw_set(table: Floats, coins: Floats, M: int, chance: RngKey, number: int) -> Ints:
    """M different experts, in ascending order, from the stream of this number in this round.

    From the last one down, by search. Where heads are so sure that the chance of none among the
    first k, table[k, 0], is no number to divide by, coin by coin: with m still to be found among
    the first k + 1, expert k is one with chance p_k table[k, m - 1] / table[k + 1, m].
    """
    members, m, k, s = np.empty(M, np.int64), M, coins.size, open_stream(chance, number)
    while m > 0:
        bits, s = next_word(s)
        if table[k, 0] > MIN_DIVISOR:
            k = find_last_member(table, k, m, open_uniform_from_word(bits))
        else:
            k -= 1
            # m > k: all that are left are needed; said apart, as the table may have underflowed
            if (
                m <= k
                and open_uniform_from_word(bits) * table[k + 1, m] >= coins[k] * table[k, m - 1]
            ):
                continue
        m -= 1
        members[m] = k
    return members


@jit
def log_fixed_set_probability(members: Ints, theta: Floats, log_z: float) -> float:
    """log P(A) = sum_{i in A} theta_i - log Z, Z as `fill_count_table` returned it.

    >>> log_fixed_set_probability(np.array([0, 2]), np.array([1.0, 9.0, 2.0]), 10.0)
    -7.0
    """
    log = -log_z
    for i in members:
        log += theta[i]
    return log


@jit
def fill_fixed_set_score(score: Floats, members: Ints, pi: Floats) -> None:
    """Write the gradient of log P(A) in theta: 1[i in A] - pi_i."""
    for i in range(pi.size):
        score[i] = -pi[i]
    for i in members:
        score[i] += 1.0


@jit
def fill_softmax(pi: Floats, theta: Floats) -> float:
    """Write pi_i = e^{theta_i} / sum e^theta; returns log sum e^theta.

    >>> import numpy as np
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
