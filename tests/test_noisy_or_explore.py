"""Exploration rounds of noisy-or: `distinct` plays them with propensities, so logs can be used."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare

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
from bylot.metrics import measure_worst_violation
from bylot.numerics.philox import RngKey
from bylot.policies import Distinct, NoisyOr
from bylot.policies.base import Ticket, decide, learn
from bylot.policies.distinct import find_available_distributions
from bylot.router.core import iterate_arrays
from sample_problem import (
    make_five_expert_problem,
    make_reward_feedback,
    make_stationary_environment,
)
from test_distinct import SETS, set_probabilities
from test_distributions import ALL_AVAILABLE
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


def test_only_exploration_rounds_record_the_exact_propensity_of_their_set() -> None:
    rule = NoisyOr(explore=0.5).bind(make_five_expert_problem(), 10_000)
    state, count, expected = NoisyOr().start(rule), np.zeros(len(SETS)), np.zeros(len(SETS))
    pairs = {tuple(members): n for n, members in enumerate(SETS)}
    recorded_count, max_entropy_expected = 0, np.zeros(len(SETS))
    for t in range(6_000):
        ticket: Ticket = decide(rule, state, 0, RngKey(3, t), ALL_AVAILABLE)
        n = pairs[tuple(sorted(ticket.draws.tolist()))]
        learn(rule, state, ticket, make_reward_feedback(0.9 if n in (0, 3) else 0.4))
        if np.isnan(ticket.propensity) or ticket.replaced:
            assert ticket.inclusion.size == 0
            continue
        learned, max_entropy, _ = find_available_distributions(
            rule.explorer, state.explorer, 0, ALL_AVAILABLE
        )
        probabilities = 0.98 * set_probabilities(learned.theta) + 0.02 * set_probabilities(
            max_entropy.theta
        )
        assert ticket.propensity == pytest.approx(probabilities[n], rel=1e-9)
        assert_allclose(ticket.inclusion, learned.pi)
        expected += probabilities
        max_entropy_expected += set_probabilities(max_entropy.theta)
        count[n] += 1
        recorded_count += 1
    assert abs(recorded_count - 3_000) < 5 * np.sqrt(1_500)
    assert chisquare(count, expected).pvalue > 1e-3
    # A distribution that is not learned would be noticed
    assert chisquare(count, max_entropy_expected).pvalue < 1e-6


def test_the_exploring_distribution_learns_from_its_own_rounds_only() -> None:
    rule = NoisyOr(explore=0.4).bind(make_five_expert_problem(), 2_000)
    alone_rule = Distinct().bind(make_five_expert_problem(), 2_000)
    state, alone_state, rng = (
        NoisyOr().start(rule),
        Distinct().start(alone_rule),
        np.random.default_rng(0),
    )
    for t in range(1_000):
        ticket = decide(rule, state, 0, RngKey(1, t), ALL_AVAILABLE)
        reward = float(rng.random())
        if not np.isnan(ticket.propensity):
            for ours_array, alone_array in zip(
                iterate_arrays(state.budget), iterate_arrays(alone_state.budget), strict=True
            ):
                alone_array[:] = ours_array  # both have spent the same
            alone_state.budget.left[:] += 1
            alone_ticket = decide(alone_rule, alone_state, 0, RngKey(1, t), ALL_AVAILABLE)
            learn(alone_rule, alone_state, alone_ticket, make_reward_feedback(reward))
        learn(rule, state, ticket, make_reward_feedback(reward))
    assert_allclose(state.explorer.gradient.batches, alone_state.gradient.batches)
    assert state.explorer.visits[0] == alone_state.visits[0] > 300
    assert state.belief.rewards[0] == 1_000  # the model learns from all of them


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
    router.save(tmp_path / "router.json")
    alone_state = Router.load(tmp_path / "router.json")
    for one, other in itertools.product((router, alone_state), waiting):
        one.reward(other, 0.7)
    assert [router.decide("x1") for _ in range(40)] == [alone_state.decide("x1") for _ in range(40)]
    for one, other in zip(
        iterate_arrays(router.core.state), iterate_arrays(alone_state.core.state), strict=True
    ):
        assert (one == other).all()


def test_noisy_or_that_always_explores_equals_distinct() -> None:
    noisy_or = simulate(
        make_five_expert_problem(),
        make_stationary_environment(),
        NoisyOr(explore=1.0),
        rounds=600,
        seed=0,
        horizon=600,
    )
    distinct = simulate(
        make_five_expert_problem(),
        make_stationary_environment(),
        "distinct",
        rounds=600,
        seed=0,
        horizon=600,
    )
    assert (noisy_or.draws == distinct.draws).all()
    assert (noisy_or.record.propensities == distinct.record.propensities).all()
    assert measure_worst_violation(noisy_or) == 0.0
