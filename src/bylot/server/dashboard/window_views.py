"""Windows of limits and their tenants on a router's page, in words; the status has the numbers."""

from typing import Any

from bylot.limits.status import LimitStatus
from bylot.problem.instants import format_instant

MINUTE_US = 60_000_000


def view_window(status: LimitStatus) -> dict[str, Any] | None:
    """The current window in the local time of its zone, in words: from when to when, and how long
    its bound lasts; None if there is none (yet).
    """
    window = status.window
    if window is None:
        return None
    starts, ends = (format_local(at, window.zone) for at in (window.starts, window.ends))
    lasts = f"the end of the {window.per}"
    if status.verdict == "spent":
        lasts = "it is spent"
    elif (until := window.refused_from or window.lasts_until) is not None:
        lasts = format_local(until - until % MINUTE_US, window.zone)
    return {
        "span": f"{starts} to {ends} {window.zone}",
        "lasts": lasts,
        "reserved": max(window.reserved, 0.0),  # 0 if open calls may well cost less than declared
        "to_come": round(window.to_come),  # requests that are forecast for the rest of it
    }


def format_local(at: int, zone: str) -> str:
    """Date and time of the local clock, without the zone.

    >>> format_local(1_794_956_400_000_000, "Europe/Berlin")
    '2026-11-18 00:00'
    """
    return format_instant(at, zone).removesuffix(f" {zone}")


def view_tenants(status: LimitStatus, zone: str) -> dict[str, Any] | None:
    """All tenants in the window of a limit for each of them, and a table of those closest to their
    bounds; None for other limits.
    """
    tenants = status.tenants
    if tenants is None:
        return None
    starts, ends = (format_local(at, zone) for at in (tenants.starts, tenants.ends))
    spent_name, order = status.tenant_words
    return {
        "span": f"{starts} to {ends} {zone}",
        "active": tenants.active,
        "spent": tenants.spent,
        "outside": tenants.outside,
        "total": tenants.total,
        "caption": describe_order(order, tenants.active - len(tenants.top)),
        "spent_name": spent_name,
        "shows_used": status.side == "at_most",  # a minimum is not used up
        "rows": [
            {
                "tenant": label_text(use.tenant),
                "spent": use.spent,  # of a share, its average
                "bound": use.bound,
                "used": use.spent / (use.bound or 1.0),  # share of the bound
            }
            for use in tenants.top
        ],
    }


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
