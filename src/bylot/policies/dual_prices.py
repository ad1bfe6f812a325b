"""Prices of limits that follow the cost of chosen panels: one dual step for every panel."""

from typing import Any, NamedTuple

import numpy as np

from bylot.limits.rows import compute_price_units
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.problem.change import ProblemChange

DUAL_PRICE_STEP = 0.2  # longest step of a price
MAX_DUAL_PRICE = 5.0
MAX_COUNTED_EXCESS = 30.0  # excess cost of a panel that shortens later steps
INITIAL_SQUARES = 0.01  # sum of squares before the first panel
CALENDAR_KEPT_SQUARES = 0.999  # after each panel, with budgets of the calendar


class DualPrices(NamedTuple):
    """A price per unit of each row, in rewards of [0, 1], that follows the cost of panels."""

    price: Floats  # (d,) lam
    squares: Floats  # (d,) G2, sum of squared excess over the bounds in force
    moves: Ints  # one number: how often prices have moved

    def migrate(self, new: "DualPrices", change: ProblemChange) -> None:
        """Prices are per unit of their rows. Where a limit leaves more or less slack than before,
        steps are long again; where one is new, prices are rehearsed as at the start.
        """
        growth = change.growth(compute_price_units(change.old), compute_price_units(change.new))
        change.copy_by_limit(self.price, new.price, growth)
        change.copy_by_limit(self.squares, new.squares, growth == 1.0)
        new.price[:] = np.minimum(new.price, MAX_DUAL_PRICE)
        new.squares[:] = np.maximum(new.squares, INITIAL_SQUARES)
        new.moves[:] = self.moves if len(change.limits[0]) == new.price.size else 0

    def is_valid(self, rule: Any) -> bool:
        priced = (self.price >= 0) & (self.price <= MAX_DUAL_PRICE)
        return bool((priced & (self.squares >= INITIAL_SQUARES)).all() and self.moves[0] >= 0)


def make_dual_prices(rows: int) -> DualPrices:
    """No prices before the first panel."""
    return DualPrices(np.zeros(rows), np.full(rows, INITIAL_SQUARES), np.zeros(1, np.int64))


@jit
def fill_expert_prices(out: Floats, dual: DualPrices, A: Floats, applies: Bools) -> None:
    """Write the price of every expert under the rows that apply, sum_j lam_j A_ji."""
    for i in range(out.size):
        out[i] = 0.0
    for j in range(A.shape[0]):
        price = dual.price[j]
        if price > 0.0 and applies[j]:
            for i in range(out.size):
                out[i] += price * A[j, i]


@jit
def update_dual_prices(
    dual: DualPrices, A: Floats, members: Ints, b: Floats, fixed: Bools, kept: float
) -> None:
    """g = A(panel) - b, G2 = kept G2 + min(g^2, max^2), lam += step g / sqrt(G2), clipped.

    fixed: rows whose price stays
    kept:  of the squares before; less than 1 where bounds in force change all the time
    Squares are clipped and not g: else prices would settle where *clipped* costs are right on
    average. One panel of a thousand times the usual excess would shorten all later steps as much.
    The price of a limit that the available experts cannot satisfy would rise for nothing.
    """
    for j in range(b.size):
        if fixed[j]:
            continue
        g = -b[j]
        for i in members:
            g += A[j, i]
        squares = min(g * g, MAX_COUNTED_EXCESS * MAX_COUNTED_EXCESS)
        dual.squares[j] = max(kept * dual.squares[j], INITIAL_SQUARES) + squares
        step = min(max(g / np.sqrt(dual.squares[j]), -1.0), 1.0)
        dual.price[j] = min(max(dual.price[j] + DUAL_PRICE_STEP * step, 0.0), MAX_DUAL_PRICE)
    dual.moves[0] += b.size > 0


@jit
def restart_prices(dual: DualPrices, growth: float) -> None:
    """Take long steps again, from prices in another unit of rewards; rehearse as at the start."""
    for j in range(dual.price.size):
        dual.price[j] = min(dual.price[j] * growth, MAX_DUAL_PRICE)
        dual.squares[j] = INITIAL_SQUARES
    dual.moves[0] = 0
