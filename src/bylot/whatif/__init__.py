"""What-if runs: simulate policies on a problem file, compare them with optima, price the limits."""

from bylot.whatif.plan import BoundSweep, SweepLevel, WhatifPlan, parse_sweep
from bylot.whatif.references import Reference
from bylot.whatif.results import PolicyResult, WhatifResults
from bylot.whatif.runner import WhatifOutput, render, run

__all__ = [
    "BoundSweep",
    "PolicyResult",
    "Reference",
    "SweepLevel",
    "WhatifOutput",
    "WhatifPlan",
    "WhatifResults",
    "parse_sweep",
    "render",
    "run",
]
