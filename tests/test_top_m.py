"""The best M: what sorting finds, among those up; and orders that prefer nobody."""

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
def test_the_best_are_those_that_sorting_finds(scores: list[float], count: int, seed: int) -> None:
    up = np.random.default_rng(seed).random(len(scores)) < 0.7
    up[seed % len(scores)] = True
    for mask in (ALL, up):
        there = [i for i in range(len(scores)) if mask.size == 0 or mask[i]]
        order = sorted(there, key=lambda i: -scores[i])  # stable: equals by index
        expected = list(itertools.islice(itertools.cycle(order[:count]), count))
        assert choose_top_m(np.array(scores), count, mask).tolist() == expected


def test_scores_that_are_no_numbers_still_give_experts() -> None:
    chosen = choose_top_m(np.full(6, np.nan), 4, np.array([False, True, True, True, True, True]))
    assert set(chosen.tolist()) <= {1, 2, 3, 4, 5}


def deviation(believed: Floats, n: int = 20_000) -> float:
    """Largest z-score of how often each expert is among three of five, against the believed."""
    up = np.array([True, True, False, True, True])
    count = np.zeros(5)
    for t in range(n):
        count[choose_random_experts(5, 3, up, RngKey(1, t), 0)] += 1
    spread = np.sqrt(n * believed * (1 - believed))
    return float(np.abs((count - n * believed)[up] / spread[up]).max())


def test_some_are_any_of_those_up_and_nobody_is_preferred() -> None:
    assert deviation(np.full(5, 3 / 4)) < 5


def test_the_test_above_would_notice_a_preference() -> None:
    assert deviation(np.array([0.77, 0.75, 0.75, 0.75, 0.73])) > 5


def test_every_order_comes_as_often_as_any_other() -> None:
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
def test_a_random_panel_has_distinct_members_as_far_as_there_are(count: int) -> None:
    for t in range(50):
        panel = choose_random_experts(4, count, ALL, RngKey(0, t), 0)
        assert len(panel) == count
        assert len(set(panel.tolist())) == min(4, count)
