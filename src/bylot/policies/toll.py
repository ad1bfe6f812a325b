"""Prices of limits that follow what panels cost: one shared by all contexts for each limit.

A panel is chosen for what it earns less what it pays; whoever costs more than is in force makes the
price rise, and whoever costs less lets it fall. Where they lead to is left to those who choose.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Bools, Floats, Ints, compiled

STEP = 0.2  # of a price, over the root of what was missed so far, squared
DEAREST = 5.0
MOST = 30.0  # of what a panel costs beyond a bound, that shortens later steps
SQUARES = 0.01  # that count as missed before the first panel


class Toll(NamedTuple):
    """What a unit of each row costs, in rewards of [0, 1]."""

    price: Floats  # (d,) lam
    squares: Floats  # (d,) G2, of what panels cost beyond the bounds in force, summed
    moves: Ints  # one number: how often prices have moved


def free(rows: int) -> Toll:
    """Nothing costs anything yet."""
    return Toll(np.zeros(rows), np.full(rows, SQUARES), np.zeros(1, np.int64))


def sound(toll: Toll) -> bool:
    """Could these be prices of ours? Asked of files."""
    fair = (toll.price >= 0) & (toll.price <= DEAREST) & (toll.squares >= SQUARES)
    return bool(fair.all() and toll.moves[0] >= 0)


@compiled
def fill_toll(out: Floats, toll: Toll, A: Floats) -> None:
    """Write what every expert pays under all rows, sum_j lam_j A_ji."""
    for i in range(out.size):
        out[i] = 0.0
    for j in range(A.shape[0]):
        price = toll.price[j]
        if price > 0.0:
            for i in range(out.size):
                out[i] += price * A[j, i]


@compiled
def charge(toll: Toll, A: Floats, members: Ints, bounds: Floats, short: Bools) -> None:
    """g = A(set) - b', G2 += min(g^2, MOST^2), lam += STEP g / sqrt(G2), by STEP at most, and from
    0 to DEAREST.

    Squares are cut and not g, or prices would settle where cut costs are what they should be on
    average. One price a thousand times the others would make all later steps as much shorter. The
    price of a limit that those who are up cannot keep would rise for nothing.
    """
    for j in range(bounds.size):
        if short[j]:
            continue
        g = -bounds[j]
        for i in members:
            g += A[j, i]
        toll.squares[j] += min(g * g, MOST * MOST)
        step = min(max(g / np.sqrt(toll.squares[j]), -1.0), 1.0)
        toll.price[j] = min(max(toll.price[j] + STEP * step, 0.0), DEAREST)
    toll.moves[0] += bounds.size > 0
