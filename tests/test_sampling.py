"""Panels follow q, and the gradient estimate of Lemma 1 is unbiased; both have controls."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bylot.numerics.jit import Floats, Ints
from bylot.numerics.philox import RngKey
from bylot.numerics.sampling import (
    add_gradient,
    add_panel_cost,
    draw_iid,
    fill_cumulative,
    find_first_above,
    restrict_distribution,
)

Q = np.array([0.1, 0.2, 0.3, 0.4])
WRONG = np.array([0.11, 0.19, 0.3, 0.4])
VALUES = np.array([[0.9, 0.1, 0.4, 0.2], [0.0, 0.7, 0.6, 0.1]])


def draw_panel(q: Floats, count: int, rng: RngKey) -> tuple[Ints, Floats]:
    """Draws from q."""
    mass = np.empty_like(q)
    fill_cumulative(q, mass)
    return draw_iid(q, mass, count, rng)


def deviation(q: Floats, probabilities: Floats, n: int = 20_000) -> float:
    """Largest z-score of n draws from q against the given probabilities."""
    count = sum(np.bincount(draw_panel(q, 5, RngKey(0, t))[0], minlength=q.size) for t in range(n))
    spread = np.sqrt(5 * n * probabilities * (1 - probabilities))
    return float(np.abs((count - 5 * n * probabilities) / spread).max())


def test_draws_follow_q() -> None:
    assert deviation(Q, probabilities=Q) < 5


def test_the_test_above_would_notice_a_wrong_q() -> None:
    assert deviation(Q, probabilities=WRONG) > 5


def test_probabilities_are_the_masses_of_the_draws() -> None:
    draws, probabilities = draw_panel(Q, 7, RngKey(3, 11))
    assert_allclose(probabilities, Q[draws], rtol=1e-15)


def test_an_expert_without_mass_is_never_drawn() -> None:
    q = np.array([0.0, 0.5, 0.0, 0.5, 0.0])
    seen = {int(i) for t in range(2_000) for i in draw_panel(q, 5, RngKey(1, t))[0]}
    assert seen == {1, 3}


def test_a_level_rounded_up_to_the_total_selects_the_last_expert_with_mass() -> None:
    assert find_first_above(np.array([0.25, 0.5, 1.0, 1.0]), 1.0) == 2
    assert find_first_above(np.array([0.25, 0.5, 1.0, 1.0]), 0.25) == 1
    assert find_first_above(np.array([0.0, 0.5, 1.0, 1.0]), 0.0) == 1


@given(size=st.integers(1, 3_000), level=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 99))
@settings(deadline=None, derandomize=True)
def test_the_search_agrees_with_searchsorted(size: int, level: float, seed: int) -> None:
    mass = np.cumsum(np.random.default_rng(seed).integers(0, 3, size) + np.eye(size)[0])
    level_of_mass = level * mass[-1]
    assert find_first_above(mass, level_of_mass) == np.searchsorted(
        mass, level_of_mass, side="right"
    )


def test_q_is_unchanged_if_all_are_available_and_renormalised_otherwise() -> None:
    assert_array_equal(restrict_distribution(Q, np.empty(0, bool)), Q)
    assert_allclose(
        restrict_distribution(Q, np.array([False, True, True, False])), [0, 0.4, 0.6, 0]
    )


def phi(q: Floats, draws: int) -> float:
    """Expected reward by enumeration, as a polynomial in q (no normalisation)."""
    sequences = itertools.product(range(q.size), repeat=draws)
    return sum(float(q[list(a)].prod() * VALUES[:, list(a)].max(axis=1).sum()) for a in sequences)


def bias(indicator: bool, draws: int = 3) -> float:
    """Largest error of the estimate's exact mean against the derivative of phi.

    With `indicator`, a repeated draw counts once: the estimate that the paper does not use.
    """
    mean = np.zeros(4)
    for sequence in itertools.product(range(4), repeat=draws):
        a = np.array(sequence)
        reward = VALUES[:, a].max(axis=1).sum()
        kept = np.unique(a) if indicator else a
        add_gradient(mean, kept, Q[kept], float(Q[a].prod() * reward))
    h = 1e-6
    slope = [(phi(Q + h * e, draws) - phi(Q - h * e, draws)) / (2 * h) for e in np.eye(4)]
    return float(np.abs(mean - slope).max())


def test_the_gradient_estimate_is_unbiased() -> None:
    assert bias(indicator=False) < 1e-9


def test_the_test_above_would_notice_a_gradient_that_ignores_multiplicity() -> None:
    assert bias(indicator=True) > 1e-2


def test_the_cost_of_a_panel_is_that_of_its_distinct_members() -> None:
    costs = np.array([[1.0, 2.0, 4.0, 8.0], [1.0, 0.0, 1.0, 0.0]])
    for sequence in itertools.product(range(4), repeat=3):
        out = np.zeros(2)
        add_panel_cost(out, costs, np.array(sequence))
        assert_array_equal(out, costs[:, np.unique(sequence)].sum(axis=1))
