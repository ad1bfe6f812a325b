"""The part of the report that goes beyond the paper: our policies beside its best ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from bylot.reports.blocks import Block, Bullets, Heading, JudgedClaim, Paragraph
from bylot_paper.analysis import GroupKey, RecordGroups, RunManifest
from bylot_paper.plots.beyond import ABLATION_LABELS
from bylot_paper.policy_settings import BEYOND_POLICIES, GUARDED_POLICIES
from bylot_paper.report import beyond_tables as tables
from bylot_paper.report.beyond_tables import (
    HARD_CASES,
    SettingsSweep,
    ablation_keys,
    comparison_keys,
    has_groups,
    list_period_keys,
    mean_regret,
)
from bylot_paper.report.formatting import (
    TEXTS,
    build_figure,
    build_verdicts,
    count_verdicts,
    tabulate_refusals,
    tabulate_untested,
)


def build_beyond_section(
    cells: pl.DataFrame,
    run: RunManifest,
    checks: Sequence[JudgedClaim],
    figures: Mapping[str, Sequence[Path]],
) -> list[Block]:
    """Checks, then each topic with its figures, sentences and tables, as far as records go."""
    groups = RecordGroups(cells)
    sweeps = tables.collect_sweeps(groups)
    parts: list[tuple[str, list[str], list[str], list[Block]]] = [
        (
            "Regret and limits",
            ["beyond", "beyond-rolling", "beyond-regret"],
            [*describe_ranking(groups), *describe_saturation(groups)],
            tables.tabulate_overall(groups)
            + tables.tabulate_regret(groups)
            + tables.tabulate_feasibility(groups),
        ),
        ("Periods", ["beyond-periods"], describe_periods(groups), tables.tabulate_periods(groups)),
        (
            "Ablation",
            ["beyond-ablation"],
            describe_ablation(groups),
            tables.tabulate_ablation(groups),
        ),
        (
            "What a sweep over settings would have gained",
            [],
            describe_tuning(sweeps),
            tables.tabulate_settings(sweeps),
        ),
        ("Optima", [], [], tables.tabulate_optima(groups)),
    ]
    blocks: list[Block] = [
        Heading("Beyond the paper"),
        Paragraph(
            "This part is not about the paper: it compares our own policies with its best, also at "
            f"a harder level. {count_checks(checks)}"
        ),
        *build_verdicts(checks),
        *tabulate_untested("Cannot be tested", "check", checks),
    ]
    for title, names, sentences, filled in parts:
        if filled:
            blocks += [Heading(title, 3), *map(Paragraph, sentences)]
            for name in names:
                blocks += build_figure(name, figures[name], run)
            blocks += filled
    refused = tabulate_refusals(cells)
    such = "such runs are listed above and not counted" if refused else "none did here"
    note = f"A policy may refuse limits that it cannot guarantee in so few rounds; {such}."
    return [
        *blocks,
        *refused,
        Heading("How it was done", 3),
        Bullets([*TEXTS["notes"]["beyond"], note]),
    ]


def count_checks(checks: Sequence[JudgedClaim]) -> str:
    """How many checks hold."""
    return count_verdicts(checks, "checks of our own policies")


def describe_ranking(groups: RecordGroups) -> list[str]:
    """The policies by regret, and those that keep all limits in every run."""
    lost = {
        policy: mean_regret(groups, comparison_keys(policy))
        for policy in BEYOND_POLICIES
        if has_groups(groups, comparison_keys(policy))
    }
    if not lost:
        return []
    always = [
        policy
        for policy in lost
        if all((groups.values(key, "outside") <= 0).all() for key in comparison_keys(policy))
    ]
    ranked = ", ".join(f"{name} {lost[name]:.4f}" for name in sorted(lost, key=lost.__getitem__))
    kept = ", ".join(always) or "none"
    return [f"Mean regret over the eight cases: {ranked}. Within all limits in every run: {kept}."]


def describe_saturation(groups: RecordGroups) -> list[str]:
    """How near the optimum is to the largest reward, at the paper's levels and at stress."""
    keys = [key for key in groups if key.experiment == "beyond" and key.policy == "omd"]
    stress = [key for key in keys if key.level == "stress"]
    paper = [key for key in keys if key.level != "stress"]
    if not (stress and paper):
        return []

    def describe(name: str, some: Sequence[GroupKey]) -> str:
        best = [groups.values(key, "optimum").mean() / key.dimensions for key in some]
        even = [
            float((groups.values(key, "uniform") / groups.values(key, "optimum")).mean())
            for key in some
        ]
        return (
            f"{name} the optimum is {format_share_range(best)} of the largest possible reward, and "
            f"equal shares earn {format_share_range(even)} of the optimum"
        )

    levels = {"At the paper's levels": paper, "at stress": stress}
    return [f"{'; '.join(describe(name, some) for name, some in levels.items())}."]


def format_share_range(shares: Sequence[float]) -> str:
    """From the smallest to the largest.

    >>> format_share_range([0.9512, 0.9467]), format_share_range([0.9512, 0.9513])
    ('94.7% to 95.1%', '95.1%')
    """
    return " to ".join(dict.fromkeys(f"{end:.1%}" for end in (min(shares), max(shares))))


def format_change(change: float) -> str:
    """A difference with its sign; zero is positive.

    >>> format_change(0.01234), format_change(-0.00001)
    ('+0.0123', '+0.0000')
    """
    return f"{round(change, 4) + 0.0:+.4f}"


def describe_periods(groups: RecordGroups) -> list[str]:
    """Bad periods of each policy, and the regret that short periods cost the guarded ones."""
    bad = []
    for policy in BEYOND_POLICIES:
        if keys := list_period_keys(groups, policy):
            left, total = (
                sum(groups.values(key, column).sum() for key in keys)
                for column in ("bad_periods", "periods")
            )
            bad.append(f"{policy} {left:.0f} of {total:,.0f}")
    if not bad:
        return []
    sentences = [f"Periods outside a limit, all lengths and cases: {', '.join(bad)}."]
    costs = [
        f"{policy} {cost}" for policy in GUARDED_POLICIES if (cost := describe_cost(groups, policy))
    ]
    if costs:
        sentences.append(
            "Regret of short periods minus that of one period as long as the run: "
            f"{'; '.join(costs)}."
        )
    return sentences


def describe_cost(groups: RecordGroups, policy: str) -> str:
    """What each shorter period costs in regret, mean over cases."""
    by_length: dict[int, list[GroupKey]] = {}
    for key in list_period_keys(groups, policy):
        by_length.setdefault(key.period or 0, []).append(key)
    lost = {
        length: mean_regret(groups, keys)
        for length, keys in sorted(by_length.items())
        if len(keys) == len(HARD_CASES)
    }
    *short, longest = lost or [0]
    return ", ".join(f"{format_change(lost[n] - lost[longest])} at {n:,}" for n in short)


def describe_ablation(groups: RecordGroups) -> list[str]:
    """How regret and feasibility change without each part."""
    sentences = []
    for policy in GUARDED_POLICIES:
        if not has_groups(groups, ablation_keys(policy, "")):
            continue
        base = mean_regret(groups, ablation_keys(policy, ""))
        words = []
        for part, name in ABLATION_LABELS.items():
            keys = ablation_keys(policy, part)
            if part and has_groups(groups, keys):
                kept = np.concatenate([groups.values(key, "outside") <= 0 for key in keys])
                change = format_change(mean_regret(groups, keys) - base)
                words.append(f"{name} {change}, {kept.mean():.0%} feasible")
        if words:
            sentences.append(
                f"Change of {policy}'s regret ({base:.4f} if complete), and feasible runs: "
                f"{'; '.join(words)}."
            )
    return sentences


def describe_tuning(sweeps: Sequence[SettingsSweep]) -> list[str]:
    """What the best settings would have gained, and how much of that is hindsight."""
    if not sweeps:
        return []
    gains = [f"{one.policy} {one.gain:.4f} of {one.default:.4f}" for one in sweeps]
    elsewhere = [f"{one.policy} {format_change(one.gain_elsewhere)}" for one in sweeps]
    return [
        f"The best of these settings would have reduced the regret by: {', '.join(gains)}, chosen "
        f"on the seeds it is judged by. Chosen on all seeds but one and judged on that one: "
        f"{', '.join(elsewhere)}. Every other number here is for the one default."
    ]
