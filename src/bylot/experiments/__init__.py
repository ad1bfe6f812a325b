"""The paper's experiments and those past it: grids of cells, how to play one, what is kept."""

from bylot.experiments.cell import Cell
from bylot.experiments.grid import (
    CONTEST,
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
    default,
    jobs,
    length,
    periods,
    settings,
    spans,
    sweep,
    worlds,
)
from bylot.experiments.hospital import FILES, Hospital, read_hospital
from bylot.experiments.levels import KNOWN, LEVELS, Level
from bylot.experiments.lineup import BEYOND, CONTENDERS, GUARDED, OWN, PARTS, untuned
from bylot.experiments.outcome import BATCH
from bylot.experiments.run import Setup, run

__all__ = [
    "BATCH",
    "BEYOND",
    "CONTENDERS",
    "CONTEST",
    "FILES",
    "GRIDS",
    "GUARDED",
    "HARD",
    "KNOWN",
    "LEVELS",
    "LIMITED",
    "OWN",
    "PARTS",
    "ROUNDS",
    "SEEDS",
    "Cell",
    "Hospital",
    "Job",
    "Level",
    "Setup",
    "ablation",
    "beyond",
    "chosen",
    "crowd",
    "default",
    "jobs",
    "length",
    "periods",
    "read_hospital",
    "run",
    "settings",
    "spans",
    "sweep",
    "untuned",
    "worlds",
]
