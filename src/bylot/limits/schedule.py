"""A fixed schedule of panels that satisfies all limits: played when a draw would endanger one.

It is a cycle, so that its cost from any place on, over any number of rounds, is known exactly.
"""

import math

import numpy as np

from bylot.limits.records import FallbackSchedule
from bylot.limits.rows import ConstraintRows
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.sampling import add_panel_cost, is_first_draw
from bylot.numerics.set_selection import choose_top_m, repeat_members

SCHEDULE_ROUNDS = 1_000  # rounds; quotas are rounded to so many parts
SCHEDULE_LENGTHS = tuple(factor * SCHEDULE_ROUNDS for factor in (1, 10, 100))  # short ones first
SUM_TOLERANCE = 5e-13  # relative rounding error of the sum of a period's costs


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
    walk = np.cumsum(np.concatenate([np.zeros((1, len(A))), costs - mean]), axis=0)[:-1]
    # From place s the walk visits all heights of the cycle, less the one it starts at.
    ahead = walk.max(axis=0) - walk if len(walk) else walk
    return FallbackSchedule(sets, mean, ahead, compute_set_shares(sets, A.shape[1]))


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
    total = 0
    for i in range(rounds.size):
        total += rounds[i]
    sets = np.empty((cycle, (total + cycle - 1) // cycle), np.int64)
    left, behind, score = rounds.copy(), np.zeros(rounds.size), np.empty(rounds.size)
    wanted = np.empty(rounds.size, np.bool_)
    for t in range(cycle):
        for i in range(rounds.size):
            behind[i] += rounds[i]
            score[i] = np.inf if left[i] == cycle - t else behind[i]
            wanted[i] = left[i] > 0
        size = (t + 1) * total // cycle - t * total // cycle
        members = choose_top_m(score, size, wanted)
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


@jit
def compute_set_shares(sets: Ints, size: int) -> Floats:
    """(K,) the share of the sets that each expert is a member of."""
    shares = np.zeros(size)
    for t in range(sets.shape[0]):
        for place in range(sets.shape[1]):
            shares[sets[t, place]] += is_first_draw(sets[t], place)
    for i in range(size):
        shares[i] /= max(sets.shape[0], 1)
    return shares


def plan_schedule(rows: ConstraintRows, quota: Floats, period: int) -> FallbackSchedule:
    """The schedule of these quotas, in the shortest cycle that keeps the limits in the period."""
    plans = []
    for cycle in SCHEDULE_LENGTHS:
        plans.append(make_fallback_schedule(quota, rows.A, cycle))
        if compute_shortest_period(rows, plans[-1]) <= period:
            return plans[-1]
    return min(plans, key=lambda plan: compute_shortest_period(rows, plan))


def compute_shortest_period(rows: ConstraintRows, plan: FallbackSchedule) -> float:
    """The least P with P F_j + max_s ahead_sj <= P b_j for all limits; infinite if there is none.

    >>> rows = ConstraintRows(np.array([[1.0, 0.0]]), np.array([0.75]))
    >>> compute_shortest_period(rows, make_fallback_schedule(np.array([0.5, 0.5]), rows.A, cycle=2))
    2
    """
    room, ahead = rows.b - plan.mean, plan.ahead.max(axis=0, initial=0.0)
    tight = ahead > SUM_TOLERANCE * np.abs(rows.b)
    if (room[tight] <= 0).any() or (room < -SUM_TOLERANCE * np.abs(rows.b)).any():
        return math.inf
    return max(1, math.ceil(float((ahead[tight] / room[tight]).max(initial=1.0)) - SUM_TOLERANCE))


def find_shortest_period(rows: ConstraintRows, quota: Floats) -> float:
    """The shortest period at whose end some schedule of these quotas satisfies the limits."""
    plans = (make_fallback_schedule(quota, rows.A, cycle) for cycle in SCHEDULE_LENGTHS)
    return min(compute_shortest_period(rows, plan) for plan in plans)
