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


def worth(members: Ints, miss: Floats, toll: Floats) -> float:
    """What is to be small."""
    return float(miss[members].prod() + toll[members].sum())


def least(miss: Floats, toll: Floats, m: int, up: Bools = ALL) -> float:
    """The least over all sets, by enumeration."""
    among = np.flatnonzero(up) if up.size else np.arange(miss.size)
    return min(worth(np.array(a), miss, toll) for a in itertools.combinations(among.tolist(), m))


def greedy_set(miss: Floats, toll: Floats, m: int, up: Bools) -> Ints:
    """Experts added one by one, each the best beside those before it, without swaps."""
    members: list[int] = []
    for _ in range(m):
        total = miss[members].prod() * miss + toll
        total[members] = np.inf
        members.append(int(np.where(up, total, np.inf).argmin() if up.size else total.argmin()))
    return np.array(members)


@st.composite
def pools(draw: st.DrawFn) -> tuple[Floats, Floats, int, Bools]:
    """Some experts, how many to choose, and who is up."""
    K = draw(st.integers(1, 9))
    miss = draw(arrays(float, K, elements=st.floats(np.exp(-8), np.exp(0.5))))
    toll = draw(arrays(float, K, elements=st.floats(-2, 2)))
    up = draw(st.just(ALL) | arrays(np.bool_, K))
    if up.size and not up.any():
        up[draw(st.integers(0, K - 1))] = True
    return miss, toll, draw(st.integers(1, int(up.sum()) if up.size else K)), up


@given(pools())
@settings(deadline=None, derandomize=True)
def test_tolls_alone_are_searched_exactly(pool: tuple[Floats, Floats, int, Bools]) -> None:
    _, toll, m, up = pool
    same = np.ones(toll.size)  # all sets miss alike, so that what is left is a sum
    found = choose_greedy_set(same, toll, m, up)
    assert worth(found, same, toll) == pytest.approx(least(same, toll, m, up), abs=1e-9)


@given(pools())
@settings(deadline=None, derandomize=True)
def test_misses_alone_are_searched_exactly(pool: tuple[Floats, Floats, int, Bools]) -> None:
    miss, _, m, up = pool
    free = np.zeros(miss.size)
    found = choose_greedy_set(miss, free, m, up)
    assert worth(found, miss, free) == pytest.approx(least(miss, free, m, up), rel=1e-9)


@given(pools())
@settings(deadline=None, derandomize=True)
def test_a_set_has_members_that_are_up_and_is_no_worse_than_greedy(
    pool: tuple[Floats, Floats, int, Bools],
) -> None:
    miss, toll, m, up = pool
    found = choose_greedy_set(miss, toll, m, up)
    assert len(set(found.tolist())) == m
    assert not up.size or up[found].all()
    greedy = worth(greedy_set(miss, toll, m, up), miss, toll)
    assert least(miss, toll, m, up) - 1e-9 <= worth(found, miss, toll) <= greedy + 1e-12


def test_swaps_find_what_greedy_search_misses() -> None:
    rng = np.random.default_rng(0)
    pools = [(rng.uniform(0.05, 1, 12), rng.uniform(0, 0.3, 12)) for _ in range(300)]
    greedy = np.array([worth(greedy_set(*pool, 4, ALL), *pool) for pool in pools])
    found = np.array([worth(choose_greedy_set(*pool, 4, ALL), *pool) for pool in pools])
    exact = np.array([least(*pool, 4) for pool in pools])
    assert np.mean(greedy > exact + 1e-9) > 0.05  # greedy alone would be noticed
    assert np.mean(found > exact + 1e-9) < 0.02


def test_a_swap_that_does_not_pay_is_not_made() -> None:
    members, free = np.array([0, 1]), np.array([False, False, True])
    assert not swap_best_pair(members, free, np.array([0.5, 0.5, 0.5]), np.zeros(3))
    assert_array_equal(members, [0, 1])
    assert swap_best_pair(members, free, np.array([0.5, 0.5, 0.4]), np.zeros(3))
    assert_array_equal(np.sort(members), [1, 2])
    assert_array_equal(free, [True, False, False])
