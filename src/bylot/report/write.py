"""Everything that is made of a run's records, written into a folder."""

import json
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars as pl

from bylot.plots import crowd, rolling, sweep
from bylot.plots.groups import Run
from bylot.plots.style import folder_for
from bylot.report.claims import judge_all
from bylot.report.contents import LOOSER, contents, fallen, title
from bylot.report.evidence import Evidence
from bylot.report.html import html
from bylot.report.markdown import markdown
from bylot.report.readings import at_threshold, readings
from bylot.report.summary import plain, summary
from bylot.whole import keep

DRAWN = {"sweep": sweep.draw, "crowd": crowd.draw, "rolling": rolling.draw}


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
    """Figures, report.md, report.html, summary.json and claims.json.

    core_seconds: what the computing took; None: what the folder's summary says already.
    """
    spent = spent_before(folder) if core_seconds is None else core_seconds
    paths = drawn(records, folder)
    evidence = Evidence(records.cells, records.run)
    rows = judge_all(records.cells, records.run)
    others = readings(records.cells, records.run)
    loose = at_threshold(records.cells, records.run, LOOSER)
    blocks = contents(evidence, rows, others, loose, paths, spent)
    texts = {
        "report.md": markdown(blocks, folder),
        "report.html": html(blocks, title(records.run)),
        "summary.json": as_json(summary(records.cells, records.run, spent)),
        "claims.json": as_json([row._asdict() for row in rows]),
    }
    for name, text in texts.items():
        keep(folder / name, text.encode())
    figures = [path for pair in paths.values() for path in pair]
    return Made(figures + [folder / name for name in texts], fallen(rows, records.run))


def spent_before(folder: Path) -> float | None:
    """Core-seconds that an earlier summary speaks of, None if there is none."""
    try:
        return float(json.loads((folder / "summary.json").read_text())["core_seconds"])
    except (OSError, ValueError, TypeError, LookupError):
        return None


def as_json(value: Any) -> str:
    """Indented, so that a person can read it too."""
    return json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
