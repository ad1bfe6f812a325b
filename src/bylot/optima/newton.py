"""Maximising a concave function over a polytope by Newton's method.

Owns the iteration; the polytope maximises the models and certifies the result.
"""

from typing import NamedTuple, Protocol

import numpy as np

from bylot.numerics.jit import Floats
from bylot.optima.polytope import Polytope, PricedPoint

PROXIMAL_WEIGHT = 1e-9  # ridge of every model, relative to its largest slope or curvature
MAX_MODEL_STEPS = 100


class ConcaveFunction(Protocol):
    """A concave function of q (X, K), separable over the rows of q.

    `slope` returns value and slope (X, K), `curvature` the Hessian (X, K, K).
    """

    def slope(self, q: Floats) -> tuple[float, Floats]: ...
    def curvature(self, q: Floats) -> Floats: ...


class Point(NamedTuple):
    """A point, with the value and the slope there."""

    q: Floats
    value: float
    slope: Floats

    @classmethod
    def of(cls, F: ConcaveFunction, q: Floats) -> "Point":
        return cls(q, *F.slope(q))

    def climb_towards(self, F: ConcaveFunction, p: Floats) -> "Point | None":
        """Go towards p: all the way if F rises that far, else to where it nearly levels.

        A safeguarded secant on the slope along the way, which only falls as F is concave. It
        compares slopes and not values, whose differences vanish in rounding near the maximum.
        None if F does not rise towards p.
        """
        way = p - self.q
        rise = float((self.slope * way).sum())
        if not rise > 0.0:
            return None
        there = Point.of(F, p)
        low, high, at_low, at_high = 0.0, 1.0, rise, float((there.slope * way).sum())
        if at_high >= -0.1 * rise:
            return there
        for _ in range(50):
            far = low + (high - low) * min(max(at_low / (at_low - at_high), 0.1), 0.9)
            there = Point.of(F, self.q + far * way)
            left = float((there.slope * way).sum())
            if 0.0 <= left <= 0.5 * rise:
                return there
            if left > 0.0:
                low, at_low = far, left
            else:
                high, at_high = far, left
        return None


class CertifiedMaximum(NamedTuple):
    """The point reached, its value, and the certificate: nothing feasible exceeds value + gap."""

    q: Floats
    value: float
    gap: float
    prices: Floats
    steps: int


class QuadraticModel(NamedTuple):
    """The second-order model of F around a point q: slope.(p - q) + (p - q).H.(p - q) / 2."""

    at: Point
    H: Floats

    def maximise(self, polytope: Polytope) -> PricedPoint | None:
        """Return a feasible p where the model is largest, or None if none was found."""
        q, _, slope = self.at
        ridge = PROXIMAL_WEIGHT * max(float(np.ptp(slope)), float(-self.H.min()))
        B = ridge * np.eye(q.shape[1]) - self.H
        return polytope.maximise_quadratic(B, slope + (B @ q[:, :, None])[:, :, 0])


class ConcaveProgram(NamedTuple):
    """Maximise F over a polytope that is not empty, until the gap is at most the tolerance."""

    F: ConcaveFunction
    polytope: Polytope
    tolerance: float

    def certify(self, q: Floats) -> CertifiedMaximum | None:
        """Return q if it is the maximum; None if it is not, or is infeasible.

        The maximum under looser limits often is, and then no limit has a price: zero prices are
        tried before a linear program is solved for others.
        """
        if not self.polytope.contains(q):
            return None
        value, slope = self.F.slope(q)
        for prices in (np.zeros(len(self.polytope.rows)), None):
            proof = self.polytope.certify(q, slope, prices)
            if proof.gap <= self.tolerance:
                return CertifiedMaximum(q, value, *proof, 0)
        return None

    def maximise(self, start: Floats) -> CertifiedMaximum:
        """Go towards the maximum of the model as long as F itself rises: Newton's method.

        An infeasible start is replaced by the nearest policy. The multipliers of a model serve as
        certificates, and those of a linear program where they do not halve the gap.
        """
        F, polytope, tolerance = self
        q = start if polytope.contains(start) else polytope.find_nearest(start)
        q = polytope.feasible if q is None else q
        assert q is not None, "the polytope is not empty"
        at = Point.of(F, q)
        gap, prices = polytope.certify(at.q, at.slope)
        for step in range(MAX_MODEL_STEPS + 1):
            if gap <= tolerance or step == MAX_MODEL_STEPS:
                break
            aim = QuadraticModel(at, F.curvature(at.q)).maximise(polytope)
            if aim is None:
                break
            rise = at.climb_towards(F, aim.x)
            # If rounding hides the rise, the certificate decides.
            there = rise or Point.of(F, aim.x)
            proof = polytope.certify(there.q, there.slope, aim.prices)
            if proof.gap > max(tolerance, gap / 2):
                proof = min(proof, polytope.certify(there.q, there.slope), key=lambda p: p.gap)
            if rise is None and proof.gap > gap / 2:
                break
            at = there
            gap, prices = proof
        return CertifiedMaximum(at.q, at.value, gap, prices, step)
