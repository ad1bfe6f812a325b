"""The figures of the sweep and of the comparisons of policies, and what all figures share."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bylot.harness import SeedCurves, seed_std
from bylot.reports import (
    BEYOND_POLICY_STYLES,
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAPER_POLICY_STYLES,
    PURPLE,
    SeriesStyle,
    draw_std_band,
    load_pyplot,
    make_panels,
    put_legend,
    save_figure,
)
from bylot_paper.analysis import (
    GroupKey,
    RecordGroups,
    RunManifest,
    make_figure_title,
    sweep_key,
    wilson_interval,
)
from bylot_paper.grid import BINDING_LEVELS, GUARDED_POLICIES, LIMITED_LEVELS

LEVEL_STYLES = {
    "tight": SeriesStyle("tight", BLUE, "-", "o"),
    "medium": SeriesStyle("medium", ORANGE, (0, (6, 1.5)), "s"),
    "loose": SeriesStyle("loose", GREEN, (0, (3, 1, 1, 1)), "^"),
    "none": SeriesStyle("no limits", GREY, (0, (1, 1)), "D"),
}
BEYOND_LEVEL_STYLES = {
    **{name: LEVEL_STYLES[name] for name in LIMITED_LEVELS},
    "stress": SeriesStyle("stress", PURPLE, (0, (5, 1, 1, 1)), "D"),
}
"""Beyond the paper: its limits and a harder level."""

DrawnFigures = Mapping[str, Sequence[Path]]  # the files of each figure
ENVIRONMENT_LABELS = {"stochastic": "stochastic", "regime": "regime-switching"}
ANCHOR_UPDATE = 10
"""The update n at which c/√n meets the tight curve: the noise of the first updates is gone."""
LEVEL_WIDTH = 0.8  # share of the space of a level that its policies fill
FIRST_ROUND = 100  # the round that curves of regret begin at: earlier ones show noise
MARKER_EDGE: dict[str, Any] = {"markeredgecolor": BLACK, "markeredgewidth": 0.5}
SEED_BAND = "± 1 standard deviation over seeds"


def make_handle(**style: Any) -> Any:
    return load_pyplot().matplotlib.lines.Line2D([], [], **style)


def make_patch(colour: str, alpha: float) -> Any:
    return load_pyplot().matplotlib.patches.Patch(color=colour, alpha=alpha, linewidth=0)


def separate(axes: Any, count: int, vertical: bool = True) -> None:
    """Thin lines between `count` categories at 0, 1, ..."""
    draw = axes.axvline if vertical else axes.axhline
    for edge in range(1, count):
        draw(edge - 0.5, color=GREY, linewidth=0.6, alpha=0.6)


def set_log_scales(axes: Any, near_zero: float) -> None:
    """Logarithmic axes, linear within `near_zero` of 0, which the curves reach."""
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=near_zero, linscale=0.6)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.grid(alpha=0.25, linewidth=0.6)


def draw_sweep(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """The paper's first figure: R1 above, R2 below, one column per number of reward dimensions."""
    groups = RecordGroups(cells)
    seeds = groups.seeds("sweep")
    if seeds == (0, 0):
        return []
    title = make_figure_title("Regret of OMD under three levels of limits", run, seeds)
    figure, axes = make_panels(2, 2, (11, 8), title, sharex=True, sharey="row")
    for (top, bottom), dimensions in zip(axes.T, (3, 5), strict=True):
        top.set_title(f"N = {dimensions} dimensions of reward")
        draw_sweep_panel(top, groups, dimensions, "curve_r1_true", "curve_r1_proxy")
        set_log_scales(top, 1e-2)
        draw_sweep_panel(bottom, groups, dimensions, "curve_r2")
        set_log_scales(bottom, 1e-3)
        bottom.set_ylim(bottom=-3e-4)
        bottom.set_xlabel("updates of OMD, n = t/10")
    axes[0, 0].set_ylabel("R1: reward lost per round, mean so far")
    axes[1, 0].set_ylabel("R2: distance of mean cost from the limits")
    handles = {
        f"{level} limits": make_handle(
            color=LEVEL_STYLES[level].colour, marker=LEVEL_STYLES[level].marker, linewidth=1.7
        )
        for level in LIMITED_LEVELS
    }
    handles |= {
        "R1 against the paper's stand-in (OMD's last policy)": make_handle(
            color=GREY, linestyle=":", linewidth=1.2
        ),
        f"c/√n through the tight curve at n = {ANCHOR_UPDATE}": make_handle(
            color=BLACK, linestyle="--", linewidth=1.1
        ),
        SEED_BAND: make_patch(GREY, 0.3),
    }
    put_legend(figure, 2, list(handles.values()), list(handles))
    return save_figure(figure, folder, "sweep")


def draw_sweep_panel(
    axes: Any, groups: RecordGroups, dimensions: int, column: str, dotted: str | None = None
) -> None:
    """Means over seeds, with bands of one standard deviation; and c/√n through the tight curve at
    n = ANCHOR_UPDATE, unless that curve is not above 0.
    """
    least = 0.0 if column == "curve_r2" else -np.inf  # R2 is never negative
    for level in LIMITED_LEVELS:
        style, key = LEVEL_STYLES[level], sweep_key(dimensions, level)
        if dotted and (other := groups.curve(key, dotted)):
            axes.plot(other.n, other.mean, color=style.colour, linestyle=":", linewidth=1.0)
        if curve := groups.curve(key, column):
            draw_std_band(axes, curve.n, curve, style, alpha=0.14, least=least)
            axes.plot(
                curve.n,
                curve.mean,
                color=style.colour,
                linewidth=1.7,
                marker=style.marker,
                markevery=list(np.unique(np.geomspace(1, len(curve.t), 9).astype(int)) - 1),
                markersize=5,
            )
    tight = groups.curve(sweep_key(dimensions, "tight"), column)
    if tight is not None and tight.n[-1] >= ANCHOR_UPDATE:
        c = float(np.interp(ANCHOR_UPDATE, tight.n, tight.mean)) * np.sqrt(ANCHOR_UPDATE)
        if c > 0:
            axes.plot(tight.n, c / np.sqrt(tight.n), color=BLACK, linestyle="--", linewidth=1.1)


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

    def narrow(self, groups: RecordGroups) -> "Comparison":
        """Keep what the records hold: nothing else is given space in a figure."""
        present = {
            value
            for key in groups
            if key.experiment == self.experiment and key.policy in self.styles
            for value in key
        }
        return self._replace(
            environments=[one for one in self.environments if one in present],
            levels=[one for one in self.levels if one in present],
            styles={one: style for one, style in self.styles.items() if one in present},
        )

    def keys(self, environment: str, level: str) -> list[GroupKey]:
        """The groups of all policies in one environment at one level."""
        return [GroupKey(self.experiment, environment, level, policy, 3) for policy in self.styles]

    def title(self, text: str, run: RunManifest, groups: RecordGroups) -> str:
        """The title of a figure, which says so if it is not one of the paper's."""
        title = f"Beyond the paper: {text}" if self.experiment == "beyond" else text.capitalize()
        return make_figure_title(title, run, groups.seeds(self.experiment))


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
ROLLING_COMPARISONS = {
    "rolling": PAPER_COMPARISON._replace(
        levels=("tight", "loose"),  # as in the paper's third figure, without MoE and Random
        styles={x: y for x, y in PAPER_POLICY_STYLES.items() if x not in ("moe", "random")},
    ),
    "beyond-rolling": BEYOND_COMPARISON._replace(levels=BINDING_LEVELS),
}


def draw_levels(
    comparison: Comparison, cells: pl.DataFrame, run: RunManifest, folder: Path
) -> list[Path]:
    """The paper's second figure: rewards and feasible runs, one row per environment.

    Beyond the paper the optimum is subtracted from rewards: levels differ by more than policies do.
    """
    groups = RecordGroups(cells)
    shown = comparison.narrow(groups)
    if not shown.styles:
        return []
    rows, beyond = len(shown.environments), shown.experiment == "beyond"
    title = shown.title("reward and kept limits by the level of the limits", run, groups)
    figure, axes = make_panels(rows, 2, (13, 0.7 + 3.9 * rows), title, sharey="col")
    for environment, (left, right) in zip(shown.environments, axes, strict=True):
        if beyond:
            left.axhline(0.0, color=BLACK, linewidth=1.6)
        for x, level in enumerate(shown.levels):
            keys = shown.keys(environment, level)
            best = np.concatenate([groups.read(key, "optimum") for key in keys])
            if best.size and not beyond:
                left.hlines(
                    best.mean(), x - LEVEL_WIDTH / 2, x + LEVEL_WIDTH / 2, BLACK, linewidth=1.6
                )
            draw_level_points(left, right, x, groups, shown, keys)
        for panel in (left, right):
            label_levels(panel, ENVIRONMENT_LABELS[environment], shown.levels)
        left.set_ylabel(
            "reward minus the optimum, mean ± 1 std"
            if beyond
            else "reward per round, mean ± 1 std over seeds"
        )
        right.set_ylabel("% of seeds within all limits, Wilson 95%")
        right.set_ylim(-5, 105)
    for panel in axes[-1]:
        panel.set_xlabel("level of the limits")
    handles = {
        style.name: make_handle(
            color=style.colour, marker=style.marker, markersize=7, linestyle="", **MARKER_EDGE
        )
        for style in shown.styles.values()
    }
    handles[shown.best] = make_handle(color=BLACK, linewidth=1.6)
    columns = len(handles) if len(handles) <= 7 else (len(handles) + 1) // 2
    put_legend(figure, columns, list(handles.values()), list(handles))
    return save_figure(figure, folder, shown.experiment)


def draw_level_points(
    left: Any, right: Any, x: int, groups: RecordGroups, shown: Comparison, keys: list[GroupKey]
) -> None:
    """The policies side by side at one level: mean and standard deviation of the reward, and the
    share of the seeds that kept all limits exactly with Wilson's 95% interval.
    """
    for n, key in enumerate(keys):
        aside = x + LEVEL_WIDTH * ((n + 0.5) / len(keys) - 0.5)
        is_beyond = key.experiment == "beyond"
        rewards = -groups.read(key, "regret_true") if is_beyond else groups.read(key, "reward")
        marks: list[tuple[Any, float, list[list[Any]]]] = []
        if rewards.size:
            marks.append((left, rewards.mean(), [[seed_std(rewards)]] * 2))
        if (outside := groups.read(key, "outside")).size:
            kept = int((outside <= 0).sum())
            low, high = wilson_interval(kept, outside.size)
            share = kept / outside.size
            marks.append((right, 100 * share, [[100 * (share - low)], [100 * (high - share)]]))
        for axes, y, bars in marks:
            axes.errorbar(
                aside,
                y,
                yerr=bars,
                color=shown.styles[key.policy].colour,
                linewidth=1.5,
                marker=shown.styles[key.policy].marker,
                markersize=6.5,
                capsize=2.5,
                **MARKER_EDGE,
            )


def label_levels(axes: Any, environment: str, levels: Sequence[str]) -> None:
    names = [{**LEVEL_STYLES, **BEYOND_LEVEL_STYLES}[level].name for level in levels]
    axes.set_title(f"{environment} environment", fontsize=10)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", alpha=0.3, linewidth=0.6)
    separate(axes, len(names))


def make_panels_over_time(
    shown: Comparison, size: tuple[float, float], title: str, label: str, sharey: Any
) -> tuple[Any, dict[tuple[str, str], Any]]:
    """A figure with one row per environment, one column per level, and the round as its x-axis."""
    figure, axes = make_panels(
        len(shown.environments), len(shown.levels), size, title, sharex=True, sharey=sharey
    )
    for panel in axes[:, 0]:
        panel.set_ylabel(label)
    for panel in axes[-1]:
        panel.set_xlabel("round t")
    return figure, dict(zip(product(shown.environments, shown.levels), axes.flat, strict=True))


def draw_rolling(name: str, cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """The paper's third figure: rewards over time, one row per environment, a column per level."""
    groups = RecordGroups(cells)
    shown = ROLLING_COMPARISONS[name].narrow(groups)
    if not (shown.styles and shown.levels):
        return []
    width = len(shown.levels)
    text = f"reward over time, mean of the last {run.get('window', '?')} rounds"
    figure, axes = make_panels_over_time(
        shown,
        (6 * width, 0.7 + 3.9 * len(shown.environments)),
        shown.title(text, run, groups),
        "rolling mean reward",
        sharey="col" if shown.experiment == "beyond" else True,  # a harder level has another range
    )
    for (environment, level), panel in axes.items():
        draw_rolling_lines(panel, groups, shown, shown.keys(environment, level))
        panel.set_title(
            f"{ENVIRONMENT_LABELS[environment]} environment, {level} limits", fontsize=10
        )
    styles = list(shown.styles.values())
    handles = {
        style.name: make_handle(
            color=style.colour, linestyle=style.line, marker=style.marker, linewidth=1.7
        )
        for style in styles
    }
    handles[shown.best] = make_handle(color=BLACK, linewidth=0.9, linestyle=(0, (1, 3)))
    handles[SEED_BAND] = make_patch(styles[0].colour, 0.25)
    put_legend(figure, 2 * width, list(handles.values()), list(handles))
    return save_figure(figure, folder, name)


def draw_rolling_lines(
    axes: Any, groups: RecordGroups, shown: Comparison, keys: Sequence[GroupKey]
) -> None:
    """Means over seeds with bands of one standard deviation; the leads last, to lie on top."""
    leads = [policy for policy in shown.styles if policy in shown.lead]
    others = [key for key in reversed(keys) if key.policy not in leads]
    for key in [*others, *(key for key in keys if key.policy in leads)]:
        curve = groups.curve(key, "curve_reward")
        if curve is not None:
            style = shown.styles[key.policy]
            lead = key.policy in leads
            draw_std_band(axes, curve.t, curve, style, alpha=0.22 / len(leads) if lead else 0.07)
            draw_line(axes, curve, style, (0.02 * keys.index(key), 0.14), 2.2 if lead else 1.5)
    best = next((found for key in keys if (found := groups.read(key, "optimum")).size), None)
    if best is not None:
        axes.axhline(best.mean(), color=BLACK, linewidth=0.9, linestyle=(0, (1, 3)))
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.margins(x=0.01)


def draw_line(
    axes: Any, curve: SeedCurves, style: SeriesStyle, every: Any, width: float, **label: str
) -> None:
    """The mean curve in the style of its policy, with a marker at some points."""
    axes.plot(
        curve.t,
        curve.mean,
        color=style.colour,
        linestyle=style.line,
        linewidth=width,
        marker=style.marker,
        markevery=every,
        markersize=5,
        **label,
    )


def draw_regret(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """Beyond the paper: regret over the rounds; one row per environment, one column per level."""
    groups = RecordGroups(cells)
    shown = BEYOND_COMPARISON.narrow(groups)
    if not shown.styles:
        return []
    figure, axes = make_panels_over_time(
        shown,
        (1.5 + 3.4 * len(shown.levels), 1.2 + 3.5 * len(shown.environments)),
        shown.title("regret against the best multinomial policy under exact costs", run, groups),
        "reward lost per round, mean so far",
        sharey=True,
    )
    for (environment, level), panel in axes.items():
        for key in shown.keys(environment, level):
            draw_regret_line(panel, groups, shown, key)
        set_log_scales(panel, 1e-2)
        panel.set_title(f"{ENVIRONMENT_LABELS[environment]}, {level}", fontsize=10)
    handles, names = next(iter(axes.values())).get_legend_handles_labels()
    put_legend(figure, 7, [*handles, make_patch(GREY, 0.3)], [*names, "± 1 std over seeds"])
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
    every = [0, len(curve.t) // 20, len(curve.t) // 5, len(curve.t) - 1]
    draw_line(axes, curve, style, every, 2.2 if lead else 1.4, label=style.name)
