"""A store in one SQLite file: a write-ahead log that is synced before a call returns.

Any number of processes may have the file open; one writes at a time, the others wait a little.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from bylot.errors import RouterExists, RouterNotFound, StoreCorrupted, StoreError, StoreUnavailable
from bylot.store.protocol import ApiKey, Event, RouterRow, Snapshot
from bylot.store.queries import (
    STORE_VERSION,
    EventQueries,
    EventReader,
    check_store_version,
    make_duplicate_event_error,
    make_fenced_error,
    make_foreign_database_error,
    make_unstorable_value_error,
)

SQLITE_BUSY_TIMEOUT_S = 3.0
"""Seconds to wait for another process that is writing."""

SQLITE_NOW_SQL = "(julianday('now') - 2440587.5) * 86400.0"
"""Seconds since 1970, to the millisecond."""

SQLITE_SCHEMA_SQL = (
    "CREATE TABLE routers (number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " name TEXT NOT NULL UNIQUE, created INTEGER NOT NULL)",
    "CREATE TABLE events (router INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL,"
    " of INTEGER, key TEXT, at INTEGER NOT NULL, body BLOB NOT NULL, seal BLOB NOT NULL,"
    " PRIMARY KEY (router, seq)) WITHOUT ROWID",
    "CREATE UNIQUE INDEX events_by_key ON events (router, key)"
    " WHERE kind = 'decided' AND key IS NOT NULL",
    "CREATE INDEX events_of ON events (router, of) WHERE of IS NOT NULL",
    "CREATE INDEX events_edited ON events (router, seq) WHERE kind = 'edited'",
    "CREATE TABLE snapshots (router INTEGER PRIMARY KEY, seq INTEGER NOT NULL,"
    " body BLOB NOT NULL, seal BLOB NOT NULL)",
    "CREATE TABLE leases (router INTEGER PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL)",
    "CREATE TABLE keys (id TEXT PRIMARY KEY, digest BLOB NOT NULL, label TEXT NOT NULL,"
    " scopes TEXT NOT NULL, routers TEXT NOT NULL, created INTEGER NOT NULL, revoked INTEGER)",
    "CREATE TABLE bylot_meta (version INTEGER NOT NULL)",
    f"INSERT INTO bylot_meta VALUES ({STORE_VERSION})",
)

SQLITE_EVENTS_SQL = "SELECT router, seq, kind, of, key, at, body, seal FROM events WHERE router = ?"
SQLITE_EVENT_PLACEHOLDERS = "(?, ?, ?, ?, ?, ?, ?, ?)"
SQLITE_ADD_EVENT_SQL = f"INSERT INTO events VALUES {SQLITE_EVENT_PLACEHOLDERS}"
SQLITE_MAX_EVENTS_PER_STATEMENT = 64  # lines of one statement, at most: a power of two
SQLITE_ADD_SNAPSHOT_SQL = (
    "INSERT INTO snapshots VALUES (?, ?, ?, ?) ON CONFLICT (router) DO UPDATE"
    " SET seq = excluded.seq, body = excluded.body, seal = excluded.seal"
    " WHERE excluded.seq >= snapshots.seq"
)
SQLITE_LOG_END_SQL = (
    "SELECT (SELECT max(seq) FROM events WHERE router = number), EXISTS (SELECT 1 FROM leases"
    f" WHERE router = number AND owner <> ? AND until > {SQLITE_NOW_SQL}) FROM routers WHERE number = ?"
)
SQLITE_LEASE_SQL = (
    f"INSERT INTO leases SELECT number, ?, {SQLITE_NOW_SQL} + ? FROM routers WHERE number = ?"
    " ON CONFLICT (router) DO UPDATE SET owner = excluded.owner, until = excluded.until"
    f" WHERE leases.owner = excluded.owner OR leases.until <= {SQLITE_NOW_SQL}"
)
SQLITE_OWNERS_SQL = (
    "SELECT DISTINCT owner FROM leases WHERE router = coalesce(?, router) ORDER BY owner"
)
SQLITE_EVENT_SQL = f"{SQLITE_EVENTS_SQL} AND seq = ?"
SQLITE_LAST_EVENT_SQL = f"{SQLITE_EVENTS_SQL} ORDER BY seq DESC LIMIT 1"
SQLITE_EVENTS_AFTER_SQL = f"{SQLITE_EVENTS_SQL} AND seq > ? ORDER BY seq LIMIT ?"
SQLITE_LATEST_EVENTS_SQL = (
    f"{SQLITE_EVENTS_SQL} AND seq > (SELECT max(seq) FROM events WHERE router = ?) - 1000 AND kind = ?"
    " ORDER BY seq DESC LIMIT ?"
)
SQLITE_EDITS_SQL = f"{SQLITE_EVENTS_SQL} AND kind = 'edited' ORDER BY seq DESC LIMIT ?".replace(
    "events", "events INDEXED BY events_edited"
)
# left to itself, the planner walks the whole log by its primary key, for the sake of the order
SQLITE_EVENTS_OF_DECISION_SQL = f"{SQLITE_EVENTS_SQL} AND of = ? ORDER BY seq".replace(
    "events", "events INDEXED BY events_of"
)
SQLITE_PRECEDING_EVENTS_SQL = (
    "SELECT one.router, one.seq, one.kind, one.of, one.key, one.at, one.body, one.seal"
    " FROM events said INDEXED BY events_of CROSS JOIN events one"  # in this order
    " WHERE said.router = ? AND said.of = ? AND one.router = said.router AND one.seq = said.seq - 1"
)
SQLITE_DECISION_BY_KEY_SQL = (
    f"{SQLITE_EVENTS_SQL} AND key = ? AND kind = 'decided' AND key IS NOT NULL"
)

SQLITE_REMEDIES = {
    sqlite3.SQLITE_BUSY: f"another process has been writing to it for {SQLITE_BUSY_TIMEOUT_S:g} s; "
    "see which has it open",
    sqlite3.SQLITE_LOCKED: "another process has it locked; see which has it open",
    sqlite3.SQLITE_FULL: "the disk is full; make room",
    sqlite3.SQLITE_READONLY: "it may only be read; open it for writing, and see that its folder "
    "can be written to",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; see that its folder is there and that both "
    "can be written to",
    sqlite3.SQLITE_IOERR: "the disk does not answer as it should; see the system's log",
}
SQLITE_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


class SqliteStore(EventReader):
    """A `Store` in a file; used after `close`, it opens the file again.

    owner: whose leases are ours, set by `lease`
    """

    queries = EventQueries(
        SQLITE_EVENT_SQL,
        SQLITE_LAST_EVENT_SQL,
        SQLITE_EVENTS_AFTER_SQL,
        SQLITE_LATEST_EVENTS_SQL,
        SQLITE_EDITS_SQL,
        SQLITE_EVENTS_OF_DECISION_SQL,
        SQLITE_PRECEDING_EVENTS_SQL,
        SQLITE_DECISION_BY_KEY_SQL,
    )

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path, self.read_only = path.absolute(), read_only
        self.address = f"sqlite:///{self.path}"
        self.owner = ""
        self._db: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        with self._reading():
            pass

    def create(self, name: str, at: int, first: Event) -> RouterRow:
        """A router under a new number, with line 0 of its log."""
        with self._writing() as db:
            if db.execute("SELECT 1 FROM routers WHERE name = ?", (name,)).fetchone():
                raise RouterExists(f"a router {name!r} is there already; give another name")
            insert = "INSERT INTO routers (name, created) VALUES (?, ?)"
            number = db.execute(insert, (name, at)).lastrowid
            assert number is not None
            db.execute(SQLITE_ADD_EVENT_SQL, first._replace(router=number))
        return RouterRow(number, name, at)

    def delete(self, router: int) -> None:
        """Forget a router; AUTOINCREMENT never gives its number again."""
        with self._writing() as db:
            db.execute("DELETE FROM routers WHERE number = ?", (router,))
            for table in ("events", "snapshots", "leases"):
                db.execute(f"DELETE FROM {table} WHERE router = ?", (router,))

    def find(self, name: str) -> RouterRow | None:
        """The router of this name."""
        with self._reading() as db:
            query = "SELECT number, name, created FROM routers WHERE name = ?"
            row = db.execute(query, (name,)).fetchone()
        return RouterRow(*row) if row else None

    def routers(self, after: str = "", limit: int = 1000) -> list[RouterRow]:
        """Routers by name, those after the given one."""
        with self._reading() as db:
            query = "SELECT number, name, created FROM routers WHERE name > ? ORDER BY name LIMIT ?"
            return [RouterRow(*row) for row in db.execute(query, (after, limit))]

    def append(self, events: Sequence[Event], snapshots: Sequence[Snapshot] = ()) -> None:
        """Add lines, each the next of its log, or nothing."""
        with self._writing() as db:
            self._defend(db, events, snapshots)
            try:
                for some in split_events(events):
                    db.execute(
                        SQLITE_ADD_EVENT_SQL + f", {SQLITE_EVENT_PLACEHOLDERS}" * (len(some) - 1),
                        [*chain.from_iterable(some)],
                    )
            except sqlite3.IntegrityError as error:
                raise make_duplicate_event_error(self.address, error) from None
            if snapshots:
                db.executemany(SQLITE_ADD_SNAPSHOT_SQL, snapshots)

    def _defend(
        self, db: sqlite3.Connection, events: Sequence[Event], snapshots: Sequence[Snapshot]
    ) -> None:
        """Fenced unless each log ends where these lines begin, and is in nobody else's hands."""
        starts: dict[int, int | None] = dict.fromkeys([one.router for one in snapshots])
        for event in reversed(events):
            starts[event.router] = event.seq
        lost = []
        for router, start in starts.items():
            standing = db.execute(SQLITE_LOG_END_SQL, (self.owner, router)).fetchone()
            if not standing or standing[1] or (start is not None and standing[0] != start - 1):
                lost.append(router)
        if lost:
            raise make_fenced_error(self.address, lost)

    def _lines(self, query: str, *values: int | str) -> list[Event]:
        with self._reading() as db:
            return [Event(*row) for row in db.execute(query, values)]

    def snapshot(self, router: int) -> Snapshot | None:
        """The latest snapshot."""
        with self._reading() as db:
            query = "SELECT router, seq, body, seal FROM snapshots WHERE router = ?"
            row = db.execute(query, (router,)).fetchone()
        return Snapshot(*row) if row else None

    def lease(self, router: int, owner: str, seconds: float) -> float | None:
        """Take or renew the right to write to a log, by the clock of this machine."""
        with self._writing() as db:
            granted = db.execute(SQLITE_LEASE_SQL, (owner, seconds, router)).rowcount
            query = f"SELECT until - {SQLITE_NOW_SQL} FROM leases WHERE router = ?"
            left = db.execute(query, (router,)).fetchone()
        if left is None:
            raise RouterNotFound(f"{self.address} has no router of number {router} any more")
        if not granted:
            return max(0.0, float(left[0]))
        self.owner = owner
        return None

    def renew(self, owner: str, seconds: float) -> set[int]:
        """Renew all leases of an owner, also those that ran out and that nobody took."""
        query = f"UPDATE leases SET until = {SQLITE_NOW_SQL} + ? WHERE owner = ? RETURNING router"
        with self._writing() as db:
            return {router for (router,) in db.execute(query, (seconds, owner)).fetchall()}

    def owners(self, router: int | None = None) -> list[str]:
        """Whoever has leases, of one router or of any, also such as ran out."""
        with self._reading() as db:
            found = db.execute(SQLITE_OWNERS_SQL, (router,)).fetchall()
        return [owner for (owner,) in found]

    def release(self, owner: str, routers: Iterable[int] | None = None) -> None:
        """Give leases back: these, or all of an owner."""
        with self._writing() as db:
            if routers is None:
                db.execute("DELETE FROM leases WHERE owner = ?", (owner,))
            else:
                one = "DELETE FROM leases WHERE owner = ? AND router = ?"
                db.executemany(one, [(owner, router) for router in routers])

    def add_key(self, key: ApiKey) -> None:
        """Keep a credential."""
        row = key._replace(scopes=json.dumps(key.scopes), routers=json.dumps(key.routers))  # type: ignore[arg-type]
        with self._writing() as db:
            try:
                db.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            except sqlite3.IntegrityError:
                raise StoreError(f"a credential {key.id!r} is there already") from None

    def keys(self) -> list[ApiKey]:
        """All credentials, oldest first."""
        with self._reading() as db:
            rows = [ApiKey(*r) for r in db.execute("SELECT * FROM keys ORDER BY created, id")]
        return [
            k._replace(
                scopes=tuple(json.loads(str(k.scopes))), routers=tuple(json.loads(str(k.routers)))
            )
            for k in rows
        ]

    def revoke(self, id: str, at: int) -> bool:
        """From now on this credential is none; the time of the first revocation stays."""
        with self._writing() as db:
            query = "UPDATE keys SET revoked = coalesce(revoked, ?) WHERE id = ?"
            return db.execute(query, (at, id)).rowcount > 0

    def close(self) -> None:
        """Let go of the connection."""
        if self._db is not None:
            self._db.close()
        self._db = None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The connection; what it raises becomes an error that names the file."""
        try:
            yield self._db or self._connect()
        except (sqlite3.DataError, UnicodeEncodeError, OverflowError) as error:
            raise make_unstorable_value_error(error) from None
        except sqlite3.ProgrammingError:
            raise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._refusal(error) from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else can write in."""
        with self._reading() as db:
            self._in_place()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _in_place(self) -> None:
        """A file that was moved or unlinked can still be written to, and all would be lost."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise StoreUnavailable(f"{self.path} is gone ({error.strerror}); put it back") from None
        if (found.st_dev, found.st_ino) != self._inode:
            raise StoreUnavailable(
                f"{self.path} is another file than the one that was opened; put the first one "
                "back, or restart what uses it"
            )

    def _refusal(self, error: Exception) -> StoreError:
        """What an error of SQLite means, and what to do; the next call opens the file again."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            self.close()
        if code in SQLITE_DAMAGE_CODES:
            return StoreCorrupted(
                f"{self.path} is not a store of bylot, or a damaged one ({error}); "
                "restore it from a copy, or name another file"
            )
        reason = SQLITE_REMEDIES.get(code, "SQLite cannot use it")
        return StoreUnavailable(f"{self.path}: {reason} ({error})")

    def _connect(self) -> sqlite3.Connection:
        """Open the file; make a store of it if it is new, refuse it if it is something else."""
        new = self._inode is None and not self.read_only
        if new:  # what is in it is nobody else's business
            with suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        mode = "ro" if self.read_only else "rwc" if new else "rw"
        db = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=SQLITE_BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._prepare(db, new)
        except BaseException:
            db.close()
            raise
        found = os.stat(self.path)
        self._inode = (found.st_dev, found.st_ino)
        self._db = db
        return db

    def _prepare(self, db: sqlite3.Connection, new: bool) -> None:
        """Nothing is written before the file is known to be ours, or empty."""
        if new and not list_sqlite_tables(db):
            db.execute("BEGIN IMMEDIATE")
            if not list_sqlite_tables(db):  # nobody else was quicker
                for statement in SQLITE_SCHEMA_SQL:
                    db.execute(statement)
            db.execute("COMMIT")
        if "bylot_meta" not in list_sqlite_tables(db):
            raise make_foreign_database_error(str(self.path))
        check_store_version(str(self.path), db.execute("SELECT version FROM bylot_meta").fetchall())
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA journal_size_limit = 67108864")  # bytes that stay after a large delete
        if not self.read_only:
            mode = enable_wal(db)
            if mode != "wal":
                raise StoreUnavailable(
                    f"{self.path}: its disk cannot have a write-ahead log (mode {mode}); "
                    "put the file on a local disk"
                )


def split_events(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """Lines, split into as few sizes as possible, so that their statements are prepared once.

    One statement for many lines, as `executemany` lets go of Python's lock for each line, and takes
    it again: two threads then hand it to and fro, for more than the writing takes.
    """
    first, size = 0, SQLITE_MAX_EVENTS_PER_STATEMENT
    while first < len(events):
        while size > len(events) - first:
            size //= 2
        yield events[first : first + size]
        first += size


def list_sqlite_tables(db: sqlite3.Connection) -> set[str]:
    """What a file has."""
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def enable_wal(db: sqlite3.Connection) -> str:
    """The journal's mode, once it is a write-ahead log if it can be.

    To change it SQLite does not wait for others who do the same, as it does for a transaction.
    """
    while True:
        try:
            return str(db.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
