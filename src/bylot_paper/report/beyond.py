"""The part of the report that goes beyond the paper: checks and comparisons of our own policies."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import polars as pl

from bylot.numerics.jit import Floats
from bylot.reports.pages import Block, Bullets, Heading, Paragraph
from bylot_paper import analysis, grid
from bylot_paper.analysis import CASES, HARD_CASES, GroupKey, RecordGroups, RunManifest
from bylot_paper.claims.judge import UNKNOWN, JudgedClaim
from bylot_paper.report import formatting
from bylot_paper.report.figures import DrawnFigures
from bylot_paper.report.formatting import NO_VALUE, fill_table, format_mean_error


def build_beyond_section(
    cells: pl.DataFrame, run: RunManifest, checks: Sequence[JudgedClaim], figures: DrawnFigures
) -> list[Block]:
    """Checks, then each topic with its figures, sentences and tables, as far as records go."""
    groups = RecordGroups(cells)
    parts: list[tuple[str, list[str], list[str], list[Block]]] = [
        (
            "Regret and limits",
            ["beyond", "beyond-rolling", "beyond-regret"],
            [*describe_ranking(groups), *describe_saturation(groups)],
            [
                *tabulate_overall(groups),
                *tabulate_by_case(groups, "regret-by-case", "regret_true", format_mean_error),
                *tabulate_by_case(groups, "kept-by-case", "outside", formatting.format_kept),
            ],
        ),
        ("Periods", ["beyond-periods"], describe_periods(groups), tabulate_periods(groups)),
        ("Ablation", ["beyond-ablation"], describe_ablation(groups), tabulate_ablation(groups)),
        ("Optima", [], [], tabulate_optima(groups)),
    ]
    tested = [row for row in checks if row.verdict != UNKNOWN]
    blocks: list[Block] = [
        Heading("Beyond the paper"),
        Paragraph(
            "This part is not about the paper: it compares our own policies with its best, also at "
            f"a harder level. {count_checks(checks)}"
        ),
        *([formatting.Verdicts(tested)] if tested else []),
        *formatting.tabulate_untested("Cannot be tested", "check", checks),
    ]
    for title, names, sentences, tables in parts:
        if tables:
            blocks += [Heading(title, 3), *map(Paragraph, sentences)]
            for name in names:
                blocks += formatting.build_figure(name, figures[name], run)
            blocks += tables
    refused = formatting.tabulate_refusals(cells)
    such = "such runs are listed above and not counted" if refused else "none did here"
    notes = [
        *formatting.TEXTS["notes"]["beyond"],
        f"A policy may refuse limits that it cannot guarantee in so few rounds; {such}.",
    ]
    return [*blocks, *refused, Heading("How it was done", 3), Bullets(notes)]


def count_checks(checks: Sequence[JudgedClaim]) -> str:
    return formatting.count_claim_verdicts(checks, "checks of our own policies")


def has_groups(groups: RecordGroups, keys: Sequence[GroupKey]) -> bool:
    return all(key in groups for key in keys)


def mean_regret(groups: RecordGroups, keys: Sequence[GroupKey]) -> float:
    return float(np.mean([groups.read(key, "regret_true").mean() for key in keys]))


def describe_ranking(groups: RecordGroups) -> list[str]:
    """The policies by regret, and those that keep all limits in every run."""
    keys = {policy: analysis.comparison_keys(policy) for policy in grid.BEYOND_POLICIES}
    lost = {x: mean_regret(groups, keys[x]) for x in keys if has_groups(groups, keys[x])}
    if not lost:
        return []
    always = [x for x in lost if all((groups.read(key, "outside") <= 0).all() for key in keys[x])]
    ranked = ", ".join(f"{name} {lost[name]:.4f}" for name in sorted(lost, key=lost.__getitem__))
    return [
        f"Mean regret over the eight cases: {ranked}. Within all limits in every run: "
        f"{', '.join(always) or 'none'}."
    ]


def describe_saturation(groups: RecordGroups) -> list[str]:
    """How near the optimum is to the largest reward, at the paper's levels and at stress."""
    keys = [key for key in groups if key.experiment == "beyond" and key.policy == "omd"]
    levels = {
        "At the paper's levels": [key for key in keys if key.level != "stress"],
        "at stress": [key for key in keys if key.level == "stress"],
    }
    if not all(levels.values()):
        return []
    parts = []
    for name, some in levels.items():
        optima = {key: groups.read(key, "optimum") for key in some}
        best = [values.mean() / key.dimensions for key, values in optima.items()]
        even = [(groups.read(key, "uniform") / optima[key]).mean() for key in some]
        parts.append(
            f"{name} the optimum is {format_share_range(best)} of the largest possible reward, "
            f"and equal shares earn {format_share_range(even)} of the optimum"
        )
    return [f"{'; '.join(parts)}."]


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
    bad, costs = [], []
    for policy in grid.BEYOND_POLICIES:
        if keys := analysis.list_period_keys(groups, policy):
            left, total = (
                sum(groups.read(key, column).sum() for key in keys)
                for column in ("bad_periods", "periods")
            )
            bad.append(f"{policy} {left:.0f} of {total:,.0f}")
    for policy in grid.GUARDED_POLICIES:
        by_length: dict[int, list[GroupKey]] = {}
        for key in analysis.list_period_keys(groups, policy):
            by_length.setdefault(key.period or 0, []).append(key)
        whole = {n: keys for n, keys in by_length.items() if len(keys) == len(HARD_CASES)}
        lost = {length: mean_regret(groups, whole[length]) for length in sorted(whole)}
        *short, longest = lost or [0]
        if short:
            changes = (f"{format_change(lost[n] - lost[longest])} at {n:,}" for n in short)
            costs.append(f"{policy} {', '.join(changes)}")
    sentences = {
        "Periods outside a limit, all lengths and cases": ", ".join(bad),
        "Regret of short periods minus that of one period as long as the run": "; ".join(costs),
    }
    return [f"{what}: {said}." for what, said in sentences.items() if said]


def describe_ablation(groups: RecordGroups) -> list[str]:
    """How regret and feasibility change without each part."""
    sentences = []
    for policy in grid.GUARDED_POLICIES:
        if not has_groups(groups, analysis.ablation_keys(policy, "")):
            continue
        base = mean_regret(groups, analysis.ablation_keys(policy, ""))
        words = []
        for part, name in grid.ABLATION_LABELS.items():
            keys = analysis.ablation_keys(policy, part)
            if part and has_groups(groups, keys):
                kept = np.concatenate([groups.read(key, "outside") <= 0 for key in keys])
                change = format_change(mean_regret(groups, keys) - base)
                words.append(f"{name} {change}, {kept.mean():.0%} feasible")
        if words:
            sentences.append(
                f"Change of {policy}'s regret ({base:.4f} if complete), and feasible runs: "
                f"{'; '.join(words)}."
            )
    return sentences


def tabulate_overall(groups: RecordGroups) -> list[Block]:
    """One row per policy: all eight cases together."""
    rows = []
    for policy in grid.BEYOND_POLICIES:
        keys, omd = analysis.comparison_keys(policy), analysis.comparison_keys("omd")
        if not has_groups(groups, keys):
            continue
        ours, theirs = (
            np.array([groups.read(key, "regret_true").mean() for key in some if key in groups])
            for some in (keys, omd)
        )
        parts = (NO_VALUE, NO_VALUE)
        if has_groups(groups, omd):
            parts = f"{ours.mean() / theirs.mean():.2f}", f"{(ours / theirs).max():.2f}"
        outside = [groups.read(key, "outside") for key in keys]
        least = min((values <= 0).mean() for values in outside)
        kept = formatting.format_kept(np.concatenate(outside))
        rows.append((policy, f"{ours.mean():.4f}", *parts, kept, f"{100 * least:.0f}%"))
    return fill_table("overall", rows)


def tabulate_by_case(
    groups: RecordGroups, table: str, column: str, form: Callable[[Floats], str]
) -> list[Block]:
    """One row per case, one column per policy."""
    keys = {policy: analysis.comparison_keys(policy) for policy in grid.BEYOND_POLICIES}
    shown = [policy for policy in keys if any(key in groups for key in keys[policy])]
    rows = []
    for n, (level, environment) in enumerate(CASES):
        of_case = [keys[policy][n] for policy in shown]
        if any(key in groups for key in of_case):
            rows.append((level, environment, *(form(groups.read(key, column)) for key in of_case)))
    return fill_table(table, rows, shown)


def tabulate_optima(groups: RecordGroups) -> list[Block]:
    """One row per case: the optimum, how sure it is, and what equal shares earn of it."""
    rows = []
    for n, (level, environment) in enumerate(CASES):
        keys = (analysis.comparison_keys(policy)[n] for policy in grid.BEYOND_POLICIES)
        if key := next((key for key in keys if key in groups), None):
            best, gap, spread, uniform = (
                groups.read(key, column)
                for column in ("optimum", "optimum_gap", "optimum_spread", "uniform")
            )
            rows.append(
                (
                    level,
                    environment,
                    f"{best.mean():.4f}",
                    f"{100 * (uniform / best).mean():.1f}%",
                    f"{gap.mean():.4f}",
                    f"{gap.max():.4f}",
                    f"{spread.max():.0e}",
                )
            )
    return fill_table("optima", rows)


def tabulate_periods(groups: RecordGroups) -> list[Block]:
    """One row per policy and case: bad periods and regret at each length."""
    lengths = sorted({key.period or 0 for key in groups if key.experiment == "periods"})
    rows = []
    for policy, (level, environment) in product(grid.BEYOND_POLICIES, HARD_CASES):
        keys = [GroupKey("periods", environment, level, policy, 3, length) for length in lengths]
        if any(key in groups for key in keys):
            bad = [
                f"{groups[key]['bad_periods'].sum()}/{groups[key]['periods'].sum()}"
                if key in groups
                else NO_VALUE
                for key in keys
            ]
            lost = (formatting.format_mean(groups.read(key, "regret_true")) for key in keys)
            rows.append((policy, level, environment, *bad, *lost))
    columns = [f"{what}, P = {length:,}" for what in ("bad", "regret") for length in lengths]
    return fill_table("periods", rows, columns)


def tabulate_ablation(groups: RecordGroups) -> list[Block]:
    """One row per policy and missing part: regret by case, limits and guard over all cases."""
    rows = []
    for policy, (part, name) in product(grid.GUARDED_POLICIES, grid.ABLATION_LABELS.items()):
        keys = analysis.ablation_keys(policy, part)
        if has_groups(groups, keys):
            outside = np.concatenate([groups.read(key, "outside") for key in keys])
            rounds = np.mean([groups.read(key, "replaced").mean() for key in keys])
            lost = (format_mean_error(groups.read(key, "regret_true")) for key in keys)
            rows.append((policy, name, *lost, formatting.format_kept(outside), f"{rounds:.1f}"))
    cases = map(" ".join, HARD_CASES)
    return fill_table("ablation", rows, [*cases, "runs within all limits", "rounds replaced"])
