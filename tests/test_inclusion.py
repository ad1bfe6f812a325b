"""Inclusion probabilities and exact expected costs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from bylot.numerics.iid_sets import (
    expected_panel_costs,
    expected_panel_costs_slope,
    iid_inclusion,
    iid_inclusion_slope,
)


@pytest.mark.parametrize("M", [1, 2, 4])
def test_expected_costs_are_the_mean_over_all_draws_of_the_distinct_experts(M: int) -> None:
    q, rows = np.array([0.1, 0.2, 0.3, 0.4]), np.array([[1.0, 2.0, 0.0, 5.0], [1.0, 1.0, 1.0, 1.0]])
    mean = np.zeros(2)
    for draws in itertools.product(range(4), repeat=M):
        mean += q[list(draws)].prod() * rows[:, sorted(set(draws))].sum(axis=1)
    assert_allclose(expected_panel_costs(q, rows, M), mean, rtol=1e-13)
    assert_allclose(rows @ iid_inclusion(q, M), mean, rtol=1e-13)


def test_a_tiny_probability_is_computed_accurately() -> None:
    q = np.array([1e-18])
    assert_allclose(iid_inclusion(q, 5), 5e-18, rtol=1e-15)
    assert 1.0 - (1.0 - q[0]) ** 5 == 0.0  # the result of the plain formula


@pytest.mark.parametrize("M", [1, 2, 5])
def test_slopes_are_derivatives(M: int) -> None:
    q, rows = np.array([0.0, 0.3, 0.7]), np.array([[1.0, 2.0, 4.0]])
    h = 1e-30
    exact = np.imag(1 - (1 - (q + 1j * h)) ** M) / h
    assert_allclose(iid_inclusion_slope(q, M), exact, rtol=1e-14)
    assert_allclose(expected_panel_costs_slope(q, rows, M), rows * exact, rtol=1e-14)


@settings(deadline=None, derandomize=True)
@given(st.floats(0, 1), st.integers(1, 12))
def test_inclusion_lies_between_the_draw_probability_and_m_times_it(p: float, M: int) -> None:
    found = iid_inclusion(np.array([p]), M)[0]
    assert p * (1 - 1e-15) <= found <= M * p * (1 + 1e-15)
    assert found <= 1.0


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_tangents_lie_above(seed: int, M: int) -> None:
    rng = np.random.default_rng(seed)
    q, p, rows = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4)), rng.random((2, 4))
    tangent = expected_panel_costs(q, rows, M) + expected_panel_costs_slope(q, rows, M) @ (p - q)
    assert (expected_panel_costs(p, rows, M) <= tangent + 1e-13).all()


def test_without_costs_the_expected_costs_are_empty() -> None:
    q, rows = np.full(3, 1 / 3), np.zeros((0, 3))
    assert expected_panel_costs(q, rows, 2).shape == (0,)
    assert expected_panel_costs_slope(q, rows, 2).shape == (0, 3)
