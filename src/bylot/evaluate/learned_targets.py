"""Targets that a router learned from the log that is to judge them.

Such a distribution leans towards the panels that were lucky in this very log, so rounds weighted
for it overestimate its reward. Later rounds do not. If there are too few of them, the estimate is
what the router earned lately: every panel was drawn before its reward was known.
"""

import math
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from bylot.errors import InsufficientOverlap
from bylot.evaluate.importance_weights import (
    WeightedSample,
    check_overlap,
    list_target_distributions,
    select_usable_rounds,
    weight_rounds,
)
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.targets import EvaluationTarget
from bylot.router.router import Router

PLAYED_SHARE = 0.2  # of the decisions, the last: played with nearly the present distribution
UNMOVED_WEIGHT = 0.01  # a weight within this of 1: the distribution has not moved since
MAX_TYPICAL_WEIGHT = 5.0  # a typical ratio of probabilities beyond this: another one was played


class JudgingRounds(NamedTuple):
    """The rounds that judge a target, in which way, and why."""

    log: DecisionLog
    sample: WeightedSample
    as_played: bool = False  # every round counts once, instead of being weighted for the target
    note: str = ""


def find_judging_rounds(log: DecisionLog, target: EvaluationTarget, least: float) -> JudgingRounds:
    """All rounds weighted for the target, unless it was learned from some of them.

    If it was: the later rounds alone, if these say enough; else those that were played lately.
    """
    router = target.router
    if router is None or not has_learned_from(router, log):
        return JudgingRounds(log, weight_target(log, target))
    learned = (
        f"{target.name} was learned from this log, and weighted for it, the rounds that taught it "
        "would overestimate it"
    )
    if log.entries[-1].t >= router.t:
        later = log.since(router.t)
        with suppress(InsufficientOverlap):
            sample = weight_target(later, target)
            check_overlap(sample, least)
            note = (
                f"{learned}; only the {len(later.entries)} rounds after decision {router.t - 1} "
                "are used"
            )
            return JudgingRounds(later, sample, note=note)
    remedy = (
        f"let the router decide at least {10 * least:g} more requests, and evaluate the file saved "
        "before them with --target router:FILE: only later rounds are then used"
    )
    recent = select_recent_rounds(log, target, router)
    count = 0 if recent is None else recent.sample.counts.used
    if recent is None or count < least:
        raise InsufficientOverlap(
            f"{learned}; only {count} rounds were played with a distribution close to it, and an "
            f"interval needs at least {least:g}",
            remedy=remedy,
        )
    return recent._replace(
        note=f"{learned}; the estimate is what the {count} usable rounds from decision "
        f"{recent.log.entries[0].t} on earned, whose panels were drawn from distributions close to "
        f"it before their rewards were known. To judge it by rounds of its own, {remedy}"
    )


def weight_target(log: DecisionLog, target: EvaluationTarget) -> WeightedSample:
    """The usable rounds, weighted for the target."""
    return weight_rounds(log, list_target_distributions(log, target))


def has_learned_from(router: Router, log: DecisionLog) -> bool:
    """Whether a router may have decided rounds of a log: the number and the sum of rewards that it
    has learned do not contradict that. Rewards may have arrived after the router was saved.
    """
    own = [entry for entry in (*log.earlier, *log.entries) if entry.t < router.t]
    known = [entry.reward for entry in own if entry.reward is not None]
    totals = router.core.totals
    late = len(known) - int(totals.rewards[0])
    if not own or len(own) < router.t or late < 0:  # not the whole log, which says nothing
        return bool(own)
    low, high = router.rewards
    rounding = 1e-9 * len(known) * (high - low)
    return low * late - rounding <= sum(known) - float(totals.total[0]) <= high * late + rounding


def select_recent_rounds(
    log: DecisionLog, target: EvaluationTarget, router: Router
) -> JudgingRounds | None:
    """The last fifth of the router's decisions, or all since its distribution last moved, if these
    are more; None if they were not played with distributions close to the present one.

    A reward r_t has the mean of the distribution that its panel was drawn from, whatever was
    learned from it later. So the mean of rewards is unbiased for the mean of those distributions.
    """
    sample = weight_target(log, target)
    t = np.array([log.entries[n].t for n in sample.rounds])
    moved = t[(abs(sample.weights - 1.0) > UNMOVED_WEIGHT) & (t < router.t)]
    first = min(router.t - math.ceil(PLAYED_SHARE * router.t), int(moved.max(initial=-1)) + 1)
    logs = np.log(np.maximum(sample.weights[t >= first], 1e-300))
    if not logs.size or np.median(abs(logs)) > math.log(MAX_TYPICAL_WEIGHT):
        return None
    recent = log.since(first)
    rewards = sample.rewards[t >= first]
    played = WeightedSample(
        *select_usable_rounds(recent), rewards, np.ones(rewards.size), None, unsupported=0.0
    )
    return JudgingRounds(recent, played, as_played=True)
