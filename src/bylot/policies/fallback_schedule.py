"""A fixed schedule of panels that satisfies all limits: played when a draw would endanger one.

It is a cycle, so that its cost from any place on, over any number of rounds, is known exactly.
"""

from typing import NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.sampling import add_panel_cost
from bylot.numerics.set_selection import choose_top_m, repeat_members

SCHEDULE_ROUNDS = 1_000  # rounds; quotas are rounded to so many parts


class FallbackSchedule(NamedTuple):
    """L sets, one per round, repeated.

    With a_s = A 1[set s] the cost of its rounds under the one-sided rows and F their mean, n rounds
    from place s on cost at most n F + ahead[s], whatever n is.
    """

    sets: Ints  # (L, m); one of fewer than m members names its first again
    mean: Floats  # (d,) F
    ahead: Floats  # (L, d)


def make_fallback_schedule(
    quota: Floats, A: Floats, cycle: int = SCHEDULE_ROUNDS
) -> FallbackSchedule:
    """The schedule of these inclusion probabilities, whose sum is at least 1, under the rows A.

    >>> made = make_fallback_schedule(np.array([0.5, 0.5]), np.array([[1.0, 0.0]]), cycle=2)
    >>> made.sets.tolist(), made.mean.tolist(), made.ahead.tolist()
    ([[0], [1]], [0.5], [[0.5], [0.0]])
    """
    rounds = round_quotas(quota, cycle)
    asked = np.flatnonzero(rounds)
    return schedule_from_sets(asked[arrange_sets(rounds[asked], cycle)], A)


def schedule_from_sets(sets: Ints, A: Floats) -> FallbackSchedule:
    """The schedule of these sets, with what follows from them and the rows A."""
    costs = compute_set_costs(sets, np.ascontiguousarray(A))
    mean = costs.mean(axis=0)
    return FallbackSchedule(sets, mean, compute_highest_excursions(costs - mean))


def round_quotas(quota: Floats, cycle: int) -> Ints:
    """Quotas as whole numbers of rounds of the cycle, with the sum nearest to theirs.

    >>> round_quotas(np.array([1.0, 0.25, 0.25]), 10)
    array([10,  3,  2])
    """
    exact = quota * cycle
    rounds = np.floor(exact).astype(np.int64)
    missing = round(float(exact.sum())) - int(rounds.sum())
    rounds[np.argsort(rounds - exact, kind="stable")[:missing]] += 1
    return rounds


@jit
def arrange_sets(rounds: Ints, cycle: int) -> Ints:
    """Sets of floor((t + 1) S) - floor(t S) members, S = sum n_i / L, that ask expert i n_i times.

    In every round those who need all remaining rounds, then those with the largest deficit
    t n_i - L (times asked). The deficit alone would sometimes ask an expert once too often. This
    does not, as sizes differ by at most one: who needs all rounds has a place, and as no one needs
    more, those still to be asked are enough for every place.
    """
    total = rounds.sum()
    sets = np.empty((cycle, (total + cycle - 1) // cycle), np.int64)
    left, behind, score = rounds.copy(), np.zeros(rounds.size), np.empty(rounds.size)
    for t in range(cycle):
        for i in range(rounds.size):
            behind[i] += rounds[i]
            score[i] = np.inf if left[i] == cycle - t else behind[i]
        size = (t + 1) * total // cycle - t * total // cycle
        members = choose_top_m(score, size, left > 0)
        for place in range(size):
            sets[t, place] = members[place]
            left[members[place]] -= 1
            behind[members[place]] -= cycle
        repeat_members(sets[t], size)
    return sets


@jit
def compute_set_costs(sets: Ints, A: Floats) -> Floats:
    """(L, d) the cost of every set under each row."""
    costs = np.zeros((sets.shape[0], A.shape[0]))
    for t in range(sets.shape[0]):
        add_panel_cost(costs[t], A, sets[t])
    return costs


def compute_highest_excursions(steps: Floats) -> Floats:
    """From every place of a cycle of steps, which sum to 0, the highest point of any walk."""
    walk = np.cumsum(np.concatenate([np.zeros((1, steps.shape[1])), steps]), axis=0)[:-1]
    # From place s the walk visits all heights of the cycle, less the one it starts at.
    return walk.max(axis=0) - walk if len(walk) else walk
