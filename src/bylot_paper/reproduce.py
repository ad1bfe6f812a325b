"""`bylot reproduce`: section 6 of the paper, what is past it, and what the default is chosen by,
from data to report.

Owns the order of things: see which cells are missing, have them computed, keep each as it comes,
write figures and report. How any of this is done is left to the layers below.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bylot._text import format_table, print_progress
from bylot.errors import OutOfReachWarning, SurrogateWarning
from bylot.parallel import Engine, ThreadEngine, show_progress
from bylot_paper import grid, report
from bylot_paper.cluster import RayCluster
from bylot_paper.crowd import Crowd
from bylot_paper.evidence import MIN_VERDICT_SEEDS
from bylot_paper.grid import (
    DEFAULT_SEED_COUNTS,
    PAPER_ROUNDS,
    Cell,
    ScenarioJob,
    count_rounds,
    group_cells_by_scenario,
    select_cells,
)
from bylot_paper.records import RUN_FORMAT, RUN_FORMAT_VERSION, Records
from bylot_paper.report import WrittenReport
from bylot_paper.run import RunSetup, run_job
from bylot_paper.run_store import RecordStore, code_digest
from bylot_paper.scenarios import HOSPITAL_FILES, HospitalPanel

EXPERIMENT_SETS = {
    "paper": ("sweep", "crowd"),
    "all": ("sweep", "crowd", "beyond"),
    "default": grid.COMPARISON_EXPERIMENTS,
}
"""Names for several grid."""

WARMUP_ROUNDS = 20  # rounds, which is enough to compile all that a longer play needs


@dataclass(frozen=True)
class ReproduceRequest:
    """What was asked for."""

    experiments: Sequence[str] = EXPERIMENT_SETS["all"]
    seeds: int | None = None  # None: the paper's
    rounds: int = PAPER_ROUNDS
    only: Sequence[str] = ()
    variants: bool = False
    settings: bool = False
    hospital: HospitalPanel | None = None  # whose files are nobody's but the caller's

    def cells(self, data: Crowd) -> list[Cell]:
        """All cells that are wanted, on this crowd."""
        every: list[Cell] = []
        if "sweep" in self.experiments:
            every += grid.sweep(self.count("sweep"))
        if "crowd" in self.experiments:
            every += grid.crowd(self.count("crowd"), self.variants)
        if "beyond" in self.experiments:
            every += grid.beyond(self.count("beyond"))
            every += grid.ablation(self.count("ablation"))
            every += grid.periods(self.count("periods"), self.rounds)
            every += grid.settings(self.count("settings")) if self.settings else []
        if "default" in self.experiments:
            every += grid.default(self.count("default"))
            every += grid.worlds(self.count("worlds"))
            every += grid.spans(self.count("spans"), self.rounds)
        return select_cells(every, self.only, self.away(data))

    def away(self, data: Crowd) -> dict[str, str]:
        """The worlds that are not played, and what to say to whoever asks for one."""
        out = {}
        if self.hospital is None:
            out["hospital"] = (
                f"the hospital's cells need its files, which were not given; add --hospital DIR, a "
                f"folder with {', '.join(HOSPITAL_FILES)}, or set $BYLOT_HOSPITAL to one"
            )
        if data.synthetic:
            out["synthetic"] = (
                "the data are the synthetic crowd already, which is played once: its cells are "
                "called default/tight/stochastic/... and so on here; or give other --data"
            )
        return out

    def count(self, experiment: str) -> int:
        """How many seeds of it."""
        return self.seeds or DEFAULT_SEED_COUNTS[experiment]


class WorkSummary:
    """What it took: cells and core-seconds of each experiment, and the time that passed."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.played: dict[str, list[str]] = {}  # the experiments whose cells share a world
        self.cells: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.start = self.end = time.monotonic()

    def add(self, job: ScenarioJob, seconds: float) -> None:
        """Book a job."""
        name = job.experiment
        others = [cell.experiment for cell in job.cells]
        self.played[name] = list(dict.fromkeys([*self.played.get(name, ()), *others]))
        self.cells[name] = self.cells.get(name, 0) + len(job.cells)
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.end = time.monotonic()

    def pace(self, name: str) -> float:
        """Rounds per core-second of an experiment."""
        return self.cells[name] * count_rounds(name, self.rounds) / self.seconds[name]

    @property
    def total(self) -> float:
        """Core-seconds of everything."""
        return sum(self.seconds.values())

    def __str__(self) -> str:
        head = ("computed", "cells", "core-seconds", "rounds per core-second")
        rows = [
            (
                " + ".join(self.played[name]),
                f"{cells:,}",
                f"{self.seconds[name]:.1f}",
                f"{self.pace(name):,.0f}",
            )
            for name, cells in self.cells.items()
        ]
        passed = f"in {self.end - self.start:.0f} s, compilation apart"
        return "\n".join([*format_table([head, *rows]), passed])


def make_engine(name: str, workers: int, address: str | None = None) -> Engine:
    """Where the cells are to be computed."""
    return RayCluster(address, workers, code_digest) if name == "ray" else ThreadEngine(workers)


def reproduce(
    wish: ReproduceRequest, data: Crowd, where: Engine, out: Path, fresh: bool = False
) -> int:
    """Compute what is missing, then write everything; 130 if it was stopped on the way."""
    setup, cells = RunSetup(data, wish.rounds, wish.hospital), wish.cells(data)
    if "default" in wish.experiments and wish.hospital is None:
        print_progress("... without the hospital, whose files were not given: see --hospital")
    with RecordStore(out, make_manifest(setup), fresh) as store:
        known = store.known()
        missing = [cell for cell in cells if cell.id not in known]
        print_progress(
            f"... {len(cells):,} cells of {wish.rounds:,} rounds on crowd {data.name!r}, "
            f"{len(missing):,} to compute"
        )
        seeds = len({cell.seed for cell in cells})
        if seeds < MIN_VERDICT_SEEDS:
            print_progress(
                f"... verdicts need {MIN_VERDICT_SEEDS} seeds, and this run has {seeds}: see --seeds"
            )
        effort, stopped = WorkSummary(wish.rounds), False
        try:
            compute_cells(setup, missing, where, store, effort)
        except KeyboardInterrupt:
            stopped = True
        finally:  # what is finished is usable, whatever ended the run
            records = store.merge()
        write_results(records, cells, effort, out)  # while the folder is ours
    if stopped:
        print_progress(
            f"stopped with {len(records.cells):,} cells in {out}; the same command goes on"
        )
    return 130 if stopped else 0


def write_results(records: Records, cells: Sequence[Cell], effort: WorkSummary, out: Path) -> None:
    """Figures and report on all that the folder holds, and the last words."""
    if records.cells.is_empty():
        return
    more = len(set(records.cells["cell"]) - {cell.id for cell in cells})
    also = f", also on {more:,} cells that the folder held before" if more else ""
    print_progress(f"... figures and report{also}")
    print(summarise_run(effort, report.write_report(records, out, effort.total or None)))


def make_manifest(setup: RunSetup) -> dict[str, Any]:
    """What all records of a folder must share."""
    crowd = setup.crowd
    return {
        "form": RUN_FORMAT,
        "version": RUN_FORMAT_VERSION,
        "data": {"name": crowd.name, "digest": crowd.digest, "synthetic": crowd.synthetic},
        "rounds": setup.rounds,
        "window": setup.window,
        "code": code_digest(),
        **({"hospital": setup.hospital.digest} if setup.hospital else {}),
    }


def compute_cells(
    setup: RunSetup, cells: Sequence[Cell], where: Engine, store: RecordStore, effort: WorkSummary
) -> None:
    """Have the cells computed, and keep each world as it is finished."""
    if not cells:
        return
    with warnings.catch_warnings():
        for kind in (OutOfReachWarning, SurrogateWarning):
            warnings.simplefilter("ignore", kind)  # who is not sure of limits plays all the same
        warm_up_cells(setup, cells)
        effort.start = time.monotonic()
        with show_progress(len(cells)) as advance:
            for done in where.run(group_cells_by_scenario(cells), partial(run_job, setup)):
                store.add(str(done.job), done.result)
                effort.add(done.job, done.core_seconds)
                advance(len(done.job.cells))


def warm_up_cells(setup: RunSetup, cells: Sequence[Cell]) -> None:
    """Compile what these cells need, on a few rounds, so that it is not timed as their work."""
    print_progress("... compiling, which is quick if it was done before")
    some = {(cell.experiment, cell.policy): cell for cell in reversed(cells)}  # the first of each
    for job in group_cells_by_scenario(some.values()):
        run_job(setup, job, WARMUP_ROUNDS)


def summarise_run(effort: WorkSummary, made: WrittenReport) -> str:
    """The last words of a run."""
    lines = [str(effort)] if effort.cells else ["nothing was missing"]
    pages = [path for path in made.paths if path.suffix in (".html", ".md")]
    return "\n".join([*lines, made.verdicts, *map(str, pages)])
