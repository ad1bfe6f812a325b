"""The tables of a store and their rows, their version, what turns those of an older version into
these, and the queries of both databases, with ? as the placeholder.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Event(NamedTuple):
    """One event of a router's log."""

    router: int
    seq: int
    kind: str  # a key of `bylot.eventlog.events.EVENT_BODIES`
    of: int | None  # the seq of the decision that it is about
    key: str | None  # idempotency key: unique among the decisions of a router
    at: int  # microseconds since 1970, never before the previous event
    body: bytes
    seal: bytes  # hash of this event and of the seal before it: a change is detected


class DecisionEvents(NamedTuple):
    """A decision, and the later events about it."""

    decided: Event
    since: Sequence[Event]


class RouterRow(NamedTuple):
    """A router, by the number of its log; a name can be reused, a number never."""

    number: int
    name: str
    created: int  # microseconds since 1970


class Snapshot(NamedTuple):
    """The state of a router after event `seq`."""

    router: int
    seq: int
    body: bytes
    seal: bytes  # a hash of the body


class Segment(NamedTuple):
    """A part of a log that has ended; the event after it records the state at that time.

    ended:      when its last event happened, in microseconds since 1970
    seal:       of its last event, so that the next one can be verified without it
    refers:     the oldest decision that its events are about; its first event if none is older
    open_since: the oldest decision that was open at its end; the next event if there was none
    dropped:    1 if its events are deleted, or will be
    """

    router: int
    first: int
    last: int
    ended: int
    seal: bytes
    refers: int
    open_since: int
    dropped: int = 0


class ApiKey(NamedTuple):
    """A credential; the store has only a digest of its secret."""

    id: str
    digest: bytes
    label: str
    scopes: tuple[str, ...]
    routers: tuple[str, ...]  # names; empty: all of them
    created: int
    revoked: int | None


class ServerRow(NamedTuple):
    """A server that shares the store; owner: as of leases; release: of bylot."""

    owner: str
    address: str
    release: str


STORE_VERSION = 6
"""Version of the tables and of the events in them."""
LEAST_STORE_VERSION = 6
"""The oldest version whose servers can use these tables too. If it is lower than `STORE_VERSION`,
servers of both may run during an upgrade.
"""
SERVERS_TABLE = (
    "CREATE TABLE servers (owner {name} PRIMARY KEY, address {text} NOT NULL,"
    " release {text} NOT NULL, until {time} NOT NULL)"
)
SNAPSHOTS_TABLE = (
    "CREATE TABLE snapshots (router {int} NOT NULL, seq {int} NOT NULL, body {bytes} NOT NULL,"
    " seal {bytes} NOT NULL, PRIMARY KEY (router, seq))"
)
SEGMENTS_TABLE = (
    "CREATE TABLE segments (router {int} NOT NULL, first {int} NOT NULL, last {int} NOT NULL,"
    " ended {int} NOT NULL, seal {bytes} NOT NULL, refers {int} NOT NULL,"
    " open_since {int} NOT NULL, dropped {int} NOT NULL, PRIMARY KEY (router, last))"
)

STORE_SCHEMA = (
    "CREATE TABLE routers (number {number}, name {name} NOT NULL UNIQUE, created {int} NOT NULL)",
    "CREATE TABLE events (router {int} NOT NULL, seq {int} NOT NULL, kind {text} NOT NULL,"
    " of {int}, key {name}, at {int} NOT NULL, body {bytes} NOT NULL, seal {bytes} NOT NULL,"
    " PRIMARY KEY (router, seq)) {clustered}",
    "CREATE UNIQUE INDEX events_by_key ON events (router, key)"
    " WHERE kind = 'decided' AND key IS NOT NULL",
    "CREATE INDEX events_of ON events (router, of, seq) WHERE of IS NOT NULL",
    "CREATE INDEX events_edited ON events (router, seq) WHERE kind = 'edited'",
    SNAPSHOTS_TABLE,
    "CREATE TABLE snapshot_parts (router {int} NOT NULL, seq {int} NOT NULL, part {int} NOT NULL,"
    " body {bytes} NOT NULL, PRIMARY KEY (router, seq, part))",
    SEGMENTS_TABLE,
    "CREATE TABLE leases (router {int} PRIMARY KEY, owner {text} NOT NULL, until {time} NOT NULL)",
    "CREATE TABLE keys (id {name} PRIMARY KEY, digest {bytes} NOT NULL, label {text} NOT NULL,"
    " scopes {text} NOT NULL, routers {text} NOT NULL, created {int} NOT NULL, revoked {int})",
    SERVERS_TABLE,
    "CREATE TABLE bylot_meta (version {int} NOT NULL, least {int} NOT NULL)",
    f"INSERT INTO bylot_meta VALUES ({STORE_VERSION}, {LEAST_STORE_VERSION})",
)
"""The tables; each database has its own names of the types."""

MIGRATIONS = {
    4: (
        SERVERS_TABLE,
        "ALTER TABLE bylot_meta ADD COLUMN least {int} NOT NULL DEFAULT 5",
    ),
    5: (
        SEGMENTS_TABLE,
        "ALTER TABLE snapshots RENAME TO snapshots_before",
        SNAPSHOTS_TABLE,
        "INSERT INTO snapshots SELECT router, seq, body, seal FROM snapshots_before",
        "DROP TABLE snapshots_before",
    ),
}
"""What turns the tables of a version into those of the next one."""

EVENTS_SQL = "SELECT router, seq, kind, of, key, at, body, seal FROM events WHERE router = ?"
EVENT_QUERIES = {
    "edits": f"{EVENTS_SQL} AND kind = 'edited' ORDER BY seq DESC LIMIT ?",
    "about": f"{EVENTS_SQL} AND of = ? ORDER BY seq",
    "event": f"{EVENTS_SQL} AND seq = ?",
    "after": f"{EVENTS_SQL} AND seq > ? ORDER BY seq LIMIT ?",
    "latest": f"{EVENTS_SQL} AND seq > (SELECT max(seq) FROM events WHERE router = ?) - 1000"
    " AND kind = ? ORDER BY seq DESC LIMIT ?",
    "by_key": f"{EVENTS_SQL} AND key = ? AND kind = 'decided' AND key IS NOT NULL",
}
"""Queries of the events of a router, whose number is their first value."""

SNAPSHOT_SQL = """
WITH one AS (
    SELECT router, seq, body, seal FROM snapshots WHERE router = ?
    AND seq = coalesce(?, (SELECT max(seq) FROM snapshots WHERE router = ?))
)
SELECT seq, body, seal AS snapshot_seal, NULL AS part FROM one UNION ALL
SELECT seq, piece.body, NULL, part FROM one JOIN snapshot_parts piece USING (router, seq)
"""
"""The end of a snapshot and its parts in any order, of the same moment."""

DELETE_OLD_SNAPSHOTS_SQL = """
DELETE FROM snapshots WHERE router = ? AND seq NOT IN (SELECT last FROM segments WHERE router = ?)
AND seq >= 0 AND seq < (SELECT max(seq) FROM snapshots WHERE router = ?)
"""
"""All but the latest, those after segments, and the first state of a copy."""
ADD_SNAPSHOT_SQL = (
    "INSERT INTO snapshots VALUES (?, ?, ?, ?) ON CONFLICT (router, seq) DO UPDATE"
    " SET body = excluded.body, seal = excluded.seal"
)
ADD_SEGMENT_SQL = "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

ADD_PART_SQL = (
    "INSERT INTO snapshot_parts SELECT router, ?, ?, ? FROM leases WHERE router = ? AND owner = ?"
    " ON CONFLICT (router, seq, part) DO UPDATE SET body = excluded.body"
)
DELETE_PART_SQL = (
    "DELETE FROM snapshot_parts WHERE (router, seq, part) ="
    " (SELECT router, seq, part FROM snapshot_parts WHERE router = ? AND seq <> ?"
    " AND seq NOT IN (SELECT last FROM segments WHERE router = ?) ORDER BY part DESC LIMIT 1)"
    " AND EXISTS (SELECT 1 FROM leases WHERE router = ? AND owner = ?)"
)
MAX_EVENTS_PER_LOG_DELETE = 10_000

DELETE_EVENTS_SQL = (
    "DELETE FROM events WHERE router = ?"
    " AND seq < (SELECT min(seq) FROM events WHERE router = ?) + ?"
)
DELETED_LOGS_SQL = """
WITH RECURSIVE logs (router) AS (
    SELECT min(router) FROM events
    UNION ALL SELECT (SELECT min(router) FROM events WHERE router > logs.router) FROM logs
    WHERE logs.router IS NOT NULL
)
SELECT router FROM logs WHERE router IS NOT NULL AND router NOT IN (SELECT number FROM routers)
"""
"""One look at the primary key for each log, however long."""
