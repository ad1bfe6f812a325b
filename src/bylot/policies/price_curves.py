"""What panels cost at each price of a limit: from it, the price for any bound follows.

The price of one limit is a number that follows the cost of panels (`dual_prices`). A limit for each
tenant has another bound in force for each of them, which one number cannot follow.
"""

from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit
from bylot.policies.base import ProblemChange
from bylot.policies.dual_prices import MAX_DUAL_PRICE

CURVE_PRICES = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, MAX_DUAL_PRICE])
MAX_CURVE_PANELS = 100.0  # that the mean cost at a price counts as: beliefs change


class PriceCurves(NamedTuple):
    """The mean cost of panels at each of the CURVE_PRICES, in price units."""

    cost: Floats  # (d, 12); (0, 12) without limits for each tenant
    panels: Floats  # (d, 12) that it is the mean of

    def migrate(self, new: "PriceCurves", change: ProblemChange) -> None:
        """Nothing is kept: units differ, and curves are learned anew by one rehearsal."""

    def is_valid(self, rule: Any) -> bool:
        return bool((self.panels >= 0).all())


def make_price_curves(rows: int) -> PriceCurves:
    """Nothing is known."""
    shape = rows, CURVE_PRICES.size
    return PriceCurves(np.zeros(shape), np.zeros(shape))


@jit
def forget_curves(curves: PriceCurves) -> None:
    """Begin anew, as prices are in another unit."""
    curves.panels[:, :] = 0.0


@jit
def note_panel(curves: PriceCurves, A: Floats, j: int, place: int, members: Ints) -> None:
    """Learn from a panel that was chosen at one of the prices of limit j."""
    cost = 0.0
    for i in members:
        cost += A[j, i]
    curves.panels[j, place] = min(curves.panels[j, place] + 1.0, MAX_CURVE_PANELS)
    curves.cost[j, place] += (cost - curves.cost[j, place]) / curves.panels[j, place]


@jit
def find_curve_price(curves: PriceCurves, j: int, bound: float) -> float:
    """The least price at which panels cost no more than the bound, between two prices by a line.

    Means are noisy, so that a higher price may seem to cost more: the least cost of all lower
    prices counts.
    """
    price, least = MAX_DUAL_PRICE, np.inf
    for place in range(CURVE_PRICES.size):
        if curves.panels[j, place] == 0.0:
            continue
        cost = curves.cost[j, place]
        if cost <= bound:
            price = CURVE_PRICES[place]
            if least < np.inf and place > 0:
                part = (least - bound) / max(least - cost, 1e-300)
                price = CURVE_PRICES[place - 1] + part * (price - CURVE_PRICES[place - 1])
            break
        least = min(least, cost)
    return float(price)
