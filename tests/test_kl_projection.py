"""Entropic projection on rows: by an exponential-cone solver, by its optimality conditions."""

import itertools
import math
from typing import Any, NamedTuple

import clarabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog

from bylot.numerics.jit import Floats
from bylot.numerics.kl_projection import MAX_MULTIPLIER, KlProjection, kl_project

fuzz_settings = settings(deadline=None, derandomize=True, max_examples=100)


class Case(NamedTuple):
    """Project z on {A p <= b} where p = (1 - eps) pi + eps p0; `title` says what it is like."""

    z: Floats
    A: Floats
    b: Floats
    M: int
    eps: float
    p0: Floats
    title: str = ""


class Answer(NamedTuple):
    theta: Floats
    pi: Floats
    lam: Floats
    projection: KlProjection


def solve(case: Case, cap: float = MAX_MULTIPLIER) -> Answer:
    theta, pi, lam = np.empty(case.z.size), np.empty(case.z.size), np.empty(case.b.size)
    projection = kl_project(theta, pi, lam, *case[:6], cap)
    return Answer(theta, pi, lam, projection)


def inclusion_by_logarithms(theta: Floats, M: int) -> Floats:
    """pi(theta) by log e_m of all but one, in logarithms: slow, and shares no code with kernels."""
    K, theta = theta.size, np.clip(theta - np.sort(theta)[-M], -np.inf, 700.0)  # beyond: certain

    def fill_rows(values: Floats) -> Floats:
        out = np.full((K + 1, M + 1), -np.inf)
        out[0, 0] = 0.0
        for k, v in enumerate(values):
            out[k + 1] = out[k]
            out[k + 1, 1:] = np.logaddexp(out[k, 1:], out[k, :-1] + v)
        return out

    before, after = fill_rows(theta), fill_rows(theta[::-1])[::-1]
    others = before[:-1, :M] + after[1:, M - 1 :: -1][:, :M]
    return np.array(np.exp(theta + np.logaddexp.reduce(others, axis=1) - before[K, M]))


def mix_with_exploration(case: Case, pi: Floats) -> Floats:
    return (1 - case.eps) * pi + case.eps * case.p0


def optimality_error(case: Case, answer: Answer, cap: float = MAX_MULTIPLIER) -> float:
    """Distance of prices from the optimum: max |lam - clip(lam - (b - A p), 0, cap)|."""
    lam = answer.lam
    if not ((lam >= 0) & (lam <= cap)).all():
        return math.inf
    shift = case.A.T @ lam
    theta = case.z - np.sort(case.z)[-case.M] - shift
    pi = inclusion_by_logarithms(theta, case.M)
    slope = case.b - case.A @ mix_with_exploration(case, pi)
    gap = np.abs(lam - np.clip(lam - slope, 0.0, cap)).max(initial=0.0)
    return float(max(gap, np.abs(pi - answer.pi).max()))


def draw_inclusion(rng: Generator, M: int, available: Any) -> Floats:
    """Random inclusion probabilities with sum M among the available."""
    pi, weights = (
        np.zeros(available.size),
        rng.dirichlet(np.full(available.sum(), 10.0 ** rng.uniform(-1, 1))),
    )
    pi[available] = np.minimum(1.0, M * weights)
    while M - pi.sum() > 1e-12:
        free = available & (pi < 1.0)
        pi[free] = np.minimum(1.0, pi[free] + (M - pi.sum()) / free.sum())
    return pi


def make_ordinary_case(number: int, K: int, M: int, d: int, depth: float = 0.02) -> Case:
    """Rows that a random distribution just keeps, each loosened by up to `depth`."""
    rng = np.random.default_rng(number)
    everyone = np.ones(K, np.bool_)
    A = rng.choice([-1.0, 1.0], (d, 1)) * rng.random((d, K))
    A /= np.abs(A).max(axis=1, keepdims=True)
    p0 = np.full(K, M / K)
    p = 0.9 * draw_inclusion(rng, M, everyone) + 0.1 * p0
    b = A @ p + depth * rng.random(d)
    return Case(rng.standard_normal(K), A, b, M, 0.02, p0, f"ordinary {number}")


def make_logits(rng: Generator, K: int, M: int) -> tuple[str, Floats]:
    scale = float(rng.choice([0.0, 1e-8, 0.1, 1.0, 3.0, 10.0, 100.0, 1e4, 1e8]))
    down = np.zeros(K)
    down[rng.permutation(K)[: rng.integers(0, K - M + 1)]] = -np.inf
    kinds: dict[str, Any] = {
        "normal": scale * rng.standard_normal(K),
        "tied": scale * rng.integers(0, 3, K),
        "equal": np.full(K, scale),
        "far off": 1e8 + rng.standard_normal(K),
        "down": scale * rng.standard_normal(K) + down,
    }
    kind = str(rng.choice(list(kinds)))
    return f"{kind} {scale:g}", kinds[kind]


def make_rows(rng: Generator, K: int, d: int) -> tuple[str, Floats]:
    kinds = {
        "random": rng.random((d, K)),
        "signed": rng.standard_normal((d, K)),
        "shares": -np.eye(K)[rng.integers(0, K, d)],
        "binary": rng.integers(-1, 2, (d, K)).astype(float),
        "nearly equal": rng.random(K) + 1e-9 * rng.standard_normal((d, K)),
        "constant": np.ones((d, K)) * rng.choice([-1.0, 1.0], (d, 1)),
        "sparse": np.where(rng.random((d, K)) < 0.1, rng.random((d, K)), 0.0),
    }
    kind = str(rng.choice(list(kinds)))
    A, at = kinds[kind].copy(), rng.integers(d, size=6)
    if rng.random() < 0.3:
        A[at[0]] = A[at[1]]
    if rng.random() < 0.3:
        A[at[2]] = -A[at[3]]
    if rng.random() < 0.2:
        A[at[4]] = 0.0
    return kind, A / np.maximum(np.abs(A).max(axis=1, keepdims=True), 1e-300)


def make_adversarial_case(number: int) -> Case:
    """Scales, ties, duplicate, opposed, empty and constant rows, feasible and infeasible."""
    rng = np.random.default_rng(number)
    K = int(rng.integers(1, rng.choice([4, 12, 60])))
    M, d = (
        int(rng.choice([1, 1, min(2, K), 1 + int(K * rng.random()), K])),
        int(rng.integers(1, 21)),
    )
    at, z = make_logits(rng, K, M)
    available = np.isfinite(z)
    of, A = make_rows(rng, K, d)
    eps, p0 = float(rng.choice([0.0, 0.02, 0.5])), np.where(available, M / available.sum(), 0.0)
    p = (1 - eps) * draw_inclusion(rng, M, available) + eps * p0
    room = {
        "inside": 0.05 * rng.random(d),
        "edge": np.zeros(d),
        "tight": -0.1 * rng.random(d),
        "hopeless": -3.0 * rng.random(d),
        "loose": np.full(d, M + 1.0),
    }
    kind = str(rng.choice(list(room)))
    title = f"{number}: K={K} M={M} d={d}, {at}, rows {of}, eps={eps}, {kind}"
    return Case(z, A, A @ p + room[kind], M, eps, p0, title)


@pytest.fixture(scope="module")
def hard_cases() -> list[tuple[Case, Answer]]:
    cases = [make_adversarial_case(number) for number in range(3_000)]
    return [(case, solve(case)) for case in cases]


def test_every_adversarial_case_is_optimal(hard_cases: list[tuple[Case, Answer]]) -> None:
    assert [
        case.title for case, answer in hard_cases if not optimality_error(case, answer) <= 1e-9
    ] == []
    assert [
        case.title for case, answer in hard_cases if not answer.projection.residual <= 1e-10
    ] == []


def test_the_adversarial_cases_cover_all_kinds(hard_cases: list[tuple[Case, Answer]]) -> None:
    assert sum(answer.projection.evaluations == 1 for _, answer in hard_cases) > 300
    assert sum(answer.projection.excess > 0.01 for _, answer in hard_cases) > 300
    assert sum(0 < answer.lam.max() < MAX_MULTIPLIER for _, answer in hard_cases) > 300


def test_the_test_above_would_notice_a_price_off_by_a_millionth() -> None:
    case = make_ordinary_case(1, 12, 3, 4)
    answer = solve(case)
    assert optimality_error(case, answer) <= 1e-11
    worst = answer.lam.argmax()
    assert 0.1 < answer.lam[worst] < MAX_MULTIPLIER
    wrong = answer.lam * (1 + 1e-6 * np.eye(4)[worst])
    assert optimality_error(case, answer._replace(lam=wrong)) > 1e-9
    assert optimality_error(case, answer._replace(lam=-wrong)) == math.inf


def solve_by_cone_program(case: Case) -> Floats:
    """pi of the distribution on *all* sets nearest to that of z that keeps the rows, by Clarabel.

    min sum_A t_A - P_A log W_A, (-t_A, P_A, 1) in the exponential cone: t_A >= P_A log P_A.
    """
    K = case.z.size
    members = np.array([np.isin(range(K), a) for a in itertools.combinations(range(K), case.M)])
    n, d, log_w = len(members), case.b.size, members @ case.z
    bound = (case.b - case.eps * case.A @ case.p0) / (1 - case.eps)
    cone = np.zeros((3 * n, 2 * n))  # P first, then t
    for k in range(n):
        cone[3 * k, n + k] = 1.0
        cone[3 * k + 1, k] = -1.0
    limits = np.vstack([np.ones(n), case.A @ members.T])
    flat = np.hstack([limits, np.zeros((1 + d, n))])
    side = np.tile([0.0, 0.0, 1.0], n)
    solver_settings = clarabel.DefaultSettings()
    solver_settings.verbose = False
    solver_settings.tol_gap_abs = solver_settings.tol_gap_rel = solver_settings.tol_feas = 1e-11
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(d)]
    found = clarabel.DefaultSolver(
        sparse.csc_matrix((2 * n, 2 * n)),
        np.concatenate([-log_w, np.ones(n)]),
        sparse.csc_matrix(np.vstack([flat, cone])),
        np.concatenate([[1.0], bound, side]),
        [*cones, *[clarabel.ExponentialConeT()] * n],
        solver_settings,
    ).solve()
    return np.array(np.array(found.x[:n]) @ members)


@pytest.mark.parametrize(("K", "M"), [(9, 1), (6, 2), (7, 3), (6, 5)])
def test_a_cone_solver_finds_the_same_distribution_on_sets(K: int, M: int) -> None:
    bound_count = 0
    for number in range(25):
        case = make_ordinary_case(number, K, M, 1 + number % 4)
        answer = solve(case)
        assert answer.projection.excess <= 1e-10
        assert_allclose(answer.pi, solve_by_cone_program(case), atol=2e-6)
        bound_count += answer.lam.max() > 0.1
    assert bound_count > 12


def test_rows_that_hold_already_take_one_evaluation_and_no_price() -> None:
    case = make_ordinary_case(3, 20, 4, 6)
    loose = case._replace(b=case.b + 10.0)
    answer = solve(loose)
    assert answer.projection.evaluations == 1
    assert_array_equal(answer.lam, 0.0)
    assert_allclose(answer.theta, case.z, atol=1e-15)
    assert_allclose(answer.pi, inclusion_by_logarithms(case.z, 4), rtol=1e-12)
    assert answer.projection.excess < -5.0
    none = solve(case._replace(A=case.A[:0], b=case.b[:0]))
    assert none.projection == (0.0, -math.inf, 1)


def least_excess(case: Case, slack: Floats, least: float | None) -> float:
    """The smallest sum of s >= least with A p <= b + slack s, over all p of sets of M."""
    K, k = case.z.size, slack.shape[1]
    found = linprog(
        np.concatenate([np.zeros(K), np.ones(k)]),
        A_ub=np.hstack([(1 - case.eps) * case.A, -slack]),
        b_ub=case.b - case.eps * case.A @ case.p0,
        A_eq=[[1.0] * K + [0.0] * k],
        b_eq=[case.M],
        bounds=[(0.0, 1.0)] * K + [(least, None)] * k,
    )
    assert found.fun is not None
    return float(found.fun)


def test_feasibility_agrees_with_a_linear_program() -> None:
    verdicts = set()
    for number in range(100):
        case = make_ordinary_case(number, 7, 1 + number % 3, 3, depth=-0.6)
        least = least_excess(case, np.ones((3, 1)), None)  # the same for all rows
        if abs(least) > 0.02:
            assert (solve(case).projection.excess <= 1e-9) is bool(least < 0)
            verdicts.add(least < 0)
    assert verdicts == {True, False}


def test_infeasible_rows_are_violated_by_hardly_more_than_the_minimum() -> None:
    violated = 0
    for number in range(60):
        case = make_ordinary_case(number, 7, 1 + number % 3, 4, depth=-1.5)
        answer, least = solve(case), least_excess(case, np.eye(4), 0.0)  # each its own
        violation = np.maximum(case.A @ mix_with_exploration(case, answer.pi) - case.b, 0.0).sum()
        # (1 - eps) KL + cap * excess is least, and KL at most that of the unlikeliest set.
        sums = np.sort(case.z)
        log_z = sums[-case.M :].sum() + math.log(math.comb(7, case.M))
        unlikely = log_z - sums[: case.M].sum()
        assert least - 1e-9 <= violation <= least + (1 - case.eps) * unlikely / MAX_MULTIPLIER
        violated += least > 0.1
    assert violated > 30


def test_a_violated_row_of_zeros_does_not_affect_the_others() -> None:
    case = make_ordinary_case(5, 10, 3, 3)
    more = case._replace(A=np.vstack([case.A, np.zeros(10)]), b=np.append(case.b, -0.5))
    answer = solve(more)
    assert_allclose(answer.pi, solve(case).pi, atol=1e-9)
    assert answer.lam[3] == MAX_MULTIPLIER
    assert answer.projection.excess == 0.5
    assert answer.projection.residual <= 1e-10


def test_two_opposed_infeasible_rows_end_at_the_cap() -> None:
    A, b = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), np.array([0.2, -0.6])
    answer = solve(Case(np.array([0.0, 1.0, 2.0]), A, b, 1, 0.0, np.zeros(3)))
    assert answer.projection.excess == pytest.approx(0.4, abs=1e-6)
    assert 0.2 - 1e-6 <= answer.pi[0] <= 0.6 + 1e-6
    assert MAX_MULTIPLIER in answer.lam


def test_if_all_experts_are_drawn_nothing_can_change() -> None:
    answer = solve(make_ordinary_case(2, 5, 5, 4)._replace(b=np.array([9.0, -9.0, 9.0, -9.0])))
    assert_array_equal(answer.pi, 1.0)
    assert_array_equal(answer.lam, [0.0, MAX_MULTIPLIER, 0.0, MAX_MULTIPLIER])
    assert answer.projection.residual == 0.0


def test_unavailable_experts_do_not_change_the_problem_of_the_others() -> None:
    available = np.arange(12) % 4 != 1
    for number in range(20):
        case = make_ordinary_case(number, 12, 3, 3)
        case = case._replace(
            z=np.where(available, case.z, -np.inf), p0=np.where(available, 3 / available.sum(), 0.0)
        )
        full = solve(case)
        available_rows = np.ascontiguousarray(case.A[:, available])
        part = solve(case._replace(z=case.z[available], A=available_rows, p0=case.p0[available]))
        assert_allclose(full.pi[available], part.pi, atol=1e-9)
        assert_array_equal(full.pi[~available], 0.0)
        assert_array_equal(full.theta[~available], -np.inf)


@fuzz_settings
@given(st.integers(0, 10_000), st.integers(1, 4), st.permutations(range(4)), st.floats(-1e3, 1e3))
def test_order_and_repetition_of_rows_and_shifts_of_z_do_not_matter(
    number: int, M: int, order: list[int], level: float
) -> None:
    case = make_ordinary_case(number, 8, M, 4)
    first = solve(case)
    again = np.vstack([case.A[order], case.A])
    second = solve(case._replace(z=case.z + level, A=again, b=np.append(case.b[order], case.b)))
    assert_allclose(second.pi, first.pi, atol=1e-8)
    assert_allclose(second.theta - level, first.theta, atol=1e-5)


@fuzz_settings
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_projecting_twice_changes_nothing(number: int, M: int) -> None:
    case = make_ordinary_case(number, 8, M, 3)
    first = solve(case)
    second = solve(case._replace(z=first.theta))
    assert_allclose(second.pi, first.pi, atol=1e-8)


def test_the_projection_can_be_written_in_place() -> None:
    case = make_ordinary_case(4, 9, 2, 3)
    z, pi, lam = case.z.copy(), np.empty(9), np.empty(3)
    kl_project(z, pi, lam, z, *case[1:6])
    assert_array_equal(z, solve(case).theta)


@pytest.mark.parametrize("M", [1, 50])
def test_ten_thousand_experts(M: int) -> None:
    case = make_ordinary_case(7, 10_000, M, 5)
    case = case._replace(
        b=case.A @ (0.9 * inclusion_by_logarithms(case.z, M) + 0.1 * case.p0) - 0.001
    )
    answer = solve(case)
    assert optimality_error(case, answer) <= 1e-9
    assert answer.lam.max() > 0.001
