"""Probability and score of a set, compared with rational inclusion-exclusion."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from bylot.numerics.iid_sets import fill_iid_set_score, log_iid_set_probability
from bylot.numerics.jit import Floats


def iid_set_score(masses: Floats, count: int) -> Floats:
    """The gradient of log P(A) in the masses."""
    score = np.empty(masses.size)
    fill_iid_set_score(score, masses, count)
    return score


def exact_probability(masses: Floats, count: int) -> Fraction:
    """sum over B in A of (-1)^|A - B| Q(B)^count in rational arithmetic: no rounding at all."""
    q = [Fraction(float(x)) for x in masses]
    total = Fraction(0)
    for size in range(len(q) + 1):
        for chosen in itertools.combinations(q, size):
            total += (-1) ** (len(q) - size) * sum(chosen, Fraction(0)) ** count
    return total


def exact_score(masses: Floats, count: int) -> list[float]:
    """count * sum over B in A with i in B of (-1)^|A - B| Q(B)^(count - 1), over P(A)."""
    q = [Fraction(float(x)) for x in masses]
    probability = exact_probability(masses, count)
    score = []
    for i, qi in enumerate(q):
        others = q[:i] + q[i + 1 :]
        slope = Fraction(0)
        for size in range(len(q)):
            for chosen in itertools.combinations(others, size):
                slope += (-1) ** (len(others) - size) * (sum(chosen, qi)) ** (count - 1)
        score.append(float(count * slope / probability))
    return score


masses = st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=7)


@given(raw=masses, spare=st.integers(0, 5))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_probability_and_score_agree_with_rational_arithmetic(raw: list[float], spare: int) -> None:
    q = np.array(raw) / max(1.0, sum(raw))
    count = len(q) + spare
    assert_allclose(
        np.exp(log_iid_set_probability(q, count)), float(exact_probability(q, count)), rtol=1e-12
    )
    assert_allclose(iid_set_score(q, count), exact_score(q, count), rtol=1e-12)


def make_unequal_masses(tiny: float) -> Floats:
    """A panel of twelve in which one member has nearly all the mass."""
    return np.concatenate(([0.9], tiny * np.arange(1.0, 12.0)))


@pytest.mark.parametrize("tiny", [1e-3, 1e-6, 1e-12, 1e-30])
def test_very_unequal_masses_are_computed_accurately(tiny: float) -> None:
    q = make_unequal_masses(tiny)
    expected = exact_probability(q, 12)
    log = math.log(expected.numerator) - math.log(expected.denominator)
    assert_allclose(log_iid_set_probability(q, 12), log, rtol=1e-13)
    assert_allclose(iid_set_score(q, 12), exact_score(q, 12), rtol=1e-12)


def test_the_alternating_sum_as_written_would_fail_the_test_above() -> None:
    q = make_unequal_masses(1e-3)
    plain = sum(
        (-1) ** (12 - size) * sum(c) ** 12
        for size in range(13)
        for c in itertools.combinations(q, size)
    )
    assert abs(plain / float(exact_probability(q, 12)) - 1) > 1e-3


def test_the_probabilities_of_all_sets_sum_to_one() -> None:
    q = np.array([0.05, 0.15, 0.2, 0.25, 0.35])
    total = sum(
        np.exp(log_iid_set_probability(q[list(a)], 4))
        for size in range(1, 5)
        for a in itertools.combinations(range(5), size)
    )
    assert_allclose(total, 1.0, rtol=1e-14)


def test_one_tiny_expert_drawn_every_time() -> None:
    assert_allclose(log_iid_set_probability(np.array([1e-30]), 12), 12 * np.log(1e-30), rtol=1e-14)
    assert_allclose(iid_set_score(np.array([1e-30]), 12), [12e30], rtol=1e-14)


def test_more_members_than_draws_have_probability_0() -> None:
    assert log_iid_set_probability(np.array([0.2, 0.3, 0.5]), 2) == -np.inf


def test_the_score_has_mean_zero_on_the_tangent_space() -> None:
    q = np.array([0.1, 0.2, 0.3, 0.4])
    mean = np.zeros(4)
    for size in range(1, 4):
        for a in itertools.combinations(range(4), size):
            members = list(a)
            mean[members] += np.exp(log_iid_set_probability(q[members], 3)) * iid_set_score(
                q[members], 3
            )
    assert_allclose(mean - mean.mean(), 0, atol=1e-13)  # a constant is normal to the simplex
