"""Everything that is made of a run's records, written into a folder."""

import json
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars as pl

from bylot.reports.blocks import Block, JudgedClaim
from bylot.reports.pages import write_pages
from bylot.reports.style import make_figure_folder
from bylot_paper.analysis import RecordGroups, RunManifest
from bylot_paper.claims import compare_readings, find_threshold_changes, judge_claims
from bylot_paper.evidence import Evidence
from bylot_paper.grid import COMPARISON_EXPERIMENTS
from bylot_paper.plots import beyond, comparison, default, sweep
from bylot_paper.report import default as contest
from bylot_paper.report.beyond import build_beyond_section, count_checks, judge_checks
from bylot_paper.report.paper import (
    LOOSER_THRESHOLD,
    PAPER_EXPERIMENTS,
    build_opening,
    build_paper_section,
    count_verdicts,
    make_report_title,
)
from bylot_paper.report.summary import summarise_run

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


class ReportRecords(Protocol):
    """A table of cells and the manifest of the run that they are of."""

    @property
    def cells(self) -> pl.DataFrame: ...

    @property
    def run(self) -> RunManifest: ...


def draw_figures(records: ReportRecords, folder: Path) -> list[Path]:
    """All figures that the records allow, as PNG and SVG in folder/figures."""
    return [path for paths in draw_figures_by_name(records, folder).values() for path in paths]


def draw_figures_by_name(records: ReportRecords, folder: Path) -> dict[str, list[Path]]:
    """The paths of each figure; none of one that has no records."""
    place = make_figure_folder(folder / "figures")
    return {name: draw(records.cells, records.run, place) for name, draw in FIGURE_DRAWERS.items()}


class WrittenReport(NamedTuple):
    """The files that were written, and how the verdicts fell, in a sentence."""

    paths: list[Path]
    verdicts: str


def write_report(
    records: ReportRecords, folder: Path, core_seconds: float | None = None
) -> WrittenReport:
    """Figures, report.md, report.html and summary.json; claims.json of what is the paper's, and
    beyond.json and default.json of what is not.

    core_seconds: what the computing took; None: what the folder's summary says already.
    """
    cells, run = records.cells, records.run
    spent = read_core_seconds(folder) if core_seconds is None else core_seconds
    paths = draw_figures_by_name(records, folder)
    paper, past, all_worlds = cells, cells.clear(), cells.clear()
    if not cells.is_empty():
        paper = cells.filter(pl.col("experiment").is_in(PAPER_EXPERIMENTS))
        past = cells.filter(
            ~pl.col("experiment").is_in((*PAPER_EXPERIMENTS, *COMPARISON_EXPERIMENTS))
        )
        all_worlds = cells.filter(pl.col("experiment").is_in(COMPARISON_EXPERIMENTS))
    claims, checks = judge_claims(paper, run), judge_checks(past, run)
    with_paper = not paper.is_empty() or (past.is_empty() and all_worlds.is_empty())
    name = make_report_title(run, with_paper, not past.is_empty())
    blocks = build_opening(run, RecordGroups(cells), spent, name, with_paper)
    verdicts = []
    data: dict[str, Any] = {"summary.json": summarise_run(cells, run, spent)}
    if with_paper:
        blocks += build_paper_blocks(paper, run, claims, paths)
        data["claims.json"] = [row._asdict() for row in claims]
        verdicts.append(count_verdicts(claims, run))
    if not past.is_empty():
        blocks += build_beyond_section(Evidence(past, run), past, checks, paths)
        data["beyond.json"] = [row._asdict() for row in checks]
        verdicts.append(count_checks(checks))
    if not all_worlds.is_empty():
        judged = contest.judge_contest(all_worlds, run)
        blocks += contest.build_default_section(judged, all_worlds, run, paths["default"])
        data["default.json"] = found = contest.make_default_data(judged)
        verdicts.append(found["outcome"])
    pages = write_pages(blocks, name, folder, data)
    figures = [path for pair in paths.values() for path in pair]
    return WrittenReport(figures + pages, "\n".join(verdicts))


def build_paper_blocks(
    cells: pl.DataFrame, run: RunManifest, claims: list[JudgedClaim], paths: dict[str, list[Path]]
) -> list[Block]:
    """The part of the report that is about the paper's experiments."""
    others = compare_readings(cells, run)
    loose = find_threshold_changes(cells, run, LOOSER_THRESHOLD)
    return build_paper_section(Evidence(cells, run), claims, others, loose, paths)


def read_core_seconds(folder: Path) -> float | None:
    """Core-seconds that an earlier summary speaks of, None if there is none."""
    try:
        return float(json.loads((folder / "summary.json").read_text())["core_seconds"])
    except (OSError, ValueError, TypeError, LookupError):
        return None
