"""Stores under kill -9, truncated files, competing writers and outages: nothing is lost."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from bylot.errors import LeaseLost, StoreCorrupted, StoreError, StoreUnavailable, UnsupportedStore
from bylot.store import Event, Store, open_store
from bylot.store import sqlite as in_sqlite
from bylot.store.schema import STORE_VERSION
from bylot.store.sqlite import SqliteStore
from postgres import PostgresServer
from store_processes import find_next_seq, make_event_batch
from stores import Opener, create_router, execute_statements, make_event, read_log

STORE_PROCESSES = Path(__file__).with_name("store_processes.py")
OWN_SERVER = pytest.mark.skipif(
    "BYLOT_TEST_POSTGRES" in os.environ, reason="the server must not be stopped"
)


def start_process(command: str, address: str, router: int, name: str) -> subprocess.Popen[str]:
    """Start another process that runs a command of store_processes.py."""
    return subprocess.Popen(
        [sys.executable, STORE_PROCESSES, command, address, str(router), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_simultaneously(command: str, address: str, router: int, count: int = 2) -> list[str]:
    """The output of processes that start at the same time."""
    processes = [start_process(command, address, router, f"p{i}") for i in range(count)]
    for one in processes:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    output = []
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    for one in processes:
        output.append(one.communicate(timeout=60)[0].strip())
        assert one.returncode == 0
    return output


def has_complete_batches(events: Sequence[Event]) -> bool:
    """Whether events are numbered without gaps and every batch is complete."""
    seqs = [one.seq for one in events]
    spans = {tuple(map(int, one.body.split()[1:])) for one in events[1:]}
    covered = [seq for first, stop in sorted(spans) for seq in range(first, stop)]
    return seqs == list(range(len(seqs))) and covered == seqs[1:]


def kill_writer(process: subprocess.Popen[str], delay: float) -> int:
    """Kill a writer after its first acknowledgement; returns the last acknowledged seq."""
    assert process.stdout is not None
    output = [process.stdout.readline()]
    time.sleep(delay)
    return max(map(int, output + kill_and_read_output(process)))


def kill_and_read_output(process: subprocess.Popen[str]) -> list[str]:
    """Kill a process and return its complete output lines."""
    process.kill()
    return process.communicate()[0].split("\n")[:-1]


def test_a_killed_writer_loses_no_acknowledged_event_and_leaves_complete_batches(
    open_store_again: Opener, address: str
) -> None:
    store, rng = open_store_again(), random.Random(4)
    router = create_router(store)
    for seed in range(10):
        acknowledged = kill_writer(
            start_process("write", address, router, str(seed)), rng.random() * 0.1
        )
        events = read_log(store, router)
        assert len(events) >= acknowledged
        assert has_complete_batches(events)
    assert find_next_seq(store, router) > 50


def test_the_test_above_would_notice_an_incomplete_batch() -> None:
    events = [make_event(1, 0), *make_event_batch(1, 1, "me", 3), *make_event_batch(1, 4, "me", 2)]
    assert has_complete_batches(events)
    assert not has_complete_batches(events[:-1])
    assert not has_complete_batches(events[:2] + events[3:])


@OWN_SERVER
def test_acknowledged_events_survive_a_power_loss_of_the_server(
    postgres_server: PostgresServer, postgres_address: str
) -> None:
    store = open_store(postgres_address)
    router = create_router(store)
    for seed in range(2):
        writer = start_process("write", postgres_address, router, str(seed))
        assert writer.stdout is not None
        output = [writer.stdout.readline() for _ in range(20)]
        postgres_server.stop(signal.SIGQUIT)
        output += kill_and_read_output(writer)
        with pytest.raises(StoreUnavailable, match="check that it is running"):
            store.append(make_event_batch(router, 1, "me", 1))
        with pytest.raises(StoreUnavailable, match="check that it is running"):
            store.find("a")
        postgres_server.start()
        events = read_log(store, router)  # the same store object reconnects
        assert len(events) >= max(map(int, output))
        assert has_complete_batches(events)
    store.append(make_event_batch(router, find_next_seq(store, router), "me", 2))
    store.close()


def test_a_lost_connection_is_restored(postgres_address: str) -> None:
    store = open_store(postgres_address)
    router = create_router(store)
    with psycopg.connect(postgres_address, autocommit=True) as admin:
        pid = store._db.info.backend_pid
        admin.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    with pytest.raises(StoreUnavailable):
        store.append([make_event(router, 1)])
    store.append([make_event(router, 1)])
    assert len(read_log(store, router)) == 2
    store.close()


def test_a_locked_sqlite_file_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_sqlite, "SQLITE_BUSY_TIMEOUT_S", 0.1)
    store = SqliteStore(tmp_path / "routers.db")
    router = create_router(store)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"routers.db: another process .* is locked"):
            store.append([make_event(router, 1)])
    assert len(read_log(store, router)) == 1  # reading still works
    other.execute("ROLLBACK")
    other.close()
    store.append([make_event(router, 1)])
    store.close()


def test_a_locked_postgres_row_times_out(postgres_address: str) -> None:
    store = open_store(postgres_address)
    router = create_router(store)
    store._db.execute("SET lock_timeout = '100ms'")
    with psycopg.connect(postgres_address) as other:
        other.execute("SELECT * FROM routers FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="pg_locks"):
            store.append([make_event(router, 1)])
        other.rollback()
    store.append([make_event(router, 1)])
    store.close()


def test_writes_fail_on_a_full_disk_and_work_again_after_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "routers.db")
    router = create_router(store)
    assert store._db is not None
    store._db.execute("PRAGMA max_page_count = 20")
    with pytest.raises(StoreUnavailable, match="the disk is full; free some space"):
        store.append([make_event(router, seq, body=bytes(10_000)) for seq in range(1, 20)])
    assert len(read_log(store, router)) == 1
    store.append([make_event(router, seq, body=bytes(10_000)) for seq in range(1, 20)])
    store.close()


def test_a_file_that_was_moved_away_is_not_written_to(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "routers.db")
    router = create_router(store)
    away = tmp_path / "away.db"
    store.path.rename(away)
    with pytest.raises(StoreUnavailable, match="is gone"):
        store.append([make_event(router, 1)])
    shutil.copy(away, store.path)
    with pytest.raises(StoreUnavailable, match="another file"):
        store.append([make_event(router, 1)])
    away.rename(store.path)
    store.append([make_event(router, 1)])
    store.close()


def copy_with_truncated_wal(source: SqliteStore, folder: Path, cut: int) -> Path:
    """A copy of a store as it is on disk, its write-ahead log cut off after some bytes."""
    folder.mkdir()
    shutil.copy(source.path, folder)
    wal = (source.path.parent / f"{source.path.name}-wal").read_bytes()
    (folder / f"{source.path.name}-wal").write_bytes(wal[:cut])
    return folder / source.path.name


def test_a_truncated_wal_leaves_complete_batches(tmp_path: Path) -> None:
    source, rng = SqliteStore(tmp_path / "routers.db"), random.Random(1)
    router = create_router(source)
    for _ in range(30):
        source.append(
            make_event_batch(router, find_next_seq(source, router), "me", rng.randint(1, 30))
        )
    size = (tmp_path / "routers.db-wal").stat().st_size
    lengths: list[int] = []
    for cut in [0, size, *(rng.randrange(size) for _ in range(60))]:
        copy = SqliteStore(copy_with_truncated_wal(source, tmp_path / f"{len(lengths)}", cut))
        events = read_log(copy, router)
        assert has_complete_batches(events) if events else copy.find("a") is None
        lengths.append(len(events))
        copy.close()
    assert (lengths[0], lengths[1]) == (0, find_next_seq(source, router))
    assert len(set(lengths)) > 20
    source.close()


def read_log_or_error(path: Path, router: int) -> list[Event] | StoreError:
    """The log in a file, or the error."""
    try:
        store = SqliteStore(path)
    except StoreError as error:
        return error
    try:
        return read_log(store, router)
    except StoreError as error:
        return error
    finally:
        store.close()


def test_a_damaged_file_is_refused_or_its_log_can_be_read(tmp_path: Path) -> None:
    source, rng = SqliteStore(tmp_path / "routers.db"), random.Random(2)
    router = create_router(source)
    source.append(make_event_batch(router, 1, "me", 500))
    source.close()
    intact, refused = source.path.read_bytes(), 0
    for trial in range(100):
        path = tmp_path / f"{trial}.db"
        damaged = bytearray(intact[: rng.randrange(len(intact))] if trial % 2 else intact)
        for _ in range(20):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        found = read_log_or_error(path, router)
        if isinstance(found, StoreError):
            assert str(path) in str(found)
            refused += 1
        else:
            assert len(found) <= 501  # the hashes of events detect changes
    assert 30 < refused < 100


@pytest.mark.parametrize("size", [1, 100, 5_000])
def test_a_file_that_is_not_a_store_is_refused_and_unchanged(tmp_path: Path, size: int) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"not a database at all, " * size)
    before = path.read_bytes()
    with pytest.raises(StoreCorrupted, match=r"notes.txt is not a store of bylot"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]


def test_a_database_of_another_program_is_refused_and_unchanged(address: str) -> None:
    execute_statements(address, "CREATE TABLE events (mine integer)")
    with pytest.raises(UnsupportedStore, match="belongs to another program"):
        open_store(address)
    execute_statements(
        address, "INSERT INTO events VALUES (1)", "CREATE TABLE routers (mine integer)"
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3, 99])
def test_a_store_of_another_version_is_refused(address: str, version: int) -> None:
    open_store(address).close()
    execute_statements(address, f"UPDATE bylot_meta SET version = {version}, least = {version}")
    with pytest.raises(UnsupportedStore, match=f"version {version}; this bylot supports version 6"):
        open_store(address)


def test_an_older_store_is_migrated_when_it_is_opened_to_be_written(address: str) -> None:
    store = open_store(address)
    create_router(store, "kept")
    store.close()
    execute_statements(
        address,
        "DROP TABLE servers",
        "DROP TABLE segments",
        "ALTER TABLE bylot_meta DROP COLUMN least",
        "UPDATE bylot_meta SET version = 4",
    )
    with pytest.raises(UnsupportedStore, match="run `bylot store migrate`"):
        open_store(address, read_only=True)
    for _ in range(2):
        with closing(open_store(address)) as opened:
            assert opened.find("kept") is not None
            assert (opened.servers(), opened.segments(1), opened.snapshot(1)) == ([], [], None)
    with closing(open_store(address, read_only=True)) as opened:
        assert opened.find("kept") is not None


def test_a_newer_store_that_this_version_can_share_is_opened(address: str) -> None:
    newer = STORE_VERSION + 1
    open_store(address).close()
    execute_statements(address, f"UPDATE bylot_meta SET version = {newer}")
    open_store(address).close()
    execute_statements(address, f"UPDATE bylot_meta SET least = {newer}")
    with pytest.raises(UnsupportedStore, match=f"this bylot supports version {STORE_VERSION}"):
        open_store(address)


def test_tables_are_not_changed_under_servers_of_an_older_version(address: str) -> None:
    with closing(open_store(address)) as store:
        router = create_router(store, "kept")
        store.lease(router, "older", 60.0)
    execute_statements(address, "UPDATE bylot_meta SET version = 5", "DROP TABLE segments")
    with pytest.raises(UnsupportedStore, match=r"1 servers of an older bylot.*stop them all"):
        open_store(address)
    execute_statements(address, "DELETE FROM leases")
    open_store(address).close()


def test_a_store_without_a_version_or_a_table_is_damaged(address: str) -> None:
    store = open_store(address)
    execute_statements(address, "DROP TABLE leases")
    with pytest.raises(StoreCorrupted):
        store.release("me")
    store.close()
    execute_statements(address, "DELETE FROM bylot_meta")
    with pytest.raises(StoreCorrupted, match="instead of one row"):
        open_store(address)


def test_a_missing_store_cannot_be_opened_for_reading(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}/none.db", read_only=True)
    with pytest.raises(StoreUnavailable, match="check that it exists"):
        open_store(f"sqlite:///{tmp_path}/none/none.db")
    with pytest.raises(StoreUnavailable):
        open_store(f"sqlite:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_events_of_two_competing_processes_are_all_written_once(store: Store, address: str) -> None:
    router = create_router(store)
    lost = run_simultaneously("race", address, router)
    events = read_log(store, router)
    assert has_complete_batches(events)
    for name in (b"p0", b"p1"):
        assert sum(one.body.startswith(name) for one in events) == 250
    assert sum(map(int, lost)) > 0  # they competed


def test_only_one_process_gets_the_lease(store: Store, address: str) -> None:
    router = create_router(store)
    assert sorted(run_simultaneously("lease", address, router, 3)) == ["False", "False", "True"]
    with pytest.raises(LeaseLost):
        store.append([make_event(router, 1)])


@pytest.mark.parametrize("round", range(3))
def test_servers_can_start_at_the_same_time(address: str, round: int) -> None:
    assert sorted(run_simultaneously("create", address, 0, 3)) == ["1", "2", "3"]
    store = open_store(address)
    assert [row.name for row in store.routers()] == ["p0", "p1", "p2"]
    store.close()
