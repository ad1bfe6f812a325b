"""The constrained optimum: the best fixed policy in hindsight, with a proof that it is."""

from bylot.optima.best import optimum
from bylot.optima.mixture import Mixture, best_mixture
from bylot.optima.prices import CheckedPrice, checked_prices
from bylot.optima.result import Optimum
from bylot.optima.sets import BestSet, best_set
from bylot.optima.stack import Stack

__all__ = [
    "BestSet",
    "CheckedPrice",
    "Mixture",
    "Optimum",
    "Stack",
    "best_mixture",
    "best_set",
    "checked_prices",
    "optimum",
]
