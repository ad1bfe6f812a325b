"""Gauges of limits on a router's page, and windows of the calendar in words; the status has their
numbers.
"""

from msgspec import Struct

from bylot.problem import Limit
from bylot.problem.calendar import format_instant
from bylot.router.status import LimitStatus
from bylot.router.window_status import WindowStatus

GAUGE_HEADROOM = 1.25  # the scale ends this far past the largest of bound and averages
PERIOD_NAME = "period"
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
    elif window.lasts_until is not None:
        lasts = format_local(window.lasts_until - window.lasts_until % MINUTE_US, window.zone)
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
    """What the bound of a limit is for, if not for the average over a period.

    >>> from bylot.problem import at_least, at_most, share
    >>> describe_per(at_most("usd", 500, per="day")), describe_per(at_most("usd", 2))
    ('per day', '')
    >>> describe_per(at_least(share("partner", ["eve"]), 0.1, per="week"))
    'per decision in every week'
    """
    if limit.per is None:
        return ""
    return f"per {limit.per}" if limit.is_total else f"per decision in every {limit.per}"
