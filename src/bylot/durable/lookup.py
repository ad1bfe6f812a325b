"""Single lines of a log, looked up in a store and held against their seals."""

from bylot.durable.seal import resealed
from bylot.errors import StoreDamaged
from bylot.store import Event, Past, Store


def past(store: Store, router: int, seq: int) -> Past | None:
    """A decision and what was said of it since."""
    found = store.past(router, seq)
    if found is None:
        return None
    check(found.decided, store.event(router, seq - 1))
    if found.since:
        before = {one.seq: one for one in store.before(router, seq)}
        for event in found.since:
            check(event, before.get(event.seq - 1))
    return found


def keyed(store: Store, router: int, key: str) -> Event | None:
    """The decision made under a key."""
    found = store.keyed(router, key)
    if found is not None:
        check(found, store.event(router, found.seq - 1))
    return found


def check(event: Event, before: Event | None) -> None:
    """A line that was changed after it was written must not be learned from, nor answered with;
    the seal of the one before it tells.
    """
    if before is None or resealed(before.seal, event) != event:
        raise StoreDamaged(
            f"line {event.seq} of the log of router {event.router} is not what was written; "
            "restore the store from a copy"
        )
