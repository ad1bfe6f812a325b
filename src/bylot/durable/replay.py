"""Doing again what a line of a log tells."""

from typing import TYPE_CHECKING

from bylot.durable.bodies import Activated, Cancelled, Closed, Decided, Edited, Rewarded
from bylot.durable.history import READ
from bylot.store.contract import Event

if TYPE_CHECKING:
    from bylot.durable.fold import Fold


def again(fold: "Fold", event: Event) -> Event | None:
    """Do what a line tells, with the inputs that it tells; the line that comes of it."""
    at, body = event.at, READ[event.kind](event.body)
    match body:
        case Decided():
            return fold.decide(
                at,
                context=body.context,
                available=body.available,
                key=event.key,
                defer=body.defer,
                by=body.by,
            )
        case Rewarded():
            return fold.reward(
                at,
                of=subject(event),
                value=body.value,
                spend=body.spend,
                key=body.key,
                by=body.by,
            )
        case Activated():
            return fold.activate(at, of=subject(event), by=body.by)
        case Cancelled():
            return fold.cancel(at, of=subject(event), by=body.by)
        case Closed():
            return fold.close_due(at)
        case Edited():
            return fold.edit(at, body.terms, body.by)
    return None


def subject(event: Event) -> int:
    """The decision that a line must speak of."""
    if event.of is None:
        raise TypeError("it does not say of which decision it speaks")
    return event.of
