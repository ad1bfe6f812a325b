"""Weighing: how much each logged round says about a target, and whether the log says enough.

Owns importance weights, effective sample size and support; what rewards make of the weights is
left to the estimators.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.distributions import IidSets, PanelDistribution
from bylot.errors import InsufficientOverlap
from bylot.evaluate.log import DecisionLog, Stratum
from bylot.evaluate.targets import EvaluationTarget
from bylot.numerics.jit import Bools, Floats, Ints

MIN_EFFECTIVE_ROUNDS = (
    100.0  # effective rounds below which nothing is told: intervals miss too often
)
MAX_UNSUPPORTED_SHARE = (
    0.01  # chance of target's panels that the log could not draw, above which nothing is told
)
MAX_STANDARD_ERRORS = 3.0  # standard errors of the mean weight from 1 from which on nothing is told
MEAN_WEIGHT_TOLERANCE = (
    1e-3  # of the mean weight to 1, in which odds that were logged with few digits may differ
)
SUPPORT_ROUNDING = 1e-12  # of a chance
MAX_LOG_WEIGHT = (
    300.0  # log of a weight: squares of larger ones may be no numbers, nor say any more
)


class RoundCounts(NamedTuple):
    """What became of the rounds of a log; each is in one of the last four."""

    rounds: int
    used: int
    replaced: int  # by the guard
    untold: int  # no odds and no chance
    unrewarded: int


@dataclass(frozen=True, eq=False)
class WeightedSample:
    """The rounds that can be used, in order, weighed for one target."""

    counted: RoundCounts
    rounds: Ints  # (n,) their numbers in the log
    rewards: Floats  # (n,)
    weights: Floats  # (n,) P'(A) / P(A)
    sequence: Floats | None  # (n,) prod_j q'(i_j) / q(i_j), where both draw so
    unseen: float  # chance of a panel that the log could not, or did never, draw

    @property
    def effective(self) -> float:
        """(sum w)^2 / sum w^2: as many rounds of the target itself would say about as much."""
        square = float(self.weights @ self.weights)
        return float(self.weights.sum()) ** 2 / square if square else 0.0

    @property
    def spread(self) -> float:
        """The standard error of the mean weight."""
        return float(self.weights.std()) / math.sqrt(self.counted.used)

    @property
    def passed(self) -> float:
        """Mean weight over used and replaced rounds: 1 on average, if the odds are right and
        nothing was replaced; else the chance that a panel of the target would pass the guard.
        """
        return float(self.weights.sum()) / (self.counted.used + self.counted.replaced)


def select_usable_rounds(log: DecisionLog) -> tuple[RoundCounts, Ints]:
    """The rounds with a reward and a chance, drawn as they were told."""
    kept, replaced, untold, unrewarded = [], 0, 0, 0
    for n, one in enumerate(log.entries):
        if one.replaced:
            replaced += 1
        elif not one.draw_probabilities and one.propensity is None:
            untold += 1
        elif one.reward is None:
            unrewarded += 1
        else:
            kept.append(n)
    counted = RoundCounts(len(log.entries), len(kept), replaced, untold, unrewarded)
    return counted, np.array(kept, np.int64)


def weight_rounds(log: DecisionLog, laws: list[PanelDistribution]) -> WeightedSample:
    """Every usable round, weighed by the law of the target at its place."""
    counted, rounds = select_usable_rounds(log)
    if not counted.used:
        raise InsufficientOverlap(
            f"none of {counted.rounds} rounds can be used: {counted.replaced} were replaced by the "
            f"guard, {counted.untold} have no propensity, {counted.unrewarded} have no "
            f"reward; log the propensity of each decision, and its reward{advise_exploration(counted)}"
        )
    at = log.located[1]
    entries, here = [log.entries[n] for n in rounds], [laws[at[n]] for n in rounds]
    logs = np.array(
        [law.log_probability(log.members[n]) for law, n in zip(here, rounds, strict=True)]
    )
    told = np.array([one.log_propensity for one in entries])
    rewards = np.array([one.reward for one in entries], np.float64)
    return WeightedSample(
        counted,
        rounds,
        rewards,
        np.exp(np.minimum(logs - told, MAX_LOG_WEIGHT)),
        compute_draw_ratios(log, here, rounds),
        compute_unsupported_share(log, laws, rounds),
    )


def compute_draw_ratios(
    log: DecisionLog, laws: list[PanelDistribution], rounds: Ints
) -> Floats | None:
    """prod_j q'(i_j) / q(i_j) of each round, by its law; None if any is not of as many draws."""
    ratios = np.empty(len(rounds))
    for k, (law, n) in enumerate(zip(laws, rounds, strict=True)):
        q = log.entries[n].draw_probabilities
        if not isinstance(law, IidSets) or law.draws != len(q):
            return None
        apart = law.log_draw_probability(log.draws[n]) - float(np.log(q).sum())
        ratios[k] = math.exp(min(apart, MAX_LOG_WEIGHT))
    return ratios


def list_target_distributions(
    log: DecisionLog, target: EvaluationTarget
) -> list[PanelDistribution]:
    """The law of the target at each place of the log; it never asks who is gone."""
    laws = [target.law(place.context, place.up) for place in log.located[0]]
    return [law.pad(len(log.gone)) for law in laws] if log.gone else laws


def compute_unsupported_share(
    log: DecisionLog, laws: list[PanelDistribution], rounds: Ints
) -> float:
    """The mean chance, over the rounds, that the target's panel is one the log has no news of:

    it has a member without a chance there, or never drawn in that context, or a size that panels
    drawn as one set never had with as many experts up.
    """
    places, at = log.located
    drawn = list_drawn_experts(log, rounds)
    sizes = list_panel_sizes(log, rounds)
    asked: dict[tuple[int, bool], int] = defaultdict(int)
    for n in rounds:
        asked[int(at[n]), bool(log.entries[n].draw_probabilities)] += 1
    missing = 0.0
    for (x, iid), count in asked.items():
        allowed = places[x].chosen & drawn[places[x].context]
        chances = laws[x].group_counts(allowed)[:, 0]  # j of the allowed and nobody else
        if not iid:
            seen = sizes[count_drawable(places[x])]
            chances = np.array([p for j, p in enumerate(chances) if j in seen])
        missing += count * (1.0 - min(1.0, float(chances.sum())))
    return missing / len(rounds) if missing > SUPPORT_ROUNDING * len(rounds) else 0.0


def list_drawn_experts(log: DecisionLog, rounds: Ints) -> dict[str | None, Bools]:
    """Who was drawn at all in each context."""
    drawn: dict[str | None, Bools] = {}
    for n in rounds:
        context = log.entries[n].context
        drawn.setdefault(context, np.zeros(log.size, np.bool_))[log.members[n]] = True
    return drawn


def list_panel_sizes(log: DecisionLog, rounds: Ints) -> dict[int, set[int]]:
    """The sizes of panels that were drawn as one set, by how many experts were up."""
    places, at = log.located
    sizes: dict[int, set[int]] = defaultdict(set)
    for n in rounds:
        if not log.entries[n].draw_probabilities:
            sizes[count_drawable(places[at[n]])].add(log.members[n].size)
    return sizes


def count_drawable(place: Stratum) -> int:
    """How many experts could be drawn at a place."""
    return int(place.chosen.sum())


def advise_exploration(counted: RoundCounts) -> str:
    """What helps where most rounds tell no chance, as those of a policy that has no law."""
    if counted.untold <= counted.used:
        return ""
    take = (
        "a larger explore, such as noisy-or:explore=0.1"
        if counted.used
        else "noisy-or:explore=0.02"
    )
    return (
        ". If `noisy-or` chose them: it records propensities only in rounds it sets aside, "
        "and what was not told at the draw cannot be found out later; from now on take "
        f"{take}, or distinct, which tells it in every round"
    )


def check_overlap(
    sample: WeightedSample,
    least: float = MIN_EFFECTIVE_ROUNDS,
    most_unseen: float = MAX_UNSUPPORTED_SHARE,
) -> None:
    """Refuse a sample that says too little of its target, with what would help."""
    if sample.unseen > most_unseen:
        raise InsufficientOverlap(
            f"{sample.unseen:.1%} of the target's panels have a member or a size that the log "
            f"could not draw or never drew, and no weight makes up for that (at most "
            f"{most_unseen:.0%} is tolerated); evaluate a target on the experts and panel sizes "
            "that were drawn, or log rounds in which the others have some odds"
            f"{advise_exploration(sample.counted)}"
        )
    if sample.effective < least:
        raise InsufficientOverlap(
            f"{sample.counted.used} rounds are worth only {sample.effective:.1f} of the target's "
            f"own (largest weight {sample.weights.max():.3g}), and fewer than {least:g} are no "
            "ground for an interval; log more rounds, or with odds that are nearer to the target"
            f"{advise_exploration(sample.counted)}"
        )
    off, chance = abs(sample.passed + sample.unseen - 1.0), MAX_STANDARD_ERRORS * sample.spread
    if off > chance + MEAN_WEIGHT_TOLERANCE:
        guard = ", or the guard would have replaced many" if sample.counted.replaced else ""
        raise InsufficientOverlap(
            f"weights average {sample.passed:.4g}, {off:.2g} away from where they should be, and "
            f"chance alone would lead no further than {chance:.2g}: either panels that matter to "
            f"the target never came up, or the odds in the log are not those of the draws{guard}; "
            "log more rounds, or with odds that are nearer to the target, and check that odds are "
            "logged as decided"
        )
