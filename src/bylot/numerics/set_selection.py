"""Selecting a set of experts: the M best scores, or a greedy search with exchanges.

`available` masks the experts that can be chosen; an empty mask stands for all.
"""

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit


@jit
def choose_top_m(scores: Floats, count: int, available: Bools) -> Ints:
    """Choose the `count` available experts with the largest scores, best first, ties by index.

    If fewer are available, they repeat: the answer always has its length.

    >>> choose_top_m(np.array([0.1, 0.9, 0.5, 0.9]), 3, np.empty(0, np.bool_))
    array([1, 3, 2])
    >>> choose_top_m(np.array([0.1, 0.9, 0.5, 0.9]), 3, np.array([True, False, True, False]))
    array([2, 0, 2])
    """
    chosen, found = np.empty(count, np.int64), 0
    for i in range(scores.size):
        if available.size > 0 and not available[i]:
            continue
        if found == count and not scores[i] > scores[chosen[count - 1]]:
            continue
        found = min(found + 1, count)
        place = found - 1  # the last one is dropped if all places are taken
        while place > 0 and scores[i] > scores[chosen[place - 1]]:
            chosen[place] = chosen[place - 1]
            place -= 1
        chosen[place] = i
    repeat_members(chosen, found)
    return chosen


@jit
def fill_draws_from_set(draws: Ints, members: Ints) -> None:
    """Write the members of a panel into its draws, repeated if there are more draws."""
    for k in range(members.size):
        draws[k] = members[k]
    repeat_members(draws, members.size)


@jit
def count_available(available: Bools) -> int:
    """Count the experts of a mask that is not empty."""
    count = 0
    for i in range(available.size):
        count += available[i]
    return count


@jit
def repeat_members(chosen: Ints, found: int) -> None:
    """Fill the rest of a panel by repeating the first `found` members."""
    for j in range(found, chosen.size):
        chosen[j] = chosen[j - found]


MAX_SET_CHANGES = 6  # a second one is rare
MIN_CHANGE_GAIN = 1e-12


@jit
def choose_greedy_set(
    miss: Floats, price: Floats, fewest: int, most: int, available: Bools
) -> Ints:
    """Choose experts with a small prod_{i in A} miss_i + sum_{i in A} price_i, in O(K |A|).

    The search begins with `most` members and, if there may be fewer, again with `fewest`. At least
    `most` experts must be available.

    >>> miss, price = np.array([0.2, 0.3, 0.5]), np.array([0.9, 0.0, 0.1])
    >>> choose_greedy_set(miss, price, 2, 2, np.empty(0, np.bool_))
    array([1, 2])
    >>> choose_greedy_set(miss, price + 0.1, 1, 2, np.empty(0, np.bool_))
    array([1])
    """
    large = search_set(miss, price, most, fewest, most, available)
    if fewest == most:
        return large
    small = search_set(miss, price, fewest, fewest, most, available)
    worse = compute_set_objective(small, miss, price) >= compute_set_objective(large, miss, price)
    return large if worse else small


@jit
def compute_set_objective(members: Ints, miss: Floats, price: Floats) -> float:
    """prod_{i in A} miss_i + sum_{i in A} price_i"""
    missed, paid = 1.0, 0.0
    for i in members:
        missed *= miss[i]
        paid += price[i]
    return missed + paid


@jit
def search_set(
    miss: Floats, price: Floats, first: int, fewest: int, most: int, available: Bools
) -> Ints:
    """Add the best expert one by one, beyond the `first` only while that helps; then, while one
    helps, make the best change: exchange a member or leave it out, and add again.
    """
    members = np.empty(most, np.int64)
    free = np.ones(miss.size, np.bool_) if available.size == 0 else available.copy()
    n = add_experts(members, 0, first, free, miss, price)
    for _ in range(MAX_SET_CHANGES + most - fewest):
        left = change_best_member(members[:n], fewest, free, miss, price)
        if left == 0:
            break
        n = add_experts(members, left, fewest, free, miss, price)
    return members[:n]


@jit
def add_experts(members: Ints, n: int, least: int, free: Bools, miss: Floats, price: Floats) -> int:
    """Add the best experts to n members, beyond `least` while that helps; returns their number."""
    missed = 1.0
    for place in range(n):
        missed *= miss[members[place]]
    while n < members.size:
        one = find_cheapest_addition(missed, free, miss, price)
        if n >= least and not missed * miss[one] + price[one] < missed - MIN_CHANGE_GAIN:
            break
        members[n] = one
        free[one] = False
        missed *= miss[one]
        n += 1
    return n


@jit
def find_cheapest_addition(missed: float, free: Bools, miss: Floats, price: Floats) -> int:
    """Find the free expert with the least missed * miss_i + price_i, ties by index."""
    one, least = -1, np.inf
    for i in range(miss.size):
        total = missed * miss[i] + price[i]
        if free[i] and total < least:
            one, least = i, total
    return one


@jit
def change_best_member(members: Ints, fewest: int, free: Bools, miss: Floats, price: Floats) -> int:
    """Exchange a member for another expert, or leave it out if there are more than `fewest`.

    The change that gains most is made; returns how many members are left, 0 if none gains. The
    last member takes the place of one that is left out.
    """
    gain, leaving, coming = MIN_CHANGE_GAIN, -1, -1
    for place in range(members.size):
        rest = 1.0  # product of the others; a division could lose all digits
        for other in range(members.size):
            rest *= miss[members[other]] if other != place else 1.0
        was = rest * miss[members[place]] + price[members[place]]
        if members.size > fewest and was - rest > gain:
            gain, leaving, coming = was - rest, place, -1
        one = find_cheapest_addition(rest, free, miss, price)
        if one >= 0:
            saved = was - (rest * miss[one] + price[one])
            if saved > gain:
                gain, leaving, coming = saved, place, one
    if leaving < 0:
        return 0
    free[members[leaving]] = True
    if coming < 0:
        members[leaving] = members[members.size - 1]
        return members.size - 1
    free[coming] = False
    members[leaving] = coming
    return members.size
