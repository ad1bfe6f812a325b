"""What both databases share: the queries of a log, the version of the tables, and refusals."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bylot.errors import (
    IdempotencyKeyReused,
    LeaseLost,
    StoreCorrupted,
    StoreError,
    UnsupportedStore,
)

STORE_VERSION = 2
"""Version of the tables and of the events in them."""

EVENTS_SQL = "SELECT router, seq, kind, of, key, at, body, seal FROM events WHERE router = ?"


class EventQueries(NamedTuple):
    """Queries of the events of a router, whose number is their first value."""

    preceding: str
    edits: str = f"{EVENTS_SQL} AND kind = 'edited' ORDER BY seq DESC LIMIT ?"
    about: str = f"{EVENTS_SQL} AND of = ? ORDER BY seq"
    event: str = f"{EVENTS_SQL} AND seq = ?"
    last: str = f"{EVENTS_SQL} ORDER BY seq DESC LIMIT 1"
    after: str = f"{EVENTS_SQL} AND seq > ? ORDER BY seq LIMIT ?"
    latest: str = (
        f"{EVENTS_SQL} AND seq > (SELECT max(seq) FROM events WHERE router = ?) - 1000"
        " AND kind = ? ORDER BY seq DESC LIMIT ?"
    )
    by_key: str = f"{EVENTS_SQL} AND key = ? AND kind = 'decided' AND key IS NOT NULL"


def check_store_version(place: str, rows: Sequence[tuple[int]]) -> None:
    """Refuse tables of a version that this bylot cannot read."""
    if len(rows) != 1:
        raise StoreCorrupted(
            f"{place}: table bylot_meta has {len(rows)} rows instead of one",
            remedy="restore the store from a backup",
        )
    if rows[0][0] != STORE_VERSION:
        raise UnsupportedStore(
            f"{place} has version {rows[0][0]}; this bylot supports version {STORE_VERSION}",
            remedy="use the bylot that wrote it, or start with an empty store",
        )


def make_foreign_database_error(place: str) -> StoreError:
    """For a database that is not empty and not a store."""
    return UnsupportedStore(
        f"{place} has no table bylot_meta: it is not a store, or belongs to another program",
        remedy="use an empty database, or a new file name",
    )


def make_fenced_error(place: str, routers: Iterable[int]) -> LeaseLost:
    """For events that do not continue a log, or of a router that another owner has leased."""
    lost = tuple(sorted(routers))
    return LeaseLost(
        f"{place}: the log of router {', '.join(map(str, lost))} was deleted, is leased by another "
        "owner, or was continued by another writer; nothing was written",
        routers=lost,
        remedy="read the log again before writing",
    )


def make_duplicate_event_error(place: str, error: Exception) -> IdempotencyKeyReused:
    """For a batch with two equal sequence numbers, or with an idempotency key that is in use."""
    return IdempotencyKeyReused(
        f"{place}: two events with one number, or two decisions with one key ({error}); "
        "nothing was written"
    )


def make_unstorable_value_error(error: Exception) -> StoreError:
    """For texts and numbers that the database cannot represent."""
    return StoreError(
        f"a text or number cannot be stored ({str(error).splitlines()[0]})",
        remedy="use texts without NUL and lone surrogates, and numbers below 2**63",
    )
