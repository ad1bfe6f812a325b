"""Figures, from finished traces and records only: nothing here plays or computes an optimum."""

from bylot.plots.demo import learning_and_limits
from bylot.plots.style import drawing, folder_for

__all__ = ["drawing", "folder_for", "learning_and_limits"]
