"""Maximising a concave function over a polytope: Newton's method, with a vertex method behind it.

Owns the iteration; `interior_point` solves the models, and the polytope certifies the result.
"""

from typing import NamedTuple, Protocol

import numpy as np

from bylot.numerics.jit import Floats
from bylot.optima.interior_point import QuadraticProgram, solve_quadratic_program
from bylot.optima.polytope import TIGHT_ROOM, Polytope, PricedPoint

PROXIMAL_WEIGHT = 1e-9  # ridge of every model, relative to its largest slope or curvature
MODEL_PRECISION = 1e-3  # a model is solved to this fraction of the gap it is to close
CURVATURE_REUSE_RATIO = 0.05  # curvature is reused after steps that leave less of the gap
MAX_MODEL_STEPS, MAX_VERTEX_STEPS = 100, 60


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

    def maximise(self, polytope: Polytope, precision: float = 0.0) -> PricedPoint | None:
        """A feasible p where the model is largest, up to precision unless numbers fail; None if no
        feasible one was found.

        In y = p - floor, over the free variables and with tight rows as equations, so that the
        program has an interior whatever the polytope. Multipliers are of the rows not tight.
        """
        (q, _, slope), face = self.at, polytope.face
        prices = np.zeros(len(polytope.rows))
        if face is None:
            return None
        if face.pinned.all():
            return PricedPoint(face.centre, prices)
        inner, free = polytope.face_rows, ~face.pinned.reshape(q.shape)
        ridge = PROXIMAL_WEIGHT * max(float(np.ptp(slope)), float(-self.H.min()))
        B, y = ridge * np.eye(q.shape[1]) - self.H, q - polytope.floor
        blocks, sizes = B[free[:, :, None] & free[:, None, :]], free.sum(axis=1)
        c = (slope + (B @ y[:, :, None])[:, :, 0])[free]
        program = QuadraticProgram(
            blocks, sizes[sizes > 0], c, inner.rows, inner.ends, inner.limits
        )
        for away in (1.0, 0.0):
            best = solve_quadratic_program(program, inner.inside, away, precision)
            p = np.full_like(q, polytope.floor)
            p[free] += best.y
            near = polytope.restore(p)
            if near is not None:
                prices[~face.tight] = best.v / inner.scales
                return PricedPoint(near, prices)
        return None


class ConcaveProgram(NamedTuple):
    """Maximise F over a polytope that is not empty, until the gap is at most the tolerance."""

    F: ConcaveFunction
    polytope: Polytope
    tolerance: float

    def maximise(
        self, start: Floats, proxy: ConcaveFunction | None = None, prices: Floats | None = None
    ) -> CertifiedMaximum:
        """The maximum by Newton's method and, where that fails, over vertices from its end."""
        best = self.maximise_by_newton(start, proxy, prices)
        return best if best.gap <= self.tolerance else self.maximise_over_vertices(best)

    def maximise_by_newton(
        self, start: Floats, proxy: ConcaveFunction | None = None, prices: Floats | None = None
    ) -> CertifiedMaximum:
        """Newton's method: go towards the maximum of the model as long as F itself rises.

        An infeasible start is replaced by the maximum of the model made there. Slope and
        certificate are those of F. To save time, curvature may come from a similar function
        (`proxy`) and be kept for several steps, models are solved roughly, and their multipliers
        (at first `prices`) serve as certificates. A step that does not halve the gap ends these
        savings.
        """
        (F, polytope, tolerance), face = self, self.polytope.face
        assert face is not None, "the polytope is not empty"
        at = Point.of(F, start)
        if not polytope.contains(start):
            aim = QuadraticModel(at, (proxy or F).curvature(start)).maximise(polytope)
            q, prices = (face.centre, None) if aim is None else aim
            at = Point.of(F, q)
        gap, prices = polytope.certify(at.q, at.slope, prices)
        H, thrifty = None, not (face.tight.any() or face.pinned.any())
        for step in range(MAX_MODEL_STEPS + 1):
            if gap <= tolerance or step == MAX_MODEL_STEPS:
                break
            if H is None:
                H = (proxy if thrifty and proxy else F).curvature(at.q)
            precision = MODEL_PRECISION * max(gap, tolerance) if thrifty else 0.0
            aim = QuadraticModel(at, H).maximise(polytope, precision)
            if aim is not None:
                rise = at.climb_towards(F, aim.x)
                # If rounding hides the rise, the certificate decides.
                there = rise or Point.of(F, aim.x)
                proof = polytope.certify(there.q, there.slope, aim.prices if thrifty else None)
                if proof.gap <= gap / 2 or (rise and not thrifty):
                    H = H if thrifty and proof.gap <= CURVATURE_REUSE_RATIO * gap else None
                    at, (gap, prices) = there, proof
                    continue
            if not thrifty:
                break
            H, thrifty = None, False
        return CertifiedMaximum(at.q, at.value, gap, prices, step)

    def maximise_over_vertices(self, start: CertifiedMaximum) -> CertifiedMaximum:
        """Simplicial decomposition (von Hohenbalken 1977): slower than Newton's method, and robust.

        Add the vertex that the slope points to, maximise over the hull, drop vertices without
        weight.
        """
        F, polytope, tolerance = self
        best, q, vertices, weights = start, start.q, start.q[None], np.ones((1, 1))
        for _ in range(MAX_VERTEX_STEPS):
            vertex = polytope.find_vertex(F.slope(q)[1])
            near = None if vertex is None else polytope.restore(vertex.x)
            if near is None:
                break
            hull = VertexHull(F, np.concatenate([vertices, near[None]]))
            k = len(hull.vertices)
            simplex = Polytope((1, k), 0.0, np.zeros((0, k)), np.zeros(0))
            mixed = ConcaveProgram(hull, simplex, tolerance / 10)
            weights = mixed.maximise_by_newton(np.append(weights, [[0.0]], axis=1)).q
            q = hull.mix(weights)
            value, slope = F.slope(q)
            gap, prices = polytope.certify(q, slope)
            if gap < best.gap:
                best = CertifiedMaximum(q, value, gap, prices, start.steps)
            if gap <= tolerance:
                break
            used = weights[0] > TIGHT_ROOM
            vertices, weights = hull.vertices[used], weights[:, used]
        return best


class VertexHull(NamedTuple):
    """F as a concave function of the weights (1, k) of k policies."""

    F: ConcaveFunction
    vertices: Floats  # (k, X, K)

    def mix(self, weights: Floats) -> Floats:
        return np.tensordot(weights[0], self.vertices, axes=1)

    def slope(self, weights: Floats) -> tuple[float, Floats]:
        value, slope = self.F.slope(self.mix(weights))
        return value, (self.vertices * slope).sum(axis=(1, 2))[None]

    def curvature(self, weights: Floats) -> Floats:
        H = self.F.curvature(self.mix(weights))
        bent = (H @ self.vertices[..., None])[..., 0]
        flat = self.vertices.reshape(len(self.vertices), -1)
        return (flat @ bent.reshape(flat.shape).T)[None]
