"""The paper's second figure: what each policy earns, and how often it keeps the limits.

The same figure of a comparison past the paper shows by how much each is off the optimum.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.plots.groups import Groups, Run, heading, spread
from bylot.plots.played import BEYOND, PAPER, WIDTH, Cast, Played
from bylot.plots.style import BLACK, ENVIRONMENTS, GREY, Look, drawing, written
from bylot.plots.wilson import wilson

Measure = Callable[[Any, Groups, str, Played], None]
"""What is drawn on the left, in one environment."""


def draw(cells: pl.DataFrame, run: Run, folder: Path) -> list[Path]:
    """The paper's: rewards, with the optimum."""
    title = "Reward and kept limits by the level of the limits"
    return compared(Groups(cells), PAPER, rewards, title, run, folder)


def draw_beyond(cells: pl.DataFrame, run: Run, folder: Path) -> list[Path]:
    """Past the paper: rewards less the optimum, as levels differ by more than policies do."""
    title = "Past the paper: reward and kept limits by the level of the limits"
    return compared(Groups(cells), BEYOND, margins, title, run, folder)


def compared(
    groups: Groups, cast: Cast, measure: Measure, title: str, run: Run, folder: Path
) -> list[Path]:
    """A row an environment: reward on the left, feasible runs on the right."""
    played = Played.of(groups, cast)
    if not played.policies:
        return []
    plt = drawing()
    rows = len(played.environments)
    figure, axes = plt.subplots(
        rows, 2, figsize=(13, 0.7 + 3.9 * rows), layout="constrained", sharey="col", squeeze=False
    )
    figure.suptitle(heading(title, run, groups.seeds(cast.experiment)))
    for row, environment in enumerate(played.environments):
        measure(axes[row, 0], groups, environment, played)
        feasibility(axes[row, 1], groups, environment, played)
        for panel in axes[row]:
            places(panel, ENVIRONMENTS[environment], played)
    for panel in axes[-1]:
        panel.set_xlabel("level of the limits")
    marks, names = legend(plt, played)
    columns = len(names) if len(names) <= 7 else (len(names) + 1) // 2
    place = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    figure.legend(marks, names, **place)
    return written(figure, folder, cast.experiment)


def rewards(axes: Any, groups: Groups, environment: str, played: Played) -> None:
    """Mean and standard deviation over seeds; the optimum in hindsight as a bar across."""
    for place, level in enumerate(played.levels):
        keys = [played.key(environment, level, policy) for policy in played.policies]
        best = np.concatenate([groups.values(key, "optimum") for key in keys])
        if best.size:
            axes.hlines(best.mean(), place - WIDTH / 2, place + WIDTH / 2, BLACK, linewidth=1.6)
        for key in keys:
            values, x = groups.values(key, "reward"), place + played.offset(key.policy)
            if values.size:
                point(axes, x, values.mean(), [[spread(values)]] * 2, played.look(key.policy))
    axes.set_ylabel("reward per round, mean ± 1 std over seeds")


def margins(axes: Any, groups: Groups, environment: str, played: Played) -> None:
    """Reward less the optimum of the same seed, which is the line at 0."""
    axes.axhline(0.0, color=BLACK, linewidth=1.6)
    for place, level in enumerate(played.levels):
        for policy in played.policies:
            values = -groups.values(played.key(environment, level, policy), "regret_true")
            x, look = place + played.offset(policy), played.look(policy)
            if values.size:
                point(axes, x, values.mean(), [[spread(values)]] * 2, look)
    axes.set_ylabel("reward less the optimum, mean ± 1 std")


def feasibility(axes: Any, groups: Groups, environment: str, played: Played) -> None:
    """Share of the seeds that kept all limits exactly, with Wilson's 95% interval."""
    for place, level in enumerate(played.levels):
        for policy in played.policies:
            outside = groups.values(played.key(environment, level, policy), "outside")
            if outside.size:
                kept = int((outside <= 0).sum())
                low, high = wilson(kept, outside.size)
                share = kept / outside.size
                reach = [[100 * (share - low)], [100 * (high - share)]]
                x = place + played.offset(policy)
                point(axes, x, 100 * share, reach, played.look(policy))
    axes.set_ylabel("% of seeds within all limits, Wilson 95%")
    axes.set_ylim(-5, 105)


def point(axes: Any, x: float, y: float, reach: Any, look: Look) -> None:
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


def places(axes: Any, environment: str, played: Played) -> None:
    """Names of the levels, and a line between one and the next."""
    names = [played.cast.levels[level].name for level in played.levels]
    axes.set_title(f"{environment} environment", fontsize=10)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", alpha=0.3, linewidth=0.6)
    for edge in range(1, len(names)):
        axes.axvline(edge - 0.5, color=GREY, linewidth=0.6, alpha=0.6)


def legend(plt: Any, played: Played) -> tuple[list[Any], list[str]]:
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
