"""Climbing over corners: slower than Newton's method and proof against sets too thin for it.

Owns the fall-back only; `top` is what the optimum calls, and it tries Newton first.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats
from bylot.optima.newton import Concave, Peak, climb
from bylot.optima.polytope import TIGHT, Face, Polytope


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
        bent = (H @ self.corners[..., None])[..., 0]
        flat = self.corners.reshape(len(self.corners), -1)
        return (flat @ bent.reshape(flat.shape).T)[None]

    def top(self, start: Floats, tolerance: float) -> Floats:
        """The best weights, by Newton's method."""
        k = len(self.corners)
        simplex = Polytope((1, k), 0.0, np.zeros((0, k)), np.zeros(0))
        centre = Face(np.full((1, k), 1.0 / k), np.zeros(k, np.bool_), np.zeros(0, np.bool_))
        return climb(self, simplex, centre, start, tolerance).q


def top(
    hill: Concave,
    polytope: Polytope,
    face: Face,
    start: Floats,
    tolerance: float,
    steer: Concave | None = None,
    prices: Floats | None = None,
) -> Peak:
    """The highest allowed point: by Newton's method, or over corners from where that gives up."""
    peak = climb(hill, polytope, face, start, tolerance, steer=steer, prices=prices)
    return peak if peak.gap <= tolerance else over_corners(hill, polytope, peak, tolerance)


def over_corners(
    hill: Concave, polytope: Polytope, start: Peak, tolerance: float, steps: int = 60
) -> Peak:
    """Simplicial decomposition (von Hohenbalken 1977), the best point of which is returned.

    Add the corner that the slope points to, go to the top of the hull, drop what has no weight.
    """
    best, q, corners, weights = start, start.q, start.q[None], np.ones((1, 1))
    for _ in range(steps):
        corner = polytope.corner(hill.slope(q)[1])
        if corner is None or polytope.excess(corner.x) > 10 * TIGHT:
            break
        hull = Hull(hill, np.concatenate([corners, corner.x[None]]))
        weights = hull.top(np.append(weights, [[0.0]], axis=1), tolerance / 10)
        q = hull.at(weights)
        value, slope = hill.slope(q)
        gap, prices = polytope.certify(q, slope)
        if gap < best.gap:
            best = Peak(q, value, gap, prices, start.steps)
        if gap <= tolerance:
            break
        kept = weights[0] > TIGHT
        corners, weights = hull.corners[kept], weights[:, kept]
    return best
