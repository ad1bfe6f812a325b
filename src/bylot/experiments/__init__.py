"""The paper's experiments and those past it: grids of cells, how to play one, what is kept."""

from bylot.experiments.cell import Cell
from bylot.experiments.grid import (
    GRIDS,
    HARD,
    LIMITED,
    ROUNDS,
    SEEDS,
    Job,
    ablation,
    beyond,
    chosen,
    crowd,
    jobs,
    length,
    periods,
    settings,
    sweep,
)
from bylot.experiments.levels import KNOWN, LEVELS, Level
from bylot.experiments.lineup import BEYOND, GUARDED, PARTS, untuned
from bylot.experiments.outcome import BATCH
from bylot.experiments.run import Setup, run

__all__ = [
    "BATCH",
    "BEYOND",
    "GRIDS",
    "GUARDED",
    "HARD",
    "KNOWN",
    "LEVELS",
    "LIMITED",
    "PARTS",
    "ROUNDS",
    "SEEDS",
    "Cell",
    "Job",
    "Level",
    "Setup",
    "ablation",
    "beyond",
    "chosen",
    "crowd",
    "jobs",
    "length",
    "periods",
    "run",
    "settings",
    "sweep",
    "untuned",
]
