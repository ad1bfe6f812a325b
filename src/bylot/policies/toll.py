"""Prices of limits that follow what panels cost: one shared by all contexts for each limit.

A panel is chosen for what it earns less what it pays; whoever costs more than is in force makes the
price rise, and whoever costs less lets it fall. Where they lead to is left to those who choose.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats, Ints, compiled

STEP = 0.2  # of a price, over the root of what was missed so far, squared
DEAREST = 5.0
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
def charge(toll: Toll, A: Floats, members: Ints, bounds: Floats) -> None:
    """g = A(set) - b', G2 += g^2, lam += STEP g / sqrt(G2), from 0 to DEAREST.

    What is beyond a bound counts as M units at most: one price a thousand times the others would
    make all later steps a thousand times as short.
    """
    most = float(members.size)
    for j in range(bounds.size):
        g = -bounds[j]
        for i in members:
            g += A[j, i]
        g = min(max(g, -most), most)
        toll.squares[j] += g * g
        moved = toll.price[j] + STEP * g / np.sqrt(toll.squares[j])
        toll.price[j] = min(max(moved, 0.0), DEAREST)
    toll.moves[0] += bounds.size > 0
