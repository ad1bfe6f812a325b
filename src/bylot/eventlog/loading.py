"""Loading: a router from its snapshots and the events after them."""

from collections.abc import Callable, Iterator

from msgspec import MsgspecError

from bylot.errors import RouterNotFound, StoreCorrupted
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.events import BODY_DECODERS, read_decision_events
from bylot.problem.validation import suggest_known_name
from bylot.router.config import RouterConfig
from bylot.store import Event, RouterRow, Store

EVENTS_PER_PAGE = 1000
MAX_SUGGESTED_ROUTERS = 1_000


def find_stored_router(store: Store, name: str) -> RouterRow:
    """The row of a router; RouterNotFound names the store."""
    row = store.find(name)
    if row is None:
        known = [one.name for one in store.routers(limit=MAX_SUGGESTED_ROUTERS)]
        raise RouterNotFound(
            f"no router named {name!r} in {store.address}",
            remedy=suggest_known_name(name, known, "routers", can_add=False),
        )
    return row


def load_aggregate(
    store: Store, row: RouterRow, on_page: Callable[[], None] = lambda: None
) -> RouterAggregate:
    """A router from its latest snapshot, if that is valid, and the events after it."""
    check_log_end(store, row)
    loaded = aggregate_from_latest_snapshot(store, row) or aggregate_from_log_start(store, row)
    for event in iterate_events(store, row.number, loaded.seq, on_page):
        loaded.replay(event)
    return loaded


def check_log_end(store: Store, row: RouterRow) -> None:
    """Refuse a log that has lost its last events, as far as its end was recorded."""
    end = store.ends.get(row.number)
    if end is None:
        return
    last = store.event(row.number, end.seq)  # after its record, which was written later
    if last is None or last.seal != end.seal:
        how = "ends before" if last is None else "does not contain"
        raise StoreCorrupted(
            f"router {row.name!r}: its log {how} event {end.seq}, which was written to it",
            remedy=f"{StoreCorrupted.remedy}; to continue without the events that are lost, "
            + store.ends.remedy,
        )


def aggregate_from_latest_snapshot(store: Store, row: RouterRow) -> RouterAggregate | None:
    """A router from its latest valid snapshot, None if there is none."""
    for seq in store.snapshot_seqs(row.number):
        if seq < 0:
            break  # the first state of a copy: its log is replayed as a whole
        stored = store.snapshot(row.number, seq)
        try:
            loaded = stored and RouterAggregate.from_snapshot(row.name, stored)
        except StoreCorrupted:
            continue
        if loaded is not None:
            last = store.event(row.number, seq)
            if last is None or last.seal != loaded.seal:
                how = "is missing from" if last is None else "differs in"
                raise StoreCorrupted(
                    f"router {row.name!r}: its snapshot is of event {seq}, which {how} its log"
                )
            loaded.find_events = lambda seq: read_decision_events(store, row.number, seq)
            return loaded
    return None


def aggregate_from_log_start(store: Store, row: RouterRow) -> RouterAggregate:
    """A router from the first event of its log alone. If that was dropped, or if it is a copy, from
    the oldest snapshot, and the event after it, which records the state.
    """
    first = store.first_seq(row.number)
    event = next(iter(store.events(row.number, limit=1)), None)
    if event is None or event.seq != first:
        raise StoreCorrupted(f"router {row.name!r}: its log has no first event")
    if event.kind == "created":
        loaded = RouterAggregate.from_first_event(row.name, event)
    else:
        loaded = aggregate_from_base(store, row)
    loaded.find_events = lambda seq: read_decision_events(store, row.number, seq)
    return loaded


def aggregate_from_base(store: Store, row: RouterRow) -> RouterAggregate:
    """A router from the oldest snapshot, whose hash the next event records."""
    base = next(iter(store.snapshot_seqs(row.number)[::-1]), None)
    stored = None if base is None else store.snapshot(row.number, base)
    sealed = None if base is None else store.event(row.number, base + 1)
    if stored is None or sealed is None or sealed.kind not in ("sealed", "copied"):
        raise StoreCorrupted(
            f"router {row.name!r}: its log does not begin with its creation, and no snapshot to "
            "continue from is left"
        )
    loaded = RouterAggregate.from_snapshot(row.name, stored)
    loaded.replay(sealed)  # its hash and the state
    return loaded


def iterate_events(
    store: Store, router: int, after: int = -1, on_page: Callable[[], None] = lambda: None
) -> Iterator[Event]:
    """All events of a log after one, in order; `on_page` is called now and then."""
    while page := store.events(router, after, EVENTS_PER_PAGE):
        yield from page
        on_page()
        after = page[-1].seq


def read_stored_config(store: Store, row: RouterRow) -> RouterConfig | None:
    """The configuration in force of a router, without a lease; None if its log is damaged, which
    is reported when the router is opened.
    """
    last = next(iter([*store.edits(row.number, 1), *store.events(row.number, limit=1)]), None)
    try:
        config: RouterConfig | None = last and BODY_DECODERS[last.kind](last.body).config
    except (LookupError, MsgspecError):
        return None
    return config


def has_wait(store: Store, row: RouterRow) -> bool:
    """Whether decisions of a router are closed after some time, by its latest configuration."""
    config = read_stored_config(store, row)
    return config is not None and config.wait is not None
