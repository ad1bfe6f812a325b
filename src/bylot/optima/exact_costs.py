"""The limits on exact expected costs h(q) = rows @ (1 - (1 - q)^M): values, tangents, chords.

Owns the geometry of the limits; `exact_search` maximises under them.
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
        """The unit of a cost difference: each row's largest entry, 1 if it is zero."""
        most = self.rows.max(axis=1, initial=0.0)
        return np.where(most > 0.0, most, 1.0)

    def tighten(self, margin: float) -> "ExactCosts":
        """Every bound of a row with costs moved inwards by this many units."""
        most = self.rows.max(axis=1, initial=0.0)
        return self._replace(bounds=self.bounds - margin * self.away * most)

    def widths(self) -> Floats:
        """Distance in units of each upper limit from each lower one on the same cost."""
        same = (self.rows[self.upper, None] == self.rows[None, ~self.upper]).all(axis=2)
        apart = self.bounds[self.upper, None] - self.bounds[None, ~self.upper]
        widths: Floats = (apart / self.units[self.upper, None])[same]
        return widths

    def excess(self, q: Floats) -> Floats:
        """By how many units q violates each limit; negative if there is room."""
        over = expected_panel_costs(q.ravel(), self.rows, self.draws) - self.bounds
        return self.away * over / self.units

    def violated_lower(self, q: Floats, slack: float) -> Bools:
        """Which lower limits q violates by more than the slack."""
        return ~self.upper & (self.excess(q) > slack)

    def simplex(self) -> Polytope:
        """All policies above the floor, without limits."""
        return Polytope(self.shape, self.floor, np.zeros((0, self.rows.shape[1])), np.zeros(0))

    def tangents(self, q: Floats, which: Bools) -> tuple[Floats, Floats]:
        """Rows and bounds of "the tangent at q is within the limit", for some of the limits."""
        p, rows, sign = q.ravel(), self.rows[which], self.away[which, None]
        slope = expected_panel_costs_slope(p, rows, self.draws)
        left = self.bounds[which] - expected_panel_costs(p, rows, self.draws) + slope @ p
        return sign * slope, sign[:, 0] * left

    def curvature(self, q: Floats, prices: Floats) -> Floats:
        """Diagonal (X, K) of the Hessian of v.h for lower limits with multipliers v:
        -sum_j v_j M (M-1) rows[j, i] (1 - q_i)^(M-2).
        """
        if self.draws == 1:
            return np.zeros(self.shape)
        weight = np.where(self.upper, 0.0, prices) @ self.rows
        slope = iid_inclusion_slope(q.ravel(), self.draws - 1)
        return (-self.draws * weight * slope).reshape(self.shape)

    def chords(self) -> tuple[Floats, Floats]:
        """Rows and bounds of "the chord is within the limit", for the upper limits.

        Expert by expert over [floor, top_i], where no feasible q_i exceeds top_i: because of the
        simplex, or because c_i p_i alone would use up what a limit leaves when all others are at
        the floor.
        """
        rows, bounds = self.rows[self.upper], self.bounds[self.upper]
        least = float(iid_inclusion(np.array([self.floor]), self.draws)[0])
        most = float(1.0 - (self.shape[1] - 1) * self.floor)
        spare = bounds[:, None] - least * (rows.sum(axis=1, keepdims=True) - rows)
        share = np.divide(spare, rows, out=np.ones_like(rows), where=rows > 0.0)
        p = np.clip(share, least, 1.0).min(axis=0, initial=1.0)
        top = np.minimum(1.0 - (1.0 - p) ** (1.0 / self.draws), most)
        width = top - self.floor
        steep = iid_inclusion_slope(np.full_like(top, self.floor), self.draws)
        rise = iid_inclusion(top, self.draws) - least
        slope = np.divide(rise, width, out=steep, where=width > 1e-9)  # no width: the tangent
        return rows * slope, bounds - rows @ (least - slope * self.floor)
