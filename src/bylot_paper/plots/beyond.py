"""Past the paper: our policies without one of their parts."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.harness import seed_std
from bylot.reports.style import (
    BEYOND_LEVEL_STYLES,
    BEYOND_POLICY_STYLES,
    ENVIRONMENT_LABELS,
    GREY,
    load_pyplot,
    save_figure,
)
from bylot_paper.analysis import GroupKey, RecordGroups, RunManifest, make_figure_title
from bylot_paper.grid import BINDING_LEVELS
from bylot_paper.policy_settings import ABLATED_PARTS, GUARDED_POLICIES

ABLATION_LABELS = {"": "as it is", **ABLATED_PARTS}


def name_variant(policy: str, part: str) -> str:
    """The name under which a policy plays without a part."""
    return f"{policy}:{part}" if part else policy


def draw_ablation(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """A row a policy; feasible runs, regret, and rounds that the guard replaced."""
    groups = RecordGroups(cells)
    played = {key.policy.partition(":")[0] for key in groups if key.experiment == "ablation"}
    policies = [policy for policy in GUARDED_POLICIES if policy in played]
    if not policies:
        return []
    plt = load_pyplot()
    figure, axes = plt.subplots(
        len(policies),
        len(ABLATION_MEASURES),
        figsize=(13, 1.4 + 4.4 * len(policies)),
        layout="constrained",
        sharex="col",
        sharey=True,
        squeeze=False,
    )
    title = "Past the paper: our policies without one of their parts"
    figure.suptitle(make_figure_title(title, run, groups.seeds("ablation")))
    for row, policy in enumerate(policies):
        for panel, (label, measure) in zip(axes[row], ABLATION_MEASURES.items(), strict=True):
            draw_ablation_dots(panel, groups, policy, measure)
            panel.set_title(policy, fontsize=10)
            if measure is measure_feasible_runs:
                panel.set_xlim(-5, 105)
            if row == len(policies) - 1:
                panel.set_xlabel(label)
    handles, names = make_ablation_legend(plt)
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return save_figure(figure, folder, "beyond-ablation")


def draw_ablation_dots(
    axes: Any, groups: RecordGroups, policy: str, measure: Callable[..., Any]
) -> None:
    """A line of dots a part: colours are levels, hollow ones the regime."""
    places = list(product(BINDING_LEVELS, ENVIRONMENT_LABELS))
    for y, part in enumerate(ABLATION_LABELS):
        for n, (level, environment) in enumerate(places):
            key = GroupKey("ablation", environment, level, name_variant(policy, part), 3)
            if key not in groups:
                continue
            x, reach = measure(groups, key)
            look = BEYOND_LEVEL_STYLES[level]
            axes.errorbar(
                x,
                y + 0.21 * (n - (len(places) - 1) / 2),
                xerr=reach or None,
                color=look.colour,
                marker=look.marker,
                markerfacecolor=look.colour if environment == "stochastic" else "white",
                markersize=6,
                capsize=2,
                linewidth=1.2,
            )
    axes.set_yticks(range(len(ABLATION_LABELS)), list(ABLATION_LABELS.values()))
    axes.set_ylim(len(ABLATION_LABELS) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3, linewidth=0.6)
    for edge in range(1, len(ABLATION_LABELS)):
        axes.axhline(edge - 0.5, color=GREY, linewidth=0.6, alpha=0.6)


def measure_feasible_runs(groups: RecordGroups, key: GroupKey) -> tuple[float, float]:
    """Runs within all limits, in %."""
    return float(100 * (groups.values(key, "outside") <= 0).mean()), 0.0


def measure_ablation_regret(groups: RecordGroups, key: GroupKey) -> tuple[float, float]:
    """Mean over seeds and its standard error."""
    values = groups.values(key, "regret_true")
    return float(values.mean()), float(seed_std(values)) / len(values) ** 0.5


def measure_replaced_rounds(groups: RecordGroups, key: GroupKey) -> tuple[float, float]:
    """Rounds of a run that the guard replaced."""
    return float(groups.values(key, "replaced").mean()), 0.0


ABLATION_MEASURES = {
    "% of runs within all limits": measure_feasible_runs,
    "regret, mean ± 1 standard error of the mean (not std)": measure_ablation_regret,
    "rounds of a run that the guard replaced": measure_replaced_rounds,
}


def make_ablation_legend(plt: Any) -> tuple[list[Any], list[str]]:
    """Levels by colour and marker, environments by the filling."""
    marks, names = [], []
    for level, environment in product(BINDING_LEVELS, ENVIRONMENT_LABELS):
        look = BEYOND_LEVEL_STYLES[level]
        full = look.colour if environment == "stochastic" else "white"
        marks.append(
            plt.matplotlib.lines.Line2D(
                [], [], color=look.colour, marker=look.marker, markerfacecolor=full, linestyle=""
            )
        )
        names.append(f"{look.name} limits, {ENVIRONMENT_LABELS[environment]}")
    return marks, names


PERIOD_OFFSET = 0.14
"""Between two policies, where two lengths of a period are 1 apart."""

LevelInEnvironment = tuple[str, str]
"""A level and an environment."""


def draw_periods(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """A column a level and environment: bad periods above, regret below, by length of a period."""
    groups = RecordGroups(cells)
    keys = [key for key in groups if key.experiment == "periods"]
    if not keys:
        return []
    plt = load_pyplot()
    found = {(key.level, key.environment) for key in keys}
    places = [place for place in list_places() if place in found]
    policies = [
        policy for policy in BEYOND_POLICY_STYLES if any(key.policy == policy for key in keys)
    ]
    lengths = sorted({key.period or 0 for key in keys})
    figure, axes = plt.subplots(
        2,
        len(places),
        figsize=(1.5 + 3.2 * len(places), 7.6),
        layout="constrained",
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    title = "Past the paper: limits that are to hold in every period, no end in sight"
    figure.suptitle(make_figure_title(title, run, groups.seeds("periods"), "periods"))
    for column, place in enumerate(places):
        level, environment = place
        axes[0, column].set_title(f"{ENVIRONMENT_LABELS[environment]}, {level}", fontsize=10)
        for n, policy in enumerate(policies):
            aside = PERIOD_OFFSET * (n - (len(policies) - 1) / 2)  # or they would hide each other
            of_policy = [GroupKey("periods", environment, level, policy, 3, one) for one in lengths]
            at = {place + aside: key for place, key in enumerate(of_policy) if key in groups}
            draw_period_line(axes[0, column], groups, at, measure_bad_periods)
            draw_period_line(axes[1, column], groups, at, measure_period_regret)
        label_periods(axes[:, column], lengths)
    axes[0, 0].set_ylabel("% of periods outside a limit")
    axes[1, 0].set_ylabel("regret, mean ± 1 std over seeds")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    return save_figure(figure, folder, "beyond-periods")


def list_places() -> list[LevelInEnvironment]:
    """All places in the order of the figure."""
    return [
        (level, environment) for level in BEYOND_LEVEL_STYLES for environment in ENVIRONMENT_LABELS
    ]


def measure_bad_periods(groups: RecordGroups, key: GroupKey) -> tuple[float, float]:
    """The share of all periods that left a limit, in %, and no spread: it is a count."""
    left = groups.values(key, "bad_periods").sum()
    return float(100 * left / max(1.0, groups.values(key, "periods").sum())), 0.0


def measure_period_regret(groups: RecordGroups, key: GroupKey) -> tuple[float, float]:
    """Mean and standard deviation over seeds."""
    values = groups.values(key, "regret_true")
    return float(values.mean()), float(seed_std(values))


def draw_period_line(
    axes: Any, groups: RecordGroups, at: Mapping[float, GroupKey], measure: Any
) -> None:
    """One policy over the lengths of a period, each at its place."""
    if not at:
        return
    look = BEYOND_POLICY_STYLES[next(iter(at.values())).policy]
    y, reach = np.array([measure(groups, key) for key in at.values()]).T
    axes.errorbar(
        list(at),
        y,
        yerr=reach if reach.any() else None,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markersize=6,
        capsize=2.5,
        linewidth=1.6,
        label=look.name,
    )


def label_periods(panels: Sequence[Any], lengths: Sequence[int]) -> None:
    """The lengths that were played, as names and not to scale, and where nothing is lost."""
    for axes in panels:
        axes.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
        axes.set_xlim(-0.5, len(lengths) - 0.5)
        axes.tick_params(axis="x", length=0)
        axes.axhline(0.0, color=GREY, linewidth=0.8)
        axes.grid(axis="y", alpha=0.25, linewidth=0.6)
        for edge in range(1, len(lengths)):
            axes.axvline(edge - 0.5, color=GREY, linewidth=0.6, alpha=0.6)
    panels[-1].set_xlabel("rounds of a period")
