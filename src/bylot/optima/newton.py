"""Climbing a concave landscape within a polytope: quadratic models, an exact line search, a proof.

Owns the iteration; the model is solved by `interior`, the proof comes from the polytope.
"""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import qr

from bylot.numerics.jit import Floats
from bylot.optima.interior_point import QuadraticProgram, solve_quadratic_program
from bylot.optima.polytope import TIGHT_ROOM, Face, Polytope

PROXIMAL_WEIGHT = 1e-9
"""Every model is made this much rounder than it is, relative to its largest slope or curvature."""

MODEL_PRECISION = 1e-3
"""A model is solved to this part of the gap it is to close."""

CURVATURE_REUSE_RATIO = 0.05
"""A curvature serves again after a step that left less than this part of the gap."""


class ConcaveFunction(Protocol):
    """What can be climbed: a concave function of q (X, K), separable over the rows of q."""

    def slope(self, q: Floats) -> tuple[float, Floats]:
        """Value and slope (X, K)."""
        ...

    def curvature(self, q: Floats) -> Floats:
        """Hessian (X, K, K)."""
        ...


class CertifiedMaximum(NamedTuple):
    """The point reached, its value, and the certificate that nothing allowed is better by more."""

    q: Floats
    value: float
    gap: float
    prices: Floats
    steps: int


class ModelMaximum(NamedTuple):
    """Where a model is highest, and the price v >= 0 of each row there."""

    q: Floats
    prices: Floats


class QuadraticModel(NamedTuple):
    """The second-order model of F around q: slope.(p - q) + (p - q).H.(p - q) / 2."""

    q: Floats
    slope: Floats
    H: Floats

    def peak(self, polytope: Polytope, face: Face, precision: float = 0.0) -> ModelMaximum | None:
        """The allowed p where the model is highest; None if numbers do not reach it.

        In y = p - floor, over the variables that are free and with the rows that are tight as
        equations, so that the program has an interior whatever the polytope. To within the
        precision, a difference of values. Prices are for the rows that are not tight.
        """
        free, prices = ~face.pinned, np.zeros(len(polytope.rows))
        if not free.any():
            return ModelMaximum(face.centre, prices)
        roundness = PROXIMAL_WEIGHT * max(float(np.ptp(self.slope)), float(-self.H.min()))
        blocks = [
            roundness * np.eye(int(part.sum())) - H[np.ix_(part, part)]
            for H, part in zip(self.H, free.reshape(self.q.shape), strict=True)
            if part.any()
        ]
        bend = np.einsum("xij,xj->xi", self.H, self.q - polytope.floor)
        c = self.slope - bend + roundness * (self.q - polytope.floor)
        E = select_independent_rows(
            np.concatenate([polytope.sums, polytope.rows[face.tight]])[:, free]
        )
        loose, start = ~face.tight, face.centre.ravel()[free] - polytope.floor
        scales = polytope.scales[loose]
        A = polytope.rows[loose][:, free] / scales[:, None]
        room = (polytope.bounds - polytope.rows @ face.centre.ravel())[loose] / scales
        program = QuadraticProgram(blocks, c.ravel()[free], E, E @ start, A, A @ start + room)
        for away in (1.0, 0.0):
            p, best = (
                np.full_like(self.q, polytope.floor),
                solve_quadratic_program(program, start, away, precision),
            )
            p[free.reshape(p.shape)] += best.y
            if polytope.excess(p) <= 10 * TIGHT_ROOM:
                prices[loose] = best.v / scales
                return ModelMaximum(p, prices)
        return None


def select_independent_rows(E: Floats) -> Floats:
    """Rows of E that span the same space and do not depend on each other."""
    _, R, pivots = qr(E.T, mode="economic", pivoting=True)
    size = np.abs(np.diag(R))
    return E[np.sort(pivots[: int((size > 1e-11 * size[0]).sum())])]


def maximise_by_newton(
    hill: ConcaveFunction,
    polytope: Polytope,
    face: Face,
    start: Floats,
    tolerance: float,
    *,
    steer: ConcaveFunction | None = None,
    prices: Floats | None = None,
    steps: int = 100,
) -> CertifiedMaximum:
    """Newton's method: go to the best of the model, as far as F itself still rises.

    A start that is not allowed still serves: the climb begins at the best of the model made there.
    Slopes are of the hill itself, and so is the proof. Curvature only says where to go: it may be
    that of a like hill that is cheaper (`steer`), kept for several steps, and the model be solved
    roughly; its prices, or at the start those given, are a proof that costs nothing. A step that
    does not halve the gap ends such thrift.
    """
    q, (value, slope) = start, hill.slope(start)
    if polytope.excess(q) > 10 * TIGHT_ROOM:
        aim = QuadraticModel(q, slope, (steer or hill).curvature(q)).peak(polytope, face)
        q, prices = (face.centre, None) if aim is None else aim
        value, slope = hill.slope(q)
    gap, prices = polytope.certify(q, slope, prices)
    H, thrift = None, not (face.tight.any() or face.pinned.any())
    for step in range(steps + 1):
        if gap <= tolerance or step == steps:
            break
        if H is None:
            H = (steer if thrift and steer else hill).curvature(q)
        rough = MODEL_PRECISION * max(gap, tolerance) if thrift else 0.0
        aim = QuadraticModel(q, slope, H).peak(polytope, face, rough)
        if aim is not None:
            rise = search_along_line(hill, q, slope, aim.q)
            # Without a rise that rounding leaves visible, ask the certificate.
            there = rise or (aim.q, *hill.slope(aim.q))
            proof = polytope.certify(there[0], there[2], aim.prices if thrift else None)
            if proof.gap <= gap / 2 or (rise and not thrift):
                H = H if thrift and proof.gap <= CURVATURE_REUSE_RATIO * gap else None
                (q, value, slope), (gap, prices) = there, proof
                continue
        if not thrift:
            break
        H, thrift = None, False
    return CertifiedMaximum(q, value, gap, prices, step)


def search_along_line(
    hill: ConcaveFunction, q: Floats, slope: Floats, p: Floats
) -> tuple[Floats, float, Floats] | None:
    """From q towards p: all the way if F rises that far, or else to where it has nearly levelled.

    A safeguarded secant on the slope along the way, which only falls as F is concave. Values are
    not compared: near the top they differ by less than their rounding, slopes do not. None if the
    way does not lead up.
    """
    way = p - q
    rise = float((slope * way).sum())
    if not rise > 0.0:
        return None
    value, new = hill.slope(p)
    low, high, at_low, at_high = 0.0, 1.0, rise, float((new * way).sum())
    if at_high >= -0.1 * rise:
        return p, value, new
    for _ in range(50):
        far = low + (high - low) * min(max(at_low / (at_low - at_high), 0.1), 0.9)
        there = q + far * way
        value, new = hill.slope(there)
        left = float((new * way).sum())
        if 0.0 <= left <= 0.5 * rise:
            return there, value, new
        if left > 0.0:
            low, at_low = far, left
        else:
            high, at_high = far, left
    return None


class VertexHull(NamedTuple):
    """F as a function of the weights (1, k) of k policies: a hill again, over a plain simplex."""

    hill: ConcaveFunction
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
        return maximise_by_newton(self, simplex, centre, start, tolerance).q


def maximise_concave(
    hill: ConcaveFunction,
    polytope: Polytope,
    face: Face,
    start: Floats,
    tolerance: float,
    steer: ConcaveFunction | None = None,
    prices: Floats | None = None,
) -> CertifiedMaximum:
    """The highest allowed point: by Newton's method, or over corners from where that gives up."""
    peak = maximise_by_newton(hill, polytope, face, start, tolerance, steer=steer, prices=prices)
    return (
        peak if peak.gap <= tolerance else maximise_over_vertices(hill, polytope, peak, tolerance)
    )


def maximise_over_vertices(
    hill: ConcaveFunction,
    polytope: Polytope,
    start: CertifiedMaximum,
    tolerance: float,
    steps: int = 60,
) -> CertifiedMaximum:
    """Simplicial decomposition (von Hohenbalken 1977), the best point of which is returned.

    Add the corner that the slope points to, go to the top of the hull, drop what has no weight.
    """
    best, q, corners, weights = start, start.q, start.q[None], np.ones((1, 1))
    for _ in range(steps):
        corner = polytope.corner(hill.slope(q)[1])
        if corner is None or polytope.excess(corner.x) > 10 * TIGHT_ROOM:
            break
        hull = VertexHull(hill, np.concatenate([corners, corner.x[None]]))
        weights = hull.top(np.append(weights, [[0.0]], axis=1), tolerance / 10)
        q = hull.at(weights)
        value, slope = hill.slope(q)
        gap, prices = polytope.certify(q, slope)
        if gap < best.gap:
            best = CertifiedMaximum(q, value, gap, prices, start.steps)
        if gap <= tolerance:
            break
        kept = weights[0] > TIGHT_ROOM
        corners, weights = hull.corners[kept], weights[:, kept]
    return best
