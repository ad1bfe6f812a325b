"""The posterior of a noisy-or model of what sets of experts miss.

E[1 - r | A] = exp(sum_{i in A} b_i) with b ~ N(beta, P), a belief per context. P is kept as a root,
P = T'T, which every observation changes by a rank-one product: P stays a covariance, and a
sample is beta + T'z without a factorisation. `noisy_or` chooses the panels.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.variates import Xoshiro, draw_normal
from bylot.policies.base import ProblemChange

PRIOR_MISS = 0.4  # of a full panel
PRIOR_VARIANCE = 1.0  # of each b_i; less would rule out experts that rarely fail
PRIOR_NOISE = 0.3  # phi: variance of 1 - r over its mean, about 1 for rewards of 0 or 1
MIN_BETA, MAX_BETA = -8.0, 0.3  # of beta
MIN_EXPECTED_MISS = 0.003  # of a set, in updates
MAX_BETA_STEP = 1.0  # of a member, by one observation
NOISE_RATE, NOISE_PRIOR_ROUNDS = 0.01, 10.0  # of the running means of phi
NOISE_MISSES = 0.05  # sum of expected misses over which phi is a mean, at least
MIN_NOISE, MAX_NOISE = 0.001, 1.0  # of phi; without a cap it explodes after a switch
DRIFT_RATE = 0.05  # of the drift, a running mean of standardised surprises
DRIFT_SKEW_SQUARED = 0.25  # squared skew from which the mean is over more rounds
MAX_SKEW_MISS = 0.9  # of a set, in the skew
MAX_SURPRISE = 3.0  # standardised, clipped
DRIFT_ALARM_SD = 4.0  # standard deviations of an alarm
MAX_WIDENING = 2.0  # factor of the variance of experts that did not raise the alarm
MIN_PIVOT = 1e-12  # variance that counts as 0


class Posterior(NamedTuple):
    """A row per context."""

    beta: Floats  # (X, K)
    root: Floats  # (X, K, K), T: the covariance of i and j is sum_k T_ki T_kj
    squares: Floats  # (X,) running mean of squared errors
    missed: Floats  # (X,) running mean of expected misses
    drift: Floats  # (X, K) running mean of surprises
    rewards: Ints  # (X,) how many

    def migrate(self, new: "Posterior", change: ProblemChange) -> None:
        """Beliefs about experts that stay, and their covariance, in contexts with rewards; a new
        expert is independent of all others.
        """
        used, (here, there) = np.flatnonzero(self.rewards), change.experts
        new.squares[used], new.missed[used] = self.squares[used], self.missed[used]
        new.rewards[used] = self.rewards[used]
        for was, now in ((self.beta, new.beta), (self.drift, new.drift)):
            now[np.ix_(used, there)] = was[np.ix_(used, here)]
        for x in used:
            if change.old.experts == change.new.experts:
                new.root[x] = self.root[x]
            else:
                P, known = PRIOR_VARIANCE * np.eye(new.beta.shape[1]), self.root[x][:, here]
                P[np.ix_(there, there)] = known.T @ known
                fill_cholesky_root(new.root[x], P)

    def is_valid(self, rule: Any) -> bool:
        variances = (self.root**2).sum(axis=1)
        return bool(
            ((self.beta >= MIN_BETA) & (self.beta <= MAX_BETA)).all()
            and ((variances > 0) & (variances < PRIOR_VARIANCE * 1.001)).all()
            and ((self.squares >= 0) & (self.squares <= 1)).all()
            and ((self.missed > 0) & (self.missed <= 1)).all()
            and (np.abs(self.drift) <= MAX_SURPRISE).all()
            and (self.rewards >= 0).all()
        )


def make_prior(contexts: int, size: int, members: int) -> Posterior:
    """The prior: panels of so many members miss 0.4 on average."""
    return Posterior(
        beta=np.full((contexts, size), math.log(PRIOR_MISS) / members),
        root=np.tile(math.sqrt(PRIOR_VARIANCE) * np.eye(size), (contexts, 1, 1)),
        squares=np.full(contexts, PRIOR_NOISE * PRIOR_MISS),
        missed=np.full(contexts, PRIOR_MISS),
        drift=np.zeros((contexts, size)),
        rewards=np.zeros(contexts, np.int64),
    )


@jit
def estimate_noise(belief: Posterior, x: int) -> float:
    """phi, the mean of (y - mu)^2 over the mean of mu; a mean of ratios rests on few rounds."""
    return float(min(max(belief.squares[x] / belief.missed[x], MIN_NOISE), MAX_NOISE))


@jit
def sample_posterior(
    beta: Floats, root: Floats, scale: float, stream: Xoshiro
) -> tuple[Floats, Xoshiro]:
    """b ~ N(beta, scale^2 P), and the stream after it."""
    b, s = beta.copy(), stream
    for k in range(b.size):
        z, s = draw_normal(s)
        add_scaled_row(b, root[k], scale * z)
    return b, s


@jit
def add_scaled_row(out: Floats, row: Floats, factor: float) -> None:
    """out += factor row: all operations on a root, as this is vectorised."""
    for i in range(out.size):
        out[i] += factor * row[i]


@jit
def update_posterior(belief: Posterior, x: int, members: Ints, reward: float) -> None:
    """Update by the reward of a set of different members.

    mu = exp(sum_A beta), v = 1_A' P 1_A, step = (y - mu) / (mu v + phi), with y = 1 - r:
    beta += P 1_A step,  P -= mu / (mu v + phi) P 1_A 1_A' P
    """
    beta, root = belief.beta[x], belief.root[x]
    phi = estimate_noise(belief, x)
    total = 0.0
    for i in members:
        total += beta[i]
    mu, y = math.exp(min(total, 0.0)), 1.0 - reward
    known = mu < MIN_EXPECTED_MISS and y < MIN_EXPECTED_MISS  # nothing new
    mu = max(mu, MIN_EXPECTED_MISS)
    w, Px = np.empty(beta.size), np.zeros(beta.size)
    v = fill_covariance_product(w, Px, root, members)
    den = mu * v + phi
    if not known:
        shift_beta(beta, Px, members, (y - mu) / den)
    # T -= s w (P 1_A)', as I - c w w' with c = mu / den is the square of I - s w w' with
    # s = (1 - sqrt(1 - c w.w)) / w.w, here without a difference of numbers that are almost equal.
    s = mu / den / (1.0 + math.sqrt(phi / den))
    for k in range(w.size):
        add_scaled_row(root[k], Px, -s * w[k])
    belief.rewards[x] += 1
    first = 1.0 / (belief.rewards[x] - 1 + NOISE_PRIOR_ROUNDS)
    rate = max(min(NOISE_RATE, NOISE_MISSES * mu / phi), first)
    belief.squares[x] += rate * ((y - mu) ** 2 - belief.squares[x])
    belief.missed[x] += rate * (mu - belief.missed[x])
    surprise = 0.0 if known else (y - mu) / math.sqrt(mu * den)
    surprise = min(max(surprise, -MAX_SURPRISE), MAX_SURPRISE)
    # The skew of surprises is that of a coin, y = 0 or 1 with mean mu, if phi = 1 - mu as with one,
    # and less in the way of sqrt(phi) where they are quieter.
    mean = min(mu, MAX_SKEW_MISS)
    skew = (1.0 - 2.0 * mean) / (1.0 - mean) * math.sqrt(phi / mean)
    track_drift(belief.drift[x], root, members, surprise, skew)


@jit
def fill_covariance_product(w: Floats, Px: Floats, root: Floats, members: Ints) -> float:
    """Write w = T 1_A and P 1_A = T'w; returns 1_A' P 1_A = w.w."""
    v = 0.0
    for k in range(w.size):
        w[k] = 0.0
        for i in members:
            w[k] += root[k, i]
        v += w[k] * w[k]
        add_scaled_row(Px, root[k], w[k])
    return v


@jit
def shift_beta(beta: Floats, Px: Floats, members: Ints, step: float) -> None:
    """beta += P 1_A step, shortened so that no member moves by more than 1."""
    top = 0.0
    for i in members:
        top = max(top, abs(Px[i] * step))
    if top > MAX_BETA_STEP:
        step *= MAX_BETA_STEP / top
    for i in range(beta.size):
        beta[i] = min(max(beta[i] + step * Px[i], MIN_BETA), MAX_BETA)


@jit
def track_drift(drift: Floats, root: Floats, members: Ints, surprise: float, skew: float) -> None:
    """Record a surprise for every member; after too many of one sign, reset the belief about that
    expert and widen all others.

    If surprises are skewed, a few large ones in a row are usual: the mean is over more rounds,
    and the threshold higher on that side.
    """
    fade = min(DRIFT_RATE, DRIFT_SKEW_SQUARED / max(skew * skew, DRIFT_SKEW_SQUARED))
    low = -compute_drift_threshold(fade, max(-skew, 0.0))
    high = compute_drift_threshold(fade, max(skew, 0.0))
    some, fired = False, np.zeros(drift.size, np.bool_)
    for i in members:
        drift[i] += fade * (surprise - drift[i])
        if not low <= drift[i] <= high:
            drift[i] = 0.0
            fired[i] = True
            some = True
    if some:
        widen_covariance(root, fired)


@jit
def compute_drift_threshold(fade: float, skew: float) -> float:
    """A running mean of surprises rarely exceeds sigma (z + s (z^2 - 1) / 6) with
    z = 4 and s the skew of the mean, by Cornish and Fisher.

    Of numbers with variance 1 the mean has sigma^2 = fade / 2 and, from the sums of the squares and
    cubes of its weights, s = skew fade^2 / 3 / sigma^3.
    """
    sigma = math.sqrt(fade / 2.0)
    s = skew * fade * fade / 3.0 / sigma**3
    return sigma * (DRIFT_ALARM_SD + s * (DRIFT_ALARM_SD * DRIFT_ALARM_SD - 1.0) / 6.0)


@jit
def widen_covariance(root: Floats, fired: Bools) -> None:
    """S P S with S_i^2 = prior variance / P_ii, at least 1, and at most 2 for experts not fired."""
    widths = np.zeros(fired.size)
    for k in range(fired.size):
        for i in range(fired.size):
            widths[i] += root[k, i] * root[k, i]
    for i in range(fired.size):
        factor = max(PRIOR_VARIANCE / max(widths[i], MIN_PIVOT), 1.0)
        widths[i] = math.sqrt(factor if fired[i] else min(factor, MAX_WIDENING))
    for k in range(fired.size):
        for i in range(fired.size):
            root[k, i] *= widths[i]


@jit
def fill_cholesky_root(root: Floats, P: Floats) -> None:
    """Write the upper triangle T with T'T = P (Cholesky) in O(K^3), row by row; P is used up."""
    K = P.shape[0]
    for k in range(K):
        pivot = math.sqrt(max(P[k, k], MIN_PIVOT))
        for i in range(K):
            root[k, i] = P[k, i] / pivot if i > k else 0.0
        root[k, k] = pivot
        for i in range(k + 1, K):
            add_scaled_row(P[i], root[k], -root[k, i])
