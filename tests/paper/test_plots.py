"""Figures: drawn from complete, partial and empty records, with titles that say what they show."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from bylot.reports import PAPER_POLICY_STYLES
from bylot_paper.analysis import RecordGroups, UpdateCurves, make_figure_title
from bylot_paper.report import FIGURE_DRAWERS
from bylot_paper.report.figures import LEVEL_STYLES
from paper_records import AS_WRITTEN, make_paper_records

PAPER_FIGURES = {name: FIGURE_DRAWERS[name] for name in ("sweep", "crowd", "rolling")}
FIGURES = pytest.mark.parametrize("figure", PAPER_FIGURES.values(), ids=PAPER_FIGURES)


@pytest.fixture(scope="module")
def records() -> Any:
    """A complete run."""
    return make_paper_records(AS_WRITTEN, seeds=5)


@FIGURES
def test_a_figure_is_a_png_and_an_svg(
    figure: Callable[..., list[Path]], records: Any, tmp_path: Path
) -> None:
    png, svg = figure(records.cells, records.run, tmp_path)
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "</svg>" in svg.read_text()
    assert min(png.stat().st_size, svg.stat().st_size) > 10_000
    again = tmp_path / "again"
    again.mkdir()
    assert figure(records.cells, records.run, again)[1].read_bytes() == svg.read_bytes()


@FIGURES
def test_no_records_give_no_figure(
    figure: Callable[..., list[Path]], records: Any, tmp_path: Path
) -> None:
    assert figure(records.cells.clear(), records.run, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@FIGURES
@pytest.mark.parametrize(
    "part",
    [
        (pl.col("seed") == 0) & (pl.col("policy") == "omd"),
        (pl.col("level") == "loose") & (pl.col("environment") == "stochastic"),
    ],
    ids=["one seed of one policy", "one level of one environment"],
)
def test_partial_records_give_a_figure(
    figure: Callable[..., list[Path]], part: pl.Expr, records: Any, tmp_path: Path
) -> None:
    assert len(figure(records.cells.filter(part), records.run, tmp_path)) == 2


def test_a_run_of_a_few_rounds_is_drawn(records: Any, tmp_path: Path) -> None:
    curves = [name for name in records.cells.columns if name.startswith("curve_")]
    short = records.cells.with_columns(pl.col(name).list.head(3) for name in curves)
    for figure in PAPER_FIGURES.values():
        assert len(figure(short, {**records.run, "rounds": 30}, tmp_path)) == 2


def test_the_title_names_data_rounds_and_seeds() -> None:
    made_up = {"data": {"name": "x", "synthetic": True}, "rounds": 10_000}
    assert make_figure_title("Regret", made_up, (5, 5)) == (
        "SYNTHETIC: Regret\na made-up crowd, 10,000 rounds, 5 seeds"
    )
    real = {"data": {"name": "trec", "synthetic": False}, "rounds": 10_000}
    assert "SYNTHETIC" not in make_figure_title("Regret", real, (5, 5))
    assert "trec data" in make_figure_title("Regret", real, (5, 5))


def test_series_differ_even_without_colour() -> None:
    for styles in (PAPER_POLICY_STYLES, LEVEL_STYLES):
        assert len({style.colour for style in styles.values()}) == len(styles)
        assert len({style.marker for style in styles.values()}) == len(styles)
        assert len({str(style.line) for style in styles.values()}) == len(styles)
    assert PAPER_POLICY_STYLES["omd"].colour == "#0072B2"


def test_a_band_is_the_deviation_over_seeds() -> None:
    curve = UpdateCurves(np.array([10, 20]), np.array([[1.0, 2.0], [3.0, 2.0]]), [0, 1])
    assert curve.std.tolist() == [np.sqrt(2.0), 0.0]
    assert curve.n.tolist() == [1.0, 2.0]
    assert UpdateCurves(curve.t, curve.seeds[:1], [0]).std.tolist() == [0.0, 0.0]


def test_curves_of_unequal_length_are_cut_to_the_shortest(records: Any) -> None:
    cells = records.cells.filter(pl.col("experiment") == "sweep")
    cut = cells.with_columns(
        pl.when(pl.col("seed") == 0)
        .then(pl.col("curve_r2").list.head(7))
        .otherwise(pl.col("curve_r2"))
        .alias("curve_r2")
    )
    groups = RecordGroups(cut)
    curve = groups.curve(next(iter(groups)), "curve_r2")
    assert curve is not None
    assert curve.seeds.shape == (5, 7)
    assert curve.t.tolist() == [10, 20, 30, 40, 50, 60, 70]
