"""Stores under kill -9, torn files, rivals and outages: nothing acknowledged is lost, or halved."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from bylot.errors import LeaseLost, StoreCorrupted, StoreError, StoreUnavailable, UnsupportedStore
from bylot.store import Event, Store, open_store
from bylot.store import sqlite as in_sqlite
from bylot.store.sqlite import SqliteStore
from postgres import Server
from store_errands import batch, end
from stores import Opener, line, log, made

ERRANDS = Path(__file__).with_name("store_errands.py")
FREE = pytest.mark.skipif("BYLOT_TEST_POSTGRES" in os.environ, reason="the server is not ours")


def errand(what: str, address: str, router: int, who: str) -> subprocess.Popen[str]:
    """Another process that does this."""
    return subprocess.Popen(
        [sys.executable, ERRANDS, what, address, str(router), who],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def together(what: str, address: str, router: int, count: int = 2) -> list[str]:
    """What each of some processes says that begin at the same instant."""
    processes = [errand(what, address, router, f"p{i}") for i in range(count)]
    for one in processes:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    said = []
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    for one in processes:
        said.append(one.communicate(timeout=60)[0].strip())
        assert one.returncode == 0
    return said


def whole(lines: Sequence[Event]) -> bool:
    """Numbered without gaps, and every batch is there from its first line to its last."""
    seqs = [one.seq for one in lines]
    spans = {tuple(map(int, one.body.split()[1:])) for one in lines[1:]}
    covered = [seq for first, stop in sorted(spans) for seq in range(first, stop)]
    return seqs == list(range(len(seqs))) and covered == seqs[1:]


def killed(process: subprocess.Popen[str], delay: float) -> int:
    """Kill -9 some time after the first acknowledgement; the end of what was acknowledged."""
    assert process.stdout is not None
    said = [process.stdout.readline()]
    time.sleep(delay)
    return max(map(int, said + rest(process)))


def rest(process: subprocess.Popen[str]) -> list[str]:
    """What a process had said when it was killed; a line that it did not finish does not count."""
    process.kill()
    return process.communicate()[0].split("\n")[:-1]


def test_a_killed_writer_loses_nothing_acknowledged_and_leaves_no_half_batch(
    opened: Opener, address: str
) -> None:
    store, chance = opened(), random.Random(4)
    router = made(store)
    for seed in range(10):
        acknowledged = killed(errand("write", address, router, str(seed)), chance.random() * 0.1)
        lines = log(store, router)
        assert len(lines) >= acknowledged
        assert whole(lines)
    assert end(store, router) > 50


def test_the_test_above_would_notice_half_a_batch() -> None:
    lines = [line(1, 0), *batch(1, 1, "me", 3), *batch(1, 4, "me", 2)]
    assert whole(lines)
    assert not whole(lines[:-1])
    assert not whole(lines[:2] + lines[3:])


@FREE
def test_a_server_that_loses_power_has_all_that_it_acknowledged(
    postgres_server: Server, postgres_address: str
) -> None:
    store = open_store(postgres_address)
    router = made(store)
    for seed in range(2):
        writer = errand("write", postgres_address, router, str(seed))
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(20)]
        postgres_server.stop(signal.SIGQUIT)
        said += rest(writer)
        with pytest.raises(StoreUnavailable, match="check that it is running"):
            store.append(batch(router, 1, "me", 1))
        with pytest.raises(StoreUnavailable, match="check that it is running"):
            store.find("a")
        postgres_server.start()
        lines = log(store, router)  # the same store, without another word
        assert len(lines) >= max(map(int, said))
        assert whole(lines)
    store.append(batch(router, end(store, router), "me", 2))
    store.close()


def test_a_lost_connection_is_made_again(postgres_address: str) -> None:
    store = open_store(postgres_address)
    router = made(store)
    with psycopg.connect(postgres_address, autocommit=True) as admin:
        pid = store._db.info.backend_pid
        admin.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    with pytest.raises(StoreUnavailable):
        store.append([line(router, 1)])
    store.append([line(router, 1)])
    assert len(log(store, router)) == 2
    store.close()


def test_a_lock_of_somebody_else_is_waited_for_a_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_sqlite, "SQLITE_BUSY_TIMEOUT_S", 0.1)
    store = SqliteStore(tmp_path / "routers.db")
    router = made(store)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"routers.db: another process .* is locked"):
            store.append([line(router, 1)])
    assert len(log(store, router)) == 1  # reading goes on
    other.execute("ROLLBACK")
    other.close()
    store.append([line(router, 1)])
    store.close()


def test_a_row_that_somebody_else_has_locked_is_waited_for_a_little(postgres_address: str) -> None:
    store = open_store(postgres_address)
    router = made(store)
    store._db.execute("SET lock_timeout = '100ms'")
    with psycopg.connect(postgres_address) as other:
        other.execute("SELECT * FROM routers FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="pg_locks"):
            store.append([line(router, 1)])
        other.rollback()
    store.append([line(router, 1)])
    store.close()


def test_a_full_disk_is_told_and_forgotten_when_there_is_room(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "routers.db")
    router = made(store)
    assert store._db is not None
    store._db.execute("PRAGMA max_page_count = 20")
    with pytest.raises(StoreUnavailable, match="the disk is full; free some space"):
        store.append([line(router, seq, body=bytes(10_000)) for seq in range(1, 20)])
    assert len(log(store, router)) == 1
    store.append([line(router, seq, body=bytes(10_000)) for seq in range(1, 20)])
    store.close()


def test_a_file_that_was_moved_away_is_not_written_to(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "routers.db")
    router = made(store)
    away = tmp_path / "away.db"
    store.path.rename(away)
    with pytest.raises(StoreUnavailable, match="is gone"):
        store.append([line(router, 1)])
    shutil.copy(away, store.path)
    with pytest.raises(StoreUnavailable, match="another file"):
        store.append([line(router, 1)])
    away.rename(store.path)
    store.append([line(router, 1)])
    store.close()


def torn(source: SqliteStore, folder: Path, cut: int) -> Path:
    """A copy of a store as it is on disk, its write-ahead log cut off after some bytes."""
    folder.mkdir()
    shutil.copy(source.path, folder)
    wal = (source.path.parent / f"{source.path.name}-wal").read_bytes()
    (folder / f"{source.path.name}-wal").write_bytes(wal[:cut])
    return folder / source.path.name


def test_a_torn_tail_leaves_whole_batches(tmp_path: Path) -> None:
    source, chance = SqliteStore(tmp_path / "routers.db"), random.Random(1)
    router = made(source)
    for _ in range(30):
        source.append(batch(router, end(source, router), "me", chance.randint(1, 30)))
    size = (tmp_path / "routers.db-wal").stat().st_size
    lengths: list[int] = []
    for cut in [0, size, *(chance.randrange(size) for _ in range(60))]:
        copy = SqliteStore(torn(source, tmp_path / f"{len(lengths)}", cut))
        lines = log(copy, router)
        assert whole(lines) if lines else copy.find("a") is None
        lengths.append(len(lines))
        copy.close()
    assert (lengths[0], lengths[1]) == (0, end(source, router))
    assert len(set(lengths)) > 20
    source.close()


def read(path: Path, router: int) -> list[Event] | StoreError:
    """The log in a file, or why there is none."""
    try:
        store = SqliteStore(path)
    except StoreError as error:
        return error
    try:
        return log(store, router)
    except StoreError as error:
        return error
    finally:
        store.close()


def test_a_damaged_file_is_refused_by_name_or_has_a_log_to_check(tmp_path: Path) -> None:
    source, chance = SqliteStore(tmp_path / "routers.db"), random.Random(2)
    router = made(source)
    source.append(batch(router, 1, "me", 500))
    source.close()
    sound, refused = source.path.read_bytes(), 0
    for trial in range(100):
        path = tmp_path / f"{trial}.db"
        damaged = bytearray(sound[: chance.randrange(len(sound))] if trial % 2 else sound)
        for _ in range(20):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        found = read(path, router)
        if isinstance(found, StoreError):
            assert str(path) in str(found)
            refused += 1
        else:
            assert len(found) <= 501  # whether each line is what was written is for its seal
    assert 30 < refused < 100


@pytest.mark.parametrize("size", [1, 100, 5_000])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, size: int) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"not a database at all, " * size)
    before = path.read_bytes()
    with pytest.raises(StoreCorrupted, match=r"notes.txt is not a store of bylot"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]


def statements(address: str, *lines: str) -> None:
    """Straight to the database."""
    if address.startswith("sqlite"):
        db = sqlite3.connect(address.removeprefix("sqlite:///"), isolation_level=None)
        for one in lines:
            db.execute(one)
        db.close()
    else:
        with psycopg.connect(address, autocommit=True) as server:
            for one in lines:
                server.execute(one)


def test_a_database_of_another_program_is_refused_and_left_alone(address: str) -> None:
    statements(address, "CREATE TABLE events (mine integer)")
    with pytest.raises(UnsupportedStore, match="belongs to another program"):
        open_store(address)
    statements(address, "INSERT INTO events VALUES (1)", "CREATE TABLE routers (mine integer)")


@pytest.mark.parametrize("version", [0, 1, 99])
def test_a_store_of_another_version_is_refused(address: str, version: int) -> None:
    open_store(address).close()
    statements(address, f"UPDATE bylot_meta SET version = {version}")
    with pytest.raises(UnsupportedStore, match=f"version {version}; this bylot supports version 2"):
        open_store(address)


def test_a_store_without_a_version_or_a_table_is_damaged(address: str) -> None:
    store = open_store(address)
    statements(address, "DROP TABLE leases")
    with pytest.raises(StoreCorrupted):
        store.release("me")
    store.close()
    statements(address, "DELETE FROM bylot_meta")
    with pytest.raises(StoreCorrupted, match="0 rows"):
        open_store(address)


def test_there_is_nothing_to_read_where_there_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}/none.db", read_only=True)
    with pytest.raises(StoreUnavailable, match="check that its folder exists"):
        open_store(f"sqlite:///{tmp_path}/none/none.db")
    with pytest.raises(StoreUnavailable):
        open_store(f"sqlite:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_of_two_processes_that_append_each_has_all_its_lines_once(
    store: Store, address: str
) -> None:
    router = made(store)
    lost = together("race", address, router)
    lines = log(store, router)
    assert whole(lines)
    for who in (b"p0", b"p1"):
        assert sum(one.body.startswith(who) for one in lines) == 250
    assert sum(map(int, lost)) > 0  # they were in each other's way


def test_one_of_some_processes_gets_the_lease(store: Store, address: str) -> None:
    router = made(store)
    assert sorted(together("lease", address, router, 3)) == ["False", "False", "True"]
    with pytest.raises(LeaseLost):
        store.append([line(router, 1)])


@pytest.mark.parametrize("round", range(3))
def test_servers_may_start_at_the_same_instant(address: str, round: int) -> None:
    assert sorted(together("make", address, 0, 3)) == ["1", "2", "3"]
    store = open_store(address)
    assert [row.name for row in store.routers()] == ["p0", "p1", "p2"]
    store.close()
