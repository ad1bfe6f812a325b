"""The paper's third figure: how the reward of the policies moves over the rounds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from bylot.plots.band import band
from bylot.plots.crowd import Played
from bylot.plots.groups import Groups, Run, crowd, heading
from bylot.plots.style import BLACK, ENVIRONMENTS, POLICIES, drawing, written

SHOWN = ("omd", "ts-bwk", "cbwk", "ts", "cucb", "greedy")
"""Those of the paper's figure: MoE and Random are left out there."""
COLUMNS = ("tight", "loose")


def draw(cells: pl.DataFrame, run: Run, folder: Path) -> list[Path]:
    """A row an environment, tight limits on the left and loose ones on the right."""
    groups = Groups(cells)
    played = Played.of(groups)
    shown = [policy for policy in SHOWN if policy in played.policies]
    levels = [level for level in COLUMNS if level in played.levels]
    if not (shown and levels):
        return []
    plt = drawing()
    rows, columns = len(played.environments), len(levels)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(6 * columns, 0.7 + 3.9 * rows),
        layout="constrained",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    title = f"Reward over time, mean of the last {run.get('window', '?')} rounds"
    figure.suptitle(heading(title, run, groups.seeds("crowd")))
    for row, environment in enumerate(played.environments):
        for panel, level in zip(axes[row], levels, strict=True):
            lines(panel, groups, environment, level)
            name = ENVIRONMENTS[environment]
            panel.set_title(f"{name} environment, {level} limits", fontsize=10)
        axes[row, 0].set_ylabel("rolling mean reward")
    for panel in axes[-1]:
        panel.set_xlabel("round t")
    place = {"loc": "outside lower center", "ncols": 2 * columns, "frameon": False, "fontsize": 9}
    figure.legend(*legend(plt, shown), **place)
    return written(figure, folder, "rolling")


def lines(axes: Any, groups: Groups, environment: str, level: str) -> None:
    """Means over seeds with bands of one standard deviation; OMD last, so that it lies on top."""
    for policy in reversed(SHOWN):
        curve = groups.curve(crowd(environment, level, policy), "curve_reward")
        if curve is None:
            continue
        look, ours = POLICIES[policy], policy == "omd"
        band(axes, curve.t, curve, look, alpha=0.22 if ours else 0.07)
        axes.plot(
            curve.t,
            curve.mean,
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            markevery=(0.02 * SHOWN.index(policy), 0.14),
            markersize=5,
            linewidth=2.2 if ours else 1.5,
        )
    keys = [crowd(environment, level, policy) for policy in SHOWN]
    best = next((found for key in keys if (found := groups.values(key, "optimum")).size), None)
    if best is not None:
        axes.axhline(best.mean(), color=BLACK, linewidth=0.9, linestyle=(0, (1, 3)))
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.margins(x=0.01)


def legend(plt: Any, shown: Sequence[str]) -> tuple[list[Any], list[str]]:
    """One legend for all panels, outside them."""
    line2d, looks = plt.matplotlib.lines.Line2D, [POLICIES[policy] for policy in shown]
    marks = [
        line2d([], [], color=look.colour, linestyle=look.line, marker=look.marker, linewidth=1.7)
        for look in looks
    ]
    marks.append(line2d([], [], color=BLACK, linewidth=0.9, linestyle=(0, (1, 3))))
    marks.append(plt.matplotlib.patches.Patch(color=looks[0].colour, alpha=0.25, linewidth=0))
    names = [look.name for look in looks]
    return marks, [*names, "true optimum in hindsight", "± 1 standard deviation over seeds"]
