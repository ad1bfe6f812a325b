"""The best M equal those of sorting among the available; random orders are uniform."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot.numerics.jit import Floats
from bylot.numerics.philox import RngKey
from bylot.numerics.sampling import choose_random_experts, shuffle_front
from bylot.numerics.set_selection import choose_top_m

ALL = np.empty(0, np.bool_)


@given(
    scores=st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, math.inf]), min_size=1, max_size=12),
    count=st.integers(1, 15),
    seed=st.integers(0, 99),
)
@settings(deadline=None, derandomize=True)
def test_the_top_m_equal_those_of_sorting(scores: list[float], count: int, seed: int) -> None:
    available = np.random.default_rng(seed).random(len(scores)) < 0.7
    available[seed % len(scores)] = True
    for mask in (ALL, available):
        candidates = [i for i in range(len(scores)) if mask.size == 0 or mask[i]]
        order = sorted(candidates, key=lambda i: -scores[i])  # stable: equals by index
        expected = list(itertools.islice(itertools.cycle(order[:count]), count))
        assert choose_top_m(np.array(scores), count, mask).tolist() == expected


@pytest.mark.parametrize("size", [7, 8, 9, 50, 64, 65, 128, 131, 2_000])
def test_the_top_m_of_many_equal_those_of_sorting(size: int) -> None:
    rng = np.random.default_rng(size)
    different, few = rng.random(size), rng.integers(-2, 3, size) * 0.5
    zeros, some = np.where(few < 0, -0.0, 0.0), np.where(few < 0, -np.inf, different)
    rows: Floats = np.array([different, few, zeros, some])
    for scores in rows:
        for count in (1, 5, min(size, 70)):
            expected = np.argsort(-scores, kind="stable")[:count]
            np.testing.assert_array_equal(choose_top_m(scores, count, ALL), expected)


def test_scores_of_nan_give_available_experts() -> None:
    chosen = choose_top_m(np.full(6, np.nan), 4, np.array([False, True, True, True, True, True]))
    assert set(chosen.tolist()) <= {1, 2, 3, 4, 5}


def deviation(probabilities: Floats, n: int = 20_000) -> float:
    """Largest z-score of how often each expert is among three of five, against probabilities."""
    available = np.array([True, True, False, True, True])
    count = np.zeros(5)
    for t in range(n):
        count[choose_random_experts(5, 3, available, RngKey(1, t), 0)] += 1
    spread = np.sqrt(n * probabilities * (1 - probabilities))
    return float(np.abs((count - n * probabilities)[available] / spread[available]).max())


def test_random_experts_are_available_and_equally_likely() -> None:
    assert deviation(np.full(5, 3 / 4)) < 5


def test_the_test_above_would_notice_a_preference() -> None:
    assert deviation(np.array([0.77, 0.75, 0.75, 0.75, 0.73])) > 5


def test_all_orders_are_equally_likely() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for t in range(12_000):
        items = np.arange(4)
        shuffle_front(items, 4, RngKey(2, t), 1)
        order = tuple(items.tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    chi_square = sum((n - 500) ** 2 / 500 for n in seen.values())
    assert chi_square < 23 + 5 * math.sqrt(2 * 23)  # its mean and spread with 23 degrees


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_a_random_panel_has_as_many_distinct_members_as_possible(count: int) -> None:
    for t in range(50):
        panel = choose_random_experts(4, count, ALL, RngKey(0, t), 0)
        assert len(panel) == count
        assert len(set(panel.tolist())) == min(4, count)
