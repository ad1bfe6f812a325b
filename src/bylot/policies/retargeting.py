"""Bind a policy again when the traffic is not what it was bound for.

Budgets of the calendar mean a bound per request at some traffic. What a policy draws under follows
the forecast all the time; exploration, units and the fallback schedule are made for one traffic,
and are made again when it turns out to be another.
"""

from itertools import compress

import numpy as np

from bylot.errors import PolicyError
from bylot.limits.forecast import DAY_HOURS, compute_daily_requests
from bylot.limits.records import point_to_limits
from bylot.limits.windows import fill_tables, list_due_tables
from bylot.numerics.jit import Ints, announce_compilation
from bylot.policies.base import BoundPolicy, FeedbackKind, Policy
from bylot.policies.binding import bind_policy, migrate_policy
from bylot.problem.validation import MAX_TRAFFIC, MIN_TRAFFIC
from bylot.problem.window_bounds import DAYS_PER_WINDOW, mark_totals

FIRST_CHECKS = (32, 64, 128, 256, 512)  # decisions after which the traffic is looked at
CHECK_DECISIONS = 1_024  # between two later looks
MAX_BOUND_RATIO = 1.4  # of two bounds per request that are the same for a policy
TRAFFIC_DIGITS = 3


def is_check_due(t: int) -> bool:
    """Whether the traffic is to be looked at after t decisions."""
    return t in FIRST_CHECKS or (t > 0 and t % CHECK_DECISIONS == 0)


def find_next_check(t: int) -> int:
    """The first number of decisions after t at which the traffic is to be looked at.

    >>> find_next_check(0), find_next_check(32), find_next_check(600), find_next_check(1024)
    (32, 64, 1024, 2048)
    """
    first = next((n for n in FIRST_CHECKS if n > t), None)
    return first or (t // CHECK_DECISIONS + 1) * CHECK_DECISIONS


def retarget(
    policy: Policy,
    bound: BoundPolicy,
    horizon: int | None = None,
    feedback: FeedbackKind = "panel",
) -> BoundPolicy | None:
    """The policy bound for the traffic that is expected since the last decision.

    None if bounds stay about the same, or the policy cannot be bound for it.
    """
    problem = bound.problem
    totals = mark_totals(problem)
    if bound.limits is None or not totals.any():
        return None
    state = bound.limits.state
    at = int(state.clock["now"][0] + state.offsets[state.windows["place"][0]])
    budgets = compress(problem.limits, totals)
    days = min(DAYS_PER_WINDOW[limit.per or ""] for limit in budgets)
    pointer = point_to_limits(*bound.limits)
    daily = float(compute_daily_requests(pointer, at, DAY_HOURS * days))
    daily = min(max(float(f"{daily:.{TRAFFIC_DIGITS}g}"), MIN_TRAFFIC), MAX_TRAFFIC)
    other = problem.replace(traffic=daily)
    was, now = problem.bounds[totals], other.bounds[totals]
    if ((now <= MAX_BOUND_RATIO * was) & (was <= MAX_BOUND_RATIO * now)).all():
        return None
    try:
        rule, limits = bind_policy(policy, other, horizon, feedback)
    except PolicyError:  # as a period too short for such bounds
        return None
    with announce_compilation(policy.name):
        return migrate_policy(policy, bound, other, rule, limits)


def fill_due_tables(bound: BoundPolicy, at: int) -> None:
    """Fill the tables of windows, if they end before this instant."""
    if bound.limits is not None:
        tables = list_due_tables(bound.problem, bound.limits.state, at)
        if tables is not None:
            fill_tables(bound.limits.state, tables)


def find_stop(bound: BoundPolicy, times: Ints, start: int) -> int:
    """Return the first round from here on before which a router would have something to do."""
    if bound.limits is None:
        return times.size
    last = int(bound.limits.state.edges[:, -1].min())
    return max(start + 1, int(np.searchsorted(times, last, side="left")))
