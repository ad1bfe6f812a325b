"""Store: what is stored, and the contract that holds for every database.

The log is the truth: events of a router, numbered from 0 without gaps. (router, seq) is the primary
key, so of two writers that both believe they own a router only one can append: the other gets
`LeaseLost`, and nothing was written. The latest snapshot only saves time. Snapshots after segments,
and the first state of a copy, take the place of the events before them.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from bylot import errors
from bylot.store.log_ends import LogEnd, LogEnds
from bylot.store.schema import (
    ADD_PART_SQL,
    DELETE_EVENTS_SQL,
    DELETE_PART_SQL,
    DELETED_LOGS_SQL,
    LEAST_STORE_VERSION,
    MAX_EVENTS_PER_LOG_DELETE,
    MIGRATIONS,
    SNAPSHOT_SQL,
    STORE_SCHEMA,
    STORE_VERSION,
    ApiKey,
    DecisionEvents,
    Event,
    RouterRow,
    Segment,
    ServerRow,
    Snapshot,
)

Execute = Callable[..., Any]
"""execute(query, *values) -> cursor, with ? as the placeholder in every database."""


class EmptyDatabase(errors.UnsupportedStore):
    """A database without tables, which is not made a store because it is opened to be read."""


class Store(ABC):
    """One connection, for one thread at a time; it reconnects by itself after it was closed.

    A store that cannot be reached, is locked or is full raises StoreUnavailable; the same call may
    succeed later. Every call that writes is one transaction, on disk when it returns.

    owner: whose leases are ours, set by `lease`
    ends:  the last events of logs, to notice that some were lost
    """

    address: str
    ends: LogEnds
    owner: str = ""
    read_only: bool
    types: ClassVar[Mapping[str, str]]  # of columns, by their names in `STORE_SCHEMA`
    queries: ClassVar[Mapping[str, str]]  # `EVENT_QUERIES`, as fast as this database can
    now_sql: ClassVar[str]
    later_sql: ClassVar[str]  # so many seconds from now, with a placeholder
    _db: Any = None  # the connection

    @abstractmethod
    def create(self, name: str, at: int, first: Event, state: Snapshot | None = None) -> RouterRow:
        """Create a router and its event 0 under a new number; RouterExists if the name is used.

        state: of the router before event 0, if it does not begin from nothing
        """

    @abstractmethod
    def append(
        self,
        events: Sequence[Event],
        snapshots: Sequence[Snapshot] = (),
        segments: Sequence[Segment] = (),
    ) -> None:
        """Append events to the logs of one or more routers, all or none, with the segments that
        ended before one of them.

        LeaseLost(routers) if an event exists already, a router was deleted, or another owner has
        its lease; nothing was written then. A snapshot replaces older ones, except those after
        segments.
        """

    @abstractmethod
    def lease(self, router: int, owner: str, seconds: float) -> float | None:
        """Take or renew the right to write to a log, by the clock of the store.

        Returns None if it was granted, else the seconds for which another owner still has it.
        """

    @abstractmethod
    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a query returns."""

    @abstractmethod
    def _transaction(self, durable: bool = True) -> AbstractContextManager[Execute]:
        """A transaction that no other writer can interfere with.

        durable: wait for the disk; otherwise a loss of power may undo the transaction, unless a
                 durable one has followed it
        """

    @abstractmethod
    def _list_tables(self, db: Any) -> set[str]:
        """The names of all tables."""

    @abstractmethod
    def _lock(self, db: Any) -> AbstractContextManager[None]:
        """A transaction in which no other process changes the tables."""

    def _prepare_tables(self, db: Any, *, new: bool) -> None:
        """Create the tables in an empty database, if it may be new, and migrate those of an older
        version, unless another process was faster. Nothing is written before the database is known
        to be a store, or empty.
        """
        if new and not self._list_tables(db):
            with self._lock(db):
                if not self._list_tables(db):
                    for statement in STORE_SCHEMA:
                        db.execute(statement.format_map(self.types))
        if self._check_version(db) < STORE_VERSION:
            with self._lock(db):
                self._migrate(db, self._check_version(db))

    def _record_ends(self, events: Iterable[Event]) -> None:
        """Record the ends of logs, after the commit of these events."""
        last = {one.router: one for one in events}
        self.ends.record({router: LogEnd(one.seq, one.seal) for router, one in last.items()})

    @staticmethod
    def _first_seqs(
        events: Sequence[Event], snapshots: Sequence[Snapshot]
    ) -> dict[int, int | None]:
        """The first seq to append, by router; None for those that have a snapshot only."""
        first: dict[int, int | None] = dict.fromkeys([one.router for one in snapshots])
        first.update({event.router: event.seq for event in reversed(events)})
        return first

    def _events(self, query: str, *values: int | str) -> list[Event]:
        return [Event(*row) for row in self._rows(self.queries[query], *values)]

    def _event(self, query: str, *values: int | str) -> Event | None:
        return next(iter(self._events(query, *values)), None)

    def _check_version(self, db: Any) -> int:
        """The version of a store; a database is refused if it is none, or if this bylot cannot read
        it. An older version that can be migrated is not refused.
        """
        tables = self._list_tables(db)
        if "bylot_meta" not in tables:
            kind = errors.UnsupportedStore if tables else EmptyDatabase
            raise kind(
                f"{self.address} has no table bylot_meta: it is not a store, or belongs to another "
                "program",
                remedy="use an empty database, or a new file name",
            )
        rows = db.execute("SELECT * FROM bylot_meta").fetchall()
        if len(rows) != 1 or not all(isinstance(number, int) for number in rows[0]):
            raise errors.StoreCorrupted(
                f"{self.address}: table bylot_meta has {rows} instead of one row of numbers"
            )
        version, *more = rows[0]
        shared = version > STORE_VERSION and more and more[0] <= STORE_VERSION
        if version != STORE_VERSION and version not in MIGRATIONS and not shared:
            raise errors.UnsupportedStore(
                f"{self.address} has version {version}; this bylot supports version "
                f"{STORE_VERSION}",
                remedy="use the bylot that wrote it, or start with an empty store",
            )
        return int(version)

    def _migrate(self, db: Any, version: int) -> None:
        """Migrate the tables, in the transaction of the caller, who holds a lock."""
        if version >= STORE_VERSION:
            return
        if self.read_only:
            raise errors.UnsupportedStore(
                f"{self.address} has version {version}, older than {STORE_VERSION}",
                remedy="run `bylot store migrate`, or start a server on it",
            )
        self._refuse_running_servers(db, version)
        while version in MIGRATIONS:
            for statement in MIGRATIONS[version]:
                db.execute(statement.format_map(self.types))
            version += 1
        db.execute(
            f"UPDATE bylot_meta SET version = {STORE_VERSION}, least = {LEAST_STORE_VERSION}"
        )

    def _refuse_running_servers(self, db: Any, version: int) -> None:
        """Refuse to change the tables under servers that could not read them any more."""
        tables = ("leases", "servers") if version >= 5 else ("leases",)
        queries = [f"SELECT owner FROM {one} WHERE until > {self.now_sql}" for one in tables]
        count = len(set(db.execute(" UNION ".join(queries)).fetchall()))
        if version < LEAST_STORE_VERSION and count:
            raise errors.UnsupportedStore(
                f"{self.address} has version {version}, and {count} servers of an older bylot, "
                f"which cannot read version {STORE_VERSION}, have routers open",
                remedy="stop them all, or wait some seconds if they have ended, and try again",
            )

    def _fenced_error(self, routers: Iterable[int]) -> errors.LeaseLost:
        """For events that do not continue a log, or of a router that another owner has leased."""
        lost = tuple(sorted(routers))
        return errors.LeaseLost(
            f"{self.address}: the log of router {', '.join(map(str, lost))} was deleted, is leased "
            "by another owner, or was continued by another writer; nothing was written",
            routers=lost,
            remedy="read the log again before writing",
        )

    def _duplicate_error(self, error: Exception) -> errors.IdempotencyKeyReused:
        """For a batch with two equal sequence numbers, or with an idempotency key in use."""
        return errors.IdempotencyKeyReused(
            f"{self.address}: two events with one number, or two decisions with one key ({error}); "
            "nothing was written"
        )

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None

    def delete(self, router: int) -> bool:
        """Delete a router and a part of its log; whether more is left, for the next call."""
        self.ends.clear(router)
        with self._transaction() as execute:
            # the row goes first, so that no other writer can append meanwhile
            execute("DELETE FROM routers WHERE number = ?", router)
            for table in ("snapshots", "snapshot_parts", "segments", "leases"):
                execute(f"DELETE FROM {table} WHERE router = ?", router)
            deleted = execute(DELETE_EVENTS_SQL, router, router, MAX_EVENTS_PER_LOG_DELETE)
            return bool(deleted.rowcount == MAX_EVENTS_PER_LOG_DELETE)

    def rename(self, router: int, name: str) -> None:
        """Give a router that no server has open another name; RouterExists if it is used."""
        used = self.find(name)
        if used is not None and used.number != router:
            raise errors.RouterExists(f"router {name!r} exists already")
        with self._transaction() as execute:
            execute("UPDATE routers SET name = ? WHERE number = ?", name, router)

    def deleted_logs(self) -> list[int]:
        """The numbers of deleted routers of whose logs a part is left."""
        return [number for (number,) in self._rows(DELETED_LOGS_SQL)]

    def find(self, name: str) -> RouterRow | None:
        rows = self._rows("SELECT number, name, created FROM routers WHERE name = ?", name)
        return RouterRow(*rows[0]) if rows else None

    def routers(self, after: str = "", limit: int = 1000) -> list[RouterRow]:
        """Routers by name, those after the given one."""
        query = "SELECT number, name, created FROM routers WHERE name > ? ORDER BY name LIMIT ?"
        return [RouterRow(*row) for row in self._rows(query, after, limit)]

    def event(self, router: int, seq: int) -> Event | None:
        return self._event("event", router, seq)

    def events(self, router: int, after: int = -1, limit: int = 1000) -> list[Event]:
        """Events after one, in order: by the primary key, so equally fast anywhere in the log. If
        that one was dropped, from the first event that was not.
        """
        return self._events("after", router, max(after, self.first_seq(router) - 1), limit)

    def first_seq(self, router: int) -> int:
        """The seq of the first event of a log that was not dropped."""
        query = "SELECT max(last) FROM segments WHERE router = ? AND dropped = 1"
        ((last,),) = self._rows(query, router)
        return 0 if last is None else int(last) + 1

    def last_seq(self, router: int) -> int | None:
        """The seq of the last event of a log; None if there is no such log."""
        ((last,),) = self._rows("SELECT max(seq) FROM events WHERE router = ?", router)
        return None if last is None else int(last)

    def latest(self, router: int, kind: str, limit: int) -> list[Event]:
        """The last events of a kind, newest first, among the last thousand of the log."""
        return self._events("latest", router, router, kind, limit)

    def edits(self, router: int, limit: int) -> list[Event]:
        """The last edits, newest first, anywhere in the log."""
        return self._events("edits", router, limit)

    def decision_events(self, router: int, seq: int) -> DecisionEvents | None:
        """A decision and all later events about it."""
        decided = self.event(router, seq)
        if decided is None or decided.kind != "decided":
            return None
        return DecisionEvents(decided, self._events("about", router, seq))

    def preceding_events(self, router: int, seq: int) -> list[Event]:
        """The events just before those about a decision, to verify the seals of the latter."""
        return self._events("preceding", router, seq)

    def decision_by_key(self, router: int, key: str) -> Event | None:
        """The decision that was made under an idempotency key."""
        return self._event("by_key", router, key)

    def snapshot_seqs(self, router: int) -> list[int]:
        """The events after which there are snapshots, latest first."""
        query = "SELECT seq FROM snapshots WHERE router = ? ORDER BY seq DESC"
        return [seq for (seq,) in self._rows(query, router)]

    def snapshot(self, router: int, seq: int | None = None) -> Snapshot | None:
        """The snapshot after an event, by default the latest; None if there is none."""
        rows = self._rows(SNAPSHOT_SQL, router, seq, router)
        parts = sorted((part, body) for _, body, _, part in rows if part is not None)
        for seq, end, seal, part in rows:
            if part is None:
                return Snapshot(router, seq, b"".join([*(body for _, body in parts), end]), seal)
        return None

    def add_snapshot_part(self, router: int, seq: int, part: int, body: bytes) -> None:
        """Add a part of a snapshot; `append` adds its end as a snapshot, and it is complete."""
        with self._transaction() as execute:
            if not execute(ADD_PART_SQL, seq, part, body, router, self.owner).rowcount:
                raise self._fenced_error([router])

    def delete_snapshot_part(self, router: int, seq: int) -> bool:
        """Delete a part of a snapshot other than this one and those after segments, if the router
        is ours; whether it did.
        """
        with self._transaction() as execute:
            values = (router, seq, router, router, self.owner)
            return bool(execute(DELETE_PART_SQL, *values).rowcount)

    def segments(self, router: int) -> list[Segment]:
        """The segments of a log that have ended, in order, dropped ones included."""
        query = "SELECT * FROM segments WHERE router = ? ORDER BY last"
        return [Segment(*row) for row in self._rows(query, router)]

    def drop_segments(self, router: int, last: int, base: int) -> None:
        """Drop the events up to `last`, the end of a segment: `events` skips them, and
        `delete_dropped` deletes them. Snapshots from before `base` are deleted.
        """
        lock = "UPDATE leases SET owner = owner WHERE router = ? AND owner = ?"
        with self._transaction() as execute:
            if not execute(lock, router, self.owner).rowcount:  # nobody can take it over meanwhile
                raise self._fenced_error([router])
            execute("UPDATE segments SET dropped = 1 WHERE router = ? AND last <= ?", router, last)
            for table in ("snapshots", "snapshot_parts"):
                execute(f"DELETE FROM {table} WHERE router = ? AND seq < ?", router, base)

    def delete_dropped(self, router: int, limit: int) -> bool:
        """Delete some dropped events of a log; whether more may be left."""
        first = self.first_seq(router)
        with self._transaction(durable=False) as execute:  # what is undone is deleted again
            ((start,),) = execute("SELECT min(seq) FROM events WHERE router = ?", router).fetchall()
            end = min(first, (first if start is None else start) + limit)
            execute("DELETE FROM events WHERE router = ? AND seq < ?", router, end)
        return end < first

    def has_dropped_events(self, router: int) -> bool:
        """Whether dropped events of a log were not deleted yet."""
        ((start,),) = self._rows("SELECT min(seq) FROM events WHERE router = ?", router)
        return start is not None and start < self.first_seq(router)

    @abstractmethod
    def size(self) -> int:
        """The bytes that the store takes on disk."""

    @abstractmethod
    def compact(self) -> None:
        """Return all free space to the file system."""

    @abstractmethod
    def shrink(self, pages: int) -> None:
        """Return so many free pages to the file system, if that can be done in a moment."""

    def renew(self, owner: str, seconds: float) -> set[int]:
        """Renew all leases of an owner, also expired ones; returns the routers it still owns."""
        with self._transaction() as execute:
            query = f"UPDATE leases SET until = {self.later_sql} WHERE owner = ? RETURNING router"
            rows = execute(query, float(seconds), owner).fetchall()
        return {router for (router,) in rows}

    def register(self, server: ServerRow, seconds: float) -> list[ServerRow]:
        """Announce a server for so many seconds; returns all that are announced, with this one."""
        announce = (
            f"INSERT INTO servers VALUES (?, ?, ?, {self.later_sql}) ON CONFLICT (owner)"
            " DO UPDATE SET until = excluded.until"
        )
        with self._transaction() as execute:
            execute(announce, *server, float(seconds))
            execute(f"DELETE FROM servers WHERE until <= {self.now_sql}")
        return self.servers()

    def unregister(self, owner: str) -> None:
        """Announce that a server stops."""
        with self._transaction() as execute:
            execute("DELETE FROM servers WHERE owner = ?", owner)

    def servers(self) -> list[ServerRow]:
        """The servers that are announced, by address."""
        query = "SELECT owner, address, release FROM servers WHERE until > {} ORDER BY address"
        return [ServerRow(*row) for row in self._rows(query.format(self.now_sql))]

    def owners(self) -> dict[str, str]:
        """The owner of each router that is leased, by the name of the router."""
        query = "SELECT name, owner FROM leases JOIN routers ON number = router WHERE until > {}"
        return dict(self._rows(query.format(self.now_sql)))

    def lease_owners(self, router: int | None = None) -> list[str]:
        """All owners of leases, of one router or of any, expired ones included."""
        query = "SELECT DISTINCT owner FROM leases WHERE router = coalesce(?, router)"
        return [owner for (owner,) in self._rows(f"{query} ORDER BY owner", router)]

    def release(self, owner: str, routers: Iterable[int] | None = None) -> None:
        """Release leases of an owner: these, or all."""
        with self._transaction() as execute:
            if routers is None:
                execute("DELETE FROM leases WHERE owner = ?", owner)
            for router in routers or ():
                execute("DELETE FROM leases WHERE owner = ? AND router = ?", owner, router)

    def add_key(self, key: ApiKey) -> None:
        scopes, routers = json.dumps(key.scopes), json.dumps(key.routers)
        values = (*key[:3], scopes, routers, *key[5:])
        query = "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
        with self._transaction() as execute:
            if not execute(query, *values).rowcount:
                raise errors.StoreError(f"credential {key.id!r} exists already")

    def keys(self) -> list[ApiKey]:
        """All credentials, revoked ones included, oldest first."""
        rows = self._rows("SELECT * FROM keys ORDER BY created, id")
        try:
            return [
                ApiKey(*row[:3], *(tuple(json.loads(names)) for names in row[3:5]), *row[5:])
                for row in rows
            ]
        except (TypeError, ValueError) as error:
            raise errors.StoreCorrupted(
                f"{self.address}: a credential is damaged ({error})"
            ) from error

    def revoke(self, id: str, at: int) -> bool:
        """Revoke a credential, the first time counts; False if there is none of this id."""
        query = "UPDATE keys SET revoked = coalesce(revoked, ?) WHERE id = ?"
        with self._transaction() as execute:
            return bool(execute(query, at, id).rowcount > 0)


def make_unstorable_value_error(error: Exception) -> errors.StoreError:
    """For texts and numbers that the database cannot represent."""
    return errors.StoreError(
        f"a text or number cannot be stored ({str(error).splitlines()[0]})",
        remedy="use texts without NUL and lone surrogates, and numbers below 2**63",
    )
