"""Ledgers of tenants: what each has spent in its window of every limit with scope "tenant".

All tenants share one budget, whose rows of such limits are those of one tenant at a time: its
ledger is loaded before a decision or a report, and stored after it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from bylot.limits.budget import Budget, Guard, close_window
from bylot.numerics.dispatch import dispatch_by_type
from bylot.numerics.jit import jit

LEDGER = np.dtype(
    [
        ("spent", np.float64),  # in the window that began at `start`, in units of the row
        ("before", np.float64),  # in the one before
        ("open", np.float64),  # what decisions without a report can cost more
        ("open_before", np.float64),  # likewise in the window before
        ("amount", np.float64),  # the tenant's own bound; NO_AMOUNT: the limit's
        ("start", np.int64),  # of the window, in microseconds; 0: there was none
        ("requests", np.int64),  # of the window
        ("start_before", np.int64),  # of the window before
        ("requests_before", np.int64),  # of the window before
        ("first", np.int64),  # decisions of all tenants before this window
        ("first_before", np.int64),  # and before the one before
    ]
)
Ledgers = npt.NDArray[Any]
"""(slots, limits with a scope) of LEDGER; a row is one tenant."""

NO_AMOUNT = -1.0
PRIOR_REQUESTS = 1.0  # that the mean of all tenants counts as in the share of one
BEFORE_WEIGHT = 0.5  # of requests in the window before


def make_ledgers(slots: int, limits: int) -> Ledgers:
    """Empty ledgers."""
    ledgers = np.zeros((slots, limits), LEDGER)
    ledgers["amount"] = NO_AMOUNT
    return ledgers


@jit
def load_rows(guard: Guard, budget: Budget, ledgers: Ledgers, slot: int) -> None:
    """Make the rows of limits for each tenant those of one; slot -1: of one that is archived, whose
    rows count nothing.
    """
    rule, windows, k = guard.windows, budget.windows, 0
    for j in range(rule.kind.size):
        if not rule.scoped[j]:
            continue
        if slot < 0:
            windows.applies[j] = False
            continue
        if windows.by_context.shape[0] == 0:
            windows.applies[j] = True
        one = ledgers[slot, k]
        budget.spent[j], budget.before[j] = one.spent, one.before
        budget.costs.open[j], budget.costs.open_before[j] = one.open, one.open_before
        windows.amount[j] = rule.amount[j] if one.amount == NO_AMOUNT else one.amount
        windows.requests[j], windows.requests_before[j] = one.requests, one.requests_before
        windows.first[j, 0], windows.first[j, 1] = one.first, one.first_before
        k += 1


@jit
def store_rows(guard: Guard, budget: Budget, ledgers: Ledgers, slot: int) -> None:
    """Write the rows back, and leave them empty."""
    rule, windows, k = guard.windows, budget.windows, 0
    for j in range(rule.kind.size):
        if not rule.scoped[j]:
            continue
        if slot >= 0:
            one = ledgers[slot, k]
            one.spent, one.before = budget.spent[j], budget.before[j]
            one.open, one.open_before = budget.costs.open[j], budget.costs.open_before[j]
            one.requests = windows.requests[j]
            one.first, one.first_before = windows.first[j, 0], windows.first[j, 1]
        clear_row(guard, budget, j)
        k += 1


@jit
def clear_row(guard: Guard, budget: Budget, j: int) -> None:
    """Leave the row of a limit for each tenant empty."""
    windows = budget.windows
    budget.spent[j] = budget.before[j] = 0.0
    budget.costs.open[j] = budget.costs.open_before[j] = 0.0
    windows.requests[j] = windows.requests_before[j] = 0
    windows.first[j, 0] = windows.first[j, 1] = 0
    windows.amount[j], windows.share[j] = guard.windows.amount[j], 1.0
    if windows.by_context.shape[0] == 0:
        windows.applies[j] = True


@jit
def begin_windows(
    guard: Guard, budget: Budget, ledgers: Ledgers, slot: int, tenants: int, keep: bool
) -> None:
    """Begin new windows of the tenant whose rows are loaded where the last ones are over, and say
    what share of all requests it has.

    With r requests of the tenant and R of all in this window, and r', R' in the one before, the
    share is (r + r'/2 + 1) / (R + R'/2 + tenants): at first that of an average tenant.

    keep: False: only look at how they would begin
    """
    rule, windows, k = guard.windows, budget.windows, 0
    for j in range(rule.kind.size):
        if not rule.scoped[j]:
            continue
        one, c = ledgers[slot, k], rule.calendar[j]
        start, begun = windows.edges[c, windows.place[c]], one.start_before
        if one.start != start:
            begun, missed = one.start, budget.missed[j]
            close_window(guard, budget, j)
            if keep:
                one.start_before, one.requests_before = one.start, windows.requests_before[j]
                one.start = start
            else:
                budget.missed[j] = missed
        before = windows.requests_before[j] if begun == windows.previous[c] else 0
        seen = windows.requests[j] + BEFORE_WEIGHT * before + PRIOR_REQUESTS
        all_seen = windows.passed[c, 0] + BEFORE_WEIGHT * windows.passed[c, 1]
        windows.share[j] = min(seen / (all_seen + PRIOR_REQUESTS * tenants), 1.0)
        k += 1


def load_tenant(rule: Any, state: Any, ledgers: Ledgers, slot: int) -> None:
    """`load_rows` of a policy with a budget."""
    raise NotImplementedError("compiled code only")


def store_tenant(rule: Any, state: Any, ledgers: Ledgers, slot: int) -> None:
    """`store_rows` of a policy with a budget."""
    raise NotImplementedError("compiled code only")


def begin_tenant(
    rule: Any, state: Any, ledgers: Ledgers, slot: int, tenants: int, keep: bool
) -> None:
    """`begin_windows` of a policy with a budget."""
    raise NotImplementedError("compiled code only")


for generic in (load_tenant, store_tenant, begin_tenant):
    dispatch_by_type(generic)
