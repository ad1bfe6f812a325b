"""Climbing over corners: slower than Newton's method and proof against sets too thin for it.

Owns the fall-back only; `top` is what the optimum calls, and it tries Newton first.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats
from bylot.optimum.newton import Concave, Peak, climb
from bylot.optimum.polytope import TIGHT, Face, Polytope


class Hull(NamedTuple):
    """F as a function of the weights (1, k) of k policies: a hill again, over a plain simplex."""

    hill: Concave
    corners: Floats  # (k, X, K)

    def at(self, weights: Floats) -> Floats:
        """The mixture of the policies."""
        return np.tensordot(weights[0], self.corners, axes=1)

    def slope(self, weights: Floats) -> tuple[float, Floats]:
        """Value and slope in the weights."""
        value, slope = self.hill.slope(self.at(weights))
        return value, (self.corners * slope).sum(axis=(1, 2))[None]

    def curvature(self, weights: Floats) -> Floats:
        """Hessian in the weights."""
        H = self.hill.curvature(self.at(weights))
        return np.einsum("axi,xij,bxj->ab", self.corners, H, self.corners, optimize=True)[None]


def top(hill: Concave, polytope: Polytope, face: Face, start: Floats, tolerance: float) -> Peak:
    """The highest allowed point: by Newton's method, or over corners from where that gives up."""
    peak = climb(hill, polytope, face, start, tolerance)
    return peak if peak.gap <= tolerance else over_corners(hill, polytope, peak, tolerance)


def over_corners(
    hill: Concave, polytope: Polytope, start: Peak, tolerance: float, steps: int = 200
) -> Peak:
    """Simplicial decomposition (von Hohenbalken 1977): add the corner that the slope points to,
    go to the top of the hull, drop what has no weight there; never worse than the start.
    """
    best, corners, weights = start, start.q[None], np.ones((1, 1))
    for _ in range(steps):
        corner = polytope.corner(hill.slope(best.q)[1])
        if corner is None or polytope.excess(corner.x) > 10 * TIGHT:
            break
        corners = np.concatenate([corners, corner.x[None]])
        weights = np.append(weights, [[0.0]], axis=1)
        hull, k = Hull(hill, corners), len(corners)
        simplex = Polytope((1, k), 0.0, np.zeros((0, k)), np.zeros(0))
        centre = Face(np.full((1, k), 1.0 / k), np.zeros(k, np.bool_), np.zeros(0, np.bool_))
        weights = climb(hull, simplex, centre, weights, tolerance / 10).q
        q = hull.at(weights)
        value, slope = hill.slope(q)
        gap, prices = polytope.certify(q, slope)
        if gap >= best.gap:
            break
        best = Peak(q, value, gap, prices, start.steps)
        if gap <= tolerance:
            break
        corners, weights = corners[weights[0] > TIGHT], weights[:, weights[0] > TIGHT]
    return best
