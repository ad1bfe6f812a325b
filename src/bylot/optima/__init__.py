"""The constrained optimum: the best fixed policy in hindsight, with a proof that it is."""

from bylot.optima.best import optimum
from bylot.optima.result import Optimum
from bylot.optima.stack import Stack

__all__ = ["Optimum", "Stack", "optimum"]
