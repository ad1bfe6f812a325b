"""What `bylot evaluate` prints: as data for programs, as tables for people."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bylot._text import format_table
from bylot.evaluate.agreement import AGREEMENT_CAVEAT, PanelAgreement
from bylot.evaluate.importance_weights import RoundCounts, select_usable_rounds
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.result import Evaluation, EvaluationRefusal
from bylot.problem import Limit

TargetResult = Evaluation | PanelAgreement | EvaluationRefusal
"""What has a target and its costs."""

READING_ADVICE = (
    "Read `doubly robust`. `certain` covers at its level for any number of rounds; the others may "
    "be too short where a log is worth few. Costs are exact expectations."
)


def summarise_log(log: DecisionLog) -> dict[str, Any]:
    """What was earned and spent in the rounds of the log itself."""
    rewards = [one.reward for one in log.entries if one.reward is not None]
    costs = {}
    for name, row in log.problem.costs.items():
        told = [one.spend[name] for one in log.entries if name in one.spend]
        if len(told) < len(log.entries):  # not told everywhere: by the costs of the problem
            there = [members for members in log.members if (members < row.size).all()]
            told = [float(row[members].sum()) for members in there]
        costs[name] = float(np.mean(told)) if told else None
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
    """For JSON."""
    return {
        "logged": summarise_log(log),
        "targets": [one.plain() for one in found],
        "refused": {one.target: one.plain() for one in refused},
    }


def render_evaluations(
    log: DecisionLog, outcomes: Sequence[Evaluation], refused: Sequence[EvaluationRefusal]
) -> list[str]:
    """Rewards with their intervals, how well the log covers each target, and costs, which are known
    of those that are refused too.
    """
    both: list[TargetResult] = [*outcomes, *refused]
    return [
        describe_used_rounds(select_usable_rounds(log)[0]),
        "",
        *tabulate_estimates(log, outcomes),
        "",
        *tabulate_coverage(outcomes),
        *tabulate_costs(log, both),
        *merge_notes(both),
        READING_ADVICE if outcomes else "Costs are exact expectations.",
    ]


def tabulate_coverage(outcomes: Sequence[Evaluation]) -> list[str]:
    """How much the log says of each target."""
    if not outcomes:
        return []
    cover: list[tuple[str, ...]] = [
        ("target", "worth rounds", "largest weight", "mean weight", "not seen")
    ]
    cover += [
        (
            one.target,
            *(f"{number:.4g}" for number in (one.effective, one.largest, one.passed)),
            f"{one.unseen:.2%}",
        )
        for one in outcomes
    ]
    return [*format_table(cover), ""]


def merge_notes(found: Sequence[TargetResult]) -> list[str]:
    """Notes that hold for all targets once, the others with the target they are of."""
    shared = [note for note in found[0].notes if all(note in one.notes for one in found)]
    own = [(one.target, note) for one in found for note in one.notes if note not in shared]
    return [*shared, *(f"{target}: {note}" for target, note in own)]


def tabulate_estimates(log: DecisionLog, outcomes: Sequence[Evaluation]) -> list[str]:
    """Every estimate of every target, under what was earned in fact."""
    own = summarise_log(log)["reward"]
    interval = (f"{100 * outcomes[0].level:g} % from", "to") if outcomes else ("", "")
    rows: list[tuple[str, ...]] = [("target", "estimate", "reward", "error", *interval)]
    rows += [("as logged", "mean", "" if own is None else f"{own:.4f}", "", "", "")]
    for outcome in outcomes:
        for n, one in enumerate(outcome.estimates):
            cells = (f"{number:.4f}" for number in (one.value, one.error, *one.interval))
            rows.append((outcome.target if n == 0 else "", one.name, *cells))
    return format_table(rows)


def describe_used_rounds(counted: RoundCounts) -> str:
    """How many rounds were used, and why not the others."""
    left = [
        f"{count} {why}"
        for count, why in (
            (counted.replaced, "replaced by the guard"),
            (counted.untold, "without propensity"),
            (counted.unrewarded, "without reward"),
        )
        if count
    ]
    tail = f" (left out: {', '.join(left)})" if left else ""
    return f"{counted.used} of {counted.rounds} rounds used{tail}"


def tabulate_costs(log: DecisionLog, found: Sequence[TargetResult]) -> list[str]:
    """Expected cost per request of each target, beside the bounds."""
    own, limits = summarise_log(log)["costs"], log.problem.limits  # None where nobody knows
    rows = [("cost per request", "bound", "as logged", *(one.target for one in found))]
    for limit in limits:
        side = "<=" if limit.sign < 0 else ">="
        spent = (own[limit.name], *(one.costs[limit.name] for one in found))
        cells = [format_logged_cost(cost, limit) for cost in spent]
        rows.append((limit.name, f"{side} {limit.bound:.4g}", *cells))
    for name in log.problem.costs:
        if all(limit.name != name for limit in limits):
            spent = (own[name], *(one.costs[name] for one in found))
            rows.append((name, "", *("-" if cost is None else f"{cost:.4g}" for cost in spent)))
    return [*format_table(rows), ""]


def format_logged_cost(cost: float | None, limit: Limit) -> str:
    """A cost, and whether it keeps a limit."""
    if cost is None:
        return "-"
    kept = limit.sign * (cost - limit.bound) >= -1e-9 * limit.bound
    return f"{cost:.4g} {'kept' if kept else 'outside'}"


def render_agreements(log: DecisionLog, found: Sequence[PanelAgreement]) -> list[str]:
    """How laws agree with the panels that were chosen, and what they would cost."""
    own = summarise_log(log)
    earned = "no rewards" if own["reward"] is None else f"mean reward {own['reward']:.4f}"
    rows: list[tuple[str, ...]] = [
        ("law", "same panel", "overlap", "Jaccard", "median chance", "impossible")
    ]
    for one in found:
        cells = (f"{share:.1%}" for share in (one.same, one.overlap, one.jaccard))
        rows.append((one.target, *cells, f"{one.median:.3g}", str(one.never)))
    head = f"{own['rounds']} panels that were chosen otherwise ({earned})"
    return [
        head,
        "",
        *format_table(rows),
        "",
        *tabulate_costs(log, found),
        *merge_notes(found),
        AGREEMENT_CAVEAT,
    ]
