"""panel's rounds that are set aside: `distinct` plays them, tells their chances, and logs serve."""

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
from small import five, steady
from test_distinct import SETS, law_of
from test_distributions import ALL_AVAILABLE
from test_evaluation_simulations import WEIGHTS, compute_exact_reward


def narrow() -> Problem:
    """The five under limits that leave little room: work for the guard."""
    limits = [at_most("usd", 2.0), at_least("junior", 0.9), at_least("usd", 1.9)]
    return Problem(five().experts, dict(five().costs), limits, draws=2, period=50)


def test_a_round_that_explores_tells_the_exact_chance_of_its_set_and_no_other_round_any() -> None:
    rule = NoisyOr(explore=0.5).bind(five(), 10_000)
    state, count, wanted = NoisyOr().start(rule), np.zeros(len(SETS)), np.zeros(len(SETS))
    pairs = {tuple(members): n for n, members in enumerate(SETS)}
    told, bare = 0, np.zeros(len(SETS))
    for t in range(6_000):
        ticket: Ticket = decide(rule, state, 0, RngKey(3, t), ALL_AVAILABLE)
        n = pairs[tuple(sorted(ticket.draws.tolist()))]
        learn(rule, state, ticket, 0.9 if n in (0, 3) else 0.4)
        if np.isnan(ticket.propensity) or ticket.replaced:
            assert ticket.inclusion.size == 0
            continue
        here, mild, _ = find_available_distributions(
            rule.explorer, state.explorer, 0, ALL_AVAILABLE
        )
        law = 0.98 * law_of(here.theta) + 0.02 * law_of(mild.theta)
        assert ticket.propensity == pytest.approx(law[n], rel=1e-9)
        assert_allclose(ticket.inclusion, here.pi)
        wanted += law
        bare += law_of(mild.theta)
        count[n] += 1
        told += 1
    assert abs(told - 3_000) < 5 * np.sqrt(1_500)
    assert chisquare(count, wanted).pvalue > 1e-3
    assert chisquare(count, bare).pvalue < 1e-6  # had the law not been learned, it would be noticed


def test_the_law_that_explores_is_moved_by_its_own_rounds_as_if_it_were_alone() -> None:
    rule = NoisyOr(explore=0.4).bind(five(), 2_000)
    alone = Distinct().bind(five(), 2_000)
    state, twin, rng = NoisyOr().start(rule), Distinct().start(alone), np.random.default_rng(0)
    for t in range(1_000):
        ticket = decide(rule, state, 0, RngKey(1, t), ALL_AVAILABLE)
        reward = float(rng.random())
        if not np.isnan(ticket.propensity):
            for mine, its in zip(
                iterate_arrays(state.budget), iterate_arrays(twin.budget), strict=True
            ):
                its[:] = mine  # both have spent the same
            twin.budget.left[:] += 1
            same = decide(alone, twin, 0, RngKey(1, t), ALL_AVAILABLE)
            learn(alone, twin, same, reward)
        learn(rule, state, ticket, reward)
    assert_allclose(state.explorer.gradient.batches, twin.gradient.batches)
    assert state.explorer.visits[0] == twin.visits[0] > 300
    assert state.belief.rewards[0] == 1_000  # the model learns from all of them


@pytest.mark.parametrize("period", [60, 1_000])
def test_one_account_is_kept_whoever_plays(period: int) -> None:
    problem = Problem(five().experts, dict(five().costs), five().limits, draws=2, period=period)
    trace = simulate(problem, steady(), NoisyOr(explore=0.5), rounds=6_000, seed=2)
    for spend in np.split(trace.spend, 6_000 // period):
        assert (problem.signs * (spend.mean(axis=0) - problem.bounds) >= -1e-12).all()


def test_the_estimate_from_rounds_that_explore_is_right_on_average() -> None:
    problem, rounds, off, plain = five(), 400, [], []
    target = make_fixed_size_target(problem, WEIGHTS)
    law = target.distribution(None, ALL_AVAILABLE)
    for seed in range(150):
        play = simulate(problem, steady(), NoisyOr(explore=0.3), rounds=rounds, seed=seed)
        log = log_from_entries(problem, entries_from_trace(play))
        sample = weight_rounds(log, [law])
        told = play.record.propensities > 0
        assert sample.counts.used == told.sum() - (play.record.replaced & told).sum()
        assert sample.counts.unknown_propensity == rounds - told.sum()
        value = compute_exact_reward(law, problem, rounds, seed)
        off.append(float((sample.weights * sample.rewards).mean()) - value)
        plain.append(float(sample.rewards.mean()) - value)
    error = np.std(off, ddof=1) / np.sqrt(len(off))
    assert abs(np.mean(off)) < 4 * error
    assert abs(np.mean(plain)) > 4 * error  # rewards of these rounds as they are would be noticed


def test_a_log_with_enough_of_them_can_be_evaluated_and_one_without_cannot() -> None:
    problem = five()
    play, target = (
        simulate(problem, steady(), NoisyOr(explore=0.5), rounds=4_000, seed=1),
        make_fixed_size_target(problem, WEIGHTS),
    )
    found = evaluate_target(log_from_entries(problem, entries_from_trace(play)), target)
    value = compute_exact_reward(target.distribution(None, ALL_AVAILABLE), problem, 4_000, 1)
    for one in found.estimates:
        assert abs(one.value - value) < 4 * one.error, one.name
    bare = simulate(problem, steady(), "noisy-or", rounds=500, seed=1)
    with pytest.raises(InsufficientOverlap, match=r"500 have no propensity.*explore=0\.02"):
        evaluate_target(
            log_from_entries(problem, entries_from_trace(bare)), make_uniform_target(problem)
        )
    few = simulate(problem, steady(), NoisyOr(explore=0.02), rounds=500, seed=1)
    with pytest.raises(InsufficientOverlap, match=r"never drew.*a larger explore"):
        evaluate_target(log_from_entries(problem, entries_from_trace(few)), target)


def test_panels_replaced_in_rounds_of_the_model_are_nobody_s_draws() -> None:
    play = simulate(
        narrow(), steady(), NoisyOr(explore=0.3), rounds=2_000, seed=1, keep_distributions=False
    )
    told = play.record.propensities > 0
    counted, _ = select_usable_rounds(log_from_entries(narrow(), entries_from_trace(play)))
    assert (play.record.replaced & ~told).sum() > 0
    assert counted.replaced == (play.record.replaced & told).sum() > 0
    assert counted.unknown_propensity == (~told).sum()


def test_a_router_s_decisions_are_logged_the_same_way() -> None:
    router, logged = Router(five(), NoisyOr(explore=0.5), seed=4), []
    for _ in range(60):
        decision = router.decide()
        router.reward(decision.id, 0.5)
        logged.append(entry_from_decision(decision, 0.5, router.policy))
        assert decision.draw_probabilities is None
        assert (decision.inclusion is None) == (decision.propensity is None)
    counted, _ = select_usable_rounds(log_from_entries(five(), logged))
    assert counted.used + counted.unknown_propensity == 60
    assert counted.used > 15


def test_a_saved_router_goes_on_with_both_kinds_of_rounds(tmp_path: Path) -> None:
    router = Router(five(), NoisyOr(explore=0.5), seed=4)
    waiting = [
        router.decide(f"x{n % 3}", None if n % 2 else ["ann", "cat", "eve"]).id for n in range(40)
    ]
    router.save(tmp_path / "router.json")
    twin = Router.load(tmp_path / "router.json")
    for one, other in itertools.product((router, twin), waiting):
        one.reward(other, 0.7)
    assert [router.decide("x1") for _ in range(40)] == [twin.decide("x1") for _ in range(40)]
    for one, other in zip(
        iterate_arrays(router.core.state), iterate_arrays(twin.core.state), strict=True
    ):
        assert (one == other).all()


def test_exploring_always_is_distinct() -> None:
    ours = simulate(five(), steady(), NoisyOr(explore=1.0), rounds=600, seed=0, horizon=600)
    theirs = simulate(five(), steady(), "distinct", rounds=600, seed=0, horizon=600)
    assert (ours.draws == theirs.draws).all()
    assert (ours.record.propensities == theirs.record.propensities).all()
    assert measure_worst_violation(ours) == 0.0
