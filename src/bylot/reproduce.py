"""`bylot reproduce`: section 6 of the paper from data to report, in one command.

Owns the order of things: see which cells are missing, have them computed, keep each as it comes,
write figures and report. How any of this is done is left to the layers below.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bylot import report
from bylot.data import Crowd
from bylot.engine import Cluster, Engine, Threads, progress
from bylot.experiments import SEEDS, Cell, Job, Setup, chosen, crowd, jobs, run, sweep
from bylot.records import Store, code_digest
from bylot.text import say, table

EXPERIMENTS = ("sweep", "crowd")
WARM = 20  # rounds, which is enough to compile all that a longer play needs


@dataclass(frozen=True)
class Wish:
    """What was asked for."""

    experiments: Sequence[str] = EXPERIMENTS
    seeds: int | None = None  # None: the paper's
    rounds: int = 10_000
    only: Sequence[str] = ()
    variants: bool = False

    def cells(self) -> list[Cell]:
        """All cells that are wanted."""
        every: list[Cell] = []
        for name in self.experiments:
            seeds = self.seeds or SEEDS[name]
            every += sweep(seeds) if name == "sweep" else crowd(seeds, self.variants)
        return chosen(every, self.only)


class Effort:
    """What it took: cells and core-seconds of each experiment, and the time that passed."""

    def __init__(self) -> None:
        self.cells: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.start = time.monotonic()

    def add(self, job: Job, seconds: float) -> None:
        """Book a job."""
        name = job.experiment
        self.cells[name] = self.cells.get(name, 0) + len(job.cells)
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def __str__(self) -> str:
        passed = time.monotonic() - self.start
        head = ("computed", "cells", "core-seconds", "cells' rounds per core-second")
        return "\n".join([*table([head, *self.rows()]), f"in {passed:.0f} s"])


def engine(name: str, workers: int, address: str | None = None) -> Engine:
    """Where the cells are to be computed."""
    return Cluster(address, workers, code_digest) if name == "ray" else Threads(workers)


def reproduce(wish: Wish, data: Crowd, where: Engine, out: Path, fresh: bool = False) -> int:
    """Compute what is missing, then write everything; 130 if it was stopped on the way."""
