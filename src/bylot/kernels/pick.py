"""The set that is best when what its members miss is multiplied and what they cost is added up.

Owns the search; whose numbers these are is left to the policies.
"""

import numpy as np

from bylot.kernels.compile import Bools, Floats, Ints, compiled

SWAPS = 6  # at most; a second one is rare
BETTER = 1e-12  # by how much a swap must pay


@compiled
def pick_set(miss: Floats, toll: Floats, m: int, up: Bools) -> Ints:
    """m experts that make prod_{i in A} miss_i + sum_{i in A} toll_i small, in O(K m).

    One by one, whoever helps most; then, while that pays, the best exchange of a member for
    another. `up` masks who can be chosen, m of them at least; an empty one stands for all.

    >>> miss, toll = np.array([0.2, 0.3, 0.5]), np.array([0.9, 0.0, 0.1])
    >>> pick_set(miss, toll, 2, np.empty(0, np.bool_))
    array([1, 2])
    """
    members = gathered(miss, toll, m, up)
    free = np.ones(miss.size, np.bool_) if up.size == 0 else up.copy()
    for place in range(m):
        free[members[place]] = False
    for _ in range(SWAPS):
        if not swapped(members, free, miss, toll):
            break
    return members


@compiled
def gathered(miss: Floats, toll: Floats, m: int, up: Bools) -> Ints:
    """m experts, each of them the one that helps most beside those before."""
    members = np.empty(m, np.int64)
    free = np.ones(miss.size, np.bool_) if up.size == 0 else up.copy()
    missed = 1.0
    for place in range(m):
        one = cheapest(missed, free, miss, toll)
        members[place] = one
        free[one] = False
        missed *= miss[one]
    return members


@compiled
def cheapest(missed: float, free: Bools, miss: Floats, toll: Floats) -> int:
    """The free one with the least missed * miss_i + toll_i; the first among equals."""
    one, least = -1, np.inf
    for i in range(miss.size):
        price = missed * miss[i] + toll[i]
        if free[i] and price < least:
            one, least = i, price
    return one


@compiled
def swapped(members: Ints, free: Bools, miss: Floats, toll: Floats) -> bool:
    """Make the one exchange that pays most, if any does."""
    gain, leaving, coming = BETTER, -1, -1
    for place in range(members.size):
        rest = 1.0  # of the others, multiplied: not divided by, as a factor may be tiny
        for other in range(members.size):
            rest *= miss[members[other]] if other != place else 1.0
        one = cheapest(rest, free, miss, toll)
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
