"""Off-policy evaluation: what another policy would have earned and cost, from a log with odds."""

from bylot.evaluation.entry import Entry, entries, entry
from bylot.evaluation.log import Log, gather, read, write
from bylot.evaluation.targets import Target, best, draws, now, panel, sets, uniform

__all__ = [
    "Entry",
    "Log",
    "Target",
    "best",
    "draws",
    "entries",
    "entry",
    "gather",
    "now",
    "panel",
    "read",
    "sets",
    "uniform",
    "write",
]
