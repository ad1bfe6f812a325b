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

LAWS = settings(deadline=None, derandomize=True, max_examples=100)


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
    tilt: KlProjection


def solve(case: Case, cap: float = MAX_MULTIPLIER) -> Answer:
    theta, pi, lam = np.empty(case.z.size), np.empty(case.z.size), np.empty(case.b.size)
    done = kl_project(theta, pi, lam, *case[:6], cap)
    return Answer(theta, pi, lam, done)


def chances(theta: Floats, M: int) -> Floats:
    """pi(theta) by log e_m of all but one, in logarithms: slow, and no line shared with kernels."""
    K, theta = theta.size, np.clip(theta - np.sort(theta)[-M], -np.inf, 700.0)  # beyond: certain

    def rows(values: Floats) -> Floats:
        out = np.full((K + 1, M + 1), -np.inf)
        out[0, 0] = 0.0
        for k, v in enumerate(values):
            out[k + 1] = out[k]
            out[k + 1, 1:] = np.logaddexp(out[k, 1:], out[k, :-1] + v)
        return out

    before, after = rows(theta), rows(theta[::-1])[::-1]
    others = before[:-1, :M] + after[1:, M - 1 :: -1][:, :M]
    return np.array(np.exp(theta + np.logaddexp.reduce(others, axis=1) - before[K, M]))


def mixed(case: Case, pi: Floats) -> Floats:
    return (1 - case.eps) * pi + case.eps * case.p0


def judge(case: Case, answer: Answer, cap: float = MAX_MULTIPLIER) -> float:
    """How far prices are from optimal, max |lam - clip(lam - (b - A p), 0, cap)|, p found anew."""
    lam = answer.lam
    if not ((lam >= 0) & (lam <= cap)).all():
        return math.inf
    shift = case.A.T @ lam
    theta = case.z - np.sort(case.z)[-case.M] - shift
    pi = chances(theta, case.M)
    slope = case.b - case.A @ mixed(case, pi)
    gap = np.abs(lam - np.clip(lam - slope, 0.0, cap)).max(initial=0.0)
    return float(max(gap, np.abs(pi - answer.pi).max()))


def share(rng: Generator, M: int, up: Any) -> Floats:
    """Random chances with sum M among those up."""
    pi, weights = np.zeros(up.size), rng.dirichlet(np.full(up.sum(), 10.0 ** rng.uniform(-1, 1)))
    pi[up] = np.minimum(1.0, M * weights)
    while M - pi.sum() > 1e-12:
        free = up & (pi < 1.0)
        pi[free] = np.minimum(1.0, pi[free] + (M - pi.sum()) / free.sum())
    return pi


def ordinary(number: int, K: int, M: int, d: int, depth: float = 0.02) -> Case:
    """Rows that a random law just keeps, each loosened by up to `depth`, seen from another law."""
    rng = np.random.default_rng(number)
    everyone = np.ones(K, np.bool_)
    A = rng.choice([-1.0, 1.0], (d, 1)) * rng.random((d, K))
    A /= np.abs(A).max(axis=1, keepdims=True)
    p0 = np.full(K, M / K)
    p = 0.9 * share(rng, M, everyone) + 0.1 * p0
    b = A @ p + depth * rng.random(d)
    return Case(rng.standard_normal(K), A, b, M, 0.02, p0, f"ordinary {number}")


def points(rng: Generator, K: int, M: int) -> tuple[str, Floats]:
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


def rows(rng: Generator, K: int, d: int) -> tuple[str, Floats]:
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


def adversarial(number: int) -> Case:
    """Scales, ties, duplicate, opposed, empty and constant rows, on the edge and past it."""
    rng = np.random.default_rng(number)
    K = int(rng.integers(1, rng.choice([4, 12, 60])))
    M, d = (
        int(rng.choice([1, 1, min(2, K), 1 + int(K * rng.random()), K])),
        int(rng.integers(1, 21)),
    )
    at, z = points(rng, K, M)
    up = np.isfinite(z)
    of, A = rows(rng, K, d)
    eps, p0 = float(rng.choice([0.0, 0.02, 0.5])), np.where(up, M / up.sum(), 0.0)
    p = (1 - eps) * share(rng, M, up) + eps * p0
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
def hard() -> list[tuple[Case, Answer]]:
    cases = [adversarial(number) for number in range(3_000)]
    return [(case, solve(case)) for case in cases]


def test_every_adversarial_case_is_optimal(hard: list[tuple[Case, Answer]]) -> None:
    assert [case.title for case, answer in hard if not judge(case, answer) <= 1e-9] == []
    assert [case.title for case, answer in hard if not answer.tilt.residual <= 1e-10] == []


def test_the_adversarial_cases_are_of_all_kinds(hard: list[tuple[Case, Answer]]) -> None:
    assert sum(answer.tilt.evaluations == 1 for _, answer in hard) > 300
    assert sum(answer.tilt.excess > 0.01 for _, answer in hard) > 300
    assert sum(0 < answer.lam.max() < MAX_MULTIPLIER for _, answer in hard) > 300


def test_the_judge_rejects_a_price_that_is_off_by_a_millionth() -> None:
    case = ordinary(1, 12, 3, 4)
    answer = solve(case)
    assert judge(case, answer) <= 1e-11
    worst = answer.lam.argmax()
    assert 0.1 < answer.lam[worst] < MAX_MULTIPLIER
    wrong = answer.lam * (1 + 1e-6 * np.eye(4)[worst])
    assert judge(case, answer._replace(lam=wrong)) > 1e-9
    assert judge(case, answer._replace(lam=-wrong)) == math.inf


def cone_solution(case: Case) -> Floats:
    """pi of the law on *all* sets that is nearest to that of z and keeps the rows, by Clarabel.

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
    set_up = clarabel.DefaultSettings()
    set_up.verbose = False
    set_up.tol_gap_abs = set_up.tol_gap_rel = set_up.tol_feas = 1e-11
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(d)]
    found = clarabel.DefaultSolver(
        sparse.csc_matrix((2 * n, 2 * n)),
        np.concatenate([-log_w, np.ones(n)]),
        sparse.csc_matrix(np.vstack([flat, cone])),
        np.concatenate([[1.0], bound, side]),
        [*cones, *[clarabel.ExponentialConeT()] * n],
        set_up,
    ).solve()
    return np.array(np.array(found.x[:n]) @ members)


@pytest.mark.parametrize(("K", "M"), [(9, 1), (6, 2), (7, 3), (6, 5)])
def test_a_cone_solver_finds_no_other_law_on_sets(K: int, M: int) -> None:
    moved = 0
    for number in range(25):
        case = ordinary(number, K, M, 1 + number % 4)
        answer = solve(case)
        assert answer.tilt.excess <= 1e-10
        assert_allclose(answer.pi, cone_solution(case), atol=2e-6)
        moved += answer.lam.max() > 0.1
    assert moved > 12


def test_rows_that_are_kept_already_take_one_evaluation_and_no_price() -> None:
    case = ordinary(3, 20, 4, 6)
    loose = case._replace(b=case.b + 10.0)
    answer = solve(loose)
    assert answer.tilt.evaluations == 1
    assert_array_equal(answer.lam, 0.0)
    assert_allclose(answer.theta, case.z, atol=1e-15)
    assert_allclose(answer.pi, chances(case.z, 4), rtol=1e-12)
    assert answer.tilt.excess < -5.0
    none = solve(case._replace(A=case.A[:0], b=case.b[:0]))
    assert none.tilt == (0.0, -math.inf, 1)


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


def test_the_verdict_is_that_of_a_linear_program() -> None:
    verdicts = set()
    for number in range(100):
        case = ordinary(number, 7, 1 + number % 3, 3, depth=-0.6)
        least = least_excess(case, np.ones((3, 1)), None)  # the same for all rows
        if abs(least) > 0.02:
            assert (solve(case).tilt.excess <= 1e-9) is bool(least < 0)
            verdicts.add(least < 0)
    assert verdicts == {True, False}


def test_rows_that_cannot_be_kept_are_missed_by_hardly_more_than_the_least() -> None:
    missed = 0
    for number in range(60):
        case = ordinary(number, 7, 1 + number % 3, 4, depth=-1.5)
        answer, least = solve(case), least_excess(case, np.eye(4), 0.0)  # each its own
        over = np.maximum(case.A @ mixed(case, answer.pi) - case.b, 0.0).sum()
        # (1 - eps) KL + cap * excess is least, and KL at most that of the unlikeliest set.
        sums = np.sort(case.z)
        log_z = sums[-case.M :].sum() + math.log(math.comb(7, case.M))
        unlikely = log_z - sums[: case.M].sum()
        assert least - 1e-9 <= over <= least + (1 - case.eps) * unlikely / MAX_MULTIPLIER
        missed += least > 0.1
    assert missed > 30


def test_a_row_of_zeros_that_is_missed_bothers_no_other() -> None:
    case = ordinary(5, 10, 3, 3)
    more = case._replace(A=np.vstack([case.A, np.zeros(10)]), b=np.append(case.b, -0.5))
    answer = solve(more)
    assert_allclose(answer.pi, solve(case).pi, atol=1e-9)
    assert answer.lam[3] == MAX_MULTIPLIER
    assert answer.tilt.excess == 0.5
    assert answer.tilt.residual <= 1e-10


def test_two_opposed_rows_that_cannot_both_be_kept_end_at_the_cap() -> None:
    A, b = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), np.array([0.2, -0.6])
    answer = solve(Case(np.array([0.0, 1.0, 2.0]), A, b, 1, 0.0, np.zeros(3)))
    assert answer.tilt.excess == pytest.approx(0.4, abs=1e-6)
    assert 0.2 - 1e-6 <= answer.pi[0] <= 0.6 + 1e-6
    assert MAX_MULTIPLIER in answer.lam


def test_all_experts_leave_nothing_to_tilt() -> None:
    answer = solve(ordinary(2, 5, 5, 4)._replace(b=np.array([9.0, -9.0, 9.0, -9.0])))
    assert_array_equal(answer.pi, 1.0)
    assert_array_equal(answer.lam, [0.0, MAX_MULTIPLIER, 0.0, MAX_MULTIPLIER])
    assert answer.tilt.residual == 0.0


def test_experts_that_are_down_leave_the_problem_of_the_others() -> None:
    up = np.arange(12) % 4 != 1
    for number in range(20):
        case = ordinary(number, 12, 3, 3)
        case = case._replace(z=np.where(up, case.z, -np.inf), p0=np.where(up, 3 / up.sum(), 0.0))
        whole = solve(case)
        few = np.ascontiguousarray(case.A[:, up])
        part = solve(case._replace(z=case.z[up], A=few, p0=case.p0[up]))
        assert_allclose(whole.pi[up], part.pi, atol=1e-9)
        assert_array_equal(whole.pi[~up], 0.0)
        assert_array_equal(whole.theta[~up], -np.inf)


@LAWS
@given(st.integers(0, 10_000), st.integers(1, 4), st.permutations(range(4)), st.floats(-1e3, 1e3))
def test_order_repetition_and_level_do_not_matter(
    number: int, M: int, order: list[int], level: float
) -> None:
    case = ordinary(number, 8, M, 4)
    here = solve(case)
    again = np.vstack([case.A[order], case.A])
    there = solve(case._replace(z=case.z + level, A=again, b=np.append(case.b[order], case.b)))
    assert_allclose(there.pi, here.pi, atol=1e-8)
    assert_allclose(there.theta - level, here.theta, atol=1e-5)


@LAWS
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_a_law_that_was_projected_stays(number: int, M: int) -> None:
    case = ordinary(number, 8, M, 3)
    here = solve(case)
    there = solve(case._replace(z=here.theta))
    assert_allclose(there.pi, here.pi, atol=1e-8)


def test_the_answer_may_be_written_over_the_question() -> None:
    case = ordinary(4, 9, 2, 3)
    z, pi, lam = case.z.copy(), np.empty(9), np.empty(3)
    kl_project(z, pi, lam, z, *case[1:6])
    assert_array_equal(z, solve(case).theta)


@pytest.mark.parametrize("M", [1, 50])
def test_ten_thousand_experts(M: int) -> None:
    case = ordinary(7, 10_000, M, 5)
    case = case._replace(b=case.A @ (0.9 * chances(case.z, M) + 0.1 * case.p0) - 0.001)
    answer = solve(case)
    assert judge(case, answer) <= 1e-9
    assert answer.lam.max() > 0.001
