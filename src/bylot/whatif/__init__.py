"""What-if runs: policies on a user's own world, against optima, and what each limit costs."""

from bylot.whatif.findings import Findings, Standing
from bylot.whatif.levels import Level, Sweep, sweep
from bylot.whatif.run import Made, render, run
from bylot.whatif.setup import Setup
from bylot.whatif.yardsticks import Yardstick

__all__ = [
    "Findings",
    "Level",
    "Made",
    "Setup",
    "Standing",
    "Sweep",
    "Yardstick",
    "render",
    "run",
    "sweep",
]
