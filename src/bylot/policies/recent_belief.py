"""A second belief of noisy-or, which forgets: if it predicts better, skills have changed.

Alarms of `noisy_or_posterior` notice an expert whose panels miss more or less than expected. If all
skills change, panels in use may miss as much as before, and other experts that were bad may be good
now: what is believed about them must be forgotten without a reward that says so. The recent belief
has the form of the shared one, with a half-life of 300 rewards. Bets that it predicts rewards
better (`change_detection`) win nothing on average while the shared belief predicts means right; if
they have won enough, the policy believes the recent one.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.covariance_root import (
    compute_variances,
    fill_root_product,
    reduce_root,
    scale_root,
)
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.scratch_arrays import borrow_row
from bylot.policies import pooled_contexts as pooled
from bylot.policies.change_detection import (
    CHANGE_EVIDENCE,
    RECENT_BATCH,
    bet_on_recent,
    fit_skills,
    forget_skill,
)
from bylot.policies.noisy_or_posterior import (
    MIN_EXPECTED_MISS,
    Posterior,
    are_valid_skills,
    estimate_noise,
    migrate_root,
    shift_beta,
)
from bylot.policies.reward_scale import compute_miss
from bylot.problem.change import ProblemChange

MAX_RECENT_EXPERTS = 256  # of a pool with a recent belief, which costs as much as the shared one


class RecentBelief(NamedTuple):
    """What the last rewards alone say; without rows in a large pool, or if scores are known."""

    beta: Floats  # (K,)
    root: Floats  # (K, K), as that of the shared belief
    evidence: Floats  # one number: that it predicts better

    def migrate(self, new: "RecentBelief", change: ProblemChange) -> None:
        """Beliefs about experts that stay."""
        if self.beta.size > 0 and new.beta.size > 0:
            here, there = change.experts
            new.beta[there] = self.beta[here]
            migrate_root(self.root, new.root, change)
            new.evidence[:] = self.evidence

    def is_valid(self, rule: Any) -> bool:
        return are_valid_skills(self.beta, self.root) and 0 <= self.evidence[0] <= CHANGE_EVIDENCE


def make_recent_belief(belief: Posterior, used: bool) -> RecentBelief:
    """The prior of the shared belief."""
    size = belief.beta.size if used and belief.beta.size <= MAX_RECENT_EXPERTS else 0
    return RecentBelief(belief.beta[:size].copy(), belief.root[:size, :size].copy(), np.zeros(1))


@jit_apart
def restart_recent(recent: RecentBelief, belief: Posterior) -> None:
    """Start from the shared belief, which has started again."""
    recent.evidence[0] = 0.0
    for i in range(recent.beta.size):
        recent.beta[i] = belief.beta[i]
        for k in range(recent.beta.size):
            recent.root[i, k] = belief.root[i, k]


@jit_embedded
def compare_recent_belief(
    recent: RecentBelief, belief: Posterior, x: int, members: Ints, ones: Floats, reward: float
) -> bool:
    """Bet on a reward, before the shared belief learns from it, and learn from it; returns whether
    skills have changed. ones: as many as members
    """
    added = pooled.predict_deviation(belief.deviations, x, members)
    y, phi, total, expected = compute_miss(belief.scale, reward), estimate_noise(belief), 0.0, 0.0
    for i in members:
        expected += belief.beta[i]
        total += recent.beta[i]
    expected = max(math.exp(min(expected + added.mean, 0.0)), MIN_EXPECTED_MISS)
    mu = max(math.exp(min(total + added.mean, 0.0)), MIN_EXPECTED_MISS)
    work = np.empty((2, recent.beta.size))
    w, Px = borrow_row(work, 0), borrow_row(work, 1)
    own = fill_root_product(w, recent.root, members, ones)
    den = mu * (own + added.variance) + phi
    change = bet_on_recent(recent.evidence, belief.rewards[0], phi, expected, mu, mu * den, y)
    reduce_root(Px, recent.root, w, mu / den, (mu * added.variance + phi) / den)
    known = mu <= MIN_EXPECTED_MISS and y < MIN_EXPECTED_MISS
    shift_beta(recent.beta, Px, members, 0.0 if known else (y - mu) / den)
    if belief.rewards[0] % RECENT_BATCH == 0:
        forget_older(recent, belief)
    return change


@jit_apart
def forget_older(recent: RecentBelief, belief: Posterior) -> None:
    """Let the recent belief return to what experts are like, with a half-life."""
    known, widths = compute_variances(belief.root), compute_variances(recent.root)
    mean, most = fit_skills(belief.beta, known, belief.prior[0], belief.prior[1])
    for i in range(widths.size):
        widths[i] = math.sqrt(forget_skill(recent.beta, i, widths[i], mean, most))
    scale_root(recent.root, widths)


@jit_apart
def adopt_recent(recent: RecentBelief, belief: Posterior) -> None:
    """Believe what the recent belief says; what contexts add is forgotten."""
    recent.evidence[0] = 0.0
    for i in range(recent.beta.size):
        belief.beta[i], belief.drift[i] = recent.beta[i], 0.0
        for k in range(recent.beta.size):
            belief.root[i, k] = recent.root[i, k]
    pooled.restart_deviations(belief.deviations)
