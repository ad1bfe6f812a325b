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


MAX_SWAPS = 6  # a second one is rare
MIN_SWAP_GAIN = 1e-12


@jit
def choose_greedy_set(miss: Floats, price: Floats, m: int, available: Bools) -> Ints:
    """Choose m experts with a small prod_{i in A} miss_i + sum_{i in A} price_i, in O(K m).

    Add the best expert one by one; then, while that helps, make the best exchange of a member for
    another expert. At least m experts must be available.

    >>> miss, price = np.array([0.2, 0.3, 0.5]), np.array([0.9, 0.0, 0.1])
    >>> choose_greedy_set(miss, price, 2, np.empty(0, np.bool_))
    array([1, 2])
    """
    members, missed = np.empty(m, np.int64), 1.0
    free = np.ones(miss.size, np.bool_) if available.size == 0 else available.copy()
    for place in range(m):
        one = find_cheapest_addition(missed, free, miss, price)
        members[place] = one
        free[one] = False
        missed *= miss[one]
    for _ in range(MAX_SWAPS):
        if not swap_best_pair(members, free, miss, price):
            break
    return members


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
def swap_best_pair(members: Ints, free: Bools, miss: Floats, price: Floats) -> bool:
    """Make the exchange of a member that gains most; returns whether there was one."""
    gain, leaving, coming = MIN_SWAP_GAIN, -1, -1
    for place in range(members.size):
        rest = 1.0  # product of the others; a division could lose all digits
        for other in range(members.size):
            rest *= miss[members[other]] if other != place else 1.0
        one = find_cheapest_addition(rest, free, miss, price)
        if one >= 0:
            was = rest * miss[members[place]] + price[members[place]]
            saved = was - (rest * miss[one] + price[one])
            if saved > gain:
                gain, leaving, coming = saved, place, one
    if leaving >= 0:
        free[members[leaving]] = True
        free[coming] = False
        members[leaving] = coming
    return leaving >= 0
