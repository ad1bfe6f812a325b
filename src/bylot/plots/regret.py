"""Past the paper: how far each policy is behind the best multinomial one, as rounds go by."""

from pathlib import Path
from typing import Any

import polars as pl

from bylot.plots.band import band
from bylot.plots.groups import Groups, Run, heading
from bylot.plots.played import BEYOND, Played
from bylot.plots.style import ENVIRONMENTS, drawing, written
from bylot.plots.sweep import scale

FIRST = 100
"""The round that curves begin at: before it they show luck."""


def draw(cells: pl.DataFrame, run: Run, folder: Path) -> list[Path]:
    """A row an environment, a column a level."""
    groups = Groups(cells)
    played = Played.of(groups, BEYOND)
    if not played.policies:
        return []
    plt = drawing()
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
    figure.suptitle(heading(title, run, groups.seeds("beyond")))
    for row, environment in enumerate(played.environments):
        for panel, level in zip(axes[row], played.levels, strict=True):
            for policy in played.policies:
                line(panel, groups, played, environment, level, policy)
            scale(panel, 1e-2)
            panel.set_title(f"{ENVIRONMENTS[environment]}, {level}", fontsize=10)
        axes[row, 0].set_ylabel("reward lost per round, mean so far")
    for panel in axes[-1]:
        panel.set_xlabel("round t")
    handles, names = axes[0, 0].get_legend_handles_labels()
    place = {"loc": "outside lower center", "ncols": 7, "frameon": False, "fontsize": 9}
    band_of = plt.matplotlib.patches.Patch(color="#666666", alpha=0.3, linewidth=0)
    figure.legend([*handles, band_of], [*names, "± 1 std over seeds"], **place)
    return written(figure, folder, "beyond-regret")


def line(
    axes: Any, groups: Groups, played: Played, environment: str, level: str, policy: str
) -> None:
    """The mean over seeds of R1 so far, with its band."""
    curve = groups.curve(played.key(environment, level, policy), "curve_r1_true")
    if curve is None:
        return
    late = curve.t >= min(FIRST, curve.t[-1])
    curve = curve._replace(t=curve.t[late], seeds=curve.seeds[:, late])
    look, lead = played.look(policy), policy in played.cast.lead
    band(axes, curve.t, curve, look, alpha=0.18 if lead else 0.06)
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
