"""The constrained optimum: the best fixed policy in hindsight, with a proof that it is."""

from bylot.optimum.best import optimum
from bylot.optimum.result import Optimum
from bylot.optimum.stack import Stack

__all__ = ["Optimum", "Stack", "optimum"]
