"""The optimum under the surrogate: compared with other solvers and by its certificate."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import LinearConstraint, linprog, minimize

from bylot.errors import InfeasibleLimits, ProblemError, ValuesError
from bylot.numerics.jit import Floats, Ints
from bylot.optima import IidOptimum, ValueStack, iid_optimum
from bylot.optima.objective import Objective
from bylot.optima.policy_search import Subproblem
from bylot.problem import Limit, Problem, at_least, at_most
from sample_problem import distance_to_box, expected_reward, lemma_1_gradient

CERTIFIED = 1e-8


def make_problem(
    K: int, draws: int, limits: list[Limit], seed: int = 0, unit: float = 1.0
) -> Problem:
    """K experts with a price and a membership in a group."""
    rng = np.random.default_rng(seed)
    costs = {"usd": unit * rng.random(K), "junior": (np.arange(K) % 3 == 0).astype(float)}
    return Problem([f"expert {i}" for i in range(K)], costs, limits, draws=draws)


def make_values(K: int, T: int = 6, N: int = 2, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).random((T, N, K))


def make_limited_problem(K: int, draws: int) -> Problem:
    """A binding budget and a binding share, with room to choose."""
    return make_problem(K, draws, [at_most("usd", 0.44 * draws), at_least("junior", 0.45)])


def assert_certified(problem: Problem, values: Floats, best: IidOptimum, floor: float) -> None:
    """Assert feasibility, value and optimality, with a linear program of the test's own."""
    q = best.policy
    assert q.min() >= floor - 1e-12
    assert_allclose(q.sum(), 1.0, rtol=1e-12)
    assert distance_to_box(problem.box, problem.rows @ q) <= 1e-12 * (
        1 + problem.rows.max(initial=0.0)
    )
    assert_allclose(best.value, expected_reward(q, values, problem.draws), rtol=1e-12, atol=1e-15)
    stack = values.reshape(-1, *values.shape[-2:])
    slope = lemma_1_gradient(q, stack, problem.draws, np.full(len(stack), 1 / len(stack)))
    away = -problem.signs[:, None] * problem.rows
    ends = np.where(problem.signs < 0, problem.box.high, -problem.box.low)
    top = linprog(
        -slope,
        A_ub=away if len(away) else None,
        b_ub=ends if len(away) else None,
        A_eq=np.ones((1, q.size)),
        b_eq=[1.0],
        bounds=(floor, 1),
    )
    assert top.x is not None
    assert slope @ (top.x - q) <= best.gap + 1e-9
    assert best.gap <= CERTIFIED


@pytest.mark.parametrize(("K", "draws"), [(2, 1), (3, 2), (5, 3), (12, 5), (60, 5)])
@pytest.mark.parametrize("floor", [True, False])
def test_the_optimum_is_feasible_and_certified(K: int, draws: int, floor: bool) -> None:
    problem, values = make_limited_problem(K, draws), make_values(K)
    assert_certified(
        problem, values, iid_optimum(problem, values, floor=floor), problem.floor * floor
    )


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((3, 2, 9)),
        np.ones((3, 2, 9)),
        (make_values(9) < 0.5).astype(float),
        np.round(make_values(9) * 2) / 2,
        make_values(3)[..., [0, 0, 0, 1, 1, 1, 2, 2, 2]],
        np.where(make_values(9) < 0.3, 1.0, 1e-6 * make_values(9)),
        make_values(9)[0],
    ],
    ids=["zeros", "ones", "0/1", "ties", "duplicates", "far apart", "one matrix"],
)
def test_values_with_ties_zeros_and_duplicates_are_solved(values: Floats) -> None:
    for limits in ([], [at_most("usd", 0.9), at_least("junior", 0.4)]):
        problem = make_problem(9, 3, limits)
        assert_certified(problem, values, iid_optimum(problem, values, floor=False), 0.0)


def test_a_suboptimal_policy_has_a_large_gap() -> None:
    problem, values = make_limited_problem(5, 3), make_values(5)
    F = Objective((ValueStack(values),), problem.draws)
    polytope = Subproblem(problem, F, np.ones(1), 0.0, 1e-9).surrogate_program().polytope
    best = iid_optimum(problem, values, floor=False)
    for q, wrong in ((best.policy, False), (polytope.feasible[0], True)):  # type: ignore[index]
        value, slope = F.slope(q[None])
        certificate = polytope.certify(q[None], slope)
        assert (certificate.gap > 1e-3) == wrong
        assert value + certificate.gap >= best.value - 1e-12


@pytest.mark.parametrize(("K", "draws"), [(4, 2), (7, 4)])
def test_slsqp_finds_the_same_value(K: int, draws: int) -> None:
    problem, values = make_limited_problem(K, draws), make_values(K)
    away = -problem.signs[:, None] * problem.rows
    ends = np.where(problem.signs < 0, problem.box.high, -problem.box.low)
    found = minimize(
        lambda q, *_, **__: -expected_reward(q, values, draws),
        np.full(K, 1 / K),
        bounds=[(problem.floor, 1.0)] * K,
        constraints=[
            LinearConstraint(np.ones((1, K)), 1.0, 1.0),
            LinearConstraint(away, -np.inf, ends),
        ],
        method="SLSQP",
        tol=1e-12,
    )
    assert_allclose(iid_optimum(problem, values, floor=True).value, -found.fun, atol=1e-7)


def test_no_point_of_a_fine_grid_is_better() -> None:
    problem, values, n = make_limited_problem(3, 2), make_values(3), 200
    best, highest = iid_optimum(problem, values, floor=False), 0.0
    for i, j in itertools.product(range(n + 1), repeat=2):
        q = np.array([i, j, n - i - j]) / n
        if i + j <= n and distance_to_box(problem.box, problem.rows @ q) == 0.0:
            highest = max(highest, expected_reward(q, values, 2))
    assert best.value - 0.02 < highest <= best.value + 1e-12


def test_prices_equal_difference_quotients() -> None:
    def solve_at_bounds(usd: float, junior: float) -> IidOptimum:
        limits = [at_most("usd", usd), at_least("junior", junior)]
        return iid_optimum(make_problem(8, 3, limits), make_values(8), floor=True)

    h, best = 1e-4, solve_at_bounds(0.9, 0.5)
    usd = (solve_at_bounds(0.9 + h, 0.5).value - solve_at_bounds(0.9 - h, 0.5).value) / (2 * h)
    junior = (solve_at_bounds(0.9, 0.5 + h).value - solve_at_bounds(0.9, 0.5 - h).value) / (2 * h)
    assert_allclose(best.prices, [usd, junior], rtol=1e-5)
    assert best.prices[0] > 1e-3
    assert best.prices[1] < -1e-3


def test_the_unit_of_a_cost_does_not_matter() -> None:
    plain = make_problem(8, 3, [at_most("usd", 0.9), at_least("junior", 0.5)])
    cents = make_problem(8, 3, [at_most("usd", 0.9e6), at_least("junior", 0.5)], unit=1e6)
    one, other = (
        iid_optimum(plain, make_values(8), floor=True),
        iid_optimum(cents, make_values(8), floor=True),
    )
    assert_allclose(one.value, other.value, rtol=1e-8)
    assert_allclose(one.prices[0], 1e6 * other.prices[0], rtol=1e-5)


def test_a_problem_without_limits_has_no_prices() -> None:
    problem, values = make_problem(6, 3, []), make_values(6)
    best = iid_optimum(problem, values, floor=False)
    assert_certified(problem, values, best, 0.0)
    assert best.prices.shape == (0,)


def test_a_floor_of_one_over_k_leaves_only_uniform_play() -> None:
    problem, values = make_problem(4, 2, []), make_values(4)
    best = iid_optimum(problem, values, floor=0.25)
    assert_allclose(best.policy, 0.25)
    assert best.gap <= 1e-12


def test_a_lower_floor_is_never_worse() -> None:
    problem, values = make_limited_problem(8, 3), make_values(8, T=1, N=1)
    high, own, none = (iid_optimum(problem, values, floor=f).value for f in (0.05, True, False))
    assert high + 1e-4 < own < none - 1e-4


def test_limits_that_leave_one_policy_give_that_policy() -> None:
    costs = {"a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 0.0]}
    limits = [at_most("a", 0.4), at_least("a", 0.2), at_most("b", 1.0), at_least("b", 0.5)]
    problem = Problem(["x", "y", "z"], costs, limits, draws=2)
    best = iid_optimum(problem, make_values(3), floor=False)
    assert_allclose(best.policy, [0.2, 0.5, 0.3], atol=1e-11)
    assert best.gap <= CERTIFIED


@pytest.mark.parametrize("width", [0.0, 1e-12, 1e-10, 1e-9, 1e-7, 1e-5])
def test_very_thin_feasible_sets_are_solved(width: float) -> None:
    problem = make_problem(9, 3, [at_least("junior", 1.0 - width)])
    values = make_values(9)
    best = iid_optimum(problem, values, floor=False)
    assert_certified(problem, values, best, 0.0)
    only_juniors = iid_optimum(make_problem(9, 3, [at_least("junior", 1.0)]), values, floor=False)
    assert_allclose(best.value, only_juniors.value, atol=10 * width + 2 * CERTIFIED)


def test_the_error_for_an_empty_surrogate_suggests_exact_limits() -> None:
    problem = make_problem(6, 3, [at_least("junior", 1.2)])  # at most 1 in the mean of the draws
    with pytest.raises(InfeasibleLimits, match=r"at_least\('junior', 1.2\).*exact=True"):
        iid_optimum(problem, make_values(6), floor=True)
    assert iid_optimum(problem, make_values(6), exact=True, floor=True).gap <= CERTIFIED


def test_many_rounds_are_solved_from_coarse_to_fine() -> None:
    problem, values = make_limited_problem(5, 3), make_values(5, T=4_100, N=1)
    assert_certified(problem, values, iid_optimum(problem, values, floor=True), problem.floor)


def test_many_nearly_saturated_rounds_are_solved() -> None:
    rng = np.random.default_rng(2)
    values = np.where(rng.random((2, 12)) < 0.4, 1.0, rng.random((4_100, 2, 12)) ** 0.2)
    for problem in (make_limited_problem(12, 5), make_problem(12, 5, [])):
        assert_certified(problem, values, iid_optimum(problem, values, floor=True), problem.floor)


@pytest.mark.parametrize("T", [6, 4_100])
def test_an_optimal_start_is_returned_unchanged(T: int) -> None:
    stack = ValueStack(make_values(10, T))
    unlimited = iid_optimum(make_problem(10, 3, []), stack, floor=True)
    spent = float(make_problem(10, 3, []).costs["usd"] @ unlimited.policy)
    for bound, kept in ((3.03 * spent, True), (2.7 * spent, False)):
        problem = make_problem(10, 3, [at_most("usd", bound)])
        best = iid_optimum(problem, stack, start=unlimited.policy, floor=True)
        assert np.array_equal(best.policy, unlimited.policy) is kept
        assert (best.prices == 0.0).all() == kept
        assert_certified(problem, stack.values, best, problem.floor)


def test_threads_can_share_a_stack() -> None:
    problem, stack = make_limited_problem(10, 3), ValueStack(make_values(10, T=4_100))
    alone = iid_optimum(problem, stack, floor=True)
    with ThreadPoolExecutor(4) as threads:
        for best in threads.map(lambda _: iid_optimum(problem, stack, floor=True), range(8)):
            assert_array_equal(best.policy, alone.policy)


def test_any_start_leads_to_the_same_value() -> None:
    problem, stack = make_limited_problem(10, 3), ValueStack(make_values(10))
    best = iid_optimum(problem, stack, floor=True)
    forbidden = np.eye(10)[3]
    for start in (best.policy, forbidden):
        again = iid_optimum(problem, stack, start=start, floor=True)
        assert_allclose(again.value, best.value, atol=CERTIFIED)
        assert_certified(problem, stack.values, again, problem.floor)


# Contexts


def make_two_contexts(K: int, T: int = 30) -> tuple[Floats, Ints]:
    """Values of two contexts with different good experts, and the context of each round."""
    rng = np.random.default_rng(5)
    kinds = (rng.random(T) < 0.3).astype(np.int64)
    good = np.where(np.arange(K) % 2 == kinds[:, None], 1.0, 0.4)
    return good[:, None, :] * rng.random((T, 2, K)), 7 + 2 * kinds


def test_with_contexts_each_policy_is_the_optimum_of_its_context() -> None:
    problem, (values, kinds) = make_limited_problem(6, 2), make_two_contexts(6)
    both = iid_optimum(problem, values, contexts=kinds, floor=True, each_context=True)
    assert both.contexts is not None
    assert_array_equal(both.contexts, [7, 9])
    total = 0.0
    for row, kind in enumerate([7, 9]):
        alone = iid_optimum(problem, values[kinds == kind], floor=True)
        total += (kinds == kind).mean() * alone.value
        assert_allclose(
            expected_reward(both.policy[row], values[kinds == kind], 2), alone.value, atol=CERTIFIED
        )
    assert_allclose(both.value, total, atol=CERTIFIED)
    assert both.gap <= CERTIFIED


def test_one_budget_for_all_contexts_holds_on_average_and_earns_more() -> None:
    problem, (values, kinds) = make_limited_problem(6, 2), make_two_contexts(6)
    each = iid_optimum(problem, values, contexts=kinds, floor=True, each_context=True)
    shared = iid_optimum(problem, values, contexts=kinds, floor=True)
    without_contexts = iid_optimum(problem, values, floor=True)
    shares = np.array([(kinds == 7).mean(), (kinds == 9).mean()])
    assert distance_to_box(problem.box, problem.rows @ (shares @ shared.policy)) <= 1e-12
    assert shared.gap <= CERTIFIED
    assert shared.value > each.value + 1e-4  # one context uses part of the other's budget
    assert each.value > without_contexts.value + 1e-4
    assert_allclose(
        shared.value,
        sum(
            share * expected_reward(q, values[kinds == kind], 2)
            for share, q, kind in zip(shares, shared.policy, [7, 9], strict=True)
        ),
        rtol=1e-12,
    )


def test_a_single_context_gives_the_optimum_without_contexts() -> None:
    problem, values = make_limited_problem(6, 2), make_values(6)
    plain = iid_optimum(problem, values, floor=True)
    for each_context in (False, True):
        one = iid_optimum(
            problem, values, contexts=np.zeros(6, dtype=int), each_context=each_context, floor=True
        )
        assert one.policy.shape == (1, 6)
        assert_allclose(one.value, plain.value, atol=CERTIFIED)


@settings(deadline=None, derandomize=True, max_examples=12)
@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 4))
def test_each_benchmark_is_at_most_the_next(seed: int, K: int, draws: int) -> None:
    rng = np.random.default_rng(seed)
    values, kinds = rng.random((8, 2, K)), rng.integers(0, 2, 8)
    q = rng.dirichlet(np.ones(K))
    costs = {"a": rng.random(K), "b": rng.random(K)}
    limits = [
        at_most("a", float(1.1 * draws * costs["a"] @ q)),
        at_least("b", float(0.9 * costs["b"] @ q)),
    ]
    problem = Problem([f"e{i}" for i in range(K)], costs, limits, draws=draws)
    without_contexts = iid_optimum(problem, values, floor=False)
    context = iid_optimum(problem, values, floor=False, contexts=kinds, each_context=True)
    shared = iid_optimum(problem, values, floor=False, contexts=kinds)
    unlimited = iid_optimum(
        make_problem(K, draws, []), values, floor=False, contexts=kinds, each_context=True
    )
    chain = [without_contexts, context, shared, unlimited]
    assert all(best.gap <= CERTIFIED for best in chain)
    assert all(a.value <= b.ceiling + 1e-12 for a, b in itertools.pairwise(chain))
    assert without_contexts.value >= expected_reward(q, values, draws) - CERTIFIED
    exact = iid_optimum(
        problem, values, floor=False, exact=True, start=without_contexts.policy, starts=2
    )
    assert without_contexts.value <= exact.value + CERTIFIED
    free = iid_optimum(make_problem(K, draws, []), values, floor=False)
    assert exact.value <= free.ceiling + 1e-12


# Invalid input


def test_values_are_checked() -> None:
    problem = make_problem(3, 2, [])
    with pytest.raises(ValuesError, match="4 experts, the problem has 3"):
        iid_optimum(problem, np.ones((2, 4)), floor=True)
    with pytest.raises(ValuesError, match="shape"):
        ValueStack(np.ones(3))
    for wrong in (-0.1, np.nan, np.inf):
        with pytest.raises(ValuesError, match="range from"):
            ValueStack([[0.5, wrong]])


def test_context_labels_can_be_strings() -> None:
    problem, values = make_problem(3, 2, []), make_values(3)
    named = iid_optimum(
        problem, values, contexts=["b", "a", "b", "a", "b", "a"], floor=True, each_context=True
    )
    numbered = iid_optimum(
        problem, values, contexts=[1, 0, 1, 0, 1, 0], floor=True, each_context=True
    )
    assert named.contexts is not None
    assert named.contexts.tolist() == ["a", "b"]
    np.testing.assert_array_equal(named.policy, numbered.policy)


def test_contexts_start_and_floor_are_checked() -> None:
    problem, values = make_problem(3, 2, []), make_values(3)
    with pytest.raises(ValuesError, match="one whole number or string for each of the 6 rounds"):
        iid_optimum(problem, values, contexts=[0, 1], floor=True, each_context=True)
    with pytest.raises(ValuesError, match="one whole number"):
        iid_optimum(problem, values, contexts=np.zeros(6), floor=True, each_context=True)
    with pytest.raises(ValuesError, match="sum to 1"):
        iid_optimum(problem, values, start=[0.5, 0.2, 0.2], floor=True)
    with pytest.raises(ProblemError, match=r"invalid floor 0\.5: expected"):
        iid_optimum(problem, values, floor=0.5)


def test_inclusion_is_the_probability_of_each_expert_in_each_context() -> None:
    unlimited = Problem(["a", "b"], {}, draws=2)
    alone = iid_optimum(unlimited, [[1.0, 1.0]], start=[0.5, 0.5], floor=True)
    assert_allclose(alone.inclusion(2), [1 - (1 - alone.policy) ** 2])
    several = iid_optimum(
        unlimited, [[[1.0, 0.0]], [[0.0, 1.0]]], contexts=["x", "y"], floor=False, each_context=True
    )
    # A gap of 1e-9 determines q to 1e-9^(1/2) only
    assert_allclose(several.inclusion(2), np.eye(2), atol=1e-4)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(3, 11), st.integers(0, 10**6), st.floats(-11.5, -8.0))
def test_a_corner_with_hardly_any_room_has_its_optimum(size: int, seed: int, room: float) -> None:
    cost, skill, values = np.random.default_rng(seed).random((3, size))
    cost[0], skill[0], values[0] = 1.0, skill.min() / 2, 1.0  # the best is nearly alone feasible
    limits = [at_most("cost", 1.0), at_least("skill", skill[0] + 10.0**room)]
    names = [f"expert {i}" for i in range(size)]
    problem = Problem(names, {"cost": cost, "skill": skill}, limits, draws=1)
    best = iid_optimum(problem, values[None], floor=False)
    assert best.gap <= 1e-9
    assert best.value >= 1.0 - 1e-6
    assert skill @ best.policy >= skill[0] + 10.0**room - 2e-11
