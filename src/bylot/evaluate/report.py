"""The output of `bylot evaluate`: JSON data and text tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bylot._text import format_table
from bylot.evaluate.importance_weights import RoundCounts, select_usable_rounds
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.result import Evaluation, EvaluationRefusal, PanelAgreement
from bylot.problem import Limit
from bylot.router.verdict import judge_average

TargetResult = Evaluation | PanelAgreement | EvaluationRefusal

AGREEMENT_CAVEAT = (
    "Agreement and costs are exact. They say nothing about the rewards of the target's panels: "
    "without propensities, what the existing system knew about a request may explain both the "
    "panel and the reward, and panels that were never chosen have no rewards. To estimate rewards, "
    "draw some panels at random and log their propensities."
)
READING_ADVICE = (
    "Use `doubly robust`. `finite-sample` covers at its level for any number of rounds; the other "
    "intervals may be too short if the effective number of rounds is small. Costs are exact."
)


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
    averages = {"as logged": logged["costs"]} | {
        one.target: one.costs for one in (*found, *refused)
    }
    limits = [
        {
            "limit": limit.to_data(),
            "verdicts": {
                name: judge_average(limit, costs[limit.name]).name
                for name, costs in averages.items()
            },
        }
        for limit in log.problem.limits
    ]
    return {
        "logged": logged,
        "limits": limits,
        "targets": [one.to_data() for one in found],
        "refused": {one.target: one.to_data() for one in refused},
    }


def render_evaluations(
    log: DecisionLog, evaluations: Sequence[Evaluation], refused: Sequence[EvaluationRefusal]
) -> list[str]:
    """Estimates with intervals, coverage by the log, and costs, also of refused targets."""
    both: list[TargetResult] = [*evaluations, *refused]
    return [
        describe_used_rounds(select_usable_rounds(log)[0]),
        "",
        *tabulate_estimates(log, evaluations),
        "",
        *tabulate_coverage(evaluations),
        *tabulate_costs(log, both),
        *merge_notes(both),
        READING_ADVICE if evaluations else "Costs are exact.",
    ]


def tabulate_coverage(evaluations: Sequence[Evaluation]) -> list[str]:
    """How much information the log contains about each target."""
    if not evaluations:
        return []
    rows: list[tuple[str, ...]] = [
        ("target", "effective rounds", "largest weight", "mean weight", "unsupported")
    ]
    for one in evaluations:
        numbers = (one.effective, one.largest_weight, one.mean_weight)
        rows.append((one.target, *(f"{x:.4g}" for x in numbers), f"{one.unsupported:.2%}"))
    return [*format_table(rows), ""]


def merge_notes(found: Sequence[TargetResult]) -> list[str]:
    """Notes common to all targets once, the others with their target."""
    shared = [note for note in found[0].notes if all(note in one.notes for one in found)]
    own = [(one.target, note) for one in found for note in one.notes if note not in shared]
    return [*shared, *(f"{target}: {note}" for target, note in own)]


def tabulate_estimates(log: DecisionLog, evaluations: Sequence[Evaluation]) -> list[str]:
    """Every estimate of every target, below the mean reward of the log."""
    own = summarise_log(log)["reward"]
    interval = (f"{100 * evaluations[0].level:g}% from", "to") if evaluations else ("", "")
    rows: list[tuple[str, ...]] = [("target", "estimate", "reward", "error", *interval)]
    rows += [("as logged", "mean", "" if own is None else f"{own:.4f}", "", "", "")]
    for evaluation in evaluations:
        for n, one in enumerate(evaluation.estimates):
            cells = (f"{x:.4f}" for x in (one.value, one.error, *one.interval))
            rows.append((evaluation.target if n == 0 else "", one.name, *cells))
    return format_table(rows)


def describe_used_rounds(counts: RoundCounts) -> str:
    reasons = (
        (counts.replaced, "replaced by the guard"),
        (counts.unknown_propensity, "without propensity"),
        (counts.unrewarded, "without reward"),
    )
    left = ", ".join(f"{count} {why}" for count, why in reasons if count)
    return f"{counts.used} of {counts.rounds} rounds used{f' (left out: {left})' if left else ''}"


def tabulate_costs(log: DecisionLog, found: Sequence[TargetResult]) -> list[str]:
    own, limits = summarise_log(log)["costs"], log.problem.limits
    rows = [("cost per request", "bound", "as logged", *(one.target for one in found))]
    names = [(limit.name, limit) for limit in limits]
    free = [name for name in log.problem.costs if all(limit.name != name for limit in limits)]
    for name, limit in [*names, *((name, None) for name in free)]:
        bound = "" if limit is None else f"{'<=' if limit.sign < 0 else '>='} {limit.bound:.4g}"
        costs = (own[name], *(one.costs[name] for one in found))
        rows.append((name, bound, *(format_logged_cost(cost, limit) for cost in costs)))
    return [*format_table(rows), ""]


def format_logged_cost(cost: float | None, limit: Limit | None) -> str:
    if cost is None:
        return "-"
    if limit is None:
        return f"{cost:.4g}"
    return f"{cost:.4g} {judge_average(limit, cost).name}"


def render_agreements(log: DecisionLog, found: Sequence[PanelAgreement]) -> list[str]:
    """How targets agree with the chosen panels, and what they would cost."""
    own = summarise_log(log)
    earned = "no rewards" if own["reward"] is None else f"mean reward {own['reward']:.4f}"
    rows: list[tuple[str, ...]] = [
        ("target", "same panel", "overlap", "Jaccard", "median probability", "impossible")
    ]
    for one in found:
        shares = (f"{share:.1%}" for share in (one.same, one.overlap, one.jaccard))
        rows.append((one.target, *shares, f"{one.median:.3g}", str(one.impossible)))
    head = f"{own['rounds']} panels of an existing system ({earned})"
    costs = tabulate_costs(log, found)
    return [head, "", *format_table(rows), "", *costs, *merge_notes(found), AGREEMENT_CAVEAT]
