"""Visits to a table of outcomes: every question of a dimension is asked equally often, and the
expected reward is known exactly.
"""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hospital
from bylot.environments import Outcomes
from bylot.kernels.compile import Floats, Ints
from bylot.optima import Stack, optimum

DIMENSION = np.array([1, 0, 1, 2, 0, 1, 1])  # as a file may have it: in no order
TABLE = np.random.default_rng(0).random((7, 4))
WORLD = Outcomes(TABLE, DIMENSION)
Q = np.array([0.4, 0.3, 0.2, 0.1])


def test_a_round_is_one_row_of_each_dimension_and_worth_a_share_of_one() -> None:
    rows = WORLD.drawn(100, 900, seed=1)
    assert_array_equal(DIMENSION[rows], np.broadcast_to([0, 1, 2], (800, 3)))
    assert_array_equal(WORLD.rounds(100, 900, seed=1).values, TABLE[rows] * (1 / 3))
    assert_array_equal(
        Outcomes(TABLE, DIMENSION, worth=2.0).rounds(0, 9, 1).values[:, 2], 2 * TABLE[[3] * 9]
    )
    assert WORLD.shape == (3, 4)


def test_blanks_count_as_nothing_and_tables_are_copied() -> None:
    table = np.array([[1.0, np.nan], [np.nan, 0.5]])
    world = Outcomes(table, [0, 1])
    table[:] = np.inf
    assert_array_equal(world.rounds(0, 2, 0).values, [[[0.5, 0.0], [0.0, 0.25]]] * 2)
    assert_array_equal(world.expected().values[:, 0], [[1.0, 0.0], [0.0, 0.5]])


def test_the_draws_of_a_seed_stay_what_they_were() -> None:
    """Results name worlds by their seed, so these must never change."""
    assert WORLD.drawn(0, 2, seed=0).tolist() == [[1, 5, 3], [1, 5, 3]]
    assert WORLD.drawn(255, 257, seed=7).tolist() == [[4, 6, 3], [1, 2, 3]]


# Chance: how often each question is asked, alone and together with others


def deviation(events: Ints, size: int) -> float:
    """Largest z-score of how often each of so many events comes, if they are equally likely."""
    count, n, p = np.bincount(events, minlength=size), len(events), 1 / size
    return float(np.abs((count - n * p) / np.sqrt(n * p * (1 - p))).max())


def asked(seed: int = 3, rounds: int = 40_000) -> tuple[Ints, Ints]:
    """Which of the 2 questions of dimension 0, and which of the 4 of dimension 1."""
    place = np.array([0, 0, 1, 0, 1, 2, 3])
    few, many, one = WORLD.drawn(0, rounds, seed).T
    assert (one == 3).all()
    return place[few], place[many]


def test_every_question_of_a_dimension_is_asked_equally_often() -> None:
    few, many = asked()
    assert max(deviation(few, 2), deviation(many, 4)) < 5
    first = [asked(seed, rounds=1) for seed in range(4_000)]  # of many seeds, which is as random
    few, many = (np.concatenate(places) for places in zip(*first, strict=True))
    assert max(deviation(few, 2), deviation(many, 4)) < 5


def test_questions_are_independent_across_dimensions_rounds_and_seeds() -> None:
    few, many = asked()
    assert deviation(few * 4 + many, 8) < 5
    for lag in (1, 2, 256):
        assert deviation(few[lag:] * 2 + few[:-lag], 4) < 5
        assert deviation(many[lag:] * 4 + many[:-lag], 16) < 5
    assert deviation(many * 4 + asked(seed=4)[1], 16) < 5


def test_the_tests_above_would_notice_favourites_and_repetition() -> None:
    few, many = asked()
    favoured = np.where(np.arange(len(many)) % 20 == 0, 0, many)  # in one visit of 20
    assert deviation(favoured, 4) > 5
    assert deviation(few * 4 + (few + many // 2) % 4, 8) > 5
    slow = np.repeat(many[::2], 2)
    assert deviation(slow[1:] * 4 + slow[:-1], 16) > 5


# Expectation: rounds of one dimension each, with weights, stand for all the visits there can be


def value(world: Outcomes, q: Floats, draws: int) -> float:
    """The expected reward of a policy."""
    values, weights = world.expected()
    return Stack(values, weights=weights).value(q, draws)


def every_visit() -> Floats:
    """The matrices of all 2 * 4 * 1 visits, which are equally likely."""
    groups = [np.flatnonzero(k == DIMENSION) for k in range(3)]
    return np.array([TABLE[list(rows)] / 3 for rows in itertools.product(*groups)])


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_the_expectation_is_the_mean_over_every_visit_there_can_be(draws: int) -> None:
    assert len(every_visit()) == 8
    assert_allclose(value(WORLD, Q, draws), Stack(every_visit()).value(Q, draws), rtol=1e-13)


def test_the_expectation_is_not_the_value_of_the_mean_visit() -> None:
    assert value(WORLD, Q, 2) > Stack(every_visit().mean(axis=0)).value(Q, 2) + 0.01


def gain(values: Floats, q: Floats, draws: int) -> Floats:
    """Phi(q) = sum_n E[max of the values of so many draws] of each matrix, by the chance that all
    draws are among the worst.
    """
    order = np.argsort(values, axis=2)
    below = np.cumsum(q[order], axis=2) ** draws
    chance = np.diff(below, axis=2, prepend=0.0)
    total: Floats = (np.take_along_axis(values, order, axis=2) * chance).sum(axis=(1, 2))
    return total


def standing(world: Outcomes, believed: float, q: Floats, draws: int, rounds: int) -> float:
    """How many standard errors the mean reward of drawn visits is from the believed one."""
    gains = gain(world.rounds(0, rounds, seed=5).values, q, draws)
    return float(abs(gains.mean() - believed) / (gains.std() / rounds**0.5))


def test_the_mean_of_many_visits_is_the_expectation() -> None:
    assert standing(WORLD, value(WORLD, Q, 3), Q, 3, rounds=50_000) < 5
    dear = Outcomes(TABLE, DIMENSION, worth=7.0)
    assert standing(dear, value(dear, Q, 3), Q, 3, rounds=50_000) < 5


def test_the_test_above_would_notice_equal_weights() -> None:
    equal = Stack(TABLE[:, None]).value(Q, 3)  # each question 1/7: larger dimensions count more
    assert standing(WORLD, equal, Q, 3, rounds=50_000) > 5


# The hospital


def test_a_visit_to_the_hospital_asks_one_question_of_each_specialty() -> None:
    world = hospital.world()
    q = np.full(39, 1 / 39)
    values = world.rounds(0, 2_000, seed=0).values
    assert values.shape == (2_000, 8, 39)
    assert set(np.unique(values)) == {0.0, 1 / 8}
    assert standing(world, value(world, q, 3), q, 3, rounds=20_000) < 5


def test_every_question_of_the_hospital_is_asked_equally_often() -> None:
    world = hospital.world()
    rows, chances = world.drawn(0, 50_000, seed=1), 1 / world.counts[world.dimension]
    count = np.bincount(rows.ravel(), minlength=816)
    z = (count - 50_000 * chances) / np.sqrt(50_000 * chances * (1 - chances))
    assert np.abs(z).max() < 5


def test_the_limits_of_the_hospital_can_be_kept_but_not_their_surrogate() -> None:
    problem = hospital.hospital()
    assert (problem.size, problem.draws, len(problem.limits)) == (39, 3, 14)
    assert problem.surrogate_conflict is not None  # 12 shares of 0.12 are more than all the mass


def test_the_best_policy_for_the_hospital_earns_what_it_is_known_to() -> None:
    problem, (values, weights) = hospital.hospital(), hospital.world().expected()
    best = optimum(problem, Stack(values, weights=weights), exact=True, floor=False, starts=1)
    assert_allclose(best.value, 0.77775, atol=5e-6)
    spend = problem.rows @ (1 - (1 - best.policy) ** 3)
    assert ((spend - problem.bounds) * problem.signs > -1e-9).all()
