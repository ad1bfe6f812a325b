"""Climbing a concave landscape within a polytope: quadratic models, an exact line search, a proof.

Owns the iteration; the model is solved by `interior`, the proof comes from the polytope.
"""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import qr

from bylot.kernels.compile import Floats
from bylot.optima.interior import Quadratic, solved
from bylot.optima.polytope import TIGHT, Face, Polytope

PROX = 1e-9
"""Every model is made this much rounder than it is, relative to its largest slope or curvature."""

ROUGH = 1e-3
"""A model is solved to this part of the gap it is to close."""

AGED = 0.05
"""A curvature serves again after a step that left less than this part of the gap."""


class Concave(Protocol):
    """What can be climbed: a concave function of q (X, K), separable over the rows of q."""

    def slope(self, q: Floats) -> tuple[float, Floats]:
        """Value and slope (X, K)."""
        ...

    def curvature(self, q: Floats) -> Floats:
        """Hessian (X, K, K)."""
        ...


class Peak(NamedTuple):
    """The point reached, its value, and the certificate that nothing allowed is better by more."""

    q: Floats
    value: float
    gap: float
    prices: Floats
    steps: int


class Aim(NamedTuple):
    """Where a model is highest, and the price v >= 0 of each row there."""

    q: Floats
    prices: Floats


class Model(NamedTuple):
    """The second-order model of F around q: slope.(p - q) + (p - q).H.(p - q) / 2."""

    q: Floats
    slope: Floats
    H: Floats

    def peak(self, polytope: Polytope, face: Face, precision: float = 0.0) -> Aim | None:
        """The allowed p where the model is highest; None if numbers do not reach it.

        In y = p - floor, over the variables that are free and with the rows that are tight as
        equations, so that the program has an interior whatever the polytope. To within the
        precision, a difference of values. Prices are for the rows that are not tight.
        """
        free, prices = ~face.pinned, np.zeros(len(polytope.rows))
        if not free.any():
            return Aim(face.centre, prices)
        roundness = PROX * max(float(np.ptp(self.slope)), float(-self.H.min()))
        blocks = [
            roundness * np.eye(int(part.sum())) - H[np.ix_(part, part)]
            for H, part in zip(self.H, free.reshape(self.q.shape), strict=True)
            if part.any()
        ]
        bend = np.einsum("xij,xj->xi", self.H, self.q - polytope.floor)
        c = self.slope - bend + roundness * (self.q - polytope.floor)
        E = independent(np.concatenate([polytope.sums, polytope.rows[face.tight]])[:, free])
        loose, start = ~face.tight, face.centre.ravel()[free] - polytope.floor
        scales = polytope.scales[loose]
        A = polytope.rows[loose][:, free] / scales[:, None]
        room = (polytope.bounds - polytope.rows @ face.centre.ravel())[loose] / scales
        program = Quadratic(blocks, c.ravel()[free], E, E @ start, A, A @ start + room)
        for away in (1.0, 0.0):
            p, best = np.full_like(self.q, polytope.floor), solved(program, start, away, precision)
            p[free.reshape(p.shape)] += best.y
            if polytope.excess(p) <= 10 * TIGHT:
                prices[loose] = best.v / scales
                return Aim(p, prices)
        return None


def independent(E: Floats) -> Floats:
    """Rows of E that span the same space and do not depend on each other."""
    _, R, pivots = qr(E.T, mode="economic", pivoting=True)
    size = np.abs(np.diag(R))
    return E[np.sort(pivots[: int((size > 1e-11 * size[0]).sum())])]


def climb(
    hill: Concave,
    polytope: Polytope,
    face: Face,
    start: Floats,
    tolerance: float,
    *,
    steer: Concave | None = None,
    prices: Floats | None = None,
    steps: int = 100,
) -> Peak:
    """Newton's method: go to the best of the model, as far as F itself still rises.

    A start that is not allowed still serves: the climb begins at the best of the model made there.
    Slopes are of the hill itself, and so is the proof. Curvature only says where to go: it may be
    that of a like hill that is cheaper (`steer`), kept for several steps, and the model be solved
    roughly; its prices, or at the start those given, are a proof that costs nothing. A step that
    does not halve the gap ends such thrift.
    """
    q, (value, slope) = start, hill.slope(start)
    if polytope.excess(q) > 10 * TIGHT:
        aim = Model(q, slope, (steer or hill).curvature(q)).peak(polytope, face)
        q, prices = (face.centre, None) if aim is None else aim
        value, slope = hill.slope(q)
    gap, prices = polytope.certify(q, slope, prices)
    H, thrift = None, not (face.tight.any() or face.pinned.any())
    for step in range(steps + 1):
        if gap <= tolerance or step == steps:
            break
        if H is None:
            H = (steer if thrift and steer else hill).curvature(q)
        rough = ROUGH * max(gap, tolerance) if thrift else 0.0
        aim = Model(q, slope, H).peak(polytope, face, rough)
        if aim is not None:
            rise = ascend(hill, q, slope, aim.q)
            # Without a rise that rounding leaves visible, ask the certificate.
            there = rise or (aim.q, *hill.slope(aim.q))
            proof = polytope.certify(there[0], there[2], aim.prices if thrift else None)
            if proof.gap <= gap / 2 or (rise and not thrift):
                H = H if thrift and proof.gap <= AGED * gap else None
                (q, value, slope), (gap, prices) = there, proof
                continue
        if not thrift:
            break
        H, thrift = None, False
    return Peak(q, value, gap, prices, step)


def ascend(
    hill: Concave, q: Floats, slope: Floats, p: Floats
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
