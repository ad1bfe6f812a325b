"""Two figures beyond the paper: our policies without one of their parts, and limits in periods."""

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.harness import seed_std
from bylot.reports.style import BEYOND_POLICY_STYLES, GREY, make_panels, put_legend, save_figure
from bylot_paper import analysis
from bylot_paper.analysis import HARD_CASES, GroupKey, RecordGroups, RunManifest
from bylot_paper.grid import ABLATION_LABELS, GUARDED_POLICIES
from bylot_paper.report import figures
from bylot_paper.report.figures import BEYOND_LEVEL_STYLES, ENVIRONMENT_LABELS

PERIOD_OFFSET = 0.14  # between two policies, where two lengths of a period are 1 apart
Measure = Callable[[RecordGroups, GroupKey], tuple[float, float]]
"""A value of a group, and the length of its error bar."""


def measure_regret(groups: RecordGroups, key: GroupKey) -> tuple[float, float]:
    values = groups.read(key, "regret_true")
    return float(values.mean()), float(seed_std(values))


def measure_bad_periods(groups: RecordGroups, key: GroupKey) -> tuple[float, float]:
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


def draw_ablation(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """One row per policy; feasible runs, regret, and rounds that the guard replaced."""
    groups = RecordGroups(cells)
    played = {key.policy.partition(":")[0] for key in groups if key.experiment == "ablation"}
    policies = [policy for policy in GUARDED_POLICIES if policy in played]
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
            figures.make_handle(linestyle="", **make_dot(level, environment))
        )
        for level, environment in HARD_CASES
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


def draw_ablation_dots(axes: Any, groups: RecordGroups, policy: str, measure: Measure) -> None:
    for y, part in enumerate(ABLATION_LABELS):
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
    axes.set_yticks(range(len(ABLATION_LABELS)), list(ABLATION_LABELS.values()))
    axes.set_ylim(len(ABLATION_LABELS) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3, linewidth=0.6)
    figures.separate(axes, len(ABLATION_LABELS), vertical=False)


def draw_periods(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """One column per level and environment: bad periods above, regret below, by their length."""
    groups = RecordGroups(cells)
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
            of_policy = [GroupKey("periods", environment, level, policy, 3, one) for one in lengths]
            at = {x + aside: key for x, key in enumerate(of_policy) if key in groups}
            draw_period_line(top, groups, at, measure_bad_periods)
            draw_period_line(bottom, groups, at, measure_regret)
        for panel in (top, bottom):  # lengths as names, not to scale
            panel.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
            panel.set_xlim(-0.5, len(lengths) - 0.5)
            panel.tick_params(axis="x", length=0)
            panel.axhline(0.0, color=GREY, linewidth=0.8)
            panel.grid(axis="y", alpha=0.25, linewidth=0.6)
            figures.separate(panel, len(lengths))
        bottom.set_xlabel("rounds of a period")
    axes[0, 0].set_ylabel("% of periods outside a limit")
    axes[1, 0].set_ylabel("regret, mean ± 1 std over seeds")
    handles, names = axes[0, 0].get_legend_handles_labels()
    put_legend(figure, 6, handles, names)
    return save_figure(figure, folder, "beyond-periods")


def draw_period_line(
    axes: Any, groups: RecordGroups, at: Mapping[float, GroupKey], measure: Measure
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
