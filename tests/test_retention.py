"""Old segments of logs are dropped; what remains continues, and still proves itself."""

import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylot.cli import main
from bylot.errors import DecisionNotFound, IdempotencyKeyReused, StoreCorrupted, StoreError
from bylot.eventlog import loading, repository, retention
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.audit import audit_router
from bylot.eventlog.commands import (
    CreateRouter,
    EditRouter,
    GetRouter,
    MakeDecision,
    RecordReward,
)
from bylot.eventlog.loading import load_aggregate
from bylot.eventlog.retention import DropPlan, choose_drop
from bylot.store import Event, Segment, Snapshot, Store, open_store
from handlers import DAY, SECOND, perform_all
from logged_aggregate import make_config
from retained_log import KEEP_US, maintain, make_handler, play, short_segments, start_router
from sample_problem import make_five_expert_problem
from stores import Opener, create_router, execute_statements, read_log


@pytest.mark.usefixtures("short_segments")
def test_old_segments_are_dropped_and_the_rest_proves_itself(
    store: Store, open_store_again: Opener
) -> None:
    handler = start_router(store)
    ids = play(handler, SECOND, 300)
    config = handler.repository.opened["ward"].aggregate.config
    edited = make_config(make_five_expert_problem(), memory=20, wait=10_000.0)
    perform_all(handler, EditRouter("ward", edited, version=config.version), at=3_100 * SECOND)
    ids += play(handler, 3_200 * SECOND, 100, seed=1)
    number = handler.repository.opened["ward"].row.number
    whole, before = read_log(store, number), handler.repository.opened["ward"].aggregate
    assert audit_router(store, "ward").fault is None
    now = 4_200 * SECOND
    maintain(handler, now)
    first = store.first_seq(number)
    kept = read_log(store, number)
    assert kept == whole[first:]
    assert kept[0].kind == "sealed"
    assert 0.2 * len(whole) < len(kept) < 0.5 * len(whole)  # 1,000 of 4,200 seconds, and segments
    assert kept[0].at < now - KEEP_US < whole[first + 80].at  # at most two segments more than asked
    found = audit_router(store, "ward")
    assert (found.fault, found.first, found.events) == (None, first, len(kept))
    # the segments that are gone are still known by their seals
    chain = store.segments(number)
    assert [one.seal for one in chain] == [whole[one.last].seal for one in chain]
    assert [one.first for one in chain] == [0, *(one.last + 1 for one in chain[:-1])]
    # the router continues, here and after a restart
    play(handler, now, 30, seed=2)
    state = before.fingerprint()
    handler.close()
    again = make_handler(open_store_again())
    perform_all(again, GetRouter("ward"), at=now)
    assert again.repository.opened["ward"].aggregate.fingerprint() == state
    assert audit_router(again.store, "ward").fault is None
    (answer,) = again.perform([RecordReward(ids[0], 0.5)], now)
    assert isinstance(answer, DecisionNotFound)
    (answer,) = again.perform([MakeDecision("ward", key=f"{SECOND}-0")], now)
    assert not isinstance(answer, Exception)  # its key is forgotten, too
    again.close()


__all__ = ["short_segments"]


@pytest.mark.usefixtures("short_segments")
def test_without_its_latest_snapshot_a_router_continues_from_one_after_a_segment(
    store: Store, open_store_again: Opener, address: str
) -> None:
    handler = start_router(store)
    play(handler, SECOND, 300)
    maintain(handler, 3_000 * SECOND)
    number = handler.repository.opened["ward"].row.number
    state = handler.repository.opened["ward"].aggregate.fingerprint()
    handler.close()
    seqs = store.snapshot_seqs(number)
    assert len(seqs) >= 3
    execute_statements(address, f"DELETE FROM snapshots WHERE seq = {seqs[0]}")
    row = store.find("ward")
    assert row is not None
    assert load_aggregate(store, row).fingerprint() == state
    execute_statements(address, "DELETE FROM snapshots")
    with pytest.raises(StoreCorrupted, match="no snapshot to continue from is left"):
        load_aggregate(store, row)


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE snapshots SET body = (SELECT body FROM snapshots WHERE seq = {later}),"
        " seal = (SELECT seal FROM snapshots WHERE seq = {later}) WHERE seq = {base}",
        "UPDATE segments SET seal = (SELECT seal FROM segments WHERE last = {base})"
        " WHERE last = {first} - 1",
        "UPDATE events SET at = at + 1 WHERE seq = {first} + 3",
        "UPDATE events SET body = (SELECT body FROM events WHERE seq = {later} + 1)"
        " WHERE seq = {base} + 1",
        "DELETE FROM events WHERE seq = {first}",
        "UPDATE segments SET refers = first WHERE last = {later}",
        "UPDATE segments SET open_since = last + 1 WHERE last = {later}",
        "UPDATE snapshots SET seal = (SELECT seal FROM snapshots WHERE seq = {base})"
        " WHERE seq = {later}",
    ],
)
def test_a_change_of_what_remains_is_found(store: Store, address: str, damage: str) -> None:
    handler = start_router(store)
    play(handler, SECOND, 300)
    maintain(handler, 3_000 * SECOND)
    number = handler.repository.opened["ward"].row.number
    handler.close()
    assert audit_router(store, "ward").fault is None
    later, base = store.snapshot_seqs(number)[-2:]
    first = store.first_seq(number)
    assert first <= base < later
    execute_statements(address, damage.format(first=first, base=base, later=later))
    assert audit_router(store, "ward").fault is not None


@pytest.mark.usefixtures("short_segments")
def test_dropped_events_are_deleted_after_a_restart(
    store: Store, open_store_again: Opener, address: str
) -> None:
    handler = start_router(store)
    ids = play(handler, SECOND, 300)
    now = 3_000 * SECOND
    handler.sweep(now)
    while not handler.retention.to_delete:  # type: ignore[union-attr]
        assert handler.maintain(now)
    number = handler.repository.opened["ward"].row.number
    first = store.first_seq(number)
    assert store.has_dropped_events(number)
    assert read_log(store, number)[0].seq == first  # nobody reads them any more
    (answer,) = handler.perform([MakeDecision("ward", key=f"{SECOND}-0")], now)
    assert isinstance(answer, IdempotencyKeyReused)
    (answer,) = handler.perform([RecordReward(ids[0], 0.5)], now)
    assert isinstance(answer, DecisionNotFound)
    handler.close()
    again = make_handler(open_store_again())
    maintain(again, now)
    assert not again.store.has_dropped_events(number)
    assert again.repository.opened == {}  # it was looked at, and released
    assert audit_router(again.store, "ward").fault is None
    again.close()


@pytest.mark.usefixtures("short_segments")
def test_a_late_reward_is_kept_without_its_decision(store: Store) -> None:
    handler = start_router(store)
    ids = play(handler, SECOND, 100)
    (receipt,) = perform_all(handler, RecordReward(ids[0], 0.25, key="two"), at=1_000 * SECOND)
    assert receipt.receipt == "noted"
    play(handler, 1_001 * SECOND, 50, seed=1)
    number = handler.repository.opened["ward"].row.number
    maintain(handler, 1_500 * SECOND)
    first = store.first_seq(number)
    report = next(one for one in read_log(store, number) if one.of is not None and one.of < first)
    # the replay begins after the report, and the events before are verified by their hashes
    assert min(store.snapshot_seqs(number)) > report.seq
    assert audit_router(store, "ward").fault is None
    (answer,) = handler.perform([RecordReward(ids[1], 0.25, key="later")], 1_500 * SECOND)
    assert isinstance(answer, DecisionNotFound)
    handler.close()


@pytest.mark.usefixtures("short_segments")
def test_a_decision_that_is_open_keeps_its_segment(store: Store) -> None:
    handler = make_handler(store)
    perform_all(handler, CreateRouter("ward", make_config(make_five_expert_problem())))
    (waiting,) = perform_all(handler, MakeDecision("ward"))
    ids = play(handler, 2 * SECOND, 300)
    number, now = handler.repository.opened["ward"].row.number, 3_100 * SECOND
    maintain(handler, now)
    assert store.first_seq(number) == 0
    early = [RecordReward(id, 0.5) for id in (waiting.id, *ids[:100])]
    refused = [isinstance(one, DecisionNotFound) for one in handler.perform(early, now)]
    assert all(refused)  # they can be reported no longer
    handler.close()
    again = make_handler(store)  # nor after a restart, before anything else is done
    assert isinstance(again.perform(early[:1], now)[0], DecisionNotFound)
    again.close()


@pytest.mark.usefixtures("short_segments")
def test_a_damaged_snapshot_is_not_the_one_to_replay_from(store: Store, address: str) -> None:
    handler = start_router(store)
    play(handler, SECOND, 300)
    number, now = handler.repository.opened["ward"].row.number, 3_000 * SECOND
    kept = [one for one in store.segments(number) if one.ended < now - KEEP_US]
    damaged = kept[-1].last
    execute_statements(address, f"UPDATE snapshots SET seal = body WHERE seq = {damaged}")
    maintain(handler, now)
    assert store.first_seq(number) > 0
    assert min(store.snapshot_seqs(number)) != damaged
    handler.close()


@pytest.mark.usefixtures("short_segments")
def test_every_router_is_looked_at_also_if_that_takes_longer_than_the_interval(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_ROUTERS_PER_SCAN", 2)
    handler = make_handler(store)
    config = make_config(make_five_expert_problem())
    for n in range(9):
        perform_all(handler, CreateRouter(f"r{n}", config))
    looked: list[str] = []
    assert handler.retention is not None
    handler.retention.check_router = lambda row, at: looked.append(row.name)  # type: ignore[method-assign]
    for n in range(6):
        handler.retention.step(n * KEEP_US)
    assert looked == [f"r{n}" for n in range(9)]
    handler.close()


@pytest.mark.usefixtures("short_segments")
def test_a_replay_goes_on_if_a_server_drops_events_meanwhile(
    store: Store, open_store_again: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = start_router(store)
    play(handler, SECOND, 300)
    monkeypatch.setattr(loading, "EVENTS_PER_PAGE", 50)
    replay = RouterAggregate.replay

    def drop_and_replay(self: RouterAggregate, event: Event) -> None:
        if event.seq == 100:
            maintain(handler, 3_000 * SECOND)
        replay(self, event)

    monkeypatch.setattr(RouterAggregate, "replay", drop_and_replay)
    found = audit_router(open_store_again(), "ward")
    assert found.fault is None
    assert found.first > 100
    handler.close()


def test_a_store_of_version_5_is_migrated_and_still_proves_itself(
    store: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = start_router(store)
    play(handler, SECOND, 100)
    handler.close()
    stored = store.snapshot(1)
    assert stored is not None
    assert store.segments(1) == []
    store.close()
    execute_statements(address, "UPDATE bylot_meta SET version = 5", "DROP TABLE segments")
    monkeypatch.setattr(repository, "SEGMENT_EVENTS", 40)
    monkeypatch.setattr(repository, "SEGMENT_SNAPSHOT_BYTES_PER_EVENT", 10_000)
    with closing(open_store(address)) as migrated:
        assert audit_router(migrated, "ward").fault is None
        handler = make_handler(migrated)
        play(handler, 2_000 * SECOND, 100)
        assert len(migrated.segments(1)) > 0
        assert audit_router(migrated, "ward").fault is None
        handler.close()


@pytest.mark.usefixtures("short_segments")
def test_a_router_without_retention_keeps_all(store: Store) -> None:
    handler = start_router(store, keep_us=None)
    play(handler, SECOND, 100)
    maintain(handler, 10**6 * SECOND)
    number = handler.repository.opened["ward"].row.number
    assert len(store.segments(number)) == 2
    assert store.first_seq(number) == 0
    handler.close()


def test_the_first_segment_ends_after_a_day(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "MIN_EVENTS_BETWEEN_SNAPSHOTS", 40)
    monkeypatch.setattr(repository, "SEGMENT_SNAPSHOT_BYTES_PER_EVENT", 10_000)
    created = 20_000 * DAY
    handler = start_router(store, keep_us=None, at=created)
    number = handler.repository.opened["ward"].row.number
    play(handler, created, 100)
    assert store.segments(number) == []
    play(handler, created + DAY, 60)
    (first,) = store.segments(number)
    assert first.first == 0
    assert created + DAY <= first.ended < created + DAY + 600 * SECOND


def test_a_deleted_router_leaves_no_segment(store: Store) -> None:
    row = store.create("gone", 0, Event(0, 0, "created", None, None, 0, b"", b""))
    store.append([], [], [Segment(row.number, 0, 0, 0, b"", 0, 1)])
    store.delete(row.number)
    assert store.segments(row.number) == []


def test_parts_of_snapshots_after_segments_stay(store: Store) -> None:
    number = create_router(store)
    store.lease(number, "me", 60.0)
    store.append([], [], [Segment(number, 0, 0, 0, b"", 0, 1)])
    for seq, parts in ((0, 3), (1, 2), (2, 1)):
        for part in range(parts):
            store.add_snapshot_part(number, seq, part, b"part")
        store.append([], [Snapshot(number, seq, b"end", b"")])
    assert [store.delete_snapshot_part(number, 2) for _ in range(3)] == [True, True, False]
    assert store.snapshot_seqs(number) == [2, 0]
    base, latest = store.snapshot(number, 0), store.snapshot(number)
    assert base == Snapshot(number, 0, b"partpartpartend", b"")
    assert latest == Snapshot(number, 2, b"partend", b"")


@pytest.mark.usefixtures("short_segments")
def test_the_file_of_sqlite_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bylot.store.sqlite.SQLITE_SPARE_PAGES", 10)
    monkeypatch.setattr(retention, "MAX_EVENTS_PER_STEP", 50)
    path = tmp_path / "a.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        handler = start_router(store)
        play(handler, SECOND, 1_000)
        store._rows("PRAGMA wal_checkpoint(TRUNCATE)")
        before = path.stat().st_size
        maintain(handler, 10_000 * SECOND)
        store._rows("PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.stat().st_size < 0.35 * before
        assert audit_router(store, "ward").fault is None
        handler.close()


def test_only_the_deletion_of_old_events_does_not_wait_for_the_disk(
    store: Store, address: str
) -> None:
    number = create_router(store)
    query, durable, relaxed = "SHOW synchronous_commit", "on", "off"
    if address.startswith("sqlite"):
        query, durable, relaxed = "PRAGMA synchronous", "2", "1"

    def ask(**kind: bool) -> str:
        with store._transaction(**kind) as execute:
            ((found,),) = execute(query).fetchall()
            return str(found)

    assert [ask(), ask(durable=False), ask()] == [durable, relaxed, durable]
    with pytest.raises(StoreError), store._transaction(durable=False) as execute:
        execute("SELECT a FROM no_such_table")
    assert ask() == durable
    store.delete_dropped(number, 10)
    store.shrink(10)
    assert ask() == durable


class Logged(NamedTuple):
    """An event of a made-up log."""

    of: int | None
    closes: bool


@st.composite
def logs(draw: st.DrawFn) -> list[Logged]:
    """Decisions, and reports about earlier ones, some of which close them."""
    made: list[int] = []
    log: list[Logged] = []
    for seq in range(draw(st.integers(0, 40))):
        reports: bool = draw(st.booleans())
        of = draw(st.sampled_from(made)) if made and reports else None
        log.append(Logged(of, draw(st.booleans())))
        if of is None:
            made.append(seq)
    return log


def count_open(log: Sequence[Logged], end: int) -> set[int]:
    """The decisions that are open after so many events."""
    closed = {one.of for one in log[:end] if one.closes}
    return {seq for seq, one in enumerate(log[:end]) if one.of is None} - closed


@given(log=logs(), data=st.data())
def test_a_cut_is_the_largest_that_nothing_later_refers_to(
    log: list[Logged], data: st.DataObject
) -> None:
    ends = sorted(data.draw(st.sets(st.integers(0, max(0, len(log) - 1)))) if log else [])
    segments, first = [], 0
    for last in ends:
        about = [one.of for one in log[first : last + 1] if one.of is not None]
        refers, opened = min([first, *about]), min([last + 1, *count_open(log, last + 1)])
        segments.append(Segment(1, first, last, last, b"", refers, opened))
        first = last + 1
    running = min([first, *(one.of for one in log[first:] if one.of is not None)])
    bases = data.draw(st.sets(st.sampled_from(ends)) if ends else st.just(set()))
    before = data.draw(st.integers(0, len(log) + 1))

    def is_possible(plan: DropPlan) -> bool:
        later = [one.of for one in log[plan.base + 1 :] if one.of is not None]
        needed = [*later, *count_open(log, plan.base + 1)]
        return (
            plan.last < before
            and plan.last <= plan.base
            and min([plan.last + 1, *needed]) > plan.last
        )

    possible = [
        DropPlan(last, base) for last in ends for base in bases if is_possible(DropPlan(last, base))
    ]
    expected = max(possible, key=lambda plan: (plan.last, -plan.base), default=None)
    assert choose_drop(segments, bases, running, before) == expected


@pytest.mark.usefixtures("short_segments")
def test_compaction_returns_free_space_while_a_router_goes_on(store: Store, address: str) -> None:
    handler = start_router(store)
    play(handler, SECOND, 2_000)
    now = 20_000 * SECOND
    before = store.size()
    maintain(handler, now)
    stop, made = threading.Event(), list[str]()

    def decide() -> None:
        while not stop.wait(0.005):  # VACUUM cuts a table off only while nobody waits for it
            made.append(perform_all(handler, MakeDecision("ward"), at=now)[0].id)

    running = threading.Thread(target=decide)
    if address.startswith("postgresql"):  # a file of SQLite is compacted by its only user
        running.start()
    try:
        assert main(["store", "compact", "--store", address]) == 0
    finally:
        stop.set()
        if running.ident is not None:
            running.join()
    assert bool(made) == address.startswith("postgresql")
    assert store.size() < 0.6 * before
    assert audit_router(store, "ward").fault is None
    handler.close()
