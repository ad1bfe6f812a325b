"""Exploration rounds of noisy-or: drawn from a fixed distribution, so that logs can be used."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.stats import chisquare

from bound_policies import ALL_AVAILABLE, PolicyAtWork
from bylot import Problem, Router, at_least, at_most, simulate
from bylot.errors import InsufficientOverlap
from bylot.evaluate import (
    entries_from_trace,
    entry_from_decision,
    evaluate_target,
    log_from_entries,
    make_fixed_size_target,
    make_uniform_target,
)
from bylot.evaluate.importance_weights import select_usable_rounds, weight_rounds
from bylot.limits.rows import BOUND_TIGHTENING
from bylot.metrics import measure_worst_violation
from bylot.numerics.jit import Bools, Floats
from bylot.numerics.philox import EXPLORE_STREAM, RngKey, draw_uniforms
from bylot.policies import Distinct, NoisyOr
from bylot.policies.base import compute_inclusion
from bylot.router.core import iterate_arrays
from sample_problem import make_five_expert_problem, make_stationary_environment
from test_distinct import SETS, set_probabilities
from test_evaluation_simulations import WEIGHTS, compute_exact_reward


def make_tight_problem() -> Problem:
    """Five experts under tight limits, so the guard acts."""
    limits = [at_most("usd", 2.0), at_least("junior", 0.9), at_least("usd", 1.9)]
    return Problem(
        make_five_expert_problem().experts,
        dict(make_five_expert_problem().costs),
        limits,
        draws=2,
        period=50,
    )


SOME_AVAILABLE = np.array([True, True, False, True, True])


def is_exploration_round(key: RngKey, explore: float) -> bool:
    """By the first uniform of its stream."""
    return bool(draw_uniforms(key, EXPLORE_STREAM, 1)[0] < explore)


def compute_exploration(play: PolicyAtWork, available: Bools) -> Floats:
    """The probability of every pair in an exploration round, by enumeration."""
    theta = play.rule.sets.theta
    return set_probabilities(
        np.where(available, theta, -np.inf) if available.size else theta, available
    )


def compute_negative_entropy(p: Floats) -> float:
    return float(p @ np.log(p))


def compute_entropy_slope(p: Floats) -> Floats:
    return np.asarray(1.0 + np.log(p))


def test_exploration_is_the_maximum_entropy_distribution_inside_the_limits() -> None:
    """Limits are tightened by a twentieth, so that panels of exploration do not exhaust them."""
    problem = make_five_expert_problem()
    play = PolicyAtWork(NoisyOr(explore=0.5), problem, 10_000)
    inside = np.array([[i in members for members in SETS] for i in range(5)], float)
    rule = play.limits.rule
    tight = rule.rows["bound"] - BOUND_TIGHTENING * np.abs(rule.rows["bound"])
    pairs = rule.A @ inside
    found = compute_exploration(play, ALL_AVAILABLE)
    assert (pairs @ found <= tight + 1e-9).all()
    constraints: Any = [
        {"type": "eq", "fun": lambda p: p.sum() - 1.0},
        {"type": "ineq", "fun": lambda p: tight - pairs @ p},
    ]
    best = minimize(
        compute_negative_entropy,
        np.full(len(SETS), 0.1),
        jac=compute_entropy_slope,
        bounds=[(1e-9, 1.0)] * len(SETS),
        constraints=constraints,
        tol=1e-14,
    )
    assert best.success
    assert_allclose(found, best.x, atol=1e-6)
    # Equal probabilities would break a limit
    assert (pairs @ np.full(len(SETS), 0.1) > tight).any()


@pytest.mark.parametrize("available", [ALL_AVAILABLE, SOME_AVAILABLE], ids=["all", "some"])
def test_only_exploration_rounds_record_the_exact_propensity_of_their_set(
    available: Bools,
) -> None:
    play = PolicyAtWork(NoisyOr(explore=0.5), make_five_expert_problem(), 10_000)
    expected = compute_exploration(play, available)
    inside = np.array([[i in members for members in SETS] for i in range(5)], float)
    inclusion = inside @ expected
    pairs = {tuple(members): n for n, members in enumerate(SETS)}
    count = np.zeros(len(SETS))
    replaced = 0
    for t in range(6_000):
        key = RngKey(3, t)
        ticket = play.decide(key, available=available)
        n = pairs[tuple(sorted(ticket.draws.tolist()))]
        play.learn(ticket, 0.9 if n in (0, 3) else 0.4)
        explores = is_exploration_round(key, 0.5)
        assert np.isnan(ticket.propensity) == (not explores)
        if not explores:
            assert ticket.inclusion.size == 0
        elif ticket.replaced:
            assert ticket.propensity == 1.0
            replaced += 1
        else:
            assert ticket.propensity == pytest.approx(expected[n], rel=1e-9)
            assert_allclose(ticket.inclusion, inclusion, atol=1e-12)
            view = play.see(available=available)
            of_experts = compute_inclusion(play.rule, play.state, view, ticket)
            assert_allclose(of_experts, inclusion, atol=1e-12)
            assert ticket.weight == 1.0
            count[n] += 1
    possible = expected > 0
    assert abs(count.sum() + replaced - 3_000) < 5 * np.sqrt(1_500)
    assert count.sum() > 2_900
    assert count[~possible].sum() == 0
    assert chisquare(count[possible], count.sum() * expected[possible]).pvalue > 1e-3
    # Equally likely sets would be noticed
    assert chisquare(count[possible]).pvalue < 1e-6


@pytest.mark.parametrize(
    "available",
    [np.array([True, False, False, True, False]), np.array([False, False, False, False, True])],
    ids=["a pair", "one expert"],
)
def test_exploration_asks_all_experts_if_there_is_no_choice(available: Bools) -> None:
    play = PolicyAtWork(NoisyOr(explore=1.0), make_five_expert_problem(), 10_000)
    for t in range(20):
        ticket = play.decide(RngKey(3, t), available=available)
        assert set(ticket.draws) == set(np.flatnonzero(available))
        assert ticket.propensity == pytest.approx(1.0, abs=1e-12)
        assert_allclose(ticket.inclusion, available.astype(float), atol=1e-12)


def test_the_exploring_distribution_learns_nothing_and_the_model_learns_from_all_rounds() -> None:
    plays = [
        PolicyAtWork(NoisyOr(explore=0.4), make_five_expert_problem(), 2_000) for _ in range(2)
    ]
    before = [array.copy() for array in iterate_arrays(plays[0].rule.sets)]
    rng = np.random.default_rng(0)
    same = 0
    for t in range(1_000):
        key = RngKey(1, t)
        moves = [int(play.state.dual_prices.moves[0]) for play in plays]
        tickets = [play.decide(key) for play in plays]
        u = float(rng.random())
        for play, ticket, reward, was in zip(plays, tickets, (u, u**3), moves, strict=True):
            moved = play.state.dual_prices.moves[0] - was
            if t % play.rule.batch:  # else a rehearsal moves prices
                assert moved == (not is_exploration_round(key, 0.4) and not ticket.replaced)
            play.learn(ticket, reward)
        if is_exploration_round(key, 0.4) and not any(ticket.replaced for ticket in tickets):
            assert_array_equal(tickets[0].draws, tickets[1].draws)
            assert tickets[0].propensity == tickets[1].propensity
            same += 1
    assert same > 300
    assert_array_equal([play.state.belief.rewards[0] for play in plays], 1_000)
    assert np.abs(plays[0].state.belief.beta - plays[1].state.belief.beta).max() > 0.1
    for play in plays:
        for array, kept in zip(iterate_arrays(play.rule.sets), before, strict=True):
            assert_array_equal(array, kept)


def test_other_rounds_are_those_of_noisy_or_without_exploration() -> None:
    """From the same state, what is played, learned and priced is the same to the last bit."""
    problem = make_tight_problem()
    play, alone = (PolicyAtWork(NoisyOr(explore=explore), problem) for explore in (0.4, 0.0))
    rng = np.random.default_rng(0)
    compared = 0
    replaced = 0
    for t in range(500):
        key = RngKey(1, t)
        for ours, theirs in list_arrays(play, alone):
            theirs[:] = ours
        ticket = play.decide(key)
        reward = float(rng.random())
        play.learn(ticket, reward)
        if not is_exploration_round(key, 0.4):
            other = alone.decide(key)
            alone.learn(other, reward)
            for ours, theirs in zip(ticket, other, strict=True):
                assert_array_equal(ours, theirs)
            for ours, theirs in list_arrays(play, alone):
                assert_array_equal(ours, theirs)
            compared += 1
            replaced += ticket.replaced
    assert compared > 250
    assert replaced > 0


def list_arrays(play: PolicyAtWork, other: PolicyAtWork) -> Iterator[tuple[Any, Any]]:
    """The arrays of both, of policy and limits."""
    yield from zip(iterate_arrays(play.state), iterate_arrays(other.state), strict=True)
    both = play.limits.state, other.limits.state
    yield from zip(*map(iterate_arrays, both), strict=True)


@pytest.mark.parametrize("period", [60, 1_000])
def test_limits_hold_over_both_kinds_of_rounds(period: int) -> None:
    problem = Problem(
        make_five_expert_problem().experts,
        dict(make_five_expert_problem().costs),
        make_five_expert_problem().limits,
        draws=2,
        period=period,
    )
    trace = simulate(
        problem, make_stationary_environment(), NoisyOr(explore=0.5), rounds=6_000, seed=2
    )
    for spend in np.split(trace.spend, 6_000 // period):
        assert (problem.signs * (spend.mean(axis=0) - problem.bounds) >= -1e-12).all()


def test_the_estimate_from_exploration_rounds_is_unbiased() -> None:
    problem, rounds, errors, naive_errors = make_five_expert_problem(), 400, [], []
    target = make_fixed_size_target(problem, WEIGHTS)
    probabilities = target.distribution(None, ALL_AVAILABLE)
    for seed in range(150):
        play = simulate(
            problem, make_stationary_environment(), NoisyOr(explore=0.3), rounds=rounds, seed=seed
        )
        log = log_from_entries(problem, entries_from_trace(play))
        sample = weight_rounds(log, [probabilities])
        has_propensity = play.record.propensities > 0
        assert (
            sample.counts.used
            == has_propensity.sum() - (play.record.replaced & has_propensity).sum()
        )
        assert sample.counts.unknown_propensity == rounds - has_propensity.sum()
        value = compute_exact_reward(probabilities, problem, rounds, seed)
        errors.append(float((sample.weights * sample.rewards).mean()) - value)
        naive_errors.append(float(sample.rewards.mean()) - value)
    error = np.std(errors, ddof=1) / np.sqrt(len(errors))
    assert abs(np.mean(errors)) < 4 * error
    assert abs(np.mean(naive_errors)) > 4 * error  # unweighted rewards would be noticed


def test_a_log_can_be_evaluated_only_with_enough_exploration() -> None:
    problem = make_five_expert_problem()
    play, target = (
        simulate(
            problem, make_stationary_environment(), NoisyOr(explore=0.5), rounds=4_000, seed=1
        ),
        make_fixed_size_target(problem, WEIGHTS),
    )
    found = evaluate_target(log_from_entries(problem, entries_from_trace(play)), target)
    value = compute_exact_reward(target.distribution(None, ALL_AVAILABLE), problem, 4_000, 1)
    for one in found.estimates:
        assert abs(one.value - value) < 4 * one.error, one.name
    max_entropy_expected = simulate(
        problem, make_stationary_environment(), "noisy-or", rounds=500, seed=1
    )
    with pytest.raises(InsufficientOverlap, match=r"500 have no propensity.*explore=0\.02"):
        evaluate_target(
            log_from_entries(problem, entries_from_trace(max_entropy_expected)),
            make_uniform_target(problem),
        )
    rarely_explored = simulate(
        problem, make_stationary_environment(), NoisyOr(explore=0.02), rounds=500, seed=1
    )
    with pytest.raises(InsufficientOverlap, match=r"never drew.*a larger explore"):
        evaluate_target(log_from_entries(problem, entries_from_trace(rarely_explored)), target)


def test_replaced_panels_of_model_rounds_count_as_unknown_propensity() -> None:
    play = simulate(
        make_tight_problem(),
        make_stationary_environment(),
        NoisyOr(explore=0.3),
        rounds=2_000,
        seed=1,
        keep_distributions=False,
    )
    has_propensity = play.record.propensities > 0
    counts, _ = select_usable_rounds(
        log_from_entries(make_tight_problem(), entries_from_trace(play))
    )
    assert (play.record.replaced & ~has_propensity).sum() > 0
    assert counts.replaced == (play.record.replaced & has_propensity).sum() > 0
    assert counts.unknown_propensity == (~has_propensity).sum()


def test_decisions_of_a_router_record_propensities_in_exploration_rounds() -> None:
    router, entries = Router(make_five_expert_problem(), NoisyOr(explore=0.5), seed=4), []
    for _ in range(60):
        decision = router.decide()
        router.reward(decision.id, 0.5)
        entries.append(entry_from_decision(decision, 0.5, router.policy))
        assert decision.draw_probabilities is None
        assert (decision.inclusion is None) == (decision.propensity is None)
    counts, _ = select_usable_rounds(log_from_entries(make_five_expert_problem(), entries))
    assert counts.used + counts.unknown_propensity == 60
    assert counts.used > 15


def test_a_saved_router_continues_with_both_kinds_of_rounds(tmp_path: Path) -> None:
    router = Router(make_five_expert_problem(), NoisyOr(explore=0.5), seed=4)
    waiting = [
        router.decide(f"x{n % 3}", None if n % 2 else ["ann", "cat", "eve"]).id for n in range(40)
    ]
    router.save(tmp_path / "router.bylot")
    alone_state = Router.load(tmp_path / "router.bylot")
    for one, other in itertools.product((router, alone_state), waiting):
        one.reward(other, 0.7)
    assert [router.decide("x1") for _ in range(40)] == [alone_state.decide("x1") for _ in range(40)]
    for one, other in zip(
        iterate_arrays(router.core.state), iterate_arrays(alone_state.core.state), strict=True
    ):
        assert (one == other).all()


def test_noisy_or_that_always_explores_equals_the_exploration_of_distinct() -> None:
    always = Distinct(eps=1 - 2**-53)
    traces = [
        simulate(
            make_five_expert_problem(),
            make_stationary_environment(),
            policy,
            rounds=600,
            seed=0,
            horizon=600,
        )
        for policy in (NoisyOr(explore=1.0), always)
    ]
    noisy_or, distinct = traces
    assert (noisy_or.draws == distinct.draws).all()
    assert_allclose(noisy_or.record.propensities, distinct.record.propensities, rtol=1e-12)
    assert measure_worst_violation(noisy_or) == 0.0
