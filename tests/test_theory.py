"""The theorems, measured: regret under its bound and R2 falling to zero.

In a stationary and in a drifting environment; the bounds are small enough here to mean something
(rewards lie in [0, 1]).
"""

import numpy as np
import pytest

from bound_policies import PolicyAtWork
from bylot import Problem, Score, at_least, at_most, iid_optimum, score, simulate
from bylot.environments import Drifting, Environment, Given, Noisy
from bylot.metrics import compute_running_violations
from bylot.numerics.philox import RngKey
from bylot.policies import Omd
from bylot.theory import theorem_1
from bylot.trace import Trace
from sample_problem import distance_to_box

T = 40_000
# Equal shares break both limits: half of the mass is on expensive experts, a quarter on juniors.
EIGHT = Problem(
    [
        "expensive 1",
        "expensive 2",
        "expensive 3",
        "expensive 4",
        "fair 1",
        "fair 2",
        "junior 1",
        "junior 2",
    ],
    {"usd": [1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 0.0, 0.0], "junior": [0, 0, 0, 0, 0, 0, 1, 1]},
    [at_most("usd", 0.7), at_least("junior", 0.5)],
    draws=2,
    floor=0.05,
)
SKILLS = np.array(
    [[0.9, 0.7, 0.2, 0.3, 0.5, 0.2, 0.3, 0.1], [0.2, 0.9, 0.8, 0.1, 0.4, 0.6, 0.2, 0.3]]
)
ENVIRONMENTS: dict[str, Environment] = {
    "stationary": Noisy(SKILLS, worth=1 / 2),
    "drifting": Drifting(dimensions=1, size=8, period=T / 7),
}
DUAL_STEP = 0.01


def play_algorithm_1(environment: str, seed: int) -> tuple[Trace, Score]:
    """Run Algorithm 1 as the theorems state it, and score it."""
    trace = simulate(
        EIGHT, ENVIRONMENTS[environment], Omd.plain(DUAL_STEP), rounds=T, seed=seed, horizon=T
    )
    return trace, score(trace, ENVIRONMENTS[environment].rounds(0, T, seed).values)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_regret_and_violation_stay_under_theorems_1_and_2(environment: str) -> None:
    results = [play_algorithm_1(environment, seed)[1] for seed in range(2)]
    assert all(one.applies and one.best.gap <= 1e-8 for one in results)
    assert results[0].regret_bound < 0.3  # the bound is not vacuous
    assert np.mean([one.regret for one in results]) <= results[0].regret_bound
    assert np.mean([one.violation for one in results]) <= results[0].violation_bound


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_violation_falls_to_zero(environment: str) -> None:
    # One draw, so that the surrogate is the limit itself, without a margin.
    limits = [at_most("usd", 0.35), at_least("junior", 0.5)]
    one_draw = Problem(EIGHT.experts, dict(EIGHT.costs), limits, draws=1, floor=0.05)
    traces = [
        simulate(one_draw, ENVIRONMENTS[environment], Omd.plain(), rounds=T, seed=seed, horizon=T)
        for seed in range(8)
    ]
    path = np.mean([compute_running_violations(trace) for trace in traces], axis=0)
    assert path[999] > 0.002
    assert path[9_999] < path[999] / 4
    assert path[-1] < path[999] / 10


def test_without_the_dual_the_limits_would_be_broken() -> None:
    unlimited = Problem(EIGHT.experts, dict(EIGHT.costs), draws=2, floor=0.05)
    trace = simulate(unlimited, ENVIRONMENTS["stationary"], Omd.plain(), rounds=T, horizon=T)
    spend = [EIGHT.rows[:, np.unique(draws)].sum(axis=1) for draws in trace.draws]
    assert distance_to_box(EIGHT.target, np.mean(spend, axis=0)) > 0.02


STAR = Problem(["star", "b", "c", "d"], {}, draws=1, floor=0.05)


def compute_star_regret(reversed_rewards: bool) -> tuple[float, float]:
    """R1 and its bound where one expert is worth 1 and the others nothing.

    A policy that learns from the opposite of every reward is the control.
    """
    play = PolicyAtWork(Omd.plain(), STAR, T)
    values = np.zeros((T, 1, 4))
    values[:, :, 0] = 1.0
    earned = 0.0
    for t in range(T):
        ticket = play.decide(RngKey(1, t))
        reward = float(ticket.draws[0] == 0)
        shown = 1 - reward if reversed_rewards else reward
        play.learn(ticket, shown)
        earned += play.state.q[0, 0] / T
    return iid_optimum(STAR, values[0], floor=True).value - earned, theorem_1(T, 4, 1, 0.05)


def test_the_bound_of_theorem_1_holds_for_learning_and_not_for_its_opposite() -> None:
    regret, bound = compute_star_regret(reversed_rewards=False)
    assert 0 < regret <= bound
    regret, bound = compute_star_regret(reversed_rewards=True)
    assert regret > 4 * bound


def make_contextual_environment(rounds: int, contexts: int) -> Given:
    """Context x has its own best expert; contexts are drawn at random."""
    rng = np.random.default_rng(8)
    index = rng.integers(0, contexts, rounds)
    means = rng.random((contexts, 2, 8)) / 2
    return Given(means[index] * rng.random((rounds, 1, 1)) ** 0.2, index)


def test_contextual_regret_stays_under_the_corollary() -> None:
    environment = make_contextual_environment(T, contexts=4)
    trace = simulate(EIGHT, environment, Omd.plain(), rounds=T, seed=2)
    result = score(trace, environment.values)
    assert result.theorem == "Corollary"
    assert 0 < result.regret <= result.regret_bound < 1
    # One budget for all contexts allows more than a budget for each.
    assert result.aggregate > result.regret + 0.01
    assert result.violation <= result.violation_bound


def test_a_policy_that_does_not_learn_has_at_least_twice_the_regret() -> None:
    _, learned = play_algorithm_1("stationary", seed=0)
    constant = simulate(
        EIGHT, ENVIRONMENTS["stationary"], Omd(eta=1e12, batch=1, baseline=False), rounds=T
    )
    constant_score = score(constant, ENVIRONMENTS["stationary"].rounds(0, T, 0).values)
    assert learned.regret < constant_score.regret / 2
