"""Each limit as a gauge: where its averages are between nothing and a good deal past the bound."""

from collections.abc import Sequence

from msgspec import Struct

from bylot.router.status import CostStatus, LimitStatus, RouterStatus

GAUGE_HEADROOM = 1.25
"""A gauge ends this far past the largest of the bound and the averages."""

LIMIT_STATES = ("out of reach", "outside", "within reach", "kept", "not begun")
"""The states of a limit, those to worry about first."""


class LimitGauge(Struct, frozen=True):
    """Places on a scale from 0 to `top`, as parts of it; None: not on it."""

    top: float
    bound: float
    mean: float
    now: float | None
    in_force: float | None
    outside: float  # where what is outside the bound begins
    beyond: float  # and how long it is


class LimitView(Struct, frozen=True, kw_only=True):
    """One limit, and how it is kept."""

    cost: str
    side: str  # at most, at least
    bound: float
    state: str  # one of WORST
    kept: bool  # in this period, if there are periods
    mean: float  # settled cost per decision since the first
    slack: float  # inside the bound; negative: outside
    price: float | None  # reward per request for one unit of the bound
    now: float | None  # mean of this period
    in_force: float | None  # the bound that panels are drawn under now
    missed: int | None  # periods that ended outside, since it has this bound
    stated: float  # mean cost by the price list
    expected: float  # mean cost before the draw
    gauge: LimitGauge


def view_limits(status: RouterStatus) -> list[LimitView]:
    """The limits of a router, in the order of its problem."""
    begun = status.decisions > 0
    return [view_limit(one, status.costs[one.cost], begun) for one in status.limits]


def view_limit(one: LimitStatus, cost: CostStatus, begun: bool) -> LimitView:
    """One limit."""
    decisions, current = max(1, cost.decisions), one.current
    now, in_force, missed = (
        (None, None, None) if current is None else (current.mean, current.in_force, current.missed)
    )
    return LimitView(
        cost=one.cost,
        side=one.side.replace("_", " "),
        bound=one.bound,
        state=one.verdict if begun else "not begun",
        kept=one.kept,
        mean=one.mean,
        slack=one.slack,
        price=one.price,
        now=now,
        in_force=in_force,
        missed=missed,
        stated=cost.stated / decisions,
        expected=cost.expected / decisions,
        gauge=make_gauge(one.side, one.bound, one.mean, now, in_force),
    )


def make_gauge(
    side: str, bound: float, mean: float, now: float | None, in_force: float | None
) -> LimitGauge:
    """A scale on which the bound and the averages have their place.

    The bound in force is shown if it fits: what was saved early in a period may put it far off.

    >>> make_gauge("at_most", bound=3.0, mean=2.0, now=4.0, in_force=9.0)
    LimitGauge(top=5.0, bound=0.6, mean=0.4, now=0.8, in_force=None, outside=0.6, beyond=0.4)
    """
    top = GAUGE_HEADROOM * max(bound, mean, now or 0.0) or 1.0
    place = bound / top
    return LimitGauge(
        top=top,
        bound=place,
        mean=mean / top,
        now=None if now is None else now / top,
        in_force=None if in_force is None or in_force > top else in_force / top,
        outside=place if side == "at_most" else 0.0,
        beyond=1.0 - place if side == "at_most" else place,
    )


def worst_state(limits: Sequence[LimitView]) -> str:
    """The state to worry about most, or why there is none.

    >>> worst_state([])
    'no limits'
    """
    return min((one.state for one in limits), key=LIMIT_STATES.index, default="no limits")


def count_kept_limits(limits: Sequence[LimitView]) -> int:
    """How many are kept: those within reach among them, as they will be at the period's end."""
    return sum(one.kept for one in limits)
