"""`bylot reproduce`: section 6 of the paper from data to report, in one command.

Owns the order of things: find the data, see which cells are missing, have them computed, keep each
as it comes, write figures and report. How any of this is done is left to the layers below.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bylot import report
from bylot.data import Crowd
from bylot.engine import Engine, progress
from bylot.experiments import SEEDS, Cell, Job, Setup, chosen, crowd, jobs, run, sweep
from bylot.records import Store, code_digest
from bylot.text import say, table

EXPERIMENTS = ("sweep", "crowd")


@dataclass(frozen=True)
class Wish:
    """What was asked for."""

    experiments: Sequence[str] = EXPERIMENTS
    seeds: int | None = None  # the paper's, if None
    rounds: int = 10_000
    only: Sequence[str] = ()
    variants: bool = False

    def cells(self) -> list[Cell]:
        """All cells that are wanted."""
        grids = {
            "sweep": lambda n: sweep(n),
            "crowd": lambda n: crowd(n, self.variants),
        }
        every = [
            cell for name in self.experiments for cell in grids[name](self.seeds or SEEDS[name])
        ]
        return chosen(every, self.only)


@dataclass
class Effort:
    """What it took: core-seconds and rounds of each experiment."""

    seconds: dict[str, float] = field(default_factory=dict)
    cells: dict[str, int] = field(default_factory=dict)

    def add(self, job: Job, seconds: float) -> None:
        """Book a job."""
        self.seconds[job.experiment] = self.seconds.get(job.experiment, 0.0) + seconds
        self.cells[job.experiment] = self.cells.get(job.experiment, 0) + len(job.cells)

    def lines(self, rounds: int) -> list[str]:
        """For people."""
        head = ("computed", "cells", "core-seconds", "rounds per core-second")
        rows = [
            (name, f"{self.cells[name]:,}", f"{spent:.1f}", f"{self.cells[name] * rounds / spent:,.0f}")
            for name, spent in self.seconds.items()
        ]
        return table([head, *rows]) if rows else []


def reproduce(wish: Wish, data: Crowd, engine: Engine, out: Path, fresh: bool = False) -> int:
    """Compute what is missing, then write everything; 130 if it was stopped on the way."""
    setup = Setup(data, wish.rounds)
    cells = wish.cells()
    with Store(out, manifest(setup), fresh=fresh) as store:
        known = store.known()
        missing = [cell for cell in cells if cell.id not in known]
        if len(missing) < len(cells):
            say(f"... {len(cells) - len(missing):,} of {len(cells):,} cells are there already")
        effort, stopped = Effort(), False
        try:
            compute(setup, jobs(missing), engine, store, effort)
        except KeyboardInterrupt:
            stopped = True
        records = store.merge()
    ...
