"""A store in a PostgreSQL database, in the schema that its address leads to.

Each call is one statement where it can be, which is one round trip and one transaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from bylot.errors import (
    RouterExists,
    RouterNotFound,
    StoreCorrupted,
    StoreError,
    StoreUnavailable,
    UnsupportedStore,
)
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

PostgresRow = tuple[Any, ...]

POSTGRES_CONNECTION_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "bylot",
}
"""For connections whose address does not say otherwise: a network that is gone is noticed."""

POSTGRES_SESSION_SQL = (
    "SET synchronous_commit = on",
    "SET lock_timeout = '3s'",
    "SET default_transaction_isolation = 'read committed'",
)

POSTGRES_SCHEMA_SQL = (
    "CREATE TABLE routers (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    ' name text COLLATE "C" NOT NULL UNIQUE, created bigint NOT NULL)',
    "CREATE TABLE events (router bigint NOT NULL, seq bigint NOT NULL, kind text NOT NULL,"
    ' of bigint, key text COLLATE "C", at bigint NOT NULL, body bytea NOT NULL,'
    " seal bytea NOT NULL, PRIMARY KEY (router, seq))",
    "CREATE UNIQUE INDEX events_by_key ON events (router, key)"
    " WHERE kind = 'decided' AND key IS NOT NULL",
    "CREATE INDEX events_of ON events (router, of, seq) WHERE of IS NOT NULL",
    "CREATE INDEX events_edited ON events (router, seq) WHERE kind = 'edited'",
    "CREATE TABLE snapshots (router bigint PRIMARY KEY, seq bigint NOT NULL,"
    " body bytea NOT NULL, seal bytea NOT NULL)",
    "CREATE TABLE leases (router bigint PRIMARY KEY, owner text NOT NULL,"
    " until timestamptz NOT NULL)",
    'CREATE TABLE keys (id text COLLATE "C" PRIMARY KEY, digest bytea NOT NULL,'
    " label text NOT NULL, scopes text[] NOT NULL, routers text[] NOT NULL,"
    " created bigint NOT NULL, revoked bigint)",
    "CREATE TABLE bylot_meta (version bigint NOT NULL)",
    f"INSERT INTO bylot_meta VALUES ({STORE_VERSION})",
)
POSTGRES_TABLES_SQL = (
    "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p')"
    " AND relnamespace = current_schema()::regnamespace"
)

POSTGRES_CREATE_ROUTER_SQL = """
WITH made AS (
    INSERT INTO routers (name, created) VALUES (%b, %b) ON CONFLICT (name) DO NOTHING
    RETURNING number
), line AS (
    INSERT INTO events SELECT number, %b, %b, %b, %b, %b, %b, %b FROM made
)
SELECT number FROM made
"""
# The rows of the routers are locked, so that none is deleted while its log grows, and so that of
# two writers to one log the second waits, and finds the primary key taken.
POSTGRES_APPEND_SQL = """
WITH ours AS (
    SELECT number FROM routers
    JOIN unnest(%b::bigint[], %b::bigint[]) AS begun (router, start) ON router = number
    WHERE (start IS NULL OR start - 1 = (SELECT max(seq) FROM events WHERE router = number))
    AND NOT EXISTS (SELECT 1 FROM leases
        WHERE router = number AND owner <> %b AND until > clock_timestamp())
    ORDER BY number FOR NO KEY UPDATE OF routers
), added AS (
    INSERT INTO events SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::text[], %b::bigint[],
        %b::text[], %b::bigint[], %b::bytea[], %b::bytea[])
    WHERE (SELECT count(*) FROM ours) = %b
), kept AS (
    INSERT INTO snapshots SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[])
    WHERE (SELECT count(*) FROM ours) = %b
    ON CONFLICT (router) DO UPDATE
    SET seq = excluded.seq, body = excluded.body, seal = excluded.seal
    WHERE excluded.seq >= snapshots.seq
)
SELECT number FROM ours
"""
POSTGRES_RENEW_LEASES_SQL = """
UPDATE leases SET until = clock_timestamp() + make_interval(secs => %b) WHERE owner = %b
RETURNING router
"""
POSTGRES_LEASE_SQL = """
WITH there AS (
    SELECT number FROM routers WHERE number = %b FOR KEY SHARE
), got AS (
    INSERT INTO leases SELECT number, %b, clock_timestamp() + make_interval(secs => %b) FROM there
    ON CONFLICT (router) DO UPDATE SET owner = excluded.owner, until = excluded.until
    WHERE leases.owner = excluded.owner OR leases.until <= clock_timestamp()
    RETURNING router
)
SELECT EXISTS (SELECT 1 FROM got), (SELECT extract(epoch FROM until - clock_timestamp())::float8
    FROM leases WHERE router = number) FROM there
"""
POSTGRES_OWNERS_SQL = (
    "SELECT DISTINCT owner FROM leases WHERE router = coalesce(%b, router) ORDER BY owner"
)
POSTGRES_REMEDIES = {
    "25": "it may only be read; open it for writing, on a server that is no standby",
    "28": "the server does not let us in; see user and password",
    "3D": "there is no such database; create it",
    "40": "another connection is in the way; try again",
    "42": "the user may not do this; see its rights in the schema",
    "53": "the server has no room left; see its disk, memory and connections",
    "55": "another connection has it locked; see pg_locks",
}
POSTGRES_UNREACHABLE = "the server cannot be reached or went away; see that it runs"
POSTGRES_DAMAGE_CODES = ("42P01", "42703", "XX000", "XX001", "XX002")
"""No such table or column; internal error, damaged data or index."""

POSTGRES_UNSTORABLE_ERRORS = (
    psycopg.DataError,
    errors.ProgramLimitExceeded,
    UnicodeEncodeError,
    OverflowError,
)

POSTGRES_EVENTS_SQL = (
    "SELECT router, seq, kind, of, key, at, body, seal FROM events WHERE router = %b"
)
POSTGRES_EVENT_SQL = f"{POSTGRES_EVENTS_SQL} AND seq = %b"
POSTGRES_LAST_EVENT_SQL = f"{POSTGRES_EVENTS_SQL} ORDER BY seq DESC LIMIT 1"
POSTGRES_EVENTS_AFTER_SQL = f"{POSTGRES_EVENTS_SQL} AND seq > %b ORDER BY seq LIMIT %b"
POSTGRES_LATEST_EVENTS_SQL = (
    f"{POSTGRES_EVENTS_SQL} AND seq > (SELECT max(seq) FROM events WHERE router = %b) - 1000 AND kind = %b"
    " ORDER BY seq DESC LIMIT %b"
)
POSTGRES_EDITS_SQL = f"{POSTGRES_EVENTS_SQL} AND kind = 'edited' ORDER BY seq DESC LIMIT %b"
POSTGRES_EVENTS_OF_DECISION_SQL = f"{POSTGRES_EVENTS_SQL} AND of = %b ORDER BY seq"
# line by line, as the limit says: the planner might read the whole log of a router it misjudges
POSTGRES_PRECEDING_EVENTS_SQL = (
    "SELECT one.router, one.seq, one.kind, one.of, one.key, one.at, one.body, one.seal"
    " FROM events said CROSS JOIN LATERAL (SELECT * FROM events"
    " WHERE router = said.router AND seq = said.seq - 1 LIMIT 1) one"
    " WHERE said.router = %b AND said.of = %b"
)
POSTGRES_DECISION_BY_KEY_SQL = (
    f"{POSTGRES_EVENTS_SQL} AND key = %b AND kind = 'decided' AND key IS NOT NULL"
)


class PostgresStore(EventReader):
    """A `Store` over one connection, made anew after it was lost or closed.

    address: without its password
    owner:   whose leases are ours, set by `lease`
    """

    queries = EventQueries(
        POSTGRES_EVENT_SQL,
        POSTGRES_LAST_EVENT_SQL,
        POSTGRES_EVENTS_AFTER_SQL,
        POSTGRES_LATEST_EVENTS_SQL,
        POSTGRES_EDITS_SQL,
        POSTGRES_EVENTS_OF_DECISION_SQL,
        POSTGRES_PRECEDING_EVENTS_SQL,
        POSTGRES_DECISION_BY_KEY_SQL,
    )

    def __init__(self, address: str, *, read_only: bool = False) -> None:
        self._target: dict[str, Any] = {
            **POSTGRES_CONNECTION_DEFAULTS,
            **parse_postgres_url(address),
        }
        self.address, self.read_only = format_postgres_url(self._target), read_only
        self.owner = ""
        self._db: Connection[PostgresRow] | None = None
        self._made = False
        with self._using():
            pass

    def create(self, name: str, at: int, first: Event) -> RouterRow:
        """A router under a new number, with line 0 of its log."""
        made = self._rows(POSTGRES_CREATE_ROUTER_SQL, name, at, *first[1:])
        if not made:
            raise RouterExists(f"a router {name!r} is there already; give another name")
        return RouterRow(made[0][0], name, at)

    def delete(self, router: int) -> None:
        """Forget a router; its row goes first, so that no line can be added behind our back."""
        with self._using() as db, db.transaction():
            db.execute("DELETE FROM routers WHERE number = %b", (router,))
            db.execute("DELETE FROM events WHERE router = %b", (router,))
            db.execute("DELETE FROM snapshots WHERE router = %b", (router,))
            db.execute("DELETE FROM leases WHERE router = %b", (router,))

    def find(self, name: str) -> RouterRow | None:
        """The router of this name."""
        rows = self._rows("SELECT number, name, created FROM routers WHERE name = %b", name)
        return RouterRow(*rows[0]) if rows else None

    def routers(self, after: str = "", limit: int = 1000) -> list[RouterRow]:
        """Routers by name, those after the given one."""
        query = "SELECT number, name, created FROM routers WHERE name > %b ORDER BY name LIMIT %b"
        return [RouterRow(*row) for row in self._rows(query, after, limit)]

    def append(self, events: Sequence[Event], snapshots: Sequence[Snapshot] = ()) -> None:
        """Add lines, each the next of its log, or nothing."""
        starts: dict[int, int | None] = dict.fromkeys([one.router for one in snapshots])
        for event in reversed(events):
            starts[event.router] = event.seq
        count = len(starts)
        values = [list(starts), list(starts.values()), self.owner]
        values += [
            *columns_from_rows(Event, events),
            count,
            *columns_from_rows(Snapshot, snapshots),
            count,
        ]
        ours = self._added(values)
        if len(ours) < count:
            raise make_fenced_error(self.address, starts.keys() - ours)

    def _added(self, values: Sequence[Any]) -> set[int]:
        """The routers whose logs are as they should be; if all are, the lines were added."""
        try:
            rows = self._rows(POSTGRES_APPEND_SQL, *values)
        except errors.UniqueViolation:  # another writer was quicker: its lines can be seen now
            try:
                rows = self._rows(POSTGRES_APPEND_SQL, *values)
            except errors.UniqueViolation as error:
                raise make_duplicate_event_error(self.address, error) from None
        return {number for (number,) in rows}

    def snapshot(self, router: int) -> Snapshot | None:
        """The latest snapshot."""
        rows = self._rows("SELECT router, seq, body, seal FROM snapshots WHERE router = %b", router)
        return Snapshot(*rows[0]) if rows else None

    def lease(self, router: int, owner: str, seconds: float) -> float | None:
        """Take or renew the right to write to a log, by the clock of the server."""
        rows = self._rows(POSTGRES_LEASE_SQL, router, owner, float(seconds))
        if not rows:
            raise RouterNotFound(f"{self.address} has no router of number {router} any more")
        granted, left = rows[0]
        if not granted:
            return max(0.0, left or 0.0)  # none: it was taken while we asked
        self.owner = owner
        return None

    def renew(self, owner: str, seconds: float) -> set[int]:
        """Renew all leases of an owner, also those that ran out and that nobody took."""
        return {
            router for (router,) in self._rows(POSTGRES_RENEW_LEASES_SQL, float(seconds), owner)
        }

    def owners(self, router: int | None = None) -> list[str]:
        """Whoever has leases, of one router or of any, also such as ran out."""
        return [owner for (owner,) in self._rows(POSTGRES_OWNERS_SQL, router)]

    def release(self, owner: str, routers: Iterable[int] | None = None) -> None:
        """Give leases back: these, or all of an owner."""
        if routers is None:
            self._changed("DELETE FROM leases WHERE owner = %b", owner)
        else:
            query = "DELETE FROM leases WHERE owner = %b AND router = ANY(%b)"
            self._changed(query, owner, list(routers))

    def add_key(self, key: ApiKey) -> None:
        """Keep a credential."""
        values = [list(value) if isinstance(value, tuple) else value for value in key]
        try:
            self._changed("INSERT INTO keys VALUES (%b, %b, %b, %b, %b, %b, %b)", *values)
        except errors.UniqueViolation:
            raise StoreError(f"a credential {key.id!r} is there already") from None

    def keys(self) -> list[ApiKey]:
        """All credentials, oldest first."""
        rows = [ApiKey(*row) for row in self._rows("SELECT * FROM keys ORDER BY created, id")]
        return [k._replace(scopes=tuple(k.scopes), routers=tuple(k.routers)) for k in rows]

    def revoke(self, id: str, at: int) -> bool:
        """From now on this credential is none; the time of the first revocation stays."""
        query = "UPDATE keys SET revoked = coalesce(revoked, %b) WHERE id = %b"
        return self._changed(query, at, id) > 0

    def close(self) -> None:
        """Let go of the connection."""
        if self._db is not None:
            self._db.close()
        self._db = None

    def _lines(self, query: str, *values: Any) -> list[Event]:
        return [Event(*row) for row in self._rows(query, *values)]

    def _rows(self, query: str, *values: Any) -> list[PostgresRow]:
        with self._using() as db:
            return db.execute(query, values, binary=True).fetchall()

    def _changed(self, query: str, *values: Any) -> int:
        with self._using() as db:
            return db.execute(query, values).rowcount

    @contextmanager
    def _using(self) -> Iterator[Connection[PostgresRow]]:
        """The connection; what it raises becomes an error that names the database."""
        try:
            yield self._db or self._connect()
        except errors.UniqueViolation:
            raise
        except POSTGRES_UNSTORABLE_ERRORS as error:
            raise make_unstorable_value_error(error) from None
        except psycopg.Error as error:
            self.close()
            raise translate_postgres_error(self.address, error) from error

    def _connect(self) -> Connection[PostgresRow]:
        """Reach the server; make a store of an empty schema, refuse one of somebody else."""
        db: Connection[PostgresRow] = psycopg.connect(
            make_conninfo("", **self._target), autocommit=True
        )
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._db, self._made = db, True
        return db

    def _prepare(self, db: Connection[PostgresRow]) -> None:
        """Nothing is written before the schema is known to be ours, or empty."""
        db.adapters.register_dumper(int, Int8BinaryDumper)  # one type, so one prepared statement
        for setting in POSTGRES_SESSION_SQL:
            db.execute(setting)
        if self.read_only:
            db.execute("SET default_transaction_read_only = on")
        elif not self._made and not list_postgres_tables(db):
            with db.transaction():
                db.execute("SELECT pg_advisory_xact_lock(hashtext('bylot'))")
                if not list_postgres_tables(db):  # nobody else was quicker
                    for statement in POSTGRES_SCHEMA_SQL:
                        db.execute(statement)
        if "bylot_meta" not in list_postgres_tables(db):
            raise make_foreign_database_error(self.address)
        check_store_version(self.address, db.execute("SELECT version FROM bylot_meta").fetchall())


def list_postgres_tables(db: Connection[PostgresRow]) -> set[str]:
    """What the schema has."""
    return {name for (name,) in db.execute(POSTGRES_TABLES_SQL)}


def columns_from_rows(
    kind: type[Event] | type[Snapshot], rows: Sequence[PostgresRow]
) -> list[list[Any]]:
    """Rows as one list a field."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in kind._fields]


def parse_postgres_url(address: str) -> dict[str, Any]:
    """What an address says; libpq's own complaint might show a piece of the password."""
    try:
        said = conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        said = {"port": "none"}
    if not set(str(said.get("port", ""))) <= set("0123456789,"):
        raise UnsupportedStore(
            "the address of the PostgreSQL store cannot be read; give "
            "postgresql://user:password@host:port/database, with %40 for an @ and so on"
        )
    return said


def format_postgres_url(target: dict[str, Any]) -> str:
    """An address that may be shown to anybody."""
    user = f"{target['user']}@" if "user" in target else ""
    port = f":{target['port']}" if "port" in target else ""
    return f"postgresql://{user}{target.get('host', '')}{port}/{target.get('dbname', '')}"


def translate_postgres_error(place: str, error: psycopg.Error) -> StoreError:
    """What an error of PostgreSQL means, and what to do."""
    state = error.sqlstate or ""
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    if state in POSTGRES_DAMAGE_CODES:
        return StoreCorrupted(
            f"{place} is a damaged store, or its tables were changed ({said}); "
            "restore it from a copy"
        )
    return StoreUnavailable(
        f"{place}: {POSTGRES_REMEDIES.get(state[:2], POSTGRES_UNREACHABLE)} ({said})"
    )
