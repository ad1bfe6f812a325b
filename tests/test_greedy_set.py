"""Sets by greedy search and swaps: exact where that is easy, never worse than greedy."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from bylot.numerics.jit import Bools, Floats, Ints
from bylot.numerics.set_selection import choose_greedy_set, swap_best_pair

ALL = np.empty(0, np.bool_)


def set_objective(members: Ints, miss: Floats, price: Floats) -> float:
    """The objective to minimise."""
    return float(miss[members].prod() + price[members].sum())


def minimum_by_enumeration(miss: Floats, price: Floats, m: int, available: Bools = ALL) -> float:
    """The minimum over all sets, by enumeration."""
    candidates = np.flatnonzero(available) if available.size else np.arange(miss.size)
    return min(
        set_objective(np.array(a), miss, price)
        for a in itertools.combinations(candidates.tolist(), m)
    )


def greedy_set(miss: Floats, price: Floats, m: int, available: Bools) -> Ints:
    """Add experts one by one, each the best together with those before it, without swaps."""
    members: list[int] = []
    for _ in range(m):
        total = miss[members].prod() * miss + price
        total[members] = np.inf
        members.append(
            int(np.where(available, total, np.inf).argmin() if available.size else total.argmin())
        )
    return np.array(members)


@st.composite
def random_pools(draw: st.DrawFn) -> tuple[Floats, Floats, int, Bools]:
    """Miss probabilities, prices, the size of the set, and who is available."""
    K = draw(st.integers(1, 9))
    miss = draw(arrays(float, K, elements=st.floats(np.exp(-8), np.exp(0.5))))
    price = draw(arrays(float, K, elements=st.floats(-2, 2)))
    available = draw(st.just(ALL) | arrays(np.bool_, K))
    if available.size and not available.any():
        available[draw(st.integers(0, K - 1))] = True
    return (
        miss,
        price,
        draw(st.integers(1, int(available.sum()) if available.size else K)),
        available,
    )


@given(random_pools())
@settings(deadline=None, derandomize=True)
def test_prices_alone_are_minimised_exactly(pool: tuple[Floats, Floats, int, Bools]) -> None:
    _, price, m, available = pool
    equal = np.ones(price.size)  # all sets miss equally, so only the sum of prices differs
    found = choose_greedy_set(equal, price, m, available)
    assert set_objective(found, equal, price) == pytest.approx(
        minimum_by_enumeration(equal, price, m, available), abs=1e-9
    )


@given(random_pools())
@settings(deadline=None, derandomize=True)
def test_misses_alone_are_minimised_exactly(pool: tuple[Floats, Floats, int, Bools]) -> None:
    miss, _, m, available = pool
    free_experts = np.zeros(miss.size)
    found = choose_greedy_set(miss, free_experts, m, available)
    assert set_objective(found, miss, free_experts) == pytest.approx(
        minimum_by_enumeration(miss, free_experts, m, available), rel=1e-9
    )


@given(random_pools())
@settings(deadline=None, derandomize=True)
def test_a_set_has_available_members_and_is_no_worse_than_greedy(
    pool: tuple[Floats, Floats, int, Bools],
) -> None:
    miss, price, m, available = pool
    found = choose_greedy_set(miss, price, m, available)
    assert len(set(found.tolist())) == m
    assert not available.size or available[found].all()
    greedy = set_objective(greedy_set(miss, price, m, available), miss, price)
    assert (
        minimum_by_enumeration(miss, price, m, available) - 1e-9
        <= set_objective(found, miss, price)
        <= greedy + 1e-12
    )


def test_swaps_find_what_greedy_search_misses() -> None:
    rng = np.random.default_rng(0)
    random_pools = [(rng.uniform(0.05, 1, 12), rng.uniform(0, 0.3, 12)) for _ in range(300)]
    greedy = np.array([set_objective(greedy_set(*pool, 4, ALL), *pool) for pool in random_pools])
    found = np.array(
        [set_objective(choose_greedy_set(*pool, 4, ALL), *pool) for pool in random_pools]
    )
    exact = np.array([minimum_by_enumeration(*pool, 4) for pool in random_pools])
    assert np.mean(greedy > exact + 1e-9) > 0.05  # greedy alone would be noticed
    assert np.mean(found > exact + 1e-9) < 0.02


def test_a_swap_without_improvement_is_not_made() -> None:
    members, free_experts = np.array([0, 1]), np.array([False, False, True])
    assert not swap_best_pair(members, free_experts, np.array([0.5, 0.5, 0.5]), np.zeros(3))
    assert_array_equal(members, [0, 1])
    assert swap_best_pair(members, free_experts, np.array([0.5, 0.5, 0.4]), np.zeros(3))
    assert_array_equal(np.sort(members), [1, 2])
    assert_array_equal(free_experts, [True, False, False])
