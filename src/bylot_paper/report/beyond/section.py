"""What the report says past the paper: checks, figures, tables, and sentences made of numbers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from bylot.reports.blocks import (
    FAILS,
    HOLDS,
    UNKNOWN,
    Block,
    Bullets,
    Figure,
    Heading,
    JudgedClaim,
    Paragraph,
    TableBlock,
    Verdicts,
)
from bylot_paper.analysis import GroupKey, RecordGroups, is_synthetic
from bylot_paper.evidence import Evidence
from bylot_paper.plots.beyond import ABLATION_LABELS
from bylot_paper.policy_settings import BEYOND_POLICIES, GUARDED_POLICIES
from bylot_paper.report.beyond import tables, tuning
from bylot_paper.report.beyond.places import HARD_CASES, ablation_keys, comparison_keys, period_keys

BEYOND_CAPTIONS = {
    "beyond": (
        "Reward less the optimum and share of feasible seeds, the paper's policies beside ours",
        "Left: reward less that of the best multinomial policy of the same seed, which is the line "
        "at 0. Right: seeds within all limits with no tolerance.",
    ),
    "beyond-rolling": (
        "Rolling mean reward of the paper's policies and ours at tight limits and at stress",
        "The dotted line is the best multinomial policy in hindsight.",
    ),
    "beyond-regret": (
        "Regret of the paper's policies and ours over the rounds, by level and environment",
        "Axes are logarithmic but linear near 0. Below 0 a policy has earned more than the best "
        "multinomial one would have.",
    ),
    "beyond-periods": (
        "Share of periods outside a limit, and regret, by the length of a period",
        "OMD and TS-BwK know nothing of periods: theirs is one play, looked at in pieces.",
    ),
    "beyond-ablation": (
        "Feasible runs, regret and replaced rounds of our policies without one of their parts",
        "Full marks: stochastic; hollow ones: regime-switching. Bars of the regret are one "
        "standard error of its mean, which tells whether a part matters; in the other figures "
        "they are one standard deviation over seeds.",
    ),
}

BEYOND_NOTES = [
    "Stress is a level of ours: skills are smoothed by 10 annotations of an average worker, "
    "(k + 10 m) / (n + 10) for k of n correct ones where m is the mean skill of the pool in that "
    "dimension; at most 1 expert per round, and a workload of at most 0.8 x 5 x its pool mean. The "
    "paper's levels tell good policies apart by little: many skills are exactly 1, so that a few "
    "workers earn nearly all there is.",
    "Regret is against the best fixed multinomial policy in hindsight under the limits' own "
    "expectation, h(q) = sum of c (1 - (1 - q)^5), not the paper's stricter stand-in. What these "
    "limits allow is not convex: a search from several starts finds the policy, and a ceiling that "
    "no multinomial policy exceeds is proved; at stress there is a gap between the two.",
    "All policies are told the horizon, as OMD is in the paper's runs; settings are the paper's, "
    "or for ours the one default. In periods nobody is told an end; plays are twice as long.",
]


def build_beyond_section(
    evidence: Evidence,
    cells: pl.DataFrame,
    rows: Sequence[JudgedClaim],
    drawn: Mapping[str, Sequence[Path]],
) -> list[Block]:
    """The whole part, as far as its records go."""
    groups = evidence.groups
    found = tuning.collect_sweeps(groups)
    parts: list[tuple[str, list[str], list[str], list[TableBlock | None]]] = [
        (
            "Regret and limits",
            ["beyond", "beyond-rolling", "beyond-regret"],
            [*describe_ranking(groups), *describe_saturation(groups)],
            [
                tables.tabulate_overall(groups),
                tables.tabulate_regret(groups),
                tables.tabulate_feasibility(groups),
            ],
        ),
        (
            "Periods",
            ["beyond-periods"],
            describe_periods(groups),
            [tables.tabulate_periods(groups)],
        ),
        (
            "Without some parts",
            ["beyond-ablation"],
            describe_ablation(groups),
            [tables.tabulate_ablation(groups)],
        ),
        (
            "What a sweep would have gained",
            [],
            describe_tuning(found),
            [tuning.tabulate_settings(found)],
        ),
        ("Optima", [], [], [tables.tabulate_optima(groups)]),
    ]
    blocks: list[Block] = [
        Heading("Beyond the paper"),
        Paragraph(
            "Nothing here is the paper's: policies of ours beside its best, at a harder level too. "
            + count_checks(rows)
        ),
    ]
    tested = [row for row in rows if row.verdict != UNKNOWN]
    untested = [(row.id, row.measured) for row in rows if row.verdict == UNKNOWN]
    blocks += [Verdicts(tested)] if tested else []
    if untested:
        blocks.append(TableBlock("Cannot be tested", ("check", "why"), untested, words=2))
    for title, figures, sentences, filled in parts:
        made = [table for table in filled if table is not None]
        if made:
            blocks.append(Heading(title, 3))
            blocks += [Paragraph(sentence) for sentence in sentences]
            blocks += [
                build_beyond_figure(name, drawn[name], evidence)
                for name in figures
                if drawn.get(name)
            ]
            blocks += made
    refused = tabulate_refusals(cells)
    blocks += [refused] if refused else []
    such = "such runs are listed above, and count nowhere" if refused else "none did here"
    promise = f"A policy may refuse a promise that cannot be kept in so few rounds; {such}."
    return [*blocks, Heading("How it was done", 3), Bullets([*BEYOND_NOTES, promise])]


def count_checks(rows: Sequence[JudgedClaim]) -> str:
    """How the verdicts fell."""
    counts = Counter(row.verdict for row in rows)
    fell = f"{counts[HOLDS]} hold, {counts[FAILS]} do not hold, {counts[UNKNOWN]} cannot be tested"
    return f"Of {len(rows)} checks of our own policies, {fell}."


def build_beyond_figure(name: str, paths: Sequence[Path], evidence: Evidence) -> Figure:
    """A figure with its words."""
    alt, caption = BEYOND_CAPTIONS[name]
    mark = "SYNTHETIC. " if is_synthetic(evidence.run) else ""
    png, svg = paths
    return Figure(png, svg, mark + alt, mark + caption)


def describe_ranking(groups: RecordGroups) -> list[str]:
    """Who loses least, and how often each keeps the limits."""
    whole = [
        policy for policy in BEYOND_POLICIES if tables.has_groups(groups, comparison_keys(policy))
    ]
    if not whole:
        return []
    lost = {
        policy: float(np.mean([groups.values(key, "regret_true").mean() for key in keys]))
        for policy, keys in ((policy, comparison_keys(policy)) for policy in whole)
    }
    order = sorted(lost, key=lambda policy: lost[policy])
    always = [
        policy
        for policy in whole
        if all((groups.values(key, "outside") <= 0).all() for key in comparison_keys(policy))
    ]
    said = ", ".join(f"{policy} {lost[policy]:.4f}" for policy in order)
    kept = ", ".join(always) or "nobody"
    return [f"Mean regret over the eight places: {said}. Within all limits in every run: {kept}."]


def describe_saturation(groups: RecordGroups) -> list[str]:
    """How near the largest reward the optimum is, at the paper's levels and at stress."""
    keys = [key for key in groups if key.experiment == "beyond" and key.policy == "omd"]
    here = [key for key in keys if key.level == "stress"]
    there = [key for key in keys if key.level != "stress"]
    if not (here and there):
        return []
    words = [
        f"{name} the optimum is {format_optimum_share(groups, some)} of the largest reward there is, and equal "
        f"shares earn {format_uniform_share(groups, some)} of the optimum"
        for name, some in (("At the paper's levels", there), ("at stress", here))
    ]
    return [f"{'; '.join(words)}."]


def format_optimum_share(groups: RecordGroups, keys: Sequence[GroupKey]) -> str:
    """The optimum in parts of N, the least and the most of some groups."""
    return format_share_range(
        [groups.values(key, "optimum").mean() / key.dimensions for key in keys]
    )


def format_uniform_share(groups: RecordGroups, keys: Sequence[GroupKey]) -> str:
    """What equal shares earn in parts of the optimum."""
    both = [(groups.values(key, "uniform"), groups.values(key, "optimum")) for key in keys]
    return format_share_range([float((uniform / best).mean()) for uniform, best in both])


def format_share_range(shares: Sequence[float]) -> str:
    """From the least to the most.

    >>> format_share_range([0.9512, 0.9467]), format_share_range([0.9512, 0.9513])
    ('94.7% to 95.1%', '95.1%')
    """
    return " to ".join(dict.fromkeys(f"{end:.1%}" for end in (min(shares), max(shares))))


def format_change(change: float) -> str:
    """A difference with its sign; none where nothing is left of it.

    >>> format_change(0.01234), format_change(-0.00001)
    ('+0.0123', '+0.0000')
    """
    return f"{round(change, 4) + 0.0:+.4f}"


def describe_periods(groups: RecordGroups) -> list[str]:
    """Bad periods of each policy, and what the shortest period costs those that promise it."""
    sentences = []
    for policy in BEYOND_POLICIES:
        keys = period_keys(groups, policy)
        if keys:
            bad = sum(groups.values(key, "bad_periods").sum() for key in keys)
            every = sum(groups.values(key, "periods").sum() for key in keys)
            sentences.append(f"{policy} {bad:.0f} of {every:,.0f}")
    if not sentences:
        return []
    costs = [
        f"{policy} {price}"
        for policy in GUARDED_POLICIES
        if (price := describe_period_cost(groups, policy))
    ]
    told = [f"Periods outside a limit, all lengths and places: {', '.join(sentences)}."]
    if costs:
        told.append(
            f"Regret of short periods less that of one period as long as the play: "
            f"{'; '.join(costs)}."
        )
    return told


def describe_period_cost(groups: RecordGroups, policy: str) -> str:
    """What each shorter period costs in regret, mean over places."""
    keys = period_keys(groups, policy)
    by_length: dict[int, list[float]] = {}
    for key in keys:
        lost = float(groups.values(key, "regret_true").mean())
        by_length.setdefault(key.period or 0, []).append(lost)
    whole = {
        n: float(np.mean(lost)) for n, lost in by_length.items() if len(lost) == len(HARD_CASES)
    }
    if len(whole) < 2:
        return ""
    longest = max(whole)
    short = [
        f"{format_change(whole[n] - whole[longest])} at {n:,}" for n in sorted(whole) if n < longest
    ]
    return ", ".join(short)


def describe_ablation(groups: RecordGroups) -> list[str]:
    """What goes wrong, or better, without each part."""
    sentences = []
    for policy in GUARDED_POLICIES:
        if not tables.has_groups(groups, ablation_keys(policy, "")):
            continue
        base = mean_ablation_regret(groups, policy, "")
        words = []
        for part, name in ABLATION_LABELS.items():
            keys = ablation_keys(policy, part)
            if part and tables.has_groups(groups, keys):
                kept = np.concatenate([groups.values(key, "outside") <= 0 for key in keys])
                change = mean_ablation_regret(groups, policy, part) - base
                words.append(f"{name} {format_change(change)}, {kept.mean():.0%} feasible")
        if words:
            sentences.append(
                f"Change of {policy}'s regret ({base:.4f} as it is), and feasible runs: "
                f"{'; '.join(words)}."
            )
    return sentences


def mean_ablation_regret(groups: RecordGroups, policy: str, part: str) -> float:
    """Mean regret over the four places."""
    keys = ablation_keys(policy, part)
    return float(np.mean([groups.values(key, "regret_true").mean() for key in keys]))


def describe_tuning(found: Sequence[tuning.SettingsSweep]) -> list[str]:
    """What the sweep says, and how much of that is hindsight."""
    if not found:
        return []
    gains = [f"{one.policy} {one.gain:.4f} of {one.default:.4f}" for one in found]
    honest = [f"{one.policy} {format_change(one.gain_elsewhere)}" for one in found]
    return [
        f"The best of these settings would have taken off the regret: {', '.join(gains)}, picked "
        f"on the seeds it is judged by. Picked on all seeds but one and judged on that one: "
        f"{', '.join(honest)}. Every other number here is of the one default."
    ]


def tabulate_refusals(cells: pl.DataFrame) -> TableBlock | None:
    """The runs that a policy would not play, with the reason of the first of each kind."""
    by = ["experiment", "policy", "level", "period"]
    refused = cells.filter(pl.col("refused").is_not_null()).sort("cell")
    if refused.is_empty():
        return None
    kinds = refused.group_by(by).agg(pl.col("refused").first(), pl.len()).sort(by, nulls_last=False)
    rows = [
        (*map(str, row[:3]), str(row[4]), "" if row[3] is None else f"{row[3]:,}", str(row[5]))
        for row in kinds.rows()
    ]
    head = ("experiment", "policy", "level", "why (the first of them)", "period", "runs")
    return TableBlock("Runs that a policy refused", head, rows, words=4)
