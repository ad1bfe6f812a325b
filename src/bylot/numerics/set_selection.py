"""Selecting a set of experts: the M best scores, or a greedy search with exchanges.

`available` masks the experts that can be chosen; an empty mask stands for all.
"""

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.scratch_arrays import borrow_row, scratch_floats
from bylot.numerics.simd import (
    SIMD_WIDTH,
    load_inside,
    min_by_lane,
    min_lanes,
    splat,
    store_inside,
)


@jit
def choose_top_m(scores: Floats, count: int, available: Bools) -> Ints:
    """Choose the `count` available experts with the largest scores, best first, ties by index.

    If fewer are available, they repeat: the answer always has its length.

    >>> choose_top_m(np.array([0.1, 0.9, 0.5, 0.9]), 3, np.empty(0, np.bool_))
    array([1, 3, 2])
    >>> choose_top_m(np.array([0.1, 0.9, 0.5, 0.9]), 3, np.array([True, False, True, False]))
    array([2, 0, 2])
    """
    chosen = np.empty(count, np.int64)
    fill_top_m(chosen, scores, available)
    return chosen


@jit
def fill_top_m(chosen: Ints, scores: Floats, available: Bools) -> None:
    """Write the available experts with the largest scores, as `choose_top_m` does."""
    found, last = 0, chosen.size - 1
    least = -np.inf  # of the scores that were chosen, once all places are taken
    for i in range(scores.size):
        if available.size > 0 and not available[i]:
            continue
        if found > last and not scores[i] > least:
            continue
        place = min(found, last)  # the last one is dropped if all places are taken
        found = place + 1
        while place > 0 and scores[i] > scores[chosen[place - 1]]:
            chosen[place] = chosen[place - 1]
            place -= 1
        chosen[place] = i
        if found > last:
            least = scores[chosen[last]]
    repeat_members(chosen, found)


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
SEARCHED_BLOCK = 64  # experts of a block; a multiple of SIMD_WIDTH


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
def fill_missed(
    missed: Floats, weights: Floats, miss: Floats, members: Ints, n: int, without: int
) -> None:
    """Write weights_z prod miss_zi over n members but the one at place `without`.

    The product is not divided by that one, as this could lose all digits.
    """
    for z in range(weights.size):
        missed[z] = weights[z]
        for place in range(n):
            missed[z] *= miss[z, members[place]] if place != without else 1.0


@jit
def sum_missed(missed: Floats) -> float:
    """sum_z missed_z"""
    total = 0.0
    for z in range(missed.size):
        total += missed[z]
    return total


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
    fill_missed(missed, weights, miss, members, members.size, -1)
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
    members, offered = np.empty(most, np.int64), price.copy()  # prices of experts that can be added
    for i in range(available.size):
        offered[i] = price[i] if available[i] else np.inf
    n = add_experts(members, 0, first, offered, weights, miss)
    for _ in range(MAX_SET_CHANGES + most - fewest):
        left = change_best_member(members[:n], fewest, offered, weights, miss, price)
        if left == 0:
            break
        n = add_experts(members, left, fewest, offered, weights, miss)
    return members[:n]


@jit
def add_experts(
    members: Ints, n: int, least: int, offered: Floats, weights: Floats, miss: Floats
) -> int:
    """Add the best experts to n members, beyond `least` while that helps; returns their number."""
    missed = scratch_floats(weights.size)
    while n < members.size:
        fill_missed(missed, weights, miss, members, n, -1)
        one = find_cheapest_addition(missed, offered, miss)
        objective = add_missed(offered[one], missed, miss, one)
        if n >= least and not objective < sum_missed(missed) - MIN_CHANGE_GAIN:
            break
        members[n] = one
        offered[one] = np.inf
        n += 1
    return n


@jit
def find_cheapest_addition(missed: Floats, offered: Floats, miss: Floats) -> int:
    """Find the expert with the least sum_z missed_z miss_zi + offered_i, ties by index; -1 if none
    can be added.
    """
    totals, least, place = scratch_floats(SEARCHED_BLOCK), np.inf, -1
    for first in range(0, offered.size, SEARCHED_BLOCK):
        lanes, stop = splat(np.inf), min(first + SEARCHED_BLOCK, offered.size)
        whole = stop - stop % SIMD_WIDTH
        for i in range(first, whole, SIMD_WIDTH):
            eight = load_inside(offered, i)
            for z in range(missed.size):
                eight = eight + load_inside(borrow_row(miss, z), i) * missed[z]
            store_inside(totals, i - first, eight)
            lanes = min_by_lane(lanes, eight)
        lowest = min_lanes(lanes)
        for i in range(whole, stop):
            totals[i - first] = add_missed(offered[i], missed, miss, i)
            lowest = min(lowest, totals[i - first])
        if lowest < least:
            least, place = lowest, first
            while totals[place - first] != least:
                place += 1
    return place


@jit
def change_best_member(
    members: Ints, fewest: int, offered: Floats, weights: Floats, miss: Floats, price: Floats
) -> int:
    """Exchange a member for another expert, or leave it out if there are more than `fewest`.

    The change that gains most is made; returns how many members are left, 0 if none gains. The
    last member takes the place of one that is left out.
    """
    gain, leaving, coming, n = MIN_CHANGE_GAIN, -1, -1, members.size
    rest = scratch_floats(weights.size)
    for place in range(n):
        fill_missed(rest, weights, miss, members, n, place)
        was = add_missed(price[members[place]], rest, miss, members[place])
        without = was - sum_missed(rest)
        if n > fewest and without > gain:
            gain, leaving, coming = without, place, -1
        one = find_cheapest_addition(rest, offered, miss)
        if one >= 0:
            saved = was - add_missed(price[one], rest, miss, one)
            if saved > gain:
                gain, leaving, coming = saved, place, one
    if leaving < 0:
        return 0
    offered[members[leaving]] = price[members[leaving]]
    if coming < 0:
        members[leaving] = members[n - 1]
        return n - 1
    offered[coming] = np.inf
    members[leaving] = coming
    return n


@jit
def exchange_dearest(members: Ints, order: Ints, count: int, available: Bools) -> Ints:
    """Members among the first `count` of an order stay; the others are exchanged for the last of
    these that are available and no members. Empty if they are too few.

    >>> exchange_dearest(np.array([4, 0, 4]), np.array([0, 1, 2, 3, 4]), 3, np.empty(0, np.bool_))
    array([2, 0, 2])
    """
    out, taken, last = members.copy(), np.zeros(order.size, np.bool_), count - 1
    stays = np.zeros(order.size, np.bool_)
    for rank in range(count):
        stays[order[rank]] = True
    for i in members:
        taken[i] = stays[i]
    for place in range(members.size):
        if stays[members[place]]:
            continue
        first = 0
        while members[first] != members[place]:
            first += 1
        if first == place:
            while last >= 0 and (
                taken[order[last]] or (available.size > 0 and not available[order[last]])
            ):
                last -= 1
            if last < 0:
                return out[:0]
            out[place] = order[last]
            taken[order[last]] = True
        else:
            out[place] = out[first]
    return out
