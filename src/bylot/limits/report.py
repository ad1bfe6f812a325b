"""What the guard promises for each limit, and where the current period or window stands."""

from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from bylot.limits.costs import compute_open_cost
from bylot.limits.ledger import bound_schedule_cost, compute_allowance, compute_later_cost
from bylot.limits.pacing import compute_cheapest_panel
from bylot.limits.records import LimitTables, point_to_limits
from bylot.limits.rows import compute_row_units
from bylot.problem import Problem

PromiseName = Literal["certain", "declared", "reserve", "broken"]
"""What the guard promises for the end of a period: that a limit holds whatever calls cost, up to
their largest costs; that it holds if calls cost what is declared, as nothing else was reported; or
that 3 standard errors of what calls were reported to cost are kept in reserve. Or that one of the
first two promises was broken (`make_limit_status`).
"""


def describe_promise(promise: PromiseName, window: str = "period", has_costs: bool = True) -> str:
    """What the guard promises for the end of a period, or of a window such as a day.

    has_costs: it is a limit on a cost, not on a share of calls

    >>> describe_promise("certain", "week", has_costs=False)
    'certain: it holds at the end of every week'
    """
    if promise == "declared":
        return (
            "certain if calls cost what is declared; once other costs are reported, a reserve of "
            "3 standard errors keeps it"
        )
    if promise == "reserve":
        return (
            "kept by a reserve of 3 standard errors of what calls were reported to cost, which "
            f"about 1 {window} in 700 exceeds if costs are near normal"
        )
    largest = ", whatever calls cost up to their largest costs" if has_costs else ""
    return f"certain: it holds at the end of every {window}{largest}"


def name_promise(row: Any, reports: int = 0) -> PromiseName:
    """Return the promise for a limit after so many reports of its cost; row: its ROW."""
    if row["certain"] or not row["varies"]:
        return "certain"
    return "reserve" if reports > 0 else "declared"


class LimitInPeriod(Struct, frozen=True):
    """One limit in the current period or window, at whose end it is to hold."""

    mean: float | None  # over the decisions of it; None before the first
    in_force: float  # the bound that panels are drawn under now
    within_reach: bool  # the guard and the experts available last can still meet the limit
    short: bool  # the experts available last would miss it
    lost: bool  # every panel at stated cost would miss it, whichever experts are available
    missed: int  # those that ended outside the limit since it has this bound
    promise: PromiseName = "declared"


class BudgetReport(NamedTuple):
    """The current period, and every limit in it."""

    period: int
    played: int  # rounds of it
    replaced: int  # panels that the guard replaced, in all periods
    limits: list[LimitInPeriod]


def report_budget(problem: Problem, tables: LimitTables | None) -> BudgetReport | None:
    """Return the ledgers in the units and signs of the problem; None without a guard.

    A limit is within reach if the fallback schedule would still satisfy it, and so would the
    experts available at the last decision; learned costs are forecast by their means, also those of
    calls without a report, which are booked as declared. It is lost if even the cheapest panels of
    all experts, at their learned costs, would end outside: spent + n least > P b.
    """
    if tables is None or not tables.rule.on:
        return None
    rule, state = tables
    limits = point_to_limits(rule, state)
    clock = state.clock[0]
    unit = -problem.signs * compute_row_units(problem)  # + 0.0 below turns -0 into 0
    left = int(clock["left"])
    place = int(clock["place"])
    played = rule.period - left
    least = compute_cheapest_panel(state.means, rule.fewest, problem.draws)
    bounds = state.bounds if played else rule.rows["bound"]  # a new period has none in force yet
    no_members = np.empty(0, np.int64)
    found = []
    for j, row in enumerate(rule.rows):
        spent = float(state.ledgers["spent"][j])
        requests = played if row["planned"] else int(state.ledgers["requests"][j])
        mean = float(spent * unit[j] / requests + 0.0) if requests else None
        in_force = float(bounds[j] * unit[j] + 0.0)
        short = bool(state.learned["short"][j])
        missed = int(state.learned["missed"][j])
        promise = name_promise(row, int(state.learned["reports"][j]))
        reach = not short
        lost = False
        if row["planned"]:
            most = compute_allowance(rule.period, float(row["bound"]))
            if promise == "reserve":  # three standard errors are for the guard; this is a forecast
                means = state.means[j]
                ahead = float(state.ahead[place, j])
                later = bound_schedule_cost(left, float(state.quota @ means), ahead)
                later += compute_open_cost(limits, j, means, rule.A[j])
            else:
                later = compute_later_cost(limits, j, left, place, no_members)
            reach = bool(spent + later <= most) and not short
            lost = not reach and bool(spent + left * least[j] > most)
        found.append(LimitInPeriod(mean, in_force, reach, short, lost, missed, promise))
    return BudgetReport(rule.period, played, int(clock["replaced"]), found)
