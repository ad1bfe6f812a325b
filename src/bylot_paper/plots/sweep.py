"""The paper's first figure: regret and distance from the limits over the updates."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.reports.style import BLACK, GREY, SeriesStyle, draw_std_band, save_figure
from bylot_paper.analysis import (
    RecordGroups,
    RunManifest,
    UpdateCurves,
    make_figure_title,
    sweep_key,
)
from bylot_paper.plots.panels import (
    LEVEL_STYLES,
    label_panels,
    make_handle,
    make_panels,
    make_patch,
    put_legend,
    set_log_scales,
)

SWEEP_LEVELS = ("tight", "medium", "loose")
ANCHOR_UPDATE = 10
"""The update n at which c/√n meets the tight curve: the noise of the first updates is gone."""


def draw_sweep_figure(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """R1 above, R2 below, one column per number of reward dimensions; nothing without a sweep."""
    groups = RecordGroups(cells)
    seeds = groups.seeds("sweep")
    if seeds == (0, 0):
        return []
    title = make_figure_title("Regret of OMD under three levels of limits", run, seeds)
    figure, axes = make_panels(2, 2, (11, 8), title, sharex=True, sharey="row")
    for (top, bottom), dimensions in zip(axes.T, (3, 5), strict=True):
        top.set_title(f"N = {dimensions} dimensions of reward")
        draw_r1(top, groups, dimensions)
        draw_r2(bottom, groups, dimensions)
    axes[0, 0].set_ylabel("R1: reward lost per round, mean so far")
    axes[1, 0].set_ylabel("R2: distance of mean cost from the limits")
    label_panels(axes[-1], "updates of OMD, n = t/10")
    styles = [LEVEL_STYLES[level] for level in SWEEP_LEVELS]
    handles = [make_handle(color=one.colour, marker=one.marker, linewidth=1.7) for one in styles]
    handles += [
        make_handle(color=GREY, linestyle=":", linewidth=1.2),
        make_handle(color=BLACK, linestyle="--", linewidth=1.1),
        make_patch(GREY, 0.3),
    ]
    names = [
        *(f"{level} limits" for level in SWEEP_LEVELS),
        "R1 against the paper's stand-in (OMD's last policy)",
        f"c/√n through the tight curve at n = {ANCHOR_UPDATE}",
        "± 1 standard deviation over seeds",
    ]
    put_legend(figure, handles, names, columns=2)
    return save_figure(figure, folder, "sweep")


def draw_r1(axes: Any, groups: RecordGroups, dimensions: int) -> None:
    """R1 against the true optimum, and dotted against the paper's stand-in."""
    for level in SWEEP_LEVELS:
        style, key = LEVEL_STYLES[level], sweep_key(dimensions, level)
        if proxy := groups.curve(key, "curve_r1_proxy"):
            axes.plot(proxy.n, proxy.mean, color=style.colour, linestyle=":", linewidth=1.0)
        if true := groups.curve(key, "curve_r1_true"):
            draw_sweep_curve(axes, true, style)
    draw_reference_rate(axes, groups, dimensions, "curve_r1_true")
    set_log_scales(axes, 1e-2)


def draw_r2(axes: Any, groups: RecordGroups, dimensions: int) -> None:
    """R2, which is exactly 0 where all limits are kept."""
    for level in SWEEP_LEVELS:
        if curve := groups.curve(sweep_key(dimensions, level), "curve_r2"):
            draw_sweep_curve(axes, curve, LEVEL_STYLES[level], least=0.0)  # R2 is never negative
    draw_reference_rate(axes, groups, dimensions, "curve_r2")
    set_log_scales(axes, 1e-3)
    axes.set_ylim(bottom=-3e-4)


def draw_sweep_curve(
    axes: Any, curve: UpdateCurves, style: SeriesStyle, least: float = -np.inf
) -> None:
    """The mean over seeds, with a band of one standard deviation that ends at `least`."""
    marks = np.unique(np.geomspace(1, len(curve.t), 9).astype(int)) - 1
    draw_std_band(axes, curve.n, curve, style, alpha=0.14, least=least)
    points = {"marker": style.marker, "markevery": list(marks), "markersize": 5}
    axes.plot(curve.n, curve.mean, color=style.colour, linewidth=1.7, **points)


def draw_reference_rate(axes: Any, groups: RecordGroups, dimensions: int, column: str) -> None:
    """c/√n through the tight curve at n = ANCHOR_UPDATE; none if that curve is not above 0."""
    curve = groups.curve(sweep_key(dimensions, "tight"), column)
    if curve is None or curve.n[-1] < ANCHOR_UPDATE:
        return
    c = float(np.interp(ANCHOR_UPDATE, curve.n, curve.mean)) * np.sqrt(ANCHOR_UPDATE)
    if c > 0:
        axes.plot(curve.n, c / np.sqrt(curve.n), color=BLACK, linestyle="--", linewidth=1.1)
