"""strict: the safe set is safe and as large as possible; played distributions never leave it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hospital
from bylot import Problem, Router, at_least, at_most, simulate
from bylot.environments import Given
from bylot.errors import PolicyError
from bylot.limits.rows import ConstraintRows, make_constraint_rows
from bylot.metrics import measure_worst_violation
from bylot.numerics.iid_sets import expected_panel_costs
from bylot.numerics.jit import Floats
from bylot_paper.policies.strict import (
    Strict,
    find_safe_lower_bound,
    find_safe_upper_bound,
    make_safe_rows,
    maximize_priced_cost,
)
from sample_problem import make_five_expert_problem, make_stationary_environment

prices = st.lists(st.one_of(st.just(0.0), st.floats(0.05, 1.0)), min_size=2, max_size=6).filter(any)


def draw_distributions(size: int, count: int, seed: int) -> Floats:
    """Distributions of all kinds: even ones, nearly single experts, pairs."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.dirichlet(np.full(size, a), count) for a in (0.05, 0.3, 1.0, 10.0)])


@given(prices, st.floats(0.05, 1.0), st.integers(2, 6), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_distributions_inside_the_half_space_of_an_upper_limit_keep_it(
    costs: list[float], bound: float, M: int, seed: int
) -> None:
    c = np.array(costs) / max(costs)
    u = bound * min(M, c.sum())
    b = find_safe_upper_bound(c, u, M)
    assert b >= u / M * (1 - 1e-12)  # the paper's bound is stricter
    q = draw_distributions(c.size, 200, seed)
    h = np.array([expected_panel_costs(one, c[None], M)[0] for one in q])
    assert (h[q @ c <= b] <= u + 1e-9).all()
    if b < c.max() * (1 - 1e-6):  # and slightly beyond it a distribution breaks the limit
        mu = 1.0
        while c @ maximize_priced_cost(c, mu, M) <= b * (1 + 1e-6):
            mu *= 1.01
        expensive = maximize_priced_cost(c, mu, M)
        expensive[c == 0] += (1 - expensive.sum()) / max(1, (c == 0).sum())
        assert expected_panel_costs(expensive, c[None], M)[0] > u


@given(prices, st.floats(0.05, 0.95), st.integers(2, 6), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_distributions_inside_the_half_space_of_a_lower_limit_keep_it(
    costs: list[float], bound: float, M: int, seed: int
) -> None:
    c = np.array(costs) / max(costs)
    b = find_safe_lower_bound(c, bound, M)
    assert b <= bound  # the paper's bound is stricter
    q = draw_distributions(c.size, 200, seed)
    h = np.array([expected_panel_costs(one, c[None], M)[0] for one in q])
    assert (h[q @ c >= b] >= bound - 1e-9).all()


def test_a_looser_half_space_would_not_be_safe() -> None:
    c, u, M = np.array([1.0, 0.5, 0.0]), 0.6, 3
    b = find_safe_upper_bound(c, u, M)
    q = draw_distributions(3, 20_000, seed=0)
    h = np.array([expected_panel_costs(one, c[None], M)[0] for one in q])
    assert b > 1.15 * u / M
    assert (h[q @ c <= 1.05 * b] > u).any()


def test_a_row_of_many_different_costs_has_the_paper_s_lower_bound() -> None:
    assert find_safe_lower_bound(np.linspace(0, 1, 1_000), 0.3, 4) == 0.3


def test_twelve_minimum_shares_fit_into_the_safe_set_but_not_into_the_paper_s() -> None:
    problem = hospital.make_problem()
    assert problem.surrogate_conflict is not None
    rule = Strict().bind(problem)
    assert (rule.safe.A @ rule.explore <= rule.safe.b + 1e-9).all()


def test_a_lower_limit_that_one_expert_cannot_reach_is_refused() -> None:
    groups = {"g": [1, 1, 1, 0, 0, 0]}
    problem = Problem(list("abcdef"), groups, [at_least("g", 1.2)], draws=3)
    with pytest.raises(PolicyError, match="use 'tangent'"):
        Strict().bind(problem)


def test_limits_that_no_fixed_set_keeps_are_refused() -> None:
    experts, groups = [f"e{i}" for i in range(4)], np.eye(4)
    limits = [at_least(f"g{i}", 0.7) for i in range(4)]
    costs = {f"g{i}": groups[i] for i in range(4)}
    problem = Problem(experts, costs, limits, draws=3)
    with pytest.raises(PolicyError, match="use 'tangent'"):
        Strict().bind(problem)


def test_every_played_distribution_keeps_the_exact_limits() -> None:
    problem = make_five_expert_problem()
    trace = simulate(
        problem, make_stationary_environment(), "strict", rounds=3_000, seed=3, horizon=3_000
    )
    rows = make_constraint_rows(problem)
    for q in trace.record.distributions[::10]:
        assert (expected_panel_costs(q, rows.A, problem.draws) <= rows.b + 1e-9).all()
    assert not trace.record.replaced.any()


def test_strict_adapts_to_an_adversarial_environment() -> None:
    """Every 500 rounds the best expert becomes the worst; rewards come near the best fixed q."""
    rounds, K = 12_000, 5
    values = np.full((rounds, 1, K), 0.2)
    for t in range(rounds):
        values[t, 0, (t // 500) % 2] = 0.9
    problem = Problem(
        [f"e{i}" for i in range(K)], {"usd": np.ones(K)}, [at_most("usd", 2)], draws=2
    )
    trace = simulate(problem, Given(values), "strict", rounds=rounds, seed=0, horizon=rounds)
    best_fixed = 0.2 + 0.7 * 0.75  # half of the mass on each of the two
    assert trace.rewards.mean() > best_fixed - 0.05


def test_the_guard_can_be_enabled() -> None:
    problem = Problem(["a", "b"], {"usd": [0.0, 1.0]}, [at_most("usd", 0.5)], draws=2)
    values = np.zeros((400, 1, 2))
    values[:, 0, 1] = 1.0
    traces = [
        simulate(problem, Given(values), Strict(guard=guard), rounds=400, seed=s, horizon=400)
        for guard in (False, True)
        for s in range(8)
    ]
    assert any(measure_worst_violation(trace) > 0 for trace in traces[:8])
    assert all(measure_worst_violation(trace) == 0 for trace in traces[8:])
    assert any(trace.record.replaced.any() for trace in traces[8:])


def test_a_bound_of_0_has_a_price() -> None:
    costs = {"usd": [0.0, 1.0, 0.0]}
    problem = Problem(["a", "b", "c"], costs, [at_most("usd", 0.0)], draws=2)
    router = Router(problem, "strict", seed=1)
    for _ in range(40):
        decision = router.decide()
        router.reward(decision.id, 0.5 + 0.3 * ("a" in decision.subset))
    assert router.status().limits[0].price is not None


def test_rows_keep_their_sides() -> None:
    rows = ConstraintRows(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([0.75, -0.75]))
    np.testing.assert_allclose(make_safe_rows(rows, 2).b, [0.5, -0.5], atol=1e-12)
