"""distinct: exact propensities, unbiased gradients, limits that hold at the end of every period."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from bound_policies import ALL_AVAILABLE, PolicyAtWork
from bylot import Problem, Router, at_least, at_most, simulate
from bylot.environments import Given, Noisy
from bylot.errors import OutOfReachWarning, PolicyError
from bylot.limits.request import Ticket
from bylot.metrics import measure_worst_violation
from bylot.numerics.jit import Bools, Floats
from bylot.numerics.philox import RngKey
from bylot.policies import Distinct
from bylot.policies.base import compute_inclusion, learn
from bylot.policies.distinct import find_available_distributions
from bylot.policies.mirror_ascent import make_gradient_state
from bylot_paper.policies.bandits import Cbwk, Cucb, Moe, TsBwk
from sample_problem import (
    make_five_expert_problem,
    make_reward_feedback,
    make_stationary_environment,
)

SETS = [np.array(members) for members in itertools.combinations(range(5), 2)]


def train_policy(policy: Distinct, problem: Problem) -> PolicyAtWork:
    """Return a policy that has learned for a while."""
    play = PolicyAtWork(policy, problem, 1_000)
    rng = np.random.default_rng(2)
    for t in range(300):
        play.learn(play.decide(RngKey(9, t)), float(rng.random() * 0.5))
    return play


def set_probabilities(theta: Floats, available: Bools = ALL_AVAILABLE) -> Floats:
    """P(A) ~ prod e^theta_i over all pairs, by enumeration."""
    weights = np.array([np.exp(theta[members].sum()) for members in SETS])
    if available.size:
        assert (weights[[not available[members].all() for members in SETS]] == 0).all()
    return np.asarray(weights / weights.sum())


def compute_propensities(play: PolicyAtWork, available: Bools = ALL_AVAILABLE) -> Floats:
    """The propensity of every pair under the mixture with max entropy, by enumeration."""
    view = play.see(available=available)
    learned, max_entropy, _ = find_available_distributions(play.rule, play.state, view)
    eps: float = play.rule.eps
    return (1 - eps) * set_probabilities(learned.theta, available) + eps * set_probabilities(
        max_entropy.theta, available
    )


def draw_ticket(play: PolicyAtWork, t: int, available: Bools = ALL_AVAILABLE) -> Ticket:
    """A decision without side effects: not the first of a batch, and what was spent restored."""
    play.state.visits[0] = play.state.shared.decisions[0] = 1
    play.state.moved[0] = 0
    return play.draw(RngKey(3, t), available=available)


@pytest.mark.parametrize(
    "available", [ALL_AVAILABLE, np.array([True, True, False, True, False])], ids=["all", "some"]
)
def test_panels_are_drawn_with_their_propensity(available: Bools) -> None:
    play = train_policy(Distinct(eps=0.3), make_five_expert_problem())
    expected, count = compute_propensities(play, available), np.zeros(len(SETS))
    pairs = {tuple(members): n for n, members in enumerate(SETS)}
    for t in range(4_000):
        ticket = draw_ticket(play, t, available)
        if not ticket.replaced:
            n = pairs[tuple(sorted(ticket.draws.tolist()))]
            count[n] += 1
            assert ticket.propensity == pytest.approx(expected[n], rel=1e-10)
    possible = expected > 0
    assert count.sum() > 3_900
    assert chisquare(count[possible], count.sum() * expected[possible]).pvalue > 1e-3
    # A distribution without the mixture would be noticed
    view = play.see(available=available)
    learned, _, _ = find_available_distributions(play.rule, play.state, view)
    other = set_probabilities(learned.theta, available)
    assert chisquare(count[possible], count.sum() * other[possible]).pvalue < 1e-6


def test_the_gradient_is_unbiased() -> None:
    play = train_policy(Distinct(eps=0.3, batch=1), make_five_expert_problem())
    state = play.state
    rewards = np.random.default_rng(0).random(len(SETS))
    pi, distinct = state.pi[0].copy(), set_probabilities(state.theta[0])
    mean, all_contexts, own = np.zeros(5), make_gradient_state(1, 5), make_gradient_state(1, 5)
    state = state._replace(shared=state.shared._replace(gradient=all_contexts), gradient=own)
    values = np.array([0.3, -0.2, 0.1, 0.0, 0.4])
    state.shared.belief.values[0], state.shared.belief.trust[0] = values, 0.7
    for members, propensity, learned_probability, reward in zip(
        SETS, compute_propensities(play), distinct, rewards, strict=True
    ):
        all_contexts.g[:], own.based[:] = 0.0, True  # a baseline of 0
        ticket = Ticket(
            0,
            0,
            members,
            np.empty(0),
            pi,
            ALL_AVAILABLE,
            1.0,
            True,
            propensity,
            learned_probability / propensity,
            False,
        )
        learn(play.rule, state, ticket, make_reward_feedback(float(reward)))
        mean += propensity * all_contexts.g[0]
    inside = np.array([[i in members for members in SETS] for i in range(5)], float)
    covariance = inside @ np.diag(distinct) @ inside.T - np.outer(pi, pi)
    mean += 0.7 * covariance @ values  # the gradient of what was predicted
    slope = np.empty(5)
    for i in range(5):
        step = 1e-6 * (np.arange(5) == i)
        plus, minus = (
            set_probabilities(state.theta[0] + sign * step) @ rewards for sign in (1, -1)
        )
        slope[i] = (plus - minus) / 2e-6
    assert_allclose(mean, slope, atol=1e-8)


def test_inclusion_equals_enumeration_and_keeps_the_limits_in_force() -> None:
    play = train_policy(Distinct(), make_five_expert_problem())
    inside = np.array([[i in members for members in SETS] for i in range(5)], float)
    ticket = draw_ticket(play, 1)
    assert_allclose(
        compute_inclusion(play.rule, play.state, play.see(), ticket),
        inside @ compute_propensities(play),
        atol=1e-12,
    )
    rule, state = play.limits
    play.state.visits[0] = play.state.shared.decisions[0] = 0  # the next decision makes a step
    state.clock["asked"] = 0
    state.bounds[:] = np.nan
    play.decide(RngKey(3, 5))
    p = inside @ compute_propensities(play)
    assert (rule.A @ p <= state.bounds + 1e-9).all()


def test_in_an_outage_the_distribution_is_projected_onto_the_limits() -> None:
    play = train_policy(Distinct(), make_five_expert_problem())
    inside = np.array([[i in members for members in SETS] for i in range(5)], float)
    available = np.array([True, True, False, True, True])
    p = inside @ compute_propensities(play, available)
    rule, state = play.limits
    assert p[~available].max() == 0.0
    assert (rule.A @ p <= state.bounds + 1e-9).all()
    # Only renormalised
    alone = set_probabilities(np.where(available, play.state.theta[0], -np.inf), available)
    assert (rule.A @ (inside @ alone) > state.bounds).any()


@pytest.mark.parametrize("seed", range(4))
def test_limits_hold_at_the_horizon_and_rewards_exceed_those_of_omd(seed: int) -> None:
    problem, environment = make_five_expert_problem(), make_stationary_environment()
    distinct = simulate(problem, environment, "distinct", rounds=3_000, seed=seed, horizon=3_000)
    omd = simulate(problem, environment, "omd", rounds=3_000, seed=seed, horizon=3_000)
    assert measure_worst_violation(distinct) == 0.0
    assert distinct.rewards.mean() > omd.rewards.mean() + 0.02
    assert all(len(set(draws)) == 2 for draws in distinct.draws.tolist())


@pytest.mark.parametrize("period", [50, 250, 1_000, None])
def test_without_a_horizon_limits_hold_in_every_period(period: int | None) -> None:
    problem_without_period = make_five_expert_problem()
    problem = Problem(
        problem_without_period.experts,
        dict(problem_without_period.costs),
        problem_without_period.limits,
        draws=2,
        period=period,
    )
    trace = simulate(
        problem,
        make_stationary_environment(),
        "distinct",
        rounds=10_000,
        seed=1,
        keep_distributions=False,
    )
    for spend in np.split(trace.spend, 10_000 // (period or 5_000)):
        assert (problem.signs * (spend.mean(axis=0) - problem.bounds) >= -1e-12).all()


def test_omd_breaks_limits_in_such_periods() -> None:
    trace = simulate(
        make_five_expert_problem(),
        make_stationary_environment(),
        "omd",
        rounds=10_000,
        seed=1,
        keep_distributions=False,
    )
    means = trace.spend.reshape(200, 50, -1).mean(axis=1)
    assert (
        make_five_expert_problem().signs * (means - make_five_expert_problem().bounds) < 0
    ).any()


def test_a_budget_that_full_panels_cannot_keep_is_refused() -> None:
    problem = Problem(["a", "b"], {"usd": [1.0, 1.0]}, [at_most("usd", 1.5)], draws=2)
    with pytest.raises(PolicyError, match="asks 2 different experts every time"):
        Distinct().bind(problem)


def test_a_horizon_that_is_too_short_for_the_guard_is_refused() -> None:
    costs, limits = {"a": [1, 0], "b": [0, 1]}, [at_least("a", 0.3), at_least("b", 0.3)]
    problem = Problem(["ann", "bob"], costs, limits, draws=1)
    with pytest.raises(PolicyError, match="use at least 3"):
        Distinct().bind(problem, 2)


def test_in_outages_panels_have_available_experts_only() -> None:
    router = Router(make_five_expert_problem(), "distinct", seed=1)
    for available in (["ann", "cat"], ["eve"], ["ann", "bob", "cat", "dan"]):
        for _ in range(30):
            decision = router.decide(available=available)
            assert set(decision.subset) <= set(available)
            assert len(decision.subset) == min(2, len(available))
            assert decision.propensity is not None
            assert 0 < decision.propensity <= 1 + 1e-12
            router.reward(decision.id, 0.5)


def test_every_expert_keeps_a_minimum_probability() -> None:
    environment, rule = (
        Noisy(np.full((3, 5), 0.5), worth=1 / 3),
        Distinct().bind(make_five_expert_problem(), 2_000),
    )
    trace = simulate(
        make_five_expert_problem(), environment, "distinct", rounds=2_000, seed=0, horizon=2_000
    )
    assert (trace.record.distributions >= rule.eps * rule.explore.pi / rule.members - 1e-12).all()


def test_a_budget_that_full_panels_cannot_keep_gives_a_warning() -> None:
    costs, limits = {"usd": [1.0, 1.0, 1.0]}, [at_most("usd", 1.5)]
    trio = Problem(["ann", "bob", "eve"], costs, limits, draws=2)  # one expert alone would keep it
    assert trio.full_conflict is not None
    for policy in (Cbwk(), TsBwk(), Moe()):
        with pytest.warns(OutOfReachWarning, match="asks 2 different experts every time"):
            policy.bind(trio)
    Cucb().bind(trio)  # does not use limits, so there is no warning
    assert make_five_expert_problem().full_conflict is None


def test_a_set_of_tiny_propensity_is_recorded_and_learned_from() -> None:
    K, rng = 1_200, np.random.default_rng(0)
    problem = Problem([f"e{i}" for i in range(K)], {"usd": rng.random(K)}, draws=400)
    for name in ("distinct", "tangent"):
        router = Router(problem, name, seed=1)
        for _ in range(30):
            decision = router.decide()
            assert decision.propensity is not None
            assert 0 < decision.propensity < 1e-280
            router.reward(decision.id, float(rng.random()))
        assert np.isfinite(router.core.state.theta).all()
        state = router.core.state
        slope = state.shared.gradient if name == "distinct" else state.gradient
        assert slope.energy.max() > 0


@pytest.mark.parametrize("policy", ["distinct", "tangent", "strict"])
def test_the_linear_optimum_is_found_under_limits_on_both_sides(policy: str) -> None:
    worth = np.array([[0.339, 0.585, 0.589, 0.565, 0.552, 0.341]])
    costs = {"u": [1.96, 3.17, 3.30, 1.57, 2.21, 1.47], "g": [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]}
    problem = Problem(list("abcdef"), costs, [at_most("u", 2.05), at_least("g", 0.2)], draws=1)
    trace = simulate(problem, Given(np.tile(worth, (60_000, 1, 1))), policy, rounds=60_000, seed=1)
    assert trace.rewards[-20_000:].mean() == pytest.approx(0.5271, abs=1.5e-3)


@pytest.mark.parametrize("policy", ["distinct", "tangent", "strict"])
def test_a_budget_far_below_the_largest_price_is_kept_in_expectation(policy: str) -> None:
    prices = np.array([100.0, 0.001, 0.002])
    problem = Problem(["human", "x", "y"], {"usd": prices}, [at_most("usd", 0.0015)], draws=1)
    values = np.tile(np.array([[0.9, 0.2, 0.8]]), (3_000, 1, 1))
    trace = simulate(problem, Given(values), policy, rounds=3_000, seed=0, horizon=3_000)
    over = trace.record.distributions[~trace.record.replaced] @ prices
    assert np.mean(over > 0.0015 * 1.25 * (1 + 1e-6)) == 0.0
    assert trace.record.replaced.mean() < 0.05


def test_limits_finer_than_thousandths_have_a_fallback_schedule() -> None:
    costs = {"usd": [40.0, 0.002, 0.01, 0.03], "human": [1.0, 0.0, 0.0, 0.0]}
    limits = [at_least("human", 0.0005), at_most("usd", 0.035)]
    problem = Problem(["human", "a", "b", "c"], costs, limits, draws=1)
    Distinct().bind(problem, 1_000_000)
    with pytest.raises(PolicyError, match="too short"):
        Distinct().bind(problem, 100)


def test_inclusion_is_1_if_all_available_experts_are_asked() -> None:
    router = Router(Problem(list("abc"), {"u": [1, 2, 3.0]}, draws=3))
    assert router.decide(available=["a", "c"]).inclusion == {"a": 1.0, "c": 1.0}
