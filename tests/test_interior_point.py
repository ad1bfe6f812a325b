"""The interior-point method against plain solvers, and the faces of thin polytopes."""

from typing import NamedTuple

import numpy as np
import pytest
import quadprog
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import block_diag

from bylot.numerics.jit import Floats
from bylot.optima.interior_point import (
    PrimalDualPoint,
    QuadraticProgram,
    linearise,
    solve_quadratic_program,
    take_interior_step,
)
from bylot.optima.newton import CertifiedMaximum, ConcaveProgram
from bylot.optima.polytope import Polytope


class PlainProgram(NamedTuple):
    """The same program as dense matrices: blocks, c, A y <= b and E y = e."""

    blocks: list[Floats]
    c: Floats
    A: Floats
    b: Floats
    E: Floats
    e: Floats

    def compile(self) -> QuadraticProgram:
        sizes, flat = [len(B) for B in self.blocks], [B.ravel() for B in self.blocks]
        rows, ends = np.concatenate([self.A, self.E]), np.concatenate([self.b, self.e])
        return QuadraticProgram(
            np.concatenate(flat), np.array(sizes), self.c, rows, ends, len(self.b)
        )

    def residuals(self, at: PrimalDualPoint) -> Floats:
        """What is left of the optimality conditions, slopes in units of the largest."""
        B, (y, s, z, v, u) = block_diag(*self.blocks), at
        stationarity = self.c - B @ y - v @ self.A - u @ self.E + z
        feasibility = [self.A @ y + s - self.b, self.E @ y - self.e]
        unit = np.abs(self.c).max()
        return np.concatenate([stationarity / unit, *feasibility, y * z / unit, s * v / unit])

    def step(self, at: PrimalDualPoint, products: Floats) -> Floats:
        """Newton's step to where (y z, s v) are these products, by one dense linear system."""
        (y, s, z, v, u), m, r = at, len(self.b), len(self.e)
        B, n, A, E = block_diag(*self.blocks), y.size, self.A, self.E
        jacobian = np.zeros((2 * (n + m) + r,) * 2)
        jacobian[:n] = np.block([-B, np.zeros((n, m)), np.eye(n), -A.T, -E.T])
        jacobian[n : n + m, : n + m] = np.block([A, np.eye(m)])
        jacobian[n + m : n + m + r, :n] = E
        jacobian[n + m + r :, : 2 * (n + m)] = np.block(
            [np.diag(np.append(z, v)), np.diag(np.append(y, s))]
        )
        left = [self.c - B @ y - v @ A - u @ E + z, A @ y + s - self.b, E @ y - self.e]
        return np.linalg.solve(
            jacobian, -np.concatenate([*left, np.append(y * z, s * v) - products])
        )

    def advance(self, x: Floats) -> Floats:
        """The point after a predictor-corrector step, or a centring step if that is too short."""
        n, m = self.c.size, len(self.b)
        h, at = n + m, PrimalDualPoint.of(x, n, m)

        def reach(step: Floats) -> float:
            fall = (-step / x)[: 2 * h].max()
            return float(1.0 / fall) if fall > 0.0 else np.inf

        gap = x[:h] @ x[h : 2 * h]
        guess = self.step(at, np.zeros(h))
        there = x + min(1.0, reach(guess)) * guess
        target = (there[:h] @ there[h : 2 * h] / gap) ** 3 * gap / h
        step = self.step(at, target - guess[:h] * guess[h : 2 * h])
        if reach(step) < 0.1:
            step = self.step(at, np.full(h, gap / h))
        return np.asarray(x + min(1.0, 0.995 * reach(step)) * step)


def make_program(seed: int, blocks: int, m: int, rows: str) -> tuple[PlainProgram, Floats]:
    """A random program whose blocks are singular but for a ridge, and a point inside."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 15, blocks)
    roots = [rng.standard_normal((k, (k + 1) // 2)) for k in sizes]
    B = [root @ root.T + 10.0 ** rng.uniform(-9, 0) * np.eye(len(root)) for root in roots]
    E = block_diag(*(np.ones((1, k)) for k in sizes))
    n, room = E.shape[1], 0.1 * rng.random(m)
    inside, A = 0.01 + rng.random(n), rng.random((m, n))
    if rows == "equal":
        A[1:], room[1:] = A[:1], room[:1]
    elif rows == "sparse":
        A[rng.random(A.shape) < 0.7] = 0.0
    elif rows == "dependent" and m > 1:
        A[-1], room[-1] = A[:-1].sum(axis=0), room[:-1].sum()
    c = rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 3)
    return PlainProgram(B, c, A, A @ inside + room, E, E @ inside), inside


PROGRAMS = (
    *(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 5)),
    st.sampled_from(["general", "equal", "sparse", "dependent"]),
)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(*PROGRAMS)
def test_a_solution_satisfies_the_optimality_conditions(
    seed: int, blocks: int, m: int, rows: str
) -> None:
    plain, inside = make_program(seed, blocks, m, rows)
    found = solve_quadratic_program(plain.compile(), inside)
    assert min(part.min(initial=1.0) for part in found[:4]) >= 0.0
    assert np.abs(plain.residuals(found)).max() <= 1e-11
    for part in found[:4]:  # another point does not
        if part.size:
            kept, part[0] = part[0], part[0] + 1e-6 * max(1.0, np.abs(plain.c).max())
            assert np.abs(plain.residuals(found)).max() > 1e-11
            part[0] = kept


@settings(deadline=None, derandomize=True, max_examples=60)
@given(*PROGRAMS)
def test_a_compiled_step_is_that_of_dense_linear_algebra(
    seed: int, blocks: int, m: int, rows: str
) -> None:
    plain, inside = make_program(seed, blocks, m, rows)
    program, rng = plain.compile(), np.random.default_rng(seed)
    n, d = inside.size, program.ends.size
    x = 10.0 ** rng.uniform(-1, 1, 2 * n + m + d)  # a third of the steps are too short
    residuals, filled = np.empty(n + d), np.empty_like(program.blocks)
    assert not linearise(program, x, residuals, filled, 0.0, 0.0)
    parts = np.split(filled, np.cumsum(program.sizes**2)[:-1])
    matrices = [part.reshape(k, k) for part, k in zip(parts, program.sizes, strict=True)]
    roots = np.concatenate([np.linalg.cholesky(M, upper=True).ravel() for M in matrices])
    expected = plain.advance(x)
    assert not take_interior_step(program, x, residuals, roots, 0.0, 0.0)
    assert_allclose(x, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 20), st.integers(0, 4), st.floats(-6, 2))
def test_interior_point_agrees_with_an_active_set_method(
    seed: int, n: int, m: int, flat: float
) -> None:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, max(1, n // 2)))
    B = root @ root.T + 10.0**flat * np.eye(n)  # singular but for the ridge
    c, A, inside = rng.standard_normal(n), rng.random((m, n)), rng.dirichlet(np.ones(n))
    b, E = A @ inside + 0.1 * rng.random(m), np.ones((1, n))
    program = PlainProgram([B], c, A, b, E, np.ones(1)).compile()
    y = solve_quadratic_program(program, inside).y
    rows = np.vstack([E, -A, np.eye(n)])
    ends = np.concatenate([[1.0], -b, np.zeros(n)])
    best = quadprog.solve_qp(B, c, rows.T, ends, meq=1)[0]

    def objective(y: Floats) -> float:
        return float(c @ y - y @ B @ y / 2)

    assert_allclose(y.sum(), 1.0, rtol=1e-13)
    assert y.min() >= 0.0
    assert (A @ y <= b + 1e-13).all()
    assert objective(y) >= objective(best) - 1e-9


def test_block_diagonal_and_full_matrices_give_the_same_solution() -> None:
    rng = np.random.default_rng(0)
    blocks = [root @ root.T + 0.1 * np.eye(4) for root in rng.standard_normal((2, 4, 4))]
    c, E, A = rng.standard_normal(8), np.repeat(np.eye(2), 4, axis=1), rng.random((1, 8))
    inside = np.full(8, 0.25)
    rest = (c, A, A @ inside + 0.05, E, np.ones(2))
    one, other = (
        solve_quadratic_program(PlainProgram(B, *rest).compile(), inside).y
        for B in (blocks, [block_diag(*blocks)])
    )
    assert_allclose(one, other, atol=1e-12)


def simplex(K: int, rows: list[list[float]], bounds: list[float], floor: float = 0.0) -> Polytope:
    return Polytope((1, K), floor, np.array(rows).reshape(-1, K), np.array(bounds))


def test_a_face_lists_pinned_variables_and_tight_rows() -> None:
    polytope = simplex(3, [[-1.0, -1.0, 0.0], [1.0, 0.0, 0.0]], [-1.0, 0.5])
    face = polytope.face
    assert face is not None
    assert list(face.pinned) == [False, False, True]
    assert list(face.tight) == [True, False]
    assert polytope.contains(face.centre, 1e-15)
    assert 0.0 < face.centre[0, 0] < 0.5


def test_an_empty_polytope_has_no_face() -> None:
    assert simplex(3, [[1.0, 1.0, 1.0]], [0.999_999]).face is None
    assert simplex(3, [[-1.0, 0.0, 0.0]], [-0.8], floor=0.2).face is None


def test_rounding_does_not_empty_a_polytope() -> None:
    assert simplex(3, [[1.0, 1.0, 1.0]], [1.0 - 1e-16]).face is not None
    assert simplex(3, [[-1.0, 0.0, 0.0]], [-(1 - 2 * 0.1)], floor=0.1).face is not None


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_certificate_does_not_depend_on_the_unit_of_a_row(scale: float) -> None:
    rows, slope = np.array([[0.2, 0.9, 0.4]]), np.array([[0.1, 1.0, 0.3]])
    q = np.full((1, 3), 1 / 3)
    gap, prices = Polytope((1, 3), 0.01, scale * rows, scale * np.array([0.5])).certify(q, slope)
    plain = Polytope((1, 3), 0.01, rows, np.array([0.5])).certify(q, slope)
    assert_allclose(gap, plain.gap, rtol=1e-9)
    assert_allclose(scale * prices, plain.prices, rtol=1e-9)


def test_any_prices_prove_a_gap_and_the_dual_solution_the_smallest() -> None:
    polytope, slope = simplex(3, [[0.2, 0.9, 0.4]], [0.5]), np.array([[0.1, 1.0, 0.3]])
    q = np.full((1, 3), 1 / 3)
    best = polytope.certify(q, slope)
    for price in (0.0, 0.5, 2.0):
        assert polytope.certify(q, slope, np.array([price])).gap >= best.gap - 1e-12
    assert polytope.certify(q, slope, best.prices).gap == best.gap


def test_equal_shares_with_enough_room_are_the_centre_of_the_face() -> None:
    for bound, equal in ((0.5, True), (1 / 3, False)):
        face = simplex(3, [[1.0, 0.0, 0.0]], [bound]).face
        assert face is not None
        assert not face.tight.any()
        assert bool(np.ptp(face.centre) == 0.0) is equal


class Parabola:
    """-|q - aim|^2 / 2, whose maximum is known; its curvature may be reported wrongly."""

    def __init__(self, aim: Floats, reported: float = 1.0) -> None:
        self.aim, self.reported = aim, reported

    def slope(self, q: Floats) -> tuple[float, Floats]:
        return -float(((q - self.aim) ** 2).sum()) / 2, self.aim - q

    def curvature(self, q: Floats) -> Floats:
        return -self.reported * np.eye(q.shape[1])[None]


@pytest.mark.parametrize("reported", [1e-6, 0.1, 0.9, 1.0, 1.1, 10.0, 1e6])
def test_newton_reaches_the_maximum_despite_a_wrong_curvature(reported: float) -> None:
    aim = np.array([[0.6, 0.5, 0.1, -0.2]])
    polytope, start = simplex(4, [[1, 0, 0, 0]], [0.45]), np.full((1, 4), 0.25)
    program = ConcaveProgram(Parabola(aim), polytope, 1e-12)
    best = program.maximise_by_newton(start, proxy=Parabola(aim, reported))
    assert_allclose(best.q, [[0.45, 0.475, 0.075, 0.0]], atol=1e-6)
    assert_allclose(best.prices, [0.125], atol=1e-6)  # by the slopes 0.15 and 0.025 there
    assert best.gap <= 1e-12
    assert best.steps <= 4 or reported != 1.0


def test_simplicial_decomposition_finds_the_maximum() -> None:
    parabola = Parabola(np.array([[0.6, 0.5, 0.1, -0.2]]))
    program = ConcaveProgram(parabola, simplex(4, [[1, 0, 0, 0]], [0.45]), 1e-10)
    start = np.array([[0.0, 0.0, 0.0, 1.0]])
    best = program.maximise_over_vertices(
        CertifiedMaximum(start, 0.0, np.inf, np.zeros(1), steps=0)
    )
    assert_allclose(best.q, [[0.45, 0.475, 0.075, 0.0]], atol=1e-6)
    assert best.gap <= 1e-10
