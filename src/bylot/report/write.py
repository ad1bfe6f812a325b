"""Everything that is made of a run's records, written into a folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars as pl

from bylot.experiments import CONTEST
from bylot.plots import ablation, crowd, default, periods, regret, rolling, sweep
from bylot.plots.groups import Groups, Run
from bylot.plots.style import folder_for
from bylot.report import default as contest
from bylot.report.beyond import counted_checks, judge_checks, section
from bylot.report.blocks import Block
from bylot.report.claims import Row, judge_all
from bylot.report.contents import LOOSER, PAPER, contents, fallen, opening, title
from bylot.report.evidence import Evidence
from bylot.report.html import html
from bylot.report.markdown import markdown
from bylot.report.readings import at_threshold, readings
from bylot.report.summary import plain, summary
from bylot.whole import keep

DRAWN = {
    "sweep": sweep.draw,
    "crowd": crowd.draw,
    "rolling": rolling.draw,
    "beyond": crowd.draw_beyond,
    "beyond-rolling": rolling.draw_beyond,
    "beyond-regret": regret.draw,
    "beyond-periods": periods.draw,
    "beyond-ablation": ablation.draw,
    "default": default.draw,
}


class Records(Protocol):
    """A table of cells and the manifest of the run that they are of."""

    @property
    def cells(self) -> pl.DataFrame: ...

    @property
    def run(self) -> Run: ...


def figures(records: Records, folder: Path) -> list[Path]:
    """All figures that the records allow, as PNG and SVG in folder/figures."""
    return [path for paths in drawn(records, folder).values() for path in paths]


def drawn(records: Records, folder: Path) -> dict[str, list[Path]]:
    """The paths of each figure; none of one that has no records."""
    place = folder_for(folder / "figures")
    return {name: draw(records.cells, records.run, place) for name, draw in DRAWN.items()}


class Made(NamedTuple):
    """The files that were written, and how the verdicts fell, in a sentence."""

    paths: list[Path]
    verdicts: str


def write(records: Records, folder: Path, core_seconds: float | None = None) -> Made:
    """Figures, report.md, report.html and summary.json; claims.json of what is the paper's, and
    beyond.json and default.json of what is not.

    core_seconds: what the computing took; None: what the folder's summary says already.
    """
    cells, run = records.cells, records.run
    spent = spent_before(folder) if core_seconds is None else core_seconds
    paths = drawn(records, folder)
    paper, past, all_worlds = cells, cells.clear(), cells.clear()
    if not cells.is_empty():
        paper = cells.filter(pl.col("experiment").is_in(PAPER))
        past = cells.filter(~pl.col("experiment").is_in((*PAPER, *CONTEST)))
        all_worlds = cells.filter(pl.col("experiment").is_in(CONTEST))
    claims, checks = judge_all(paper, run), judge_checks(past, run)
    with_paper = not paper.is_empty() or (past.is_empty() and all_worlds.is_empty())
    name = title(run, with_paper, not past.is_empty())
    blocks = opening(run, Groups(cells), spent, name, with_paper)
    verdicts = []
    data: dict[str, Any] = {"summary.json": summary(cells, run, spent)}
    if with_paper:
        blocks += of_paper(paper, run, claims, paths)
        data["claims.json"] = [row._asdict() for row in claims]
        verdicts.append(fallen(claims, run))
    if not past.is_empty():
        blocks += section(Evidence(past, run), past, checks, paths)
        data["beyond.json"] = [row._asdict() for row in checks]
        verdicts.append(counted_checks(checks))
    if not all_worlds.is_empty():
        judged = contest.judge(all_worlds, run)
        blocks += contest.section(judged, all_worlds, run, paths["default"])
        data["default.json"] = found = contest.numbers(judged)
        verdicts.append(found["outcome"])
    pages = write_pages(blocks, name, folder, data)
    figures = [path for pair in paths.values() for path in pair]
    return Made(figures + pages, "\n".join(verdicts))


def write_pages(
    blocks: Sequence[Block], name: str, folder: Path, data: Mapping[str, Any]
) -> list[Path]:
    """A report as report.md and report.html, and the numbers behind it as JSON files."""
    texts = {
        "report.md": markdown(blocks, folder),
        "report.html": html(blocks, name),
        **{file: as_json(content) for file, content in data.items()},
    }
    for file, text in texts.items():
        keep(folder / file, text.encode())
    return [folder / file for file in texts]


def of_paper(
    cells: pl.DataFrame, run: Run, claims: list[Row], paths: dict[str, list[Path]]
) -> list[Block]:
    """The part of the report that is about the paper's experiments."""
    others = readings(cells, run)
    loose = at_threshold(cells, run, LOOSER)
    return contents(Evidence(cells, run), claims, others, loose, paths)


def spent_before(folder: Path) -> float | None:
    """Core-seconds that an earlier summary speaks of, None if there is none."""
    try:
        return float(json.loads((folder / "summary.json").read_text())["core_seconds"])
    except (OSError, ValueError, TypeError, LookupError):
        return None


def as_json(value: Any) -> str:
    """Indented, so that a person can read it too."""
    return json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
