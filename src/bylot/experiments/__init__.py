"""The paper's experiments: a grid of cells, how to play one, and what is kept of it."""

from bylot.experiments.cell import Cell
from bylot.experiments.grid import ROUNDS, SEEDS, Job, chosen, crowd, jobs, sweep
from bylot.experiments.levels import LEVELS, Level
from bylot.experiments.outcome import BATCH
from bylot.experiments.run import Setup, run

__all__ = [
    "BATCH",
    "LEVELS",
    "ROUNDS",
    "SEEDS",
    "Cell",
    "Job",
    "Level",
    "Setup",
    "chosen",
    "crowd",
    "jobs",
    "run",
    "sweep",
]
