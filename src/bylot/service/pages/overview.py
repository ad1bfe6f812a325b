"""The list of routers: one line each, and what is wrong with any of them before all else."""

from collections.abc import Sequence

from msgspec import Struct

from bylot.durable.commands import RouterView
from bylot.service.pages.gauges import kept, promises, worst
from bylot.service.pages.source import Listed

WORRIES = ("outside", "out of reach")


class Line(Struct, frozen=True, kw_only=True):
    """A router; numbers are None while nothing is known but its name."""

    name: str
    place: str
    trouble: str | None
    state: str | None  # the worst of its limits'; None: not known
    kept: int | None = None  # limits
    of: int | None = None
    policy: str | None = None
    decisions: int | None = None
    mean_reward: float | None = None
    waiting: int | None = None
    missing: int | None = None
    late: int | None = None


class Overview(Struct, frozen=True, kw_only=True):
    """All routers, by name."""

    count: int
    decisions: int
    worried: int  # routers outside a limit
    troubled: int  # routers that cannot be served
    routers: list[Line]


def overview(routers: Sequence[Listed]) -> Overview:
    """The list and its sums."""
    lines = [line(one) for one in routers]
    return Overview(
        count=len(lines),
        decisions=sum(one.decisions or 0 for one in lines),
        worried=sum(one.state in WORRIES for one in lines),
        troubled=sum(one.trouble is not None for one in lines),
        routers=lines,
    )


def line(one: Listed) -> Line:
    """A router's line."""
    if one.view is None:
        state = None if one.trouble is None else "cannot be served"
        return Line(name=one.name, place=one.place, trouble=one.trouble, state=state)
    return known(one, one.view)


def known(one: Listed, view: RouterView) -> Line:
    """The line of a router that could be asked."""
    status, limits = view.status, promises(view.status)
    return Line(
        name=one.name,
        place=one.place,
        trouble=one.trouble,
        state=worst(limits),
        kept=kept(limits),
        of=len(limits),
        policy=view.terms.policy["name"],
        decisions=status["decisions"],
        mean_reward=status["mean_reward"],
        waiting=status["waiting"],
        missing=status["counts"]["missing"],
        late=status["counts"]["late"],
    )
