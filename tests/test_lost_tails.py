"""Logs that lose their last events: the loss is noticed, and ids are not given out again."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bylot import Router, policies
from bylot._atomic_write import replace_file
from bylot.errors import DecisionNotFound, LeaseLost, StoreCorrupted, StoreUnavailable
from bylot.eventlog.audit import audit_router
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import (
    CancelDecision,
    CreateRouter,
    DeleteRouter,
    GetDecision,
    GetRouter,
    MakeDecision,
    RecordReward,
)
from bylot.eventlog.events import now_us
from bylot.eventlog.repository import RouterRepository
from bylot.router.config import RouterConfig, problem_to_data
from bylot.store import open_store
from bylot.store.log_ends import LOG_END_RECORD_BYTES, LogEnd, LogEndsFile
from bylot.store.sqlite import SqliteStore
from handlers import perform_now
from live_server import assert_error, live_server
from sample_problem import make_five_expert_problem
from stores import create_router, execute_statements, make_event, read_log

POLICY = policies.policy_to_data(policies.find_policy("distinct"))
PROBLEM = problem_to_data(make_five_expert_problem())
CONFIG = RouterConfig(problem=PROBLEM, policy=POLICY)
OPEN_AND_CLOSE = "import sys; from bylot.store import open_store; open_store(sys.argv[1]).close()"


def open_handler(address: str) -> CommandHandler:
    """A command handler that takes over all leases."""
    store = open_store(address)
    for owner in store.lease_owners():
        store.release(owner)
    return CommandHandler(RouterRepository(store, f"owner {now_us()}"))


def open_router(address: str, name: str = "triage") -> int:
    """Open a router; returns the number of its last event."""
    with contextlib.closing(open_handler(address)) as handler:
        return int(perform_now(handler, GetRouter(name)).seq)


def create_with_decisions(handler: CommandHandler, name: str, count: int) -> list[str]:
    """Create a router and make decisions, one commit each; returns their ids."""
    perform_now(handler, CreateRouter(name, CONFIG))
    return [perform_now(handler, MakeDecision(name)).id for _ in range(count)]


def copy_store(source: Path, folder: Path, wal_bytes: int | None, *, ends: bool = True) -> str:
    """A copy of a SQLite store as it is on disk, with a part of its write-ahead log."""
    folder.mkdir()
    for suffix in ("", "-ends") if ends else ("",):
        shutil.copy(f"{source}{suffix}", folder)
    wal = Path(f"{source}-wal").read_bytes()
    (folder / f"{source.name}-wal").write_bytes(wal[:wal_bytes])
    return f"sqlite:///{folder}/{source.name}"


def test_a_decision_made_after_a_restore_has_an_id_of_its_own(tmp_path: Path) -> None:
    address, path = f"sqlite:///{tmp_path}/bylot.db", tmp_path / "bylot.db"
    handler = open_handler(address)
    create_with_decisions(handler, "triage", 3)
    source, copy = sqlite3.connect(path), sqlite3.connect(tmp_path / "copy.db")
    source.backup(copy)
    source.close()
    copy.close()
    lost = [perform_now(handler, MakeDecision("triage", key=f"{n}")).id for n in range(3)]
    handler.close()
    for suffix in ("-wal", "-shm", "-ends"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy.db", path)

    handler = open_handler(address)
    new = [perform_now(handler, MakeDecision("triage", key=f"{n}")).id for n in range(3)]
    assert [id.rpartition(".")[0] for id in new] == [id.rpartition(".")[0] for id in lost]
    for id in lost:
        for command in (RecordReward(id, 1.0), CancelDecision(id), GetDecision(id)):
            with pytest.raises(DecisionNotFound):
                perform_now(handler, command)
    assert perform_now(handler, GetRouter("triage")).status.rewards == 0
    assert [perform_now(handler, RecordReward(id, 0.5)).receipt for id in new] == ["learned"] * 3
    handler.close()


def test_an_id_is_the_same_after_a_restart_and_under_the_same_key(address: str) -> None:
    handler = open_handler(address)
    perform_now(handler, CreateRouter("triage", CONFIG))
    id = perform_now(handler, MakeDecision("triage", key="k")).id
    handler.close()
    handler = open_handler(address)
    assert perform_now(handler, MakeDecision("triage", key="k")).id == id
    assert perform_now(handler, GetDecision(id)).decision.id == id
    assert perform_now(handler, RecordReward(id, 0.5)).receipt == "learned"
    assert perform_now(handler, RecordReward(id, 0.5)).receipt == "duplicate"
    handler.close()


def test_a_truncated_write_ahead_log_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "bylot.db"
    handler = open_handler(f"sqlite:///{path}")
    create_with_decisions(handler, "triage", 12)
    size = Path(f"{path}-wal").stat().st_size
    messages = set()
    for n, cut in enumerate(range(0, size - 1, size // 20)):
        copied = copy_store(path, tmp_path / f"{n}", cut)
        with pytest.raises(StoreCorrupted) as lost:
            open_router(copied)
        assert f"stop all servers and delete {tmp_path}/{n}/bylot.db-ends" in str(lost.value)
        messages.add(str(lost.value).partition(";")[0].rpartition(": ")[2])
    assert messages == {
        "of routers that were created, numbers 1 are gone",
        "its log ends before event 12, which was written to it",
    }
    assert open_router(copy_store(path, tmp_path / "complete", None)) == 12
    unrecorded = copy_store(path, tmp_path / "unrecorded", size // 2, ends=False)
    assert 0 <= open_router(unrecorded) < 12  # nothing else would notice
    handler.close()


def test_the_loss_of_the_last_events_together_with_the_snapshot_is_noticed(address: str) -> None:
    handler = open_handler(address)
    create_with_decisions(handler, "triage", 5)
    others = create_with_decisions(handler, "other", 1)
    execute_statements(address, "DELETE FROM events WHERE router = 1 AND seq > 3")
    with pytest.raises(LeaseLost):  # its own copy in memory is longer than the log
        perform_now(handler, MakeDecision("triage"))
    for _ in range(2):
        with pytest.raises(StoreCorrupted, match="ends before event 5, which was written"):
            perform_now(handler, MakeDecision("triage"))
    assert perform_now(handler, RecordReward(others[0], 0.5)).receipt == "learned"
    handler.close()
    if address.startswith("sqlite"):  # also after a restart, and in an audit
        handler = open_handler(address)
        with pytest.raises(StoreCorrupted, match="ends before event 5, which was written"):
            perform_now(handler, GetRouter("triage"))
        assert "ends before event 5" in str(audit_router(handler.store, "triage").fault)
        assert audit_router(handler.store, "other").fault is None
        handler.close()


def test_a_server_notices_a_log_that_was_continued_without_its_end(postgres_address: str) -> None:
    first, second = open_handler(postgres_address), open_handler(postgres_address)
    create_with_decisions(first, "triage", 3)
    first.repository.close()
    execute_statements(
        postgres_address, "DELETE FROM snapshots", "DELETE FROM events WHERE seq = 3"
    )
    perform_now(second, MakeDecision("triage"))  # it cannot know
    second.repository.close()
    with pytest.raises(StoreCorrupted, match=r"does not contain event 3, .* restart this server"):
        perform_now(first, GetRouter("triage"))
    first.close()
    second.close()
    assert open_router(postgres_address) == 3


def test_a_deleted_router_is_not_missed(address: str) -> None:
    handler = open_handler(address)
    create_with_decisions(handler, "one", 2)
    create_with_decisions(handler, "two", 2)
    perform_now(handler, DeleteRouter("one"))
    handler.close()
    handler = open_handler(address)
    create_with_decisions(handler, "one", 2)
    assert perform_now(handler, GetRouter("two")).seq == 2
    handler.close()


def test_an_empty_store_in_the_place_of_a_lost_one_is_refused(tmp_path: Path) -> None:
    address, path = f"sqlite:///{tmp_path}/bylot.db", tmp_path / "bylot.db"
    with contextlib.closing(open_handler(address)) as handler:
        create_with_decisions(handler, "one", 2)
    path.unlink()
    for _ in range(2):
        with pytest.raises(StoreCorrupted, match=r"numbers 1 are gone.* delete .*bylot.db-ends"):
            open_store(address)
    (tmp_path / "bylot.db-ends").unlink()
    open_store(address).close()


def test_damaged_records_of_ends_count_as_unknown(tmp_path: Path) -> None:
    ends = LogEndsFile(tmp_path / "bylot.db-ends")
    assert (ends.get(1), list(ends.list_routers())) == (None, [])
    ends.record({3: LogEnd(7, bytes(range(16))), 1: LogEnd(2, bytes(16))})
    assert ends.get(3) == LogEnd(7, bytes(range(16)))
    assert list(ends.list_routers()) == [1, 3]
    assert [ends.get(router) for router in (0, 2, 4, -1, 10**9, 2**62)] == [None] * 6
    ends.record({2**62: LogEnd(1, bytes(16))})
    content = bytearray(ends.path.read_bytes())
    assert len(content) == 4 * LOG_END_RECORD_BYTES
    for bit in range(8 * LOG_END_RECORD_BYTES):
        damaged = content.copy()
        damaged[3 * LOG_END_RECORD_BYTES + bit // 8] ^= 1 << bit % 8
        ends.path.write_bytes(damaged)
        assert ends.get(3) is None
    assert list(ends.list_routers()) == [1]
    ends.clear(1)
    assert list(ends.list_routers()) == []


def test_a_deleted_write_ahead_log_is_saved_and_not_written_to(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "routers.db")
    router = create_router(store)
    store.append([make_event(router, 1)])
    store.wal.unlink()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"routers.db-wal is gone .*restart the process"):
            store.append([make_event(router, 2)])
    shutil.copy(store.path, tmp_path / "copy.db")  # as if the process were killed now
    copy = SqliteStore(tmp_path / "copy.db")
    assert [event.seq for event in read_log(copy, router)] == [0, 1]
    copy.close()
    store.close()
    store.append([make_event(router, 2)])  # it is opened again
    store.close()


def test_a_replaced_write_ahead_log_is_not_written_to(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "routers.db")
    router = create_router(store)
    content, away = store.wal.read_bytes(), tmp_path / "away"
    store.wal.rename(away)
    store.wal.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"routers.db-wal is another file"):
        store.append([make_event(router, 1)])
    away.rename(store.wal)
    store.append([make_event(router, 1)])
    store.close()


def test_a_server_without_its_write_ahead_log_acknowledges_nothing(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        router = server.create_router()
        ids = [server.decide(router)["id"] for _ in range(3)]
        (tmp_path / "bylot.db-wal").unlink()
        assert_error(server.post(f"{router}/decisions", json={}), 503)
        assert_error(server.post(f"/v1/decisions/{ids[0]}/reward", json={"value": 1}), 503)
        assert_error(server.get("/readyz"), 503)
    with contextlib.closing(open_handler(f"sqlite:///{tmp_path}/bylot.db")) as handler:
        found = [perform_now(handler, GetDecision(id)) for id in ids]
        assert [one.state for one in found] == ["waiting"] * 3
        assert perform_now(handler, GetRouter(router.rpartition("/")[2])).seq == 3


def test_other_processes_leave_the_write_ahead_log_of_several_connections(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/routers.db"
    first, second = SqliteStore(tmp_path / "routers.db"), SqliteStore(tmp_path / "routers.db")
    router = create_router(first)
    subprocess.run([sys.executable, "-c", OPEN_AND_CLOSE, address], check=True)
    assert first.wal.exists()
    first.append([make_event(router, 1)])
    second.append([make_event(router, 2)])
    first.close()
    second.close()


@pytest.mark.parametrize("snapshots", [True, False])
def test_exchanged_names_of_routers_are_noticed(address: str, snapshots: bool) -> None:
    handler = open_handler(address)
    create_with_decisions(handler, "one", 2)
    create_with_decisions(handler, "two", 3)
    handler.close()
    execute_statements(
        address,
        "UPDATE routers SET name = 'three' WHERE name = 'one'",
        "UPDATE routers SET name = 'one' WHERE name = 'two'",
        "UPDATE routers SET name = 'two' WHERE name = 'three'",
        "UPDATE routers SET name = name" if snapshots else "DELETE FROM snapshots",
    )
    handler = open_handler(address)
    for name, other in (("one", "two"), ("two", "one")):
        with pytest.raises(StoreCorrupted, match=f"'{name}': its log is that of router '{other}'"):
            perform_now(handler, GetRouter(name))
        assert "its log is that" in str(audit_router(handler.store, name).fault)
    handler.close()


def test_a_saved_file_is_synced_before_and_its_folder_after_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, sync = tmp_path / "router.bylot", [], os.fsync

    def record_and_sync(file: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{file}")), path.exists()))
        sync(file)

    monkeypatch.setattr(os, "fsync", record_and_sync)
    Router(make_five_expert_problem()).save(path)
    (part, before), folder = synced
    assert (part.parent, part.suffix, before) == (tmp_path, ".bylot-part", False)
    assert folder == (tmp_path, True)
    assert [one.name for one in tmp_path.iterdir()] == ["router.bylot"]


def test_a_file_whose_folder_cannot_be_synced_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync_files_only(file: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{file}")).is_dir():
            raise OSError

    monkeypatch.setattr(os, "fsync", sync_files_only)
    replace_file(tmp_path / "one", b"content")
    assert (tmp_path / "one").read_bytes() == b"content"
