"""A dense primal-dual interior-point method for the concave quadratic models of Newton's method.

Owns the linear algebra of one quadratic program; `newton` builds the programs. LAPACK factors the
blocks. The rest is compiled: in small programs the calls of NumPy would take longer than the work.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf  # the wrapper takes longer than the work

from bylot.numerics.jit import Floats, Ints, jit, jit_entry
from bylot.numerics.simd import add_multiple, dot_product

MAX_INTERIOR_STEPS = 60
ROW_RIDGE = 1e-14  # relative to the diagonal of the rows' system


class QuadraticProgram(NamedTuple):
    """maximise c.y - y.B.y / 2 over y >= 0 with A y <= b and E y = e.

    B is block-diagonal and positive definite: `blocks` has the numbers of its blocks, one after the
    other, and `sizes` their sizes. The rows are [A; E] and `ends` is (b, e); E has full row rank.
    All arrays are in C order.
    """

    blocks: Floats
    sizes: Ints
    c: Floats
    rows: Floats
    ends: Floats
    limits: int  # how many of the rows are A


class PrimalDualPoint(NamedTuple):
    """An iterate x = (y, s, z, v, u) in one array: y, the slack s > 0 of A y <= b, their duals z
    and v, and the multipliers u of the equations. So the two halves of the first four are the
    factors of the products y z and s v, and (v, u) are the multipliers of all rows.
    """

    y: Floats
    s: Floats
    z: Floats
    v: Floats
    u: Floats

    @classmethod
    def of(cls, x: Floats, n: int, m: int) -> "PrimalDualPoint":
        h = n + m
        return cls(x[:n], x[n:h], x[h : h + n], x[h + n : 2 * h], x[2 * h :])


class KktSystem(NamedTuple):
    """The optimality conditions, linearised at a point x and factored:

    c - B y - A'v - E'u + z = 0,   A y + s = b,   E y = e,   y z = 0,   s v = 0.

    Eliminating dz and ds, then dy, leaves a small system for the multipliers of the rows.
    """

    program: QuadraticProgram
    x: Floats
    residuals: Floats  # of the first three equations
    roots: Floats  # of the blocks, B + Z/Y = U'U
    W: Floats  # the rows times U^-1
    schur: Floats  # W W', and s/v on the diagonal
    schur_root: Floats
    order: Ints  # (1,), of the Schur complement


@jit
def subtract_bend(slope: Floats, program: QuadraticProgram, y: Floats) -> None:
    """Subtract B y."""
    first, start = 0, 0
    for size in program.sizes:
        for i in range(first, first + size):
            row = program.blocks[start : start + size]
            slope[i] -= dot_product(row, y[first : first + size])
            start += size
        first += size


@jit_entry
def fill_first_point(
    program: QuadraticProgram,
    x: Floats,
    residuals: Floats,
    filled: Floats,
    inside: Floats,
    away: float,
) -> float:
    """Write the first point x, where y z and s v are all the same, and linearise there.

    Returns the sum of these products.
    """
    n, m, size, low, high = inside.size, program.limits, 0.0, np.inf, -np.inf
    for i in range(n):
        size += inside[i] / n
        residuals[i] = program.c[i]
    subtract_bend(residuals, program, inside)
    for i in range(n):
        x[i] = inside[i] + away * size
        low, high = min(low, residuals[i]), max(high, residuals[i])
    for j in range(m):
        row, most = program.rows[j], 0.0
        for i in range(n):
            most = max(most, abs(row[i]))
        x[n + j] = max(program.ends[j] - dot_product(row, x[:n]), away * size * most)
    product = size * (high - low if high > low else 1.0)
    for i in range(n + m):
        x[n + m + i] = product / x[i]
    for i in range(2 * (n + m), x.size):
        x[i] = 0.0
    linearise(program, x, residuals, filled, 0.0, 0.0)
    return product * (n + m)


@jit
def linearise(
    program: QuadraticProgram, x: Floats, residuals: Floats, filled: Floats, gap: float, off: float
) -> bool:
    """Write the residuals at x and B + Z/Y; returns whether x is optimal up to gap and off."""
    n, m, first, start = program.c.size, program.limits, 0, 0
    h, y = n + m, x[:n]
    for k in range(filled.size):
        filled[k] = program.blocks[k]
    for size in program.sizes:
        for i in range(first, first + size):
            residuals[i] = program.c[i] + x[h + i]
            filled[start + i - first] += x[h + i] / y[i]
            start += size
        first += size
    subtract_bend(residuals, program, y)
    infeasible, steep = 0.0, 0.0
    for j in range(program.ends.size):
        row = program.rows[j]
        residuals[n + j] = program.ends[j] - dot_product(row, y) - (x[n + j] if j < m else 0.0)
        infeasible = max(infeasible, abs(residuals[n + j]))
        add_multiple(residuals[:n], -x[h + n + j], row)
    for i in range(n):
        steep = max(steep, abs(residuals[i]))
    return dot_product(x[:h], x[h : 2 * h]) <= gap and steep <= off and infeasible <= 1e-15


@jit_entry
def take_interior_step(
    program: QuadraticProgram, x: Floats, residuals: Floats, roots: Floats, gap: float, off: float
) -> bool:
    """Move x by Mehrotra's predictor-corrector step; if that is too short, by a centring step.

    roots: the Cholesky factors U of B + Z/Y, whose upper triangles by rows are read; they are
    replaced by B + Z/Y at the new x. Returns whether that is optimal.
    """
    n, d = program.c.size, program.ends.size
    h, order = n + program.limits, np.empty(1, np.int64)
    W, schur, schur_root, order[0] = np.empty((d, n)), np.zeros((d, d)), np.empty(d * d), d
    system = KktSystem(program, x, residuals, roots, W, schur, schur_root, order)
    fill_schur(system)
    factor_schur(schur_root, schur)
    step, before = np.zeros(x.size), dot_product(x[:h], x[h : 2 * h])
    fill_step(step, 0.0, system)
    far, after = min(1.0, find_max_step(x, step, h)), 0.0
    for i in range(h):
        after += (x[i] + far * step[i]) * (x[h + i] + far * step[h + i])
    fill_step(step, (after / before) ** 3 * before / h, system)
    if find_max_step(x, step, h) < 0.1:
        for i in range(2 * h):
            step[i] = 0.0
        fill_step(step, before / h, system)
    add_multiple(x, min(1.0, 0.995 * find_max_step(x, step, h)), step)
    return linearise(program, x, residuals, roots, gap, off)


@jit
def find_max_step(x: Floats, step: Floats, h: int) -> float:
    """The largest multiple of the step that keeps y, s, z and v non-negative; maybe inf."""
    fall = 0.0
    for i in range(2 * h):
        fall = max(fall, -step[i] / x[i])
    return 1.0 / fall if fall > 0.0 else np.inf


@jit
def fill_step(step: Floats, target: float, system: KktSystem) -> None:
    """Replace `step` by the step after which the linear equations hold and each product y z or s v
    is the target, less the product of the changes in the old `step`: zeros, or the predictor for
    Mehrotra's correction.
    """
    program, x, residuals, W = system.program, system.x, system.residuals, system.W
    n, d, m = program.c.size, program.ends.size, program.limits
    h, dy, wanted, change = n + m, np.empty(n), np.empty(d), np.empty(d)
    for i in range(n):
        step[h + i] = (target - step[i] * step[h + i]) / x[i] - x[h + i]
        dy[i] = residuals[i] + step[h + i]
    for i in range(n, h):
        step[i] = (target - step[i] * step[h + i]) / x[h + i] - x[i]
    solve_transposed(dy, system.roots, program.sizes)
    duals = step[h + n :]
    for j in range(d):
        wanted[j] = dot_product(W[j], dy) - residuals[n + j] + (step[n + j] if j < m else 0.0)
        duals[j] = 0.0
    for _ in range(2):  # iterative refinement removes the ridge
        for j in range(d):
            change[j] = wanted[j] - dot_product(system.schur[j], duals)
        solve_transposed(change, system.schur_root, system.order)
        solve_upper(change, system.schur_root, system.order)
        for j in range(d):
            duals[j] += change[j]
    for j in range(d):
        add_multiple(dy, -duals[j], W[j])
    solve_upper(dy, system.roots, program.sizes)
    for i in range(n):
        step[i] = dy[i]
        step[h + i] -= x[h + i] * dy[i] / x[i]
    for j in range(m):
        step[n + j] -= x[n + j] * duals[j] / x[h + n + j]


@jit
def solve_transposed(y: Floats, roots: Floats, sizes: Ints) -> None:
    """y becomes U'^-1 y, where U has these upper triangles on its diagonal."""
    first, start = 0, 0
    for size in sizes:
        part = y[first : first + size]
        for k in range(size):
            row = roots[start : start + size]
            part[k] /= row[k]
            add_multiple(part[k + 1 :], -part[k], row[k + 1 :])
            start += size
        first += size


@jit
def solve_upper(y: Floats, roots: Floats, sizes: Ints) -> None:
    """y becomes U^-1 y."""
    last, end = y.size, roots.size
    for b in range(sizes.size - 1, -1, -1):
        size = sizes[b]
        part = y[last - size : last]
        for k in range(size - 1, -1, -1):
            row = roots[end - size : end]
            part[k] = (part[k] - dot_product(row[k + 1 :], part[k + 1 :])) / row[k]
            end -= size
        last -= size


@jit
def fill_schur(system: KktSystem) -> None:
    """Write W and the Schur complement. Most rows have no entries in most of many blocks."""
    (rows, sizes), W, schur = (system.program.rows, system.program.sizes), system.W, system.schur
    n, d, m, first, start = W.shape[1], W.shape[0], system.program.limits, 0, 0
    used = np.empty(d, np.int64)
    for b in range(sizes.size):
        last, end, count = first + sizes[b], start + sizes[b] * sizes[b], 0
        for j in range(d):
            part, has_entries = W[j, first:last], False
            for i in range(part.size):
                part[i] = rows[j, first + i]
                has_entries |= part[i] != 0.0
            if has_entries:
                used[count] = j
                count += 1
                solve_transposed(part, system.roots[start:end], sizes[b : b + 1])
                for k in range(count):
                    schur[j, used[k]] += dot_product(part, W[used[k], first:last])
        first, start = last, end
    for j in range(d):
        if j < m:
            schur[j, j] += system.x[n + j] / system.x[n + m + n + j]
        for k in range(j):
            schur[k, j] = schur[j, k]


@jit
def factor_schur(root: Floats, S: Floats) -> None:
    """Write U of S = U'U. Rows that bind together make S singular in the limit, hence a ridge, and
    a pivot that is not positive, by rounding, stops the step in that direction.
    """
    d = len(S)
    for k in range(d):
        row = root[k * d : (k + 1) * d]
        for i in range(d):
            row[i] = S[k, i]
        row[k] += ROW_RIDGE * row[k]
    for k in range(d):
        row = root[k * d : (k + 1) * d]
        row[k] = np.sqrt(row[k]) if row[k] > 0.0 else np.inf
        for i in range(k + 1, d):
            row[i] /= row[k]
        for i in range(k + 1, d):
            add_multiple(root[i * d + i : (i + 1) * d], -row[i], row[i:])


def solve_quadratic_program(
    program: QuadraticProgram, inside: Floats, away: float = 1.0, precision: float = 0.0
) -> PrimalDualPoint:
    """The optimal y with its duals, given a y that has room everywhere; the last one reached if a
    factorisation fails, or after `MAX_INTERIOR_STEPS`: check that it is feasible.

    The method starts `away` mean coordinates from there: away from the boundary y, s, z and v all
    have the right size, and the equations need not hold yet. In a very thin set it must start
    inside (away = 0). Precision is a difference of values; with 0 the method goes as far as
    numbers allow. A model that distinguishes slopes of 1e-9 has values that differ by 1e-18.

    >>> row, sizes = np.ones((1, 2)), np.array([2])
    >>> ends = QuadraticProgram(np.eye(2).ravel(), sizes, np.array([1.0, 0.5]), row, row[0, :1], 0)
    >>> solve_quadratic_program(ends, np.array([0.5, 0.5])).y.round(9)
    array([0.75, 0.25])
    """
    n, m, d = inside.size, program.limits, len(program.ends)
    x, residuals, filled = np.empty(2 * n + m + d), np.empty(n + d), np.empty_like(program.blocks)
    unit = fill_first_point(program, x, residuals, filled, inside, away)
    gap, off = max(1e-18 * unit, precision), max(1e-12 * unit, precision)
    blocks, start = [], 0
    for k in program.sizes.tolist():
        block = filled[start : start + k * k].reshape(k, k)
        blocks.append(block.T)  # by columns, so that dpotrf factors it in place
        start += k * k
    for _ in range(MAX_INTERIOR_STEPS):
        if any(dpotrf(block, lower=True, clean=False, overwrite_a=True)[1] for block in blocks):
            break
        if take_interior_step(program, x, residuals, filled, gap, off):
            break
    return PrimalDualPoint.of(x, n, m)
