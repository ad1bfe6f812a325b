"""Visits to a table of outcomes: every question of a dimension is asked equally often, and the
expected reward is known exactly.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import hospital
from bylot.environments import Outcomes
from bylot.numerics.jit import Floats, Ints
from bylot.optima import ValueStack, iid_optimum
from bylot.problem import Problem
from bylot.simulation import simulate

DIMENSION = np.array([1, 0, 1, 2, 0, 1, 1])  # in no order, as in a file
TABLE = np.random.default_rng(0).random((7, 4))
ENVIRONMENT = Outcomes(TABLE, DIMENSION)
Q = np.array([0.4, 0.3, 0.2, 0.1])


def test_a_round_is_one_row_of_each_dimension_and_worth_a_share_of_one() -> None:
    rows = ENVIRONMENT.draw_questions(100, 900, seed=1)
    assert_array_equal(DIMENSION[rows], np.broadcast_to([0, 1, 2], (800, 3)))
    assert_array_equal(ENVIRONMENT.rounds(100, 900, seed=1).values, TABLE[rows] * (1 / 3))
    assert_array_equal(
        Outcomes(TABLE, DIMENSION, worth=2.0).rounds(0, 9, 1).values[:, 2], 2 * TABLE[[3] * 9]
    )
    assert ENVIRONMENT.shape == (3, 4)


def test_blanks_count_as_0_and_tables_are_copied() -> None:
    table = np.array([[1.0, np.nan], [np.nan, 0.5]])
    environment = Outcomes(table, [0, 1])
    table[:] = np.inf
    assert_array_equal(environment.rounds(0, 2, 0).values, [[[0.5, 0.0], [0.0, 0.25]]] * 2)
    assert_array_equal(environment.expected().values[:, 0], [[1.0, 0.0], [0.0, 0.5]])


def test_the_draws_of_a_seed_never_change() -> None:
    """Results name rounds by their seed, so these must never change."""
    assert ENVIRONMENT.draw_questions(0, 2, seed=0).tolist() == [[1, 5, 3], [1, 5, 3]]
    assert ENVIRONMENT.draw_questions(255, 257, seed=7).tolist() == [[4, 6, 3], [1, 2, 3]]


# Randomness: how often each question is asked, alone and together with others


def deviation(events: Ints, size: int) -> float:
    """Largest z-score of the counts of `size` events that are equally likely."""
    count, n, p = np.bincount(events, minlength=size), len(events), 1 / size
    return float(np.abs((count - n * p) / np.sqrt(n * p * (1 - p))).max())


def draw_question_positions(seed: int = 3, rounds: int = 40_000) -> tuple[Ints, Ints]:
    """Which of the 2 questions of dimension 0, and which of the 4 of dimension 1."""
    position = np.array([0, 0, 1, 0, 1, 2, 3])
    few, many, one = ENVIRONMENT.draw_questions(0, rounds, seed).T
    assert (one == 3).all()
    return position[few], position[many]


def test_every_question_of_a_dimension_is_asked_equally_often() -> None:
    few, many = draw_question_positions()
    assert max(deviation(few, 2), deviation(many, 4)) < 5
    first = [
        draw_question_positions(seed, rounds=1) for seed in range(4_000)
    ]  # of many seeds, which is as random
    few, many = (np.concatenate(positions) for positions in zip(*first, strict=True))
    assert max(deviation(few, 2), deviation(many, 4)) < 5


def test_questions_are_independent_across_dimensions_rounds_and_seeds() -> None:
    few, many = draw_question_positions()
    assert deviation(few * 4 + many, 8) < 5
    for lag in (1, 2, 256):
        assert deviation(few[lag:] * 2 + few[:-lag], 4) < 5
        assert deviation(many[lag:] * 4 + many[:-lag], 16) < 5
    assert deviation(many * 4 + draw_question_positions(seed=4)[1], 16) < 5


def test_the_tests_above_would_notice_unequal_frequencies_and_repetition() -> None:
    few, many = draw_question_positions()
    favoured = np.where(np.arange(len(many)) % 20 == 0, 0, many)  # in one visit of 20
    assert deviation(favoured, 4) > 5
    assert deviation(few * 4 + (few + many // 2) % 4, 8) > 5
    repeated = np.repeat(many[::2], 2)
    assert deviation(repeated[1:] * 4 + repeated[:-1], 16) > 5


# Expectation: rounds of one dimension each, with weights, stand for all possible visits


def expected_reward(environment: Outcomes, q: Floats, draws: int) -> float:
    """The expected reward of a policy."""
    values, weights, _ = environment.expected()
    return ValueStack(values, weights=weights).value(q, draws)


def list_all_visits() -> Floats:
    """The matrices of all 2 * 4 * 1 visits, which are equally likely."""
    groups = [np.flatnonzero(k == DIMENSION) for k in range(3)]
    return np.array([TABLE[list(rows)] / 3 for rows in itertools.product(*groups)])


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_the_expectation_is_the_mean_over_all_possible_visits(draws: int) -> None:
    assert len(list_all_visits()) == 8
    assert_allclose(
        expected_reward(ENVIRONMENT, Q, draws),
        ValueStack(list_all_visits()).value(Q, draws),
        rtol=1e-13,
    )


def test_the_expectation_is_not_the_value_of_the_mean_visit() -> None:
    assert (
        expected_reward(ENVIRONMENT, Q, 2)
        > ValueStack(list_all_visits().mean(axis=0)).value(Q, 2) + 0.01
    )


def best_of_draws_rewards(values: Floats, q: Floats, draws: int) -> Floats:
    """Phi(q) = sum_n E[max of the values of the draws] of each matrix, by the probability that all
    draws are among the worst.
    """
    order = np.argsort(values, axis=2)
    below = np.cumsum(q[order], axis=2) ** draws
    probability = np.diff(below, axis=2, prepend=0.0)
    total: Floats = (np.take_along_axis(values, order, axis=2) * probability).sum(axis=(1, 2))
    return total


def mean_reward_z_score(
    environment: Outcomes, expected: float, q: Floats, draws: int, rounds: int
) -> float:
    """How many standard errors the mean reward of drawn visits is from the expected one."""
    rewards = best_of_draws_rewards(environment.rounds(0, rounds, seed=5).values, q, draws)
    return float(abs(rewards.mean() - expected) / (rewards.std() / rounds**0.5))


def test_the_mean_of_many_visits_is_the_expectation() -> None:
    assert (
        mean_reward_z_score(ENVIRONMENT, expected_reward(ENVIRONMENT, Q, 3), Q, 3, rounds=50_000)
        < 5
    )
    scaled = Outcomes(TABLE, DIMENSION, worth=7.0)
    assert mean_reward_z_score(scaled, expected_reward(scaled, Q, 3), Q, 3, rounds=50_000) < 5


def test_the_test_above_would_notice_equal_weights() -> None:
    # Each question 1/7: larger dimensions count more
    equal = ValueStack(TABLE[:, None]).value(Q, 3)
    assert mean_reward_z_score(ENVIRONMENT, equal, Q, 3, rounds=50_000) > 5


# Questions: a request is one row of the whole table


def test_without_dimensions_a_request_is_one_question() -> None:
    environment = Outcomes(TABLE)
    rows = environment.draw_questions(0, 30_000, seed=2)
    assert (rows.shape, environment.shape) == ((30_000, 1), (1, 4))
    assert deviation(rows[:, 0], 7) < 5
    assert_array_equal(environment.rounds(0, 50, 2).values, TABLE[rows[:50]])
    assert_allclose(
        expected_reward(environment, Q, 2),
        best_of_draws_rewards(TABLE[:, None], Q, 2).mean(),
        rtol=1e-13,
    )
    assert (
        mean_reward_z_score(environment, expected_reward(environment, Q, 3), Q, 3, rounds=50_000)
        < 5
    )


# Contexts: each has rows of its own

WARD = np.array([0, 0, 0, 1, 1, 1, 0])  # ward 0 has nothing of dimension 2, ward 1 has one of each
WARDS = Outcomes(TABLE, DIMENSION, contexts=WARD)


def test_a_context_asks_only_its_own_questions() -> None:
    contexts, rows = WARDS.draw_contexts(0, 2_000, seed=1), WARDS.draw_questions(0, 2_000, seed=1)
    assert_array_equal(WARDS.rounds(0, 2_000, seed=1).contexts, contexts)
    assert_array_equal((rows < 0), (contexts == 0)[:, None] & (np.arange(3) == 2))
    assert (WARD[rows] == contexts[:, None])[rows >= 0].all()
    assert (DIMENSION[rows] == np.arange(3))[rows >= 0].all()
    values = WARDS.rounds(0, 2_000, seed=1).values
    worth = np.where(contexts == 0, 1 / 2, 1 / 3)[:, None, None]  # by the dimensions that it has
    assert_array_equal(values, np.where((rows >= 0)[:, :, None], worth * TABLE[rows], 0.0))


def context_z_score(contexts: Ints, probability: float) -> float:
    """The z-score of the count of context 1, if it has this probability."""
    return float(
        abs(contexts.mean() - probability)
        / np.sqrt(probability * (1 - probability) / len(contexts))
    )


def test_contexts_are_drawn_by_their_rows_or_by_given_probabilities() -> None:
    assert context_z_score(WARDS.draw_contexts(0, 40_000, seed=3), 3 / 7) < 5
    weighted = Outcomes(TABLE, DIMENSION, contexts=WARD, chances=[1, 9])
    assert_allclose(weighted.chances, [0.1, 0.9])
    assert context_z_score(weighted.draw_contexts(0, 40_000, seed=3), 0.9) < 5
    assert context_z_score(weighted.draw_contexts(0, 40_000, seed=3), 3 / 7) > 5


def test_contexts_are_independent_of_the_questions_and_of_each_other() -> None:
    contexts, rows = WARDS.draw_contexts(0, 40_000, seed=3), WARDS.draw_questions(0, 40_000, seed=3)
    upper = rows[contexts == 0, 1]  # of dimension 1, ward 0 has three
    assert deviation(np.searchsorted([0, 2, 6], upper), 3) < 5
    both = contexts[1:] * 2 + contexts[:-1]
    expected = np.outer([4 / 7, 3 / 7], [4 / 7, 3 / 7]).ravel()
    count = np.bincount(both, minlength=4)
    assert (np.abs(count - 39_999 * expected) < 5 * np.sqrt(39_999 * expected)).all()


@pytest.mark.parametrize("worth", [None, 0.7])
def test_the_expectation_is_exact_in_every_context(worth: float | None) -> None:
    environment = Outcomes(TABLE, DIMENSION, worth, contexts=WARD, chances=[0.2, 0.8])
    values, weights, contexts = environment.expected()
    stack = ValueStack(values, weights=weights)
    assert_allclose(np.bincount(contexts, weights), [0.2, 0.8], rtol=1e-13)
    rounds = environment.rounds(0, 60_000, seed=4)
    for x in (0, 1):
        part = stack.select(np.flatnonzero(contexts == x))
        rewards = best_of_draws_rewards(rounds.values[rounds.contexts == x], Q, 2)
        expected = part.value(Q, 2) / environment.chances[x]
        assert abs(rewards.mean() - expected) < 5 * rewards.std() / len(rewards) ** 0.5 + 1e-12
    assert mean_reward_z_score(environment, stack.value(Q, 2), Q, 2, rounds=60_000) < 5


def test_the_test_above_would_notice_contexts_drawn_by_their_rows() -> None:
    environment = Outcomes(TABLE, DIMENSION, contexts=WARD, chances=[0.2, 0.8])
    assert mean_reward_z_score(environment, expected_reward(WARDS, Q, 2), Q, 2, rounds=60_000) > 5


generators = st.integers(0, 10_000).map(np.random.default_rng)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    rng=generators,
    dimensions=st.integers(1, 3),
    contexts=st.integers(1, 3),
    draws=st.integers(1, 3),
)
def test_the_expectation_is_the_sum_over_all_possible_requests(
    rng: np.random.Generator, dimensions: int, contexts: int, draws: int
) -> None:
    """Every context by its probability, and in it every question of every dimension."""
    size = 8
    table = np.where(rng.random((size, 4)) < 0.2, np.nan, rng.random((size, 4)))
    dimension = np.unique(rng.integers(0, dimensions, size), return_inverse=True)[1]
    ward = np.unique(rng.integers(0, contexts, size), return_inverse=True)[1]
    environment = Outcomes(table, dimension, contexts=ward)
    mean = 0.0
    for x in range(environment.contexts):
        kinds = np.unique(dimension[ward == x])
        groups = [np.flatnonzero((ward == x) & (dimension == n)) for n in kinds]
        visits = np.array([np.nan_to_num(table)[list(r)] for r in itertools.product(*groups)])
        mean += (ward == x).mean() * best_of_draws_rewards(visits / len(kinds), Q, draws).mean()
    assert_allclose(expected_reward(environment, Q, draws), mean, rtol=1e-12)
    rounds = environment.rounds(0, 300, seed=0)
    rows = environment.draw_questions(0, 300, seed=0)
    assert (np.isnan(table[rows]) <= (rounds.values == 0)).all()  # a blank earns nothing


def test_a_simulation_with_contexts_earns_the_expectation_of_a_fixed_distribution() -> None:
    """`random` asks any two of the four, so that its mean reward is known, and its error."""
    problem = Problem(["a", "b", "c", "d"], {}, [], draws=2)
    trace = simulate(problem, WARDS, "random", rounds=20_000, seed=6)
    assert set(trace.record.contexts.tolist()) == {0, 1}
    values, weights, _ = WARDS.expected()
    pairs = [list(pair) for pair in itertools.combinations(range(4), 2)]
    expected = float(np.mean([weights @ values[:, 0, pair].max(axis=1) for pair in pairs]))
    error = trace.rewards.std() / len(trace.rewards) ** 0.5
    assert abs(trace.rewards.mean() - expected) < 5 * error
    # The expectation of independent draws differs
    assert abs(trace.rewards.mean() - expected_reward(WARDS, np.full(4, 0.25), 2)) > 5 * error


# The hospital


def test_a_visit_to_the_hospital_asks_one_question_of_each_specialty() -> None:
    environment = hospital.make_environment()
    q = np.full(39, 1 / 39)
    values = environment.rounds(0, 2_000, seed=0).values
    assert values.shape == (2_000, 8, 39)
    assert set(np.unique(values)) == {0.0, 1 / 8}
    assert (
        mean_reward_z_score(environment, expected_reward(environment, q, 3), q, 3, rounds=20_000)
        < 5
    )


def test_every_question_of_the_hospital_is_asked_equally_often() -> None:
    environment = hospital.make_environment()
    rows, probabilities = (
        environment.draw_questions(0, 50_000, seed=1),
        1 / environment.counts[0, environment.dimension],
    )
    count = np.bincount(rows.ravel(), minlength=816)
    z = (count - 50_000 * probabilities) / np.sqrt(50_000 * probabilities * (1 - probabilities))
    assert np.abs(z).max() < 5


def test_the_limits_of_the_hospital_can_be_kept_but_not_their_surrogate() -> None:
    problem = hospital.make_problem()
    assert (problem.size, problem.draws, len(problem.limits)) == (39, 3, 14)
    assert problem.surrogate_conflict is not None  # 12 shares of 0.12 are more than the whole mass


def test_the_best_policy_for_the_hospital_has_the_known_value() -> None:
    problem, (values, weights, _) = hospital.make_problem(), hospital.make_environment().expected()
    best = iid_optimum(
        problem, ValueStack(values, weights=weights), exact=True, floor=False, starts=1
    )
    assert_allclose(best.value, 0.77775, atol=5e-6)
    spend = problem.rows @ (1 - (1 - best.policy) ** 3)
    assert ((spend - problem.bounds) * problem.signs > -1e-9).all()
