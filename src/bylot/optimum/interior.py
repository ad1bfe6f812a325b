"""A dense primal-dual interior-point method for the concave quadratic models that Newton climbs.

Owns the linear algebra of one quadratic program; where it comes from is left to the caller.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bylot.kernels.compile import Floats


class Quadratic(NamedTuple):
    """maximise c.y - y.B.y / 2 over y >= 0 with E y = e and A y <= b.

    B is block-diagonal and given by its blocks, positive definite; E has full row rank.
    """

    blocks: Sequence[Floats]
    c: Floats
    E: Floats
    e: Floats
    A: Floats
    b: Floats

    def bend(self, y: Floats) -> Floats:
        """B y."""
        ends = np.cumsum([0, *(len(block) for block in self.blocks)])
        parts = [block @ y[i:j] for block, i, j in zip(self.blocks, ends, ends[1:], strict=False)]
        return np.concatenate(parts)


class Point(NamedTuple):
    """Where the method stands: y and the slack s > 0, their duals z and v, u for the equations.

    All conditions together: B y - c + E'u + A'v = z,  E y = e,  A y + s = b,  y z = 0,  s v = 0.
    """

    y: Floats
    s: Floats
    u: Floats
    v: Floats
    z: Floats

    def complementarity(self) -> float:
        """y.z + s.v: once the equations hold, how far y is from the best."""
        return float(self.y @ self.z + self.s @ self.v)

    def reach(self, step: "Point") -> float:
        """How many such steps keep y, s, z and v non-negative; may be infinite."""
        x = np.concatenate([self.y, self.s, self.z, self.v])
        d = np.concatenate([step.y, step.s, step.z, step.v])
        falling = d < 0.0
        return float(np.min(-x[falling] / d[falling], initial=np.inf))

    def plus(self, far: float, step: "Point") -> "Point":
        """This point moved by far * step."""
        return Point(*(x + far * d for x, d in zip(self, step, strict=True)))


class Normal:
    """The Newton equations at a point, reduced to the rows [E; A] and factored once.

    (B + Z/Y) dy + E'du + A'dv = p,   E dy = r,   A dy - (S/V) dv = h.
    """

    def __init__(self, quadratic: Quadratic, at: Point) -> None:
        self.factors, start = [], 0
        diagonal = at.z / at.y
        for block in quadratic.blocks:
            part = diagonal[start : start + len(block)]
            self.factors.append(cho_factor(block + np.diag(part), check_finite=False))
            start += len(block)
        self.rows = np.concatenate([quadratic.E, quadratic.A])
        self.inner = self.inverse(self.rows.T)
        self.schur = self.rows @ self.inner
        inequalities = np.arange(len(quadratic.E), len(self.rows))
        self.schur[inequalities, inequalities] += at.s / at.v

    def inverse(self, x: Floats) -> Floats:
        """(B + Z/Y)^-1 x, block by block."""
        parts, start = [], 0
        for factor in self.factors:
            size = len(factor[0])
            parts.append(cho_solve(factor, x[start : start + size], check_finite=False))
            start += size
        return np.concatenate(parts)

    def solve(self, p: Floats, r: Floats, h: Floats) -> tuple[Floats, Floats, Floats]:
        """dy, du and dv."""
        free = self.inverse(p)
        duals = np.linalg.solve(self.schur, self.rows @ free - np.concatenate([r, h]))
        return free - self.inner @ duals, duals[: len(r)], duals[len(r) :]


def newton_step(quadratic: Quadratic, at: Point, normal: Normal, yz: Floats, sv: Floats) -> Point:
    """The step that would make all equations hold, and y z and s v what they are asked to be."""
    E, A = quadratic.E, quadratic.A
    dual = quadratic.c - quadratic.bend(at.y) - E.T @ at.u - A.T @ at.v + at.z
    room = quadratic.b - A @ at.y - at.s
    dy, du, dv = normal.solve(
        dual + yz / at.y - at.z, quadratic.e - E @ at.y, room - sv / at.v + at.s
    )
    return Point(dy, room - A @ dy, du, dv, yz / at.y - at.z - at.z * dy / at.y)


def peak(quadratic: Quadratic, start: Floats, tolerance: float, steps: int = 60) -> Point:
    """Mehrotra's predictor-corrector from a strictly allowed start, down to the tolerance.

    >>> simplex = Quadratic(
    ...     [np.eye(2)],
    ...     np.array([1.0, 0.5]),
    ...     np.ones((1, 2)),
    ...     np.ones(1),
    ...     np.zeros((0, 2)),
    ...     np.zeros(0),
    ... )
    >>> peak(simplex, np.array([0.5, 0.5]), 1e-12).y.round(9)
    array([0.75, 0.25])
    """
    s = quadratic.b - quadratic.A @ start
    slope = quadratic.c - quadratic.bend(start)
    mu = max(float(np.ptp(slope)), tolerance) * float(start.mean())  # of the right size, never 0
    at = Point(start, s, np.zeros(len(quadratic.e)), mu / s, mu / start)
    count = at.y.size + at.s.size
    for _ in range(steps):
        gap = at.complementarity()
        off = (
            quadratic.c - quadratic.bend(at.y) - quadratic.E.T @ at.u - quadratic.A.T @ at.v + at.z
        )
        if gap <= tolerance and np.abs(off).max() <= tolerance:
            break
        try:
            normal = Normal(quadratic, at)
        except np.linalg.LinAlgError:  # as exact as these numbers allow
            break
        guess = newton_step(quadratic, at, normal, np.zeros_like(at.y), np.zeros_like(at.s))
        after = at.plus(min(1.0, at.reach(guess)), guess).complementarity()
        target = (after / gap) ** 3 * gap / count
        step = newton_step(
            quadratic, at, normal, target - guess.y * guess.z, target - guess.s * guess.v
        )
        at = at.plus(min(1.0, 0.995 * at.reach(step)), step)
    return at
