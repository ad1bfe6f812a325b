"""LimitGauge: where bound and averages of a limit are on a scale from 0."""

from msgspec import Struct

from bylot.limits.window_status import WindowStatus

GAUGE_HEADROOM = 1.25  # the scale ends this far past the largest of bound and averages


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
    """Return the gauge of an average.

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
    """Return the gauge of a budget, which is empty before the first decision.

    >>> gauge = make_budget_gauge(500.0, None)
    >>> gauge.bound, gauge.now, gauge.mean
    (0.8, 0.0, 0.0)
    """
    spent = held = projected = even = 0.0
    if window is not None:
        spent = window.spent
        held = window.reserved
        projected = window.projected or 0.0
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
