"""Queries of both databases, with ? as the placeholder."""

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
