"""The paper's first figure: regret and distance from the limits as updates go by."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.plots.band import band
from bylot.plots.groups import Curve, Groups, Run, heading, sweep
from bylot.plots.style import BLACK, GREY, LEVELS, Look, drawing, written

DIMENSIONS = (3, 5)
TESTED = ("tight", "medium", "loose")
ANCHOR = 10
"""The update n at which the reference c/√n meets the tight curve: there the first noise is gone."""


def draw(cells: pl.DataFrame, run: Run, folder: Path) -> list[Path]:
    """R1 above, R2 below, a column a number of reward dimensions; nothing if there is no sweep."""
    groups = Groups(cells)
    seeds = groups.seeds("sweep")
    if seeds == (0, 0):
        return []
    plt = drawing()
    figure, axes = plt.subplots(
        2, 2, figsize=(11, 8), sharex=True, sharey="row", layout="constrained"
    )
    figure.suptitle(heading("Regret of OMD under three levels of limits", run, seeds))
    for column, dimensions in enumerate(DIMENSIONS):
        top, bottom = axes[0, column], axes[1, column]
        top.set_title(f"N = {dimensions} dimensions of reward")
        regret(top, groups, dimensions)
        violation(bottom, groups, dimensions)
        bottom.set_xlabel("updates of OMD, n = t/10")
    axes[0, 0].set_ylabel("R1: reward lost per round, mean so far")
    axes[1, 0].set_ylabel("R2: distance of mean cost from the limits")
    figure.legend(*legend(plt), loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return written(figure, folder, "sweep")


def regret(axes: Any, groups: Groups, dimensions: int) -> None:
    """R1 against the true optimum, and thinly against the paper's stand-in."""
    for level in TESTED:
        look, key = LEVELS[level], sweep(dimensions, level)
        if proxy := groups.curve(key, "curve_r1_proxy"):
            axes.plot(proxy.n, proxy.mean, color=look.colour, linestyle=":", linewidth=1.0)
        if true := groups.curve(key, "curve_r1_true"):
            line(axes, true, look)
    reference(axes, groups, dimensions, "curve_r1_true")
    scale(axes, 1e-2)


def violation(axes: Any, groups: Groups, dimensions: int) -> None:
    """R2, which is exactly 0 where all limits are kept."""
    for level in TESTED:
        if curve := groups.curve(sweep(dimensions, level), "curve_r2"):
            line(axes, curve, LEVELS[level], least=0.0)  # a distance is never negative
    reference(axes, groups, dimensions, "curve_r2")
    scale(axes, 1e-3)
    axes.set_ylim(bottom=-3e-4)


def line(axes: Any, curve: Curve, look: Look, least: float = -np.inf) -> None:
    """The mean over seeds, with a band of one standard deviation either side, not under `least`."""
    marks = np.unique(np.geomspace(1, len(curve.t), 9).astype(int)) - 1
    band(axes, curve.n, curve, look, alpha=0.14, least=least)
    axes.plot(
        curve.n,
        curve.mean,
        color=look.colour,
        marker=look.marker,
        markevery=list(marks),
        markersize=5,
        linewidth=1.7,
    )


def reference(axes: Any, groups: Groups, dimensions: int, column: str) -> None:
    """c/√n through the tight curve at n = ANCHOR; none where that curve is not above 0."""
    curve = groups.curve(sweep(dimensions, "tight"), column)
    if curve is None or curve.n[-1] < ANCHOR:
        return
    c = float(np.interp(ANCHOR, curve.n, curve.mean)) * np.sqrt(ANCHOR)
    if c > 0:
        axes.plot(curve.n, c / np.sqrt(curve.n), color=BLACK, linestyle="--", linewidth=1.1)


def scale(axes: Any, near_zero: float) -> None:
    """Logarithms both ways, but linear within `near_zero` of 0, as the curves get there."""
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=near_zero, linscale=0.6)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.grid(alpha=0.25, linewidth=0.6)


def legend(plt: Any) -> tuple[list[Any], list[str]]:
    """One legend for all panels, outside them."""
    line2d = plt.matplotlib.lines.Line2D
    marks = [
        line2d([], [], color=look.colour, marker=look.marker, linewidth=1.7)
        for look in (LEVELS[level] for level in TESTED)
    ]
    marks += [
        line2d([], [], color=GREY, linestyle=":", linewidth=1.2),
        line2d([], [], color=BLACK, linestyle="--", linewidth=1.1),
        plt.matplotlib.patches.Patch(color=GREY, alpha=0.3, linewidth=0),
    ]
    return marks, [
        *(f"{level} limits" for level in TESTED),
        "R1 against the paper's stand-in (OMD's last policy)",
        f"c/√n through the tight curve at n = {ANCHOR}",
        "± 1 standard deviation over seeds",
    ]
