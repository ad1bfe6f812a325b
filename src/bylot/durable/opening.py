"""From what a store has of a router back to the router: its latest snapshot and later lines."""

from collections.abc import Iterator

from bylot.durable.fold import Fold
from bylot.durable.lookup import past
from bylot.errors import StoreDamaged
from bylot.store import Event, RouterRow, Store

PAGE = 1000  # lines read at a time


def opened(store: Store, row: RouterRow) -> Fold:
    """The fold of a router's log. A snapshot that is damaged is done without."""
    fold = thawed(store, row) or begun(store, row)
    fold.recall = lambda seq: past(store, row.number, seq)
    for event in lines(store, row.number, fold.seq):
        fold.replay(event)
    return fold


def thawed(store: Store, row: RouterRow) -> Fold | None:
    """The fold of the latest snapshot, if there is one and it is what was written."""
    snapshot = store.snapshot(row.number)
    if snapshot is None:
        return None
    try:
        fold = Fold.thaw(row.name, snapshot)
    except StoreDamaged:
        return None
    last = store.event(row.number, snapshot.seq)
    if last is None or last.seal != fold.seal:
        raise StoreDamaged(
            f"router {row.name!r}: its snapshot is of line {snapshot.seq}, which its log "
            f"{'does not have' if last is None else 'has otherwise'}; restore the store from a copy"
        )
    return fold


def begun(store: Store, row: RouterRow) -> Fold:
    """The fold of the first line alone."""
    first = store.event(row.number, 0)
    if first is None:
        raise StoreDamaged(
            f"router {row.name!r} has no first line in its log; restore the store from a copy"
        )
    return Fold.begin(row.name, first)


def lines(store: Store, router: int, after: int = -1) -> Iterator[Event]:
    """All lines of a log after one, in order."""
    while page := store.events(router, after, PAGE):
        yield from page
        after = page[-1].seq
