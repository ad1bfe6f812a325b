"""Windows of limits and their tenants on a router's page, in words; the status has the numbers."""

from msgspec import Struct

from bylot.limits.status import LimitStatus
from bylot.problem.instants import format_instant

MINUTE_US = 60_000_000


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
    span = f"{starts} to {ends} {window.zone}"
    return WindowView(span, lasts, max(window.reserved, 0.0), round(window.to_come))


def format_local(at: int, zone: str) -> str:
    """Date and time of the local clock, without the zone.

    >>> format_local(1_794_956_400_000_000, "Europe/Berlin")
    '2026-11-18 00:00'
    """
    return format_instant(at, zone).removesuffix(f" {zone}")


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


def view_tenants(status: LimitStatus, zone: str) -> TenantsView | None:
    """View the tenants of a limit for each of them; None for other limits."""
    tenants = status.tenants
    if tenants is None:
        return None
    starts, ends = (format_local(at, zone) for at in (tenants.starts, tenants.ends))
    rows = [
        TenantRow(label_text(use.tenant), use.spent, use.bound, use.spent / (use.bound or 1.0))
        for use in tenants.top
    ]
    spent_name, order = status.tenant_words
    return TenantsView(
        span=f"{starts} to {ends} {zone}",
        active=tenants.active,
        spent=tenants.spent,
        outside=tenants.outside,
        total=tenants.total,
        caption=describe_order(order, tenants.active - len(rows)),
        spent_name=spent_name,
        shows_used=status.side == "at_most",
        rows=rows,
    )


def describe_order(order: str, others: int) -> str:
    """Write the caption of a table of tenants, of which some others are not shown.

    >>> describe_order("Largest used shares first", others=1)
    'Largest used shares first; 1 tenant is not shown'
    """
    if not others:
        return order
    return f"{order}; {others:,} {'tenant is' if others == 1 else 'tenants are'} not shown"


def label_text(label: str) -> str:
    """A context or a tenant on the page.

    >>> label_text("chest pain"), label_text(" ")
    ('chest pain', "' '")
    """
    return label if label.strip() else repr(label)
