"""A store in a PostgreSQL database, in the schema that its address leads to.

Each call is one statement where it can be, which is one round trip and one transaction.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from bylot import errors
from bylot.store.log_ends import LogEnds
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

PostgresRow = tuple[Any, ...]
ResultT = TypeVar("ResultT")

POSTGRES_CONNECTION_DEFAULTS = {
    "connect_timeout": "3",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "6000",
    "application_name": "bylot",
}
"""Unless the URL overrides them: a lost network is detected within seconds. A server that accepts
connections and does not answer is given up after `tcp_user_timeout` too.
"""
POSTGRES_RECONNECT_PAUSE_S = 1.0
"""After a timeout calls fail at once for so long: a batch waits for one timeout, not for many."""

POSTGRES_SNAPSHOT_BYTES_PER_S = 10_000_000
"""A server that compresses and writes a large snapshot is silent meanwhile: it gets more time."""

POSTGRES_SESSION_SQL = (
    "SET synchronous_commit = on",
    "SET lock_timeout = '3s'",
    "SET default_transaction_isolation = 'read committed'",
)

POSTGRES_TYPES = {
    "number": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "int": "bigint",
    "text": "text",
    "name": 'text COLLATE "C"',
    "bytes": "bytea",
    "time": "timestamptz",
    "clustered": "",
}
POSTGRES_TABLES_SQL = (
    "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p')"
    " AND relnamespace = current_schema()::regnamespace"
)

POSTGRES_CREATE_ROUTER_SQL = """
WITH made AS (
    INSERT INTO routers (name, created) VALUES (?, ?) ON CONFLICT (name) DO NOTHING
    RETURNING number
), line AS (
    INSERT INTO events SELECT number, ?, ?, ?, ?, ?, ?, ? FROM made
)
SELECT number FROM made
"""
# The rows of the routers are locked, so that none is deleted while its log grows, and so that the
# second of two writers to one log waits and finds the primary key taken.
POSTGRES_APPEND_SQL = """
WITH ours AS (
    SELECT number FROM routers
    JOIN unnest(?::bigint[], ?::bigint[]) AS begun (router, start) ON router = number
    WHERE (start IS NULL OR start - 1 = (SELECT max(seq) FROM events WHERE router = number))
    AND NOT EXISTS (SELECT 1 FROM leases
        WHERE router = number AND owner <> ? AND until > clock_timestamp())
    ORDER BY number FOR NO KEY UPDATE OF routers
), added AS (
    INSERT INTO events SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::text[], ?::bigint[],
        ?::text[], ?::bigint[], ?::bytea[], ?::bytea[])
    WHERE (SELECT count(*) FROM ours) = ?
), kept AS (
    INSERT INTO snapshots SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::bytea[], ?::bytea[])
    WHERE (SELECT count(*) FROM ours) = ?
    ON CONFLICT (router, seq) DO UPDATE SET body = excluded.body, seal = excluded.seal
)
SELECT number FROM ours
"""
POSTGRES_LEASE_SQL = """
WITH there AS (
    SELECT number FROM routers WHERE number = ? FOR KEY SHARE
), got AS (
    INSERT INTO leases SELECT number, ?, clock_timestamp() + make_interval(secs => ?) FROM there
    ON CONFLICT (router) DO UPDATE SET owner = excluded.owner, until = excluded.until
    WHERE leases.owner = excluded.owner OR leases.until <= clock_timestamp()
    RETURNING router
)
SELECT EXISTS (SELECT 1 FROM got), (SELECT extract(epoch FROM until - clock_timestamp())::float8
    FROM leases WHERE router = number) FROM there
"""
POSTGRES_SIZE_SQL = (
    "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r'"
    " AND relnamespace = current_schema()::regnamespace"
)
LOG_TABLES = ("events", "snapshots", "snapshot_parts")  # all of them have a column `router`
PAGES_PER_STEP = 64
MAX_ATTEMPTS = 20  # a row stays in its page as long as there is room in it, so until that is full

TABLE_PAGES_SQL = "SELECT pg_relation_size(to_regclass(%s)) / current_setting('block_size')::bigint"
MOVE_ROWS_SQL = """
WITH moved AS (
    UPDATE {table} SET router = router WHERE ctid >= %s::tid AND ctid < %s::tid RETURNING ctid
)
SELECT count(*), count(*) FILTER (WHERE ctid < %s::tid) FROM moved
"""
POSTGRES_LONG_STATEMENT_S = 86_400.0  # of a compaction or a migration
POSTGRES_REMEDIES = {
    "25": "it is read-only; open it for writing, on a primary server",
    "28": "the server refuses access; check user and password",
    "3D": "the database does not exist; create it, as by `createdb`",
    "40": "conflict with another connection; try again",
    "42": "permission denied; check the rights of the user in the schema",
    "53": "the server is out of resources; check its disk, memory and connections",
    "55": "another connection has it locked; check pg_locks",
}
POSTGRES_UNREACHABLE = (
    "the server cannot be reached or closed the connection; check that it is running"
)
POSTGRES_DAMAGE_CODES = ("42P01", "42703", "XX000", "XX001", "XX002")
"""No such table or column; internal error, damaged data or index."""

POSTGRES_UNSTORABLE_ERRORS = (
    psycopg.DataError,
    psycopg.errors.ProgramLimitExceeded,
    UnicodeEncodeError,
    OverflowError,
)


class TimedConnection(Connection[PostgresRow]):
    """A connection that is closed if its server neither sends nor receives for a while.

    No setting of libpq covers that: the kernel of a stopped server keeps its connections alive.
    """

    timeout_s = 6.0

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Wait for a statement, as all methods do."""
        return super().wait(self._stop_when_stalled(gen), *arguments, **options)

    def _stop_when_stalled(self, gen: Generator[Any, Any, ResultT]) -> Generator[Any, Any, ResultT]:
        """The same steps; psycopg sends 0 several times a second while nothing can be done."""
        try:
            state, progress = next(gen), time.monotonic()
            while True:
                ready = yield state
                if ready:
                    progress = time.monotonic()
                elif time.monotonic() - progress > self.timeout_s:
                    self.pgconn.finish()
                    raise psycopg.errors.ConnectionTimeout(f"no answer within {self.timeout_s:g} s")
                state = gen.send(ready)
        except StopIteration as end:
            result: ResultT = end.value
            return result


class PostgresStore(Store):
    """A `Store` over one connection; its address is shown without the password."""

    queries = EVENT_QUERIES | {
        # LIMIT 1 forces a lookup per event: the planner might scan the whole log otherwise
        "preceding": "SELECT one.router, one.seq, one.kind, one.of, one.key, one.at, one.body,"
        " one.seal FROM events said CROSS JOIN LATERAL (SELECT * FROM events"
        " WHERE router = said.router AND seq = said.seq - 1 LIMIT 1) one"
        " WHERE said.router = ? AND said.of = ?"
    }
    types = POSTGRES_TYPES
    now_sql = "clock_timestamp()"
    later_sql = "clock_timestamp() + make_interval(secs => ?)"

    def __init__(self, address: str, *, read_only: bool = False) -> None:
        self._target = POSTGRES_CONNECTION_DEFAULTS | parse_postgres_url(address)
        if "," in str(self._target.get("host", "")):  # one of them is the primary
            self._target.setdefault("target_session_attrs", "read-write")
        self.address, self.read_only = format_postgres_url(self._target), read_only
        self.ends, self._made = LogEnds(), False
        timeout_ms = str(self._target["tcp_user_timeout"])  # libpq refuses what is no number
        self._timeout_s = int(timeout_ms) / 1000 if timeout_ms.isdigit() else 0.0
        self._timed_out: tuple[float, str] | None = None  # when, and how
        with self._using():
            pass

    def create(self, name: str, at: int, first: Event, state: Snapshot | None = None) -> RouterRow:
        more_s = 0.0 if state is None else len(state.body) / POSTGRES_SNAPSHOT_BYTES_PER_S
        with self._using(more_s) as db, db.transaction():
            create = query_for_psycopg(POSTGRES_CREATE_ROUTER_SQL)
            made = db.execute(create, (name, at, *first[1:]), binary=True).fetchone()
            if made is None:
                raise errors.RouterExists(
                    f"router {name!r} exists already", remedy="use another name"
                )
            (number,) = made
            if state is not None:
                add = query_for_psycopg(ADD_SNAPSHOT_SQL)
                db.execute(add, state._replace(router=number), binary=True)
        self._record_ends([first._replace(router=number)])
        return RouterRow(number, name, at)

    def append(
        self,
        events: Sequence[Event],
        snapshots: Sequence[Snapshot] = (),
        segments: Sequence[Segment] = (),
    ) -> None:
        starts = self._first_seqs(events, snapshots)
        count = len(starts)
        values = [list(starts), list(starts.values()), self.owner]
        values += [*columns_from_rows(Event, events), count]
        values += [*columns_from_rows(Snapshot, snapshots), count]
        more_s = sum(len(one.body) for one in snapshots) / POSTGRES_SNAPSHOT_BYTES_PER_S
        try:
            rows = self._append(values, count, more_s, snapshots, segments)
        except psycopg.errors.UniqueViolation:  # another writer was faster: we see its events now
            try:
                rows = self._append(values, count, more_s, snapshots, segments)
            except psycopg.errors.UniqueViolation as error:
                raise self._duplicate_error(error) from None
        ours = {number for (number,) in rows}
        if len(ours) < count:
            raise self._fenced_error(starts.keys() - ours)
        self._record_ends(events)

    def _append(
        self,
        values: Sequence[Any],
        count: int,
        more_s: float,
        snapshots: Sequence[Snapshot],
        segments: Sequence[Segment],
    ) -> list[PostgresRow]:
        """The routers that are ours; all is written if all of so many are. One statement if it can
        be.
        """
        if not (snapshots or segments):
            return self._rows(POSTGRES_APPEND_SQL, *values)
        with self._using(more_s) as db, db.transaction():
            rows = db.execute(
                query_for_psycopg(POSTGRES_APPEND_SQL), values, binary=True
            ).fetchall()
            if len(rows) == count:
                for segment in segments:
                    db.execute(query_for_psycopg(ADD_SEGMENT_SQL), segment, binary=True)
                for router in {one.router for one in snapshots}:
                    delete = query_for_psycopg(DELETE_OLD_SNAPSHOTS_SQL)
                    db.execute(delete, (router,) * 3, binary=True)
        return rows

    def lease(self, router: int, owner: str, seconds: float) -> float | None:
        rows = self._rows(POSTGRES_LEASE_SQL, router, owner, float(seconds))
        if not rows:
            raise errors.RouterNotFound(f"no router has number {router}")
        granted, left = rows[0]
        if not granted:
            return max(0.0, left or 0.0)  # None: another owner took it meanwhile
        self.owner = owner
        return None

    def size(self) -> int:
        ((size,),) = self._rows(POSTGRES_SIZE_SQL)
        return int(size)

    def compact(self) -> None:
        with self._using(POSTGRES_LONG_STATEMENT_S) as db:
            compact_tables(db)

    def shrink(self, pages: int) -> None:
        """Only `compact` can do that."""

    def _rows(self, query: str, *values: Any, more_s: float = 0.0) -> list[PostgresRow]:
        with self._using(more_s) as db:
            return db.execute(query_for_psycopg(query), values, binary=True).fetchall()

    @contextmanager
    def _transaction(self, durable: bool = True) -> Iterator[Execute]:
        with self._using() as db, db.transaction():
            if not durable:
                db.execute("SET LOCAL synchronous_commit = off")
            yield lambda query, *values: db.execute(query_for_psycopg(query), values, binary=True)

    @contextmanager
    def _using(self, more_s: float = 0.0) -> Iterator[TimedConnection]:
        """The connection; errors of PostgreSQL become errors that name the database."""
        if self._timed_out is not None:
            since, message = self._timed_out
            if time.monotonic() - since < POSTGRES_RECONNECT_PAUSE_S:
                raise errors.StoreUnavailable(message)
            self._timed_out = None
        start = time.monotonic()
        try:
            db = self._db or self._connect()
            db.timeout_s = (self._timeout_s or TimedConnection.timeout_s) + more_s
            yield db
        except psycopg.errors.UniqueViolation:
            raise
        except POSTGRES_UNSTORABLE_ERRORS as error:
            raise make_unstorable_value_error(error) from None
        except psycopg.Error as error:
            self.close()
            failure = translate_postgres_error(self.address, error)
            slow = time.monotonic() - start > POSTGRES_RECONNECT_PAUSE_S  # one of several hosts
            if slow or isinstance(error, psycopg.errors.ConnectionTimeout):
                self._timed_out = time.monotonic(), str(failure)
            raise failure from error

    def _connect(self) -> TimedConnection:
        """Connect; initialise an empty schema, refuse one that is not a store."""
        db = TimedConnection.connect(make_conninfo("", **self._target), autocommit=True)
        db.timeout_s = self._timeout_s or TimedConnection.timeout_s
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._db, self._made = db, True
        return db

    def _prepare(self, db: TimedConnection) -> None:
        """Prepare settings and tables."""
        db.adapters.register_dumper(int, Int8BinaryDumper)  # one type, so one prepared statement
        for setting in POSTGRES_SESSION_SQL:
            db.execute(setting)
        if self.read_only:
            db.execute("SET default_transaction_read_only = on")
        self._prepare_tables(db, new=not (self.read_only or self._made))

    @contextmanager
    def _lock(self, db: TimedConnection) -> Iterator[None]:
        usual_s, db.timeout_s = db.timeout_s, POSTGRES_LONG_STATEMENT_S  # of a migration
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(hashtext('bylot'))")
            yield
        db.timeout_s = usual_s

    def _list_tables(self, db: Connection[PostgresRow]) -> set[str]:
        return {name for (name,) in db.execute(POSTGRES_TABLES_SQL)}


@lru_cache
def query_for_psycopg(query: str) -> str:
    """The query with psycopg's placeholders, of binary values."""
    return query.replace("?", "%b")


def columns_from_rows(
    kind: type[Event] | type[Snapshot], rows: Sequence[PostgresRow]
) -> list[list[Any]]:
    """One list per field."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in kind._fields]


def parse_postgres_url(address: str) -> dict[str, Any]:
    """The parts of a URL; the error message of libpq might show a part of the password."""
    try:
        said = conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        said = {"port": "none"}
    host = str(said.get("host") or "")  # with an @ in it: the end of a password, not encoded
    if "@" in host[1:] or not set(str(said.get("port", ""))) <= set("0123456789,"):
        raise errors.UnsupportedStore(
            "the URL of the PostgreSQL store cannot be parsed",
            remedy="use postgresql://user:password@host:port/database, with %40 for an @ and so on",
        )
    return said


def format_postgres_url(target: dict[str, Any]) -> str:
    """The URL without its password.

    >>> format_postgres_url({"user": "u", "host": "a,b", "port": "5432,5433", "dbname": "d"})
    'postgresql://u@a:5432,b:5433/d'
    """
    user = f"{target['user']}@" if "user" in target else ""
    hosts = str(target.get("host", "")).split(",")
    ports = [f":{one}" if one else "" for one in str(target.get("port", "")).split(",")]
    ports *= len(hosts) if len(ports) == 1 else 1  # one port is that of all hosts
    places = ",".join(map("".join, zip(hosts, ports, strict=False)))
    return f"postgresql://{user}{places}/{target.get('dbname', '')}"


def find_connection_state(error: psycopg.Error) -> str:
    """The class of an error of a connection that was refused: libpq tells only its text."""
    text = str(error)
    if "database" in text and "does not exist" in text:
        return "3D"
    return "28" if "authentication failed" in text or "no pg_hba.conf entry" in text else ""


def translate_postgres_error(place: str, error: psycopg.Error) -> errors.StoreError:
    """What an error of PostgreSQL means, and what to do."""
    state = error.sqlstate or find_connection_state(error)
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    if state in POSTGRES_DAMAGE_CODES:
        return errors.StoreCorrupted(f"{place} is damaged, or its tables were changed ({said})")
    return errors.StoreUnavailable(
        f"{place}: {POSTGRES_REMEDIES.get(state[:2], POSTGRES_UNREACHABLE)} ({said})"
    )


def compact_tables(db: Connection[PostgresRow]) -> None:
    """Return free space of the tables of logs to the file system, while servers use them; each
    statement is committed.

    PostgreSQL uses the space of deleted rows again, but returns to the file system only what is
    free at the end of a table. So the rows at the end are written again, into free space before
    them. `VACUUM` then cuts off the end, and new indexes take the place of old ones.
    """
    for table in LOG_TABLES:
        db.execute(f"VACUUM {table}")
        move_rows_forward(db, table)
        db.execute(f"VACUUM {table}")
        db.execute(f"REINDEX TABLE CONCURRENTLY {table}")


def move_rows_forward(db: Connection[PostgresRow], table: str) -> None:
    """Write rows at the end of a table again, as long as there is room before them."""
    ((found,),) = db.execute(TABLE_PAGES_SQL, (table,))
    page = int(found)
    while page > 0:
        start = max(0, page - PAGES_PER_STEP)
        bounds = f"({start},0)", f"({page},0)", f"({start},0)"
        with db.transaction():  # in which no old version of a row makes room for a new one
            for _ in range(MAX_ATTEMPTS):
                ((rows, moved),) = db.execute(MOVE_ROWS_SQL.format(table=table), bounds)
                if moved == rows:
                    break
            else:
                return
        page = start
