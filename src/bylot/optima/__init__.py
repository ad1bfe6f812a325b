"""The constrained optimum: the best fixed policy in hindsight, with a proof that it is."""

from bylot.optima.fluid import FluidOptimum, fluid_optimum
from bylot.optima.iid import IidOptimum, iid_optimum
from bylot.optima.mixtures import Optimum, optimum
from bylot.optima.objective import ValueStack
from bylot.optima.set_search import BestSet, best_set
from bylot.optima.shadow_prices import ShadowPrice, check_shadow_prices

__all__ = [
    "BestSet",
    "FluidOptimum",
    "IidOptimum",
    "Optimum",
    "ShadowPrice",
    "ValueStack",
    "best_set",
    "check_shadow_prices",
    "fluid_optimum",
    "iid_optimum",
    "optimum",
]
