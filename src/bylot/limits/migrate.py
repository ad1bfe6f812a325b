"""Migration: what limits keep when a problem changes while decisions are open.

Limits are the same if they are on the same side of the same cost, in the same kind of window, for
the same requests. What was spent stays in its units; what is reserved stays with its decisions.
"""

import math
from collections.abc import Sequence

import numpy as np

from bylot.limits.costs import is_varying
from bylot.limits.forecast import HOUR_US, shift_traffic
from bylot.limits.ledger import compute_reserved_cost
from bylot.limits.records import LimitRule, LimitState, LimitTables, point_to_limits
from bylot.limits.rows import compute_row_units
from bylot.limits.schedule import SUM_TOLERANCE
from bylot.limits.settlement import update_schedule
from bylot.limits.windows import HISTORY_HOURS, fill_tables, list_tables
from bylot.numerics.jit import Floats
from bylot.problem import Limit, Problem
from bylot.problem.change import ProblemChange

KEPT_COUNTS = ("rounds", "first", "replaced", "settled", "now", "hour")
TRAFFIC_COUNTS = (
    *("local_hour", "first_hour", "first_at", "last_at"),
    *("hour_requests", "all_requests", "recent", "usual"),
)
WINDOW_COUNTS = ("requests", "requests_before", "to_come", "first", "first_before", "share")


def migrate_limits(
    change: ProblemChange,
    old_rule: LimitRule,
    old: LimitState,
    rule: LimitRule,
    new: LimitState,
) -> None:
    """Write into a state before its first request what another problem has left."""
    d = len(rule.rows)
    keep_counts(change, old, new)
    if rule.paced:
        new.clock["asked"] = -(-old.clock["asked"] // rule.paced) * rule.paced
    kept_limits, limits = change.limits
    same = change.same_limits
    new.learned["missed"][limits[same]] = old.learned["missed"][kept_limits[same]]
    rounds = int(old.clock["rounds"][0])
    everybody = new.ledgers[:d]
    everybody["first"] = rounds
    everybody["first_before"] = rounds
    new.learned["since"] = rounds
    keep_learned_costs(change, old, new)
    keep_windows(change, old, new)
    keep_reserves(change, old, new)
    continue_period(change, old_rule, old, rule, new)
    if new.learned["reports"].any():
        update_schedule(point_to_limits(rule, new))


def keep_counts(change: ProblemChange, old: LimitState, new: LimitState) -> None:
    """Go on counting decisions and traffic."""
    for name in KEPT_COUNTS:
        new.clock[name] = old.clock[name]
    new.clock["first_before"] = old.clock["first"]  # what the period before has spent is not kept
    new.clock["begun"] = new.offsets.size > 0
    if old.offsets.size and new.offsets.size:
        new.offsets[:] = old.offsets
        new.hours[:] = old.hours
        for name in TRAFFIC_COUNTS:
            new.clock[name] = old.clock[name]
    calendars = change.old.calendars
    for c, calendar in enumerate(change.new.calendars):
        if calendar in calendars:
            before = calendars.index(calendar)
            new.edges[c] = old.edges[before]
            new.windows[c] = old.windows[before]


def keep_learned_costs(change: ProblemChange, old: LimitState, new: LimitState) -> None:
    """Keep the means of experts and costs, unless another cost is declared."""
    here, there = change.limits
    mine, yours = change.experts
    ratio = compute_row_units(change.old)[here] / compute_row_units(change.new)[there]
    for a, b, factor in zip(here, there, ratio, strict=True):
        if old.learned["reports"][a] > 0:
            same = change.old.rows[a][mine] == change.new.rows[b][yours]
            i = mine[same]
            k = yours[same]
            new.means[b, k] = old.means[a, i] * factor
            new.weight[b, k] = old.weight[a, i]
            for name in ("noise", "squares"):
                new.learned[name][b] = old.learned[name][a] * factor**2
            for name in ("reports", "peak"):
                new.learned[name][b] = old.learned[name][a]
        new.learned["dearest"][b] = old.learned["dearest"][a] * factor
    if old.waiting.shape[0] > 0:
        new.waiting[:, yours] = old.waiting[:, mine].max(axis=0)  # of a cost without a limit so far
        new.waiting[np.ix_(there, yours)] = old.waiting[np.ix_(here, mine)]
        new.waiting[[limit.scope is not None for limit in change.new.limits]] = 0


def keep_windows(change: ProblemChange, old: LimitState, new: LimitState) -> None:
    """Let windows of the same calendar go on, and keep the hourly history of each cost."""
    for i, j in list_pairs(change):
        if change.old.limits[i].calendar == change.new.limits[j].calendar:
            for name in WINDOW_COUNTS:
                new.ledgers[name][j] = old.ledgers[name][i]
    if old.history.size and new.history.size:
        new.hour_first[:] = old.hour_first
        units = compute_row_units(change.old)
        new_units = compute_row_units(change.new)
        for j, limit in enumerate(change.new.limits):
            source = find_source(change.old.limits, limit)
            if limit.is_total and source is not None:
                new.history[j] = old.history[source] * (units[source] / new_units[j])
                new.held[j] = old.held[source] * (units[source] / new_units[j])
                new.learned["since"][j] = old.learned["since"][source]


def list_pairs(change: ProblemChange) -> list[tuple[int, int]]:
    """Return the places of limits that both problems have."""
    here, there = change.limits
    return list(zip(here.tolist(), there.tolist(), strict=True))


def keep_reserves(change: ProblemChange, old: LimitState, new: LimitState) -> None:
    """Keep the reserves of decisions without a report, which no edit changes.

    That of a new window is computed by `begin_windows`; those of keys are in their ledgers.
    A new limit in periods, or the first largest costs of a limit, count all calls that are out.
    """
    units = compute_row_units(change.old)
    new_units = compute_row_units(change.new)
    known = {limit.key for limit in change.old.limits if limit.name in change.old.max_costs}
    matched = set()
    for i, j in list_pairs(change):
        matched.add(j)
        for name in ("reserved", "reserved_before"):
            new.ledgers[name][j] = old.ledgers[name][i] * units[i] / new_units[j]
    for j, limit in enumerate(change.new.limits):
        in_periods = limit.per is None and not limit.where
        largest = change.new.max_costs.get(limit.name)
        is_new = limit.key not in known and (in_periods or j in matched)
        if largest is not None and limit.sign < 0 and limit.scope is None and is_new:
            excess = (largest - change.new.costs[limit.name]) / new_units[j]
            reserved = float(new.ledgers["reserved"][j])
            more = max(float(new.waiting[j] @ excess) - reserved, 0.0)
            new.ledgers["reserved"][j] += more
            if len(new.held):
                new.held[j, int(new.clock["hour"][0]) % HISTORY_HOURS] += more


def continue_period(
    change: ProblemChange,
    old_rule: LimitRule,
    old: LimitState,
    rule: LimitRule,
    new: LimitState,
) -> None:
    """Continue the current period: n rounds played, at spent = n b + over.

    A limit with the same bound keeps what was spent or saved; of one with another bound only the
    overspend is kept, as savings were made under another bound; a new one counts as just satisfied.

    The other P - n rounds must suffice for the guard and its schedule from place 0, also for what
    calls without a report may cost beyond what is booked, open:
    over + open + (P - n) F + ahead <= (P - n) b. So n is the number of rounds played, or less: then
    the period ends later. An overspend that a whole period cannot make up for is dropped and counts
    as a missed period.
    """
    d = len(rule.rows)
    here, there = change.limits
    bound = rule.rows["bound"]
    planned = rule.rows["planned"]
    played = int(old_rule.period - old.clock["left"][0])
    unit = compute_row_units(change.old)[here]
    units = compute_row_units(change.new)[there]
    spent = old.ledgers["spent"][: len(old_rule.rows)]
    more = (spent - played * old_rule.rows["bound"])[here] * unit / units  # beyond the bounds
    later = np.where(planned, compute_open_costs(rule, new), 0.0)
    over = np.zeros(d)
    over[there] = np.where(
        change.same_limits, more, np.maximum(more, -np.maximum(later[there], 0.0))
    )
    over = np.where(planned, over, 0.0)
    least = 1
    if rule.on:
        room = bound - rule.schedule.mean
        ahead = np.where(planned, rule.schedule.ahead[0], 0.0)
        most = np.maximum(rule.period * room - ahead, 0.0)
        new.learned["missed"] += over > most + SUM_TOLERANCE * rule.period * np.abs(bound)
        over = np.minimum(over, most)
        ahead = ahead + later
        short = over + ahead > SUM_TOLERANCE * np.abs(bound)
        needed = (over + ahead)[short] / np.maximum(room[short], SUM_TOLERANCE)
        least = math.ceil(min(float(needed.max(initial=1.0)), rule.period))
    n = min(played, rule.period - least)
    new.clock["left"] = rule.period - n
    new.ledgers["spent"][:d] = np.where(planned, n * bound + over, 0.0)
    keep_window_spend(change, old, rule, new)


def keep_window_spend(
    change: ProblemChange, old: LimitState, rule: LimitRule, new: LimitState
) -> None:
    """Keep what was spent in windows that go on, and in those before them if bounds are the same;
    `begin_windows` computes what others have spent.
    """
    units = compute_row_units(change.old)
    new_units = compute_row_units(change.new)
    for (i, j), same in zip(list_pairs(change), change.same_limits.tolist(), strict=True):
        goes_on = change.old.limits[i].calendar == change.new.limits[j].calendar
        if goes_on and not rule.rows["planned"][j]:
            ratio = units[i] / new_units[j]
            new.ledgers["spent"][j] = old.ledgers["spent"][i] * ratio
            new.ledgers["before"][j] = old.ledgers["before"][i] * ratio
            if not same:
                new.ledgers["before"][j] = 0.0
                new.ledgers["first_before"][j] = new.ledgers["first"][j]


def compute_open_costs(rule: LimitRule, state: LimitState) -> Floats:
    """Return (d,) what calls without a report may cost beyond what is booked, as the guard counts
    them.
    """
    limits = point_to_limits(rule, state)
    costs = np.zeros(len(rule.rows))
    for j in range(len(costs)):
        if is_varying(limits, j):
            costs[j] = compute_reserved_cost(limits, j)
    return costs


def find_source(limits: Sequence[Limit], wanted: Limit) -> int | None:
    """Return the place of a budget on the same cost of the same requests, of the same windows if
    there is one.
    """
    same = [limit.key._replace(per="") == wanted.key._replace(per="") for limit in limits]
    found = [i for i, limit in enumerate(limits) if limit.is_total and same[i]]
    return min(found, key=lambda i: limits[i].key != wanted.key, default=None)


def begin_windows(
    old: Problem,
    new: Problem,
    was: LimitState,
    limits: LimitTables,
    at: int,
    tables: Sequence[Sequence[int]] | None,
) -> Sequence[Sequence[int]]:
    """After an edit, write what the current windows of new limits have spent and reserved so far.

    tables: of windows, in a replay: as they were; those that were filled are returned

    What was spent is known by the hours of the history, of which the one in which a window began
    counts as a whole. What is reported later about decisions of these hours is booked in the
    window. Without a history of the cost, a window has the decisions after the edit only.
    """
    rule, state = limits
    tables = tables or list_tables(new.calendars, state, at)  # may raise an error
    fill_tables(state, tables)
    t = int(state.clock["rounds"][0])
    hour = int(state.clock["hour"][0])
    known = {limit.key: limit.calendar for limit in old.limits}
    for j, limit in enumerate(new.limits):
        if limit.calendar is None or limit.scope or known.get(limit.key) == limit.calendar:
            continue
        start = int(state.edges[rule.rows["window"][j], 0]) // HOUR_US
        hours = range(max(start, hour - HISTORY_HOURS + 1), hour + 1)
        places = [passed % HISTORY_HOURS for passed in hours]
        ledger = state.ledgers[j]
        ledger["spent"] = sum(state.history[j, places].tolist())
        ledger["reserved"] = max(sum(state.held[j, places].tolist()), 0.0)
        has_history = limit.is_total and find_source(old.limits, limit) is not None
        begun = max(state.hour_first[places[0]], state.learned["since"][j]) if places else t
        ledger["first"] = ledger["first_before"] = begun if has_history else t
        ledger["requests"] = 0 if limit.where else t - ledger["first"]
    if was.offsets.size:
        offset = int(state.offsets[0] - was.offsets[was.windows["place"][0]])
        if offset and new.calendars[0].zone != old.calendars[0].zone:
            shift_traffic(state, offset)
    return tables
