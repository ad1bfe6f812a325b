"""Choosing a panel by score: the M best among the experts that are up."""

import numpy as np

from bylot.kernels.compile import Bools, Floats, Ints, compiled


@compiled
def best(scores: Floats, count: int, up: Bools) -> Ints:
    """The `count` experts with the largest scores, best first, equals by index.

    `up` masks who can be chosen; an empty one stands for all. If they are fewer than `count`, they
    come round again, so that the answer has its length and its distinct members are all of them.

    >>> best(np.array([0.1, 0.9, 0.5, 0.9]), 3, np.empty(0, np.bool_))
    array([1, 3, 2])
    >>> best(np.array([0.1, 0.9, 0.5, 0.9]), 3, np.array([True, False, True, False]))
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
    again(chosen, found)
    return chosen


@compiled
def seat(draws: Ints, members: Ints) -> None:
    """Write the members of a panel into its draws, over and over if there are more of these."""
    for k in range(members.size):
        draws[k] = members[k]
    again(draws, members.size)


@compiled
def again(chosen: Ints, found: int) -> None:
    """Fill up a panel by those found, over and over."""
    for j in range(found, chosen.size):
        chosen[j] = chosen[j - found]
