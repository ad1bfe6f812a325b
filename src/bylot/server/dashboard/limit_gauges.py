"""Gauges of limits on a router's page, and windows of the calendar and tenants in words; the status
has their numbers.
"""

from collections.abc import Sequence

from msgspec import Struct

from bylot.limits.window_status import WindowStatus
from bylot.problem import Limit
from bylot.problem.calendar import format_instant
from bylot.router.status import LimitStatus

GAUGE_HEADROOM = 1.25  # the scale ends this far past the largest of bound and averages
PERIOD_NAME = "period"
MAX_NAMED_CONTEXTS = 3  # in the heading of a card
MINUTE_US = 60_000_000


class LimitGauge(Struct, frozen=True):
    """Positions on a scale from 0 to `top`, as fractions of it; None: not on the scale.

    now:       what the limit is judged by: the average of this period or window, or since the first
               decision; of a budget, what its window has spent
    mean:      average since the first decision; of a budget, what would be spent by now if every
               request of the window cost the same
    reserved:  end of what open calls may cost beyond `now`; projected: at the end of the window
    """

    top: float
    bound: float
    mean: float
    now: float | None
    in_force: float | None
    outside: float  # where the range outside the bound begins
    beyond: float  # and its length
    reserved: float | None = None
    projected: float | None = None


def make_gauge(
    side: str, bound: float, mean: float, now: float | None, in_force: float | None
) -> LimitGauge:
    """The gauge of an average.

    The bound in force is shown if it fits: savings early in a period may move it far away.

    >>> gauge = make_gauge("at_most", bound=3.0, mean=2.0, now=4.0, in_force=9.0)
    >>> gauge.top, gauge.bound, gauge.mean, gauge.now, gauge.in_force, gauge.outside, gauge.beyond
    (5.0, 0.6, 0.4, 0.8, None, 0.6, 0.4)
    """
    top = GAUGE_HEADROOM * max(bound, mean, now or 0.0) or 1.0
    position = bound / top
    return LimitGauge(
        top=top,
        bound=position,
        mean=mean / top,
        now=None if now is None else now / top,
        in_force=None if in_force is None or in_force > top else in_force / top,
        outside=position if side == "at_most" else 0.0,
        beyond=1.0 - position if side == "at_most" else position,
    )


def make_budget_gauge(bound: float, window: WindowStatus | None) -> LimitGauge:
    """The gauge of a budget; empty before the first decision.

    >>> gauge = make_budget_gauge(500.0, None)
    >>> gauge.bound, gauge.now, gauge.mean
    (0.8, 0.0, 0.0)
    """
    spent, held, projected, even = 0.0, 0.0, 0.0, 0.0
    if window is not None:
        spent, held, projected = window.spent, window.reserved, window.projected or 0.0
        even = bound * window.requests / max(window.requests + window.to_come, 1.0)
    top = GAUGE_HEADROOM * max(bound, spent + held, projected) or 1.0
    return LimitGauge(
        top=top,
        bound=bound / top,
        mean=even / top,
        now=spent / top,
        in_force=None,
        outside=bound / top,
        beyond=1.0 - bound / top,
        reserved=(spent + held) / top,
        projected=projected / top,
    )


class WindowView(Struct, frozen=True):
    """The window of a limit in words: from when to when, and how long its bound lasts; to_come:
    requests that are forecast for the rest of it.
    """

    span: str
    lasts: str
    reserved: float  # 0 also if open calls are likely to cost less than declared
    to_come: int


def view_window(status: LimitStatus) -> WindowView | None:
    """The current window in the local time of its zone; None if there is none (yet)."""
    window = status.window
    if window is None:
        return None
    starts, ends = (format_local(at, window.zone) for at in (window.starts, window.ends))
    lasts = f"the end of the {window.per}"
    if status.verdict == "spent":
        lasts = "it is spent"
    elif (until := window.refused_from or window.lasts_until) is not None:
        lasts = format_local(until - until % MINUTE_US, window.zone)
    span, reserved = f"{starts} to {ends} {window.zone}", max(window.reserved, 0.0)
    return WindowView(span, lasts, reserved, round(window.to_come))


def format_local(at: int, zone: str) -> str:
    """Date and time of the local clock, without the zone.

    >>> format_local(1_794_956_400_000_000, "Europe/Berlin")
    '2026-11-18 00:00'
    """
    return format_instant(at, zone).removesuffix(f" {zone}")


def name_window(limit: Limit) -> str:
    """What a limit is judged in: a window of the calendar, or a period."""
    return limit.per or PERIOD_NAME


def describe_per(limit: Limit) -> str:
    """What the bound of a limit is for, if not for the average of all requests over a period.

    >>> from bylot.problem import at_least, at_most, share
    >>> describe_per(at_most("usd", 500, per="day")), describe_per(at_most("usd", 2))
    ('per day', '')
    >>> describe_per(at_least(share("partner", ["eve"]), 0.1, per="week"))
    'per decision in every week'
    >>> describe_per(at_most("usd", 20, per="month", scope="tenant", where={"context": ["icu"]}))
    'per month for each tenant in icu'
    """
    return join_parts([describe_window(limit), describe_contexts(limit.where, len(limit.where))])


def describe_per_briefly(limit: Limit) -> str:
    """Likewise, with the number of contexts if they are many."""
    return join_parts([describe_window(limit), describe_contexts(limit.where, MAX_NAMED_CONTEXTS)])


def join_parts(parts: Sequence[str]) -> str:
    """Words with a space between them, without empty ones."""
    return " ".join(filter(None, parts))


def describe_window(limit: Limit) -> str:
    """The window that a bound is for, and whose."""
    scope = "for each tenant" if limit.scope else ""
    if limit.per is None:
        return scope
    per = f"per {limit.per}" if limit.is_total else f"per decision in every {limit.per}"
    return join_parts([per, scope])


def describe_contexts(where: Sequence[str], most: int) -> str:
    """The contexts whose requests a limit counts, as they end a sentence; at most so many.

    >>> describe_contexts(("icu", "er"), 2), describe_contexts(("icu", "er"), 1)
    ('in icu, er', 'in 2 contexts')
    """
    if not where:
        return ""
    return f"in {', '.join(where)}" if len(where) <= most else f"in {len(where)} contexts"


class TenantRow(Struct, frozen=True):
    """A tenant of the table; spent: of a share, its average; used: share of the bound."""

    tenant: str
    spent: float
    bound: float
    used: float


class TenantsView(Struct, frozen=True, kw_only=True):
    """All tenants in the window of a limit, and a table of those closest to their bounds."""

    span: str
    active: int
    spent: int
    outside: int
    total: float
    caption: str
    spent_name: str
    shows_used: bool  # a minimum is not used up
    rows: list[TenantRow]


def view_tenants(status: LimitStatus, limit: Limit) -> TenantsView | None:
    """The tenants of a limit for each of them; None for other limits."""
    tenants = status.tenants
    if tenants is None:
        return None
    starts, ends = (format_local(at, limit.zone) for at in (tenants.starts, tenants.ends))
    rows = [
        TenantRow(label_text(one.tenant), one.spent, one.bound, one.spent / (one.bound or 1.0))
        for one in tenants.top
    ]
    return TenantsView(
        span=f"{starts} to {ends} {limit.zone}",
        active=tenants.active,
        spent=tenants.spent,
        outside=tenants.outside,
        total=tenants.total,
        caption=describe_order(limit, tenants.active - len(rows)),
        spent_name="spent" if limit.is_total else "average",
        shows_used=limit.sign < 0,
        rows=rows,
    )


def describe_order(limit: Limit, others: int) -> str:
    """The caption of a table of tenants, of which some others are not shown.

    >>> from bylot.problem import at_most
    >>> describe_order(at_most("usd", 20, per="month", scope="tenant"), others=1)
    'Largest used shares first; 1 tenant is not shown'
    """
    averages = "Highest averages" if limit.sign < 0 else "Lowest averages"
    order = f"{'Largest used shares' if limit.is_total else averages} first"
    if not others:
        return order
    return f"{order}; {others:,} {'tenant is' if others == 1 else 'tenants are'} not shown"


def label_text(label: str) -> str:
    """A context or a tenant on the page.

    >>> label_text("chest pain"), label_text(" ")
    ('chest pain', "' '")
    """
    return label if label.strip() else repr(label)
