"""Outcome: what a target would have earned and cost in the rounds of a log; as data and as text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bylot.distributions import PanelDistribution
from bylot.errors import DataError, InsufficientOverlap
from bylot.evaluate.estimators import (
    DRAW_WEIGHTS,
    RewardEstimate,
    estimate_by_weights,
    estimate_doubly_robust,
    estimate_finite_sample,
    estimate_self_normalised,
    predict_from_earlier_rounds,
)
from bylot.evaluate.importance_weights import (
    MIN_EFFECTIVE_ROUNDS,
    RoundCounts,
    WeightedSample,
    check_overlap,
    list_target_distributions,
    weight_rounds,
)
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.targets import EvaluationTarget, list_target_caveats
from bylot.numerics.jit import Floats, Ints
from bylot.policies.validation import is_reward_in_range

CONFIDENCE_LEVEL = 0.95


@dataclass(frozen=True)
class Evaluation:
    """One target in the rounds of one log.

    effective: as many rounds of the target itself would say about as much
    largest:   the largest weight
    passed:    the mean weight, 1 up to chance if the odds are right and nothing was replaced
    unseen:    chance of a target's panel that the log could not, or did never, draw
    costs:     expected cost per request by name, exact
    """

    target: str
    level: float
    counted: RoundCounts
    effective: float
    largest: float
    passed: float
    unseen: float
    estimates: tuple[RewardEstimate, ...]
    costs: Mapping[str, float]
    notes: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "target": self.target,
            "level": self.level,
            "rounds": self.counted._asdict(),
            "effective": self.effective,
            "largest_weight": self.largest,
            "mean_weight": self.passed,
            "unseen": self.unseen,
            "estimates": {one.name: estimate_to_data(one) for one in self.estimates},
            "costs": dict(self.costs),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class EvaluationRefusal:
    """A target that the log says too little of; what it would cost is known all the same."""

    target: str
    why: str
    costs: Mapping[str, float]
    notes: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"why": self.why, "costs": dict(self.costs), "notes": list(self.notes)}


def estimate_to_data(one: RewardEstimate) -> dict[str, float | None]:
    """Its numbers by name; what is not finite, as the error of a single round, is null in JSON."""
    told = {"value": one.value, "error": one.error, **one.interval._asdict()}
    return {name: number if math.isfinite(number) else None for name, number in told.items()}


def evaluate_target(
    log: DecisionLog,
    target: EvaluationTarget,
    *,
    rewards: tuple[float, float] = (0.0, 1.0),
    level: float = CONFIDENCE_LEVEL,
    least: float = MIN_EFFECTIVE_ROUNDS,
) -> Evaluation:
    """What the target would have earned, by every estimator that fits, and what it would cost.

    rewards: the range that all rewards lie in
    level:   of the intervals
    least:   effective rounds below which nothing is told (`InsufficientOverlap`)
    """
    check_logged_rewards(log, *rewards)
    laws = list_target_distributions(log, target)
    sample = weight_rounds(log, laws)
    check_overlap(sample, least)
    estimates = compute_estimates(log, laws, sample, rewards, level)
    return Evaluation(
        target=target.name,
        level=level,
        counted=sample.counted,
        effective=sample.effective,
        largest=float(sample.weights.max()),
        passed=sample.passed,
        unseen=sample.unseen,
        estimates=estimates,
        costs=compute_target_costs(log, laws),
        notes=(
            *note_evaluation_caveats(sample, estimates, rewards),
            *note_departed_experts(log),
            *list_target_caveats(target),
        ),
    )


def describe_refusal(
    log: DecisionLog, target: EvaluationTarget, error: InsufficientOverlap
) -> EvaluationRefusal:
    """What is left to tell where `evaluate_target` refuses."""
    costs = compute_target_costs(log, list_target_distributions(log, target))
    return EvaluationRefusal(
        target.name, str(error), costs, (*note_departed_experts(log), *list_target_caveats(target))
    )


def compute_estimates(
    log: DecisionLog,
    laws: list[PanelDistribution],
    sample: WeightedSample,
    rewards: tuple[float, float],
    level: float,
) -> tuple[RewardEstimate, ...]:
    """All estimates; draw weights only where log and target both draw independently."""
    low, high = rewards
    w, r = sample.weights, sample.rewards
    at = log.located[1][sample.rounds]
    chances = np.array([law.inclusion for law in laws])
    told, expected = predict_from_earlier_rounds(
        build_membership_matrix(log, sample.rounds),
        chances,
        at,
        number_contexts(log, at),
        r,
        (low + high) / 2,
    )
    by_draws = (
        []
        if sample.sequence is None
        else [estimate_by_weights(sample.sequence, r, level, DRAW_WEIGHTS)]
    )
    return (
        *by_draws,
        estimate_by_weights(w, r, level),
        estimate_self_normalised(w, r, level),
        estimate_doubly_robust(w, r, told, expected, level),
        estimate_finite_sample(w, r, low, high, level),
    )


def build_membership_matrix(log: DecisionLog, rounds: Ints) -> csr_array:
    """(n, K): 1 for the members of each panel."""
    members = [log.members[n] for n in rounds]
    ends = np.cumsum([0, *(one.size for one in members)])
    flat = np.concatenate(members)
    return csr_array((np.ones(flat.size), flat, ends), shape=(len(members), log.size))


def number_contexts(log: DecisionLog, at: Ints) -> Ints:
    """The contexts of rounds at these places, as numbers."""
    labels: dict[str | None, int] = {}
    number = [labels.setdefault(place.context, len(labels)) for place in log.located[0]]
    return np.array(number, np.int64)[at]


def compute_target_costs(log: DecisionLog, laws: list[PanelDistribution]) -> dict[str, float]:
    """sum_i c_i P'(i in A), averaged over all rounds: exact, whatever was or was not rewarded."""
    share = np.bincount(log.located[1]) / len(log.entries)
    included: Floats = (share @ np.array([law.inclusion for law in laws]))[: log.problem.size]
    return {name: float(row @ included) for name, row in log.problem.costs.items()}


def check_logged_rewards(log: DecisionLog, low: float, high: float) -> None:
    """Refuse a reward that is outside what was declared: the certain interval rests on it."""
    if not -math.inf < low < high < math.inf:
        raise DataError(f"rewards from {low} to {high} declared; give a finite range, low first")
    for one, place in zip(log.entries, log.where, strict=True):
        if one.reward is not None and not is_reward_in_range(one.reward, low, high):
            raise DataError(
                f"{place}: decision {one.id} has a reward of {one.reward:g}, outside "
                f"[{low:g}, {high:g}]; declare the range that they have with --rewards LOW HIGH "
                "(rewards=)"
            )


def note_departed_experts(log: DecisionLog) -> tuple[str, ...]:
    """What is to be known of a log in which experts were asked that are gone."""
    if not log.gone:
        return ()
    theirs = sum(any(i >= log.problem.size for i in members) for members in log.members)
    return (
        f"{', '.join(log.gone)}: no longer in the pool, so that no target asks them; {theirs} "
        "panels in which they are say nothing of it (their weight is 0), the others of those "
        "rounds are weighed as always, by the chance that they were drawn with",
    )


def note_evaluation_caveats(
    sample: WeightedSample, estimates: tuple[RewardEstimate, ...], rewards: tuple[float, float]
) -> list[str]:
    """What a reader must know, where there is something to know."""
    counted, notes = sample.counted, []
    if counted.replaced:
        notes.append(
            f"the guard replaced {counted.replaced} panels and looked at the draw before it did: "
            "estimates are of panels that would have passed it, by the mean weight "
            f"{min(1.0, sample.passed):.1%} of the target's"
        )
    if sample.unseen > 0:
        off = sample.unseen * (rewards[1] - rewards[0])
        notes.append(f"panels that the log has no news of may shift the reward by up to {off:.2g}")
    if counted.unrewarded:
        notes.append(
            f"{counted.unrewarded} rounds without a reward are left out, which is right only if "
            "whether a reward came had nothing to do with the panel or its worth"
        )
    if estimates[-1].interval.low > estimates[-1].interval.high:
        notes.append("the certain interval is empty: the odds in the log cannot be right")
    return notes
