"""Newton's method and its quadratic models against a plain solver, and polytopes that are thin."""

import numpy as np
import pytest
import quadprog
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import block_diag

from bylot.numerics.jit import Floats
from bylot.optima.newton import ConcaveProgram
from bylot.optima.polytope import Polytope


def make_curvature(rng: np.random.Generator, blocks: int, size: int) -> Floats:
    """Random blocks that are singular but for a ridge."""
    roots = rng.standard_normal((blocks, size, (size + 1) // 2))
    ridges = 10.0 ** rng.uniform(-9, 0, blocks)
    return roots @ roots.transpose(0, 2, 1) + ridges[:, None, None] * np.eye(size)


def make_rows(rng: np.random.Generator, m: int, n: int, kind: str) -> tuple[Floats, Floats]:
    """Rows of a polytope, which may depend on one another, and their bounds at equal shares."""
    rows, room = rng.random((m, n)), 0.1 * rng.random(m)
    if kind == "equal":
        rows[1:], room[1:] = rows[:1], room[:1]
    elif kind == "sparse":
        rows[rng.random(rows.shape) < 0.7] = 0.0
    elif kind == "dependent" and m > 1:
        rows[-1], room[-1] = rows[:-1].sum(axis=0), room[:-1].sum()
    elif kind == "meeting" and m > 1:
        rows[1], room[:2] = -rows[0], 0.0
    return rows, room


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.integers(2, 15),
    st.integers(0, 5),
    st.sampled_from(["general", "equal", "sparse", "dependent", "meeting"]),
)
def test_the_maximum_of_a_quadratic_satisfies_the_optimality_conditions(
    seed: int, blocks: int, size: int, m: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    B, shape = make_curvature(rng, blocks, size), (blocks, size)
    c = rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3)
    rows, room = make_rows(rng, m, blocks * size, kind)
    polytope = Polytope(shape, 0.0, rows, rows.sum(axis=1) / size + room)
    best = polytope.maximise_quadratic(B, c)
    assert best is not None
    assert polytope.contains(best.x, 1e-11)
    assert best.prices.min(initial=0.0) >= 0.0
    slope = c - (B @ best.x[:, :, None])[:, :, 0]
    unit = max(np.ptp(c), np.abs(B).max())
    assert polytope.certify(best.x, slope, best.prices).gap <= 1e-10 * unit
    elsewhere = polytope.find_nearest(rng.dirichlet(np.ones(size), blocks))
    assert elsewhere is not None
    if np.abs(elsewhere - best.x).max() > 1e-3:  # the conditions do not hold at another point
        slope = c - (B @ elsewhere[:, :, None])[:, :, 0]
        assert polytope.certify(elsewhere, slope).gap > 1e-10 * unit


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 20), st.integers(0, 4), st.floats(-6, 2))
def test_the_maximum_of_a_quadratic_agrees_with_an_active_set_method(
    seed: int, n: int, m: int, flat: float
) -> None:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, max(1, n // 2)))
    B = root @ root.T + 10.0**flat * np.eye(n)  # singular but for the ridge
    c, A, inside = rng.standard_normal(n), rng.random((m, n)), rng.dirichlet(np.ones(n))
    b = A @ inside + 0.1 * rng.random(m)
    found = Polytope((1, n), 0.0, A, b).maximise_quadratic(B[None], c[None])
    assert found is not None
    y = found.x[0]
    rows = np.vstack([np.ones((1, n)), -A, np.eye(n)])
    ends = np.concatenate([[1.0], -b, np.zeros(n)])
    best = quadprog.solve_qp(B, c, rows.T, ends, meq=1)[0]

    def objective(y: Floats) -> float:
        return float(c @ y - y @ B @ y / 2)

    assert_allclose(y.sum(), 1.0, rtol=1e-13)
    assert y.min() >= 0.0
    assert (A @ y <= b + 1e-11).all()
    assert objective(y) >= objective(best) - 1e-9


def test_blocks_without_a_common_row_are_maximised_alone() -> None:
    rng = np.random.default_rng(0)
    B, c = make_curvature(rng, 2, 4), rng.standard_normal((2, 4))
    row = rng.random(4)
    each = [Polytope((1, 4), 0.0, row[None], np.array([row.mean()])) for _ in B]
    both = Polytope((2, 4), 0.0, block_diag(row, row), np.full(2, row.mean()))
    together = both.maximise_quadratic(B, c)
    assert together is not None
    for x in range(2):
        alone = each[x].maximise_quadratic(B[x : x + 1], c[x : x + 1])
        assert alone is not None
        assert_allclose(together.x[x], alone.x[0], atol=1e-6)


def simplex(K: int, rows: list[list[float]], bounds: list[float], floor: float = 0.0) -> Polytope:
    return Polytope((1, K), floor, np.array(rows).reshape(-1, K), np.array(bounds))


def test_a_polytope_without_an_interior_has_a_feasible_policy() -> None:
    polytope = simplex(3, [[-1.0, -1.0, 0.0], [1.0, 0.0, 0.0]], [-1.0, 0.4])
    policy = polytope.feasible
    assert policy is not None
    assert polytope.contains(policy, 1e-12)
    assert_allclose(policy, [[0.4, 0.6, 0.0]], atol=1e-6)  # the nearest to equal shares


def test_an_empty_polytope_has_no_policy() -> None:
    assert simplex(3, [[1.0, 1.0, 1.0]], [0.999_999]).feasible is None
    assert simplex(3, [[-1.0, 0.0, 0.0]], [-0.8], floor=0.2).feasible is None


def test_rounding_does_not_empty_a_polytope() -> None:
    assert simplex(3, [[1.0, 1.0, 1.0]], [1.0 - 1e-16]).feasible is not None
    assert simplex(3, [[-1.0, 0.0, 0.0]], [-(1 - 2 * 0.1)], floor=0.1).feasible is not None


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


class Parabola:
    """-|q - aim|^2 / 2, whose maximum is known; its curvature may be reported wrongly."""

    def __init__(self, aim: Floats, reported: float = 1.0) -> None:
        self.aim, self.reported = aim, reported

    def slope(self, q: Floats) -> tuple[float, Floats]:
        return -float(((q - self.aim) ** 2).sum()) / 2, self.aim - q

    def curvature(self, q: Floats) -> Floats:
        return -self.reported * np.eye(q.shape[1])[None]


@pytest.mark.parametrize("reported", [1e-6, 0.1, 0.9, 1.0, 1.1])
def test_newton_reaches_the_maximum_despite_a_wrong_curvature(reported: float) -> None:
    aim = np.array([[0.6, 0.5, 0.1, -0.2]])
    polytope, start = simplex(4, [[1, 0, 0, 0]], [0.45]), np.full((1, 4), 0.25)
    best = ConcaveProgram(Parabola(aim, reported), polytope, 1e-12).maximise(start)
    assert_allclose(best.q, [[0.45, 0.475, 0.075, 0.0]], atol=1e-6)
    assert_allclose(best.prices, [0.125], atol=1e-6)  # by the slopes 0.15 and 0.025 there
    assert best.gap <= 1e-12
    assert best.steps <= 4 or reported != 1.0
