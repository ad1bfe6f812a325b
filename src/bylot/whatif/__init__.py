"""What-if runs: simulate policies on a problem file, compare them with optima, price the limits."""

from bylot.whatif.plan import WhatifPlan, choose_rounds, parse_sweep
from bylot.whatif.references import Reference
from bylot.whatif.results import WhatifResults
from bylot.whatif.runner import render, run

__all__ = [
    "Reference",
    "WhatifPlan",
    "WhatifResults",
    "choose_rounds",
    "parse_sweep",
    "render",
    "run",
]
