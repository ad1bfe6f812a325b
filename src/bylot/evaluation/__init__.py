"""Off-policy evaluation: from a log with its odds, what another policy would have earned and cost.

`docs/log.md` says what is in a log, what each estimate claims, and what it cannot know.
"""

from bylot.evaluation.apprentice import CAVEAT, Agreement, compare
from bylot.evaluation.entry import Entry, entries, entry
from bylot.evaluation.estimators import Estimate
from bylot.evaluation.log import Log, gather, read, strangers, write
from bylot.evaluation.outcome import Outcome, evaluate
from bylot.evaluation.targets import Target, best, draws, lawful, now, panel, sets, uniform

__all__ = [
    "CAVEAT",
    "Agreement",
    "Entry",
    "Estimate",
    "Log",
    "Outcome",
    "Target",
    "best",
    "compare",
    "draws",
    "entries",
    "entry",
    "evaluate",
    "gather",
    "lawful",
    "now",
    "panel",
    "read",
    "sets",
    "strangers",
    "uniform",
    "write",
]
