"""What is believed of every expert: a noisy-or model of what a set misses, and how sure that is.

E[1 - r | A] = exp(sum_{i in A} b_i) with b ~ N(beta, P), a belief per context. P is kept as a root,
P = T'T, which every observation changes by one product of rank one: it cannot stop being a
covariance, and a draw is beta + T'z with no factor to find. Whom to ask is left to the policy.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Bools, Floats, Ints, compiled
from bylot.kernels.normal import normal
from bylot.kernels.stream import Stream

MISSED = 0.4  # of a full panel, as long as nothing is known
VARIANCE = 0.25  # of each b_i then
NOISE = 0.1  # phi then: the variance of 1 - r over its mean
LOW, HIGH = -8.0, 0.3  # of beta
LEAST = 0.003  # that a set is believed to miss, when something is learned from it
FURTHEST = 1.0  # that one observation moves a member's beta
MEMORY, EARLY = 0.01, 10.0  # of phi: its slowest rate, and the rounds that count as seen before
QUIET, LOUD = 0.001, 1.0  # of phi; without a cap it blows up after a switch
FADE = 0.1  # of the drift, which is a running mean of standardised surprises
SURPRISE = 3.0  # counts as no more than that
ALARM = 4.5 * math.sqrt(FADE / 2.0)  # about 4.5 standard deviations of such a mean
WIDER = 2.0  # times: what an alarm makes of everybody's variance, at most
TINY = 1e-12  # a variance that counts as none


class Posterior(NamedTuple):
    """A line per context."""

    beta: Floats  # (X, K)
    root: Floats  # (X, K, K), T: the covariance of i and j is sum_k T_ki T_kj
    noise: Floats  # (X,) phi
    drift: Floats  # (X, K) of the surprises that each expert was part of
    rewards: Ints  # (X,) how many


def prior(contexts: int, size: int, members: int) -> Posterior:
    """Nothing known: panels of so many members miss 0.4, give or take, whoever is in them."""
    return Posterior(
        beta=np.full((contexts, size), math.log(MISSED) / members),
        root=np.tile(math.sqrt(VARIANCE) * np.eye(size), (contexts, 1, 1)),
        noise=np.full(contexts, NOISE),
        drift=np.zeros((contexts, size)),
        rewards=np.zeros(contexts, np.int64),
    )


def sound(belief: Posterior) -> bool:
    """Could these be beliefs of ours? Asked of files."""
    variances = (belief.root**2).sum(axis=1)
    return bool(
        ((belief.beta >= LOW) & (belief.beta <= HIGH)).all()
        and ((variances > 0) & (variances < VARIANCE * 1.001)).all()
        and ((belief.noise >= QUIET) & (belief.noise <= LOUD)).all()
        and (np.abs(belief.drift) <= SURPRISE).all()
        and (belief.rewards >= 0).all()
    )


@compiled
def drawn_belief(beta: Floats, root: Floats, scale: float, stream: Stream) -> tuple[Floats, Stream]:
    """b ~ N(beta, scale^2 P), and the stream after it."""
    b, s = beta.copy(), stream
    for k in range(b.size):
        z, s = normal(s)
        add_row(b, root[k], scale * z)
    return b, s


@compiled
def add_row(out: Floats, row: Floats, factor: float) -> None:
    """out += factor row: all that is done with a root, as this runs as wide as the machine is."""
    for i in range(out.size):
        out[i] += factor * row[i]


@compiled
def observe(belief: Posterior, x: int, members: Ints, reward: float) -> None:
    """Learn that a set of different members has earned so much.

    mu = exp(sum_A beta), v = 1_A' P 1_A, step = (y - mu) / (mu v + phi), with y = 1 - r:
    beta += P 1_A step,  P -= mu / (mu v + phi) P 1_A 1_A' P
    """
    beta, root, phi = belief.beta[x], belief.root[x], belief.noise[x]
    total = 0.0
    for i in members:
        total += beta[i]
    mu, y = math.exp(min(total, 0.0)), 1.0 - reward
    sure = mu < LEAST
    mu = max(mu, LEAST)
    w, Px = np.empty(beta.size), np.zeros(beta.size)
    v = fill_spread(w, Px, root, members)
    den = mu * v + phi
    if not (sure and y < mu):  # else it says what was known
        shift(beta, Px, members, (y - mu) / den)
    shrink(root, w, Px, mu / den, math.sqrt(phi / den))
    belief.rewards[x] += 1
    rate = max(MEMORY, 1.0 / (belief.rewards[x] - 1 + EARLY))
    square = min((y - mu) ** 2 / mu, 10.0 * phi + 0.1)
    belief.noise[x] = min(max(phi + rate * (square - phi), QUIET), LOUD)
    surprise = (y - mu) / math.sqrt(mu * den)
    heed(belief.drift[x], root, members, min(max(surprise, -SURPRISE), SURPRISE))


@compiled
def fill_spread(w: Floats, Px: Floats, root: Floats, members: Ints) -> float:
    """Write w = T 1_A and P 1_A = T'w; returns 1_A' P 1_A = w.w."""
    v = 0.0
    for k in range(w.size):
        w[k] = 0.0
        for i in members:
            w[k] += root[k, i]
        v += w[k] * w[k]
        add_row(Px, root[k], w[k])
    return v


@compiled
def shift(beta: Floats, Px: Floats, members: Ints, step: float) -> None:
    """beta += P 1_A step, shortened so that no member moves by more than 1."""
    top = 0.0
    for i in members:
        top = max(top, abs(Px[i] * step))
    if top > FURTHEST:
        step *= FURTHEST / top
    for i in range(beta.size):
        beta[i] = min(max(beta[i] + step * Px[i], LOW), HIGH)


@compiled
def shrink(root: Floats, w: Floats, Px: Floats, c: float, kept: float) -> None:
    """P -= c P 1_A 1_A' P by way of its root: T -= c / (1 + sqrt(1 - c w.w)) w (P 1_A)'.

    I - c w w' is the square of I - s w w' with s = (1 - sqrt(1 - c w.w)) / w.w, which is the same
    without a difference of numbers that are almost equal; kept is that square root.
    """
    s = c / (1.0 + kept)
    for k in range(w.size):
        add_row(root[k], Px, -s * w[k])


@compiled
def heed(drift: Floats, root: Floats, members: Ints, surprise: float) -> None:
    """Note a surprise with everybody who was part of it; after too many of one sign, the belief
    about that expert begins anew, and is held less firmly of all.
    """
    some, fired = False, np.zeros(drift.size, np.bool_)
    for i in members:
        drift[i] += FADE * (surprise - drift[i])
        if abs(drift[i]) > ALARM:
            drift[i] = 0.0
            fired[i] = True
            some = True
    if some:
        loosen(root, fired)


@compiled
def loosen(root: Floats, fired: Bools) -> None:
    """P_ii = max(P_ii, VARIANCE) of those fired, then S P S with S_i^2 = VARIANCE / P_ii, clipped
    to [1, WIDER]; the root is found anew, in O(K^3), which few rounds come to.
    """
    K = fired.size
    P = np.zeros((K, K))
    for k in range(K):
        for i in range(K):
            add_row(P[i], root[k], root[k, i])
    widths = np.ones(K)
    for i in range(K):
        if fired[i]:
            P[i, i] = max(P[i, i], VARIANCE)
        widths[i] = math.sqrt(min(max(VARIANCE / max(P[i, i], TINY), 1.0), WIDER))
    for i in range(K):
        for j in range(K):
            P[i, j] *= widths[i] * widths[j]
    fill_root(root, P)


@compiled
def fill_root(root: Floats, P: Floats) -> None:
    """Write the upper triangle T with T'T = P (Cholesky), row by row; P is used up."""
    K = P.shape[0]
    for k in range(K):
        pivot = math.sqrt(max(P[k, k], TINY))
        for i in range(K):
            root[k, i] = P[k, i] / pivot if i > k else 0.0
        root[k, k] = pivot
        for i in range(k + 1, K):
            add_row(P[i], root[k], -root[k, i])
