"""Stores damaged at random places: a server finds everything as it was, or notices the damage.

A few copies here; `make faults` damages five hundred, and prints the counts.
"""

import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bylot import policies
from bylot.errors import StoreError
from bylot.eventlog.audit import audit_router
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import CreateRouter, MakeDecision, RecordReward
from bylot.eventlog.events import now_us
from bylot.eventlog.repository import RouterRepository
from bylot.router.config import RouterConfig, problem_to_data
from bylot.store import Store, open_store
from bylot.store.schema import ApiKey, Segment, ServerRow
from handlers import perform_now
from sample_problem import make_five_expert_problem
from stores import execute_statements

DAMAGES = int(os.environ.get("BYLOT_DAMAGES", "0"))  # of each kind; 0: few
NAMES = ("triage", "crowd", "slate")
SUFFIXES = ("", "-wal", "-ends")


class Damage(NamedTuple):
    """A way to damage the files of a store, or the rows of its tables."""

    file: str | None  # suffix of the file that is changed; None: rows are
    change: Callable[[random.Random, bytearray], bytes] | str


def cut(rng: random.Random, content: bytearray) -> bytes:
    """The first part of a file."""
    return bytes(content[: rng.randrange(len(content))])


def flip(rng: random.Random, content: bytearray) -> bytes:
    """A file with one other bit."""
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def flip_in_tail(rng: random.Random, content: bytearray) -> bytes:
    """A file with one other bit in its last part."""
    content[-rng.randrange(1, 9_000)] ^= 1 << rng.randrange(8)
    return bytes(content)


def clear_page(rng: random.Random, content: bytearray) -> bytes:
    """A file with one page of zeros."""
    start = 4096 * rng.randrange(len(content) // 4096)
    content[start : start + 4096] = bytes(4096)
    return bytes(content)


def scramble(rng: random.Random, content: bytearray) -> bytes:
    """A file with other bytes at one place."""
    start, size = rng.randrange(len(content)), rng.choice([2, 20, 200])
    content[start : start + size] = rng.randbytes(len(content[start : start + size]))
    return bytes(content)


NO_DAMAGE = Damage("-ends", lambda rng, content: bytes(content))
ONE = "router = {router} AND seq = {seq}"
DAMAGE_KINDS = {
    "log cut": Damage("-wal", cut),
    "bit of the log": Damage("-wal", flip),
    "bit of the end of the log": Damage("-wal", flip_in_tail),
    "page of the log": Damage("-wal", clear_page),
    "bytes of the log": Damage("-wal", scramble),
    "no log": Damage("-wal", lambda rng, content: b""),
    "file cut": Damage("", cut),
    "bit of the file": Damage("", flip),
    "page of the file": Damage("", clear_page),
    "bytes of the file": Damage("", scramble),
    "recorded ends cut": Damage("-ends", cut),
    "bit of the recorded ends": Damage("-ends", flip),
    "body": Damage(None, f"UPDATE events SET body = substr(body, 1, length(body) - 1) WHERE {ONE}"),
    "time": Damage(None, f"UPDATE events SET at = at + 1 WHERE {ONE}"),
    "key": Damage(None, f"UPDATE events SET key = 'other' WHERE {ONE}"),
    "kind": Damage(None, f"UPDATE events SET kind = 'closed' WHERE {ONE}"),
    "decision of a reward": Damage(None, f"UPDATE events SET of = coalesce(of, 0) + 1 WHERE {ONE}"),
    "seal": Damage(None, f"UPDATE events SET seal = zeroblob(32) WHERE {ONE}"),
    "row gone": Damage(None, f"DELETE FROM events WHERE {ONE}"),
    "end gone": Damage(None, "DELETE FROM events WHERE router = {router} AND seq >= {seq}"),
    "end and snapshot gone": Damage(
        None,
        "DELETE FROM events WHERE router = {router} AND seq >= {seq};"
        "DELETE FROM snapshots WHERE router = {router}",
    ),
    "snapshot": Damage(
        None, "UPDATE snapshots SET body = body || x'00' WHERE router = {router} AND {seq} >= 0"
    ),
    "snapshot of another": Damage(
        None,
        "UPDATE snapshots SET (seq, body, seal) = (SELECT seq, body, seal FROM snapshots"
        " WHERE router = {router} % 3 + 1) WHERE router = {router} AND {seq} >= 0",
    ),
    "log of another": Damage(
        None,
        "UPDATE events SET (body, seal) = (SELECT body, seal FROM events"
        " WHERE router = {router} % 3 + 1 AND seq = {seq}) WHERE " + ONE,
    ),
    "row of the router": Damage(None, "DELETE FROM routers WHERE number = {router} AND {seq} >= 0"),
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a store of three routers, while a server runs (its latest pages are in the
    write-ahead log) and, in the folder `closed`, after it.
    """
    folder, running = tmp_path_factory.mktemp("intact"), tmp_path_factory.mktemp("running")
    problem = problem_to_data(make_five_expert_problem())
    policy = policies.policy_to_data(policies.find_policy("distinct"))
    config = RouterConfig(problem=problem, policy=policy)
    rng = random.Random(5)
    store = open_store(f"sqlite:///{running}/bylot.db")
    handler = CommandHandler(RouterRepository(store, "owner", every=30))
    for name in NAMES:
        perform_now(handler, CreateRouter(name, config))
    for n in range(120):
        name = rng.choice(NAMES)
        key = f"key-{n}" if rng.random() < 0.5 else None
        id = perform_now(handler, MakeDecision(name, rng.choice(["a", "b"]), key=key)).id
        if rng.random() < 0.8:
            perform_now(handler, RecordReward(id, rng.random(), {"usd": 1.5}))
    for suffix in SUFFIXES:
        shutil.copy(f"{running}/bylot.db{suffix}", folder)
    handler.close()
    shutil.copytree(folder, folder / "closed")
    execute_statements(f"sqlite:///{folder}/closed/bylot.db", "PRAGMA wal_checkpoint(TRUNCATE)")
    return folder


def read_all(address: str, notices: list[str]) -> dict[str, Any]:
    """All that a server and its callers can see of each router; errors become notices."""
    found: dict[str, Any] = {}
    try:
        store = open_store(address)
    except StoreError as error:
        notices.append(str(error))
        return found
    with closing(store):
        for name in NAMES:
            try:
                found[name] = read_router(store, name)
            except StoreError as error:
                notices.append(str(error))
    return found


def read_router(store: Store, name: str) -> Any:
    """The state of a router, its log and all lookups; StoreError if one notices a damage."""
    repository = RouterRepository(store, "reader")
    try:
        for owner in store.lease_owners():
            store.release(owner)
        aggregate = repository.get(name, now_us())
        audit = audit_router(store, name)
        if audit.fault is not None:
            raise StoreError(audit.fault)
        number, keys = aggregate.number, [f"key-{n}" for n in range(120)]
        by_key = [repository.find_key(name, key) for key in keys]
        rewards = [repository.find_decision(number, seq) for seq in range(1, aggregate.seq + 1)]
        return aggregate.fingerprint(), audit, by_key, rewards
    finally:
        repository.drop([name])


def damage_copy(intact: Path, folder: Path, damage: Damage, rng: random.Random) -> str:
    """A copy of the store with one damage; returns its address.

    The file of a running server may be old: its log has newer pages.
    """
    shutil.copytree(intact / "closed" if damage.file == "" else intact, folder)
    address = f"sqlite:///{folder}/bylot.db"
    if isinstance(damage.change, str):
        router, seq = rng.randrange(1, 4), rng.randrange(1, 50)
        change = damage.change.format(router=router, seq=seq)
        execute_statements(address, *change.split(";"))
    else:
        path = folder / f"bylot.db{damage.file}"
        path.write_bytes(damage.change(rng, bytearray(path.read_bytes())))
    return address


def test_damage_is_noticed_or_harmless(intact: Path, tmp_path: Path) -> None:
    undamaged = damage_copy(intact, tmp_path / "undamaged", NO_DAMAGE, random.Random(0))
    before = read_all(undamaged, [])
    assert sorted(before) == sorted(NAMES)
    counts: Counter[str] = Counter()
    rng, silent = random.Random(DAMAGES), []
    for kind, damage in DAMAGE_KINDS.items():
        for n in range(DAMAGES or 1):
            notices: list[str] = []
            folder = tmp_path / f"{kind} {n}"
            after = read_all(damage_copy(intact, folder, damage, rng), notices)
            silent += [f"{kind} {n}: {name}" for name in after if after[name] != before[name]]
            if len(after) < len(NAMES) and not notices:
                silent.append(f"{kind} {n}: a router is gone")
            counts["noticed" if notices else "harmless"] += 1
            counts[f"{kind}: {'noticed' if notices else 'harmless'}"] += 1
            shutil.rmtree(folder)
    print(f"\n{counts.total() // 2} damages, {len(silent)} silent; {dict(counts)}")
    assert silent == []
    assert counts["noticed"] > counts["harmless"]


def read_tables(address: str) -> None:
    """Read every table, as a server and the command line do; StoreError at a damage."""
    with closing(open_store(address)) as store:
        store.keys()
        store.servers()
        store.owners()
        store.lease_owners()
        for row in store.routers():
            store.segments(row.number)
            store.snapshot(row.number)
            store.events(row.number)
            store.lease(row.number, "reader", 60.0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_of_a_running_server_cut_anywhere_cause_only_store_errors(
    intact: Path, tmp_path: Path, suffix: str
) -> None:
    size = (intact / f"bylot.db{suffix}").stat().st_size
    for length in range(0, size, max(size // (DAMAGES or 50), 1)):
        folder = tmp_path / str(length)
        shutil.copytree(intact, folder, ignore=shutil.ignore_patterns("closed"))
        os.truncate(folder / f"bylot.db{suffix}", length)
        with suppress(StoreError):
            read_tables(f"sqlite:///{folder}/bylot.db")


@pytest.mark.parametrize("value", ["NULL", "1.5", "x'00ff'", "'text'"])
def test_a_value_that_is_not_of_the_type_of_its_column_is_a_store_error(
    intact: Path, tmp_path: Path, value: str
) -> None:
    shutil.copytree(intact / "closed", tmp_path / "store")
    path = tmp_path / "store" / "bylot.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.add_key(ApiKey("k", b"digest", "label", ("read",), ("triage",), 7, None))
        store.register(ServerRow("owner", "address", "release"), 1e6)
        store.release("owner")
        store.lease(3, "owner", 1e6)
        seq = store.snapshot_seqs(3)[0]
        store.add_snapshot_part(3, seq, 0, b"part")
        store.append([], segments=[Segment(3, 0, 1, 7, b"seal", 0, 2)])
    read_tables(f"sqlite:///{path}")
    noticed = set()
    for table, column in drop_constraints(path):
        other = tmp_path / "other.db"
        shutil.copy(path, other)
        with closing(sqlite3.connect(other)) as db, suppress(sqlite3.IntegrityError), db:
            db.execute(f"UPDATE {table} SET {column} = {value}")
        try:
            read_tables(f"sqlite:///{other}")
        except StoreError as error:
            noticed.add((column, error.remedy is not None))
    named = {"version", "created", "at", "scopes", "routers", "ended", "dropped"}
    assert noticed > {(column, True) for column in named}


def drop_constraints(path: Path) -> list[tuple[str, str]]:
    """Let columns contain NULL, as those of damaged rows do; list all tables and columns."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'"
        )
        return db.execute(
            "SELECT here.name, columns.name FROM sqlite_master here,"
            " pragma_table_info(here.name) columns WHERE here.type = 'table'"
        ).fetchall()
