"""WindowStatus: how a limit of the calendar stands in its window, and how long it will last."""

from typing import Any

import numpy as np
from msgspec import Struct

from bylot.errors import BudgetSpent
from bylot.limits.costs import get_guarded_row, is_varying
from bylot.limits.forecast import forecast_requests
from bylot.limits.keys import KeyNames
from bylot.limits.ledger import compute_later_cost, compute_reserved_cost
from bylot.limits.records import LimitTables, point_to_limits
from bylot.limits.rows import compute_row_units
from bylot.problem import Limit, Problem
from bylot.problem.calendar import WindowName, find_window
from bylot.problem.instants import compute_utc_offset, describe_reset

LASTS_HALVINGS, MINUTE_US = 30, 60_000_000
NEARLY_OVER = 50  # a budget that lasts until a 50th of its window before the end lasts long enough
FEW_REQUESTS = 20  # of a window, whose mean cost and first traffic say little yet


class WindowStatus(Struct, frozen=True, kw_only=True):
    """The current window of a limit; instants are microseconds since 1970.

    spent:       by the decisions of the window, as declared until it is reported
    reserved:    more that open calls may cost
    left:        of the bound; None for a share of requests
    used:        share of the bound that is spent
    projected:   what will be spent at the end, at the forecast and at what requests cost now
    lasts_until: when the bound will be spent at that pace; None: not in this window
    refused_from: when it will be spent although panels get as cheap as they can; likewise
    requests:    of the window so far, that count
    to_come:     requests that are forecast for the rest of it, and count
    """

    per: WindowName
    zone: str
    starts: int
    ends: int
    spent: float
    reserved: float = 0.0
    left: float | None = None
    used: float | None = None
    projected: float | None = None
    lasts_until: int | None = None
    refused_from: int | None = None
    requests: int
    to_come: float


def measure_window(
    problem: Problem, tables: LimitTables, j: int, at: int, usual_cost: float
) -> WindowStatus | None:
    """Measure the window of limit j at an instant; None if it has none, or each tenant has.

    usual_cost: of a request, while the window has few of them
    """
    limit = problem.limits[j]
    if limit.calendar is None or limit.per is None or limit.scope:
        return None
    rule, state = tables
    limits = point_to_limits(rule, state)
    c = int(rule.rows["window"][j])
    place = int(state.windows["place"][c])
    starts, ends = state.edges[c, place : place + 2].tolist()
    unit = -limit.sign * float(compute_row_units(problem)[j])
    requests, spent, reserved = 0, 0.0, 0.0
    if starts <= at < ends:
        ledger = state.ledgers[j]
        requests, spent = int(ledger["requests"]), float(ledger["spent"] * unit + 0.0)
        if is_varying(limits, j):
            reserved = max(float(compute_reserved_cost(limits, j) * unit), 0.0)
    else:
        starts, ends = find_window(limit.calendar, at)
    offset = compute_utc_offset(limit.zone, at)
    share = float(state.ledgers["share"][j])  # of all requests, that count

    to_come = 0.0
    is_known = bool(state.hours["weeks"].any())  # some are, so that the forecast is no first guess
    if state.clock["local_hour"][0] >= 0:
        to_come = share * float(forecast_requests(limits, at + offset, ends + offset))

    def count_until(end: int) -> float:
        """Return the requests of `to_come` until an instant; evenly before an hour is known."""
        if not is_known:
            return float(to_come * (end - at) / (ends - at))
        return share * float(forecast_requests(limits, at + offset, end + offset))

    shown: dict[str, Any] = {}
    if limit.is_total:
        cost = spent / requests if requests >= FEW_REQUESTS else usual_cost
        left = limit.bound - spent - reserved
        projected = spent + reserved + to_come * cost
        least = min(cost, unit * find_least_cost(problem, tables, j))

        def find_end(cost: float) -> int | None:
            """Return when the bound is spent if requests cost this much, unless it lasts."""
            if to_come * cost <= left or cost <= 0:
                return None
            low, high = at, ends
            for _ in range(LASTS_HALVINGS):
                middle = (low + high) // 2
                low, high = (middle, high) if count_until(middle) < left / cost else (low, middle)
            early = ends - high > (ends - starts) // NEARLY_OVER
            return high - high % MINUTE_US if early else None

        shown = {
            "reserved": reserved,
            "left": max(left, 0.0),
            "used": spent / limit.bound if limit.bound > 0 else float(np.sign(spent)),
            "projected": min(projected, max(limit.bound, spent)),
            "lasts_until": find_end(cost),
            "refused_from": find_end(least) if is_known or requests >= FEW_REQUESTS else None,
        }
    return WindowStatus(
        per=limit.per,
        zone=limit.zone,
        starts=starts,
        ends=ends,
        spent=spent,
        requests=requests,
        to_come=to_come,
        **shown,
    )


def make_spent_error(limit: Limit, now: int, at: int, keys: KeyNames) -> BudgetSpent:
    """Make the error of a request for which a budget leaves no panel.

    now: the time of the router, which does not go back; at: that of the request
    """
    assert limit.calendar is not None
    end = find_window(limit.calendar, now).end
    whom = f" for {limit.scope} {keys[limit.scope]!r}" if limit.scope else ""
    return BudgetSpent(
        f"{limit} leaves no panel{whom}",
        remedy=f"{describe_reset(end, limit.zone)}, or raise the bound",
        limit=limit,
        resets_at=end,
        reset_s=(end - at) / 1e6,
        field=limit.scope,
    )


def find_least_cost(problem: Problem, tables: LimitTables, j: int) -> float:
    """Return what a request costs under limit j when panels are as cheap as they get."""
    limit = problem.limits[j]
    if limit.when_spent == "refuse":
        return float(tables.rule.rows["low"][j])
    members = 1 if limit.when_spent == "fewer" else problem.min_members
    return float(np.sort(tables.state.means[j])[:members].sum())


def measure_cheapest_panel(problem: Problem, tables: LimitTables, j: int, members: int) -> float:
    """What has to be left under limit j for the cheapest panel of so many members, with what the
    guard sets aside for calls that vary.
    """
    limits = point_to_limits(*tables)
    row = get_guarded_row(limits, j)
    panel = np.argsort(row, kind="stable")[:members]
    cost = row[panel].sum() + compute_later_cost(limits, j, 0, 0, panel)
    return float(-problem.signs[j] * compute_row_units(problem)[j] * cost)
