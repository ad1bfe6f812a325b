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
    """Where the method stands: y and the slack s > 0, their duals z and v, u for the equations."""

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
        """The point after far * step."""
        return Point(*(x + far * d for x, d in zip(self, step, strict=True)))


class Conditions:
    """The equations that hold at the end, linearised at a point and factored once:

    c - B y - E'u - A'v + z = 0,   E y = e,   A y + s = b,   y z = 0,   s v = 0.

    Eliminating dz and ds, then dy, leaves one small system for the rows [E; A].
    """

    def __init__(self, quadratic: Quadratic, at: Point) -> None:
        self.at, self.rows = at, np.concatenate([quadratic.E, quadratic.A])
        self.balance = (
            quadratic.c - quadratic.bend(at.y) - self.rows.T @ np.append(at.u, at.v) + at.z
        )
        self.astray = np.append(quadratic.e, quadratic.b - at.s) - self.rows @ at.y
        self.equal = len(quadratic.e)  # of the rows, how many are equations

    def residuals(self) -> tuple[float, float]:
        """How far the first equation is off, and the next two."""
        return float(np.abs(self.balance).max()), float(np.abs(self.astray).max())

    def factor(self, blocks: Sequence[Floats]) -> None:
        """Prepare to solve: Cholesky of B + Z/Y, and what the rows become under its inverse."""
        diagonals = np.split(self.at.z / self.at.y, np.cumsum([len(b) for b in blocks])[:-1])
        self.factors = [
            cho_factor(block + np.diag(diagonal), check_finite=False)
            for block, diagonal in zip(blocks, diagonals, strict=True)
        ]
        self.inner = self.inverse(self.rows.T)
        self.schur = self.rows @ self.inner
        inequalities = np.arange(self.equal, len(self.rows))
        self.schur[inequalities, inequalities] += self.at.s / self.at.v
        self.scale = 1.0 / np.sqrt(np.diag(self.schur))
        # Rows that bind together at the end make this singular in the limit, hence the ridge.
        self.ridged = self.schur * np.outer(self.scale, self.scale) + 1e-14 * np.eye(len(self.rows))

    def solve(self, x: Floats) -> Floats:
        """schur^-1 x, made up for the ridge by one correction."""
        duals = self.scale * np.linalg.solve(self.ridged, self.scale * x)
        return duals + self.scale * np.linalg.solve(
            self.ridged, self.scale * (x - self.schur @ duals)
        )

    def inverse(self, x: Floats) -> Floats:
        """(B + Z/Y)^-1 x, block by block."""
        parts = np.split(x, np.cumsum([len(factor) for factor, _ in self.factors])[:-1])
        return np.concatenate(
            [
                cho_solve(factor, part, check_finite=False)
                for factor, part in zip(self.factors, parts, strict=True)
            ]
        )

    def step(self, yz: Floats | float, sv: Floats | float) -> Point:
        """The step after which the linear equations hold and y z, s v are what is asked for."""
        y, s, _, v, z = self.at
        ds = sv / v - s
        wanted = self.astray - np.append(np.zeros(self.equal), ds)
        free = self.inverse(self.balance + yz / y - z)
        duals = self.solve(self.rows @ free - wanted)
        dy, dv = free - self.inner @ duals, duals[self.equal :]
        return Point(dy, ds - s * dv / v, duals[: self.equal], dv, yz / y - z - z * dy / y)


def next_step(now: Conditions) -> Point:
    """Mehrotra's predictor and corrector; where these get nowhere, a step back to the middle."""
    at = now.at
    gap = at.complementarity()
    mean = gap / (at.y.size + at.s.size)
    guess = now.step(0.0, 0.0)
    after = at.plus(min(1.0, at.reach(guess)), guess).complementarity()
    target = (after / gap) ** 3 * mean
    step = now.step(target - guess.y * guess.z, target - guess.s * guess.v)
    return step if at.reach(step) >= 0.1 else now.step(mean, mean)


def beginning(quadratic: Quadratic, inside: Floats, away: float) -> Point:
    """A place to begin: this far, in mean coordinates, from a y that is inside.

    Away from the edges all of y, s, z and v have the right size, and the equations can wait; in a
    very thin set they cannot, and inside (away = 0) is the place to begin.
    """
    size = float(inside.mean())
    y = inside + away * size
    s = quadratic.b - quadratic.A @ y
    s = np.maximum(s, away * size * np.abs(quadratic.A).max(axis=1, initial=0.0))
    mu = size * (float(np.ptp(quadratic.c - quadratic.bend(inside))) or 1.0)
    return Point(y, s, np.zeros(len(quadratic.e)), mu / s, mu / y)


def peak(quadratic: Quadratic, inside: Floats, away: float = 1.0, steps: int = 60) -> Floats:
    """The best y, given one that has room everywhere, as far as numbers go.

    A model that tells apart slopes of 1e-9 has values that differ by 1e-18, hence the precision.

    >>> row = np.ones((1, 2))
    >>> ends = Quadratic([np.eye(2)], np.array([1.0, 0.5]), row, row[0, :1], row[:0], row[0, :0])
    >>> peak(ends, np.array([0.5, 0.5])).round(9)
    array([0.75, 0.25])
    """
    at = beginning(quadratic, inside, away)
    unit = at.complementarity()
    for _ in range(steps):
        now = Conditions(quadratic, at)
        balance, astray = now.residuals()
        if at.complementarity() <= 1e-18 * unit and balance <= 1e-12 * unit and astray <= 1e-15:
            break
        try:
            now.factor(quadratic.blocks)
            step = next_step(now)
        except np.linalg.LinAlgError:  # as far as numbers go
            break
        at = at.plus(min(1.0, 0.995 * at.reach(step)), step)
    return at.y
