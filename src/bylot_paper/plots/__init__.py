"""Figures of the paper's experiments, drawn from finished records only."""

from pathlib import Path

import polars as pl

from bylot.reports.style import make_figure_folder
from bylot_paper.analysis import RunManifest
from bylot_paper.plots import beyond, comparison, default, sweep

FIGURE_DRAWERS = {
    "sweep": sweep.draw_sweep_figure,
    "crowd": comparison.draw_crowd,
    "rolling": comparison.draw_rolling,
    "beyond": comparison.draw_beyond_crowd,
    "beyond-rolling": comparison.draw_beyond_rolling,
    "beyond-regret": comparison.draw_regret,
    "beyond-periods": beyond.draw_periods,
    "beyond-ablation": beyond.draw_ablation,
    "default": default.draw_contest,
}


def draw_figures(cells: pl.DataFrame, run: RunManifest, folder: Path) -> dict[str, list[Path]]:
    """Draw all figures that the records allow, as PNG and SVG in folder/figures."""
    target = make_figure_folder(folder / "figures")
    return {name: draw(cells, run, target) for name, draw in FIGURE_DRAWERS.items()}
