"""The paper's second figure: what each policy earns, and how often it keeps the limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    played = Played.of(groups)
    if not played.policies:
        return []
    plt = drawing()
    rows = len(played.environments)
    figure, axes = plt.subplots(
        rows, 2, figsize=(13, 0.7 + 3.9 * rows), layout="constrained", sharey="col", squeeze=False
    )
    title = "Reward and kept limits by the level of the limits"
    figure.suptitle(heading(title, run, groups.seeds("crowd")))
    for row, environment in enumerate(played.environments):
        rewards(axes[row, 0], groups, environment, played)
        feasibility(axes[row, 1], groups, environment, played)
        for panel in axes[row]:
            places(panel, ENVIRONMENTS[environment], played.levels)
    for panel in axes[-1]:
        panel.set_xlabel("level of the limits")
    place = {"loc": "outside lower center", "ncols": 5, "frameon": False, "fontsize": 9}
    figure.legend(*legend(plt, played.policies), **place)
    return written(figure, folder, "crowd")


class Played(NamedTuple):
    """What the records hold of the comparison: nothing else is given a place in the figure."""

    environments: list[str]
    levels: list[str]
    policies: list[str]

    @classmethod
    def of(cls, groups: Groups) -> "Played":
        """In the order of the paper; variants are left to the tables."""
        keys = [key for key in groups if key.experiment == "crowd" and key.policy in POLICIES]
        return cls(
            [one for one in ENVIRONMENTS if any(key.environment == one for key in keys)],
            [one for one in LEVELS if any(key.level == one for key in keys)],
            [one for one in POLICIES if any(key.policy == one for key in keys)],
        )

    def offset(self, policy: str) -> float:
        """Where a policy stands within the place of a level."""
        return WIDTH * ((self.policies.index(policy) + 0.5) / len(self.policies) - 0.5)


def rewards(axes: Any, groups: Groups, environment: str, played: Played) -> None:
    """Mean and standard deviation over seeds; the optimum in hindsight as a bar across."""
    for place, level in enumerate(played.levels):
        keys = [crowd(environment, level, policy) for policy in played.policies]
        best = np.concatenate([groups.values(key, "optimum") for key in keys])
        if best.size:
            axes.hlines(best.mean(), place - WIDTH / 2, place + WIDTH / 2, BLACK, linewidth=1.6)
        for key in keys:
            values, x = groups.values(key, "reward"), place + played.offset(key.policy)
            if values.size:
                point(axes, x, values.mean(), [[spread(values)]] * 2, POLICIES[key.policy])
    axes.set_ylabel("reward per round, mean ± 1 std over seeds")


def feasibility(axes: Any, groups: Groups, environment: str, played: Played) -> None:
    """Share of the seeds that kept all limits exactly, with Wilson's 95% interval."""
    for place, level in enumerate(played.levels):
        for policy in played.policies:
            outside = groups.values(crowd(environment, level, policy), "outside")
            if outside.size:
                kept = int((outside <= 0).sum())
                low, high = wilson(kept, outside.size)
                share = kept / outside.size
                reach = [[100 * (share - low)], [100 * (high - share)]]
                point(axes, place + played.offset(policy), 100 * share, reach, POLICIES[policy])
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


def places(axes: Any, environment: str, levels: Sequence[str]) -> None:
    """Names of the levels, and a line between one and the next."""
    axes.set_title(f"{environment} environment", fontsize=10)
    axes.set_xticks(range(len(levels)), [LEVELS[level].name for level in levels])
    axes.set_xlim(-0.5, len(levels) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", alpha=0.3, linewidth=0.6)
    for edge in range(1, len(levels)):
        axes.axvline(edge - 0.5, color=GREY, linewidth=0.6, alpha=0.6)


def legend(plt: Any, policies: Sequence[str]) -> tuple[list[Any], list[str]]:
    """One legend for all panels, outside them."""
    line2d, looks = plt.matplotlib.lines.Line2D, [POLICIES[policy] for policy in policies]
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
    return [*marks, best], [*(look.name for look in looks), "true optimum in hindsight"]
