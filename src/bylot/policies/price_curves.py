"""What panels cost at each price of a limit: from it, the price for any bound follows.

The price of one limit is a number that follows the cost of panels (`dual_prices`). A limit for each
tenant has another bound in force for each of them, which one number cannot follow.
"""

from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit
from bylot.policies.dual_prices import MAX_DUAL_PRICE
from bylot.problem.change import ProblemChange

CURVE_PRICES = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, MAX_DUAL_PRICE])
MAX_CURVE_PANELS = 100.0  # that the mean cost at a price counts as: beliefs change


class PriceCurves(NamedTuple):
    """The mean cost of panels at each of the CURVE_PRICES, in price units."""

    cost: Floats  # (d, 12); (0, 12) without limits for each tenant
    panels: Floats  # (d, 12) that it is the mean of

    def migrate(self, new: "PriceCurves", change: ProblemChange) -> None:
        """Nothing is kept: units differ, and curves are learned again by one rehearsal."""

    def is_valid(self, rule: Any) -> bool:
        return bool((self.panels >= 0).all())


def make_price_curves(rows: int) -> PriceCurves:
    """Nothing is known."""
    shape = rows, CURVE_PRICES.size
    return PriceCurves(np.zeros(shape), np.zeros(shape))


@jit
def forget_curves(curves: PriceCurves) -> None:
    """Start over, as prices are in another unit."""
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
def draw_curve_price(curves: PriceCurves, j: int, bound: float, u: float) -> float:
    """One of two neighbouring prices, drawn so that panels cost as much as the bound on average.

    With costs c > bound >= c' at the prices p < p', p is drawn with probability
    (bound - c') / (c - c'). A price between the two would not do where costs fall in a step.
    Means are noisy, so that a higher price may seem to cost more: the least cost of all lower
    prices counts.

    u: uniform in (0, 1)
    """
    lower, least = 0.0, np.inf
    for place in range(CURVE_PRICES.size):
        if curves.panels[j, place] == 0.0:
            continue
        price, cost = CURVE_PRICES[place], curves.cost[j, place]
        if cost <= bound:
            dearer = least < np.inf and u * (least - cost) < bound - cost
            return float(lower if dearer else price)
        if cost < least:
            lower, least = price, cost
    return MAX_DUAL_PRICE
