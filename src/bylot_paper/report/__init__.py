"""Writes figures and reports from finished records; nothing here runs an experiment."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from bylot.reports import Banner, Block, Bullets, Heading, make_figure_folder, write_pages
from bylot_paper import analysis, grid
from bylot_paper.claims import judge
from bylot_paper.records import Records
from bylot_paper.report import beyond, default, figures
from bylot_paper.report.feedback import build_feedback_section
from bylot_paper.report.formatting import summarize_run
from bylot_paper.report.paper import build_paper_section, count_claims

PAPER_EXPERIMENTS = ("sweep", "crowd")
FIGURE_DRAWERS: dict[str, Callable[[pl.DataFrame, analysis.RunManifest, Path], list[Path]]] = {
    "sweep": figures.draw_sweep,
    "crowd": partial(figures.draw_levels, figures.PAPER_COMPARISON),
    "rolling": partial(figures.draw_rolling, "rolling"),
    "beyond": partial(figures.draw_levels, figures.BEYOND_COMPARISON),
    "beyond-rolling": partial(figures.draw_rolling, "beyond-rolling"),
    "beyond-regret": figures.draw_regret,
    "beyond-periods": beyond.draw_periods,
    "beyond-ablation": beyond.draw_ablation,
    "default": default.draw_contest,
}


class ReportContent(NamedTuple):
    """A report: `data` holds its JSON files by name, `verdicts` a sentence for each part."""

    title: str
    blocks: list[Block]
    data: dict[str, Any]
    verdicts: str
    paths: Sequence[Path] = ()  # of the files, once they are written


def draw_figures(
    cells: pl.DataFrame, run: analysis.RunManifest, folder: Path
) -> dict[str, list[Path]]:
    """Draw all figures that the records allow, as PNG and SVG in folder/figures."""
    target = make_figure_folder(folder / "figures")
    return {name: draw(cells, run, target) for name, draw in FIGURE_DRAWERS.items()}


def write_report(records: Records, out: Path, core_seconds: float | None = None) -> ReportContent:
    """Write figures, report.md, report.html, summary.json and the verdicts as JSON.

    The verdicts are in claims.json (the paper's experiments), beyond.json and default.json.
    core_seconds: what the run took; None: what the folder's summary says already.
    """
    if core_seconds is None:
        with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
            core_seconds = float(json.loads((out / "summary.json").read_text())["core_seconds"])
    drawn = draw_figures(records.cells, records.run, out)
    content = compose_report(records, drawn, core_seconds)
    pages = write_pages(content.blocks, content.title, out, content.data)
    return content._replace(paths=[*chain(*drawn.values()), *pages])


def compose_report(
    records: Records, drawn: Mapping[str, list[Path]], core_seconds: float | None = None
) -> ReportContent:
    """Judge the records and build the report; drawn: the files of each figure."""
    cells, run = records.cells, records.run
    paper, past, worth, contest = (
        cells.filter(pl.col("experiment").is_in(experiments))
        for experiments in (
            PAPER_EXPERIMENTS,
            judge.SECTION_GRIDS["beyond"],
            [grid.FEEDBACK_EXPERIMENT],
            grid.COMPARISON_EXPERIMENTS,
        )
    )
    with_paper = not paper.is_empty() or cells.is_empty()
    title = "All policies in all scenarios, and the default"
    if with_paper:
        title = "The experiments of Multinomial Subset Routing, reproduced"
    elif not past.is_empty():
        title = "Policies beyond Multinomial Subset Routing"
    title = f"{'SYNTHETIC: ' if analysis.is_synthetic(run) else ''}{title}"
    blocks = build_opening(run, analysis.RecordGroups(cells), core_seconds, title, with_paper)
    data: dict[str, Any] = {"summary.json": summarize_run(cells, run, core_seconds)}
    verdicts = []
    if with_paper:
        claims = judge.judge_claims(paper, run)
        blocks += build_paper_section(paper, run, claims, drawn)
        data["claims.json"] = [row._asdict() for row in claims]
        verdicts.append(count_claims(claims, run))
    if not past.is_empty():
        checks = judge.judge_claims(past, run, judge.CHECKS)
        blocks += beyond.build_beyond_section(past, run, checks, drawn)
        data["beyond.json"] = [row._asdict() for row in checks]
        verdicts.append(beyond.count_checks(checks))
    found: dict[str, Any] = {}
    if not worth.is_empty():
        of_feedback, found["feedback"] = build_feedback_section(worth)
        blocks += of_feedback
        verdicts.append(found["feedback"]["answer"])
    if not contest.is_empty():
        of_default, choice = default.build_default_section(contest, run, drawn["default"])
        blocks += of_default
        found |= choice
        verdicts.append(choice["outcome"])
    if found:
        data["default.json"] = found
    return ReportContent(title, blocks, data, "\n".join(verdicts))


def build_opening(
    run: analysis.RunManifest,
    groups: analysis.RecordGroups,
    core_seconds: float | None,
    title: str,
    with_paper: bool,
) -> list[Block]:
    """The data, the size of the run, and what is missing."""
    blocks: list[Block] = [Heading(title, 1)]
    if analysis.is_synthetic(run):
        blocks.append(
            Banner(
                "SYNTHETIC data: the crowd is made up. Every number, figure and verdict below is "
                "about it, not about the TREC workers of the paper."
            )
        )
    notes = judge.list_run_differences(run)
    for experiment in grid.GRIDS:
        notes += judge.describe_missing(groups, experiment, run)
    blocks += [Banner(note) for note in notes if not note.startswith("SYNTHETIC")]
    digest = str(run.get("data", {}).get("digest", "unknown"))[:16]
    facts = [
        f"Data: {analysis.name_data(run)}, digest {digest}; code {run.get('code', 'unknown')}."
    ]
    rounds = f"{run['rounds']:,}" if "rounds" in run else "Unknown"
    facts.append(f"{rounds} rounds per run; window {run.get('window', '?')}.")
    for experiment, cells in grid.GRIDS.items():
        of_paper = experiment in PAPER_EXPERIMENTS
        found = sum(len(groups[key]) for key in groups if key.experiment == experiment)
        if found or (with_paper and of_paper):
            total = len(judge.list_complete_cells(experiment, cells.seeds, run))
            wanted = f"{'the paper has' if of_paper else 'of'} {total:,}"
            seeds = analysis.format_seed_count(groups.seeds(experiment))
            facts.append(f"{experiment}: {found:,} cells ({wanted}), {seeds}.")
    if core_seconds is not None:
        facts.append(f"{core_seconds:,.1f} core-seconds in the last run that computed anything.")
    return [*blocks, Bullets(facts)]
