"""Importance weights: how much each logged round says about a target, and whether it is enough."""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.distributions import IidSets, PanelDistribution
from bylot.errors import InsufficientOverlap
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.targets import EvaluationTarget
from bylot.numerics.jit import Bools, Floats, Ints

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
