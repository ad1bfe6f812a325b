"""The output of `bylot evaluate`: JSON data, sentences and tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bylot._text import format_table
from bylot.evaluate.estimators import AS_PLAYED, DOUBLY_ROBUST, FINITE_SAMPLE
from bylot.evaluate.importance_weights import (
    MIN_EFFECTIVE_ROUNDS,
    RoundCounts,
    select_usable_rounds,
)
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.result import Evaluation, EvaluationRefusal, PanelAgreement
from bylot.limits.verdict import judge_average
from bylot.outcome_tables.outcomes import list_names
from bylot.problem import Limit

TargetResult = Evaluation | PanelAgreement | EvaluationRefusal

AGREEMENT_CAVEAT = (
    "Agreement and costs are exact. They say nothing about the rewards of the target's panels: "
    "without propensities, what the existing system knew about a request may explain both the "
    "panel and the reward, and panels that were never chosen have no rewards. To estimate rewards, "
    "draw some panels at random and log their propensities."
)
ESTIMATE_REASONS = {
    DOUBLY_ROBUST: "unbiased, and usually the most precise. Its interval is asymptotic.",
    AS_PLAYED: "the mean reward of rounds whose panels were drawn from distributions close to this "
    "one, before their rewards were known. Its interval is asymptotic.",
    FINITE_SAMPLE: "its interval covers at its level for any number of rounds; with fewer than "
    f"{MIN_EFFECTIVE_ROUNDS:g} effective rounds the others may be too short.",
}
"""Why an estimate is the one to read."""


def summarise_log(log: DecisionLog) -> dict[str, Any]:
    rewards = [one.reward for one in log.entries if one.reward is not None]
    costs = {}
    for name, row in log.problem.costs.items():
        spent = [one.spend[name] for one in log.entries if name in one.spend]
        if len(spent) < len(log.entries):  # not logged everywhere: the costs of the problem
            known = [members for members in log.members if (members < row.size).all()]
            spent = [float(row[members].sum()) for members in known]
        costs[name] = float(np.mean(spent)) if spent else None
    return {
        "rounds": len(log.entries),
        "rewards": len(rewards),
        "reward": float(np.mean(rewards)) if rewards else None,
        "costs": costs,
    }


def evaluations_to_data(
    log: DecisionLog,
    found: Sequence[Evaluation | PanelAgreement],
    refused: Sequence[EvaluationRefusal],
) -> dict[str, Any]:
    logged = summarise_log(log)
    costs = {one.target: one.costs for one in (*found, *refused)}
    return {
        "logged": logged,
        "limits": [limit.to_data() for limit in log.problem.limits],
        "verdicts": {
            name: [judge_average(limit, means[limit.name]).name for limit in log.problem.limits]
            for name, means in {"as logged": logged["costs"], **costs}.items()
        },
        "targets": [one.to_data() for one in found],
        "refused": {one.target: one.to_data() for one in refused},
    }


def render_evaluations(
    log: DecisionLog,
    evaluations: Sequence[Evaluation],
    refused: Sequence[EvaluationRefusal],
    details: bool,
) -> list[str]:
    """The estimate to read of each target, and costs, also of refused ones; details on demand."""
    both: list[TargetResult] = [*evaluations, *refused]
    names = dict.fromkeys(one.main_estimate.name for one in evaluations)
    lines = [
        *(describe_evaluation(log, one) for one in evaluations),
        *(f"{one.target}: no estimate, as the log says too little about it" for one in refused),
        describe_used_rounds(select_usable_rounds(log)[0], summarise_log(log)["reward"]),
        *(f"{name}: {ESTIMATE_REASONS[name]}" for name in names),
        "",
    ]
    if details:
        lines += [*tabulate_estimates(log, evaluations), "", *tabulate_coverage(evaluations)]
    lines += [*tabulate_costs(log, both), *merge_notes(both)]
    if not details:
        lines.append("Use --details for all estimates and how well the log covers them.")
    return lines


def describe_evaluation(log: DecisionLog, one: Evaluation) -> str:
    """The estimate to read in a sentence, against the log and the limits."""
    name, value, _, (low, high) = one.main_estimate
    own, limits = summarise_log(log)["reward"], log.problem.limits
    outside = [x.name for x in limits if not judge_average(x, one.costs[x.name]).kept]
    verdict = (
        f"outside {len(outside)} of {len(limits)} limits ({list_names(outside)})"
        if outside
        else "inside all limits"
    )
    costs = f"its costs are {verdict}" if limits else "nothing is limited"
    interval = f"{name}, {100 * one.level:g}% interval {low:.4g} to {high:.4g}"
    if (low, high) == one.rewards:
        return f"The log does not say what {one.target} would have earned ({interval}); {costs}."
    side = "more than" if low > own else "less than" if high < own else "not clearly different from"
    return (
        f"{one.target} would have earned {value:.4g} per request ({interval}), {side} the log "
        f"({own:.4g}); {costs}."
    )


def tabulate_coverage(evaluations: Sequence[Evaluation]) -> list[str]:
    """How much information the log contains about each target."""
    if not evaluations:
        return []
    rows: list[tuple[str, ...]] = [
        ("target", "effective rounds", "largest weight", "mean weight", "unsupported")
    ]
    rows += [
        (
            one.target,
            f"{one.effective:.4g}",
            f"{one.largest_weight:.4g}",
            f"{one.mean_weight:.4g}",
            f"{one.unsupported:.2%}",
        )
        for one in evaluations
    ]
    return [*format_table(rows), ""]


def merge_notes(found: Sequence[TargetResult]) -> list[str]:
    """Notes common to all targets once, the others with their target."""
    shared = [note for note in found[0].notes if all(note in one.notes for one in found)]
    return [
        *shared,
        *(f"{one.target}: {note}" for one in found for note in one.notes if note not in shared),
    ]


def tabulate_estimates(log: DecisionLog, evaluations: Sequence[Evaluation]) -> list[str]:
    """Every estimate of every target, below the mean reward of the log."""
    own = summarise_log(log)["reward"]
    ends = (f"{100 * evaluations[0].level:g}% from", "to") if evaluations else ("", "")
    rows: list[tuple[str, ...]] = [("target", "estimate", "reward", "error", *ends)]
    rows += [("as logged", "mean", "" if own is None else f"{own:.4f}", "", "", "")]
    for evaluation in evaluations:
        target = evaluation.target
        for name, value, error, interval in evaluation.estimates:
            rows.append((target, name, *(f"{x:.4f}" for x in (value, error, *interval))))
            target = ""
    return format_table(rows)


def describe_used_rounds(counts: RoundCounts, reward: float | None) -> str:
    reasons = (
        (counts.replaced, "replaced by the guard"),
        (counts.substituted, "with a member that failed and was replaced"),
        (counts.unknown_propensity, "without propensity"),
        (counts.unrewarded, "without reward"),
    )
    left = ", ".join(f"{count} {why}" for count, why in reasons if count)
    used = f"{counts.used} of {counts.rounds} rounds used{f' (left out: {left})' if left else ''}"
    return used if reward is None else f"{used}; mean reward as logged: {reward:.4g}"


def tabulate_costs(log: DecisionLog, found: Sequence[TargetResult]) -> list[str]:
    logged = summarise_log(log)["costs"]
    rows = [("cost per request", "bound", "as logged", *(one.target for one in found))]
    limited = [(limit.name, limit) for limit in log.problem.limits]
    free = [(name, None) for name in log.problem.costs if name not in dict(limited)]
    for name, limit in [*limited, *free]:
        bound = "" if limit is None else f"{'<=' if limit.sign < 0 else '>='} {limit.bound:.4g}"
        costs = (logged[name], *(one.costs[name] for one in found))
        rows.append((name, bound, *(format_logged_cost(cost, limit) for cost in costs)))
    return [*format_table(rows), ""]


def format_logged_cost(cost: float | None, limit: Limit | None) -> str:
    if cost is None:
        return "-"
    return f"{cost:.4g}" if limit is None else f"{cost:.4g} {judge_average(limit, cost).name}"


def render_agreements(log: DecisionLog, found: Sequence[PanelAgreement]) -> list[str]:
    """How targets agree with the chosen panels, and what they would cost."""
    own = summarise_log(log)
    earned = "no rewards" if own["reward"] is None else f"mean reward {own['reward']:.4f}"
    rows = [("target", "same panel", "overlap", "Jaccard", "median probability", "impossible")]
    rows += [
        (
            one.target,
            f"{one.same:.1%}",
            f"{one.overlap:.1%}",
            f"{one.jaccard:.1%}",
            f"{one.median:.3g}",
            str(one.impossible),
        )
        for one in found
    ]
    return [
        f"{own['rounds']} panels of an existing system ({earned})",
        "",
        *format_table(rows),
        "",
        *tabulate_costs(log, found),
        *merge_notes(found),
        AGREEMENT_CAVEAT,
    ]
