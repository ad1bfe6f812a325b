"""The paper's second figure: what each policy earns, and how often it keeps the limits.

The same figure of a comparison past the paper shows by how much each is off the optimum.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bylot.harness import seed_std
from bylot.reports.style import (
    BEYOND_LEVEL_STYLES,
    BEYOND_POLICY_STYLES,
    BLACK,
    ENVIRONMENT_LABELS,
    GREY,
    LEVEL_STYLES,
    PAPER_POLICY_STYLES,
    SeriesStyle,
    draw_std_band,
    load_pyplot,
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
from bylot_paper.plots.sweep import set_log_scales
from bylot_paper.policy_settings import BEYOND_POLICIES as OURS
from bylot_paper.policy_settings import GUARDED_POLICIES

LEVEL_WIDTH = 0.8
"""Share of a level's place on the axis that its policies fill."""


class Comparison(NamedTuple):
    """A comparison of policies: how they and the levels look, in the order of legends."""

    experiment: str
    policies: Mapping[str, SeriesStyle]
    levels: Mapping[str, SeriesStyle]
    lead: tuple[str, ...]  # the policies that it is about
    best: str  # what they are measured against


PAPER_COMPARISON = Comparison(
    "crowd", PAPER_POLICY_STYLES, LEVEL_STYLES, ("omd",), "true optimum in hindsight"
)
BEYOND_COMPARISON = Comparison(
    "beyond",
    BEYOND_POLICY_STYLES,
    BEYOND_LEVEL_STYLES,
    GUARDED_POLICIES,
    "best multinomial policy in hindsight",
)


class PlayedComparison(NamedTuple):
    """What the records hold of a comparison: nothing else is given a place in a figure."""

    cast: Comparison
    environments: list[str]
    levels: list[str]
    policies: list[str]

    @classmethod
    def of(cls, groups: RecordGroups, cast: Comparison) -> "PlayedComparison":
        """In the order of the cast; variants are left to the tables."""
        keys = [
            key
            for key in groups
            if key.experiment == cast.experiment and key.policy in cast.policies
        ]
        return cls(
            cast,
            [one for one in ENVIRONMENT_LABELS if any(key.environment == one for key in keys)],
            [one for one in cast.levels if any(key.level == one for key in keys)],
            [one for one in cast.policies if any(key.policy == one for key in keys)],
        )

    def key(self, environment: str, level: str, policy: str) -> GroupKey:
        """A group of the comparison."""
        return GroupKey(self.cast.experiment, environment, level, policy, 3)

    def look(self, policy: str) -> SeriesStyle:
        """How a policy is drawn."""
        return self.cast.policies[policy]

    def offset(self, policy: str) -> float:
        """Where a policy stands within the place of a level."""
        return LEVEL_WIDTH * ((self.policies.index(policy) + 0.5) / len(self.policies) - 0.5)


DrawRewards = Callable[[Any, RecordGroups, str, PlayedComparison], None]
"""What is drawn on the left, in one environment."""


def draw_crowd(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """The paper's: rewards, with the optimum."""
    title = "Reward and kept limits by the level of the limits"
    return draw_comparison(
        RecordGroups(cells), PAPER_COMPARISON, draw_policy_rewards, title, run, folder
    )


def draw_beyond_crowd(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """Past the paper: rewards less the optimum, as levels differ by more than policies do."""
    title = "Past the paper: reward and kept limits by the level of the limits"
    return draw_comparison(RecordGroups(cells), BEYOND_COMPARISON, draw_margins, title, run, folder)


def draw_comparison(
    groups: RecordGroups,
    cast: Comparison,
    measure: DrawRewards,
    title: str,
    run: RunManifest,
    folder: Path,
) -> list[Path]:
    """A row an environment: reward on the left, feasible runs on the right."""
    played = PlayedComparison.of(groups, cast)
    if not played.policies:
        return []
    plt = load_pyplot()
    rows = len(played.environments)
    figure, axes = plt.subplots(
        rows, 2, figsize=(13, 0.7 + 3.9 * rows), layout="constrained", sharey="col", squeeze=False
    )
    figure.suptitle(make_figure_title(title, run, groups.seeds(cast.experiment)))
    for row, environment in enumerate(played.environments):
        measure(axes[row, 0], groups, environment, played)
        draw_feasibility(axes[row, 1], groups, environment, played)
        for panel in axes[row]:
            label_levels(panel, ENVIRONMENT_LABELS[environment], played)
    for panel in axes[-1]:
        panel.set_xlabel("level of the limits")
    marks, names = make_marker_legend(plt, played)
    columns = len(names) if len(names) <= 7 else (len(names) + 1) // 2
    place = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    figure.legend(marks, names, **place)
    return save_figure(figure, folder, cast.experiment)


def draw_policy_rewards(
    axes: Any, groups: RecordGroups, environment: str, played: PlayedComparison
) -> None:
    """Mean and standard deviation over seeds; the optimum in hindsight as a bar across."""
    for place, level in enumerate(played.levels):
        keys = [played.key(environment, level, policy) for policy in played.policies]
        best = np.concatenate([groups.values(key, "optimum") for key in keys])
        if best.size:
            axes.hlines(
                best.mean(), place - LEVEL_WIDTH / 2, place + LEVEL_WIDTH / 2, BLACK, linewidth=1.6
            )
        for key in keys:
            values, x = groups.values(key, "reward"), place + played.offset(key.policy)
            if values.size:
                draw_point(
                    axes, x, values.mean(), [[seed_std(values)]] * 2, played.look(key.policy)
                )
    axes.set_ylabel("reward per round, mean ± 1 std over seeds")


def draw_margins(
    axes: Any, groups: RecordGroups, environment: str, played: PlayedComparison
) -> None:
    """Reward less the optimum of the same seed, which is the line at 0."""
    axes.axhline(0.0, color=BLACK, linewidth=1.6)
    for place, level in enumerate(played.levels):
        for policy in played.policies:
            values = -groups.values(played.key(environment, level, policy), "regret_true")
            x, look = place + played.offset(policy), played.look(policy)
            if values.size:
                draw_point(axes, x, values.mean(), [[seed_std(values)]] * 2, look)
    axes.set_ylabel("reward less the optimum, mean ± 1 std")


def draw_feasibility(
    axes: Any, groups: RecordGroups, environment: str, played: PlayedComparison
) -> None:
    """Share of the seeds that kept all limits exactly, with Wilson's 95% interval."""
    for place, level in enumerate(played.levels):
        for policy in played.policies:
            outside = groups.values(played.key(environment, level, policy), "outside")
            if outside.size:
                kept = int((outside <= 0).sum())
                low, high = wilson_interval(kept, outside.size)
                share = kept / outside.size
                reach = [[100 * (share - low)], [100 * (high - share)]]
                x = place + played.offset(policy)
                draw_point(axes, x, 100 * share, reach, played.look(policy))
    axes.set_ylabel("% of seeds within all limits, Wilson 95%")
    axes.set_ylim(-5, 105)


def draw_point(axes: Any, x: float, y: float, reach: Any, look: SeriesStyle) -> None:
    """A marker with whiskers."""
    axes.errorbar(
        x,
        y,
        yerr=reach,
        color=look.colour,
        marker=look.marker,
        markersize=6.5,
        markeredgecolor=BLACK,
        markeredgewidth=0.5,
        linewidth=1.5,
        capsize=2.5,
    )


def label_levels(axes: Any, environment: str, played: PlayedComparison) -> None:
    """Names of the levels, and a line between one and the next."""
    names = [played.cast.levels[level].name for level in played.levels]
    axes.set_title(f"{environment} environment", fontsize=10)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", alpha=0.3, linewidth=0.6)
    for edge in range(1, len(names)):
        axes.axvline(edge - 0.5, color=GREY, linewidth=0.6, alpha=0.6)


def make_marker_legend(plt: Any, played: PlayedComparison) -> tuple[list[Any], list[str]]:
    """One legend for all panels, outside them."""
    line2d, looks = plt.matplotlib.lines.Line2D, [played.look(one) for one in played.policies]
    marks = [
        line2d(
            [],
            [],
            color=look.colour,
            marker=look.marker,
            linestyle="",
            markersize=7,
            markeredgecolor=BLACK,
            markeredgewidth=0.5,
        )
        for look in looks
    ]
    best = line2d([], [], color=BLACK, linewidth=1.6)
    return [*marks, best], [*(look.name for look in looks), played.cast.best]


ROLLING_POLICIES = ("omd", "ts-bwk", "cbwk", "ts", "cucb", "greedy")
"""Those of the paper's figure: MoE and Random are left out there."""
ROLLING_LEVELS = ("tight", "loose")


def draw_rolling(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """The paper's: tight limits on the left and loose ones on the right."""
    return draw_rolling_figure(
        RecordGroups(cells), PAPER_COMPARISON, ROLLING_POLICIES, ROLLING_LEVELS, run, folder
    )


def draw_beyond_rolling(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """Past the paper: where limits bind."""
    return draw_rolling_figure(
        RecordGroups(cells), BEYOND_COMPARISON, OURS, BINDING_LEVELS, run, folder
    )


def draw_rolling_figure(
    groups: RecordGroups,
    cast: Comparison,
    policies: Sequence[str],
    columns: Sequence[str],
    run: RunManifest,
    folder: Path,
) -> list[Path]:
    """A row an environment, a column a level."""
    played = PlayedComparison.of(groups, cast)
    shown = [policy for policy in policies if policy in played.policies]
    levels = [level for level in columns if level in played.levels]
    if not (shown and levels):
        return []
    plt, past = load_pyplot(), cast is BEYOND_COMPARISON
    rows, width = len(played.environments), len(levels)
    figure, axes = plt.subplots(
        rows,
        width,
        figsize=(6 * width, 0.7 + 3.9 * rows),
        layout="constrained",
        sharex=True,
        sharey="col" if past else True,  # a harder level is another range of rewards
        squeeze=False,
    )
    title = "Past the paper: reward" if past else "Reward"
    title += f" over time, mean of the last {run.get('window', '?')} rounds"
    figure.suptitle(make_figure_title(title, run, groups.seeds(cast.experiment)))
    for row, environment in enumerate(played.environments):
        for panel, level in zip(axes[row], levels, strict=True):
            draw_rolling_lines(panel, groups, played, shown, environment, level)
            where = ENVIRONMENT_LABELS[environment]
            panel.set_title(f"{where} environment, {level} limits", fontsize=10)
        axes[row, 0].set_ylabel("rolling mean reward")
    for panel in axes[-1]:
        panel.set_xlabel("round t")
    place = {"loc": "outside lower center", "ncols": 2 * width, "frameon": False, "fontsize": 9}
    figure.legend(*make_line_legend(plt, played, shown), **place)
    return save_figure(figure, folder, "beyond-rolling" if past else "rolling")


def draw_rolling_lines(
    axes: Any,
    groups: RecordGroups,
    played: PlayedComparison,
    shown: Sequence[str],
    environment: str,
    level: str,
) -> None:
    """Means over seeds with bands of one standard deviation; the leads last, to lie on top."""
    leads = [policy for policy in shown if policy in played.cast.lead]
    others = [policy for policy in reversed(shown) if policy not in leads]
    for policy in [*others, *leads]:
        curve = groups.curve(played.key(environment, level, policy), "curve_reward")
        if curve is None:
            continue
        look, lead = played.look(policy), policy in leads
        draw_std_band(axes, curve.t, curve, look, alpha=0.22 / len(leads) if lead else 0.07)
        axes.plot(
            curve.t,
            curve.mean,
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            markevery=(0.02 * shown.index(policy), 0.14),
            markersize=5,
            linewidth=2.2 if lead else 1.5,
        )
    keys = [played.key(environment, level, policy) for policy in shown]
    best = next((found for key in keys if (found := groups.values(key, "optimum")).size), None)
    if best is not None:
        axes.axhline(best.mean(), color=BLACK, linewidth=0.9, linestyle=(0, (1, 3)))
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.margins(x=0.01)


def make_line_legend(
    plt: Any, played: PlayedComparison, shown: Sequence[str]
) -> tuple[list[Any], list[str]]:
    """One legend for all panels, outside them."""
    line2d, looks = plt.matplotlib.lines.Line2D, [played.look(policy) for policy in shown]
    marks = [
        line2d([], [], color=look.colour, linestyle=look.line, marker=look.marker, linewidth=1.7)
        for look in looks
    ]
    marks.append(line2d([], [], color=BLACK, linewidth=0.9, linestyle=(0, (1, 3))))
    marks.append(plt.matplotlib.patches.Patch(color=looks[0].colour, alpha=0.25, linewidth=0))
    names = [look.name for look in looks]
    return marks, [*names, played.cast.best, "± 1 standard deviation over seeds"]


FIRST_ROUND = 100
"""The round that curves begin at: before it they show luck."""


def draw_regret(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """A row an environment, a column a level."""
    groups = RecordGroups(cells)
    played = PlayedComparison.of(groups, BEYOND_COMPARISON)
    if not played.policies:
        return []
    plt = load_pyplot()
    rows, columns = len(played.environments), len(played.levels)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(1.5 + 3.4 * columns, 1.2 + 3.5 * rows),
        layout="constrained",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    title = "Past the paper: regret against the best multinomial policy under exact costs"
    figure.suptitle(make_figure_title(title, run, groups.seeds("beyond")))
    for row, environment in enumerate(played.environments):
        for panel, level in zip(axes[row], played.levels, strict=True):
            for policy in played.policies:
                draw_regret_line(panel, groups, played, environment, level, policy)
            set_log_scales(panel, 1e-2)
            panel.set_title(f"{ENVIRONMENT_LABELS[environment]}, {level}", fontsize=10)
        axes[row, 0].set_ylabel("reward lost per round, mean so far")
    for panel in axes[-1]:
        panel.set_xlabel("round t")
    handles, names = axes[0, 0].get_legend_handles_labels()
    place = {"loc": "outside lower center", "ncols": 7, "frameon": False, "fontsize": 9}
    band_of = plt.matplotlib.patches.Patch(color="#666666", alpha=0.3, linewidth=0)
    figure.legend([*handles, band_of], [*names, "± 1 std over seeds"], **place)
    return save_figure(figure, folder, "beyond-regret")


def draw_regret_line(
    axes: Any,
    groups: RecordGroups,
    played: PlayedComparison,
    environment: str,
    level: str,
    policy: str,
) -> None:
    """The mean over seeds of R1 so far, with its band."""
    curve = groups.curve(played.key(environment, level, policy), "curve_r1_true")
    if curve is None:
        return
    late = curve.t >= min(FIRST_ROUND, curve.t[-1])
    curve = curve._replace(t=curve.t[late], seeds=curve.seeds[:, late])
    look, lead = played.look(policy), policy in played.cast.lead
    draw_std_band(axes, curve.t, curve, look, alpha=0.18 if lead else 0.06)
    axes.plot(
        curve.t,
        curve.mean,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markevery=[0, len(curve.t) // 20, len(curve.t) // 5, len(curve.t) - 1],
        markersize=5,
        linewidth=2.2 if lead else 1.4,
        label=look.name,
    )
