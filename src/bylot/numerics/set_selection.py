"""The set that is best when what its members miss is multiplied and what they cost is added up.

Owns the search; whose numbers these are is left to the policies.
"""

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit


@jit
def choose_top_m(scores: Floats, count: int, up: Bools) -> Ints:
    """The `count` experts with the largest scores, best first, equals by index.

    `up` masks who can be chosen; an empty one stands for all. If they are fewer than `count`, they
    come round again, so that the answer has its length and its distinct members are all of them.

    >>> choose_top_m(np.array([0.1, 0.9, 0.5, 0.9]), 3, np.empty(0, np.bool_))
    array([1, 3, 2])
    >>> choose_top_m(np.array([0.1, 0.9, 0.5, 0.9]), 3, np.array([True, False, True, False]))
    array([2, 0, 2])
    """
    chosen, found = np.empty(count, np.int64), 0
    for i in range(scores.size):
        if up.size > 0 and not up[i]:
            continue
        if found == count and not scores[i] > scores[chosen[count - 1]]:
            continue
        found = min(found + 1, count)
        place = found - 1  # the last one falls out, if all places are taken
        while place > 0 and scores[i] > scores[chosen[place - 1]]:
            chosen[place] = chosen[place - 1]
            place -= 1
        chosen[place] = i
    repeat_members(chosen, found)
    return chosen


@jit
def fill_draws_from_set(draws: Ints, members: Ints) -> None:
    """Write the members of a panel into its draws, over and over if there are more of these."""
    for k in range(members.size):
        draws[k] = members[k]
    repeat_members(draws, members.size)


@jit
def repeat_members(chosen: Ints, found: int) -> None:
    """Fill up a panel by those found, over and over."""
    for j in range(found, chosen.size):
        chosen[j] = chosen[j - found]


MAX_SWAPS = 6  # at most; a second one is rare
MIN_SWAP_GAIN = 1e-12  # by how much a swap must pay


@jit
def choose_greedy_set(miss: Floats, toll: Floats, m: int, up: Bools) -> Ints:
    """m experts that make prod_{i in A} miss_i + sum_{i in A} toll_i small, in O(K m).

    One by one, whoever helps most; then, while that pays, the best exchange of a member for
    another. `up` masks who can be chosen, m of them at least; an empty one stands for all.

    >>> miss, toll = np.array([0.2, 0.3, 0.5]), np.array([0.9, 0.0, 0.1])
    >>> choose_greedy_set(miss, toll, 2, np.empty(0, np.bool_))
    array([1, 2])
    """
    members = build_greedy_set(miss, toll, m, up)
    free = np.ones(miss.size, np.bool_) if up.size == 0 else up.copy()
    for place in range(m):
        free[members[place]] = False
    for _ in range(MAX_SWAPS):
        if not swap_best_pair(members, free, miss, toll):
            break
    return members


@jit
def build_greedy_set(miss: Floats, toll: Floats, m: int, up: Bools) -> Ints:
    """m experts, each of them the one that helps most beside those before."""
    members = np.empty(m, np.int64)
    free = np.ones(miss.size, np.bool_) if up.size == 0 else up.copy()
    missed = 1.0
    for place in range(m):
        one = find_cheapest_addition(missed, free, miss, toll)
        members[place] = one
        free[one] = False
        missed *= miss[one]
    return members


@jit
def find_cheapest_addition(missed: float, free: Bools, miss: Floats, toll: Floats) -> int:
    """The free one with the least missed * miss_i + toll_i; the first among equals."""
    one, least = -1, np.inf
    for i in range(miss.size):
        price = missed * miss[i] + toll[i]
        if free[i] and price < least:
            one, least = i, price
    return one


@jit
def swap_best_pair(members: Ints, free: Bools, miss: Floats, toll: Floats) -> bool:
    """Make the one exchange that pays most, if any does."""
    gain, leaving, coming = MIN_SWAP_GAIN, -1, -1
    for place in range(members.size):
        rest = 1.0  # of the others, multiplied: not divided by, as a factor may be tiny
        for other in range(members.size):
            rest *= miss[members[other]] if other != place else 1.0
        one = find_cheapest_addition(rest, free, miss, toll)
        if one >= 0:
            was = rest * miss[members[place]] + toll[members[place]]
            saved = was - (rest * miss[one] + toll[one])
            if saved > gain:
                gain, leaving, coming = saved, place, one
    if leaving >= 0:
        free[members[leaving]] = True
        free[coming] = False
        members[leaving] = coming
    return leaving >= 0
