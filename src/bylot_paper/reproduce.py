"""`bylot reproduce`: find the missing cells, compute and record them, write figures and report."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bylot._text import format_table, print_progress
from bylot.errors import BylotWarning
from bylot.parallel import Engine, ThreadEngine, show_progress
from bylot_paper import grid, report
from bylot_paper.claims.measures import MIN_VERDICT_SEEDS
from bylot_paper.cluster import RayCluster
from bylot_paper.crowd import Crowd
from bylot_paper.records import (
    RUN_FORMAT,
    RUN_FORMAT_VERSION,
    CellRecord,
    RecordStore,
    code_digest,
)
from bylot_paper.run import RunSetup, run_job
from bylot_paper.scenarios import HOSPITAL_FILES, HospitalPanel, QuestionScenario

EXPERIMENT_SETS = {
    "paper": ("sweep", "crowd"),
    "beyond": ("beyond", "ablation", "periods"),
    "all": ("sweep", "crowd", "beyond", "ablation", "periods"),
    "default": (*grid.COMPARISON_EXPERIMENTS, grid.FEEDBACK_EXPERIMENT),
}
"""Names for several experiments."""

WARMUP_ROUNDS = 20  # enough to compile everything that a longer run needs


@dataclass(frozen=True)
class ReproduceRequest:
    """The experiments to run, and what to leave out or add."""

    experiments: Sequence[str] = EXPERIMENT_SETS["all"]
    seeds: int | None = None  # None: those of each experiment
    rounds: int = grid.PAPER_ROUNDS
    only: Sequence[str] = ()
    variants: bool = False
    hospital: HospitalPanel | None = None
    tables: Mapping[str, QuestionScenario] = field(default_factory=dict)

    def list_cells(self, data: Crowd) -> list[grid.Cell]:
        """All requested cells on this crowd."""
        excluded = {}
        if self.hospital is None:
            excluded["hospital"] = (
                "the hospital scenario needs its files; add --hospital DIR, a folder with "
                f"{', '.join(HOSPITAL_FILES)}, or set $BYLOT_HOSPITAL to one"
            )
        if data.synthetic:
            excluded["synthetic"] = (
                "the data are the synthetic crowd already, so its cells are named "
                "default/tight/stochastic/... here; give other --data"
            )
        cells = []
        for name in self.experiments:
            if name == grid.FEEDBACK_EXPERIMENT:
                cells += grid.list_feedback_cells(self.tables, self.seeds)
                continue
            cells += grid.list_cells(
                name, self.seeds, self.rounds, variants=self.variants and name == "crowd"
            )
        return grid.select_cells(cells, self.only, excluded)


class WorkSummary:
    """Cells and core-seconds of each experiment, and the elapsed time."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.cells: dict[str, list[grid.Cell]] = {}
        self.seconds: dict[str, float] = {}
        self.start = self.end = time.monotonic()

    def add(self, job: grid.ScenarioJob, seconds: float) -> None:
        self.cells.setdefault(job.experiment, []).extend(job.cells)
        self.seconds[job.experiment] = self.seconds.get(job.experiment, 0.0) + seconds
        self.end = time.monotonic()

    def __str__(self) -> str:
        if not self.cells:
            return "nothing was missing"
        rows = [("computed", "cells", "core-seconds", "rounds per core-second")]
        for name, cells in self.cells.items():
            played = dict.fromkeys(cell.experiment for cell in cells)
            seconds = self.seconds[name]
            rate = len(cells) * grid.count_rounds(name, self.rounds) / seconds
            rows.append((" + ".join(played), f"{len(cells):,}", f"{seconds:.1f}", f"{rate:,.0f}"))
        return "\n".join(
            [*format_table(rows), f"in {self.end - self.start:.0f} s, without compilation"]
        )


def make_engine(name: str, workers: int, address: str | None = None) -> Engine:
    return RayCluster(address, workers, code_digest) if name == "ray" else ThreadEngine(workers)


def reproduce(
    request: ReproduceRequest,
    data: Crowd,
    engine: Engine,
    out: Path,
    fresh: bool = False,
    records_only: bool = False,
) -> int:
    """Compute what is missing, then write the report; returns 130 if it was interrupted."""
    setup = RunSetup(data, request.rounds, request.hospital, request.tables)
    cells = request.list_cells(data)
    if "default" in request.experiments and request.hospital is None:
        print_progress("... without the hospital scenario, whose files are missing: see --hospital")
    if grid.FEEDBACK_EXPERIMENT in request.experiments and not request.tables:
        print_progress("... without member scores: see --hospital, --recorded and --aslib")
    with RecordStore(out, make_manifest(setup), fresh) as store:
        known = store.list_known_cells()
        missing = [cell for cell in cells if cell.id not in known]
        print_progress(
            f"... {len(cells):,} cells of {request.rounds:,} rounds on crowd {data.name!r}, "
            f"{len(missing):,} to compute"
        )
        seeds, needed = len({cell.seed for cell in cells}), MIN_VERDICT_SEEDS
        if seeds < needed:
            print_progress(f"... verdicts need {needed} seeds, this run has {seeds}: see --seeds")
        work, interrupted = WorkSummary(request.rounds), False
        try:
            compute_cells(partial(run_job, setup), missing, engine, store, work)
        except KeyboardInterrupt:
            interrupted = True
        finally:  # finished cells are usable, however the run ended
            records = store.merge()
        if records_only:
            print(work, store.table, sep="\n")
        elif not records.cells.is_empty():  # report while the folder is locked
            more = len(set(records.cells["cell"]) - {cell.id for cell in cells})
            also = f", also on {more:,} cells that were in the folder before" if more else ""
            print_progress(f"... figures and report{also}")
            written = report.write_report(records, out, sum(work.seconds.values()) or None)
            pages = (path for path in written.paths if path.suffix in (".html", ".md"))
            print(work, written.verdicts, *pages, sep="\n")
    if not interrupted:
        return 0
    print_progress(
        f"interrupted with {len(records.cells):,} cells in {out}; the same command resumes"
    )
    return 130


def make_manifest(setup: RunSetup) -> dict[str, Any]:
    """The settings that all records of a folder must share."""
    crowd = setup.crowd
    tables = {name: scenario.digest for name, scenario in setup.tables.items()}
    return {
        "form": RUN_FORMAT,
        "version": RUN_FORMAT_VERSION,
        "data": {"name": crowd.name, "digest": crowd.digest, "synthetic": crowd.synthetic},
        "rounds": setup.rounds,
        "window": setup.window,
        "code": code_digest(),
        **({"hospital": setup.hospital.digest} if setup.hospital else {}),
        **({"tables": tables} if tables else {}),
    }


def compute_cells(
    run: Callable[..., list[CellRecord]],
    cells: Sequence[grid.Cell],
    engine: Engine,
    store: RecordStore,
    work: WorkSummary,
) -> None:
    """Compute cells, and record each scenario as it finishes."""
    if not cells:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BylotWarning)  # such policies are played all the same
        print_progress("... compiling, which is quick if it was done before")
        first = {}
        for cell in reversed(cells):  # a kind of feedback is a level that may compile other code
            level = cell.level if cell.experiment == grid.FEEDBACK_EXPERIMENT else None
            first[cell.experiment, cell.policy, level] = cell
        for job in grid.group_cells_by_scenario(first.values()):  # so that compilation is not timed
            run(job, WARMUP_ROUNDS)
        work.start = time.monotonic()
        with show_progress(len(cells)) as advance:
            for done in engine.run(grid.group_cells_by_scenario(cells), run):
                store.add(str(done.job), done.result)
                work.add(done.job, done.core_seconds)
                advance(len(done.job.cells))
