"""A dense primal-dual interior-point method for the concave quadratic models of Newton's method.

Owns the linear algebra of one quadratic program; `newton` builds the programs.
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

    def multiply_blocks(self, y: Floats) -> Floats:
        """B y."""
        ends = accumulate((len(block) for block in self.blocks), initial=0)
        spans = zip(self.blocks, pairwise(ends), strict=True)
        return np.concatenate([block @ y[i:j] for block, (i, j) in spans])


class PrimalDualPoint:
    """An iterate: y and the slack s > 0, their duals z and v, and u for the equations.

    All are views of one array x = (y, s, z, v, u), so that a step is one array too.
    """

    __slots__ = ("duals", "primal", "s", "u", "v", "x", "y", "z")

    def __init__(self, x: Floats, n: int, m: int) -> None:
        h = n + m
        self.x, self.primal, self.duals = x, x[:h], x[h : 2 * h]
        self.y, self.s, self.u = x[:n], x[n:h], x[2 * h :]
        self.z, self.v = self.duals[:n], self.duals[n:]

    def complementarity(self) -> float:
        """y.z + s.v: once the equations hold, how far y is from the optimum."""
        return float(self.primal @ self.duals)

    def max_step(self, step: Floats) -> float:
        """The largest multiple of the step that keeps y, s, z and v non-negative; maybe inf."""
        signed = 2 * self.primal.size
        fall = float((-step[:signed] / self.x[:signed]).max())
        return 1.0 / fall if fall > 0.0 else np.inf

    def plus(self, step: Floats) -> "PrimalDualPoint":
        """The point after a step."""
        return PrimalDualPoint(self.x + step, self.y.size, self.s.size)


class KktSystem:
    """The optimality conditions, linearised at a point and factored once:

    c - B y - E'u - A'v + z = 0,   E y = e,   A y + s = b,   y z = 0,   s v = 0.

    Eliminating dz and ds, then dy, leaves one small system for the rows [E; A].
    """

    def __init__(self, program: QuadraticProgram, rows: Floats, at: PrimalDualPoint) -> None:
        self.at, self.rows = at, rows
        self.equal = program.e.size  # how many of the rows are equations
        bend = program.multiply_blocks(at.y)
        self.stationarity = program.c - bend - np.append(at.u, at.v) @ rows + at.z
        self.infeasibility = np.append(program.e, program.b - at.s) - rows @ at.y

    def residuals(self) -> tuple[float, float]:
        """The largest residual of the first equation, and of the next two."""
        return float(np.abs(self.stationarity).max()), float(np.abs(self.infeasibility).max())

    def factor(self, blocks: Sequence[Floats]) -> bool:
        """Factor B + Z/Y by Cholesky and the Schur complement of the rows; False if that fails.

        Calls LAPACK directly: the usual wrappers take longer than the work.
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
        self.inner = self.solve_blocks(self.rows.T)
        self.schur = self.rows @ self.inner
        m = len(self.rows)
        self.schur.flat[self.equal * (m + 1) :: m + 1] += self.at.s / self.at.v
        self.scale = 1.0 / np.sqrt(self.schur.diagonal())
        # Rows that bind together make this singular in the limit, hence the ridge.
        ridged = self.schur * np.outer(self.scale, self.scale)
        ridged.flat[:: m + 1] += 1e-14
        *self.ridged, failed = dgetrf(ridged)
        return not failed

    def solve_schur(self, x: Floats) -> Floats:
        """schur^-1 x, with one step of iterative refinement that removes the ridge."""
        duals: Floats = self.scale * dgetrs(*self.ridged, self.scale * x)[0]
        duals += self.scale * dgetrs(*self.ridged, self.scale * (x - self.schur @ duals))[0]
        return duals

    def solve_blocks(self, x: Floats) -> Floats:
        """(B + Z/Y)^-1 x, block by block."""
        parts = [dpotrs(factor, x[i:j])[0] for factor, i, j in self.factors]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def step(self, products: Floats) -> Floats:
        """The step to where the linear equations hold and (y z, s v) equal these products."""
        at, n = self.at, self.at.y.size
        wanted = self.infeasibility.copy()
        dz, ds = products[:n] / at.y - at.z, products[n:] / at.v - at.s
        wanted[self.equal :] -= ds
        free = self.solve_blocks(self.stationarity + dz)
        duals = self.solve_schur(self.rows @ free - wanted)
        dy, dv = free - self.inner @ duals, duals[self.equal :]
        ds, dz = ds - at.s * dv / at.v, dz - at.z * dy / at.y
        return np.concatenate([dy, ds, dz, dv, duals[: self.equal]])


def predict_and_correct(system: KktSystem) -> Floats:
    """Mehrotra's predictor-corrector step; if that is too short, a centring step."""
    at, h = system.at, system.at.primal.size
    gap = at.complementarity()
    guess = system.step(np.zeros(h))
    after = at.plus(min(1.0, at.max_step(guess)) * guess).complementarity()
    target = (after / gap) ** 3 * gap / h
    step = system.step(target - guess[:h] * guess[h : 2 * h])
    return step if at.max_step(step) >= 0.1 else system.step(np.full(h, gap / h))


def make_starting_point(program: QuadraticProgram, inside: Floats, away: float) -> PrimalDualPoint:
    """A starting point this far, in mean coordinates, from an interior y.

    Away from the boundary y, s, z and v all have the right size, and the equations need not hold
    yet. In a very thin set the method must start inside (away = 0).
    """
    size = float(inside.mean())
    y = inside + away * size
    s = program.b - program.A @ y
    s = np.maximum(s, away * size * np.abs(program.A).max(axis=1, initial=0.0))
    mu = size * (float(np.ptp(program.c - program.multiply_blocks(inside))) or 1.0)
    x = np.concatenate([y, s, mu / y, mu / s, np.zeros(len(program.e))])
    return PrimalDualPoint(x, y.size, s.size)


def solve_quadratic_program(
    program: QuadraticProgram,
    inside: Floats,
    away: float = 1.0,
    precision: float = 0.0,
    steps: int = 60,
) -> PrimalDualPoint:
    """The optimal y with its duals, given a y that has room everywhere.

    Precision is a difference of values; with 0 the method goes as far as numbers allow. A model
    that distinguishes slopes of 1e-9 has values that differ by 1e-18.

    >>> row = np.ones((1, 2))
    >>> c, e = np.array([1.0, 0.5]), row[0, :1]
    >>> ends = QuadraticProgram([np.eye(2)], c, row, e, row[:0], row[0, :0])
    >>> solve_quadratic_program(ends, np.array([0.5, 0.5])).y.round(9)
    array([0.75, 0.25])
    """
    at = make_starting_point(program, inside, away)
    rows, unit = np.concatenate([program.E, program.A]), at.complementarity()
    gap, off = max(1e-18 * unit, precision), max(1e-12 * unit, precision)
    for _ in range(steps):
        system = KktSystem(program, rows, at)
        stationarity, infeasibility = system.residuals()
        if at.complementarity() <= gap and stationarity <= off and infeasibility <= 1e-15:
            break
        if not system.factor(program.blocks):
            break
        step = predict_and_correct(system)
        at = at.plus(min(1.0, 0.995 * at.max_step(step)) * step)
    return at
