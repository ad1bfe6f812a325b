"""Sets by greedy search and changes: exact where that is easy, never worse than greedy."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from bylot.numerics.jit import Bools, Floats, Ints
from bylot.numerics.set_selection import (
    change_best_member,
    choose_greedy_set,
    compute_set_objective,
    find_cheapest_addition,
)

ALL = np.empty(0, np.bool_)
ONE = np.ones(1)  # class of requests


def set_objective(members: Ints, miss: Floats, price: Floats) -> float:
    """The objective to minimise."""
    return float(miss[members].prod() + price[members].sum())


def minimum_by_enumeration(
    miss: Floats, price: Floats, fewest: int, most: int, available: Bools = ALL
) -> float:
    """The minimum over all sets of these sizes, by enumeration."""
    candidates = np.flatnonzero(available) if available.size else np.arange(miss.size)
    return min(
        set_objective(np.array(a), miss, price)
        for m in range(fewest, most + 1)
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
def random_pools(draw: st.DrawFn) -> tuple[Floats, Floats, int, int, Bools]:
    """Miss probabilities, prices, the sizes of the set, and who is available."""
    K = draw(st.integers(1, 9))
    miss = draw(arrays(float, K, elements=st.floats(np.exp(-8), np.exp(0.5))))
    price = draw(arrays(float, K, elements=st.floats(-2, 2)))
    available = draw(st.just(ALL) | arrays(np.bool_, K))
    if available.size and not available.any():
        available[draw(st.integers(0, K - 1))] = True
    most = draw(st.integers(1, int(available.sum()) if available.size else K))
    return miss, price, draw(st.just(most) | st.integers(1, most)), most, available


@given(random_pools())
@settings(deadline=None, derandomize=True)
def test_prices_alone_are_minimised_exactly(pool: tuple[Floats, Floats, int, int, Bools]) -> None:
    _, price, fewest, most, available = pool
    equal = np.ones(price.size)  # all sets miss equally, so only the sum of prices differs
    found = choose_greedy_set(ONE, equal[None], price, fewest, most, available)
    assert set_objective(found, equal, price) == pytest.approx(
        minimum_by_enumeration(equal, price, fewest, most, available), abs=1e-9
    )


@given(random_pools())
@settings(deadline=None, derandomize=True)
def test_misses_alone_are_minimised_exactly(pool: tuple[Floats, Floats, int, int, Bools]) -> None:
    miss, _, fewest, most, available = pool
    free_experts = np.zeros(miss.size)
    found = choose_greedy_set(ONE, miss[None], free_experts, fewest, most, available)
    assert set_objective(found, miss, free_experts) == pytest.approx(
        minimum_by_enumeration(miss, free_experts, fewest, most, available), rel=1e-9
    )


@given(random_pools())
@settings(deadline=None, derandomize=True)
def test_a_set_has_available_members_and_is_no_worse_than_greedy(
    pool: tuple[Floats, Floats, int, int, Bools],
) -> None:
    miss, price, fewest, most, available = pool
    found = choose_greedy_set(ONE, miss[None], price, fewest, most, available)
    assert fewest <= len(set(found.tolist())) == found.size <= most
    assert not available.size or available[found].all()
    greedy = min(
        set_objective(greedy_set(miss, price, m, available), miss, price) for m in (fewest, most)
    )
    assert (
        minimum_by_enumeration(miss, price, fewest, most, available) - 1e-9
        <= set_objective(found, miss, price)
        <= greedy + 1e-12
    )


@pytest.mark.parametrize(("fewest", "most"), [(4, 4), (1, 4), (2, 4)])
def test_changes_find_what_greedy_search_misses(fewest: int, most: int) -> None:
    rng = np.random.default_rng(0)
    pools = [(rng.uniform(0.05, 1, 12), rng.uniform(0, 0.3, 12)) for _ in range(300)]
    sets = [choose_greedy_set(ONE, m[None], price, fewest, most, ALL) for m, price in pools]
    found = np.array([set_objective(one, *pool) for one, pool in zip(sets, pools, strict=True)])
    greedy = np.array(
        [
            min(set_objective(greedy_set(*pool, m, ALL), *pool) for m in range(fewest, most + 1))
            for pool in pools
        ]
    )
    exact = np.array([minimum_by_enumeration(*pool, fewest, most) for pool in pools])
    assert np.mean(greedy > exact + 1e-9) > 0.05  # greedy alone would be noticed
    assert np.mean(found > exact + 1e-9) < 0.02
    assert len({one.size for one in sets}) == most - fewest + 1  # every size is the best of some


def test_a_member_that_is_not_worth_its_price_is_left_out() -> None:
    miss, free = np.array([0.5, 0.5, 0.5]), np.array([True, True, True])
    for price, size in [(0.2, 2), (0.26, 1), (0.0, 3), (2.0, 1)]:
        found = choose_greedy_set(ONE, miss[None], np.full(3, price), 1, 3, free)
        assert found.size == size
    members, prices = np.array([0, 1]), np.array([0.4, 0.1, 0.4])
    offered = np.array([np.inf, np.inf, 0.4])
    assert change_best_member(members, 1, offered, ONE, miss[None], prices) == 1
    assert_array_equal(members[:1], [1])
    assert_array_equal(offered, [0.4, np.inf, 0.4])


def test_a_change_without_improvement_is_not_made() -> None:
    members, offered = np.array([0, 1]), np.array([np.inf, np.inf, 0.0])
    equal, better = np.array([0.5, 0.5, 0.5]), np.array([0.5, 0.5, 0.4])
    assert change_best_member(members, 2, offered, ONE, equal[None], np.zeros(3)) == 0
    assert_array_equal(members, [0, 1])
    assert change_best_member(members, 2, offered, ONE, better[None], np.zeros(3)) == 2
    assert_array_equal(np.sort(members), [1, 2])
    assert_array_equal(offered, [0.0, np.inf, np.inf])


def test_classes_of_requests_change_which_sets_are_good() -> None:
    """Two experts that miss the same half of all requests are no better than one of them."""
    weights = np.array([0.5, 0.5])
    miss = np.array([[0.1, 0.1, 0.9], [0.9, 0.9, 0.2]])
    found = choose_greedy_set(weights, miss, np.zeros(3), 2, 2, ALL)
    assert_array_equal(np.sort(found), [0, 2])
    alike = choose_greedy_set(ONE, (weights @ miss)[None], np.zeros(3), 2, 2, ALL)
    assert_array_equal(np.sort(alike), [0, 1])  # the shares of misses alone would mislead
    rng = np.random.default_rng(1)
    for _ in range(50):
        weights, miss, price = rng.dirichlet(np.ones(3)), rng.random((3, 8)), rng.random(8) / 9
        sets = [np.array(one) for one in itertools.combinations(range(8), 3)]
        best = min(compute_set_objective(one, weights, miss, price) for one in sets)
        found = choose_greedy_set(weights, miss, price, 3, 3, ALL)
        assert compute_set_objective(found, weights, miss, price) < best + 0.02


@pytest.mark.parametrize("K", [1, 7, 8, 63, 64, 65, 200, 1_003])
@pytest.mark.parametrize("Z", [1, 3])
def test_the_cheapest_addition_is_the_first_of_the_least_totals(K: int, Z: int) -> None:
    rng = np.random.default_rng(K)
    for digits in (0, 1, 9):  # with few digits there are ties
        missed, miss = rng.integers(1, 4, Z) / 4, rng.random((Z, K)).round(digits)
        offered = np.where(rng.random(K) < 0.3, np.inf, rng.random(K).round(digits))
        totals = offered.copy()
        for z in range(Z):
            totals += missed[z] * miss[z]
        expected = int(totals.argmin()) if np.isfinite(totals).any() else -1
        assert find_cheapest_addition(missed, offered, miss) == expected
    assert find_cheapest_addition(missed, np.full(K, np.inf), miss) == -1
