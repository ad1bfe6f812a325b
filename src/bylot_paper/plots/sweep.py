"""The paper's first figure: regret and distance from the limits as updates go by."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.reports.style import (
    BLACK,
    GREY,
    LEVEL_STYLES,
    SeriesStyle,
    draw_std_band,
    load_pyplot,
    save_figure,
)
from bylot_paper.analysis import (
    RecordGroups,
    RunManifest,
    UpdateCurves,
    make_figure_title,
    sweep_key,
)

SWEEP_DIMENSIONS = (3, 5)
SWEEP_LEVELS = ("tight", "medium", "loose")
ANCHOR_UPDATE = 10
"""The update n at which the reference c/√n meets the tight curve: there the first noise is gone."""


def draw_sweep_figure(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """R1 above, R2 below, a column a number of reward dimensions; nothing if there is no sweep."""
    groups = RecordGroups(cells)
    seeds = groups.seeds("sweep")
    if seeds == (0, 0):
        return []
    plt = load_pyplot()
    figure, axes = plt.subplots(
        2, 2, figsize=(11, 8), sharex=True, sharey="row", layout="constrained"
    )
    figure.suptitle(make_figure_title("Regret of OMD under three levels of limits", run, seeds))
    for column, dimensions in enumerate(SWEEP_DIMENSIONS):
        top, bottom = axes[0, column], axes[1, column]
        top.set_title(f"N = {dimensions} dimensions of reward")
        draw_r1(top, groups, dimensions)
        draw_r2(bottom, groups, dimensions)
        bottom.set_xlabel("updates of OMD, n = t/10")
    axes[0, 0].set_ylabel("R1: reward lost per round, mean so far")
    axes[1, 0].set_ylabel("R2: distance of mean cost from the limits")
    figure.legend(
        *make_sweep_legend(plt), loc="outside lower center", ncols=2, frameon=False, fontsize=9
    )
    return save_figure(figure, folder, "sweep")


def draw_r1(axes: Any, groups: RecordGroups, dimensions: int) -> None:
    """R1 against the true optimum, and thinly against the paper's stand-in."""
    for level in SWEEP_LEVELS:
        look, key = LEVEL_STYLES[level], sweep_key(dimensions, level)
        if proxy := groups.curve(key, "curve_r1_proxy"):
            axes.plot(proxy.n, proxy.mean, color=look.colour, linestyle=":", linewidth=1.0)
        if true := groups.curve(key, "curve_r1_true"):
            draw_sweep_curve(axes, true, look)
    draw_reference_rate(axes, groups, dimensions, "curve_r1_true")
    set_log_scales(axes, 1e-2)


def draw_r2(axes: Any, groups: RecordGroups, dimensions: int) -> None:
    """R2, which is exactly 0 where all limits are kept."""
    for level in SWEEP_LEVELS:
        if curve := groups.curve(sweep_key(dimensions, level), "curve_r2"):
            draw_sweep_curve(
                axes, curve, LEVEL_STYLES[level], least=0.0
            )  # a distance is never negative
    draw_reference_rate(axes, groups, dimensions, "curve_r2")
    set_log_scales(axes, 1e-3)
    axes.set_ylim(bottom=-3e-4)


def draw_sweep_curve(
    axes: Any, curve: UpdateCurves, look: SeriesStyle, least: float = -np.inf
) -> None:
    """The mean over seeds, with a band of one standard deviation either side, not under `least`."""
    marks = np.unique(np.geomspace(1, len(curve.t), 9).astype(int)) - 1
    draw_std_band(axes, curve.n, curve, look, alpha=0.14, least=least)
    axes.plot(
        curve.n,
        curve.mean,
        color=look.colour,
        marker=look.marker,
        markevery=list(marks),
        markersize=5,
        linewidth=1.7,
    )


def draw_reference_rate(axes: Any, groups: RecordGroups, dimensions: int, column: str) -> None:
    """c/√n through the tight curve at n = ANCHOR; none where that curve is not above 0."""
    curve = groups.curve(sweep_key(dimensions, "tight"), column)
    if curve is None or curve.n[-1] < ANCHOR_UPDATE:
        return
    c = float(np.interp(ANCHOR_UPDATE, curve.n, curve.mean)) * np.sqrt(ANCHOR_UPDATE)
    if c > 0:
        axes.plot(curve.n, c / np.sqrt(curve.n), color=BLACK, linestyle="--", linewidth=1.1)


def set_log_scales(axes: Any, near_zero: float) -> None:
    """Logarithms both ways, but linear within `near_zero` of 0, as the curves get there."""
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=near_zero, linscale=0.6)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.grid(alpha=0.25, linewidth=0.6)


def make_sweep_legend(plt: Any) -> tuple[list[Any], list[str]]:
    """One legend for all panels, outside them."""
    line2d = plt.matplotlib.lines.Line2D
    marks = [
        line2d([], [], color=look.colour, marker=look.marker, linewidth=1.7)
        for look in (LEVEL_STYLES[level] for level in SWEEP_LEVELS)
    ]
    marks += [
        line2d([], [], color=GREY, linestyle=":", linewidth=1.2),
        line2d([], [], color=BLACK, linestyle="--", linewidth=1.1),
        plt.matplotlib.patches.Patch(color=GREY, alpha=0.3, linewidth=0),
    ]
    return marks, [
        *(f"{level} limits" for level in SWEEP_LEVELS),
        "R1 against the paper's stand-in (OMD's last policy)",
        f"c/√n through the tight curve at n = {ANCHOR_UPDATE}",
        "± 1 standard deviation over seeds",
    ]
