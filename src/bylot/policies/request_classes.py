"""Who fails together: classes of requests, learned from scores of members or from who won.

A request of context x is of class z with probability pi_xz, and given its class the members of a
panel miss independently: P(all of A miss) = sum_z pi_xz prod_{i in A} p_ixz. What members miss
together they miss in the same classes. Classes are never observed. They are fitted by expected
counts of misses and hits (incremental EM: Neal and Hinton, "A view of the EM algorithm", 1998), in
which some recent requests are assigned again after every report. A score between 0 and 1 is a hit
for demands up to it, so the best member of a panel misses what all miss. `noisy_or` chooses the
panels.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.variates import Xoshiro, draw_normal, next_word, open_uniform_from_word
from bylot.policies.noisy_or_posterior import compute_drift_threshold
from bylot.policies.request_evidence import (
    SCORED,
    UNKNOWN_SCORE,
    Assignment,
    RequestEvidence,
    infer_classes,
)
from bylot.problem.change import ProblemChange

CLASS_LEVELS = np.array([-1.0, -1.0 / 3.0, 1.0 / 3.0, 1.0])  # log odds of a miss, easy to hard
RECENT_REQUESTS = 256  # that may be assigned again
REVISITS = 3  # requests that are assigned again after a report
PRIOR_COUNT = 2.0  # misses and hits of an expert in a class, before reports
OVERALL_PRIOR_COUNT = 2.0  # of an expert in all classes
CLASS_PRIOR_COUNT = 1.0  # requests of each class
CONTEXT_PRIOR_COUNT = 10.0  # requests of a context, of classes as in all contexts
PRIOR_OFFSET_VARIANCE = 0.1  # of the log odds of a miss that a context adds
MIN_INFORMATION = 0.01  # of a score, about an offset
MAX_MISS = 1.0 - 1e-9  # probability
CLASS_SCALE, OFFSET_SCALE = 0.5, 0.25  # of samples, relative to the standard deviation
WIDE_SHARE, WIDE_BOLDNESS = 0.03, 2.0  # of wide samples, relative to the scales above
DRIFT_RATE, DRIFT_ALARM_SD = 0.02, 6.0  # of the running mean of surprises
MAX_SURPRISE = 3.0  # standardised, clipped
COUNT_AFTER_ALARM = 10.0  # at most, of an expert that raised an alarm
KEPT_AFTER_ALARM = 0.25  # share of the counts of all others
PRIOR_LINK_VARIANCES = np.array([0.25, 0.01])  # of c and g
MIN_LINK_SLOPE, MAX_LINK_SLOPE = 0.1, 2.0  # g
TYPICAL_RATE = 0.01  # of the running mean of log P(all miss)
MIN_EXPECTED_MISS = 0.003  # of a panel, in updates of the link


class RecentRequests(NamedTuple):
    """A ring of reports, with the classes that they are assigned to in part."""

    members: Ints  # (B, M), -1 after the last one
    missed: Floats  # (B, M) 1 - score, or UNKNOWN_SCORE
    miss: Floats  # (B,) 1 - reward
    winner: Ints  # (B,) place in the panel, or SCORED, or UNKNOWN_WINNER
    context: Ints  # (B,)
    share: Floats  # (B, Z) probability of each class, times the share that has not faded
    counted: Floats  # (B, M, Z) expected misses that were added to the counts
    counts: Ints  # (2,) reports since it was emptied, and the slot that was assigned again last


class RequestClasses(NamedTuple):
    """Expected counts; there are no rows of experts and contexts if only rewards are reported."""

    misses: Floats  # (K, Z) of each expert in requests of each class
    hits: Floats  # (K, Z)
    odds: Floats  # (K, Z) of a miss, by these counts and the prior
    spread: Floats  # (K, Z) standard deviation of the log of the odds
    requests: Floats  # (X, Z)
    total: Floats  # (Z,) requests in all contexts
    offset: Floats  # (X, K) added to the log odds in a context, if there are several
    offset_variance: Floats  # (X, K)
    drift: Floats  # (K,) running mean of surprises
    link: Floats  # (2,) c, g: log of what a panel misses = c + g log P(all miss)
    link_covariance: Floats  # (2, 2)
    typical: Floats  # one number: running mean of log P(all miss)
    recent: RecentRequests

    def migrate(self, new: "RequestClasses", change: ProblemChange) -> None:
        """Counts of experts that stay, in visited contexts. Recent requests are not assigned again
        if the pool has changed.
        """
        if not (self.misses.size and new.misses.size):
            return
        here, there = change.experts
        for was, now in zip(self[:4], new[:4], strict=True):
            now[there] = was[here]
        new.drift[there] = self.drift[here]
        new.requests[change.used] = self.requests[change.used]
        for was, now in zip(self[6:8], new[6:8], strict=True):
            now[np.ix_(change.used, there)] = was[np.ix_(change.used, here)]
        for was, now in zip((self.total, *self[9:12]), (new.total, *new[9:12]), strict=True):
            now[:] = was
        same = change.old.experts == change.new.experts
        if same and self.recent.members.shape == new.recent.members.shape:
            for recent, copy in zip(self.recent, new.recent, strict=True):
                copy[:] = recent

    def is_valid(self, rule: Any) -> bool:
        ring, K, variances = self.recent, self.misses.shape[0], self.offset_variance
        return bool(
            all((part >= 0).all() for part in (self.misses, self.hits, self.requests))
            and all(np.isfinite(part).all() for part in self[:12])
            and all((part > 0).all() for part in (self.odds, self.spread))
            and ((variances > 0) & (variances <= PRIOR_OFFSET_VARIANCE)).all()
            and (np.abs(self.drift) <= MAX_SURPRISE).all()
            and ((ring.members >= -1) & (ring.members < K)).all()
            and ((ring.winner >= SCORED) & (ring.winner < max(ring.members.shape[1], 1))).all()
            and ((ring.context >= 0) & (ring.context < max(len(self.requests), 1))).all()
            and ((ring.missed >= UNKNOWN_SCORE) & (ring.missed <= 1)).all()
            and all(
                ((part > -1e-6) & (part < 1 + 1e-6)).all() for part in (ring.share, ring.counted)
            )
            and ((ring.miss >= 0) & (ring.miss <= 1)).all()
            and (ring.counts >= 0).all()
        )


def make_request_classes(contexts: int, size: int, draws: int, used: bool) -> RequestClasses:
    """No counts; if the model is not used, arrays without rows."""
    Z, B = CLASS_LEVELS.size, RECENT_REQUESTS if used else 0
    X, K = (contexts, size) if used else (0, 0)
    made = RequestClasses(
        misses=np.zeros((K, Z)),
        hits=np.zeros((K, Z)),
        odds=np.ones((K, Z)),
        spread=np.ones((K, Z)),
        requests=np.zeros((X, Z)),
        total=np.zeros(Z),
        offset=np.zeros((X, K)),
        offset_variance=np.full((X, K), PRIOR_OFFSET_VARIANCE),
        drift=np.zeros(K),
        link=np.array([0.0, 1.0]),
        link_covariance=np.diag(PRIOR_LINK_VARIANCES),
        typical=np.zeros(1),
        recent=RecentRequests(
            members=np.full((B, draws), -1),
            missed=np.full((B, draws), UNKNOWN_SCORE),
            miss=np.zeros(B),
            winner=np.full(B, SCORED),
            context=np.zeros(B, np.int64),
            share=np.zeros((B, Z)),
            counted=np.zeros((B, draws, Z)),
            counts=np.zeros(2, np.int64),
        ),
    )
    for i in range(K):
        update_odds(made, i)
    return made


@jit
def are_used(classes: RequestClasses) -> bool:
    """Are scores or winners reported?"""
    return bool(classes.misses.shape[0] > 0)


@jit
def update_odds(classes: RequestClasses, i: int) -> None:
    """Odds of a miss of an expert in each class: (misses + c m) / (hits + c (1 - m)).

    The prior m of a class is the expert's share of misses in all classes, moved by the level of the
    class: until it is known in which classes an expert misses, it misses less in the easy ones and
    more in the hard ones.
    """
    misses, hits = 0.5 * OVERALL_PRIOR_COUNT, 0.5 * OVERALL_PRIOR_COUNT
    for z in range(CLASS_LEVELS.size):
        misses += classes.misses[i, z]
        hits += classes.hits[i, z]
    for z in range(CLASS_LEVELS.size):
        prior = misses / (misses + hits * math.exp(-CLASS_LEVELS[z]))
        missed = classes.misses[i, z] + PRIOR_COUNT * prior
        hit = classes.hits[i, z] + PRIOR_COUNT * (1.0 - prior)
        classes.odds[i, z] = missed / hit
        classes.spread[i, z] = math.sqrt(1.0 / missed + 1.0 / hit)


@jit
def fill_class_probabilities(pi: Floats, classes: RequestClasses, x: int) -> None:
    """pi_xz: the share of each class in a context, shrunk towards that in all contexts."""
    total, own = 0.0, CONTEXT_PRIOR_COUNT
    for z in range(pi.size):
        pi[z] = CLASS_PRIOR_COUNT + classes.total[z]
        total += pi[z]
        own += classes.requests[x, z]
    for z in range(pi.size):
        pi[z] = (classes.requests[x, z] + CONTEXT_PRIOR_COUNT * pi[z] / total) / own


@jit
def fill_member_misses(
    p: Floats, classes: RequestClasses, x: int, members: Ints, pooled: bool
) -> None:
    """p_zj: the probability that each member misses a request of each class."""
    for j in range(members.size):
        i = members[j]
        factor = math.exp(classes.offset[x, i]) if pooled else 1.0
        for z in range(p.shape[0]):
            odds = classes.odds[i, z] * factor
            p[z, j] = min(odds / (1.0 + odds), MAX_MISS)


@jit
def predict_log_miss(classes: RequestClasses, x: int, members: Ints, pooled: bool) -> float:
    """The log of the probability that all members miss."""
    Z = CLASS_LEVELS.size
    pi, p, total = np.empty(Z), np.empty((Z, members.size)), 0.0
    fill_class_probabilities(pi, classes, x)
    fill_member_misses(p, classes, x, members, pooled)
    for z in range(Z):
        for j in range(members.size):
            pi[z] *= p[z, j]
        total += pi[z]
    return math.log(total)


def predict_log_misses(classes: RequestClasses, x: int, panels: Ints) -> Floats:
    """(N,) the log of what each of N panels is expected to miss."""
    total = CLASS_PRIOR_COUNT + classes.total
    requests = classes.requests[x] + CONTEXT_PRIOR_COUNT * total / total.sum()
    odds = classes.odds * np.exp(classes.offset[x])[:, None]
    p = np.minimum(odds / (1.0 + odds), MAX_MISS)
    log_miss = np.log(p[panels].prod(axis=1) @ (requests / requests.sum()))
    return np.asarray(classes.link[0] + classes.link[1] * log_miss)


@jit
def sample_classes(
    classes: RequestClasses, x: int, factors: Floats, pooled: bool, stream: Xoshiro
) -> tuple[Floats, Floats, Xoshiro]:
    """The weight of each class, and sampled probabilities of a miss in it times factors, (Z, K).

    Weights are the probabilities of the classes times the slope of the link at usual panels: what a
    panel misses is then in units of rewards, as prices are.
    """
    Z, K = CLASS_LEVELS.size, factors.size
    weights, miss, slope = np.empty(Z), np.empty((Z, K)), compute_link_slope(classes)
    fill_class_probabilities(weights, classes, x)
    for z in range(Z):
        weights[z] *= slope
    bits, s = next_word(stream)
    bold = WIDE_BOLDNESS if open_uniform_from_word(bits) < WIDE_SHARE else 1.0
    for i in range(K):
        shift = 1.0
        if pooled:
            more, s = draw_normal(s)
            sd = bold * OFFSET_SCALE * math.sqrt(classes.offset_variance[x, i])
            shift = math.exp(classes.offset[x, i] + sd * more)
        for z in range(Z):
            more, s = draw_normal(s)
            odds = classes.odds[i, z] * shift
            odds *= math.exp(bold * CLASS_SCALE * classes.spread[i, z] * more)
            miss[z, i] = factors[i] * odds / (1.0 + odds)
    return weights, miss, s


@jit
def assign_request(classes: RequestClasses, slot: int, pooled: bool, first: bool) -> None:
    """Compute the classes of a request from what is known now, and count it by them.

    The first time, its context learns too, and surprises are recorded.
    """
    ring, Z, n = classes.recent, CLASS_LEVELS.size, 0
    while n < ring.members.shape[1] and ring.members[slot, n] >= 0:
        n += 1
    x, members = ring.context[slot], ring.members[slot, :n]
    pi, p = np.empty(Z), np.empty((Z, n))
    fill_class_probabilities(pi, classes, x)
    fill_member_misses(p, classes, x, members, pooled)
    found = infer_classes(
        pi, p, RequestEvidence(ring.missed[slot, :n], ring.miss[slot], ring.winner[slot])
    )
    weight = 1.0 if first else 0.0
    for z in range(Z):
        weight += ring.share[slot, z]
    for z in range(Z):
        more = weight * found.share[z] - ring.share[slot, z]
        add_to_count(classes.requests[x], z, more)
        add_to_count(classes.total, z, more)
        ring.share[slot, z] += more
        for j in range(n):
            if found.known[j]:
                missed = weight * found.counted[j, z] - ring.counted[slot, j, z]
                add_to_count(classes.misses[members[j]], z, missed)
                add_to_count(classes.hits[members[j]], z, more - missed)
                ring.counted[slot, j, z] += missed
    for j in range(n):
        update_odds(classes, members[j])
    if first:
        learn_members(classes, x, members, pi, p, found, pooled)


@jit
def add_to_count(counts: Floats, z: int, change: float) -> None:
    """Change an expected count, which rounding does not make negative."""
    counts[z] = max(counts[z] + change, 0.0)


@jit
def learn_members(
    classes: RequestClasses,
    x: int,
    members: Ints,
    pi: Floats,
    p: Floats,
    found: Assignment,
    pooled: bool,
) -> None:
    """Update what a context adds to the log odds; after surprises of one sign, forget most counts.

    An offset o of variance v moves by o += v (missed - expected) / (1 + f v) with the information f
    of a miss or hit, less what had to be inferred; v -= f v^2 / (1 + f v). After an alarm a quarter
    of all counts is kept, and few of the expert that raised it.
    """
    fired = -1
    for j in range(members.size):
        if not found.known[j]:
            continue
        i, missed, likely, before = members[j], 0.0, 0.0, 0.0
        for z in range(pi.size):
            missed += found.counted[j, z]
            likely += found.share[z] * p[z, j]
            before += pi[z] * p[z, j]
        if pooled:
            v, more = classes.offset_variance[x, i], max(found.information[j], MIN_INFORMATION)
            classes.offset[x, i] += v * (missed - likely) / (1.0 + more * v)
            classes.offset_variance[x, i] = v - more / (1.0 + more * v) * v * v
        sd = math.sqrt(max(before * (1.0 - before), MIN_INFORMATION))
        surprise = min(max((missed - before) / sd, -MAX_SURPRISE), MAX_SURPRISE)
        classes.drift[i] += DRIFT_RATE * (surprise - classes.drift[i])
        skew = (1.0 - 2.0 * before) / sd
        low = -compute_drift_threshold(DRIFT_RATE, max(-skew, 0.0), DRIFT_ALARM_SD)
        high = compute_drift_threshold(DRIFT_RATE, max(skew, 0.0), DRIFT_ALARM_SD)
        if not low <= classes.drift[i] <= high:
            fired = i
    if fired >= 0:
        fade_counts(classes, KEPT_AFTER_ALARM)
        forget_expert(classes, fired)
        classes.recent.counts[:] = 0  # they are not assigned again


@jit
def restart_classes(classes: RequestClasses) -> None:
    """Forget all that was learned; nothing to do without rows."""
    fade_counts(classes, 0.0)
    for i in range(classes.misses.shape[0]):
        forget_expert(classes, i)
    classes.recent.counts[:] = 0
    classes.link[0], classes.link[1], classes.typical[0] = 0.0, 1.0, 0.0
    for j in range(2):
        for k in range(2):
            classes.link_covariance[j, k] = PRIOR_LINK_VARIANCES[j] if j == k else 0.0


@jit
def fade_counts(classes: RequestClasses, kept: float) -> None:
    """Keep this share of all counts."""
    for z in range(CLASS_LEVELS.size):
        classes.total[z] *= kept
        for x in range(classes.requests.shape[0]):
            classes.requests[x, z] *= kept
    for i in range(classes.misses.shape[0]):
        for z in range(CLASS_LEVELS.size):
            classes.misses[i, z] *= kept
            classes.hits[i, z] *= kept
        update_odds(classes, i)
    ring = classes.recent
    for slot in range(ring.share.shape[0]):
        for z in range(CLASS_LEVELS.size):
            ring.share[slot, z] *= kept
            for j in range(ring.counted.shape[1]):
                ring.counted[slot, j, z] *= kept


@jit
def forget_expert(classes: RequestClasses, i: int) -> None:
    """Keep few counts of an expert, and nothing that contexts add."""
    total = 0.0
    for z in range(CLASS_LEVELS.size):
        total += classes.misses[i, z] + classes.hits[i, z]
    kept = min(COUNT_AFTER_ALARM / max(total, COUNT_AFTER_ALARM), 1.0)
    for z in range(CLASS_LEVELS.size):
        classes.misses[i, z] *= kept
        classes.hits[i, z] *= kept
    update_odds(classes, i)
    classes.drift[i] = 0.0
    for x in range(classes.offset.shape[0]):
        classes.offset[x, i], classes.offset_variance[x, i] = 0.0, PRIOR_OFFSET_VARIANCE


@jit
def learn_request(
    classes: RequestClasses, x: int, members: Ints, evidence: RequestEvidence, pooled: bool
) -> None:
    """Count a report by the classes that its request may be of, and assign some requests again.

    A report without any score says nothing.
    """
    if evidence.winner == SCORED and (evidence.missed == UNKNOWN_SCORE).all():
        return
    ring, Z = classes.recent, CLASS_LEVELS.size
    slot = ring.counts[0] % RECENT_REQUESTS
    for j in range(ring.members.shape[1]):
        there = j < members.size
        ring.members[slot, j] = members[j] if there else -1
        ring.missed[slot, j] = evidence.missed[j] if there else UNKNOWN_SCORE
        for z in range(Z):
            ring.counted[slot, j, z] = 0.0
    for z in range(Z):
        ring.share[slot, z] = 0.0
    ring.miss[slot], ring.winner[slot], ring.context[slot] = evidence.miss, evidence.winner, x
    ring.counts[0] += 1
    assign_request(classes, slot, pooled, True)
    for _ in range(min(REVISITS, ring.counts[0])):
        ring.counts[1] = (ring.counts[1] + 1) % min(ring.counts[0], RECENT_REQUESTS)
        assign_request(classes, ring.counts[1], pooled, False)


@jit
def compute_linked_miss(classes: RequestClasses, log_miss: float) -> float:
    """c + g log P(all miss): the log of what a panel is expected to miss."""
    return float(classes.link[0] + classes.link[1] * log_miss)


@jit
def compute_link_slope(classes: RequestClasses) -> float:
    """By how much what a panel misses grows with P(all miss), near that of usual panels."""
    c, g = classes.link
    return float(g * math.exp(c + (g - 1.0) * classes.typical[0]))


@jit
def learn_link(classes: RequestClasses, log_miss: float, miss: float, noise: float) -> None:
    """Fit c and g to what a panel missed, by the step that `update_posterior` takes for beta."""
    link, P = classes.link, classes.link_covariance
    first = 1.0 / max(classes.total.sum(), 1.0)
    classes.typical[0] += max(first, TYPICAL_RATE) * (log_miss - classes.typical[0])
    mu = max(math.exp(min(compute_linked_miss(classes, log_miss), 0.0)), MIN_EXPECTED_MISS)
    u, v = P[0, 0] + P[0, 1] * log_miss, P[1, 0] + P[1, 1] * log_miss
    den = mu * (u + v * log_miss) + noise
    step, factor = (miss - mu) / den, mu / den
    link[0] += u * step
    link[1] = min(max(link[1] + v * step, MIN_LINK_SLOPE), MAX_LINK_SLOPE)
    P[0, 0] -= factor * u * u
    P[0, 1] -= factor * u * v
    P[1, 0] -= factor * u * v
    P[1, 1] -= factor * v * v
