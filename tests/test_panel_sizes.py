"""Panels of min_draws to M members: noisy-or asks fewer where one more is not worth its price."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot import Problem, Router, at_least, at_most, simulate
from bylot.environments import Given
from bylot.errors import PolicyError
from bylot.limits.records import point_to_limits
from bylot.limits.request import admit, compute_least_costs, open_request, point_to
from bylot.limits.rows import ConstraintRows
from bylot.limits.schedule import make_fallback_schedule
from bylot.numerics.jit import Floats
from bylot.numerics.philox import RngKey
from bylot.optima import optimum
from bylot.policies import NoisyOr
from bylot.policies.base import learn, note_played, propose
from bylot.policies.binding import bind_policy, start_policy
from bylot.policies.panel_sizes import find_problem_of_one_size
from bylot.router.edits import change_problem
from limit_tables import open_rows
from sample_problem import make_reward_feedback
from test_distributions import ALL_AVAILABLE

SKILLS = np.array([0.85, 0.8, 0.7, 0.65, 0.5, 0.3, 0.25, 0.2])
PRICES = np.array([2.0, 1.6, 1.3, 1.2, 1.0, 0.3, 0.2, 0.1])
FEE = 1.0  # of every call: a panel of three of the cheapest costs 3.6


def make_problem(budget: float, min_draws: int | None = 1, period: int | None = None) -> Problem:
    """Eight experts, of which the cheap ones know little; each call also costs a fee."""
    names = [f"e{i}" for i in range(SKILLS.size)]
    limits = [at_most("usd", budget), at_least("junior", 0.3)]
    costs = {"usd": PRICES + FEE, "junior": SKILLS < 0.6}
    return Problem(names, costs, limits, draws=3, min_draws=min_draws, period=period)


def make_answers(seed: int, rounds: int = 4_000) -> Floats:
    """Answers that are right or wrong; hard requests are hard for everybody."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(0.0, 1.0, (rounds, 1))
    right = rng.random((rounds, SKILLS.size)) < 1 / (1 + np.exp(-ease) * (1 / SKILLS - 1))
    return right[:, None, :].astype(float)


def count_panel_members(draws: np.ndarray) -> Floats:
    return np.array([len(set(row)) for row in draws.tolist()], float)


@pytest.mark.parametrize("seed", range(3))
def test_fewer_members_earn_more_under_a_tight_budget(seed: int) -> None:
    exact, upto, answers = make_problem(3.9, None), make_problem(3.9), Given(make_answers(seed))
    full, fewer = (
        simulate(problem, answers, "noisy-or", rounds=4_000, seed=seed, horizon=4_000)
        for problem in (exact, upto)
    )
    best_full, best = (
        optimum(exact, answers.values, fewer=smaller).value for smaller in (False, True)
    )
    assert best > best_full + 0.05
    assert fewer.rewards.mean() > best_full > full.rewards.mean()
    sizes = count_panel_members(fewer.draws)
    assert set(sizes) == {1, 2, 3}
    assert (count_panel_members(full.draws) == 3).all()
    for trace in (full, fewer):
        assert trace.spend[:, 0].mean() <= 3.9 + 1e-12
        assert trace.spend[:, 1].mean() >= 0.3 - 1e-12


def test_with_a_loose_budget_panels_are_full_and_nothing_is_lost() -> None:
    means = []
    for seed in range(4):
        answers = Given(make_answers(seed))
        for min_draws in (None, 1):
            problem = make_problem(9.0, min_draws)
            trace = simulate(problem, answers, "noisy-or", rounds=4_000, seed=seed, horizon=4_000)
            means.append(trace.rewards.mean())
            assert count_panel_members(trace.draws).mean() > 2.99
    full, fewer = np.array(means).reshape(-1, 2).T
    assert abs((fewer - full).mean()) < 0.004


@pytest.mark.parametrize("feedback", ["members", "winner"])
def test_panels_of_all_sizes_learn_from_scores_of_members_and_winners(feedback: Any) -> None:
    problem, answers = make_problem(3.9, period=1_000), Given(make_answers(1))
    plain, more = (
        simulate(problem, answers, "noisy-or", rounds=4_000, seed=1, feedback=kind)
        for kind in ("panel", feedback)
    )
    assert more.rewards.mean() > plain.rewards.mean() - 0.01
    assert set(count_panel_members(more.draws)) == {1, 2, 3}
    for spend in np.split(more.spend, 4):
        assert (problem.signs * (spend.mean(axis=0) - problem.bounds) >= -1e-12).all()


@pytest.mark.parametrize("explore", [0.0, 0.3])
@pytest.mark.parametrize(("budget", "min_draws"), [(2.6, 1), (3.0, 2), (3.9, 2)])
def test_limits_hold_in_every_period_with_panels_of_all_sizes(
    budget: float, min_draws: int, explore: float
) -> None:
    problem = make_problem(budget, min_draws, period=200)
    assert (problem.full_conflict is None) == (budget > 3.6)
    policy, answers = NoisyOr(explore=explore), Given(make_answers(7))
    trace = simulate(problem, answers, policy, rounds=4_000, seed=5, keep_distributions=False)
    for spend in np.split(trace.spend, 20):
        assert (problem.signs * (spend.mean(axis=0) - problem.bounds) >= -1e-12).all()
    sizes = count_panel_members(trace.draws)
    assert min_draws == sizes.min() <= sizes.max() <= 3


def test_without_guard_and_pacing_some_periods_break_the_budget() -> None:
    problem, bare = make_problem(2.6, period=200), NoisyOr(guard=False, pace=None)
    trace = simulate(problem, Given(make_answers(7)), bare, rounds=4_000, seed=5)
    assert any(spend[:, 0].mean() > 2.6 for spend in np.split(trace.spend, 20))


def test_fewer_members_earn_nearly_the_most_under_a_tight_budget() -> None:
    lost = []
    for seed in range(8):
        upto, answers = make_problem(3.9), Given(make_answers(seed))
        fewer = simulate(upto, answers, "noisy-or", rounds=4_000, seed=seed, horizon=4_000)
        lost.append(optimum(upto, answers.values, fewer=True).value - fewer.rewards.mean())
    assert np.mean(lost) < 0.04


def test_exploration_draws_panels_of_the_largest_size_that_keeps_the_limits() -> None:
    for budget, size in [(3.9, 3), (3.0, 2), (1.3, 1)]:
        one_size = find_problem_of_one_size(make_problem(budget))
        assert one_size is not None
        assert one_size.draws == size
    problem = make_problem(3.0)
    policy = NoisyOr(explore=0.5)
    bound = start_policy(policy, problem, *bind_policy(policy, problem, 2_000, "panel"), 1)
    rule, state, limits = bound.rule, bound.state, point_to(bound.limits, problem)
    count, expected = np.zeros(8), np.zeros(8)
    answers = make_answers(3, 2_000)
    for t in range(2_000):
        view = open_request(limits, 0, 0, ALL_AVAILABLE)
        ticket = admit(limits, view, propose(rule, state, view, RngKey(3, t)), t)
        note_played(rule, state, view, ticket)
        members = sorted(set(ticket.draws.tolist()))
        learn(rule, state, ticket, make_reward_feedback(answers[t, 0, members].max()))
        if np.isnan(ticket.propensity) or ticket.replaced:
            continue
        assert len(members) == 2
        assert ticket.draws.size == 3
        assert_allclose(ticket.inclusion.sum(), 2.0)
        count[members] += 1
        expected += ticket.inclusion
    spread = np.sqrt(np.maximum(expected, 1.0))
    assert (np.abs(count - expected) < 5 * spread + 0.1 * expected).all()  # eps explores besides


def test_exploration_is_refused_if_no_panels_of_one_size_keep_the_limits() -> None:
    names, costs = ["a", "b", "c"], {"calls": [1.0, 1.0, 1.0]}
    limits = [at_most("calls", 1.6), at_least("calls", 1.4)]
    problem = Problem(names, costs, limits, draws=2, min_draws=1, period=200)
    with pytest.raises(PolicyError, match="no panels of one size from 1 to 2 can keep the limits"):
        Router(problem, "noisy-or:explore=0.1")
    router = Router(problem, "noisy-or")
    sizes = [len(router.decide().subset) for _ in range(200)]
    assert set(sizes) == {1, 2}
    assert 1.4 <= np.mean(sizes) <= 1.6


def test_the_least_cost_of_a_panel_is_that_of_enumeration() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        A, available = rng.normal(0.2, 1.0, (3, 6)), rng.random(6) < 0.8
        if not available.any():
            continue
        fewest, most = sorted(rng.integers(1, 5, 2).tolist())
        pool = np.flatnonzero(available).tolist()
        sizes = range(min(fewest, len(pool)), min(most, len(pool)) + 1)
        panels = [list(one) for m in sizes for one in itertools.combinations(pool, m)]
        expected = np.min([A[:, one].sum(axis=1) for one in panels], axis=0)
        plan = make_fallback_schedule(np.full(6, most / 6), A)
        rule, state = open_rows(ConstraintRows(A, np.full(3, 10.0)), plan, 1_000)
        limits = point_to_limits(rule._replace(fewest=fewest, most=most), state)
        assert_allclose(compute_least_costs(limits, available), expected, atol=1e-12)


def test_an_outage_leaves_at_least_the_fewest_members_if_there_are_as_many() -> None:
    problem = make_problem(3.9, min_draws=2, period=500)
    router, names = Router(problem, "noisy-or", seed=2), problem.experts
    rng = np.random.default_rng(1)
    for t in range(600):
        up = [names[i] for i in sorted(rng.choice(8, 1 + t % 8, replace=False).tolist())]
        decision = router.decide(available=up)
        assert set(decision.subset) <= set(up)
        assert min(2, len(up)) <= len(decision.subset) <= 3
        router.reward(decision.id, 0.5)


def test_a_saved_router_with_small_panels_continues_bit_for_bit(tmp_path: Path) -> None:
    problem = make_problem(3.0, period=400)
    router, answers = Router(problem, "noisy-or:explore=0.2", seed=4), make_answers(5, 300)

    def play(one: Router, t: int) -> tuple[str, ...]:
        decision = one.decide()
        places = [problem.experts.index(name) for name in decision.subset]
        one.reward(decision.id, float(answers[t, 0, places].max()))
        return decision.subset

    for t in range(150):
        play(router, t)
    router.save(tmp_path / "router.bylot")
    again = Router.load(tmp_path / "router.bylot")
    assert again.problem.min_draws == 1
    assert [play(router, t) for t in range(150, 300)] == [play(again, t) for t in range(150, 300)]


def test_a_running_router_may_get_another_minimum() -> None:
    problem, answers = make_problem(3.9, None, period=1_000), make_answers(6, 1_000)
    router, sizes = Router(problem, "noisy-or", seed=4), []
    for t in range(1_000):
        if t == 400:
            drawn = router.core.state.drawn.copy()
            change_problem(router.core, problem.replace(min_draws=1))
            assert_allclose(router.core.state.drawn, drawn)
        decision = router.decide()
        places = [problem.experts.index(name) for name in decision.subset]
        router.reward(decision.id, float(answers[t, 0, places].max()))
        sizes.append(len(places))
    assert set(sizes[:400]) == {3}
    assert np.mean(sizes[400:]) < 2.6
    assert all(limit.kept for limit in router.status().limits)
