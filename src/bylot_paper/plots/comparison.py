"""The figures that compare policies: the paper's second and third, and ours beyond the paper."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bylot.harness import seed_std
from bylot.reports.style import (
    BEYOND_POLICY_STYLES,
    BLACK,
    GREY,
    PAPER_POLICY_STYLES,
    SeriesStyle,
    draw_std_band,
    save_figure,
)
from bylot_paper.analysis import (
    GroupKey,
    RecordGroups,
    RunManifest,
    make_figure_title,
    wilson_interval,
)
from bylot_paper.grid import BINDING_LEVELS
from bylot_paper.plots.panels import (
    BEYOND_LEVEL_STYLES,
    ENVIRONMENT_LABELS,
    LEVEL_STYLES,
    label_panels,
    make_handle,
    make_panels,
    make_patch,
    put_legend,
    separate,
    set_log_scales,
)
from bylot_paper.policy_settings import BEYOND_POLICIES, GUARDED_POLICIES

LEVEL_WIDTH = 0.8
"""Share of the space of a level that its policies fill."""
ROLLING_POLICIES = ("omd", "ts-bwk", "cbwk", "ts", "cucb", "greedy")
"""The policies of the paper's third figure, which leaves out MoE and Random."""
FIRST_ROUND = 100
"""The round that curves of regret begin at: earlier ones show noise."""


class Comparison(NamedTuple):
    """What a comparison of policies may show, in the order of legends, and what records hold of it.

    lead: the policies that it is about
    best: what they are measured against
    """

    experiment: str
    styles: Mapping[str, SeriesStyle]
    levels: Sequence[str]
    lead: tuple[str, ...]
    best: str
    environments: Sequence[str] = tuple(ENVIRONMENT_LABELS)

    @property
    def policies(self) -> list[str]:
        """All policies, in the order of legends."""
        return list(self.styles)

    def narrow(self, groups: RecordGroups) -> "Comparison":
        """Keep what the records hold: nothing else is given space in a figure."""
        keys = [
            key for key in groups if key.experiment == self.experiment and key.policy in self.styles
        ]
        return self._replace(
            environments=[
                one for one in self.environments if any(key.environment == one for key in keys)
            ],
            levels=[one for one in self.levels if any(key.level == one for key in keys)],
            styles={
                one: style
                for one, style in self.styles.items()
                if any(key.policy == one for key in keys)
            },
        )

    def key(self, environment: str, level: str, policy: str) -> GroupKey:
        """A group of the comparison."""
        return GroupKey(self.experiment, environment, level, policy, 3)

    def offset(self, policy: str) -> float:
        """Where a policy stands within the space of a level."""
        return LEVEL_WIDTH * ((self.policies.index(policy) + 0.5) / len(self.styles) - 0.5)


PAPER_COMPARISON = Comparison(
    "crowd", PAPER_POLICY_STYLES, list(LEVEL_STYLES), ("omd",), "true optimum in hindsight"
)
BEYOND_COMPARISON = Comparison(
    "beyond",
    BEYOND_POLICY_STYLES,
    list(BEYOND_LEVEL_STYLES),
    GUARDED_POLICIES,
    "best multinomial policy in hindsight",
)

DrawRewards = Callable[[Any, RecordGroups, str, Comparison], None]
"""Draws the left panel, in one environment."""


def draw_crowd(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """The paper's second figure: rewards with the optimum, and feasibility."""
    title = "Reward and kept limits by the level of the limits"
    return draw_comparison(cells, PAPER_COMPARISON, draw_policy_rewards, title, run, folder)


def draw_beyond_crowd(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """Beyond the paper: rewards minus the optimum, as levels differ by more than policies do."""
    title = "Beyond the paper: reward and kept limits by the level of the limits"
    return draw_comparison(cells, BEYOND_COMPARISON, draw_margins, title, run, folder)


def draw_comparison(
    cells: pl.DataFrame,
    comparison: Comparison,
    draw_rewards: DrawRewards,
    title: str,
    run: RunManifest,
    folder: Path,
) -> list[Path]:
    """One row per environment: reward on the left, feasible runs on the right."""
    groups = RecordGroups(cells)
    shown = comparison.narrow(groups)
    if not shown.styles:
        return []
    rows = len(shown.environments)
    heading = make_figure_title(title, run, groups.seeds(shown.experiment))
    figure, axes = make_panels(rows, 2, (13, 0.7 + 3.9 * rows), heading, sharey="col")
    for environment, (left, right) in zip(shown.environments, axes, strict=True):
        draw_rewards(left, groups, environment, shown)
        draw_feasibility(right, groups, environment, shown)
        for panel in (left, right):
            label_levels(panel, ENVIRONMENT_LABELS[environment], shown.levels)
    label_panels(axes[-1], "level of the limits")
    edge = {"markeredgecolor": BLACK, "markeredgewidth": 0.5, "markersize": 7, "linestyle": ""}
    handles = [
        make_handle(color=one.colour, marker=one.marker, **edge) for one in shown.styles.values()
    ]
    handles.append(make_handle(color=BLACK, linewidth=1.6))
    names = [*(one.name for one in shown.styles.values()), shown.best]
    put_legend(figure, handles, names, len(names) if len(names) <= 7 else (len(names) + 1) // 2)
    return save_figure(figure, folder, shown.experiment)


def draw_policy_rewards(
    axes: Any, groups: RecordGroups, environment: str, shown: Comparison
) -> None:
    """Mean and standard deviation over seeds; the optimum in hindsight as a bar across."""
    for x, level in enumerate(shown.levels):
        keys = [shown.key(environment, level, policy) for policy in shown.styles]
        best = np.concatenate([groups.values(key, "optimum") for key in keys])
        if best.size:
            ends = x - LEVEL_WIDTH / 2, x + LEVEL_WIDTH / 2
            axes.hlines(best.mean(), *ends, BLACK, linewidth=1.6)
        for key in keys:
            values = groups.values(key, "reward")
            if values.size:
                bars = [[seed_std(values)]] * 2
                draw_point(axes, x, values.mean(), bars, key.policy, shown)
    axes.set_ylabel("reward per round, mean ± 1 std over seeds")


def draw_margins(axes: Any, groups: RecordGroups, environment: str, shown: Comparison) -> None:
    """Reward minus the optimum of the same seed, which is the line at 0."""
    axes.axhline(0.0, color=BLACK, linewidth=1.6)
    for x, level in enumerate(shown.levels):
        for policy in shown.styles:
            values = -groups.values(shown.key(environment, level, policy), "regret_true")
            if values.size:
                draw_point(axes, x, values.mean(), [[seed_std(values)]] * 2, policy, shown)
    axes.set_ylabel("reward minus the optimum, mean ± 1 std")


def draw_feasibility(axes: Any, groups: RecordGroups, environment: str, shown: Comparison) -> None:
    """Share of the seeds that kept all limits exactly, with Wilson's 95% interval."""
    for x, level in enumerate(shown.levels):
        for policy in shown.styles:
            outside = groups.values(shown.key(environment, level, policy), "outside")
            if outside.size:
                kept = int((outside <= 0).sum())
                low, high = wilson_interval(kept, outside.size)
                share = kept / outside.size
                bars = [[100 * (share - low)], [100 * (high - share)]]
                draw_point(axes, x, 100 * share, bars, policy, shown)
    axes.set_ylabel("% of seeds within all limits, Wilson 95%")
    axes.set_ylim(-5, 105)


def draw_point(axes: Any, x: float, y: float, bars: Any, policy: str, shown: Comparison) -> None:
    """A marker with error bars, at the offset of the policy."""
    style = shown.styles[policy]
    marker = {"marker": style.marker, "markersize": 6.5, "capsize": 2.5}
    edge = {"markeredgecolor": BLACK, "markeredgewidth": 0.5}
    x += shown.offset(policy)
    axes.errorbar(x, y, yerr=bars, color=style.colour, linewidth=1.5, **marker, **edge)


def label_levels(axes: Any, environment: str, levels: Sequence[str]) -> None:
    """Names of the levels, and a line between one and the next."""
    names = [{**LEVEL_STYLES, **BEYOND_LEVEL_STYLES}[level].name for level in levels]
    axes.set_title(f"{environment} environment", fontsize=10)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", alpha=0.3, linewidth=0.6)
    separate(axes, len(names))


def draw_rolling(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """The paper's third figure: tight limits on the left and loose ones on the right."""
    levels = ("tight", "loose")
    return draw_rolling_figure(cells, PAPER_COMPARISON, ROLLING_POLICIES, levels, run, folder)


def draw_beyond_rolling(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """Beyond the paper: the levels at which limits bind."""
    policies, levels = BEYOND_POLICIES, BINDING_LEVELS
    return draw_rolling_figure(cells, BEYOND_COMPARISON, policies, levels, run, folder)


def draw_rolling_figure(
    cells: pl.DataFrame,
    comparison: Comparison,
    policies: Sequence[str],
    columns: Sequence[str],
    run: RunManifest,
    folder: Path,
) -> list[Path]:
    """One row per environment, one column per level."""
    groups = RecordGroups(cells)
    shown = comparison.narrow(groups)
    shown = shown._replace(
        levels=[level for level in columns if level in shown.levels],
        styles={policy: shown.styles[policy] for policy in policies if policy in shown.styles},
    )
    if not (shown.styles and shown.levels):
        return []
    past = shown.experiment == "beyond"
    rows, width = len(shown.environments), len(shown.levels)
    title = "Beyond the paper: reward" if past else "Reward"
    title += f" over time, mean of the last {run.get('window', '?')} rounds"
    sharey: Any = "col" if past else True  # rewards of a harder level are in another range
    figure, axes = make_panels(
        rows,
        width,
        (6 * width, 0.7 + 3.9 * rows),
        make_figure_title(title, run, groups.seeds(shown.experiment)),
        sharex=True,
        sharey=sharey,
    )
    for row, environment in zip(axes, shown.environments, strict=True):
        for panel, level in zip(row, shown.levels, strict=True):
            draw_rolling_lines(panel, groups, shown, environment, level)
            where = ENVIRONMENT_LABELS[environment]
            panel.set_title(f"{where} environment, {level} limits", fontsize=10)
        row[0].set_ylabel("rolling mean reward")
    label_panels(axes[-1], "round t")
    styles = list(shown.styles.values())
    handles = [
        make_handle(color=one.colour, linestyle=one.line, marker=one.marker, linewidth=1.7)
        for one in styles
    ]
    handles.append(make_handle(color=BLACK, linewidth=0.9, linestyle=(0, (1, 3))))
    handles.append(make_patch(styles[0].colour, 0.25))
    names = [*(one.name for one in styles), shown.best, "± 1 standard deviation over seeds"]
    put_legend(figure, handles, names, columns=2 * width)
    return save_figure(figure, folder, "beyond-rolling" if past else "rolling")


def draw_rolling_lines(
    axes: Any, groups: RecordGroups, shown: Comparison, environment: str, level: str
) -> None:
    """Means over seeds with bands of one standard deviation; the leads last, to lie on top."""
    leads = [policy for policy in shown.styles if policy in shown.lead]
    others = [policy for policy in reversed(shown.policies) if policy not in leads]
    for policy in [*others, *leads]:
        curve = groups.curve(shown.key(environment, level, policy), "curve_reward")
        if curve is not None:
            style, lead = shown.styles[policy], policy in leads
            draw_std_band(axes, curve.t, curve, style, alpha=0.22 / len(leads) if lead else 0.07)
            every = (0.02 * shown.policies.index(policy), 0.14)
            draw_line(axes, curve.t, curve.mean, style, every, 2.2 if lead else 1.5)
    keys = [shown.key(environment, level, policy) for policy in shown.styles]
    best = next((found for key in keys if (found := groups.values(key, "optimum")).size), None)
    if best is not None:
        axes.axhline(best.mean(), color=BLACK, linewidth=0.9, linestyle=(0, (1, 3)))
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.margins(x=0.01)


def draw_line(
    axes: Any, x: Any, y: Any, style: SeriesStyle, every: Any, width: float, **label: str
) -> None:
    """A curve in the style of its policy, with a marker at some points."""
    marker = {"marker": style.marker, "markevery": every, "markersize": 5}
    axes.plot(x, y, color=style.colour, linestyle=style.line, linewidth=width, **marker, **label)


def draw_regret(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """Beyond the paper: regret over the rounds; one row per environment, one column per level."""
    groups = RecordGroups(cells)
    shown = BEYOND_COMPARISON.narrow(groups)
    if not shown.styles:
        return []
    rows, columns = len(shown.environments), len(shown.levels)
    title = "Beyond the paper: regret against the best multinomial policy under exact costs"
    figure, axes = make_panels(
        rows,
        columns,
        (1.5 + 3.4 * columns, 1.2 + 3.5 * rows),
        make_figure_title(title, run, groups.seeds("beyond")),
        sharex=True,
        sharey=True,
    )
    for row, environment in zip(axes, shown.environments, strict=True):
        for panel, level in zip(row, shown.levels, strict=True):
            for policy in shown.styles:
                draw_regret_line(panel, groups, shown, shown.key(environment, level, policy))
            set_log_scales(panel, 1e-2)
            panel.set_title(f"{ENVIRONMENT_LABELS[environment]}, {level}", fontsize=10)
        row[0].set_ylabel("reward lost per round, mean so far")
    label_panels(axes[-1], "round t")
    handles, names = axes[0, 0].get_legend_handles_labels()
    handles, names = [*handles, make_patch(GREY, 0.3)], [*names, "± 1 std over seeds"]
    put_legend(figure, handles, names, columns=7)
    return save_figure(figure, folder, "beyond-regret")


def draw_regret_line(axes: Any, groups: RecordGroups, shown: Comparison, key: GroupKey) -> None:
    """The mean over seeds of R1 so far, with its band."""
    curve = groups.curve(key, "curve_r1_true")
    if curve is None:
        return
    late = curve.t >= min(FIRST_ROUND, curve.t[-1])
    curve = curve._replace(t=curve.t[late], seeds=curve.seeds[:, late])
    style, lead = shown.styles[key.policy], key.policy in shown.lead
    draw_std_band(axes, curve.t, curve, style, alpha=0.18 if lead else 0.06)
    size = len(curve.t)
    every = [0, size // 20, size // 5, size - 1]
    draw_line(axes, curve.t, curve.mean, style, every, 2.2 if lead else 1.4, label=style.name)
