"""Importance weights: how much each logged round says about a target, and whether it is enough.

A target that a router learned from the log leans towards the panels that were lucky in this very
log, so rounds weighted for it overestimate its reward. Later rounds do not. If there are too few of
them, the estimate is what the router earned lately: every panel was drawn before its reward was
known.
"""

import math
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.distributions import IidSets, PanelDistribution
from bylot.errors import InsufficientOverlap
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.targets import EvaluationTarget
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.router.router import Router

MIN_EFFECTIVE_ROUNDS = 100.0  # with fewer, intervals are too often wrong
MAX_UNSUPPORTED_SHARE = 0.01  # probability of target panels that the log could not draw
MAX_STANDARD_ERRORS = 3.0  # distance of the mean weight from 1
MEAN_WEIGHT_TOLERANCE = 1e-3  # the same from probabilities logged with few digits
SUPPORT_ROUNDING = 1e-12  # of a probability
MAX_LOG_WEIGHT = 300.0  # squares of larger weights overflow


class RoundCounts(NamedTuple):
    """How the rounds of a log are used; each is in one of the last five."""

    rounds: int
    used: int
    replaced: int  # by the guard
    unknown_propensity: int
    unrewarded: int
    substituted: int = 0  # a member failed, and another expert took its place


@dataclass(frozen=True, eq=False)
class WeightedSample:
    """The usable rounds in order, weighted for one target."""

    counts: RoundCounts
    rounds: Ints  # (n,) their numbers in the log
    rewards: Floats  # (n,)
    weights: Floats  # (n,) P'(A) / P(A)
    draw_weights: Floats | None  # (n,) prod_j q'(i_j) / q(i_j), if both draw independently
    unsupported: float  # probability of a target panel that the log could not or did never draw

    @property
    def effective(self) -> float:
        """(sum w)^2 / sum w^2: this many rounds of the target itself would say as much."""
        square = float(self.weights @ self.weights)
        return float(self.weights.sum()) ** 2 / square if square else 0.0

    @property
    def mean_weight(self) -> float:
        """Mean weight over used and replaced rounds: 1 on average, if propensities are correct and
        nothing was replaced; else the probability that a target's panel passes the guard.
        """
        return float(self.weights.sum()) / (self.counts.used + self.counts.replaced)


def select_usable_rounds(log: DecisionLog) -> tuple[RoundCounts, Ints]:
    """The rounds that have a reward and a known propensity, and whose panel was not replaced."""
    facts = [
        (one.replaced, one.substituted, not one.has_probability, one.reward is None)
        for one in log.entries
    ]
    reasons = np.array(facts, bool).reshape(-1, 4)
    first = reasons & (np.cumsum(reasons, axis=1) == 1)  # each round is counted once
    replaced, substituted, unknown, unrewarded = first.sum(axis=0).tolist()
    rounds = np.flatnonzero(~reasons.any(axis=1))
    counts = RoundCounts(len(log.entries), rounds.size, replaced, unknown, unrewarded, substituted)
    return counts, rounds


def weight_rounds(log: DecisionLog, distributions: list[PanelDistribution]) -> WeightedSample:
    """Weight every usable round by the target's distribution in its stratum."""
    counts, rounds = select_usable_rounds(log)
    if not counts.used:
        reasons = {
            "were replaced by the guard": counts.replaced,
            "had a member replaced that failed": counts.substituted,
            "have no propensity": counts.unknown_propensity,
            "have no reward": counts.unrewarded,
        }
        found = ", ".join(f"{n} {reason}" for reason, n in reasons.items() if n)
        raise InsufficientOverlap(
            f"none of {counts.rounds} rounds can be used" + f": {found}" * bool(found),
            remedy=f"log propensity and reward of each decision{advise_exploration(counts)}",
        )
    here = [distributions[x] for x in log.strata[1][rounds]]
    logs = [
        one.log_probability(log.members[n]) - log.entries[n].log_propensity
        for one, n in zip(here, rounds, strict=True)
    ]
    return WeightedSample(
        counts,
        rounds,
        np.array([log.entries[n].reward for n in rounds], np.float64),
        np.exp(np.minimum(logs, MAX_LOG_WEIGHT)),
        compute_draw_ratios(log, here, rounds),
        compute_unsupported_share(log, distributions, rounds),
    )


def compute_draw_ratios(
    log: DecisionLog, distributions: list[PanelDistribution], rounds: Ints
) -> Floats | None:
    """prod_j q'(i_j) / q(i_j) of each round; None unless all are of as many independent draws."""
    ratios = np.empty(len(rounds))
    for k, (one, n) in enumerate(zip(distributions, rounds, strict=True)):
        given = log.entries[n].draw_probabilities
        if not isinstance(one, IidSets) or one.draws != len(given):
            return None
        log_ratio = one.log_draw_probability(log.draws[n]) - float(np.log(given).sum())
        ratios[k] = math.exp(min(log_ratio, MAX_LOG_WEIGHT))
    return ratios


def list_target_distributions(
    log: DecisionLog, target: EvaluationTarget
) -> list[PanelDistribution]:
    """The target's distribution in each stratum of the log; it never asks experts that are gone."""
    found = [target.distribution(one.context, one.available) for one in log.strata[0]]
    return [one.pad(len(log.gone)) for one in found] if log.gone else found


def compute_unsupported_share(
    log: DecisionLog, distributions: list[PanelDistribution], rounds: Ints
) -> float:
    """The mean probability, over the rounds, of a target panel that the log has no data on:

    with a member that could not be drawn there or was never drawn in that context, or of a size
    that panels drawn as one set never had with as many drawable experts.
    """
    strata, at = log.strata
    drawn: dict[str | None, Bools] = {}
    sizes: dict[int, set[int]] = defaultdict(set)
    count: dict[tuple[int, bool], int] = defaultdict(int)
    for n in rounds:
        x = int(at[n])
        members = log.members[n]
        iid = bool(log.entries[n].draw_probabilities)
        drawn.setdefault(strata[x].context, np.zeros(log.size, np.bool_))[members] = True
        count[x, iid] += 1
        if not iid:
            sizes[int(strata[x].drawable.sum())].add(members.size)
    missing = 0.0
    for (x, iid), times in count.items():
        stratum = strata[x]
        group = stratum.drawable & drawn[stratum.context]
        inside = distributions[x].group_counts(group)[:, 0]  # j of the group and no others
        if not iid:
            seen = sizes[int(stratum.drawable.sum())]
            inside = inside[[j for j in range(inside.size) if j in seen]]
        missing += times * (1.0 - min(1.0, float(inside.sum())))
    return missing / len(rounds) if missing > SUPPORT_ROUNDING * len(rounds) else 0.0


def advise_exploration(counts: RoundCounts) -> str:
    """A remedy for logs in which most rounds have no propensity."""
    if counts.unknown_propensity <= counts.used:
        return ""
    use = "a larger explore (noisy-or:explore=0.1)" if counts.used else "noisy-or:explore=0.02"
    return (
        ". The policy `noisy-or` records propensities only in exploration rounds, and they cannot "
        f"be computed later: from now on use {use}, or distinct, which records all of them"
    )


def check_overlap(sample: WeightedSample, least: float) -> None:
    """Raise `InsufficientOverlap` if the log contains too little information about the target."""
    more, counts = advise_exploration(sample.counts), sample.counts
    if sample.unsupported > MAX_UNSUPPORTED_SHARE:
        raise InsufficientOverlap(
            f"{sample.unsupported:.1%} of the target's panels have a member or a size that the log "
            f"could not draw or never drew; at most {MAX_UNSUPPORTED_SHARE:.0%} is allowed",
            remedy="evaluate a target on the experts and panel sizes that were drawn, or log "
            f"rounds in which the others can be drawn{more}",
        )
    if sample.effective < least:
        raise InsufficientOverlap(
            f"{counts.used} rounds are worth only {sample.effective:.1f} rounds of the target "
            f"(largest weight {sample.weights.max():.3g}); an interval needs at least {least:g}",
            remedy=f"log more rounds, or with probabilities closer to the target's{more}",
        )
    error = MAX_STANDARD_ERRORS * float(sample.weights.std()) / math.sqrt(counts.used)
    off = abs(sample.mean_weight + sample.unsupported - 1.0)
    if off > error + MEAN_WEIGHT_TOLERANCE:
        guard = ", or the guard would have replaced many" if counts.replaced else ""
        raise InsufficientOverlap(
            f"the mean weight is {sample.mean_weight:.4g}, off by {off:.2g}, and sampling error "
            f"explains at most {error:.2g}: either panels that matter to the target never came "
            f"up, or the logged probabilities are not those of the draws{guard}",
            remedy="log more rounds, or with probabilities closer to the target's, and check that "
            "probabilities are logged as decided",
        )


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
