"""Damaged events and snapshots are detected, whatever was changed."""

from typing import Any

import pytest
from msgspec import structs

from bylot.errors import StoreCorrupted
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.commands import MakeDecision
from bylot.eventlog.events import BODY_DECODERS, encode_body, rehash_event
from bylot.policies import POLICIES
from bylot.store.schema import (
    Event,
)
from logged_aggregate import LoggedRouter, make_log_with_every_event


def list_damaged_events(event: Event) -> list[Event]:
    """The event with one field changed, in all ways that the field allows."""
    flipped = [bytearray(event.body) for _ in event.body]
    for position, body in enumerate(flipped):
        body[position] ^= 1
    return [
        *(event._replace(body=bytes(body)) for body in flipped),
        event._replace(body=event.body + b"\0"),
        event._replace(seal=bytes(16)),
        event._replace(seq=event.seq + 1),
        event._replace(at=event.at + 1),
        event._replace(kind="cancelled" if event.kind != "cancelled" else "activated"),
        event._replace(of=2 if event.of is None else None),
        event._replace(key="other"),
        *(
            [event._replace(router=2)] if event.seq else []
        ),  # event 0 defines the number of the router
    ]


def test_any_changed_byte_of_any_event_is_detected() -> None:
    logged = make_log_with_every_event()
    for damaged in list_damaged_events(logged.log[0]):
        with pytest.raises(StoreCorrupted, match="event 0"):
            RouterAggregate.from_first_event("triage", damaged)
    aggregate = RouterAggregate.from_first_event("triage", logged.log[0])
    aggregate.find_events = logged.find_events_of
    for event in logged.log[1:]:
        for damaged in list_damaged_events(event):
            before = aggregate.fingerprint()
            with pytest.raises(StoreCorrupted):
                aggregate.replay(damaged)
            assert aggregate.fingerprint() == before, "the hash is checked before anything is done"
        aggregate.replay(event)
    assert aggregate.fingerprint() == logged.aggregate.fingerprint()


def test_a_missing_event_is_detected() -> None:
    logged = make_log_with_every_event()
    for position in range(1, len(logged.log) - 1):
        shortened = LoggedRouter.__new__(LoggedRouter)
        shortened.log = [*logged.log[:position], *logged.log[position + 1 :]]
        with pytest.raises(StoreCorrupted, match="was changed, removed or moved"):
            shortened.replay_log()


def test_a_forged_event_with_a_valid_hash_is_detected_by_replay() -> None:
    logged = make_log_with_every_event()
    for position, event in enumerate(logged.log[1:], start=1):
        aggregate = RouterAggregate.from_first_event("triage", logged.log[0])
        aggregate.find_events = logged.find_events_of
        for earlier in logged.log[1:position]:
            aggregate.replay(earlier)
        for body in {one.body for one in list_damaged_events(event)} - {event.body}:
            forged = rehash_event(aggregate.seal, event._replace(body=body))
            restored = RouterAggregate.from_snapshot("triage", aggregate.take_snapshot())
            restored.find_events = logged.find_events_of
            try:
                restored.replay(forged)
            except StoreCorrupted:
                continue
            # It passes if only the input differs, which is as valid as the original one: only the
            # hash chain can distinguish them, at the next event.
            assert list_inputs(forged) != list_inputs(event)
            if position + 1 < len(logged.log):
                with pytest.raises(StoreCorrupted):
                    restored.replay(logged.log[position + 1])


def test_a_decision_that_replays_differently_names_another_version() -> None:
    logged = make_log_with_every_event()
    aggregate = RouterAggregate.from_first_event("triage", logged.log[0])
    event = next(one for one in logged.log if one.kind == "decided")
    assert event.seq == 1
    body_of_decision = BODY_DECODERS["decided"](event.body)
    changed = structs.replace(body_of_decision, spend=dict.fromkeys(body_of_decision.spend, 0.0))
    with pytest.raises(StoreCorrupted, match="another version of bylot"):
        aggregate.replay(rehash_event(aggregate.seal, event._replace(body=encode_body(changed))))


def list_inputs(event: Event) -> Any:
    """The inputs of the caller in an event."""
    body = BODY_DECODERS[event.kind](event.body)
    names = (
        "context",
        "available",
        "defer",
        "holder",
        "by",
        "value",
        "spend",
        "member_spend",
        "key",
        "config",
    )
    return [getattr(body, name, None) for name in names]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_snapshot_continues_like_its_aggregate(policy: str) -> None:
    logged = LoggedRouter(policy=policy)
    for n in range(23):
        logged.reward(logged.decide(context=f"c{n % 5}"), n / 23)
    restored = RouterAggregate.from_snapshot("triage", logged.aggregate.take_snapshot())
    # Compiled code depends on types: other types would be compiled again, for half a minute.
    assert restored.core._handle._numba_type_ == logged.aggregate.core._handle._numba_type_
    command = MakeDecision("triage", "c1")
    assert [restored.decide(9, command) for _ in range(30)] == [
        logged.aggregate.decide(9, command) for _ in range(30)
    ]
    assert restored.fingerprint() == logged.aggregate.fingerprint()


def test_a_damaged_snapshot_is_refused() -> None:
    logged = make_log_with_every_event()
    snapshot = logged.aggregate.take_snapshot()
    bodies = [
        snapshot.body[:position]
        + bytes([snapshot.body[position] ^ 1])
        + snapshot.body[position + 1 :]
        for position in range(0, len(snapshot.body), 97)
    ]
    for body in [*bodies, snapshot.body[:-1], b""]:
        with pytest.raises(StoreCorrupted, match="triage"):
            RouterAggregate.from_snapshot("triage", snapshot._replace(body=body))
    with pytest.raises(StoreCorrupted):
        RouterAggregate.from_snapshot("triage", snapshot._replace(router=2))
    with pytest.raises(StoreCorrupted):
        RouterAggregate.from_snapshot("triage", snapshot._replace(seq=snapshot.seq - 1))
