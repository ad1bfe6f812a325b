"""What calls cost on average, learned from reported spend, and what is to be kept in reserve.

Everything is in the signs and units of the one-sided rows of the limits. A row of a derived cost,
as a share, is exact and never learned.
"""

import math
from typing import NamedTuple

from bylot.limits.records import Limits
from bylot.numerics.jit import Floats, Ints, jit

RESERVE_SIGMAS = 3.0  # standard errors that are kept in reserve
DECLARED_REPORTS = 3.0  # that a declared cost counts as
DECLARED_ERROR = 0.5  # standard error of a declared cost, relative to it
FIRST_NOISE = 0.25  # variance of the cost of a call before the first report, relative to its square
FIRST_NOISE_REPORTS = 20.0  # that it counts as
MAX_REPORTS = 1_000.0  # that a mean counts as: older ones are forgotten
MAX_NOISE_REPORTS = 10_000.0  # that the noise counts as: large costs are rare
MIN_LEARNED_FRACTION = 0.1  # of a declared cost, which no learned one is below
LEAST_COST_FRACTION = 0.02  # of the mean of a row: the scale of what is declared as free
MIN_COST_SCALE = 1e-9  # if all of the row is


@jit
def is_uncertain(limits: Limits, j: int) -> bool:
    """Return whether a limit is kept by a reserve, which begins with the first report of a cost."""
    row = limits.rows[j]
    return bool(row.varies and not row.certain and limits.learned[j].reports > 0)


@jit
def is_varying(limits: Limits, j: int) -> bool:
    """Return whether the guard counts calls of a row at their largest or learned costs."""
    row = limits.rows[j]
    return bool(row.varies and (row.certain or limits.learned[j].reports > 0))


@jit
def has_varying_cost(limits: Limits) -> bool:
    """Return whether the cost of any row is varying."""
    some = False
    for j in range(limits.rows.size):
        some |= is_varying(limits, j)
    return some


@jit
def get_guarded_row(limits: Limits, j: int) -> Floats:
    """Return what the guard counts a call as: the most it can cost if that is certain, else its
    mean.
    """
    row: Floats = limits.worst[j] if limits.rows[j].certain else limits.means[j]
    return row


class CostSurprise(NamedTuple):
    """By how much reports of calls in one panel differ from the means."""

    error: float  # summed over the reports
    squares: float  # of the sizes of the calls, summed
    largest: float  # size of a call


@jit
def learn_cost(limits: Limits, j: int, members: Ints, spend: float) -> CostSurprise:
    """Learn from what some calls cost together.

    With s_i the larger of the mean m_i and the declared cost, and w_i its reports, s_i^2 is the
    variance of a call in units of the noise, v_i = s_i^2 / w_i that of the mean,
    gain_i = v_i / sum (v + s^2), and

        m_i += gain_i (spend - sum m),    1 / w_i -= gain_i / w_i.

    For a single call that is the mean of all reports, the declared cost counted as 3 of them.
    """
    means = limits.means[j]
    weight = limits.weight[j]
    scale = limits.scale[j]
    total = 0.0
    squares = 0.0
    spread = 0.0
    largest = 0.0
    for i in members:
        s = max(abs(means[i]), scale[i])
        largest = max(largest, s)
        total += means[i]
        squares += s * s
        spread += s * s * (1.0 + 1.0 / weight[i])
    error = spend - total
    for i in members:
        s = max(abs(means[i]), scale[i])
        gain = s * s / weight[i] / spread
        weight[i] = min(weight[i] / (1.0 - gain), MAX_REPORTS)
        means[i] += gain * error
    return CostSurprise(error, squares, largest)


@jit
def learn_noise(limits: Limits, j: int, found: CostSurprise) -> None:
    """Learn how much the cost of a panel varies.

    The calls of a panel answer the same request, so their costs vary together: the noise is that of
    their sum, not of each call alone.
    """
    learned = limits.learned[j]
    rate = max(1.0 / (learned.reports + FIRST_NOISE_REPORTS), 1.0 / MAX_NOISE_REPORTS)
    learned.noise += rate * (found.error * found.error - learned.noise)
    learned.squares += rate * (found.squares - learned.squares)
    kept = learned.peak * (1.0 - 1.0 / MAX_NOISE_REPORTS)
    learned.peak = max(kept, found.error / found.largest)


@jit
def clip_mean(mean: float, declared: float, sign: float) -> float:
    """A learned mean of at least a part of the declared cost, on the side of its row."""
    least = MIN_LEARNED_FRACTION * declared
    return max(mean, least) if sign > 0.0 else min(mean, least)


@jit
def compute_noise(limits: Limits, j: int) -> float:
    """Return the variance of the cost of a call, relative to the square of its mean."""
    return float(limits.learned[j].noise / max(limits.learned[j].squares, 1e-300))


@jit
def count_waiting(limits: Limits, j: int, i: int) -> int:
    """Return the calls of expert i without a bill under limit j, which only the ledger of everybody
    counts.
    """
    return int(limits.waiting[j, i]) if limits.place[j] < limits.rows.size else 0


@jit
def compute_open_cost(limits: Limits, j: int, row: Floats, declared: Floats) -> float:
    """Return by how much calls without a bill are expected to exceed the declared costs."""
    total = 0.0
    for i in range(row.size):
        waiting = count_waiting(limits, j, i)
        if waiting > 0:
            total += waiting * (row[i] - declared[i])
    return float(total)


@jit
def compute_reserve(limits: Limits, j: int, n: int, quota: Floats, members: Ints) -> float:
    """Return 3 standard errors of the cost of n rounds of quotas p, of a panel, and of open calls;
    and one call of the largest excess so far.

    With a_i = n p_i + waiting_i, rho^2 sum_i (a_i + [i in panel]) s_i^2 is the noise of calls, and
    sum_i a_i^2 s_i^2 (rho^2 / w_i + (3 / 2 w_i)^2) that of the means, whose second part is what
    is left of the error of the declared cost. The excess is in sizes of the largest of the calls
    that may come, peak max_i min(a_i + [i in panel], 1) s_i: a panel of cheap experts needs little.
    """
    noise = compute_noise(limits, j)
    means = limits.means[j]
    weight = limits.weight[j]
    total = 0.0
    largest = 0.0
    bias = DECLARED_REPORTS * DECLARED_ERROR
    for i in range(quota.size):
        calls = n * quota[i] + count_waiting(limits, j, i)
        if calls > 0.0:
            s = max(abs(means[i]), limits.scale[j, i])
            error = noise / weight[i] + bias * bias / (weight[i] * weight[i])
            total += s * s * (calls * noise + calls * calls * error)
            largest = max(largest, min(calls, 1.0) * s)
    for i in members:
        s = max(abs(means[i]), limits.scale[j, i])
        total += s * s * noise
        largest = max(largest, s)
    return float(RESERVE_SIGMAS * math.sqrt(total) + limits.learned[j].peak * largest)
