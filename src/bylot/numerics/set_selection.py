"""Selecting a set of experts: the M best scores, or a greedy search with exchanges.

`available` masks the experts that can be chosen; an empty mask stands for all.
"""

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.scratch_arrays import borrow_row, scratch_floats
from bylot.numerics.simd import (
    SIMD_WIDTH,
    find_lowest_bit,
    keep_below,
    load_inside,
    mask_equal,
    max_by_lane,
    max_lanes,
    min_by_lane,
    min_lanes,
    splat,
    store_inside,
)

MAX_RANKED_SCORES = 8_192  # scores read by SIMD, all of them for each rank; of more, each once
MASK_BITS = 64


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
    found, count = 0, chosen.size
    if available.size == 0 and can_rank(scores, count) and fill_by_rank(chosen, scores):
        return
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


@jit
def can_rank(scores: Floats, count: int) -> bool:
    """Whether the best are found fastest one after the other, by SIMD."""
    return scores.size >= SIMD_WIDTH and scores.size * count <= MAX_RANKED_SCORES


@jit
def fill_by_rank(chosen: Ints, scores: Floats) -> bool:
    """Write the experts with the largest scores, ties by index: the largest, the next one, and so
    on; False if there are fewer numbers.

    Reading all scores for each takes a quarter of the time of sorting each into the best so far,
    where the processor mispredicts whether it is better.
    """
    found, score = 0, find_largest_below(scores, np.inf, True)
    while found < chosen.size:
        for first in range(0, scores.size, MASK_BITS):
            equal = mask_scores(scores, first, score)
            while equal != 0 and found < chosen.size:
                chosen[found] = first + find_lowest_bit(equal)
                found += 1
                equal &= equal - 1
        lower = find_largest_below(scores, score, False)
        if found < chosen.size and not lower < score:  # the rest is NaN
            return False
        score = lower
    return True


@jit
def find_largest_below(scores: Floats, bound: float, included: bool) -> float:
    """The largest score below a bound, or at most this."""
    last = load_inside(scores, scores.size - SIMD_WIDTH)  # overlaps the one before
    top = max_by_lane(last, splat(-np.inf)) if included else keep_below(last, bound)
    for i in range(0, scores.size - SIMD_WIDTH, SIMD_WIDTH):
        lanes = load_inside(scores, i)
        top = max_by_lane(lanes if included else keep_below(lanes, bound), top)
    return max_lanes(top)


@jit
def mask_scores(scores: Floats, first: int, score: float) -> int:
    """An integer whose bit k says whether expert first + k < first + 64 has this score."""
    mask, stop = 0, min(scores.size, first + MASK_BITS)
    whole = stop - stop % SIMD_WIDTH
    for i in range(first, whole, SIMD_WIDTH):
        mask |= mask_equal(load_inside(scores, i), score) << (i - first)
    if whole < stop:  # the last eight overlap those before
        last = stop - SIMD_WIDTH
        mask |= (mask_equal(load_inside(scores, last), score) >> (whole - last)) << (whole - first)
    return mask


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
SEARCHED_BLOCK = 64  # experts of a block of a large pool; a multiple of SIMD_WIDTH
MIN_SEARCHED_BLOCKS = 2  # of a large pool; in a smaller one, it takes longer to search by blocks


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
    if offered.size >= MIN_SEARCHED_BLOCKS * SEARCHED_BLOCK:
        return find_cheapest_by_blocks(missed, offered, miss)
    totals, lanes, i = scratch_floats(offered.size), splat(np.inf), 0
    while i <= offered.size - SIMD_WIDTH:
        eight = load_inside(offered, i)
        for z in range(missed.size):
            eight = eight + load_inside(borrow_row(miss, z), i) * missed[z]
        store_inside(totals, i, eight)
        lanes = min_by_lane(lanes, eight)
        i += SIMD_WIDTH
    least = min_lanes(lanes)
    while i < offered.size:
        totals[i] = add_missed(offered[i], missed, miss, i)
        least = min(least, totals[i])
        i += 1
    for place in range(offered.size if least < np.inf else 0):
        if totals[place] == least:
            return place
    return -1


@jit
def find_cheapest_by_blocks(missed: Floats, offered: Floats, miss: Floats) -> int:
    """`find_cheapest_addition` in a large pool: find the least of each block of experts by SIMD,
    then its place in the block that has it.
    """
    least, block, place = np.inf, -1, -1
    whole = offered.size - offered.size % SIMD_WIDTH
    for first in range(0, whole, SEARCHED_BLOCK):
        lanes = splat(np.inf)
        for i in range(first, min(first + SEARCHED_BLOCK, whole), SIMD_WIDTH):
            totals = load_inside(offered, i)
            for z in range(missed.size):
                totals = totals + load_inside(borrow_row(miss, z), i) * missed[z]
            lanes = min_by_lane(lanes, totals)
        found = min_lanes(lanes)
        if found < least:
            least, block = found, first
    for i in range(whole, offered.size):
        total = add_missed(offered[i], missed, miss, i)
        if total < least:
            least, place = total, i
    if place < 0 and block >= 0:
        for i in range(block, min(block + SEARCHED_BLOCK, whole)):
            if add_missed(offered[i], missed, miss, i) == least:
                return i
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
