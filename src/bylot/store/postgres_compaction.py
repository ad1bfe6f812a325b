"""Compaction of the tables in PostgreSQL, while servers use them.

PostgreSQL uses the space of deleted rows again, but returns to the file system only what is free at
the end of a table. So the rows at the end are written again, into free space before them. `VACUUM`
then cuts off the end, and new indexes take the place of old ones.
"""

from typing import Any

import psycopg

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


def compact_tables(db: psycopg.Connection[Any]) -> None:
    """Return free space of the tables of logs to the file system; each statement is committed."""
    for table in LOG_TABLES:
        db.execute(f"VACUUM {table}")
        move_rows_forward(db, table)
        db.execute(f"VACUUM {table}")
        db.execute(f"REINDEX TABLE CONCURRENTLY {table}")


def move_rows_forward(db: psycopg.Connection[Any], table: str) -> None:
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
