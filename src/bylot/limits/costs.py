"""What calls cost on average, learned from reported spend, and what is to be kept in reserve.

Everything is in the signs and units of the one-sided rows of the limits (`constraint_rows`). A row
of a derived cost, as a share, is exact and never learned.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.limits.rows import ConstraintRows, compute_row_units
from bylot.limits.schedule import SCHEDULE_ROUNDS, FallbackSchedule
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.problem import Problem
from bylot.problem.change import ProblemChange

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


class CostRisk(NamedTuple):
    """What can vary under each limit."""

    worst: Floats  # (d, K) the most that a call can cost, where the promise is certain; else A
    scale: Floats  # (d, K) the size of the declared cost, never 0
    varies: Bools  # (d,) is it a declared cost, which a call may exceed?
    certain: Bools  # (d,) does the schedule keep the limit whatever calls cost, up to `worst`?
    excess: Floats  # (d, K) of the largest cost of a call over the declared one; 0: no largest


def make_exact_risk(A: Floats) -> CostRisk:
    """No call costs anything else than declared."""
    d = A.shape[0]
    least = LEAST_COST_FRACTION * np.abs(A).mean(axis=1, keepdims=True)
    scale = np.maximum(np.maximum(np.abs(A), least), MIN_COST_SCALE)
    return CostRisk(A, scale, np.zeros(d, np.bool_), np.zeros(d, np.bool_), np.zeros(A.shape))


def make_declared_risk(problem: Problem, rows: ConstraintRows) -> CostRisk:
    """Calls may cost more or less than declared; derived costs are exact."""
    varies = np.array([not limit.is_derived for limit in problem.limits], np.bool_)
    caps = make_largest_cost_rows(problem, rows)
    excess = np.where(np.isfinite(caps), caps - rows.A, 0.0)
    return make_exact_risk(rows.A)._replace(varies=varies, excess=excess)


def make_largest_cost_rows(problem: Problem, rows: ConstraintRows) -> Floats:
    """(d, K) the most that a call can cost; infinite where it is not declared, and for minima."""
    caps, units = np.full(rows.A.shape, np.inf), compute_row_units(problem)
    for j, limit in enumerate(problem.limits):
        if limit.sign < 0 and limit.name in problem.max_costs:
            caps[j] = problem.max_costs[limit.name] / units[j]
    return caps


class LearnedCosts(NamedTuple):
    """Means of the rows, and the schedule that follows from them."""

    means: Floats  # (d, K) of one call; as declared before the first report
    weight: Floats  # (d, K) reports that each mean counts as
    noise: Floats  # (d, 2) squared errors of reports, and the squared means that they belong to
    peak: Floats  # (d,) the largest excess of a report over its mean, in sizes of the largest call
    reports: Ints  # (d,) decisions whose cost was reported
    waiting: Ints  # (d, K) calls of this period whose cost in a row was not reported
    open: Floats  # (d,) reserve: what decisions without a report can cost beyond what is booked
    open_before: Floats  # (d,) the same in the window before
    planned: Floats  # (d, K) the means that the schedule was computed from
    margin: Floats  # one number: of the schedule
    plans: Ints  # decisions settled; at how many the next schedule is due; schedules put to use
    schedule: FallbackSchedule  # derived; used once there is one

    def is_valid(self) -> bool:
        """Can learning have led here?"""
        counts = (self.reports >= 0).all() and (self.waiting >= 0).all() and (self.plans >= 0).all()
        return bool(counts and (self.weight >= DECLARED_REPORTS).all() and (self.noise >= 0).all())


def start_learned_costs(A: Floats, risk: CostRisk, members: int) -> LearnedCosts:
    """The declared costs, of which nothing was reported."""
    d, K = A.shape
    squares = members * (risk.scale**2).mean(axis=1)
    return LearnedCosts(
        means=A.copy(),
        weight=np.full((d, K), DECLARED_REPORTS),
        noise=np.column_stack([FIRST_NOISE * squares, squares]),
        peak=np.ones(d),
        reports=np.zeros(d, np.int64),
        waiting=np.zeros((d, K), np.int64),
        open=np.zeros(d),
        open_before=np.zeros(d),
        planned=A.copy(),
        margin=np.zeros(1),
        plans=np.zeros(3, np.int64),
        schedule=FallbackSchedule(
            sets=np.zeros((SCHEDULE_ROUNDS, members), np.int64),
            mean=np.zeros(d),
            ahead=np.zeros((SCHEDULE_ROUNDS, d)),
            quota=np.zeros(K),
        ),
    )


def migrate_learned_costs(old: LearnedCosts, new: LearnedCosts, change: ProblemChange) -> None:
    """Means stay with their expert and cost, unless another cost is declared; a schedule is due."""
    (here, there), (mine, yours) = change.limits, change.experts
    ratio = compute_row_units(change.old)[here] / compute_row_units(change.new)[there]
    for a, b, factor in zip(here, there, ratio, strict=True):
        if old.reports[a] > 0:
            same = change.old.rows[a][mine] == change.new.rows[b][yours]
            i, k = mine[same], yours[same]
            new.means[b, k], new.weight[b, k] = old.means[a, i] * factor, old.weight[a, i]
            new.noise[b], new.reports[b] = old.noise[a] * factor**2, old.reports[a]
            new.peak[b] = old.peak[a]
    if old.waiting.shape[0] > 0:
        new.waiting[:, yours] = old.waiting[:, mine].max(axis=0)  # of a cost without a limit so far
        new.waiting[np.ix_(there, yours)] = old.waiting[np.ix_(here, mine)]
        new.waiting[[limit.scope is not None for limit in change.new.limits]] = 0
    new.plans[0] = old.plans[0]


@jit
def is_uncertain(risk: CostRisk, costs: LearnedCosts, j: int) -> bool:
    """Is a limit kept by a reserve? That begins with the first report of its cost."""
    return bool(risk.varies[j] and not risk.certain[j] and costs.reports[j] > 0)


@jit
def is_varying(risk: CostRisk, costs: LearnedCosts, j: int) -> bool:
    """Does the guard count calls of a row at their largest or learned costs, not as declared?"""
    return bool(risk.varies[j] and (risk.certain[j] or costs.reports[j] > 0))


@jit
def has_varying_cost(risk: CostRisk, costs: LearnedCosts) -> bool:
    """Is the cost of any row varying?"""
    some = False
    for j in range(risk.varies.size):
        some |= is_varying(risk, costs, j)
    return some


@jit
def get_guarded_row(risk: CostRisk, costs: LearnedCosts, j: int) -> Floats:
    """What the guard counts a call as: the most it can cost if that is certain, else its mean."""
    row: Floats = risk.worst[j] if risk.certain[j] else costs.means[j]
    return row


class CostSurprise(NamedTuple):
    """By how much reports of calls in one panel differ from the means."""

    error: float  # summed over the reports
    squares: float  # of the sizes of the calls, summed
    largest: float  # size of a call


@jit
def learn_cost(
    risk: CostRisk, costs: LearnedCosts, j: int, members: Ints, spend: float
) -> CostSurprise:
    """Learn from what some calls cost together.

    With s_i the larger of the mean m_i and the declared cost, and w_i its reports, s_i^2 is the
    variance of a call in units of the noise, v_i = s_i^2 / w_i that of the mean,
    gain_i = v_i / sum (v + s^2), and

        m_i += gain_i (spend - sum m),    1 / w_i -= gain_i / w_i.

    For a single call that is the mean of all reports, the declared cost counted as 3 of them.
    """
    means, weight, scale = costs.means[j], costs.weight[j], risk.scale[j]
    total, squares, spread, largest = 0.0, 0.0, 0.0, 0.0
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
def learn_noise(costs: LearnedCosts, j: int, found: CostSurprise) -> None:
    """Learn how much the cost of a panel varies.

    The calls of a panel answer the same request, so their costs vary together: the noise is that of
    their sum, not of each call alone.
    """
    rate = max(1.0 / (costs.reports[j] + FIRST_NOISE_REPORTS), 1.0 / MAX_NOISE_REPORTS)
    costs.noise[j, 0] += rate * (found.error * found.error - costs.noise[j, 0])
    costs.noise[j, 1] += rate * (found.squares - costs.noise[j, 1])
    kept = costs.peak[j] * (1.0 - 1.0 / MAX_NOISE_REPORTS)
    costs.peak[j] = max(kept, found.error / found.largest)


@jit
def clip_mean(mean: float, declared: float, sign: float) -> float:
    """A learned mean of at least a part of the declared cost, on the side of its row."""
    least = MIN_LEARNED_FRACTION * declared
    return max(mean, least) if sign > 0.0 else min(mean, least)


@jit
def compute_noise(costs: LearnedCosts, j: int) -> float:
    """The variance of the cost of a call, relative to the square of its mean."""
    return float(costs.noise[j, 0] / max(costs.noise[j, 1], 1e-300))


@jit
def compute_open_cost(costs: LearnedCosts, j: int, row: Floats, declared: Floats) -> float:
    """By how much calls without a report are expected to exceed the declared costs in this row."""
    total = 0.0
    for i in range(row.size):
        if costs.waiting[j, i] > 0:
            total += costs.waiting[j, i] * (row[i] - declared[i])
    return float(total)


@jit
def compute_reserve(
    risk: CostRisk, costs: LearnedCosts, j: int, n: int, quota: Floats, members: Ints
) -> float:
    """3 standard errors of the cost of n rounds of quotas p, of a panel, and of open calls; and one
    call of the largest excess so far.

    With a_i = n p_i + waiting_i, rho^2 sum_i (a_i + [i in panel]) s_i^2 is the noise of calls, and
    sum_i a_i^2 s_i^2 (rho^2 / w_i + (3 / 2 w_i)^2) that of the means, whose second part is what
    is left of the error of the declared cost. The excess is in sizes of the largest of the calls
    that may come, peak max_i min(a_i + [i in panel], 1) s_i: a panel of cheap experts needs little.
    """
    noise, means, weight = compute_noise(costs, j), costs.means[j], costs.weight[j]
    total, largest, bias = 0.0, 0.0, DECLARED_REPORTS * DECLARED_ERROR
    for i in range(quota.size):
        calls = n * quota[i] + costs.waiting[j, i]
        if calls > 0.0:
            s = max(abs(means[i]), risk.scale[j, i])
            error = noise / weight[i] + bias * bias / (weight[i] * weight[i])
            total += s * s * (calls * noise + calls * calls * error)
            largest = max(largest, min(calls, 1.0) * s)
    for i in members:
        s = max(abs(means[i]), risk.scale[j, i])
        total += s * s * noise
        largest = max(largest, s)
    return float(RESERVE_SIGMAS * math.sqrt(total) + costs.peak[j] * largest)
