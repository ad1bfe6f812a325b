"""A fixed rota that keeps all limits: what is played when a draw would endanger one of them.

It is a cycle, so that what it can cost from any place on, over any number of rounds, is known
exactly and not only measured.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats, Ints, compiled

CYCLE = 1_000  # rounds; quotas are rounded to so many parts


class Schedule(NamedTuple):
    """L sets, one a round and round again.

    With a_s = A 1[set s] the cost of its rounds under the one-sided rows and F their mean, n rounds
    from place s on cost at most n F + ahead[s], whatever n is.
    """

    sets: Ints  # (L, m)
    mean: Floats  # (d,) F
    ahead: Floats  # (L, d)


def schedule(quota: Floats, A: Floats, cycle: int = CYCLE) -> Schedule:
    """The rota of these inclusion probabilities under the rows A.

    >>> made = schedule(np.array([0.5, 0.5]), np.array([[1.0, 0.0]]), cycle=2)
    >>> made.sets.tolist(), made.mean.tolist(), made.ahead.tolist()
    ([[0], [1]], [0.5], [[0.5], [0.0]])
    """
    sets = rota(parts(quota, cycle), cycle)
    costs = A[:, sets].sum(axis=2).T  # (L, d)
    mean = costs.mean(axis=0)
    return Schedule(sets, mean, furthest(costs - mean))


def parts(quota: Floats, cycle: int) -> Ints:
    """Quotas as whole numbers of rounds of the cycle, with the sum that they should have."""
    exact = quota * cycle
    rounds = np.floor(exact).astype(np.int64)
    missing = round(float(quota.sum())) * cycle - int(rounds.sum())
    rounds[np.argsort(rounds - exact, kind="stable")[:missing]] += 1
    return rounds


@compiled
def rota(rounds: Ints, cycle: int) -> Ints:
    """In every round the m experts who are furthest behind: t n_i - L (times asked) is largest."""
    m = rounds.sum() // cycle
    sets, behind = np.empty((cycle, m), np.int64), np.zeros(rounds.size, np.int64)
    for t in range(cycle):
        for i in range(rounds.size):
            behind[i] += rounds[i]
        for place in range(m):
            first = -1
            for i in range(rounds.size):
                free = True
                for earlier in range(place):
                    free &= sets[t, earlier] != i
                if free and (first < 0 or behind[i] > behind[first]):
                    first = i
            sets[t, place] = first
        for place in range(m):
            behind[sets[t, place]] -= cycle
    return sets


def furthest(steps: Floats) -> Floats:
    """From every place of a cycle of steps, which sum to 0, the highest that any walk gets."""
    walk = np.cumsum(np.concatenate([np.zeros((1, steps.shape[1])), steps]), axis=0)[:-1]
    # From place s the walk meets all of the cycle's heights, less the one it starts at.
    return walk.max(axis=0) - walk if len(walk) else walk
