"""The exact projection: by its optimality conditions, by other solvers, by its properties."""

import math

import numpy as np
import pytest
import quadprog
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from bylot.numerics import simplex_projection
from bylot.numerics.box import clip_to_unit_ball
from bylot.numerics.jit import Floats, jit
from bylot.numerics.simplex_projection import (
    Projection,
    fill_halfspace_projection,
    fill_simplex_point,
    project_onto_halfspace,
)
from bylot_bench.projection_cases import (
    ProjectionCase,
    compute_kkt_residual,
    judge_halfspace,
    make_halfspace_case,
    minimise_row,
)
from bylot_bench.qp import fuzz_projection

fuzz_settings = settings(deadline=None, derandomize=True, max_examples=200)


def project_onto_simplex(z: Floats, floor: float) -> Floats:
    """The nearest point of {sum q = 1, q >= floor}."""
    q = np.empty(z.size)
    fill_simplex_point(q, z, 1.0 - z.size * floor)
    return q + floor


def project_onto_unit_ball(w: Floats) -> Floats:
    """The nearest point of the unit ball, in a new array."""
    nearest = w.copy()
    clip_to_unit_ball(nearest)
    return nearest


def solve(case: ProjectionCase) -> Projection:
    return project_onto_halfspace(case.z, case.floor, case.A[0], float(case.b[0]))


def residual(case: ProjectionCase) -> float:
    return judge_halfspace(case, *solve(case))


def solve_by_quadprog(case: ProjectionCase) -> Floats:
    """The same problem, solved by Goldfarb and Idnani's method."""
    K = case.z.size
    rows = np.column_stack([np.ones(K), -case.A.T, np.eye(K)])
    sides = np.concatenate([[1.0], -case.b, np.full(K, case.floor)])
    q: Floats = quadprog.solve_qp(np.eye(K), case.z, rows, sides, 1)[0]
    return q


def project_by_sorting(z: Floats, floor: float) -> Floats:
    """Simplex projection: tau is the last of the (z_(1) + ... + z_(k) - r) / k below z_(k)."""
    r, y = 1 - z.size * floor, np.sort(z)[::-1]
    levels = (np.cumsum(y) - r) / np.arange(1, z.size + 1)
    q: Floats = floor + np.maximum(0.0, z - levels[np.flatnonzero(y > levels)[-1]])
    return q


def make_moderate_case(number: int, K: int, floor: float) -> ProjectionCase:
    """A problem of ordinary size whose row binds more often than not."""
    rng = np.random.default_rng(number)
    a = rng.random(K)
    low, high = floor * a.sum() + (1 - K * floor) * np.array([a.min(), a.mean()])
    b = rng.uniform(low, high)
    return ProjectionCase(
        rng.standard_normal(K), floor, a[None], np.array([b]), f"moderate {number}"
    )


# The optimality conditions


def test_every_adversarial_case_is_solved_to_1e_12() -> None:
    cases = (make_halfspace_case(number) for number in range(3_000))
    assert [case.title for case in cases if not residual(case) <= 1e-12] == []


def test_the_cases_cover_sizes_scales_and_feasibility() -> None:
    cases = [make_halfspace_case(number) for number in range(1_500)]
    answers = [solve(case) for case in cases]
    assert {case.z.size for case in cases} >= set(range(1, 20))
    assert max(case.z.size for case in cases) > 900
    assert 0.1 < np.mean([not answer.feasible for answer in answers]) < 0.4
    assert 0.1 < np.mean([answer.multiplier > 0 for answer in answers]) < 0.6
    assert min(np.ptp(case.z) for case in cases if np.ptp(case.z)) < 1e-7
    assert max(np.ptp(case.z) for case in cases) > 1e7


def test_a_case_is_a_function_of_its_number() -> None:
    first, again, other = make_halfspace_case(7), make_halfspace_case(7), make_halfspace_case(8)
    assert first.title == again.title != other.title
    assert np.array_equal(first.z, again.z)
    assert np.array_equal(first.A, again.A)


# The check of optimality can fail


@pytest.fixture
def binding_case() -> tuple[ProjectionCase, Projection]:
    z = 0.1 * np.random.default_rng(0).standard_normal(8)
    case = ProjectionCase(z, 0.01, np.linspace(0.0, 1.0, 8)[None], np.array([0.4]), "binding")
    answer = solve(case)
    assert answer.multiplier > 0.1
    assert (answer.q > 0.02).sum() > 2
    return case, answer


def test_the_residual_of_a_q_off_by_1e_9_is_large(
    binding_case: tuple[ProjectionCase, Projection],
) -> None:
    case, answer = binding_case
    i, j = np.argsort(answer.q)[-2:]
    wrong = answer.q.copy()
    wrong[i] += 1e-9
    assert compute_kkt_residual(case, wrong, np.array([answer.multiplier])).mass > 1e-10
    wrong[j] -= 1e-9
    assert judge_halfspace(case, wrong, answer.multiplier, True) > 1e-10


def test_the_residual_of_a_wrong_multiplier_is_large(
    binding_case: tuple[ProjectionCase, Projection],
) -> None:
    case, answer = binding_case
    assert judge_halfspace(case, answer.q, answer.multiplier * (1 + 1e-9), True) > 1e-11
    assert judge_halfspace(case, answer.q, 0.0, True) > 1e-3
    assert judge_halfspace(case, answer.q, -1e-9, True) > 1e-11
    assert judge_halfspace(case, answer.q, math.nan, True) == math.inf


def test_the_residual_of_a_price_on_a_slack_row_is_large(
    binding_case: tuple[ProjectionCase, Projection],
) -> None:
    case, answer = binding_case
    slack = case._replace(b=case.b + 1e-6)
    assert judge_halfspace(slack, answer.q, answer.multiplier, True) > 1e-7


def test_the_residual_of_a_wrong_feasibility_is_large(
    binding_case: tuple[ProjectionCase, Projection],
) -> None:
    case, answer = binding_case
    assert judge_halfspace(case, answer.q, answer.multiplier, False) == math.inf
    empty = case._replace(b=np.array([minimise_row(case) - 1e-6]))
    found = solve(empty)
    assert not found.feasible
    assert judge_halfspace(empty, *found) <= 1e-12
    assert judge_halfspace(empty, found.q, found.multiplier, True) > 1e-7


# Other solvers


@pytest.mark.parametrize("K", [2, 3, 5, 8, 13])
def test_quadprog_agrees(K: int) -> None:
    for number in range(40):
        case = make_moderate_case(number, K, [0.0, 0.1 / K, 0.5 / K][number % 3])
        assert_allclose(solve(case).q, solve_by_quadprog(case), atol=1e-12)


@pytest.mark.parametrize("K", [1, 2, 7, 100, 3_000])
def test_the_simplex_projection_agrees_with_sorting(K: int) -> None:
    for number in range(20):
        z = np.random.default_rng(number).standard_normal(K) * 10.0 ** (number % 5 - 2)
        floor = 0.1 / K * (number % 2)
        assert_allclose(project_onto_simplex(z, floor), project_by_sorting(z, floor), atol=1e-13)


@pytest.mark.parametrize("number", range(20))
def test_an_empty_set_gives_the_nearest_of_the_least_violating_points(number: int) -> None:
    rng = np.random.default_rng(number)
    K, floor = 8, 1 / 32
    a, z = rng.integers(0, 3, K).astype(float), rng.standard_normal(K)
    low = linprog(a, A_eq=np.ones((1, K)), b_eq=[1.0], bounds=[(floor, None)] * K).fun
    assert low is not None
    answer = project_onto_halfspace(z, floor, a, low - 0.1)
    assert not answer.feasible
    assert a @ answer.q == pytest.approx(low, abs=1e-12)
    edge = floor * a.sum() + (1 - K * floor) * a.min()  # exact: small integers and powers of two
    assert_allclose(
        answer.q,
        solve_by_quadprog(ProjectionCase(z, floor, a[None], np.array([edge]), "")),
        atol=1e-9,
    )
    assert project_onto_halfspace(z, floor, a, edge).feasible
    assert_allclose(project_onto_halfspace(z, floor, a, edge).q, answer.q, atol=1e-15)


# Properties


def random_vectors() -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(-4, 4), min_size=6, max_size=6)


@st.composite
def random_cases(draw: st.DrawFn) -> ProjectionCase:
    """K = 6, costs in thousandths, a row anywhere from never kept to always."""
    thousandths = st.integers(-1_000, 1_000).map(lambda n: n / 1_000)
    z, a = draw(random_vectors()), draw(st.lists(thousandths, min_size=6, max_size=6))
    floor, b = draw(st.sampled_from([0.0, 1 / 60, 1 / 12, 1 / 6])), 1.5 * draw(thousandths)
    return ProjectionCase(np.array(z), floor, np.array([a]), np.array([b]), "drawn")


@fuzz_settings
@given(random_cases())
def test_a_point_of_the_set_is_its_own_projection(case: ProjectionCase) -> None:
    q = solve(case).q
    assert_allclose(solve(case._replace(z=q)).q, q, atol=1e-12)


@fuzz_settings
@given(random_cases(), random_vectors())
def test_the_projection_does_not_increase_distances(
    case: ProjectionCase, other: list[float]
) -> None:
    second = case._replace(z=np.array(other))
    distance = np.linalg.norm(case.z - second.z)
    assert np.linalg.norm(solve(case).q - solve(second).q) <= distance + 1e-12


@fuzz_settings
@given(random_cases(), st.floats(-100, 100))
def test_a_constant_added_to_z_changes_nothing(case: ProjectionCase, c: float) -> None:
    shifted = solve(case._replace(z=case.z + c))
    # z + c is rounded, by half a unit of 100 at most, and the projection keeps that error.
    assert_allclose(shifted.q, solve(case).q, atol=6 * 2.0**-46 + 1e-12)


@fuzz_settings
@given(random_cases(), st.integers(-40, 40))
def test_a_change_of_unit_of_the_row_changes_no_bit(case: ProjectionCase, k: int) -> None:
    unit, first = 2.0**k, solve(case)
    second = solve(case._replace(A=case.A * unit, b=case.b * unit))
    assert np.array_equal(second.q, first.q)
    assert second.multiplier * unit == first.multiplier
    assert second.feasible == first.feasible


@fuzz_settings
@given(random_cases(), st.integers(-64, 64))
def test_a_constant_added_to_the_row_and_its_bound_changes_nothing(
    case: ProjectionCase, c: int
) -> None:
    first, second = solve(case), solve(case._replace(A=case.A + c, b=case.b + c))
    if first.feasible == second.feasible and first.multiplier < 10:
        assert_allclose(second.q, first.q, atol=1e-9)
    else:  # b at the edge of the set, where rounding a + c decides: both must still be optimal
        assert judge_halfspace(case, *first) <= 1e-12
        assert residual(case._replace(A=case.A + c, b=case.b + c)) <= 1e-12


@fuzz_settings
@given(random_vectors())
def test_the_ball_projection_keeps_inner_points_and_shortens_others(values: list[float]) -> None:
    w = np.array(values)
    assert_allclose(project_onto_unit_ball(w), w / max(1.0, float(np.linalg.norm(w))), atol=1e-15)


# Corners


def test_a_single_expert_has_probability_1() -> None:
    assert project_onto_simplex(np.array([-3.0]), 0.1) == pytest.approx([1.0])
    assert project_onto_halfspace(np.array([5.0]), 0.1, np.array([2.0]), 2.0).feasible
    answer = project_onto_halfspace(np.array([5.0]), 0.1, np.array([2.0]), 1.9)
    assert answer.q == pytest.approx([1.0])
    assert not answer.feasible


@pytest.mark.parametrize("K", [3, 49, 1_000])
def test_a_floor_of_one_kth_leaves_one_point(K: int) -> None:
    rng = np.random.default_rng(K)
    z, a = rng.standard_normal(K), rng.random(K)
    assert_allclose(project_onto_simplex(z, 1 / K), 1 / K, rtol=1e-15)
    for b, feasible in ((a.mean(), True), (a.mean() + 1.0, True), (a.mean() - 1e-9, False)):
        answer = project_onto_halfspace(z, 1 / K, a, float(b))
        assert_allclose(answer.q, 1 / K, rtol=1e-15)
        assert answer.feasible is feasible


def test_a_huge_gradient_leaves_a_proper_distribution() -> None:
    rng = np.random.default_rng(0)
    for scale in (1e4, 1e8, 1e12):
        z, a = rng.dirichlet(np.ones(50)), rng.random(50)
        z[rng.integers(0, 50, 5)] += scale * rng.random(5)
        answer = project_onto_halfspace(z, 0.002, a, 0.4)
        assert abs(math.fsum(answer.q) - 1) <= 1e-15
        assert answer.q.min() == 0.002
        assert a @ answer.q <= 0.4 + 1e-15


def test_nan_does_not_cause_an_endless_loop() -> None:
    for target in range(2):
        z, a = np.array([0.5, 0.5]), np.array([1.0, 0.0])
        (z, a)[target][0] = math.nan
        assert len(project_onto_halfspace(z, 0.0, a, 0.3).q) == 2


# One implementation


def test_the_projection_can_be_written_in_place() -> None:
    for number in range(300):
        case = make_halfspace_case(number)
        answer, target = solve(case), case.z.copy()
        row = fill_halfspace_projection(target, target, case.floor, case.A[0], float(case.b[0]))
        assert np.array_equal(target, answer.q)
        assert tuple(row) == tuple(answer[1:])


@jit
def project_rows(z: Floats, floor: float, a: Floats, b: Floats, q: Floats) -> None:
    for n in range(b.size):
        fill_halfspace_projection(q[n], z[n], floor, a[n], b[n])


def test_compiled_loops_strided_rows_and_single_calls_agree_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    z, a, b = rng.standard_normal((100, 37)), rng.random((100, 37)), rng.random(100)
    q = np.empty_like(z)
    project_rows(z, 0.001, a, b, q)
    for n in range(100):
        assert np.array_equal(project_onto_halfspace(z[n], 0.001, a[n], b[n]).q, q[n])
        strided = project_onto_halfspace(z.T.copy()[:, n], 0.001, a.T.copy()[:, n], b[n])
        assert np.array_equal(strided.q, q[n])


@pytest.mark.parametrize(("joint", "halving"), [(0, 64), (0, 0)], ids=["bracket", "halving"])
def test_the_safeguards_alone_solve_every_case(
    joint: int, halving: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simplex_projection, "MAX_JOINT_PASSES", joint)
    monkeypatch.setattr(simplex_projection, "PASSES_BEFORE_BISECTION", halving)
    monkeypatch.setattr(
        simplex_projection,
        "solve_row_multipliers",
        simplex_projection.solve_row_multipliers.py_func,  # type: ignore[attr-defined]
    )
    uncompiled = simplex_projection.fill_halfspace_projection.py_func  # type: ignore[attr-defined]
    for number in range(600):
        case = make_halfspace_case(number)
        q = np.empty_like(case.z)
        row = uncompiled(q, case.z, case.floor, case.A[0], float(case.b[0]))
        free = 1.0 - case.z.size * case.floor
        lost = free if free < np.finfo(float).eps * np.abs(case.z).max() else 0.0
        # Without the joint passes, mass below the rounding of z can stay at the floor.
        assert judge_halfspace(case, q, *row) <= 1e-12 + lost, case.title


@pytest.mark.slow
def test_sixty_thousand_hard_cases_are_solved_to_1e_12() -> None:
    found = fuzz_projection(60_000, seed=1)
    assert found["failures"] == 0, found["first_failures"]
    assert found["worst_kkt"] <= 1e-12
