"""The part of the report that goes beyond the paper: checks, comparisons of our own policies, and
figures of them in periods and without one of their parts.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.harness import seed_std
from bylot.numerics.jit import Floats
from bylot.reports import (
    BEYOND_POLICY_STYLES,
    GREY,
    Block,
    Bullets,
    Heading,
    Paragraph,
    make_panels,
    put_legend,
    save_figure,
)
from bylot_paper import analysis, grid
from bylot_paper.claims.judge import UNKNOWN, JudgedClaim
from bylot_paper.report.figures import (
    BEYOND_LEVEL_STYLES,
    ENVIRONMENT_LABELS,
    DrawnFigures,
    make_handle,
    separate,
)
from bylot_paper.report.formatting import (
    NO_VALUE,
    TEXTS,
    Verdicts,
    build_figure,
    count_claim_verdicts,
    fill_table,
    format_kept,
    format_mean,
    format_mean_error,
    tabulate_refusals,
    tabulate_untested,
)


def build_beyond_section(
    cells: pl.DataFrame,
    run: analysis.RunManifest,
    checks: Sequence[JudgedClaim],
    figures: DrawnFigures,
) -> list[Block]:
    """Checks, then each topic with its figures, sentences and tables, as far as records go."""
    groups = analysis.RecordGroups(cells)
    parts: list[tuple[str, list[str], list[str], list[Block]]] = [
        (
            "Regret and limits",
            ["beyond", "beyond-rolling", "beyond-regret"],
            [*describe_ranking(groups), *describe_saturation(groups)],
            [
                *tabulate_overall(groups),
                *tabulate_by_case(groups, "regret-by-case", "regret_true", format_mean_error),
                *tabulate_by_case(groups, "kept-by-case", "outside", format_kept),
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
        *([Verdicts(tested)] if tested else []),
        *tabulate_untested("Cannot be tested", "check", checks),
    ]
    for title, names, sentences, tables in parts:
        if tables:
            blocks += [Heading(title, 3), *map(Paragraph, sentences)]
            for name in names:
                blocks += build_figure(name, figures[name], run)
            blocks += tables
    refused = tabulate_refusals(cells)
    such = "such runs are listed above and not counted" if refused else "none did here"
    notes = [
        *TEXTS["notes"]["beyond"],
        f"A policy may refuse limits that it cannot guarantee in so few rounds; {such}.",
    ]
    return [*blocks, *refused, Heading("How it was done", 3), Bullets(notes)]


def count_checks(checks: Sequence[JudgedClaim]) -> str:
    return count_claim_verdicts(checks, "checks of our own policies")


def has_groups(groups: analysis.RecordGroups, keys: Sequence[analysis.GroupKey]) -> bool:
    return all(key in groups for key in keys)


def mean_regret(groups: analysis.RecordGroups, keys: Sequence[analysis.GroupKey]) -> float:
    return float(np.mean([groups.read(key, "regret_true").mean() for key in keys]))


def describe_ranking(groups: analysis.RecordGroups) -> list[str]:
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


def describe_saturation(groups: analysis.RecordGroups) -> list[str]:
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


def describe_periods(groups: analysis.RecordGroups) -> list[str]:
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
        by_length: dict[int, list[analysis.GroupKey]] = {}
        for key in analysis.list_period_keys(groups, policy):
            by_length.setdefault(key.period or 0, []).append(key)
        whole = {n: keys for n, keys in by_length.items() if len(keys) == len(analysis.HARD_CASES)}
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


def describe_ablation(groups: analysis.RecordGroups) -> list[str]:
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


def tabulate_overall(groups: analysis.RecordGroups) -> list[Block]:
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
        kept = format_kept(np.concatenate(outside))
        rows.append((policy, f"{ours.mean():.4f}", *parts, kept, f"{100 * least:.0f}%"))
    return fill_table("overall", rows)


def tabulate_by_case(
    groups: analysis.RecordGroups, table: str, column: str, form: Callable[[Floats], str]
) -> list[Block]:
    """One row per case, one column per policy."""
    keys = {policy: analysis.comparison_keys(policy) for policy in grid.BEYOND_POLICIES}
    shown = [policy for policy in keys if any(key in groups for key in keys[policy])]
    rows = []
    for n, (level, environment) in enumerate(analysis.CASES):
        of_case = [keys[policy][n] for policy in shown]
        if any(key in groups for key in of_case):
            rows.append((level, environment, *(form(groups.read(key, column)) for key in of_case)))
    return fill_table(table, rows, shown)


def tabulate_optima(groups: analysis.RecordGroups) -> list[Block]:
    """One row per case: the optimum, how sure it is, and what equal shares earn of it."""
    rows = []
    for n, (level, environment) in enumerate(analysis.CASES):
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


def tabulate_periods(groups: analysis.RecordGroups) -> list[Block]:
    """One row per policy and case: bad periods and regret at each length."""
    lengths = sorted({key.period or 0 for key in groups if key.experiment == "periods"})
    rows = []
    for policy, (level, environment) in product(grid.BEYOND_POLICIES, analysis.HARD_CASES):
        keys = [
            analysis.GroupKey("periods", environment, level, policy, 3, length)
            for length in lengths
        ]
        if any(key in groups for key in keys):
            bad = [
                f"{groups[key]['bad_periods'].sum()}/{groups[key]['periods'].sum()}"
                if key in groups
                else NO_VALUE
                for key in keys
            ]
            lost = (format_mean(groups.read(key, "regret_true")) for key in keys)
            rows.append((policy, level, environment, *bad, *lost))
    columns = [f"{what}, P = {length:,}" for what in ("bad", "regret") for length in lengths]
    return fill_table("periods", rows, columns)


def tabulate_ablation(groups: analysis.RecordGroups) -> list[Block]:
    """One row per policy and missing part: regret by case, limits and guard over all cases."""
    rows = []
    for policy, (part, name) in product(grid.GUARDED_POLICIES, grid.ABLATION_LABELS.items()):
        keys = analysis.ablation_keys(policy, part)
        if has_groups(groups, keys):
            outside = np.concatenate([groups.read(key, "outside") for key in keys])
            rounds = np.mean([groups.read(key, "replaced").mean() for key in keys])
            lost = (format_mean_error(groups.read(key, "regret_true")) for key in keys)
            rows.append((policy, name, *lost, format_kept(outside), f"{rounds:.1f}"))
    cases = map(" ".join, analysis.HARD_CASES)
    return fill_table("ablation", rows, [*cases, "runs within all limits", "rounds replaced"])


PERIOD_OFFSET = 0.14  # between two policies, where two lengths of a period are 1 apart
Measure = Callable[[analysis.RecordGroups, analysis.GroupKey], tuple[float, float]]
"""A value of a group, and the length of its error bar."""


def measure_regret(groups: analysis.RecordGroups, key: analysis.GroupKey) -> tuple[float, float]:
    values = groups.read(key, "regret_true")
    return float(values.mean()), float(seed_std(values))


def measure_bad_periods(
    groups: analysis.RecordGroups, key: analysis.GroupKey
) -> tuple[float, float]:
    """Share of all periods that are outside a limit, in %; a count has no spread."""
    left, total = (groups.read(key, column).sum() for column in ("bad_periods", "periods"))
    return float(100 * left / max(1.0, total)), 0.0


ABLATION_MEASURES: dict[str, Measure] = {
    "% of runs within all limits": lambda groups, key: (
        (float(100 * (groups.read(key, "outside") <= 0).mean()), 0.0)
    ),
    "regret, mean ± 1 standard error of the mean (not std)": lambda groups, key: (
        (measure_regret(groups, key)[0], measure_regret(groups, key)[1] / len(groups[key]) ** 0.5)
    ),
    "rounds of a run that the guard replaced": lambda groups, key: (
        (float(groups.read(key, "replaced").mean()), 0.0)
    ),
}


def draw_ablation(cells: pl.DataFrame, run: analysis.RunManifest, folder: Path) -> list[Path]:
    """One row per policy; feasible runs, regret, and rounds that the guard replaced."""
    groups = analysis.RecordGroups(cells)
    played = {key.policy.partition(":")[0] for key in groups if key.experiment == "ablation"}
    policies = [policy for policy in grid.GUARDED_POLICIES if policy in played]
    if not policies:
        return []
    text = "Beyond the paper: our policies without one of their parts"
    figure, axes = make_panels(
        len(policies),
        3,
        (13, 1.4 + 4.4 * len(policies)),
        analysis.make_figure_title(text, run, groups.seeds("ablation")),
        sharex="col",
        sharey=True,
    )
    for row, policy in zip(axes, policies, strict=True):
        for panel, measure in zip(row, ABLATION_MEASURES.values(), strict=True):
            draw_ablation_dots(panel, groups, policy, measure)
            panel.set_title(policy, fontsize=10)
        row[0].set_xlim(-5, 105)
    for panel, label in zip(axes[-1], ABLATION_MEASURES, strict=True):
        panel.set_xlabel(label)
    handles = {
        f"{BEYOND_LEVEL_STYLES[level].name} limits, {ENVIRONMENT_LABELS[environment]}": (
            make_handle(linestyle="", **make_dot(level, environment))
        )
        for level, environment in analysis.HARD_CASES
    }
    put_legend(figure, 4, list(handles.values()), list(handles))
    return save_figure(figure, folder, "beyond-ablation")


def make_dot(level: str, environment: str) -> dict[str, Any]:
    """Levels by colour and marker, environments by the filling."""
    style = BEYOND_LEVEL_STYLES[level]
    return {
        "color": style.colour,
        "marker": style.marker,
        "markerfacecolor": style.colour if environment == "stochastic" else "white",
    }


def draw_ablation_dots(
    axes: Any, groups: analysis.RecordGroups, policy: str, measure: Measure
) -> None:
    for y, part in enumerate(grid.ABLATION_LABELS):
        keys = analysis.ablation_keys(policy, part)
        for n, key in enumerate(keys):
            if key in groups:
                x, bar = measure(groups, key)
                axes.errorbar(
                    x,
                    y + 0.21 * (n - (len(keys) - 1) / 2),
                    xerr=bar or None,
                    **make_dot(key.level, key.environment),
                    markersize=6,
                    capsize=2,
                    linewidth=1.2,
                )
    axes.set_yticks(range(len(grid.ABLATION_LABELS)), list(grid.ABLATION_LABELS.values()))
    axes.set_ylim(len(grid.ABLATION_LABELS) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3, linewidth=0.6)
    separate(axes, len(grid.ABLATION_LABELS), vertical=False)


def draw_periods(cells: pl.DataFrame, run: analysis.RunManifest, folder: Path) -> list[Path]:
    """One column per level and environment: bad periods above, regret below, by their length."""
    groups = analysis.RecordGroups(cells)
    keys = [key for key in groups if key.experiment == "periods"]
    if not keys:
        return []
    found = {(key.level, key.environment) for key in keys}
    cases = [one for one in product(BEYOND_LEVEL_STYLES, ENVIRONMENT_LABELS) if one in found]
    policies = [one for one in BEYOND_POLICY_STYLES if any(key.policy == one for key in keys)]
    lengths = sorted({key.period or 0 for key in keys})
    text = "Beyond the paper: limits in every period, with an unknown horizon"
    figure, axes = make_panels(
        2,
        len(cases),
        (1.5 + 3.2 * len(cases), 7.6),
        analysis.make_figure_title(text, run, groups.seeds("periods"), "periods"),
        sharex=True,
        sharey="row",
    )
    for (top, bottom), (level, environment) in zip(axes.T, cases, strict=True):
        top.set_title(f"{ENVIRONMENT_LABELS[environment]}, {level}", fontsize=10)
        for n, policy in enumerate(policies):
            aside = PERIOD_OFFSET * (n - (len(policies) - 1) / 2)  # or they would hide each other
            of_policy = [
                analysis.GroupKey("periods", environment, level, policy, 3, one) for one in lengths
            ]
            at = {x + aside: key for x, key in enumerate(of_policy) if key in groups}
            draw_period_line(top, groups, at, measure_bad_periods)
            draw_period_line(bottom, groups, at, measure_regret)
        for panel in (top, bottom):  # lengths as names, not to scale
            panel.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
            panel.set_xlim(-0.5, len(lengths) - 0.5)
            panel.tick_params(axis="x", length=0)
            panel.axhline(0.0, color=GREY, linewidth=0.8)
            panel.grid(axis="y", alpha=0.25, linewidth=0.6)
            separate(panel, len(lengths))
        bottom.set_xlabel("rounds of a period")
    axes[0, 0].set_ylabel("% of periods outside a limit")
    axes[1, 0].set_ylabel("regret, mean ± 1 std over seeds")
    handles, names = axes[0, 0].get_legend_handles_labels()
    put_legend(figure, 6, handles, names)
    return save_figure(figure, folder, "beyond-periods")


def draw_period_line(
    axes: Any,
    groups: analysis.RecordGroups,
    at: Mapping[float, analysis.GroupKey],
    measure: Measure,
) -> None:
    if not at:
        return
    style = BEYOND_POLICY_STYLES[next(iter(at.values())).policy]
    y, bars = np.array([measure(groups, key) for key in at.values()]).T
    axes.errorbar(
        list(at),
        y,
        yerr=bars if bars.any() else None,
        color=style.colour,
        linestyle=style.line,
        linewidth=1.6,
        label=style.name,
        marker=style.marker,
        markersize=6,
        capsize=2.5,
    )
