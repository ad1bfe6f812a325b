"""Off-policy evaluation: what another policy would have earned and cost, from a log with odds."""

from bylot.evaluation.targets import Target, best, draws, now, panel, sets, uniform

__all__ = ["Target", "best", "draws", "now", "panel", "sets", "uniform"]
