"""Each limit as a gauge: its averages on a scale from zero to some way past the bound."""

from collections.abc import Sequence

from msgspec import Struct

from bylot.router.status import CostStatus, LimitStatus, RouterStatus

GAUGE_HEADROOM = 1.25  # the scale ends this far past the largest of bound and averages
LIMIT_STATES = ("out of reach", "outside", "within reach", "kept", "not started")  # worst first


class LimitGauge(Struct, frozen=True):
    """Positions on a scale from 0 to `top`, as fractions of it; None: not on the scale."""

    top: float
    bound: float
    mean: float
    now: float | None
    in_force: float | None
    outside: float  # where the range outside the bound begins
    beyond: float  # and its length


class LimitView(Struct, frozen=True, kw_only=True):
    """One limit on the page; stated, expected: average cost by the price list, before the draw."""

    status: LimitStatus
    side: str  # at most, at least
    state: str  # one of LIMIT_STATES
    stated: float
    expected: float
    gauge: LimitGauge


def view_limits(status: RouterStatus) -> list[LimitView]:
    """The limits of a router, in the order of its problem."""
    started = status.decisions > 0
    return [view_limit(one, status.costs[one.cost], started) for one in status.limits]


def view_limit(limit: LimitStatus, cost: CostStatus, started: bool) -> LimitView:
    """One limit."""
    decisions, current = max(1, cost.decisions), limit.current
    now, in_force = (None, None) if current is None else (current.mean, current.in_force)
    return LimitView(
        status=limit,
        side=limit.side.replace("_", " "),
        state=limit.verdict if started else "not started",
        stated=cost.stated / decisions,
        expected=cost.expected / decisions,
        gauge=make_gauge(limit.side, limit.bound, limit.mean, now, in_force),
    )


def make_gauge(
    side: str, bound: float, mean: float, now: float | None, in_force: float | None
) -> LimitGauge:
    """The gauge of a limit.

    The bound in force is shown if it fits: savings early in a period may move it far away.

    >>> make_gauge("at_most", bound=3.0, mean=2.0, now=4.0, in_force=9.0)
    LimitGauge(top=5.0, bound=0.6, mean=0.4, now=0.8, in_force=None, outside=0.6, beyond=0.4)
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


def worst_state(limits: Sequence[LimitView]) -> str:
    """The worst state of several limits.

    >>> worst_state([])
    'no limits'
    """
    return min((one.state for one in limits), key=LIMIT_STATES.index, default="no limits")
