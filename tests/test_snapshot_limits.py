"""Snapshots that are too large or too slow: what is refused, and how long a replay can take."""

import itertools
from typing import Any

import pytest

from bylot.errors import LeaseLost, PolicyError, StoreError
from bylot.eventlog import loading, repository, snapshot
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import (
    Command,
    CreateRouter,
    EditRouter,
    MakeDecision,
)
from bylot.eventlog.repository import RouterRepository
from bylot.problem import Problem
from bylot.router.config import RouterConfig
from bylot.store import Store
from sample_problem import make_five_expert_problem
from stored_router import make_stored_config
from stores import Opener

AT = 1_000_000


def send(handler: CommandHandler, command: Command) -> Any:
    """The answer to a command; an error is raised."""
    (answer,) = handler.perform([command], AT)
    if isinstance(answer, Exception):
        raise answer
    return answer


def make_config(**settings: Any) -> RouterConfig:
    """A router of five experts."""
    return make_stored_config(make_five_expert_problem(), "distinct", **settings)


def test_closing_continues_after_a_snapshot_that_cannot_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handler = CommandHandler(RouterRepository(store, "me"))
    for name in ("first", "second"):
        send(handler, CreateRouter(name, make_config()))
        send(handler, MakeDecision(name))
    first = handler.repository.opened["first"]

    def fail() -> None:
        raise StoreError("string or blob too big")

    monkeypatch.setattr(first.aggregate, "take_snapshot", fail)
    handler.close()
    assert store.lease_owners() == []
    assert store.snapshot(first.row.number) is None
    second = store.find("second")
    assert second is not None
    assert store.snapshot(second.number) is not None
    assert "router 'first': no snapshot was written" in caplog.text


def test_a_router_whose_snapshot_could_not_be_stored_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = CommandHandler(RouterRepository(store, "me"))
    send(handler, CreateRouter("small", make_config(max_contexts=50)))
    full = handler.repository.opened["small"].aggregate
    for n in range(50):
        send(handler, MakeDecision("small", context=str(n)))
    size = len(full.encode())
    monkeypatch.setattr(snapshot, "MAX_STATE_BYTES", size)
    send(handler, CreateRouter("fits", make_config(max_contexts=50)))
    with pytest.raises(PolicyError, match=r"max_contexts=5,000.*expected at most \d"):
        send(handler, CreateRouter("large", make_config(max_contexts=5_000)))
    with pytest.raises(PolicyError, match=r"max_contexts=5,000.*expected at most \d"):
        send(handler, EditRouter("small", make_config(max_contexts=5_000)))
    assert store.find("large") is None


def test_a_default_number_of_contexts_fits_into_a_store(store: Store) -> None:
    handler = CommandHandler(RouterRepository(store, "me"))
    pool = Problem([f"e{n}" for n in range(400)], {}, draws=2)
    config = make_stored_config(pool, "noisy-or")
    assert config.max_contexts > 500
    send(handler, CreateRouter("r", config))
    too_many = make_stored_config(pool, "noisy-or", max_contexts=1_000_000)
    with pytest.raises(PolicyError, match="max_contexts"):
        send(handler, CreateRouter("s", too_many))


def test_a_large_snapshot_is_written_in_parts_between_the_requests(
    store: Store, open_store_again: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SNAPSHOT_PART_BYTES", 1_000)
    handler = CommandHandler(RouterRepository(store, "me", every=20))
    send(handler, CreateRouter("r", make_config()))
    one = handler.repository.opened["r"]
    number, before = one.row.number, None
    for _ in range(2):
        contexts = itertools.count()
        while one.writing is None:
            send(handler, MakeDecision("r", context=f"context {next(contexts)}"))
        taken, calls = one.writing.snapshot, 0
        assert taken.seq == one.aggregate.seq
        while one.writing is not None:
            assert store.snapshot(number) in (before, taken)
            assert handler.maintain(AT)
            calls += 1
            if store.snapshot(number) != taken:
                send(handler, MakeDecision("r"))  # is served in between
        assert calls > 3
        assert store.snapshot(number) == taken
        assert not store.delete_snapshot_part(number, taken.seq), "nothing is left of the last one"
        before, one.snapshot_due = taken, one.aggregate.seq + 1
    store.release("me")
    reopened = CommandHandler(RouterRepository(open_store_again(), "you"))
    loaded = reopened.repository.get("r", AT)
    assert loaded.fingerprint() == one.aggregate.fingerprint()
    with pytest.raises(LeaseLost):
        store.add_snapshot_part(number, 0, 0, b"of a server that has lost its lease")
    send(reopened, MakeDecision("r"))
    reopened.repository.save(reopened.repository.opened["r"])  # writes all parts
    assert not store.delete_snapshot_part(number, taken.seq), "nor may it delete their parts"
    assert store.snapshot(number) == loaded.take_snapshot()
    reopened.close()
    store.delete(number)
    assert store.snapshot(number) is None
    assert not store.delete_snapshot_part(number, -1)


def test_a_snapshot_that_lacks_a_part_is_not_used(
    store: Store, open_store_again: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SNAPSHOT_PART_BYTES", 1_000)
    handler = CommandHandler(RouterRepository(store, "me"))
    send(handler, CreateRouter("r", make_config()))
    handler.perform([MakeDecision("r", context=str(n)) for n in range(20)], AT)
    one = handler.repository.opened["r"]
    handler.repository.close()
    store.lease(one.row.number, "me", 1.0)
    assert store.delete_snapshot_part(one.row.number, -1)
    store.release("me")
    reopened = RouterRepository(open_store_again(), "you")
    assert reopened.get("r", AT).fingerprint() == one.aggregate.fingerprint()


def test_the_work_while_a_snapshot_is_written_takes_no_longer_than_the_write(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SNAPSHOT_PART_BYTES", 1_000)
    handler = CommandHandler(RouterRepository(store, "me", every=20))
    send(handler, CreateRouter("r", make_config()))
    handler.perform([MakeDecision("r", context=str(n)) for n in range(20)], AT)
    one = handler.repository.opened["r"]
    one.work_s += 60.0
    assert handler.maintain(AT), "at once, as the router has worked for a minute meanwhile"
    assert one.writing is None
    assert one.saved_seq == 20


def test_a_snapshot_is_due_after_some_seconds_of_work(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = CommandHandler(RouterRepository(store, "me", every=1_000_000))
    send(handler, CreateRouter("r", make_config()))
    one = handler.repository.opened["r"]
    send(handler, MakeDecision("r"))
    assert store.snapshot(one.row.number) is None
    assert 0 < one.work_s < repository.MAX_REPLAY_S
    one.work_s += repository.MAX_REPLAY_S
    send(handler, MakeDecision("r"))
    saved = store.snapshot(one.row.number)
    assert saved is not None
    assert saved.seq == 2


def test_a_long_replay_keeps_the_leases_of_its_server(
    store: Store, open_store_again: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = CommandHandler(RouterRepository(store, "me", every=1_000_000))
    send(handler, CreateRouter("r", make_config()))
    handler.perform([MakeDecision("r") for _ in range(30)], AT)
    store.release("me")
    monkeypatch.setattr(loading, "EVENTS_PER_PAGE", 10)
    later = RouterRepository(open_store_again(), "you", lease=0.0)
    renewed: list[int] = []
    monkeypatch.setattr(later, "renew", lambda: renewed.append(1))
    later.get("r", AT)
    assert len(renewed) == 3  # one for each page
    assert later.opened["r"].work_s > 0
