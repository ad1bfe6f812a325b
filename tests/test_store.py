"""Stores: one contract, in SQLite and in PostgreSQL."""

import sys
import threading
from pathlib import Path

import pytest

from bylot.errors import (
    IdempotencyKeyReused,
    LeaseLost,
    RouterExists,
    RouterNotFound,
    StoreError,
    StoreUnavailable,
    UnsupportedStore,
)
from bylot.store import ApiKey, DecisionEvents, Snapshot, Store, open_store
from bylot.store import postgres as in_postgres
from bylot.store import sqlite as in_sqlite
from bylot.store.protocol import EVENTS_SQL
from stores import Opener, line, log, made

HOSTILE = (
    "'; DROP TABLE routers; --",
    "%s %b {}",
    "ä\u202e\U0001f600",
    "a" * 10_000,
    '"',
    "\\",
    "",
)


def test_a_router_is_found_by_its_name_until_it_is_deleted(store: Store) -> None:
    row = store.create("a", 7, line(99, 0, "created"))
    assert store.find("a") == row
    assert store.events(row.number)[-1] == line(99, 0, "created")._replace(router=row.number)
    store.append([line(row.number, 1)], [Snapshot(row.number, 1, b"state", b"seal")])
    store.lease(row.number, "me", 60)
    store.delete(row.number)
    assert store.find("a") is None
    assert store.events(row.number) == []
    assert store.snapshot(row.number) is None
    assert store.find("b") is None


def test_a_name_is_used_once_at_a_time_and_a_number_once_for_all(store: Store) -> None:
    first = made(store)
    with pytest.raises(RouterExists, match="'a'"):
        made(store)
    store.delete(first)
    second = made(store)
    assert second > first
    assert [row.number for row in store.routers()] == [second]


def test_numbers_are_not_used_again_by_a_store_that_was_opened_again(opened: Opener) -> None:
    store = opened()
    first = made(store)
    store.delete(first)
    store.close()
    assert made(opened()) > first


def test_routers_are_listed_by_name_in_portions(store: Store) -> None:
    names = ["b", "Z", "a-1", "a_1", "a1", "ä", "a"]
    for name in names:
        made(store, name)
    whole = [row.name for row in store.routers()]
    assert whole == sorted(names)
    assert [row.name for row in store.routers(limit=3)] == whole[:3]
    assert [row.name for row in store.routers(after=whole[2], limit=3)] == whole[3:6]
    assert store.routers(after=whole[-1]) == []


def test_lines_are_read_as_they_were_written(store: Store) -> None:
    a, b = made(store, "a"), made(store, "b")
    bytes_of_all_kinds = bytes(range(256)) * 40
    lines = [
        line(a, 1, key="k", body=bytes_of_all_kinds, at=2**62),
        line(b, 1, key="k", body=b"", seal=b"\0"),
        line(a, 2, "rewarded", of=1),
        line(a, 3, "rewarded", of=1, key="k"),
    ]
    store.append(lines)
    assert log(store, a)[1:] == [one for one in lines if one.router == a]
    assert log(store, b)[1:] == [lines[1]]
    assert store.events(a)[-1] == lines[3]
    assert store.event(a, 2) == lines[2]
    assert store.event(a, 4) is None
    assert store.events(b + 1) == []
    assert store.decision_by_key(a, "k") == lines[0]
    assert store.decision_by_key(b, "k") == lines[1]
    assert store.decision_by_key(a, "K") is None
    assert store.decision_events(a, 1) == DecisionEvents(lines[0], [lines[2], lines[3]])
    assert store.decision_events(b, 1) == DecisionEvents(lines[1], [])
    assert store.decision_events(a, 2) is None  # no decision
    assert store.decision_events(a, 4) is None


def test_a_log_is_read_in_portions(store: Store) -> None:
    router = made(store)
    store.append([line(router, seq) for seq in range(1, 30)])
    assert [one.seq for one in store.events(router, limit=4)] == [0, 1, 2, 3]
    assert [one.seq for one in store.events(router, after=26, limit=4)] == [27, 28, 29]
    assert store.events(router, after=29) == []


def test_the_latest_of_a_kind_are_looked_for_near_the_end(store: Store) -> None:
    router = made(store)
    kinds = ["edited", *["decided", "rewarded"] * 600]
    store.append([line(router, seq, kind) for seq, kind in enumerate(kinds, start=1)])
    assert [one.seq for one in store.latest(router, "rewarded", 3)] == [1201, 1199, 1197]
    assert len(store.latest(router, "decided", 10_000)) == 500
    assert store.latest(router, "edited", 1) == []
    assert [one.seq for one in store.edits(router, 3)] == [1]
    assert store.edits(router + 1, 1) == []
    assert store.latest(router + 1, "decided", 1) == []


@pytest.mark.parametrize("start", [1, 2, 4])
def test_lines_that_do_not_continue_the_log_change_nothing(store: Store, start: int) -> None:
    a, b = made(store, "a"), made(store, "b")
    store.append([line(a, 1), line(a, 2)])
    with pytest.raises(LeaseLost, match="nothing was written") as fenced:
        store.append(
            [line(b, 1), line(a, start), line(a, start + 1)], [Snapshot(b, 1, b"state", b"seal")]
        )
    assert fenced.value.routers == (a,)
    assert (len(log(store, a)), len(log(store, b)), store.snapshot(b)) == (3, 1, None)
    store.append([line(b, 1), line(a, 3), line(a, 4)])


def test_a_deleted_router_has_no_log_to_add_to(store: Store) -> None:
    a, b = made(store, "a"), made(store, "b")
    store.delete(a)
    with pytest.raises(LeaseLost) as fenced:
        store.append([line(b, 1), line(a, 1)])
    assert fenced.value.routers == (a,)
    with pytest.raises(LeaseLost):
        store.append([], [Snapshot(a, 0, b"state", b"seal")])
    assert (log(store, a), len(log(store, b)), store.snapshot(a)) == ([], 1, None)


def test_two_decisions_under_one_key_are_refused_whole(store: Store) -> None:
    router = made(store)
    store.append([line(router, 1, key="k")])
    with pytest.raises(IdempotencyKeyReused):
        store.append([line(router, 2), line(router, 3, key="k")])
    with pytest.raises(IdempotencyKeyReused):
        store.append([line(router, 2, key="new"), line(router, 3, key="new")])
    assert len(log(store, router)) == 2
    store.append([line(router, 2, "rewarded", of=1, key="k"), line(router, 3, key=None)])


def test_a_snapshot_takes_the_place_of_an_older_one_only(store: Store) -> None:
    router = made(store)
    old, new = Snapshot(router, 1, b"old", b"1"), Snapshot(router, 2, b"new", b"2")
    store.append([line(router, 1), line(router, 2)], [new])
    store.append([], [old])
    assert store.snapshot(router) == new
    store.append([line(router, 3)], [old._replace(seq=3)])
    assert store.snapshot(router) == old._replace(seq=3)


def test_nothing_to_add_is_no_error(store: Store) -> None:
    store.append([])


def test_a_lease_keeps_others_out_until_it_is_over_or_given_back(opened: Opener) -> None:
    mine, yours = opened(), opened()
    router = made(mine)
    assert mine.lease(router, "me", 60) is None
    left = yours.lease(router, "you", 60)
    assert left is not None
    assert 50 < left <= 60
    with pytest.raises(LeaseLost):
        yours.append([line(router, 1)])
    assert mine.lease(router, "me", 0) is None  # renewed for no time at all: it is over
    assert yours.lease(router, "you", 60) is None
    with pytest.raises(LeaseLost) as fenced:
        mine.append([line(router, 1)])
    assert fenced.value.routers == (router,)
    with pytest.raises(LeaseLost):
        mine.append([], [Snapshot(router, 0, b"state", b"seal")])
    yours.append([line(router, 1)])
    yours.release("you", [router])
    with pytest.raises(LeaseLost):  # the log went on meanwhile
        mine.append([line(router, 1)])
    assert mine.lease(router, "me", 60) is None


def test_a_writer_whose_lease_is_over_goes_on_while_nobody_else_wants_it(opened: Opener) -> None:
    mine, yours = opened(), opened()
    router = made(mine)
    mine.lease(router, "me", 0)
    mine.append([line(router, 1)])
    yours.append([line(router, 2)])  # it never had one
    yours.lease(router, "you", 60)
    with pytest.raises(LeaseLost):
        mine.append([line(router, 3)])


def test_leases_are_given_back_by_their_owner_only(opened: Opener) -> None:
    mine, yours = opened(), opened()
    numbers = [made(mine, name) for name in "abc"]
    for router in numbers:
        mine.lease(router, "me", 60)
    yours.release("you")
    mine.release("me", numbers[:1])
    granted = [yours.lease(router, "you", 60) is None for router in numbers]
    assert granted == [True, False, False]
    mine.release("me")
    assert all(yours.lease(router, "you", 60) is None for router in numbers)


def test_a_router_that_is_no_more_cannot_be_leased(store: Store) -> None:
    router = made(store)
    store.delete(router)
    with pytest.raises(RouterNotFound, match=str(router)):
        store.lease(router, "me", 60)


def test_credentials_are_kept_and_revoked_once(store: Store) -> None:
    old = ApiKey("id 2", b"\0\xff", "l", ("decide", "read"), (), 1, None)
    new = ApiKey("id 1", b"", "", (), ("a", "b,c"), 2, 5)
    store.add_key(new)
    store.add_key(old)
    assert store.keys() == [old, new]
    with pytest.raises(StoreError, match="'id 1'"):
        store.add_key(new)
    assert store.revoke("id 2", 9)
    assert store.revoke("id 2", 10)
    assert not store.revoke("id 3", 9)
    assert store.keys() == [old._replace(revoked=9), new]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:12])
def test_texts_of_strangers_are_texts_only(store: Store, text: str) -> None:
    router = made(store, text[:60])
    decided = line(router, 1, key=text[:2_000])
    store.append([decided])
    store.add_key(ApiKey(text, b"", text, (text,), (text,), 1, None))
    store.lease(router, text, 60)
    assert store.find(text[:60]) is not None
    assert store.decision_by_key(router, text[:2_000]) == decided
    assert store.keys()[0].routers == (text,)
    assert store.revoke(text, 2)


@pytest.mark.parametrize("text", ["\ud800", "NUL \0"], ids=ascii)
def test_a_text_that_cannot_be_kept_changes_nothing(store: Store, text: str) -> None:
    if "\0" in text and isinstance(store, in_sqlite.SqliteStore):
        pytest.skip("SQLite keeps it; who asks strangers refuses it before")
    router = made(store)
    with pytest.raises(StoreError, match="NUL"):
        store.decision_by_key(router, text)
    with pytest.raises(StoreError, match="NUL"):
        store.append([line(router, 1), line(router, 2, key=text)])
    with pytest.raises(StoreError, match="NUL"):
        made(store, text)
    assert len(log(store, router)) == 1
    store.append([line(router, 1)])


def test_a_number_too_large_for_any_log_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match=r"2\*\*63"):
        store.event(1, 2**63)


def test_a_store_may_be_made_in_one_thread_and_used_in_another(store: Store) -> None:
    numbers: list[int] = []
    thread = threading.Thread(target=lambda: numbers.append(made(store)))
    thread.start()
    thread.join()
    assert [row.number for row in store.routers()] == numbers


def test_what_is_written_is_there_for_whoever_opens_the_store_next(opened: Opener) -> None:
    first = opened()
    router = made(first)
    first.append([line(router, 1)])
    first.close()
    assert len(log(opened(), router)) == 2
    assert len(log(first, router)) == 2  # opens again


def test_a_store_to_read_only_reads(store: Store, address: str) -> None:
    router = made(store)
    reader = open_store(address, read_only=True)
    try:
        assert len(log(reader, router)) == 1
        with pytest.raises(StoreUnavailable, match="read-only"):
            reader.append([line(router, 1)])
        with pytest.raises(StoreUnavailable, match="read-only"):
            made(reader, "b")
        assert len(log(reader, router)) == 1
    finally:
        reader.close()


@pytest.mark.parametrize(
    "address", ["", "routers.db", "mysql://me:secret@host/db", "sqlite://routers.db", "sqlite:///"]
)
def test_an_address_of_no_store_is_refused_with_examples(address: str) -> None:
    with pytest.raises(UnsupportedStore, match=r"sqlite:///routers\.db") as refused:
        open_store(address)
    assert "secret" not in str(refused.value)


def test_addresses_of_files_are_relative_with_three_strokes_and_absolute_with_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("sqlite:///here #1?mode=ro%20.db", f"sqlite:///{tmp_path}/there.db"):
        open_store(address).close()
    assert {path.name for path in tmp_path.iterdir()} == {"here #1?mode=ro%20.db", "there.db"}


def test_without_psycopg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "bylot.store.postgres", raising=False)
    with pytest.raises(UnsupportedStore, match=r"pip install '\.\[postgres\]'"):
        open_store("postgres://host/database")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:se/cret@127.0.0.1:1/db",
        "postgresql://me:secret@127.0.0.1:1/db",
        "postgresql://me:se:cret@[::1/db",
        "postgresql://me:s%ZZecret@127.0.0.1:1/db",
    ],
)
def test_no_error_shows_a_password(address: str) -> None:
    with pytest.raises(StoreError) as refused:
        open_store(address)
    assert "cret" not in str(refused.value)


PLANS = {
    "event": ["PRIMARY KEY (router=? AND seq=?)"],
    "after": ["PRIMARY KEY (router=? AND seq>?)"],
    "latest": ["PRIMARY KEY (router=? AND seq>?)", "PRIMARY KEY (router=?)"],
    "edits": ["INDEX events_edited (router=?)"],
    "about": ["INDEX events_of (router=? AND of=?)"],
    "preceding": [
        "SEARCH said USING COVERING INDEX events_of (router=? AND of=?)",
        "SEARCH one USING PRIMARY KEY (router=? AND seq=?)",
    ],
    "by_key": ["INDEX events_by_key (router=? AND key=?)"],
}


def plan(path: Path, query: str) -> list[str]:
    """By what SQLite would look for lines; anything else is told as it is."""
    store = in_sqlite.SqliteStore(path)
    try:
        assert store._db is not None
        rows = store._db.execute(f"EXPLAIN QUERY PLAN {query}", [1] * query.count("?"))
        told = [str(row[3]) for row in rows if "SUBQUERY" not in row[3] and "rowid=?" not in row[3]]
        return [one.removeprefix("SEARCH events USING ") for one in told]
    finally:
        store.close()


@pytest.mark.parametrize("query", PLANS)
def test_no_query_of_a_log_reads_more_than_it_answers(tmp_path: Path, query: str) -> None:
    asked = in_sqlite.SqliteStore.queries[query]
    assert plan(tmp_path / "routers.db", asked) == PLANS[query]


def test_the_end_of_a_log_is_found_by_its_key(tmp_path: Path) -> None:
    asked = in_sqlite.SQLITE_LOG_END_SQL
    assert plan(tmp_path / "routers.db", asked) == ["PRIMARY KEY (router=?)"]


def test_the_test_above_would_notice_a_query_without_an_index(tmp_path: Path) -> None:
    path = tmp_path / "routers.db"
    assert plan(path, "SELECT * FROM events WHERE seal = ?") == ["SCAN events"]
    assert plan(path, EVENTS_SQL + " ORDER BY at")[1:] == ["USE TEMP B-TREE FOR ORDER BY"]


CONDITIONS = {
    "event": "seq =",
    "after": "seq >",
    "latest": "seq >",
    "edits": "router =",
    "about": "of =",
    "preceding": "seq = (said.seq - 1)",
    "by_key": "key =",
}


def test_postgres_looks_for_lines_by_an_index_too(postgres_address: str) -> None:
    store = in_postgres.PostgresStore(postgres_address)
    db, router = store._db, made(store)
    assert db is not None
    db.execute(
        "INSERT INTO events SELECT %s, i, 'decided', i - 1, 'key ' || i, i, '', ''"
        " FROM generate_series(1, 20000) i",
        (router,),
    )
    db.execute("ANALYZE events")
    for name, condition in CONDITIONS.items():
        query = store.queries[name].replace("?", "'9'")
        told = [str(row[0]) for row in db.execute(f"EXPLAIN {query}")]
        assert not any("Seq Scan" in one or "Sort" in one for one in told), told
        assert any("Index Cond" in one and condition in one for one in told), told
    told = [str(row[0]) for row in db.execute("EXPLAIN SELECT * FROM events WHERE at = 9")]
    assert "Seq Scan" in told[0]  # as would be noticed above
    store.close()


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/routers.db")
    made(store)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    store.close()


def test_all_leases_of_an_owner_are_renewed_together(opened: Opener) -> None:
    store, other = opened(), opened()
    first, second, third = made(store, "a"), made(store, "b"), made(store, "c")
    store.lease(first, "me", 60)
    store.lease(second, "me", 0)  # ran out, and nobody took it
    other.lease(third, "you", 60)
    assert store.renew("me", 60) == {first, second}
    assert other.lease(second, "you", 60) is not None
    assert store.renew("nobody", 60) == set()
    assert store.lease_owners() == ["me", "you"]
    assert store.lease_owners(second) == ["me"]
