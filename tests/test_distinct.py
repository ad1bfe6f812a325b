"""distinct: exact propensities, unbiased gradients, limits that hold at the end of every period."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from bylot import Problem, Router, at_least, at_most, simulate
from bylot.environments import Given, Noisy
from bylot.errors import OutOfReachWarning, PolicyError
from bylot.metrics import measure_worst_violation
from bylot.numerics.jit import Bools, Floats
from bylot.numerics.philox import RngKey
from bylot.policies import Cbwk, Cucb, Distinct, Moe, TsBwk
from bylot.policies.base import Ticket, compute_inclusion, decide, learn
from bylot.policies.distinct import DistinctRule, DistinctState, find_available_distributions
from bylot.policies.mirror_ascent import make_gradient_state
from small import five, steady

ALL = np.empty(0, np.bool_)
SETS = [np.array(members) for members in itertools.combinations(range(5), 2)]


def moved(policy: Distinct, problem: Problem) -> tuple[DistinctRule, DistinctState]:
    """A rule, and a state that has learned for a while."""
    rule = policy.bind(problem, 1_000)
    state, rng = policy.start(rule), np.random.default_rng(2)
    for t in range(300):
        learn(rule, state, decide(rule, state, 0, RngKey(9, t), ALL), float(rng.random() * 0.5))
    return rule, state


def law_of(theta: Floats, up: Bools = ALL) -> Floats:
    """P(A) ~ prod e^theta_i over all pairs, by enumeration."""
    weights = np.array([np.exp(theta[members].sum()) for members in SETS])
    if up.size:
        assert (weights[[not up[members].all() for members in SETS]] == 0).all()
    return np.asarray(weights / weights.sum())


def told(rule: DistinctRule, state: DistinctState, up: Bools = ALL) -> Floats:
    """The chance of every pair, the mildest law mixed in, by enumeration."""
    here, mild, _ = find_available_distributions(rule, state, 0, up)
    return (1 - rule.eps) * law_of(here.theta, up) + rule.eps * law_of(mild.theta, up)


def drawn(rule: DistinctRule, state: DistinctState, t: int, up: Bools = ALL) -> Ticket:
    """A decision that leaves no trace: not the first of a batch, and the account put back."""
    state.visits[0] = 1
    kept = [array.copy() for array in state.budget]
    ticket = decide(rule, state, 0, RngKey(3, t), up)
    for array, before in zip(state.budget, kept, strict=True):
        array[:] = before
    return ticket


@pytest.mark.parametrize(
    "up", [ALL, np.array([True, True, False, True, False])], ids=["all", "some"]
)
def test_a_panel_comes_as_often_as_its_ticket_says(up: Bools) -> None:
    rule, state = moved(Distinct(eps=0.3), five())
    wanted, count = told(rule, state, up), np.zeros(len(SETS))
    pairs = {tuple(members): n for n, members in enumerate(SETS)}
    for t in range(4_000):
        ticket = drawn(rule, state, t, up)
        if not ticket.replaced:
            n = pairs[tuple(sorted(ticket.draws.tolist()))]
            count[n] += 1
            assert ticket.propensity == pytest.approx(wanted[n], rel=1e-10)
    possible = wanted > 0
    assert count.sum() > 3_900
    assert chisquare(count[possible], count.sum() * wanted[possible]).pvalue > 1e-3
    other = law_of(
        find_available_distributions(rule, state, 0, up)[0].theta, up
    )  # without the mixture: would be noticed
    assert chisquare(count[possible], count.sum() * other[possible]).pvalue < 1e-6


def test_the_gradient_is_unbiased() -> None:
    rule, state = moved(Distinct(eps=0.3, batch=1), five())
    rewards = np.random.default_rng(0).random(len(SETS))
    pi, ours = state.pi[0].copy(), law_of(state.theta[0])
    mean, bare = np.zeros(5), make_gradient_state(1, 5)
    state = state._replace(gradient=bare)
    for members, chance, own, reward in zip(SETS, told(rule, state), ours, rewards, strict=True):
        bare.g[:], bare.based[:] = 0.0, True  # a baseline of 0
        ticket = Ticket(0, 0, members, np.empty(0), pi, ALL, 1.0, True, chance, own / chance, False)
        learn(rule, state, ticket, float(reward))
        mean += chance * bare.g[0]
    slope = np.empty(5)
    for i in range(5):
        step = 1e-6 * (np.arange(5) == i)
        up, down = (law_of(state.theta[0] + sign * step) @ rewards for sign in (1, -1))
        slope[i] = (up - down) / 2e-6
    assert_allclose(mean, slope, atol=1e-8)


def test_the_chances_are_those_of_enumeration_and_keep_the_limits_in_force() -> None:
    rule, state = moved(Distinct(), five())
    inside = np.array([[i in members for members in SETS] for i in range(5)], float)
    ticket = drawn(rule, state, 1)
    assert_allclose(compute_inclusion(rule, state, ticket), inside @ told(rule, state), atol=1e-12)
    state.visits[0] = 0  # the next decision moves
    ticket = decide(rule, state, 0, RngKey(3, 5), ALL)
    p = inside @ told(rule, state)
    assert (rule.guard.A @ p <= state.bounds + 1e-9).all()


def test_in_an_outage_the_law_moves_so_that_limits_in_force_are_kept() -> None:
    rule, state = moved(Distinct(), five())
    inside = np.array([[i in members for members in SETS] for i in range(5)], float)
    up = np.array([True, True, False, True, True])
    p = inside @ told(rule, state, up)
    assert p[~up].max() == 0.0
    assert (rule.guard.A @ p <= state.bounds + 1e-9).all()
    alone = law_of(np.where(up, state.theta[0], -np.inf), up)  # renormalised and no more
    assert (rule.guard.A @ (inside @ alone) > state.bounds).any()


@pytest.mark.parametrize("seed", range(4))
def test_limits_are_kept_exactly_at_the_horizon_and_more_is_earned_than_by_omd(seed: int) -> None:
    problem, world = five(), steady()
    ours = simulate(problem, world, "distinct", rounds=3_000, seed=seed, horizon=3_000)
    papers = simulate(problem, world, "omd", rounds=3_000, seed=seed, horizon=3_000)
    assert measure_worst_violation(ours) == 0.0
    assert ours.rewards.mean() > papers.rewards.mean() + 0.02
    assert all(len(set(draws)) == 2 for draws in ours.draws.tolist())


@pytest.mark.parametrize("period", [50, 250, 1_000, None])
def test_without_a_horizon_limits_hold_in_every_period(period: int | None) -> None:
    small = five()
    problem = Problem(small.experts, dict(small.costs), small.limits, draws=2, period=period)
    trace = simulate(problem, steady(), "distinct", rounds=10_000, seed=1, keep_distributions=False)
    for spend in np.split(trace.spend, 10_000 // (period or 5_000)):
        assert (problem.signs * (spend.mean(axis=0) - problem.bounds) >= -1e-12).all()


def test_the_paper_s_policy_breaks_limits_in_such_periods() -> None:
    trace = simulate(five(), steady(), "omd", rounds=10_000, seed=1, keep_distributions=False)
    means = trace.spend.reshape(200, 50, -1).mean(axis=1)
    assert (five().signs * (means - five().bounds) < 0).any()


def test_a_budget_that_full_panels_cannot_keep_is_refused() -> None:
    problem = Problem(["a", "b"], {"usd": [1.0, 1.0]}, [at_most("usd", 1.5)], draws=2)
    with pytest.raises(PolicyError, match="asks 2 different experts every time"):
        Distinct().bind(problem)


def test_a_horizon_too_short_for_the_promise_is_refused() -> None:
    costs, limits = {"a": [1, 0], "b": [0, 1]}, [at_least("a", 0.3), at_least("b", 0.3)]
    problem = Problem(["ann", "bob"], costs, limits, draws=1)
    with pytest.raises(PolicyError, match="use at least 3"):
        Distinct().bind(problem, 2)


def test_outages_leave_a_panel_of_whoever_is_up() -> None:
    router = Router(five(), "distinct", seed=1)
    for available in (["ann", "cat"], ["eve"], ["ann", "bob", "cat", "dan"]):
        for _ in range(30):
            decision = router.decide(available=available)
            assert set(decision.subset) <= set(available)
            assert len(decision.subset) == min(2, len(available))
            assert decision.propensity is not None
            assert 0 < decision.propensity <= 1 + 1e-12
            router.reward(decision.id, 0.5)


def test_a_pool_that_never_tells_apart_forgets_nobody() -> None:
    world, rule = Noisy(np.full((3, 5), 0.5), worth=1 / 3), Distinct().bind(five(), 2_000)
    trace = simulate(five(), world, "distinct", rounds=2_000, seed=0, horizon=2_000)
    assert (trace.record.distributions >= rule.eps * rule.explore.pi / rule.members - 1e-12).all()


def test_a_budget_that_full_panels_cannot_keep_is_warned_of() -> None:
    costs, limits = {"usd": [1.0, 1.0, 1.0]}, [at_most("usd", 1.5)]
    trio = Problem(["ann", "bob", "eve"], costs, limits, draws=2)  # one expert alone would keep it
    assert trio.full_conflict is not None
    for policy in (Cbwk(), TsBwk(), Moe()):
        with pytest.warns(OutOfReachWarning, match="asks 2 different experts every time"):
            policy.bind(trio)
    Cucb().bind(trio)  # knows of no limits, so there is nothing to warn of
    assert five().full_conflict is None


def test_a_set_rarer_than_any_number_is_still_told_and_learned_from() -> None:
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
        assert np.abs(router.core.state.gradient.energy).max() > 0


@pytest.mark.parametrize("policy", ["distinct", "tangent", "strict"])
def test_the_best_of_a_linear_world_is_found_under_limits_on_both_sides(policy: str) -> None:
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


def test_limits_finer_than_thousandths_have_a_rota() -> None:
    costs = {"usd": [40.0, 0.002, 0.01, 0.03], "human": [1.0, 0.0, 0.0, 0.0]}
    limits = [at_least("human", 0.0005), at_most("usd", 0.035)]
    problem = Problem(["human", "a", "b", "c"], costs, limits, draws=1)
    Distinct().bind(problem, 1_000_000)
    with pytest.raises(PolicyError, match="too short"):
        Distinct().bind(problem, 100)


def test_odds_are_those_of_whoever_is_up_also_where_all_are_asked() -> None:
    router = Router(Problem(list("abc"), {"u": [1, 2, 3.0]}, draws=3))
    assert router.decide(available=["a", "c"]).inclusion == {"a": 1.0, "c": 1.0}
