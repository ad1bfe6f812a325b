"""A fallback schedule computed while a router runs, when costs turned out other than declared.

`rows.find_slater_point` solves a linear program for the schedule of declared costs. This
is compiled: it bisects the margin by which maximum-entropy panels keep the limits.
"""

import numpy as np

from bylot.limits.records import FallbackSchedule
from bylot.limits.schedule import (
    arrange_sets,
    compute_set_costs,
    compute_set_shares,
)
from bylot.numerics.jit import Floats, jit
from bylot.numerics.kl_projection import kl_project
from bylot.numerics.set_selection import choose_top_m, repeat_members

MARGIN_HALVINGS = 7
MAX_PLANNING_MULTIPLIER = 1e4  # of a row; more than that is infeasible
PLANNING_TOLERANCE = 1e-9  # excess of a row that counts as 0


@jit
def find_quota(A: Floats, b: Floats, fewest: int, most: int) -> tuple[float, Floats]:
    """delta and inclusion probabilities p with A p <= b - delta |b|, delta nearly the largest.

    The sum of p is a whole number from `fewest` to `most`. Without any such p: -1, and a p that
    exceeds the limits by little.
    """
    best, quota = -1.0, np.empty(A.shape[1])
    for size in range(most, fewest - 1, -1):
        low, high, trial = -1.0, 1.0, 0.0
        for _ in range(MARGIN_HALVINGS):
            excess, p = project_with_margin(A, b, trial, size)
            if excess <= PLANNING_TOLERANCE:
                low = trial
            else:
                high = trial
            if (low >= 0.0 and low > best) or (best < 0.0 and trial == 0.0):
                best, quota = low, p
            if low < 0.0:
                break  # not even without a margin
            trial = 0.5 * (low + high)
    return best, quota


@jit
def project_with_margin(A: Floats, b: Floats, margin: float, size: int) -> tuple[float, Floats]:
    """The largest excess, and inclusion probabilities that are as near to equal as limits allow."""
    K, d = A.shape[1], b.size
    theta, p, lam, tight, nil = np.zeros(K), np.empty(K), np.zeros(d), np.empty(d), np.zeros(K)
    for j in range(d):
        tight[j] = b[j] - margin * abs(b[j])
    if size >= K:
        excess = -np.inf
        for j in range(d):
            excess = max(excess, A[j].sum() - tight[j])
        return excess, np.ones(K)
    done = kl_project(theta, p, lam, nil, A, tight, size, 0.0, nil, MAX_PLANNING_MULTIPLIER)
    return done.excess, p


@jit
def fill_schedule(schedule: FallbackSchedule, quota: Floats, A: Floats) -> None:
    """Write the schedule of these quotas under the rows A."""
    cycle, width = schedule.sets.shape
    K, total, whole, asked = quota.size, 0.0, 0, 0
    rounds, rest = np.empty(K, np.int64), np.empty(K)
    for i in range(K):
        exact = quota[i] * cycle
        rounds[i] = int(np.floor(exact))
        rest[i] = exact - rounds[i]
        total += exact
        whole += rounds[i]
    missing = int(np.rint(total)) - whole
    if missing > 0:
        for i in choose_top_m(rest, missing, np.empty(0, np.bool_)):
            rounds[i] += 1
    experts = np.empty(K, np.int64)
    for i in range(K):
        if rounds[i] > 0:
            experts[asked] = i
            asked += 1
    sets = arrange_sets(rounds[experts[:asked]], cycle)
    for t in range(cycle):
        for place in range(sets.shape[1]):
            schedule.sets[t, place] = experts[sets[t, place]]
        repeat_members(schedule.sets[t], min(sets.shape[1], width))
    fill_schedule_costs(schedule, A)


@jit
def fill_schedule_costs(schedule: FallbackSchedule, A: Floats) -> None:
    """Write what follows from the sets of a schedule: mean cost, `ahead`, and quotas."""
    cycle, d = schedule.ahead.shape
    ahead, mean = schedule.ahead, schedule.mean
    costs = compute_set_costs(schedule.sets, A)
    shares = compute_set_shares(schedule.sets, A.shape[1])
    for i in range(shares.size):
        schedule.quota[i] = shares[i]
    for j in range(d):
        total, height, top = 0.0, 0.0, 0.0
        for t in range(cycle):
            total += costs[t, j]
        mean[j] = total / cycle
        for t in range(cycle):  # the walk before each round, and its highest point
            ahead[t, j] = height
            top = max(top, height)
            height += costs[t, j] - mean[j]
        for t in range(cycle):
            ahead[t, j] = top - ahead[t, j]
