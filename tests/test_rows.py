"""Several rows at once: by their optimality conditions, by other solvers, by their laws."""

import math

import numpy as np
import pytest
import quadprog
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from bylot.bench.adversarial import Case, excess, judge_rows, least_norm, rows_case
from bylot.kernels.compile import Floats
from bylot.kernels.project import onto_halfspace, onto_simplex
from bylot.kernels.rows import RowsProjection, onto_rows

LAWS = settings(deadline=None, derandomize=True, max_examples=60)


def solve(case: Case) -> RowsProjection:
    return onto_rows(case.z, case.floor, case.A, case.b)


def missed(case: Case, q: Floats) -> float:
    """Norm of the excess, in parts of max |A_j|."""
    return float(np.linalg.norm(np.maximum(excess(case, q), 0.0)))


def ordinary(number: int, K: int, d: int, depth: float = 0.05) -> Case:
    """Rows that a random q just keeps, each tightened by up to `depth`."""
    rng = np.random.default_rng(number)
    floor = 0.1 / K
    q = floor + 0.9 * rng.dirichlet(np.ones(K))
    A = rng.random((d, K))
    z = q + 0.2 * rng.standard_normal(K)
    return Case(z, floor, A, A @ q - depth * rng.random(d), f"ordinary {number}")


@pytest.fixture(scope="module")
def hard() -> list[tuple[Case, RowsProjection]]:
    cases = [rows_case(number) for number in range(900)]
    return [(case, solve(case)) for case in cases]


def test_every_adversarial_case_is_optimal_to_1e_10(
    hard: list[tuple[Case, RowsProjection]],
) -> None:
    assert [case.title for case, answer in hard if not judge_rows(case, *answer) <= 1e-10] == []


def test_rows_that_cannot_be_kept_are_missed_by_least(
    hard: list[tuple[Case, RowsProjection]],
) -> None:
    empty = [(case, answer.q) for case, answer in hard if not answer.feasible]
    assert len(empty) > 200
    assert [case.title for case, q in empty if not missed(case, q) <= least_norm(case) + 1e-9] == []


def test_the_judge_rejects_a_q_that_is_off_by_1e_9_and_a_wrong_multiplier() -> None:
    case = ordinary(1, 12, 3)
    q, multipliers, feasible = solve(case)
    assert feasible
    assert judge_rows(case, q, multipliers, True) <= 1e-12
    i, j = np.argsort(q)[-2:]
    wrong = q.copy()
    wrong[i] += 1e-9
    wrong[j] -= 1e-9
    assert judge_rows(case, wrong, multipliers, True) > 1e-10
    worst = multipliers.argmax()
    assert multipliers[worst] > 0.01
    assert judge_rows(case, q, multipliers * (1 + 1e-7), True) > 1e-10
    assert judge_rows(case, q, multipliers, False) == math.inf


def test_a_point_that_misses_by_more_than_the_least_is_noticed() -> None:
    case = ordinary(2, 6, 3, depth=2.0)
    q, _, feasible = solve(case)
    assert not feasible
    further = 0.999 * q + 0.001 * np.eye(6)[q.argmin()]
    assert missed(case, further) > least_norm(case) + 1e-6 > missed(case, q)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_quadprog_agrees(d: int) -> None:
    compared = 0
    for number in range(60):
        case = ordinary(number, 9, d)
        answer = solve(case)
        if not answer.feasible:
            continue
        K = case.z.size
        rows = np.column_stack([np.ones(K), -case.A.T, np.eye(K)])
        sides = np.concatenate([[1.0], -case.b, np.full(K, case.floor)])
        theirs = quadprog.solve_qp(np.eye(K), case.z, rows, sides, 1)[0]
        assert_allclose(answer.q, theirs, atol=1e-11)
        compared += 1
    assert compared > 30


def test_the_verdict_is_that_of_a_linear_program() -> None:
    verdicts = set()
    for number in range(100):
        case = ordinary(number, 6, 3, depth=0.6)
        bounds = [(case.floor, None)] * 6
        # The least t with A q <= b + t: far from zero on either side in these problems.
        found = linprog(
            np.eye(7)[6],
            A_ub=np.column_stack([case.A, -np.ones(3)]),
            b_ub=case.b,
            A_eq=[[1.0] * 6 + [0.0]],
            b_eq=[1.0],
            bounds=[*bounds, (None, None)],
        )
        assert found.fun is not None
        if abs(found.fun) > 1e-6:
            assert solve(case).feasible is (found.fun < 0)
            verdicts.add(found.fun < 0)
    assert verdicts == {True, False}


def test_one_row_is_the_halfspace_and_none_the_simplex() -> None:
    for number in range(100):
        case = ordinary(number, 10, 1)
        one = onto_halfspace(case.z, case.floor, case.A[0], float(case.b[0]))
        rows = solve(case)
        assert_allclose(rows.q, one.q, atol=1e-12)
        assert rows.multipliers[0] == pytest.approx(one.multiplier, abs=1e-10)
        assert rows.feasible == one.feasible
        none = onto_rows(case.z, case.floor, case.A[:0], case.b[:0])
        assert_allclose(none.q, onto_simplex(case.z, case.floor), atol=1e-14)
        assert none.feasible
        assert none.multipliers.shape == (0,)


def test_rows_said_twice_or_in_another_unit_or_implied_change_nothing() -> None:
    for number in range(40):
        case = ordinary(number, 10, 2)
        q = solve(case).q
        A = np.vstack([case.A, case.A[0], 3.0 * case.A[1], case.A.sum(axis=0)])
        b = np.concatenate([case.b, [case.b[0], 3.0 * case.b[1], case.b.sum() + 0.1]])
        more = case._replace(A=A, b=b)
        answer = solve(more)
        assert_allclose(answer.q, q, atol=1e-10)
        assert judge_rows(more, *answer) <= 1e-11


def test_two_opposed_rows_share_what_they_cannot_both_have() -> None:
    A, b = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), np.array([0.2, -0.6])
    q, _, feasible = onto_rows(np.array([0.0, 0.5, 0.1]), 0.0, A, b)
    assert not feasible
    assert_allclose(q, [0.4, 0.5, 0.1], atol=1e-12)  # 0.2 short of both, then the nearest


@LAWS
@given(st.integers(0, 10_000), st.permutations(range(4)), st.integers(-30, 30))
def test_order_and_units_of_the_rows_do_not_matter(number: int, order: list[int], k: int) -> None:
    case = ordinary(number, 7, 4, depth=0.02)
    here = solve(case)
    unit = 2.0**k
    there = solve(case._replace(A=unit * case.A[order], b=unit * case.b[order]))
    assert there.feasible == here.feasible
    assert_allclose(there.q, here.q, atol=1e-9)


@LAWS
@given(st.integers(0, 10_000))
def test_a_point_of_the_set_stays_and_no_two_points_come_further_apart(number: int) -> None:
    case = ordinary(number, 7, 3)
    q = solve(case).q
    if solve(case).feasible:
        assert_allclose(solve(case._replace(z=q)).q, q, atol=1e-11)
    other = np.random.default_rng(number).standard_normal(7)
    apart = np.linalg.norm(case.z - other)
    assert np.linalg.norm(q - solve(case._replace(z=other)).q) <= apart + 1e-9


def test_a_floor_of_one_kth_leaves_one_point() -> None:
    A = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    assert onto_rows(np.zeros(3), 1 / 3, A, np.array([2.0, 2.0])).feasible
    answer = onto_rows(np.zeros(3), 1 / 3, A, np.array([2.0, 1.9]))
    assert_allclose(answer.q, 1 / 3)
    assert not answer.feasible
