"""Evaluations: what a target would have earned and cost in the rounds of a log.

Without propensities: how it agrees with the panels that an existing system chose, and its costs.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct
from scipy.sparse import csr_array

from bylot.distributions import FixedSizeSets, MixedSets, PanelDistribution
from bylot.errors import BylotError, DataError, InsufficientOverlap
from bylot.evaluate import estimators, importance_weights
from bylot.evaluate.importance_weights import (
    RoundCounts,
    WeightedSample,
    find_judging_rounds,
    list_target_distributions,
    select_usable_rounds,
)
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.targets import EvaluationTarget, make_uniform_target
from bylot.numerics.jit import Bools, Floats, Ints, announce_compilation
from bylot.optima.polytope import maximise_linear
from bylot.policies.validation import is_reward_in_range


@dataclass(frozen=True)
class Evaluation:
    """One target in the rounds of one log.

    Attributes
    ----------
    effective
        This many rounds of the target itself would contain about as much information.
    largest_weight, mean_weight
        Of the importance weights; the mean is about 1 if propensities are correct and the guard
        replaced nothing.
    unsupported
        Probability of a target panel that the log could not or did never draw.
    estimates
        Values and intervals, within the range of rewards.
    costs
        Exact expected cost per request by name.
    """

    target: str
    level: float
    rewards: tuple[float, float]
    counts: RoundCounts
    effective: float
    largest_weight: float
    mean_weight: float
    unsupported: float
    estimates: tuple[estimators.RewardEstimate, ...]
    costs: Mapping[str, float]
    notes: tuple[str, ...]

    @property
    def main_estimate(self) -> estimators.RewardEstimate:
        """The one to read: doubly robust or, for what was learned from the log, as played;
        finite-sample if there are few effective rounds.
        """
        few = self.effective < importance_weights.MIN_EFFECTIVE_ROUNDS
        names = (
            [estimators.FINITE_SAMPLE] if few else [estimators.DOUBLY_ROBUST, estimators.AS_PLAYED]
        )
        return next(one for one in self.estimates if one.name in names)

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite are null."""
        estimates = {}
        for name, value, error, interval in self.estimates:
            numbers = {"value": value, "error": error, **interval._asdict()}
            estimates[name] = {key: x if math.isfinite(x) else None for key, x in numbers.items()}
        return {
            **vars(self),
            "main_estimate": self.main_estimate.name,
            "counts": self.counts._asdict(),
            "estimates": estimates,
        }


@dataclass(frozen=True)
class PanelAgreement:
    """A target compared with the panels that were chosen; means over rounds, exact."""

    target: str
    rounds: int
    same: float  # probability to draw the chosen panel
    overlap: float  # share of the chosen panel's members that are drawn
    jaccard: float  # |both| / |either|
    impossible: int  # rounds whose panel the target cannot draw
    median: float  # median probability of the chosen panel
    costs: Mapping[str, float]
    notes: tuple[str, ...]

    def to_data(self) -> dict[str, Any]:
        return {**vars(self)}


@dataclass(frozen=True)
class EvaluationRefusal:
    """A target about which the log contains too little information; its costs are known."""

    target: str
    reason: str
    costs: Mapping[str, float]
    notes: tuple[str, ...]

    def to_data(self) -> dict[str, Any]:
        return {"reason": self.reason, "costs": self.costs, "notes": self.notes}


@announce_compilation("the evaluation")
def evaluate_target(
    log: DecisionLog,
    target: EvaluationTarget,
    *,
    rewards: tuple[float, float] = (0.0, 1.0),
    level: float = 0.95,
    least: float = importance_weights.MIN_EFFECTIVE_ROUNDS,
) -> Evaluation:
    """Estimate what the target would have earned, and compute what it would have cost.

    Parameters
    ----------
    log
        Decisions with their propensities and rewards.
    target
        The policy to evaluate, see `bylot.evaluate.targets`.
    rewards
        The range that all rewards lie in.
    level
        Confidence level of the intervals.
    least
        Smallest effective number of rounds.

    Returns
    -------
    Evaluation
        Estimates by every estimator that applies, the one to read, diagnostics, and costs.

    Raises
    ------
    InsufficientOverlap
        If the log contains too little information about the target.
    DataError
        If a reward is outside the range.
    """
    check_logged_rewards(log, *rewards)
    used, sample, as_played, how = find_judging_rounds(log, target, least)
    if as_played:  # nothing is weighted
        estimates = [
            estimators.estimate_as_played(sample.rewards, level),
            estimators.estimate_finite_sample(sample.weights, sample.rewards, *rewards, level),
        ]
    else:
        importance_weights.check_overlap(sample, least)
        distributions = list_target_distributions(used, target)
        estimates = compute_estimates(used, distributions, sample, rewards, level)
    return Evaluation(
        target=target.name,
        level=level,
        rewards=rewards,
        counts=sample.counts,
        effective=sample.effective,
        largest_weight=float(sample.weights.max()),
        mean_weight=sample.mean_weight,
        unsupported=sample.unsupported,
        estimates=tuple(one.clip(*rewards) for one in estimates),
        costs=compute_target_costs(log, list_target_distributions(log, target)),
        notes=(
            *filter(None, [how]),
            *note_evaluation_caveats(sample, estimates, rewards),
            *note_costs(log, target),
        ),
    )


def describe_refusal(
    log: DecisionLog, target: EvaluationTarget, error: InsufficientOverlap
) -> EvaluationRefusal:
    return EvaluationRefusal(
        target=target.name,
        reason=str(error),
        costs=compute_target_costs(log, list_target_distributions(log, target)),
        notes=note_costs(log, target),
    )


def compute_estimates(
    log: DecisionLog,
    distributions: list[PanelDistribution],
    sample: WeightedSample,
    rewards: tuple[float, float],
    level: float,
) -> list[estimators.RewardEstimate]:
    """All estimates; draw weights only if both log and target draw independently."""
    w, r = sample.weights, sample.rewards
    low, high = rewards
    strata, at = log.strata
    here = at[sample.rounds]
    numbers: dict[str | None, int] = {}
    context = np.array([numbers.setdefault(one.context, len(numbers)) for one in strata], np.int64)
    predicted, expected = estimators.predict_from_earlier_rounds(
        build_membership_matrix(log, sample.rounds),
        np.array([one.inclusion for one in distributions]),
        here,
        context[here],
        r,
        (low + high) / 2,
    )
    estimates = [
        estimators.estimate_by_weights(w, r, level),
        estimators.estimate_self_normalised(w, r, level),
        estimators.estimate_doubly_robust(w, r, predicted, expected, level),
        estimators.estimate_finite_sample(w, r, low, high, level),
    ]
    if sample.draw_weights is not None:
        by_draws = estimators.estimate_by_weights(
            sample.draw_weights, r, level, estimators.DRAW_WEIGHTS
        )
        estimates.insert(0, by_draws)
    return estimates


def build_membership_matrix(log: DecisionLog, rounds: Ints) -> csr_array:
    """(n, K): 1 for the members of each panel."""
    members = [log.members[n] for n in rounds]
    ends = np.cumsum([0, *(one.size for one in members)])
    flat = np.concatenate(members)
    return csr_array((np.ones(flat.size), flat, ends), shape=(len(members), log.size))


def compute_target_costs(
    log: DecisionLog, distributions: list[PanelDistribution]
) -> dict[str, float]:
    """sum_i c_i P'(i in A), averaged over all rounds: exact."""
    share = np.bincount(log.strata[1]) / len(log.entries)
    inclusion: Floats = share @ np.array([one.inclusion for one in distributions])
    return {name: float(row @ inclusion[: row.size]) for name, row in log.problem.costs.items()}


def check_logged_rewards(log: DecisionLog, low: float, high: float) -> None:
    """Refuse rewards outside the declared range, on which the finite-sample interval rests."""
    if not -math.inf < low < high < math.inf:
        raise DataError(
            "range of rewards", got=(low, high), expected="two finite numbers, low < high"
        )
    for one, place in zip(log.entries, log.places, strict=True):
        if one.reward is not None and not is_reward_in_range(one.reward, low, high):
            raise DataError(
                f"the reward {one.reward:g} of decision {one.id} is outside [{low:g}, {high:g}]",
                line=place,
                remedy="declare the range of rewards with --rewards LOW HIGH (rewards=)",
            )


def note_costs(log: DecisionLog, target: EvaluationTarget) -> tuple[str, ...]:
    """Notes about the costs of a target: experts that have left the pool, and its caveats."""
    if not log.gone:
        return target.caveats
    panels = sum(bool((members >= log.problem.size).any()) for members in log.members)
    return (
        f"{', '.join(log.gone)}: no longer in the pool, so no target asks them; the {panels} "
        "panels with them have weight 0, which is exact",
        *target.caveats,
    )


def note_evaluation_caveats(
    sample: WeightedSample,
    estimates: Sequence[estimators.RewardEstimate],
    rewards: tuple[float, float],
) -> list[str]:
    """Notes that a reader of the estimates needs."""
    counts, notes = sample.counts, []
    if counts.replaced:
        notes.append(
            f"the guard replaced {counts.replaced} panels after seeing the draw: estimates are of "
            "panels that would have passed it, by the mean weight "
            f"{min(1.0, sample.mean_weight):.1%} of the target's"
        )
    if sample.unsupported > 0:
        off = sample.unsupported * (rewards[1] - rewards[0])
        notes.append(f"panels without data in the log may shift the reward by up to {off:.2g}")
    if counts.substituted:
        notes.append(
            f"{counts.substituted} rounds in which a member failed and was replaced are left out; "
            "estimates are of panels whose members answer"
        )
    if counts.unrewarded:
        notes.append(
            f"{counts.unrewarded} rounds without a reward are left out; this is unbiased only if "
            "whether a reward arrives does not depend on the panel or its reward"
        )
    if estimates[-1].interval.low > estimates[-1].interval.high:
        notes.append(
            "no reward is in the finite-sample interval, so it is given as the whole range: the "
            "logged propensities must be wrong"
        )
    return notes


@announce_compilation("the evaluation")
def measure_agreement(log: DecisionLog, target: EvaluationTarget) -> PanelAgreement:
    """Compare a target with the panels of a log, however those were chosen."""
    distributions = list_target_distributions(log, target)
    known: dict[tuple[int, bytes], tuple[float, float, float]] = {}
    rows = []
    for x, members in zip(log.strata[1].tolist(), log.members, strict=True):
        inside = np.zeros(log.size, np.bool_)
        inside[members] = True
        key = (x, inside.tobytes())
        if key not in known:
            known[key] = measure_panel_agreement(distributions[x], inside)
        rows.append(known[key])
    same, overlap, jaccard = np.array(rows).T
    return PanelAgreement(
        target=target.name,
        rounds=len(log.entries),
        same=float(same.mean()),
        overlap=float(overlap.mean()),
        jaccard=float(jaccard.mean()),
        impossible=int((same == 0).sum()),
        median=float(np.median(same)),
        costs=compute_target_costs(log, distributions),
        notes=note_costs(log, target),
    )


def measure_panel_agreement(
    distribution: PanelDistribution, inside: Bools
) -> tuple[float, float, float]:
    """The probability of the same panel, the expected overlap and the expected Jaccard index."""
    counts, size = distribution.group_counts(inside), int(inside.sum())
    both, others = np.indices(counts.shape)
    return (
        float(np.exp(distribution.log_probability(np.flatnonzero(inside)))),
        float((counts * both).sum()) / size,
        float((counts * (both / (size + others))).sum()),
    )


MIN_PANEL_ROUNDS = 40  # in which a panel of the mixture was drawn
MIN_LEVEL_ROUNDS = 20.0  # effective ones: a router that has learned seldom draws other panels


class ReferenceLevel(Struct, frozen=True, kw_only=True):
    """An estimated mean reward with its 95 % interval, or the reason why there is none."""

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


def estimate_reference_levels(
    log: DecisionLog, rewards: tuple[float, float]
) -> list[ReferenceLevel]:
    """Random panels in the whole log; the best mixture of its first half in its second half, so
    that no mixture is judged by the rewards that it was chosen for.
    """
    half = len(log.entries) // 2
    earlier, later = (
        DecisionLog(log.problem, log.entries[part], log.places[part], log.gone)
        for part in (slice(half), slice(half, None))
    )

    def estimate(
        name: str, log: DecisionLog, make: Callable[[], EvaluationTarget]
    ) -> ReferenceLevel:
        try:
            result = evaluate_target(log, make(), rewards=rewards, least=MIN_LEVEL_ROUNDS)
        except BylotError as error:
            return ReferenceLevel(name=name, reason=error.what)
        found = next(one for one in result.estimates if one.name == estimators.DOUBLY_ROBUST)
        return ReferenceLevel(name=name, value=found.value, **found.interval._asdict())

    return [
        estimate("random panels, limits ignored", log, partial(make_uniform_target, log.problem)),
        estimate(
            "best fixed mixture within the limits",
            later,
            partial(make_best_mixture_target, earlier),
        ),
    ]


def make_best_mixture_target(log: DecisionLog) -> EvaluationTarget:
    """The mixture of panels of the log, one for all contexts, with the highest estimated reward
    whose costs keep the limits.

    The reward of a panel is its mean over the rounds that drew it, weighted by 1 / propensity.
    """
    problem, drawn = log.problem, defaultdict(list)
    for n in select_usable_rounds(log)[1].tolist():
        drawn[tuple(sorted(log.members[n].tolist()))].append(log.entries[n])
    if not drawn:
        raise InsufficientOverlap("no decision has both a propensity and a reward")
    most = max(map(len, drawn))
    often = {
        panel: found
        for panel, found in drawn.items()
        if len(found) >= MIN_PANEL_ROUNDS and len(panel) == most and panel[-1] < problem.size
    }
    drawn_often = f"drawn {MIN_PANEL_ROUNDS} times in {len(log.entries):,} decisions"
    if not often:
        raise InsufficientOverlap(f"no panel was {drawn_often}")
    panels = np.array([*often], np.int64)
    values = [
        np.average(
            [entry.reward for entry in found],
            weights=np.exp([-entry.log_propensity for entry in found]),
        )
        for found in often.values()
    ]
    costs = problem.rows[:, panels].sum(axis=2)
    one = np.ones((1, len(panels)))
    chosen = maximise_linear(
        np.array(values),
        -problem.signs[:, None] * costs,
        -problem.signs * problem.bounds,
        one,
        one[0, :1],
        0 * one[0],
        one[0],
    )
    if chosen is None:
        raise InsufficientOverlap(
            f"no mixture of the panels that were {drawn_often} keeps the limits"
        )
    theta = np.full((len(panels), problem.size), -np.inf)
    np.put_along_axis(theta, panels, 0.0, axis=1)

    def find_distribution(context: str | None, available: Bools) -> MixedSets:
        can = chosen.x > 1e-9
        if available.size:
            can &= available[panels].all(axis=1)
        if not can.any():
            raise InsufficientOverlap("no panel of the mixture was available in some decisions")
        parts = [FixedSizeSets(row, most) for row in theta[can]]
        return MixedSets(parts, chosen.x[can] / chosen.x[can].sum())

    return EvaluationTarget("mixture", find_distribution)
