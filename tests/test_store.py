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
from bylot.store import ApiKey, DecisionEvents, Snapshot, Store, hide_password, open_store
from bylot.store import postgres as in_postgres
from bylot.store import sqlite as in_sqlite
from bylot.store.schema import EVENTS_SQL
from stores import Opener, create_router, make_event, read_log

HOSTILE_TEXTS = (
    "'; DROP TABLE routers; --",
    "%s %b {}",
    "ä\u202e\U0001f600",
    "a" * 10_000,
    '"',
    "\\",
    "",
)


def test_a_router_is_found_by_its_name_until_it_is_deleted(store: Store) -> None:
    row = store.create("a", 7, make_event(99, 0, "created"))
    assert store.find("a") == row
    assert store.events(row.number)[-1] == make_event(99, 0, "created")._replace(router=row.number)
    store.append([make_event(row.number, 1)], [Snapshot(row.number, 1, b"state", b"hash")])
    store.lease(row.number, "me", 60)
    store.delete(row.number)
    assert store.find("a") is None
    assert store.events(row.number) == []
    assert store.snapshot(row.number) is None
    assert store.find("b") is None


def test_names_are_unique_and_numbers_are_never_reused(store: Store) -> None:
    first = create_router(store)
    with pytest.raises(RouterExists, match="'a'"):
        create_router(store)
    store.delete(first)
    second = create_router(store)
    assert second > first
    assert [row.number for row in store.routers()] == [second]


def test_numbers_are_not_reused_after_reopening(open_store_again: Opener) -> None:
    store = open_store_again()
    first = create_router(store)
    store.delete(first)
    store.close()
    assert create_router(open_store_again()) > first


def test_routers_are_listed_by_name_in_pages(store: Store) -> None:
    names = ["b", "Z", "a-1", "a_1", "a1", "ä", "a"]
    for name in names:
        create_router(store, name)
    all_names = [row.name for row in store.routers()]
    assert all_names == sorted(names)
    assert [row.name for row in store.routers(limit=3)] == all_names[:3]
    assert [row.name for row in store.routers(after=all_names[2], limit=3)] == all_names[3:6]
    assert store.routers(after=all_names[-1]) == []


def test_events_are_read_as_they_were_written(store: Store) -> None:
    a, b = create_router(store, "a"), create_router(store, "b")
    bytes_of_all_kinds = bytes(range(256)) * 40
    events = [
        make_event(a, 1, key="k", body=bytes_of_all_kinds, at=2**62),
        make_event(b, 1, key="k", body=b"", seal=b"\0"),
        make_event(a, 2, "rewarded", of=1),
        make_event(a, 3, "rewarded", of=1, key="k"),
    ]
    store.append(events)
    assert read_log(store, a)[1:] == [one for one in events if one.router == a]
    assert read_log(store, b)[1:] == [events[1]]
    assert store.events(a)[-1] == events[3]
    assert store.event(a, 2) == events[2]
    assert store.event(a, 4) is None
    assert store.events(b + 1) == []
    assert store.decision_by_key(a, "k") == events[0]
    assert store.decision_by_key(b, "k") == events[1]
    assert store.decision_by_key(a, "K") is None
    assert store.decision_events(a, 1) == DecisionEvents(events[0], [events[2], events[3]])
    assert store.decision_events(b, 1) == DecisionEvents(events[1], [])
    assert store.decision_events(a, 2) is None  # not a decision
    assert store.decision_events(a, 4) is None


def test_a_log_is_read_in_pages(store: Store) -> None:
    router = create_router(store)
    store.append([make_event(router, seq) for seq in range(1, 30)])
    assert [one.seq for one in store.events(router, limit=4)] == [0, 1, 2, 3]
    assert [one.seq for one in store.events(router, after=26, limit=4)] == [27, 28, 29]
    assert store.events(router, after=29) == []


def test_the_latest_events_of_a_kind_are_searched_near_the_end(store: Store) -> None:
    router = create_router(store)
    kinds = ["edited", *["decided", "rewarded"] * 600]
    store.append([make_event(router, seq, kind) for seq, kind in enumerate(kinds, start=1)])
    assert [one.seq for one in store.latest(router, "rewarded", 3)] == [1201, 1199, 1197]
    assert len(store.latest(router, "decided", 10_000)) == 500
    assert store.latest(router, "edited", 1) == []
    assert [one.seq for one in store.edits(router, 3)] == [1]
    assert store.edits(router + 1, 1) == []
    assert store.latest(router + 1, "decided", 1) == []


@pytest.mark.parametrize("start", [1, 2, 4])
def test_events_that_do_not_continue_the_log_change_nothing(store: Store, start: int) -> None:
    a, b = create_router(store, "a"), create_router(store, "b")
    store.append([make_event(a, 1), make_event(a, 2)])
    with pytest.raises(LeaseLost, match="nothing was written") as caught:
        store.append(
            [make_event(b, 1), make_event(a, start), make_event(a, start + 1)],
            [Snapshot(b, 1, b"state", b"hash")],
        )
    assert caught.value.routers == (a,)
    assert (len(read_log(store, a)), len(read_log(store, b)), store.snapshot(b)) == (3, 1, None)
    store.append([make_event(b, 1), make_event(a, 3), make_event(a, 4)])


def test_appending_to_a_deleted_router_is_refused(store: Store) -> None:
    a, b = create_router(store, "a"), create_router(store, "b")
    store.delete(a)
    with pytest.raises(LeaseLost) as caught:
        store.append([make_event(b, 1), make_event(a, 1)])
    assert caught.value.routers == (a,)
    with pytest.raises(LeaseLost):
        store.append([], [Snapshot(a, 0, b"state", b"hash")])
    assert (read_log(store, a), len(read_log(store, b)), store.snapshot(a)) == ([], 1, None)


def test_a_batch_with_a_reused_key_is_refused(store: Store) -> None:
    router = create_router(store)
    store.append([make_event(router, 1, key="k")])
    with pytest.raises(IdempotencyKeyReused):
        store.append([make_event(router, 2), make_event(router, 3, key="k")])
    with pytest.raises(IdempotencyKeyReused):
        store.append([make_event(router, 2, key="new"), make_event(router, 3, key="new")])
    assert len(read_log(store, router)) == 2
    store.append(
        [make_event(router, 2, "rewarded", of=1, key="k"), make_event(router, 3, key=None)]
    )


def test_a_snapshot_replaces_only_an_older_one(store: Store) -> None:
    router = create_router(store)
    old, new = Snapshot(router, 1, b"old", b"1"), Snapshot(router, 2, b"new", b"2")
    store.append([make_event(router, 1), make_event(router, 2)], [new])
    store.append([], [old])
    assert store.snapshot(router) == new
    store.append([make_event(router, 3)], [old._replace(seq=3)])
    assert store.snapshot(router) == old._replace(seq=3)


def test_appending_nothing_is_allowed(store: Store) -> None:
    store.append([])


def test_a_lease_excludes_others_until_it_expires_or_is_released(open_store_again: Opener) -> None:
    first_handle, second_handle = open_store_again(), open_store_again()
    router = create_router(first_handle)
    assert first_handle.lease(router, "me", 60) is None
    left = second_handle.lease(router, "you", 60)
    assert left is not None
    assert 50 < left <= 60
    with pytest.raises(LeaseLost):
        second_handle.append([make_event(router, 1)])
    assert first_handle.lease(router, "me", 0) is None  # renewed for 0 seconds: it has expired
    assert second_handle.lease(router, "you", 60) is None
    with pytest.raises(LeaseLost) as caught:
        first_handle.append([make_event(router, 1)])
    assert caught.value.routers == (router,)
    with pytest.raises(LeaseLost):
        first_handle.append([], [Snapshot(router, 0, b"state", b"hash")])
    second_handle.append([make_event(router, 1)])
    second_handle.release("you", [router])
    with pytest.raises(LeaseLost):  # the log has grown in the meantime
        first_handle.append([make_event(router, 1)])
    assert first_handle.lease(router, "me", 60) is None


def test_a_writer_with_an_expired_lease_can_write_until_another_takes_it(
    open_store_again: Opener,
) -> None:
    first_handle, second_handle = open_store_again(), open_store_again()
    router = create_router(first_handle)
    first_handle.lease(router, "me", 0)
    first_handle.append([make_event(router, 1)])
    second_handle.append([make_event(router, 2)])  # it never had a lease
    second_handle.lease(router, "you", 60)
    with pytest.raises(LeaseLost):
        first_handle.append([make_event(router, 3)])


def test_leases_are_released_by_their_owner_only(open_store_again: Opener) -> None:
    first_handle, second_handle = open_store_again(), open_store_again()
    numbers = [create_router(first_handle, name) for name in "abc"]
    for router in numbers:
        first_handle.lease(router, "me", 60)
    second_handle.release("you")
    first_handle.release("me", numbers[:1])
    granted = [second_handle.lease(router, "you", 60) is None for router in numbers]
    assert granted == [True, False, False]
    first_handle.release("me")
    assert all(second_handle.lease(router, "you", 60) is None for router in numbers)


def test_a_deleted_router_cannot_be_leased(store: Store) -> None:
    router = create_router(store)
    store.delete(router)
    with pytest.raises(RouterNotFound, match=str(router)):
        store.lease(router, "me", 60)


def test_api_keys_are_stored_and_revoked_once(store: Store) -> None:
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


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=lambda text: ascii(text)[:12])
def test_hostile_texts_are_stored_as_texts(store: Store, text: str) -> None:
    router = create_router(store, text[:60])
    decision = make_event(router, 1, key=text[:2_000])
    store.append([decision])
    store.add_key(ApiKey(text, b"", text, (text,), (text,), 1, None))
    store.lease(router, text, 60)
    assert store.find(text[:60]) is not None
    assert store.decision_by_key(router, text[:2_000]) == decision
    assert store.keys()[0].routers == (text,)
    assert store.revoke(text, 2)


@pytest.mark.parametrize("text", ["\ud800", "NUL \0"], ids=ascii)
def test_a_text_that_cannot_be_stored_changes_nothing(store: Store, text: str) -> None:
    if "\0" in text and isinstance(store, in_sqlite.SqliteStore):
        pytest.skip("SQLite stores it; the server refuses it before")
    router = create_router(store)
    with pytest.raises(StoreError, match="NUL"):
        store.decision_by_key(router, text)
    with pytest.raises(StoreError, match="NUL"):
        store.append([make_event(router, 1), make_event(router, 2, key=text)])
    with pytest.raises(StoreError, match="NUL"):
        create_router(store, text)
    assert len(read_log(store, router)) == 1
    store.append([make_event(router, 1)])


def test_a_number_too_large_for_any_log_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match=r"2\*\*63"):
        store.event(1, 2**63)


def test_a_store_can_be_used_in_another_thread(store: Store) -> None:
    numbers: list[int] = []
    thread = threading.Thread(target=lambda: numbers.append(create_router(store)))
    thread.start()
    thread.join()
    assert [row.number for row in store.routers()] == numbers


def test_written_events_survive_reopening(open_store_again: Opener) -> None:
    first = open_store_again()
    router = create_router(first)
    first.append([make_event(router, 1)])
    first.close()
    assert len(read_log(open_store_again(), router)) == 2
    assert len(read_log(first, router)) == 2  # reopens


def test_a_read_only_store_refuses_writes(store: Store, address: str) -> None:
    router = create_router(store)
    reader = open_store(address, read_only=True)
    try:
        assert len(read_log(reader, router)) == 1
        with pytest.raises(StoreUnavailable, match="read-only"):
            reader.append([make_event(router, 1)])
        with pytest.raises(StoreUnavailable, match="read-only"):
            create_router(reader, "b")
        assert len(read_log(reader, router)) == 1
    finally:
        reader.close()


@pytest.mark.parametrize(
    "address", ["", "routers.db", "mysql://me:secret@host/db", "sqlite://routers.db", "sqlite:///"]
)
def test_an_unsupported_address_is_refused_with_examples(address: str) -> None:
    with pytest.raises(UnsupportedStore, match=r"sqlite:///routers\.db") as caught:
        open_store(address)
    assert "secret" not in str(caught.value)


def test_sqlite_addresses_are_relative_with_three_slashes_and_absolute_with_four(
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
        "postgresql://me:se@cret@127.0.0.1:1/db",
        "host=127.0.0.1 password=secret",
    ],
)
def test_no_error_shows_a_password(address: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(address)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:x@a:1,b:2/db?password=y", "postgresql://me@a:1,b:2/db"),
        ("postgresql://me@a,b/db?port=5433", "postgresql://me@a:5433,b:5433/db"),
        ("postgresql://a,b:2/db", "postgresql://a,b:2/db"),
        ("postgresql:///db?host=/run/pg", "postgresql:///run/pg/db"),
    ],
)
def test_a_url_is_shown_with_all_hosts(address: str, shown: str) -> None:
    assert hide_password(address) == shown


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


def explain_query_plan(path: Path, query: str) -> list[str]:
    """The access paths that SQLite would use for a query."""
    store = in_sqlite.SqliteStore(path)
    try:
        assert store._db is not None
        rows = store._db.execute(f"EXPLAIN QUERY PLAN {query}", [1] * query.count("?"))
        plan_rows = [
            str(row[3]) for row in rows if "SUBQUERY" not in row[3] and "rowid=?" not in row[3]
        ]
        return [one.removeprefix("SEARCH events USING ") for one in plan_rows]
    finally:
        store.close()


@pytest.mark.parametrize("query", PLANS)
def test_every_query_of_a_log_uses_an_index(tmp_path: Path, query: str) -> None:
    sql = in_sqlite.SqliteStore.queries[query]
    assert explain_query_plan(tmp_path / "routers.db", sql) == PLANS[query]


def test_the_end_of_a_log_is_found_by_the_primary_key(tmp_path: Path) -> None:
    sql = in_sqlite.SQLITE_LOG_END_SQL
    assert explain_query_plan(tmp_path / "routers.db", sql) == ["PRIMARY KEY (router=?)"]


def test_the_test_above_would_notice_a_query_without_an_index(tmp_path: Path) -> None:
    path = tmp_path / "routers.db"
    assert explain_query_plan(path, "SELECT * FROM events WHERE seal = ?") == ["SCAN events"]
    assert explain_query_plan(path, EVENTS_SQL + " ORDER BY at")[1:] == [
        "USE TEMP B-TREE FOR ORDER BY"
    ]


CONDITIONS = {
    "event": "seq =",
    "after": "seq >",
    "latest": "seq >",
    "edits": "router =",
    "about": "of =",
    "preceding": "seq = (said.seq - 1)",
    "by_key": "key =",
}


def test_every_query_in_postgres_uses_an_index(postgres_address: str) -> None:
    store = in_postgres.PostgresStore(postgres_address)
    db, router = store._db, create_router(store)
    assert db is not None
    db.execute(
        "INSERT INTO events SELECT %s, i, 'decided', i - 1, 'key ' || i, i, '', ''"
        " FROM generate_series(1, 20000) i",
        (router,),
    )
    db.execute("ANALYZE events")
    for name, condition in CONDITIONS.items():
        query = store.queries[name].replace("?", "'9'")
        plan_rows = [str(row[0]) for row in db.execute(f"EXPLAIN {query}")]
        assert not any("Seq Scan" in one or "Sort" in one for one in plan_rows), plan_rows
        assert any("Index Cond" in one and condition in one for one in plan_rows), plan_rows
    plan_rows = [str(row[0]) for row in db.execute("EXPLAIN SELECT * FROM events WHERE at = 9")]
    assert "Seq Scan" in plan_rows[0]  # which the test above would notice
    store.close()


def test_a_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/routers.db")
    create_router(store)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    store.close()


def test_all_leases_of_an_owner_are_renewed_together(open_store_again: Opener) -> None:
    store, other = open_store_again(), open_store_again()
    first, second, third = (
        create_router(store, "a"),
        create_router(store, "b"),
        create_router(store, "c"),
    )
    store.lease(first, "me", 60)
    store.lease(second, "me", 0)  # expired, and not taken by another
    other.lease(third, "you", 60)
    assert store.renew("me", 60) == {first, second}
    assert other.lease(second, "you", 60) is not None
    assert store.renew("unknown", 60) == set()
    assert store.lease_owners() == ["me", "you"]
    assert store.lease_owners(second) == ["me"]
