"""The interior-point method against an active-set solver, and the faces of thin polytopes."""

import numpy as np
import pytest
import quadprog
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from bylot.numerics.jit import Floats
from bylot.optima.interior_point import QuadraticProgram, solve_quadratic_program
from bylot.optima.newton import CertifiedMaximum, ConcaveProgram
from bylot.optima.polytope import Polytope


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
    y = solve_quadratic_program(QuadraticProgram([B], c, E, np.ones(1), A, b), inside).y
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
    roots = rng.standard_normal((2, 4, 4))
    blocks = [root @ root.T + 0.1 * np.eye(4) for root in roots]
    whole = np.block([[blocks[0], np.zeros((4, 4))], [np.zeros((4, 4)), blocks[1]]])
    c, E, A = rng.standard_normal(8), np.repeat(np.eye(2), 4, axis=1), rng.random((1, 8))
    inside = np.full(8, 0.25)
    rest = (c, E, np.ones(2), A, A @ inside + 0.05)
    one, other = (
        solve_quadratic_program(QuadraticProgram(B, *rest), inside).y for B in (blocks, [whole])
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
