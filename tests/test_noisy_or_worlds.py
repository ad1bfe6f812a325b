"""noisy-or on real outcomes: contexts, large panels, rewards in a part of the declared range."""

from functools import cache

import numpy as np
import pytest

import hospital
from bound_policies import make_ticket
from bylot import Problem, at_most, simulate
from bylot.environments import Given
from bylot.numerics.jit import Floats, Ints
from bylot.outcome_tables.outcomes import read_experts
from bylot.policies import NoisyOr
from bylot.policies.base import learn
from sample_problem import make_reward_feedback

QUESTION_USD = 0.0047653  # per request: the cheapest panel, and 35 % of the way to the best one


@cache
def make_question_problem() -> Problem:
    """3 of 39 models for one question, under one budget."""
    read = hospital.read_outcome_table()
    usd = read_experts(hospital.find_folder() / "experts.csv", read.experts)["cost_usd_per_call"]
    return Problem(read.experts, {"usd": usd}, [at_most("usd", QUESTION_USD)], draws=3)


def draw_questions(rounds: int, seed: int) -> tuple[Floats, Ints]:
    """Which models answer random questions right, and the specialties of these."""
    read = hospital.read_outcome_table()
    chosen = np.random.default_rng(seed).integers(0, len(read.table), rounds)
    return np.nan_to_num(read.table)[chosen][:, None, :], np.asarray(read.dimension)[chosen]


def play(problem: Problem, environment: Given, policy: str, seed: int, high: float = 1.0) -> float:
    """The mean reward, if the declared range ends at `high`."""
    rounds = len(environment.values)
    trace = simulate(
        problem,
        environment,
        policy,
        rounds=rounds,
        seed=seed,
        horizon=rounds,
        rewards=(0.0, high),
        keep_distributions=False,
    )
    return float(trace.rewards.mean())


def test_specialties_earn_more_than_ignoring_them_and_a_thousand_labels_cost_little() -> None:
    problem, found = make_question_problem(), []
    for seed in range(40):  # fewer do not tell: the difference is 0.002, 0.009 a seed
        values, specialty = draw_questions(10_000, seed)
        labels = np.random.default_rng(seed).permutation(np.arange(10_000) % 1_000)
        found.append(
            [
                play(problem, environment, "noisy-or", seed)
                for environment in (
                    Given(values),
                    Given(values, specialty),
                    Given(values, labels),
                )
            ]
        )
    ignored, pooled, many = np.mean(found, axis=0)
    assert pooled > max(ignored, 0.815)
    assert many > ignored - 0.01  # a belief per context plays at random: 0.77


@pytest.mark.parametrize("seed", range(2))
def test_panels_of_fifteen_learn_as_well_as_distinct(seed: int) -> None:
    three = hospital.make_problem()
    limits = [type(one)(one.cost, 5 * one.bound, one.sign) for one in three.limits]
    problem = Problem(three.experts, dict(three.costs), limits, draws=15)
    environment = Given(hospital.make_environment().rounds(0, 10_000, seed).values)
    noisy_or, distinct = (
        play(problem, environment, name, seed) for name in ("noisy-or", "distinct")
    )
    assert noisy_or > distinct - 0.005


def test_rewards_in_a_small_part_of_the_declared_range_are_learned_as_well() -> None:
    problem, found = hospital.make_problem(), []
    for seed in range(3):
        environment = Given(hospital.make_environment().rounds(0, 10_000, seed).values)
        found.append([play(problem, environment, "noisy-or", seed, high) for high in (1.0, 20.0)])
    right, narrow = np.mean(found, axis=0)
    assert narrow > right - 0.006  # with the declared scale: 0.04 less


def test_a_half_life_follows_a_slow_change_that_raises_no_alarm() -> None:
    problem, rng, only = (
        Problem(["a", "b"], {}, draws=1),
        np.random.default_rng(0),
        np.zeros(1, np.int64),
    )
    rules = [NoisyOr(forget=forget).bind(problem) for forget in (None, 100)]
    states = [NoisyOr().start(rule) for rule in rules]
    ticket = make_ticket(only)
    for n in range(4_000):
        reward = float(rng.random() > 0.1 + 0.3 * n / 4_000)  # misses rise from 0.1 to 0.4
        for rule, state in zip(rules, states, strict=True):
            learn(rule, state, ticket, make_reward_feedback(reward))
    kept, faded = (float(np.exp(state.belief.beta[0])) for state in states)
    assert faded == pytest.approx(0.4, abs=0.07)
    assert kept < 0.32  # without one it lags behind
