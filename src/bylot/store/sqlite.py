"""A store in one SQLite file: a write-ahead log that is synced before a call returns.

Any number of processes may have the file open; one writes at a time, the others wait a little.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import Any

from bylot.errors import RouterExists, RouterNotFound, StoreCorrupted, StoreError, StoreUnavailable
from bylot.store.log_ends import LogEndsFile
from bylot.store.protocol import Execute, Store, make_unstorable_value_error
from bylot.store.schema import (
    ADD_SEGMENT_SQL,
    ADD_SNAPSHOT_SQL,
    DELETE_OLD_SNAPSHOTS_SQL,
    EVENT_QUERIES,
    Event,
    RouterRow,
    Segment,
    Snapshot,
)

SQLITE_BUSY_TIMEOUT_S = 3.0
"""Seconds to wait for another process that is writing."""

SQLITE_NOW_SQL = "(julianday('now') - 2440587.5) * 86400.0"
"""Seconds since 1970, to the millisecond."""

SQLITE_TYPES = {
    "number": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "int": "INTEGER",
    "text": "TEXT",
    "name": "TEXT",
    "bytes": "BLOB",
    "time": "REAL",
    "clustered": "WITHOUT ROWID",
}

SQLITE_EVENT_PLACEHOLDERS = "(?, ?, ?, ?, ?, ?, ?, ?)"
SQLITE_ADD_EVENT_SQL = f"INSERT INTO events VALUES {SQLITE_EVENT_PLACEHOLDERS}"
SQLITE_MAX_EVENTS_PER_STATEMENT = 64  # a power of two
SQLITE_LOG_END_SQL = (
    "SELECT (SELECT max(seq) FROM events WHERE router = number), EXISTS (SELECT 1 FROM leases"
    f" WHERE router = number AND owner <> ? AND until > {SQLITE_NOW_SQL})"
    " FROM routers WHERE number = ?"
)
SQLITE_LEASE_SQL = (
    f"INSERT INTO leases SELECT number, ?, {SQLITE_NOW_SQL} + ? FROM routers WHERE number = ?"
    " ON CONFLICT (router) DO UPDATE SET owner = excluded.owner, until = excluded.until"
    f" WHERE leases.owner = excluded.owner OR leases.until <= {SQLITE_NOW_SQL}"
)
SQLITE_REMEDIES = {
    sqlite3.SQLITE_BUSY: f"another process has been writing to it for {SQLITE_BUSY_TIMEOUT_S:g} s; "
    "check which one has it open",
    sqlite3.SQLITE_LOCKED: "another process has it locked; check which one has it open",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_READONLY: "it is read-only; open it for writing, and check that its folder "
    "is writable",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that it exists (`--store` names another "
    "one), and that it and its folder are writable",
    sqlite3.SQLITE_IOERR: "input/output error; check the disk and the system log",
}
SQLITE_SPARE_PAGES = 4_000  # free pages that stay, for new events
SQLITE_WAL_PAGES, SQLITE_SHORT_WAL_PAGES = 1_000, 250  # after which it is copied
SQLITE_SYNC_SQL = "PRAGMA synchronous = FULL"  # each commit waits for the disk
SQLITE_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
SQLITE_COLUMN_TYPES: dict[str, type | UnionType] = {
    name: kind
    for kind, names in (
        (int, "number created router seq at first last ended refers open_since dropped"),
        (int | None, "of revoked part max(seq) max(last) min(seq)"),
        (str, "name kind owner address release id label scopes routers"),
        (str | None, "key"),
        (bytes, "body seal digest"),
        (bytes | None, "snapshot_seal"),
        (float, "left_s"),
    )
    for name in names.split()
}
"""What a column of a result contains: SQLite returns anything from a damaged row, often NULL."""


class SqliteStore(Store):
    """A `Store` in a file; used after `close`, it opens the file again."""

    ends: LogEndsFile
    types = SQLITE_TYPES
    queries = EVENT_QUERIES | {
        # without INDEXED BY the planner scans the whole log by its primary key to get the order
        "edits": EVENT_QUERIES["edits"].replace("events", "events INDEXED BY events_edited"),
        "about": EVENT_QUERIES["about"].replace("events", "events INDEXED BY events_of"),
        "preceding": "SELECT one.router, one.seq, one.kind, one.of, one.key, one.at, one.body,"
        " one.seal FROM events said INDEXED BY events_of CROSS JOIN events one"  # in this order
        " WHERE said.router = ? AND said.of = ?"
        " AND one.router = said.router AND one.seq = said.seq - 1",
    }
    now_sql = SQLITE_NOW_SQL
    later_sql = f"{SQLITE_NOW_SQL} + ?"

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path, self.read_only = path.absolute(), read_only
        self.address = f"sqlite:///{self.path}"
        self.wal = self.path.with_name(f"{self.path.name}-wal")
        self.ends = LogEndsFile(self.path.with_name(f"{self.path.name}-ends"))
        self._inodes: dict[Path, tuple[int, int]] = {}
        with self._reading():
            pass

    def create(self, name: str, at: int, first: Event, state: Snapshot | None = None) -> RouterRow:
        with self._writing() as db:
            if db.execute("SELECT 1 FROM routers WHERE name = ?", (name,)).fetchone():
                raise RouterExists(f"router {name!r} exists already", remedy="use another name")
            insert = "INSERT INTO routers (name, created) VALUES (?, ?)"
            number = db.execute(insert, (name, at)).lastrowid
            assert number is not None
            first = first._replace(router=number)
            db.execute(SQLITE_ADD_EVENT_SQL, first)
            if state is not None:
                db.execute(ADD_SNAPSHOT_SQL, state._replace(router=number))
        self._record_ends([first])
        return RouterRow(number, name, at)

    def append(
        self,
        events: Sequence[Event],
        snapshots: Sequence[Snapshot] = (),
        segments: Sequence[Segment] = (),
    ) -> None:
        with self._writing() as db:
            self._check_writable(db, events, snapshots)
            try:
                for some in split_events(events):
                    db.execute(
                        SQLITE_ADD_EVENT_SQL + f", {SQLITE_EVENT_PLACEHOLDERS}" * (len(some) - 1),
                        [*chain.from_iterable(some)],
                    )
            except sqlite3.IntegrityError as error:
                raise self._duplicate_error(error) from None
            if segments:
                db.executemany(ADD_SEGMENT_SQL, segments)
            if snapshots:
                db.executemany(ADD_SNAPSHOT_SQL, snapshots)
                db.executemany(DELETE_OLD_SNAPSHOTS_SQL, [(one.router,) * 3 for one in snapshots])
        self._record_ends(events)

    def _check_writable(
        self, db: sqlite3.Connection, events: Sequence[Event], snapshots: Sequence[Snapshot]
    ) -> None:
        """LeaseLost unless each log ends where these events begin and no other owner has it."""
        lost = []
        for router, start in self._first_seqs(events, snapshots).items():
            log = db.execute(SQLITE_LOG_END_SQL, (self.owner, router)).fetchone()
            if not log or log[1] or (start is not None and log[0] != start - 1):
                lost.append(router)
        if lost:
            raise self._fenced_error(lost)

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._reading() as db:
            return self._fetch(db.execute(query, values))

    def _fetch(self, cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
        """Fetch the rows of a query; StoreCorrupted if a value is not of the type of its column."""
        rows = cursor.fetchall()
        names = [column[0] for column in cursor.description]
        types = [SQLITE_COLUMN_TYPES.get(name, object) for name in names]
        for row in rows:
            for name, value, expected in zip(names, row, types, strict=True):
                if not isinstance(value, expected):
                    raise self._damage_error(f"a value of {name} is of type {type(value).__name__}")
        return rows

    @contextmanager
    def _transaction(self, durable: bool = True) -> Iterator[Execute]:
        with nullcontext() if durable else self._without_sync(), self._writing() as db:
            yield lambda query, *values: db.execute(query, values)

    def lease(self, router: int, owner: str, seconds: float) -> float | None:
        with self._writing() as db:
            granted = db.execute(SQLITE_LEASE_SQL, (owner, seconds, router)).rowcount
            query = f"SELECT until - {SQLITE_NOW_SQL} AS left_s FROM leases WHERE router = ?"
            left = self._fetch(db.execute(query, (router,)))
        if not left:
            raise RouterNotFound(f"no router has number {router}")
        if not granted:
            return max(0.0, float(left[0][0]))
        self.owner = owner
        return None

    def size(self) -> int:
        ((size,),) = self._rows(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        )
        return int(size)

    def compact(self) -> None:
        with self._reading() as db:
            self._check_same_files(db)
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a file that was made without it
            db.execute("VACUUM")
            copy_wal(db)

    def shrink(self, pages: int) -> None:
        with self._reading() as db:
            ((free,),) = db.execute("PRAGMA freelist_count")
            if free > SQLITE_SPARE_PAGES:
                self._check_same_files(db)
                with self._without_sync():
                    # `execute` would end after the first page
                    db.executescript(f"PRAGMA incremental_vacuum({pages})")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The connection; errors of SQLite become errors that name the file."""
        try:
            yield self._db or self._connect()
        except (sqlite3.DataError, UnicodeEncodeError, OverflowError) as error:
            raise make_unstorable_value_error(error) from None
        except sqlite3.ProgrammingError:
            raise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._translate_error(error) from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as db:
            self._check_same_files(db)
            with self._lock(db):
                yield db

    @contextmanager
    def _lock(self, db: sqlite3.Connection) -> Iterator[None]:
        db.execute("BEGIN" if self.read_only else "BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _list_tables(self, db: sqlite3.Connection) -> set[str]:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {name for (name,) in tables}

    @contextmanager
    def _without_sync(self) -> Iterator[None]:
        """Transactions that do not wait for the disk, and copy the write-ahead log in small parts:
        requests wait for that.
        """
        with self._reading() as db:
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA wal_autocheckpoint = {SQLITE_SHORT_WAL_PAGES}")
            try:
                yield
            finally:
                if self._db is db:  # an error may have closed it
                    db.execute(SQLITE_SYNC_SQL)
                    db.execute(f"PRAGMA wal_autocheckpoint = {SQLITE_WAL_PAGES}")

    def _check_same_files(self, db: sqlite3.Connection) -> None:
        """Refuse to write to files that were moved or unlinked: the data would be lost."""
        for path, inode in self._inodes.items():
            try:
                found = read_inode(path)
            except OSError as error:
                remedy = (
                    f"restart the process; {self.path} has all that was in it"
                    if path == self.wal and copy_wal(db)
                    else "put it back"
                )
                raise StoreUnavailable(
                    f"{path} is gone ({error.strerror})", remedy=remedy
                ) from None
            if found != inode:
                raise StoreUnavailable(
                    f"{path} is another file than the one that was opened",
                    remedy="put the first one back, or restart the process",
                )

    def _translate_error(self, error: Exception) -> StoreError:
        """What an error of SQLite means, and what to do; the next call opens the file again."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            self.close()
        if code in SQLITE_DAMAGE_CODES:
            return self._damage_error(error)
        reason = SQLITE_REMEDIES.get(code, "SQLite cannot use it")
        return StoreUnavailable(f"{self.path}: {reason} ({error})")

    def _damage_error(self, cause: object) -> StoreCorrupted:
        """For a file that is damaged, or was written by another program."""
        what = f"{self.path} is not a store of bylot, or is damaged ({cause})"
        return StoreCorrupted(what, remedy="restore it from a backup, or name another file")

    def _connect(self) -> sqlite3.Connection:
        """Open the file; initialise a new one, refuse one that is not a store."""
        new = not self._inodes and not self.read_only
        if new:  # readable by its owner only
            # exclusively: to close a file that exists would drop our locks on it
            with suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
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
            if not self.read_only:
                self._check_lost_routers(db)
                self._inodes = {path: read_inode(path) for path in (self.path, self.wal)}
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _prepare(self, db: sqlite3.Connection, new: bool) -> None:
        """Prepare tables and settings."""
        if new and not self._list_tables(db):
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before the first table, or never
        self._prepare_tables(db, new=new)
        db.execute(SQLITE_SYNC_SQL)
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA journal_size_limit = 67108864")  # bytes that stay after a large delete
        if not self.read_only:
            mode = enable_wal(db)
            if mode != "wal":
                raise StoreUnavailable(
                    f"{self.path}: its file system does not support write-ahead logs (mode {mode})",
                    remedy="put the file on a local disk",
                )

    def _check_lost_routers(self, db: sqlite3.Connection) -> None:
        """Refuse a file that has lost a router, as far as the ends of logs were recorded."""
        recorded = set(self.ends.list_routers())  # before the rows, as it is written after them
        lost = recorded.difference(number for (number,) in db.execute("SELECT number FROM routers"))
        if lost:
            numbers = ", ".join(map(str, sorted(lost)))
            raise StoreCorrupted(
                f"{self.path}: of routers that were created, numbers {numbers} are gone",
                remedy="restore it from a backup; to continue without what is lost, "
                + self.ends.remedy,
            )


def read_inode(path: Path) -> tuple[int, int]:
    """What identifies a file, whatever its name."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def copy_wal(db: sqlite3.Connection) -> bool:
    """Copy the write-ahead log into the main file, even if unlinked; whether that is done."""
    with suppress(sqlite3.Error):
        _, frames, copied = db.execute("PRAGMA wal_checkpoint").fetchone()
        return bool(frames == copied)
    return False


def split_events(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """Split events into few distinct batch sizes, so that each statement is prepared once.

    One statement inserts many events, because `executemany` releases and takes the GIL for each
    row: two threads would pass it back and forth for longer than the writing takes.
    """
    first, size = 0, SQLITE_MAX_EVENTS_PER_STATEMENT
    while first < len(events):
        while size > len(events) - first:
            size //= 2
        yield events[first : first + size]
        first += size


def enable_wal(db: sqlite3.Connection) -> str:
    """Switch to a write-ahead log if possible; returns the journal mode.

    SQLite does not wait for other connections that do the same, as it does for a transaction.
    """
    while True:
        try:
            return str(db.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
