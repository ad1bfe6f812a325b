"""The exact expected reward, its slope, gradient and curvature, compared with enumeration."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bylot.numerics.jit import Floats, Ints
from bylot.numerics.sum_max import (
    SortOrder,
    expected_rewards,
    reward_and_slope,
    reward_hessian,
    sort_experts,
    sum_max,
)
from sample_problem import expected_reward, lemma_1_gradient

CASES = [(2, 1), (2, 4), (3, 2), (3, 3), (4, 3), (5, 2), (5, 4)]  # K, M


def reward_slope_and_hessian(
    q: Floats, values: Floats, order: SortOrder, M: int, weights: Floats
) -> tuple[float, Floats, Floats]:
    """Value, slope and Hessian of the expected reward."""
    phi, slope = reward_and_slope(q, values, order, M, weights)
    return phi, slope, reward_hessian(q, values, order, M, weights)


def make_instance(K: int, seed: int, T: int = 3, N: int = 2) -> tuple[Floats, Floats, Floats]:
    """A policy, values with zeros, ones and ties among them, and weights."""
    rng = np.random.default_rng([seed, K])
    values = rng.choice([0.0, 1.0, 0.5, rng.random(), rng.random()], size=(T, N, K))
    return rng.dirichlet(np.ones(K)), values, rng.dirichlet(np.ones(T))


def list_draws(K: int, M: int) -> Iterator[Ints]:
    """All K^M sequences of draws."""
    return map(np.array, itertools.product(range(K), repeat=M))


def derivative(f: Any, x: Floats) -> Floats:
    """Df by complex steps, exact to rounding: column j is Im f(x + i h e_j) / h."""
    h = 1e-30
    columns = [np.imag(f(x + 1j * h * e)) / h for e in np.eye(x.size)]
    return np.array(columns).T


def reward_by_enumeration(q: npt.NDArray[Any], values: Floats, M: int, weights: Floats) -> Any:
    """sum over all draws of prod q[draws] * r(draws): Phi on the simplex, M-homogeneous off it."""
    total: Any = 0.0
    for draws in list_draws(q.size, M):
        rewards = np.array([sum_max(V, draws) for V in values])
        total = total + np.prod(q[draws]) * (weights @ rewards)
    return total


def sorted_rows(values: Floats, weights: Floats) -> Iterator[tuple[Ints, Floats]]:
    """Of each row: the experts from best to worst, and the steps v_(l) - v_(l+1), weighted."""
    for V, weight in zip(values, weights, strict=True):
        for v in V:
            order = np.argsort(-v, kind="stable")
            yield order, weight * (v[order] - np.append(v[order][1:], 0.0))


def sorted_formula(q: npt.NDArray[Any], values: Floats, M: int, weights: Floats) -> Any:
    """sum_t w_t sum_k sum_l (v_(l) - v_(l+1)) (1 - (1 - Q_l)^M), Q_l the mass of the l best."""
    rows = sorted_rows(values, weights)
    return sum((steps * (1 - (1 - np.cumsum(q[order])) ** M)).sum() for order, steps in rows)


def sorted_slope(q: npt.NDArray[Any], values: Floats, M: int, weights: Floats) -> Any:
    """Its derivative by hand: for the i-th best, M sum_{l >= i} steps_l (1 - Q_l)^(M-1)."""
    slope = np.zeros_like(q)
    for order, steps in sorted_rows(values, weights):
        terms = steps * M * (1 - np.cumsum(q[order])) ** (M - 1)
        slope[order] += np.cumsum(terms[::-1])[::-1]
    return slope


@pytest.mark.parametrize(("K", "M"), CASES)
def test_the_expected_reward_is_the_mean_over_all_draws(K: int, M: int) -> None:
    q, values, weights = make_instance(K, seed=1)
    order = sort_experts(values)
    per = expected_rewards(q[None], values, order, M)
    assert_allclose(
        per,
        [reward_by_enumeration(q, V[None], M, np.ones(1)) for V in values],
        rtol=1e-13,
        atol=1e-15,
    )
    assert_allclose(reward_and_slope(q, values, order, M, weights)[0], weights @ per, rtol=1e-13)
    assert_allclose(
        reward_slope_and_hessian(q, values, order, M, weights)[0], weights @ per, rtol=1e-13
    )
    assert_allclose(expected_reward(q, values, M), per.mean(), rtol=1e-13)


@pytest.mark.parametrize(("K", "M"), CASES)
def test_the_gradient_is_that_of_lemma_1(K: int, M: int) -> None:
    q, values, weights = make_instance(K, seed=2)
    expectation = np.zeros(K)
    for draws in list_draws(K, M):
        reward = weights @ np.array([sum_max(V, draws) for V in values])
        expectation += q[draws].prod() * reward / q * np.bincount(draws, minlength=K)
    found = lemma_1_gradient(q, values, M, weights)
    assert_allclose(found, expectation, rtol=1e-12)
    assert_allclose(
        found, derivative(lambda p: reward_by_enumeration(p, values, M, weights), q), rtol=1e-12
    )


@pytest.mark.parametrize(("K", "M"), CASES)
def test_the_slope_is_the_derivative_of_the_sorted_formula(K: int, M: int) -> None:
    q, values, weights = make_instance(K, seed=3)
    _, slope = reward_and_slope(q, values, sort_experts(values), M, weights)
    exact = derivative(lambda p: sorted_formula(p, values, M, weights), q)
    assert_allclose(slope, exact, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("K", "M"), CASES)
def test_gradient_and_slope_differ_by_the_reward_of_one_draw_less(K: int, M: int) -> None:
    q, values, weights = make_instance(K, seed=4)
    order = sort_experts(values)
    lift = M * weights @ expected_rewards(q[None], values, order, M - 1)
    gradient = derivative(lambda p: reward_by_enumeration(p, values, M, weights), q)
    slope = reward_and_slope(q, values, order, M, weights)[1]
    assert_allclose(gradient, slope + lift, rtol=1e-12)
    assert (lift == 0.0) == (M == 1)  # so that for M > 1 they are not the same vector


@pytest.mark.parametrize(("K", "M"), CASES)
def test_the_hessian_is_the_derivative_of_the_slope_and_negative_semidefinite(
    K: int, M: int
) -> None:
    q, values, weights = make_instance(K, seed=5)
    phi, slope, H = reward_slope_and_hessian(q, values, sort_experts(values), M, weights)
    assert phi == reward_and_slope(q, values, sort_experts(values), M, weights)[0]
    assert_array_equal(slope, reward_and_slope(q, values, sort_experts(values), M, weights)[1])
    exact = derivative(lambda p: sorted_slope(p, values, M, weights), q)
    assert_allclose(H, exact, rtol=1e-12, atol=1e-14)
    assert_array_equal(H, H.T)
    assert np.linalg.eigvalsh(H).max() <= 1e-14


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(2, 8), st.integers(1, 6), st.integers(0, 10**6), st.floats(0, 1))
def test_phi_is_concave_and_grows_with_draws(K: int, M: int, seed: int, mix: float) -> None:
    q, values, _ = make_instance(K, seed)
    p = np.random.default_rng(seed + 1).dirichlet(np.ones(K))
    between = expected_reward(mix * q + (1 - mix) * p, values, M)
    chord = mix * expected_reward(q, values, M) + (1 - mix) * expected_reward(p, values, M)
    assert between >= chord - 1e-13
    assert expected_reward(q, values, M + 1) >= expected_reward(q, values, M) - 1e-13


def test_a_sequence_of_policies_is_rewarded_round_by_round() -> None:
    rng = np.random.default_rng(6)
    values, qs = rng.random((7, 3, 5)), rng.dirichlet(np.ones(5), size=7)
    order = sort_experts(values)
    alone = [
        expected_rewards(q[None], values[t : t + 1], order[t : t + 1], 4)[0]
        for t, q in enumerate(qs)
    ]
    assert_array_equal(expected_rewards(qs, values, order, 4), alone)


def deviation(q: Floats, values: Floats, M: int, expected: float, n: int = 4_000) -> float:
    """How many standard errors the mean of n sampled rewards lies from the expected one."""
    rng = np.random.default_rng(7)
    rewards = np.array([sum_max(values, rng.choice(q.size, size=M, p=q)) for _ in range(n)])
    return float(abs(rewards.mean() - expected) / (rewards.std() / np.sqrt(n)))


def test_sampling_agrees_with_the_exact_value() -> None:
    rng = np.random.default_rng(8)
    q, values = rng.dirichlet(np.ones(6)), rng.random((3, 6))
    assert deviation(q, values, 3, expected=expected_reward(q, values, 3)) < 5


def test_the_test_above_would_notice_a_wrong_number_of_draws() -> None:
    rng = np.random.default_rng(8)
    q, values = rng.dirichlet(np.ones(6)), rng.random((3, 6))
    assert deviation(q, values, 3, expected=expected_reward(q, values, 4)) > 5


def test_equal_values_are_ordered_by_index_in_small_integers() -> None:
    order = sort_experts(np.array([[[0.5, 1.0, 0.5, 1.0]]]))
    assert order.dtype == np.int16
    assert_array_equal(order[0, 0], [1, 3, 0, 2])


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 16, 17, 50, 64, 65, 300]))
def test_the_order_is_that_of_a_stable_sort(seed: int, K: int) -> None:
    rng = np.random.default_rng(seed)
    # Not equal, but nearly
    close = 0.7 + 2.0**-53 * rng.integers(0, 40, size=(4, K)).astype(np.float64)
    some = rng.choice([0.0, -0.0, 5e-324, 1e-9, 1.0, 1e300], size=(4, K))
    cases: list[Floats] = [close, some, rng.random((4, K)), np.where(some > 0.5, close, some)]
    for values in cases:
        assert_array_equal(sort_experts(values), np.argsort(-values, axis=-1, kind="stable"))
        assert_array_equal(sort_experts(values.T), np.argsort(-values.T, axis=-1, kind="stable"))


def test_an_empty_panel_earns_nothing() -> None:
    assert sum_max(np.ones((2, 3)), np.array([], dtype=np.int64)) == 0.0


def test_an_expert_with_probability_0_has_a_slope() -> None:
    values = np.array([[[0.2, 0.9]]])
    _, slope = reward_and_slope(np.array([1.0, 0.0]), values, sort_experts(values), 3, np.ones(1))
    assert_allclose(slope, [0.0, 3 * 0.7], atol=1e-15)
