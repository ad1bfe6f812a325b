"""The optimum under exact expected costs: feasible, as good as SLSQP finds, below the ceiling."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize

from bylot.errors import InfeasibleLimits
from bylot.numerics.iid_sets import expected_panel_costs
from bylot.numerics.jit import Floats
from bylot.optima import IidOptimum, iid_optimum
from bylot.optima.policy_search import ExactCosts
from bylot.problem import Limit, Problem, at_least, at_most
from sample_problem import expected_reward


def make_problem(K: int, draws: int, limits: list[Limit], seed: int = 0) -> Problem:
    """K experts whose price grows with their skill, and a group."""
    rng = np.random.default_rng(seed)
    costs = {"usd": rng.random(K) + np.linspace(1, 0, K), "junior": np.arange(K) % 3 == 0}
    return Problem([f"expert {i}" for i in range(K)], costs, limits, draws=draws)


def make_values(K: int, T: int = 4, seed: int = 1) -> Floats:
    """The first experts are the best."""
    return np.random.default_rng(seed).random((T, 2, K)) * np.linspace(1, 0.3, K)


def room_under_limits(problem: Problem, q: Floats) -> Floats:
    """Expected room under each limit; negative if it is violated."""
    costs = expected_panel_costs(q, np.array(problem.rows), problem.draws)
    room: Floats = problem.signs * (costs - problem.bounds)
    return room


def solve_by_slsqp(problem: Problem, values: Floats, starts: int) -> float:
    """The best that SLSQP finds from random starts."""
    K, best, rng = problem.size, 0.0, np.random.default_rng(2)
    for _ in range(starts):
        found = minimize(
            lambda q, *_, **__: -expected_reward(q, values, problem.draws),
            rng.dirichlet(np.full(K, 0.5)),
            bounds=[(0.0, 1.0)] * K,
            constraints=[
                LinearConstraint(np.ones((1, K)), 1.0, 1.0),
                NonlinearConstraint(lambda q: room_under_limits(problem, q), 0.0, np.inf),
            ],
            method="SLSQP",
            tol=1e-10,
        )
        if room_under_limits(problem, found.x).min() > -1e-7 and abs(found.x.sum() - 1) < 1e-8:
            best = max(best, -float(found.fun))
    return best


@pytest.mark.parametrize("K", [3, 6])
def test_the_optimum_keeps_the_limits_and_is_as_good_as_slsqp_finds(K: int) -> None:
    problem, values = (
        make_problem(K, 3, [at_most("usd", 1.6), at_least("junior", 0.8)]),
        make_values(K),
    )
    best = iid_optimum(problem, values, exact=True, floor=False)
    assert room_under_limits(problem, best.policy).min() >= 0.0
    assert best.policy.min() >= 0.0
    assert_allclose(best.policy.sum(), 1.0, rtol=1e-12)
    assert_allclose(best.value, expected_reward(best.policy, values, 3), rtol=1e-12)
    assert best.value >= solve_by_slsqp(problem, values, starts=5) - 1e-7
    assert best.spread >= 0.0
    assert best.starts >= 1


def test_a_start_below_the_floor_ends_above_it() -> None:
    problem, values = make_problem(6, 3, [at_most("usd", 1.8)]), make_values(6)
    for start in np.eye(6)[::2]:
        best = iid_optimum(problem, values, exact=True, start=start, starts=1, floor=True)
        assert best.policy.min() >= problem.floor - 1e-12
        assert best.value <= best.ceiling
        assert room_under_limits(problem, best.policy).min() >= 0.0


def test_the_search_uses_the_given_start_and_no_more_than_the_requested_starts() -> None:
    problem, values = make_problem(6, 3, [at_most("usd", 1.8)]), make_values(6)
    given = iid_optimum(problem, values, exact=True, start=np.full(6, 1 / 6), starts=1, floor=True)
    assert given.starts == 2  # the given one and the maximum of the relaxation
    assert iid_optimum(problem, values, exact=True, starts=3, floor=True).starts == 3


def test_no_point_of_a_grid_is_better_or_above_the_ceiling() -> None:
    problem, values = (
        make_problem(3, 3, [at_most("usd", 1.6), at_least("junior", 0.8)]),
        make_values(3),
    )
    best, highest, n = iid_optimum(problem, values, exact=True, floor=False), 0.0, 100
    for i, j in itertools.product(range(n + 1), repeat=2):
        q = np.array([i, j, n - i - j]) / n
        if i + j <= n and room_under_limits(problem, q).min() >= 0.0:
            highest = max(highest, expected_reward(q, values, 3))
    assert best.value - 0.02 < highest <= best.value + 1e-7
    assert highest <= best.ceiling


def test_the_surrogate_is_never_better() -> None:
    problem, values = (
        make_problem(8, 3, [at_most("usd", 2.4), at_least("junior", 0.5)]),
        make_values(8),
    )
    for floor in (True, False):
        inner = iid_optimum(problem, values, floor=floor)
        exact = iid_optimum(problem, values, floor=floor, exact=True, starts=3)
        assert room_under_limits(problem, inner.policy).min() >= 0.0
        assert exact.value > inner.value + 1e-4


def test_lower_limits_alone_leave_a_convex_set_and_a_certified_optimum() -> None:
    limits = [at_least("junior", 1.3), at_least("usd", 1.5)]
    problem, values = make_problem(9, 4, limits), make_values(9)
    with pytest.raises(InfeasibleLimits):
        iid_optimum(problem, values, floor=True)
    best = iid_optimum(problem, values, exact=True, floor=True)
    assert room_under_limits(problem, best.policy).min() >= 0.0
    assert best.gap <= 1e-8
    assert (best.starts, best.spread) == (1, 0.0)
    assert best.prices[0] < -1e-3


def test_many_minimum_shares_empty_the_surrogate_but_not_the_limits() -> None:
    names = [f"e{i}" for i in range(6)]
    costs = {name: np.eye(6)[i] for i, name in enumerate(names)}
    limits = [at_least(name, 0.3) for name in names]  # six times 0.3 of one request
    problem, values = Problem(names, costs, limits, draws=4), make_values(6)
    with pytest.raises(InfeasibleLimits, match="exact=True"):
        iid_optimum(problem, values, floor=True)
    best = iid_optimum(problem, values, exact=True, floor=True)
    assert room_under_limits(problem, best.policy).min() >= 0.0
    assert best.gap <= 1e-8


def test_one_draw_makes_the_exact_costs_linear() -> None:
    problem, values = (
        make_problem(7, 1, [at_most("usd", 0.9), at_least("junior", 0.3)]),
        make_values(7),
    )
    exact, plain = (
        iid_optimum(problem, values, exact=True, floor=True),
        iid_optimum(problem, values, floor=True),
    )
    assert_allclose(exact.value, plain.value, atol=1e-8)
    assert exact.gap <= 1e-8
    assert exact.starts == 1


def test_without_limits_exact_and_surrogate_agree() -> None:
    problem, values = make_problem(7, 3, []), make_values(7)
    assert_allclose(
        iid_optimum(problem, values, exact=True, floor=True).value,
        iid_optimum(problem, values, floor=True).value,
        atol=1e-8,
    )


def test_prices_equal_difference_quotients() -> None:
    def solve_at_bounds(usd: float, junior: float) -> IidOptimum:
        limits = [at_most("usd", usd), at_least("junior", junior)]
        return iid_optimum(
            make_problem(6, 3, limits), make_values(6), exact=True, starts=1, floor=True
        )

    h, best = 1e-3, solve_at_bounds(1.6, 1.1)
    usd = (solve_at_bounds(1.6 + h, 1.1).value - solve_at_bounds(1.6 - h, 1.1).value) / (2 * h)
    junior = (solve_at_bounds(1.6, 1.1 + h).value - solve_at_bounds(1.6, 1.1 - h).value) / (2 * h)
    assert_allclose(best.prices, [usd, junior], rtol=1e-3, atol=1e-6)
    assert best.prices[0] > 1e-2


def test_contexts_can_share_one_budget() -> None:
    problem, values = make_problem(5, 3, [at_most("usd", 1.8)]), make_values(5, T=8)
    contexts = np.arange(8) % 2
    each = iid_optimum(
        problem, values, exact=True, contexts=contexts, starts=3, floor=True, each_context=True
    )
    shared = iid_optimum(
        problem, values, exact=True, contexts=contexts, starts=3, start=each.policy, floor=True
    )
    spent = np.mean([expected_panel_costs(q, np.array(problem.rows), 3)[0] for q in shared.policy])
    assert spent <= 1.8
    assert shared.value >= each.value - 1e-8
    assert each.value <= each.ceiling


def test_the_same_seed_gives_the_same_search() -> None:
    problem, values = make_problem(5, 3, [at_most("usd", 1.7)]), make_values(5)
    one, two = (iid_optimum(problem, values, exact=True, seed=4, floor=True) for _ in range(2))
    assert (one.value, one.spread, list(one.policy)) == (two.value, two.spread, list(two.policy))


def test_limits_that_no_fixed_policy_keeps_are_named_in_the_error() -> None:
    # One expert of each kind in every request is easy for a policy that picks sets, but two
    # independent draws come out equal half of the time.
    costs = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    problem = Problem(["x", "y"], costs, [at_least("a", 0.9), at_least("b", 0.9)], draws=2)
    with pytest.raises(InfeasibleLimits, match="no fixed policy"):
        iid_optimum(problem, np.ones((1, 2)), exact=True, floor=True)


@pytest.mark.parametrize("floor", [0.0, 0.02])
def test_chords_lie_below_and_tangents_above(floor: float) -> None:
    problem = make_problem(6, 4, [at_most("usd", 1.6), at_most("junior", 0.7)])
    costs = ExactCosts.of(problem, np.ones(1), floor)
    rows, bounds = costs.chords()
    rng, seen = np.random.default_rng(3), 0
    for _ in range(8_000):
        q = floor + (1 - 6 * floor) * rng.dirichlet(np.full(6, 0.4))[None]
        if (costs.excess(q) <= 0).all():
            seen += 1
            assert (rows @ q[0] <= bounds + 1e-12).all()
            steep, ends = costs.tangents(q, costs.upper)
            assert_allclose(ends - steep @ q[0], -costs.excess(q) * costs.units, atol=1e-12)
    assert seen > 100
