"""The paper's third figure: how the reward of the policies moves over the rounds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from bylot.experiments import BEYOND as OURS
from bylot.experiments import HARD
from bylot.plots.band import band
from bylot.plots.groups import Groups, Run, heading
from bylot.plots.played import BEYOND, PAPER, Cast, Played
from bylot.plots.style import BLACK, ENVIRONMENTS, drawing, written

SHOWN = ("omd", "ts-bwk", "cbwk", "ts", "cucb", "greedy")
"""Those of the paper's figure: MoE and Random are left out there."""
COLUMNS = ("tight", "loose")


def draw(cells: pl.DataFrame, run: Run, folder: Path) -> list[Path]:
    """The paper's: tight limits on the left and loose ones on the right."""
    return rolled(Groups(cells), PAPER, SHOWN, COLUMNS, run, folder)


def draw_beyond(cells: pl.DataFrame, run: Run, folder: Path) -> list[Path]:
    """Past the paper: where limits bind."""
    return rolled(Groups(cells), BEYOND, OURS, HARD, run, folder)


def rolled(
    groups: Groups,
    cast: Cast,
    policies: Sequence[str],
    columns: Sequence[str],
    run: Run,
    folder: Path,
) -> list[Path]:
    """A row an environment, a column a level."""
    played = Played.of(groups, cast)
    shown = [policy for policy in policies if policy in played.policies]
    levels = [level for level in columns if level in played.levels]
    if not (shown and levels):
        return []
    plt, past = drawing(), cast is BEYOND
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
    figure.suptitle(heading(title, run, groups.seeds(cast.experiment)))
    for row, environment in enumerate(played.environments):
        for panel, level in zip(axes[row], levels, strict=True):
            lines(panel, groups, played, shown, environment, level)
            where = ENVIRONMENTS[environment]
            panel.set_title(f"{where} environment, {level} limits", fontsize=10)
        axes[row, 0].set_ylabel("rolling mean reward")
    for panel in axes[-1]:
        panel.set_xlabel("round t")
    place = {"loc": "outside lower center", "ncols": 2 * width, "frameon": False, "fontsize": 9}
    figure.legend(*legend(plt, played, shown), **place)
    return written(figure, folder, "beyond-rolling" if past else "rolling")


def lines(
    axes: Any, groups: Groups, played: Played, shown: Sequence[str], environment: str, level: str
) -> None:
    """Means over seeds with bands of one standard deviation; the leads last, to lie on top."""
    leads = [policy for policy in shown if policy in played.cast.lead]
    others = [policy for policy in reversed(shown) if policy not in leads]
    for policy in [*others, *leads]:
        curve = groups.curve(played.key(environment, level, policy), "curve_reward")
        if curve is None:
            continue
        look, lead = played.look(policy), policy in leads
        band(axes, curve.t, curve, look, alpha=0.22 / len(leads) if lead else 0.07)
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


def legend(plt: Any, played: Played, shown: Sequence[str]) -> tuple[list[Any], list[str]]:
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
