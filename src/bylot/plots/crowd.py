"""The paper's second figure: what eight policies earn, and how often they keep the limits."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.plots.groups import Groups, Run, crowd, heading, spread
from bylot.plots.style import BLACK, ENVIRONMENTS, GREY, LEVELS, POLICIES, Look, drawing, written
from bylot.plots.wilson import wilson

WIDTH = 0.8
"""Share of a level's place on the axis that its policies fill."""


def draw(cells: pl.DataFrame, run: Run, folder: Path) -> list[Path]:
    """A row an environment: reward on the left, feasible runs on the right."""
    groups = Groups(cells)
    seeds = groups.seeds("crowd")
    if not seeds:
        return []
    plt = drawing()
    figure, axes = plt.subplots(2, 2, figsize=(13, 8.5), layout="constrained", sharey="col")
    figure.suptitle(
        heading("Reward and kept limits of eight policies at four levels", run, len(seeds))
    )
    for row, environment in enumerate(ENVIRONMENTS):
        rewards(axes[row, 0], groups, environment)
        feasibility(axes[row, 1], groups, environment)
        for panel in axes[row]:
            places(panel, ENVIRONMENTS[environment])
    for panel in axes[1]:
        panel.set_xlabel("level of the limits")
    figure.legend(*legend(plt), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return written(figure, folder, "crowd")


def offset(policy: str) -> float:
    """Where a policy stands within the place of a level."""
    return WIDTH * ((list(POLICIES).index(policy) + 0.5) / len(POLICIES) - 0.5)


def rewards(axes: Any, groups: Groups, environment: str) -> None:
    """Mean and standard deviation over seeds; the optimum in hindsight as a bar across."""
    for place, level in enumerate(LEVELS):
        best = np.concatenate(
            [groups.values(crowd(environment, level, policy), "optimum") for policy in POLICIES]
        )
        if best.size:
            axes.hlines(best.mean(), place - WIDTH / 2, place + WIDTH / 2, BLACK, linewidth=1.6)
        for policy, look in POLICIES.items():
            values = groups.values(crowd(environment, level, policy), "reward")
            if values.size:
                point(axes, place + offset(policy), values.mean(), [[spread(values)]] * 2, look)
    axes.set_ylabel("reward per round, mean ± 1 std over seeds")


def feasibility(axes: Any, groups: Groups, environment: str) -> None:
    """Share of the seeds that kept all limits exactly, with Wilson's 95% interval."""
    for place, level in enumerate(LEVELS):
        for policy, look in POLICIES.items():
            outside = groups.values(crowd(environment, level, policy), "outside")
            if outside.size:
                kept = int((outside <= 0).sum())
                low, high = wilson(kept, outside.size)
                share = kept / outside.size
                reach = [[100 * (share - low)], [100 * (high - share)]]
                point(axes, place + offset(policy), 100 * share, reach, look)
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


def places(axes: Any, environment: str) -> None:
    """Names of the levels, and a line between one and the next."""
    axes.set_title(f"{environment} environment", fontsize=10)
    axes.set_xticks(range(len(LEVELS)), [look.name for look in LEVELS.values()])
    axes.set_xlim(-0.5, len(LEVELS) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", alpha=0.3, linewidth=0.6)
    for edge in range(1, len(LEVELS)):
        axes.axvline(edge - 0.5, color=GREY, linewidth=0.6, alpha=0.6)


def legend(plt: Any) -> tuple[list[Any], list[str]]:
    """One legend for all panels, outside them."""
    line2d = plt.matplotlib.lines.Line2D
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
        for look in POLICIES.values()
    ]
    best = line2d([], [], color=BLACK, linewidth=1.6)
    return [*marks, best], [*(look.name for look in POLICIES.values()), "true optimum in hindsight"]
