"""Tables of limits for tests: bound to a problem, made of rows, or found in a router."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bylot.limits.binding import Pace, bind_limits, check_period, start_limits
from bylot.limits.records import ROW, FallbackSchedule, LimitRule, LimitTables
from bylot.limits.rows import ConstraintRows
from bylot.problem import Problem
from bylot.router.core import RouterCore

STILL = Pace(None, 0)  # bounds in force are the limits


def open_limits(problem: Problem, pace: Pace = STILL) -> LimitTables:
    """Return the limits of a problem for full panels, under guard and before the first request."""
    rule = bind_limits(problem, None, min(problem.draws, problem.size), True, pace)
    return LimitTables(rule, start_limits(rule, 1))


def open_rows(
    rows: ConstraintRows, plan: FallbackSchedule, period: int, on: bool = True
) -> LimitTables:
    """Return limits on exact costs with this schedule, if the period is long enough for it."""
    records = np.zeros(rows.b.size, ROW)
    records["bound"] = rows.b
    records["unit"] = 1.0
    records["planned"] = True
    for name in ("window", "column", "inner"):
        records[name] = -1
    check_period(records, rows.A, plan, period)
    members = plan.sets.shape[1]
    rule = LimitRule(
        rows=records,
        A=rows.A,
        worst=rows.A,
        scale=np.abs(rows.A),
        excess=np.zeros_like(rows.A),
        schedule=plan,
        on=on,
        fewest=1,
        most=members,
        draws=members,
        period=period,
        high=0.0,
        margin=0.0,
        columns=0,
        paced=0,
        traffic=0.0,
    )
    return LimitTables(rule, start_limits(rule, 1))


def iterate_numbers(tables: LimitTables | None) -> Iterator[Any]:
    """All arrays of a state of limits, records field by field; nothing without limits."""
    if tables is None:
        return
    arrays: tuple[Any, ...] = tables.state
    for array in arrays:
        if array.dtype.names is None:
            yield array
        else:
            yield from (array[name] for name in array.dtype.names)


def get_limits(core: RouterCore) -> LimitTables:
    """Return the limits of a router that keeps some."""
    assert core.book.tables is not None
    return core.book.tables
