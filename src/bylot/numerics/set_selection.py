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
    weights: Floats, miss: Floats, price: Floats, fewest: int, most: int, available: Bools
) -> Ints:
    """Choose experts with a small sum_z weights_z prod_{i in A} miss_zi + sum_{i in A} price_i, in
    O(Z K |A|).

    The search begins with `most` members and, if there may be fewer, again with `fewest`. At least
    `most` experts must be available.

    >>> one, miss, price = np.ones(1), np.array([[0.2, 0.3, 0.5]]), np.array([0.9, 0.0, 0.1])
    >>> choose_greedy_set(one, miss, price, 2, 2, np.empty(0, np.bool_))
    array([1, 2])
    >>> choose_greedy_set(one, miss, price + 0.1, 1, 2, np.empty(0, np.bool_))
    array([1])
    """
    large = search_set(weights, miss, price, most, fewest, most, available)
    if fewest == most:
        return large
    small = search_set(weights, miss, price, fewest, fewest, most, available)
    objective = compute_set_objective(large, weights, miss, price)
    worse = compute_set_objective(small, weights, miss, price) >= objective
    return large if worse else small


@jit
def fill_missed(missed: Floats, weights: Floats, miss: Floats, members: Ints, without: int) -> None:
    """Write weights_z prod miss_zi over all members but the one at place `without`.

    The product is not divided by that one, as this could lose all digits.
    """
    for z in range(weights.size):
        missed[z] = weights[z]
        for place in range(members.size):
            missed[z] *= miss[z, members[place]] if place != without else 1.0


@jit
def add_missed(total: float, missed: Floats, miss: Floats, i: int) -> float:
    """total + sum_z missed_z miss_zi"""
    for z in range(missed.size):
        total += missed[z] * miss[z, i]
    return total


@jit
def compute_set_objective(members: Ints, weights: Floats, miss: Floats, price: Floats) -> float:
    """sum_z weights_z prod_{i in A} miss_zi + sum_{i in A} price_i"""
    missed, paid = np.empty(weights.size), 0.0
    fill_missed(missed, weights, miss, members, -1)
    for i in members:
        paid += price[i]
    return float(missed.sum() + paid)


@jit
def search_set(
    weights: Floats,
    miss: Floats,
    price: Floats,
    first: int,
    fewest: int,
    most: int,
    available: Bools,
) -> Ints:
    """Add the best expert one by one, beyond the `first` only while that helps; then, while one
    helps, make the best change: exchange a member or leave it out, and add again.
    """
    members = np.empty(most, np.int64)
    free = np.ones(price.size, np.bool_) if available.size == 0 else available.copy()
    n = add_experts(members, 0, first, free, weights, miss, price)
    for _ in range(MAX_SET_CHANGES + most - fewest):
        left = change_best_member(members[:n], fewest, free, weights, miss, price)
        if left == 0:
            break
        n = add_experts(members, left, fewest, free, weights, miss, price)
    return members[:n]


@jit
def add_experts(
    members: Ints, n: int, least: int, free: Bools, weights: Floats, miss: Floats, price: Floats
) -> int:
    """Add the best experts to n members, beyond `least` while that helps; returns their number."""
    missed = np.empty(weights.size)
    while n < members.size:
        fill_missed(missed, weights, miss, members[:n], -1)
        one = find_cheapest_addition(missed, free, miss, price)
        objective = add_missed(price[one], missed, miss, one)
        if n >= least and not objective < missed.sum() - MIN_CHANGE_GAIN:
            break
        members[n] = one
        free[one] = False
        n += 1
    return n


@jit
def find_cheapest_addition(missed: Floats, free: Bools, miss: Floats, price: Floats) -> int:
    """Find the free expert with the least sum_z missed_z miss_zi + price_i, ties by index."""
    totals, one, least = price.copy(), -1, np.inf
    for z in range(missed.size):
        factor, row = missed[z], miss[z]
        for i in range(totals.size):
            totals[i] += factor * row[i]
    for i in range(totals.size):
        if free[i] and totals[i] < least:
            one, least = i, totals[i]
    return one


@jit
def change_best_member(
    members: Ints, fewest: int, free: Bools, weights: Floats, miss: Floats, price: Floats
) -> int:
    """Exchange a member for another expert, or leave it out if there are more than `fewest`.

    The change that gains most is made; returns how many members are left, 0 if none gains. The
    last member takes the place of one that is left out.
    """
    gain, leaving, coming, rest = MIN_CHANGE_GAIN, -1, -1, np.empty(weights.size)
    for place in range(members.size):
        fill_missed(rest, weights, miss, members, place)
        was = add_missed(price[members[place]], rest, miss, members[place])
        without = was - rest.sum()
        if members.size > fewest and without > gain:
            gain, leaving, coming = without, place, -1
        one = find_cheapest_addition(rest, free, miss, price)
        if one >= 0:
            saved = was - add_missed(price[one], rest, miss, one)
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
