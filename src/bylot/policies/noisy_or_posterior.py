"""The posterior of a noisy-or model of what sets of experts miss.

E[1 - r | A, x] = exp(sum_{i in A} b_xi) in context x, with b_x = beta + what `pooled_contexts` adds
and beta ~ N(., P) shared by all contexts. P is kept as a triangle (`covariance_root`).
`noisy_or` chooses the panels.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.covariance_root import (
    MIN_PIVOT,
    add_root_samples,
    compute_variances,
    fill_cholesky_root,
    fill_root_product,
    raise_variance,
    reduce_root,
    scale_root,
)
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.scratch_arrays import borrow_row, scratch_ints
from bylot.policies import pooled_contexts as pooled
from bylot.policies.reward_scale import RewardScale, compute_miss, make_reward_scale, track_reward
from bylot.problem.change import ProblemChange

PRIOR_MISS = 0.4  # of a full panel
PRIOR_PANEL_MEAN = math.log(PRIOR_MISS)
PRIOR_PANEL_VARIANCE = 1.0  # of the log of what a full panel misses, in equal parts of its members
PRIOR_NOISE = 0.3  # phi: variance of 1 - r over its mean, about 1 for rewards of 0 or 1
MIN_BETA, MAX_BETA = -8.0, 1.0  # of beta; a lower cap keeps sums from being corrected
MIN_EXPECTED_MISS = 0.003  # of a set, in updates
MAX_BETA_STEP = 1.0  # of a member, by one observation
NOISE_RATE, NOISE_PRIOR_ROUNDS = 0.01, 10.0  # of the running means of phi
NOISE_MISSES = 0.05  # sum of expected misses over which phi is a mean, at least
MIN_NOISE, MAX_NOISE = 0.001, 1.0  # of phi; without a cap it explodes after a switch
QUIET_DRIFT_RATE, NOISY_DRIFT_RATE = 0.05, 0.02  # of the drift, a running mean of surprises
QUIET_ALARM_SD, NOISY_ALARM_SD = 4.0, 6.0  # standard deviations of an alarm
NOISY = 0.5  # phi from which rewards are noisy; less is between
DRIFT_SKEW_SQUARED = 0.25  # squared skew from which the mean is over more rounds
MAX_SKEW_MISS = 0.9  # of a set, in the skew
MAX_SURPRISE = 3.0  # standardised, clipped
MAX_WIDENING = 2.0  # factor of the variance of experts that did not raise the alarm


class Posterior(NamedTuple):
    """The belief that contexts share, and what each of them adds."""

    beta: Floats  # (K,)
    root: Floats  # (K, K), T: P = T'T
    prior: Floats  # (2,) mean and variance of each b_i
    noise: Floats  # (2,) running means of squared errors and of expected misses
    drift: Floats  # (K,) running mean of surprises
    rewards: Ints  # one number: how many
    deviations: pooled.ContextDeviations
    scale: RewardScale

    def migrate(self, new: "Posterior", change: ProblemChange) -> None:
        """Beliefs about experts that stay, and their covariance; a new expert is independent."""
        here, there = change.experts
        for was, now in ((self.beta, new.beta), (self.drift, new.drift)):
            now[there] = was[here]
        new.noise[:], new.rewards[:] = self.noise, self.rewards
        migrate_root(self.root, new.root, change)
        change.copy_state(self.deviations, new.deviations)
        change.copy_state(self.scale, new.scale)

    def is_valid(self, rule: Any) -> bool:
        variances, noise = (self.root**2).sum(axis=0), self.noise
        return bool(
            are_valid_skills(self.beta, self.root)
            and (variances < max(self.prior[1], PRIOR_PANEL_VARIANCE) * 1.001).all()
            and np.isfinite(self.prior).all()
            and self.prior[1] > 0
            and 0 <= noise[0] <= 1
            and 0 < noise[1] <= 1
            and (np.abs(self.drift) <= MAX_SURPRISE).all()
            and self.rewards[0] >= 0
            and self.deviations.is_valid(rule)
            and self.scale.is_valid(rule)
        )


def are_valid_skills(beta: Floats, root: Floats) -> bool:
    """Is this a mean and the triangle of a covariance?"""
    return bool(
        ((beta >= MIN_BETA) & (beta <= MAX_BETA)).all()
        and (np.diag(root) > 0).all()
        and np.isfinite(root).all()
        and (np.tril(root, -1) == 0).all()
    )


def migrate_root(root: Floats, new: Floats, change: ProblemChange) -> None:
    """Keep the covariance of experts that stay; others keep the variance of `new`."""
    here, there = change.experts
    if change.old.experts == change.new.experts:
        new[:] = root
    else:
        P, known = new.T @ new, root[:, here]
        P[np.ix_(there, there)] = known.T @ known
        fill_cholesky_root(new, P)


def make_prior(
    contexts: int,
    size: int,
    members: int,
    panel_mean: float = PRIOR_PANEL_MEAN,
    variance: float | None = None,
) -> Posterior:
    """The prior: the log of what a panel of so many members misses has this mean."""
    variance = PRIOR_PANEL_VARIANCE / members if variance is None else variance
    prior = np.array([panel_mean / members, variance])
    return Posterior(
        beta=np.full(size, prior[0]),
        root=math.sqrt(variance) * np.eye(size),
        prior=prior,
        noise=np.array([PRIOR_NOISE * PRIOR_MISS, PRIOR_MISS]),
        drift=np.zeros(size),
        rewards=np.zeros(1, np.int64),
        deviations=pooled.make_deviations(contexts, size),
        scale=make_reward_scale(),
    )


@jit_apart
def restart_posterior(belief: Posterior) -> None:
    """Forget all but the scale of rewards."""
    beta, root, drift = belief.beta, belief.root, belief.drift
    for i in range(beta.size):
        beta[i], drift[i] = belief.prior[0], 0.0
        for k in range(beta.size):
            root[i, k] = math.sqrt(belief.prior[1]) if i == k else 0.0
    belief.noise[0], belief.noise[1], belief.rewards[0] = PRIOR_NOISE * PRIOR_MISS, PRIOR_MISS, 0
    pooled.restart_deviations(belief.deviations)


@jit
def estimate_noise(belief: Posterior) -> float:
    """phi, the mean of (y - mu)^2 over the mean of mu; a mean of ratios rests on few rounds."""
    return float(min(max(belief.noise[0] / belief.noise[1], MIN_NOISE), MAX_NOISE))


@jit_embedded
def sample_posterior(
    belief: Posterior, contexts: Ints, members: int, scales: Floats, z: Floats, more: Floats
) -> Floats:
    """(N, K) b ~ N(beta, scale^2 P), and what a context adds, for N contexts and scales.

    z, more: (N, K) standard normal numbers for both parts; they are used up
    """
    b = np.empty((scales.size, belief.beta.size))
    for n in range(scales.size):
        for i in range(b.shape[1]):
            b[n, i] = belief.beta[i]
            z[n, i] *= scales[n]
    add_root_samples(b, belief.root, z)
    if pooled.are_pooled(belief.deviations):
        for n in range(scales.size):
            scale = pooled.DEVIATION_SCALE * scales[n]
            x = contexts[n]
            pooled.add_sampled_deviations(b[n], belief.deviations, x, members, scale, more[n])
    return b


@jit_embedded
def update_posterior(
    belief: Posterior,
    x: int,
    members: Ints,
    places: Ints,
    values: Floats,
    offset: float,
    reward: float,
) -> bool:
    """Update by the reward of different members; returns whether the scale of rewards changed.

    places, values: the vector u with log mu = u.beta + ..., today 1 at every member
    offset: what is known about log mu otherwise

    mu = exp(offset + u.beta + sum_A d + a), v = u'Pu + ..., y = 1 - r,
    step = (y - mu) / (mu v + phi):
    beta += P u step,  P -= mu / (mu v + phi) P u u'P
    """
    moved = track_reward(belief.scale, reward)
    if moved:
        restart_posterior(belief)
    beta, y, phi = belief.beta, compute_miss(belief.scale, reward), estimate_noise(belief)
    added = pooled.predict_deviation(belief.deviations, x, members)
    total, work = offset + added.mean, np.empty((2, beta.size))
    w, Px = borrow_row(work, 0), borrow_row(work, 1)
    for n in range(places.size):
        total += values[n] * beta[places[n]]
    mu = math.exp(min(total, 0.0))
    known = mu < MIN_EXPECTED_MISS and y < MIN_EXPECTED_MISS
    mu = max(mu, MIN_EXPECTED_MISS)
    own = fill_root_product(w, belief.root, places, values)
    den = mu * (own + added.variance) + phi
    reduce_root(Px, belief.root, w, mu / den, (mu * added.variance + phi) / den)
    step = 0.0 if known else (y - mu) / den
    shorter = shift_beta(beta, Px, members, step)
    belief.rewards[0] += 1
    if pooled.are_pooled(belief.deviations):
        pooled.update_deviations(belief.deviations, x, members, shorter, mu / den)
        pooled.learn_spread(belief.deviations, belief.rewards[0], added.lean, step, mu / den)
    track_noise(belief, mu, y, phi)
    surprise = 0.0 if known else (y - mu) / math.sqrt(mu * den)
    track_drift(belief, members, surprise, mu, phi)
    return moved


@jit
def shift_beta(beta: Floats, Px: Floats, members: Ints, step: float) -> float:
    """beta += P u step, shortened so that no member moves by more than 1; returns the step."""
    top = 0.0
    for i in members:
        top = max(top, abs(Px[i] * step))
    if top > MAX_BETA_STEP:
        step *= MAX_BETA_STEP / top
    for i in range(beta.size):
        beta[i] = min(max(beta[i] + step * Px[i], MIN_BETA), MAX_BETA)
    return step


@jit
def track_noise(belief: Posterior, mu: float, y: float, phi: float) -> None:
    """Update the running means that phi is computed from."""
    first = 1.0 / (belief.rewards[0] - 1 + NOISE_PRIOR_ROUNDS)
    rate = max(min(NOISE_RATE, NOISE_MISSES * mu / phi), first)
    belief.noise[0] += rate * ((y - mu) ** 2 - belief.noise[0])
    belief.noise[1] += rate * (mu - belief.noise[1])


@jit
def track_drift(belief: Posterior, members: Ints, surprise: float, mu: float, phi: float) -> None:
    """Record a surprise for every member; after too many of one sign, reset the belief about that
    expert and widen all others.

    If surprises are skewed, a few large ones in a row are usual: the mean is over more rounds, and
    the threshold higher on that side. If rewards are noisy, a wrong model surprises as much as a
    change: the mean is over more rounds, and the threshold higher. The skew is proportional to
    sqrt(phi); with phi = 1 - mu it is that of y = 0 or 1 with mean mu.

    surprise: standardised, 0 if a set that misses nothing did so again
    mu:       what was expected to be missed
    """
    drift = belief.drift
    surprise = min(max(surprise, -MAX_SURPRISE), MAX_SURPRISE)
    mean, noisy = min(mu, MAX_SKEW_MISS), min(phi / NOISY, 1.0)
    skew = (1.0 - 2.0 * mean) / (1.0 - mean) * math.sqrt(phi / mean)
    fade = QUIET_DRIFT_RATE + noisy * (NOISY_DRIFT_RATE - QUIET_DRIFT_RATE)
    fade = min(fade, DRIFT_SKEW_SQUARED / max(skew * skew, DRIFT_SKEW_SQUARED))
    sd = QUIET_ALARM_SD + noisy * (NOISY_ALARM_SD - QUIET_ALARM_SD)
    low = -compute_drift_threshold(fade, max(-skew, 0.0), sd)
    high = compute_drift_threshold(fade, max(skew, 0.0), sd)
    alarms, n = scratch_ints(members.size), 0
    for i in members:
        drift[i] += fade * (surprise - drift[i])
        if not low <= drift[i] <= high:
            drift[i] = 0.0
            alarms[n] = i
            n += 1
    if n > 0:
        fired = np.zeros(drift.size, np.bool_)
        for place in range(n):
            fired[alarms[place]] = True
        widen_covariance(belief, fired)


@jit
def compute_drift_threshold(fade: float, skew: float, sd: float) -> float:
    """A running mean of surprises rarely exceeds sigma (z + s (z^2 - 1) / 6) with
    z = sd and s the skew of the mean, by Cornish and Fisher.

    Of numbers with variance 1 the mean has sigma^2 = fade / 2 and, from the sums of the squares and
    cubes of its weights, s = skew fade^2 / 3 / sigma^3.
    """
    sigma = math.sqrt(fade / 2.0)
    s = skew * fade * fade / 3.0 / sigma**3
    return sigma * (sd + s * (sd * sd - 1.0) / 6.0)


@jit_apart
def widen_covariance(belief: Posterior, fired: Bools) -> None:
    """Double all variances, at most to the prior's; fired experts get independent noise up to it.

    To scale these too would keep their correlations: what is known about sums of members would
    stay certain, and their differences, which are not, would grow without bound.
    """
    grow_covariance(belief, MAX_WIDENING)
    for i in range(fired.size):
        if fired[i]:
            raise_variance(belief.root, i, belief.prior[1])


@jit_apart
def grow_covariance(belief: Posterior, growth: float) -> None:
    """Let all variances grow by this factor, at most to those of the prior."""
    widths = compute_variances(belief.root)
    for i in range(widths.size):
        most = max(belief.prior[1] / max(widths[i], MIN_PIVOT), 1.0)
        widths[i] = math.sqrt(min(growth, most))
    scale_root(belief.root, widths)
