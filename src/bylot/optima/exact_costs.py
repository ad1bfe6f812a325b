"""The limits as they are: exact expected costs, their tangents and their chords.

Owns the geometry of h(q) = rows @ (1 - (1 - q)^M); what is maximised under it is left to `exact`.
"""

from typing import NamedTuple

import numpy as np

from bylot.numerics.inclusion import (
    expected_panel_costs,
    expected_panel_costs_slope,
    iid_inclusion,
    iid_inclusion_slope,
)
from bylot.numerics.jit import Bools, Floats
from bylot.optima.polytope import Polytope
from bylot.problem import Problem


class ExactCosts(NamedTuple):
    """h_j(q) = sum_x share_x sum_i rows[j, i] (1 - (1 - q_xi)^M), at most or at least its bound.

    h is concave: its tangents lie above it and its chords below. So `h <= u` is implied by
    "tangent <= u" and implies "chord <= u"; `h >= l` implies "tangent >= l".
    """

    shape: tuple[int, int]
    floor: float
    rows: Floats  # (d, X K), shares included
    bounds: Floats
    upper: Bools
    draws: int

    @classmethod
    def of(cls, problem: Problem, shares: Floats, floor: float) -> "ExactCosts":
        """The limits of a problem over contexts with these shares of the rounds."""
        rows = np.tile(problem.rows, len(shares)) * np.repeat(shares, problem.size)
        shape = (len(shares), problem.size)
        return cls(shape, floor, rows, problem.bounds, problem.signs < 0, problem.draws)

    @property
    def away(self) -> Floats:
        """+1 for an upper limit, -1 for a lower one: turns both into "at most"."""
        return np.where(self.upper, 1.0, -1.0)

    @property
    def units(self) -> Floats:
        """What a difference of costs is measured in: each row's largest entry."""
        most = self.rows.max(axis=1, initial=0.0)
        return np.where(most > 0.0, most, 1.0)

    def tightened(self, margin: float) -> "ExactCosts":
        """Every bound moved inwards by this many units, where there are any costs to limit."""
        most = self.rows.max(axis=1, initial=0.0)
        return self._replace(bounds=self.bounds - margin * self.away * most)

    def width(self) -> Floats:
        """How many units lie between each upper limit and each lower one on the same cost."""
        same = (self.rows[self.upper, None] == self.rows[None, ~self.upper]).all(axis=2)
        apart = self.bounds[self.upper, None] - self.bounds[None, ~self.upper]
        width: Floats = (apart / self.units[self.upper, None])[same]
        return width

    def excess(self, q: Floats) -> Floats:
        """By how many units q breaks each limit, negative where there is room."""
        over = expected_panel_costs(q.ravel(), self.rows, self.draws) - self.bounds
        return self.away * over / self.units

    def broken(self, q: Floats, slack: float) -> Bools:
        """Which lower limits q breaks by more than the slack."""
        return ~self.upper & (self.excess(q) > slack)

    def simplex(self) -> Polytope:
        """All policies above the floor, no limits yet."""
        return Polytope(self.shape, self.floor, np.zeros((0, self.rows.shape[1])), np.zeros(0))

    def tangents(self, q: Floats, which: Bools) -> tuple[Floats, Floats]:
        """Rows and bounds of "tangent at q keeps the limit", for some of the limits."""
        p, rows, sign = q.ravel(), self.rows[which], self.away[which, None]
        slope = expected_panel_costs_slope(p, rows, self.draws)
        left = self.bounds[which] - expected_panel_costs(p, rows, self.draws) + slope @ p
        return sign * slope, sign[:, 0] * left

    def bend(self, q: Floats, prices: Floats) -> Floats:
        """How lower limits with these prices v bend their Lagrangian F + v.(h - l) down, (X, K):
        its second derivative has -sum_j v_j M (M-1) rows[j, i] (1 - q_i)^(M-2) on the diagonal.
        """
        if self.draws == 1:
            return np.zeros(self.shape)
        M, weight = self.draws, np.where(self.upper, 0.0, prices) @ self.rows
        return (-M * weight).reshape(self.shape) * iid_inclusion_slope(q.ravel(), M - 1).reshape(
            self.shape
        )

    def chords(self) -> tuple[Floats, Floats]:
        """Rows and bounds of "chord keeps the limit", for the upper limits.

        Expert by expert over [floor, top_i], a top_i that no allowed q_i exceeds: from the simplex,
        or because c_i p_i alone would use up what a limit leaves when all others are at the floor.
        """
        rows, bounds = self.rows[self.upper], self.bounds[self.upper]
        least = float(iid_inclusion(np.array([self.floor]), self.draws)[0])
        most = float(1.0 - (self.shape[1] - 1) * self.floor)
        spare = bounds[:, None] - least * (rows.sum(axis=1, keepdims=True) - rows)
        share = np.divide(spare, rows, out=np.ones_like(rows), where=rows > 0.0)
        p = np.clip(share, least, 1.0).min(axis=0, initial=1.0)
        top = np.minimum(1.0 - (1.0 - p) ** (1.0 / self.draws), most)
        width = top - self.floor
        level = np.full_like(top, self.floor)
        steep = iid_inclusion_slope(level, self.draws)  # where there is no width, chord = tangent
        rise = iid_inclusion(top, self.draws) - least
        slope = np.divide(rise, width, out=steep, where=width > 1e-9)
        return rows * slope, bounds - rows @ (least - slope * self.floor)
