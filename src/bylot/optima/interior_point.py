"""A dense primal-dual interior-point method for the concave quadratic models of Newton's method.

Owns the linear algebra of one quadratic program; `newton` builds the programs.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs, dpotrf, dpotrs  # wrappers take longer than the work

from bylot.numerics.jit import Floats

MAX_INTERIOR_STEPS = 60


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

    def factor(self, blocks: Sequence[Floats]) -> bool:
        """Factor B + Z/Y by Cholesky and the Schur complement of the rows; False if that fails."""
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

    def solve_blocks(self, x: Floats) -> Floats:
        """(B + Z/Y)^-1 x, block by block."""
        parts = [dpotrs(factor, x[i:j])[0] for factor, i, j in self.factors]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def predict_and_correct(self) -> Floats:
        """Mehrotra's predictor-corrector step; if that is too short, a centring step."""
        at, h, gap = self.at, self.at.primal.size, self.at.complementarity()
        guess = self.step(np.zeros(h))
        after = at.plus(min(1.0, at.max_step(guess)) * guess).complementarity()
        target = (after / gap) ** 3 * gap / h
        step = self.step(target - guess[:h] * guess[h : 2 * h])
        return step if at.max_step(step) >= 0.1 else self.step(np.full(h, gap / h))

    def step(self, products: Floats) -> Floats:
        """The step to where the linear equations hold and (y z, s v) equal these products."""
        at, n = self.at, self.at.y.size
        wanted = self.infeasibility.copy()
        dz, ds = products[:n] / at.y - at.z, products[n:] / at.v - at.s
        wanted[self.equal :] -= ds
        free = self.solve_blocks(self.stationarity + dz)
        wanted = self.rows @ free - wanted
        duals: Floats = self.scale * dgetrs(*self.ridged, self.scale * wanted)[0]
        wanted -= self.schur @ duals  # one step of iterative refinement removes the ridge
        duals += self.scale * dgetrs(*self.ridged, self.scale * wanted)[0]
        dy, dv = free - self.inner @ duals, duals[self.equal :]
        ds, dz = ds - at.s * dv / at.v, dz - at.z * dy / at.y
        return np.concatenate([dy, ds, dz, dv, duals[: self.equal]])


def solve_quadratic_program(
    program: QuadraticProgram, inside: Floats, away: float = 1.0, precision: float = 0.0
) -> PrimalDualPoint:
    """The optimal y with its duals, given a y that has room everywhere.

    The method starts `away` mean coordinates from there: away from the boundary y, s, z and v all
    have the right size, and the equations need not hold yet. In a very thin set it must start
    inside (away = 0). Precision is a difference of values; with 0 the method goes as far as
    numbers allow. A model that distinguishes slopes of 1e-9 has values that differ by 1e-18.

    >>> row = np.ones((1, 2))
    >>> c, e = np.array([1.0, 0.5]), row[0, :1]
    >>> ends = QuadraticProgram([np.eye(2)], c, row, e, row[:0], row[0, :0])
    >>> solve_quadratic_program(ends, np.array([0.5, 0.5])).y.round(9)
    array([0.75, 0.25])
    """
    size = float(inside.mean())
    y = inside + away * size
    s = program.b - program.A @ y
    s = np.maximum(s, away * size * np.abs(program.A).max(axis=1, initial=0.0))
    mu = size * (float(np.ptp(program.c - program.multiply_blocks(inside))) or 1.0)
    x = np.concatenate([y, s, mu / y, mu / s, np.zeros(len(program.e))])
    at, rows = PrimalDualPoint(x, y.size, s.size), np.concatenate([program.E, program.A])
    unit = at.complementarity()
    gap, off = max(1e-18 * unit, precision), max(1e-12 * unit, precision)
    for _ in range(MAX_INTERIOR_STEPS):
        system = KktSystem(program, rows, at)
        stationary = np.abs(system.stationarity).max() <= off
        feasible = np.abs(system.infeasibility).max() <= 1e-15
        if at.complementarity() <= gap and stationary and feasible:
            break
        if not system.factor(program.blocks):
            break
        step = system.predict_and_correct()
        at = at.plus(min(1.0, 0.995 * at.max_step(step)) * step)
    return at
