"""A dense primal-dual interior-point method for the concave quadratic models that Newton climbs.

Owns the linear algebra of one quadratic program; where it comes from is left to the caller.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs, dpotrf, dpotrs

from bylot.numerics.jit import Floats


class QuadraticProgram(NamedTuple):
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
        ends = accumulate((len(block) for block in self.blocks), initial=0)
        spans = zip(self.blocks, pairwise(ends), strict=True)
        return np.concatenate([block @ y[i:j] for block, (i, j) in spans])


class PrimalDualPoint:
    """Where the method stands: y and the slack s > 0, their duals z and v, u for the equations.

    All in one array x = (y, s, z, v, u), the parts of which are views: its steps are as long.
    """

    __slots__ = ("duals", "levels", "s", "u", "v", "x", "y", "z")

    def __init__(self, x: Floats, n: int, m: int) -> None:
        h = n + m
        self.x, self.levels, self.duals = x, x[:h], x[h : 2 * h]
        self.y, self.s, self.z, self.v, self.u = (
            x[:n],
            x[n:h],
            x[h : h + n],
            x[h + n :][:m],
            x[2 * h :],
        )

    def complementarity(self) -> float:
        """y.z + s.v: once the equations hold, how far y is from the best."""
        return float(self.levels @ self.duals)

    def reach(self, step: Floats) -> float:
        """How many such steps keep y, s, z and v non-negative; may be infinite."""
        signed = 2 * self.levels.size
        fall = float((-step[:signed] / self.x[:signed]).max())
        return 1.0 / fall if fall > 0.0 else np.inf

    def plus(self, step: Floats) -> "PrimalDualPoint":
        """The point after a step."""
        return PrimalDualPoint(self.x + step, self.y.size, self.s.size)


class KktSystem:
    """The equations that hold at the end, linearised at a point and factored once:

    c - B y - E'u - A'v + z = 0,   E y = e,   A y + s = b,   y z = 0,   s v = 0.

    Eliminating dz and ds, then dy, leaves one small system for the rows [E; A].
    """

    def __init__(self, quadratic: QuadraticProgram, rows: Floats, at: PrimalDualPoint) -> None:
        self.at, self.rows = at, rows
        self.equal = quadratic.e.size  # of the rows, how many are equations
        self.balance = quadratic.c - quadratic.bend(at.y) - np.append(at.u, at.v) @ rows + at.z
        self.astray = np.append(quadratic.e, quadratic.b - at.s) - rows @ at.y

    def residuals(self) -> tuple[float, float]:
        """How far the first equation is off, and the next two."""
        return float(np.abs(self.balance).max()), float(np.abs(self.astray).max())

    def factor(self, blocks: Sequence[Floats]) -> bool:
        """Prepare to solve: Cholesky of B + Z/Y, and what the rows become under its inverse.

        LAPACK by its own names, as the usual wrappers take longer than the work. False if numbers
        do not allow it.
        """
        diagonal, self.factors, i = self.at.z / self.at.y, [], 0
        for block in blocks:
            j = i + len(block)
            filled = block.copy()
            filled.flat[:: j - i + 1] += diagonal[i:j]
            factor, failed = dpotrf(filled, overwrite_a=True)
            if failed:
                return False
            self.factors.append((factor, i, j))
            i = j
        self.inner = self.inverse(self.rows.T)
        self.schur = self.rows @ self.inner
        m = len(self.rows)
        self.schur.flat[self.equal * (m + 1) :: m + 1] += self.at.s / self.at.v
        self.scale = 1.0 / np.sqrt(self.schur.diagonal())
        # Rows that bind together at the end make this singular in the limit, hence the ridge.
        ridged = self.schur * np.outer(self.scale, self.scale)
        ridged.flat[:: m + 1] += 1e-14
        *self.ridged, failed = dgetrf(ridged)
        return not failed

    def solve(self, x: Floats) -> Floats:
        """schur^-1 x, made up for the ridge by one correction."""
        duals: Floats = self.scale * dgetrs(*self.ridged, self.scale * x)[0]
        duals += self.scale * dgetrs(*self.ridged, self.scale * (x - self.schur @ duals))[0]
        return duals

    def inverse(self, x: Floats) -> Floats:
        """(B + Z/Y)^-1 x, block by block."""
        parts = [dpotrs(factor, x[i:j])[0] for factor, i, j in self.factors]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def step(self, products: Floats) -> Floats:
        """The step after which the linear equations hold and (y z, s v) are what is asked for."""
        at, n = self.at, self.at.y.size
        wanted, dz, ds = self.astray.copy(), products[:n] / at.y - at.z, products[n:] / at.v - at.s
        wanted[self.equal :] -= ds
        free = self.inverse(self.balance + dz)
        duals = self.solve(self.rows @ free - wanted)
        dy, dv = free - self.inner @ duals, duals[self.equal :]
        ds, dz = ds - at.s * dv / at.v, dz - at.z * dy / at.y
        return np.concatenate([dy, ds, dz, dv, duals[: self.equal]])


def predict_and_correct(now: KktSystem) -> Floats:
    """Mehrotra's predictor and corrector; where these get nowhere, a step back to the middle."""
    at, h = now.at, now.at.levels.size
    gap = at.complementarity()
    guess = now.step(np.zeros(h))
    after = at.plus(min(1.0, at.reach(guess)) * guess).complementarity()
    target = (after / gap) ** 3 * gap / h
    step = now.step(target - guess[:h] * guess[h : 2 * h])
    return step if at.reach(step) >= 0.1 else now.step(np.full(h, gap / h))


def make_starting_point(
    quadratic: QuadraticProgram, inside: Floats, away: float
) -> PrimalDualPoint:
    """A place to begin: this far, in mean coordinates, from a y that is inside.

    Away from the edges all of y, s, z and v have the right size, and the equations can wait; in a
    very thin set they cannot, and inside (away = 0) is the place to begin.
    """
    size = float(inside.mean())
    y = inside + away * size
    s = quadratic.b - quadratic.A @ y
    s = np.maximum(s, away * size * np.abs(quadratic.A).max(axis=1, initial=0.0))
    mu = size * (float(np.ptp(quadratic.c - quadratic.bend(inside))) or 1.0)
    return PrimalDualPoint(
        np.concatenate([y, s, mu / y, mu / s, np.zeros(len(quadratic.e))]), y.size, s.size
    )


def solve_quadratic_program(
    quadratic: QuadraticProgram,
    inside: Floats,
    away: float = 1.0,
    precision: float = 0.0,
    steps: int = 60,
) -> PrimalDualPoint:
    """The best y with its duals, given a y that has room everywhere: to within the precision, a
    difference of values, or as far as numbers go.
    """
    at = make_starting_point(quadratic, inside, away)
    rows, unit = np.concatenate([quadratic.E, quadratic.A]), at.complementarity()
    gap, off = max(1e-18 * unit, precision), max(1e-12 * unit, precision)
    for _ in range(steps):
        now = KktSystem(quadratic, rows, at)
        balance, astray = now.residuals()
        if at.complementarity() <= gap and balance <= off and astray <= 1e-15:
            break
        if not now.factor(quadratic.blocks):
            break
        step = predict_and_correct(now)
        at = at.plus(min(1.0, 0.995 * at.reach(step)) * step)
    return at


def maximise_quadratic(quadratic: QuadraticProgram, inside: Floats) -> Floats:
    """The best y, given one that has room everywhere, as far as numbers go.

    A model that tells apart slopes of 1e-9 has values that differ by 1e-18, hence the precision.

    >>> row = np.ones((1, 2))
    >>> ends = QuadraticProgram(
    ...     [np.eye(2)], np.array([1.0, 0.5]), row, row[0, :1], row[:0], row[0, :0]
    ... )
    >>> maximise_quadratic(ends, np.array([0.5, 0.5])).round(9)
    array([0.75, 0.25])
    """
    return solve_quadratic_program(quadratic, inside).y
