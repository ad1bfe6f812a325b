"""What a panel misses: the model of `noisy-or`, learned from whatever is reported.

From rewards alone, a noisy-or model (`noisy_or_posterior`). With scores of members or winners,
classes of requests say who fails together (`request_classes`), and the noisy-or model learns by
which factor panels miss more or less than that, as their value need not be that of the best member.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from bylot.limits.request import Ticket
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.sampling import fill_first, select_first
from bylot.numerics.scratch_arrays import scratch_floats, scratch_ints
from bylot.numerics.variates import Xoshiro, draw_normal, next_word, open_uniform_from_word
from bylot.policies import noisy_or_posterior as posterior
from bylot.policies import pooled_contexts, recent_belief, request_classes
from bylot.policies.base import Feedback, FeedbackKind
from bylot.policies.noisy_or_posterior import Posterior as Posterior
from bylot.policies.recent_belief import RecentBelief
from bylot.policies.request_classes import RequestClasses
from bylot.policies.request_evidence import SCORED, UNKNOWN_SCORE, UNKNOWN_WINNER, RequestEvidence
from bylot.policies.reward_scale import RewardScale, compute_miss

SAMPLING_SCALE, WIDE_SAMPLING_SCALE = 0.5, 1.5  # of posterior samples
WIDE_SAMPLING_SHARE = 0.03  # share of wide samples
MAX_WIDE_POOL = 16.0  # K up to which these scales are kept, however noisy rewards are
POOL_POWER = 0.25  # of 16 / K, their factor in larger pools with noisy rewards
RESIDUAL_VARIANCE = 0.01  # of each b_i, where scores or winners are known as well
RESIDUAL_SCALE = 0.5  # factor of the scales above, in that case
MIN_SAMPLED_LOGIT, MAX_SAMPLED_LOGIT = -8.0, 0.5  # of a sampled b_i
FORGET_BATCH = 10  # rewards between two times that the covariance grows, with a half-life
REFERENCE_PANELS = 256  # random ones whose mean reward is predicted
MIN_PREDICTED_REWARDS = 100  # before which the prior would be all that is known
QUADRATURE_NODES = 9
PANEL, MEMBERS, WINNER = 0, 1, 2  # kinds of feedback
FEEDBACK_CODES: dict[FeedbackKind, int] = {"panel": PANEL, "members": MEMBERS, "winner": WINNER}


class PanelModel(NamedTuple):
    """Beliefs about what panels miss."""

    belief: Posterior
    requests: RequestClasses  # without rows if only rewards are reported
    recent: RecentBelief  # without rows if more is reported

    def is_valid(self, rule: Any) -> bool:
        return all(part.is_valid(rule) for part in self)


def make_panel_model(kind: int, contexts: int, size: int, members: int) -> PanelModel:
    """The prior; with scores or winners, the noisy-or model is of what these leave unexplained."""
    requests = request_classes.make_request_classes(contexts, size, members, kind != PANEL)
    belief = posterior.make_prior(contexts, size, members)
    if kind != PANEL:
        belief = posterior.make_prior(contexts, size, members, 0.0, RESIDUAL_VARIANCE)
        belief.deviations.spread[0] = pooled_contexts.MIN_SPREAD
    return PanelModel(belief, requests, recent_belief.make_recent_belief(belief, kind == PANEL))


@jit
def has_contexts(model: PanelModel) -> bool:
    """Is there more than one context?"""
    return pooled_contexts.are_pooled(model.belief.deviations)


@jit
def has_classes(model: PanelModel) -> bool:
    """Are there classes of requests? Without, one sample of e^b_i is all there is."""
    return request_classes.are_used(model.requests)


@jit
def compute_scale_factor(model: PanelModel) -> float:
    """The factor of the scales of samples: (16 / K)^(1/4) in a large pool with noisy rewards.

    Of many experts some look best in a sample by luck, and where rewards are noisy, it takes long
    to see that they are not. With less noise than `posterior.NOISY` it is between that and 1.
    """
    if request_classes.are_used(model.requests):
        return RESIDUAL_SCALE
    noisy = min(posterior.estimate_noise(model.belief) / posterior.NOISY, 1.0)
    least = (MAX_WIDE_POOL / max(model.belief.beta.size, MAX_WIDE_POOL)) ** POOL_POWER
    return float(1.0 - noisy * (1.0 - least))


@jit_embedded
def sample_models(
    model: PanelModel, contexts: Ints, members: int, stream: Xoshiro
) -> tuple[Floats, Xoshiro]:
    """(N, K) factors e^b_i from the posterior in each of N contexts.

    Most samples have half the scale of the posterior, which rewards then correct; wide ones keep
    the policy from staying with experts that were lucky first.
    """
    belief, N, K, s = model.belief, contexts.size, model.belief.beta.size, stream
    pooled, factor = has_contexts(model), compute_scale_factor(model)
    scales, z, more = np.empty(N), np.empty((N, K)), np.empty((N if pooled else 0, K))
    for n in range(N):
        bits, s = next_word(s)
        wide = open_uniform_from_word(bits) < WIDE_SAMPLING_SHARE
        scales[n] = factor * (WIDE_SAMPLING_SCALE if wide else SAMPLING_SCALE)
        for k in range(K):
            z[n, k], s = draw_normal(s)
        if pooled:
            for k in range(K):
                more[n, k], s = draw_normal(s)
    b = posterior.sample_posterior(belief, contexts, members, scales, z, more)
    for n in range(N):
        for i in range(K):
            b[n, i] = np.exp(min(max(b[n, i], MIN_SAMPLED_LOGIT), MAX_SAMPLED_LOGIT))
    return b, s


@jit_apart
def sample_misses(
    model: PanelModel, x: int, factors: Floats, stream: Xoshiro
) -> tuple[Floats, Floats, Xoshiro]:
    """Weights, (Z,), and misses, (Z, K): a panel misses sum_z weights_z prod_{i in A} misses_zi.

    factors: (K,) e^b_i
    """
    pooled = has_contexts(model)
    return request_classes.sample_classes(model.requests, x, factors, pooled, stream)


@jit_embedded
def learn_panel(model: PanelModel, kind: int, ticket: Ticket, feedback: Feedback) -> bool:
    """Update the model by a report; returns whether the scale of rewards changed."""
    if has_classes(model):
        return learn_scored_panel(model, kind, ticket, feedback)
    belief, recent, x, changed = model.belief, model.recent, ticket.context, False
    reward, draws = feedback.reward, ticket.draws
    members, ones = scratch_ints(draws.size), scratch_floats(draws.size)
    n = fill_first(members, draws, draws)
    members, ones = members[:n], ones[:n]
    ones[:] = 1.0
    if recent.beta.size > 0:
        changed = recent_belief.compare_recent_belief(recent, belief, x, members, ones, reward)
    moved = posterior.update_posterior(belief, x, members, members, ones, 0.0, reward)
    if moved:
        recent_belief.restart_recent(recent, belief)
    elif changed:
        recent_belief.adopt_recent(recent, belief)
    return moved


@jit_apart
def learn_scored_panel(model: PanelModel, kind: int, ticket: Ticket, feedback: Feedback) -> bool:
    """`learn_panel` with scores of members, or winners."""
    belief, requests, x = model.belief, model.requests, ticket.context
    members, pooled = select_first(ticket.draws, ticket.draws), has_contexts(model)
    log_miss = request_classes.predict_log_miss(requests, x, members, pooled)
    offset = request_classes.compute_linked_miss(requests, log_miss)
    ones, reward = np.ones(members.size), feedback.reward
    moved = posterior.update_posterior(belief, x, members, members, ones, offset, reward)
    if moved:
        request_classes.restart_classes(requests)
    evidence = make_evidence(kind, belief.scale, ticket.draws, members, feedback)
    noise = posterior.estimate_noise(belief)
    request_classes.learn_link(requests, log_miss, evidence.miss, noise)
    request_classes.learn_request(requests, x, members, evidence, pooled)
    return moved


@jit_apart
def forget_some(model: PanelModel, x: int, growth: float) -> None:
    """Let variances grow by this factor per reward, and counts fade."""
    belief, n = model.belief, model.belief.rewards[0]
    pooled_contexts.forget_deviations(belief.deviations, x, n, growth)
    if n % FORGET_BATCH == 0:
        posterior.grow_covariance(belief, growth**FORGET_BATCH)
        request_classes.fade_counts(model.requests, growth**-FORGET_BATCH)


@jit
def make_evidence(
    kind: int, scale: RewardScale, draws: Ints, members: Ints, feedback: Feedback
) -> RequestEvidence:
    """What was reported about different members, on the scale in use."""
    missed, winner = np.full(members.size, UNKNOWN_SCORE), SCORED
    if kind == MEMBERS:
        if feedback.scores.size > 0:
            scores = select_first(feedback.scores, draws)
            for j in range(members.size):
                if not math.isnan(scores[j]):
                    missed[j] = compute_miss(scale, scores[j])
    else:
        winner = UNKNOWN_WINNER
        for j in range(members.size):
            if members[j] == feedback.winner:
                winner = j
    return RequestEvidence(missed, compute_miss(scale, feedback.reward), winner)


@lru_cache(maxsize=64)
def draw_reference_panels(size: int, most: int) -> Ints:
    """(N, M) random panels in which every expert occurs about equally often, always the same."""
    each = size // most
    experts = np.tile(np.arange(size), (-(-REFERENCE_PANELS // each), 1))
    shuffled = np.random.default_rng(0).permuted(experts, axis=1)
    return shuffled[:, : each * most].reshape(-1, most)


def predict_random_panels(model: PanelModel, x: int, most: int) -> float | None:
    """Return the expected reward of random panels in context x, or None before
    `MIN_PREDICTED_REWARDS` rewards.

    It is a guess about experts that are seldom asked, and too low where experts fail together.
    """
    belief = model.belief
    if belief.rewards[0] < MIN_PREDICTED_REWARDS:
        return None
    panels = draw_reference_panels(belief.beta.size, most)
    mean = belief.beta + pooled_contexts.compute_mean_deviations(belief.deviations, x, most)
    if model.requests.misses.size:
        log_miss = request_classes.predict_log_misses(model.requests, x, panels)
        miss = np.exp(log_miss + mean[panels].sum(axis=1))
    else:  # E[min(e^b_i, 1)]: an expert adds no misses
        nodes, weights = hermegauss(QUADRATURE_NODES)
        b = mean + nodes[:, None] * np.sqrt((belief.root**2).sum(axis=0))
        factors = weights / weights.sum() @ np.exp(np.minimum(b, 0.0))
        miss = factors[panels].prod(axis=1)
    low, width = belief.scale.interval.tolist()
    return float(low + width * (1.0 - np.minimum(miss, 1.0).mean()))


def count_context_bytes(size: int) -> int:
    """Bytes of what is learned about one more context: of deviations, and of scores too."""
    classes = request_classes.CLASS_LEVELS.size
    return 8 * (2 * size + 3) + 8 * (2 * size + classes)
