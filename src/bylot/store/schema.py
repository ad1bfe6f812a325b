"""The tables of a store, their version, and what turns those of an older version into these."""

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
