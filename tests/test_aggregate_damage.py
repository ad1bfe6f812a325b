"""Lines and snapshots that are not what was written: noticed, whatever was changed."""

from typing import Any

import pytest
from msgspec import structs

from bylot.errors import StoreCorrupted
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.commands import MakeDecision
from bylot.eventlog.events import BODY_DECODERS, encode_body, rehash_event
from bylot.policies import POLICIES
from bylot.store.protocol import Event
from logged_aggregate import Diary, eventful


def damages(event: Event) -> list[Event]:
    """The line with one field changed in any way that the field allows."""
    flipped = [bytearray(event.body) for _ in event.body]
    for place, body in enumerate(flipped):
        body[place] ^= 1
    return [
        *(event._replace(body=bytes(body)) for body in flipped),
        event._replace(body=event.body + b"\0"),
        event._replace(seal=bytes(16)),
        event._replace(seq=event.seq + 1),
        event._replace(at=event.at + 1),
        event._replace(kind="cancelled" if event.kind != "cancelled" else "activated"),
        event._replace(of=2 if event.of is None else None),
        event._replace(key="other"),
        *([event._replace(router=2)] if event.seq else []),  # line 0 is where it comes from
    ]


def test_a_change_of_any_byte_in_any_field_of_any_line_is_noticed() -> None:
    diary = eventful()
    for damaged in damages(diary.log[0]):
        with pytest.raises(StoreCorrupted, match="event 0"):
            RouterAggregate.from_first_event("triage", damaged)
    fold = RouterAggregate.from_first_event("triage", diary.log[0])
    fold.find_events = diary.recall
    for event in diary.log[1:]:
        for damaged in damages(event):
            before = fold.fingerprint()
            with pytest.raises(StoreCorrupted):
                fold.replay(damaged)
            assert fold.fingerprint() == before, "a seal is looked at before anything is done"
        fold.replay(event)
    assert fold.fingerprint() == diary.fold.fingerprint()


def test_a_line_that_was_lost_or_moved_is_noticed() -> None:
    diary = eventful()
    for place in range(1, len(diary.log) - 1):
        short = Diary.__new__(Diary)
        short.log = [*diary.log[:place], *diary.log[place + 1 :]]
        with pytest.raises(StoreCorrupted, match="was changed, removed or moved"):
            short.replayed()


def test_a_forged_line_with_a_valid_seal_is_noticed_as_doing_it_again_gives_another() -> None:
    diary = eventful()
    for place, event in enumerate(diary.log[1:], start=1):
        fold = RouterAggregate.from_first_event("triage", diary.log[0])
        fold.find_events = diary.recall
        for earlier in diary.log[1:place]:
            fold.replay(earlier)
        for body in {one.body for one in damages(event)} - {event.body}:
            forged = rehash_event(fold.seal, event._replace(body=body))
            thawed = RouterAggregate.from_snapshot("triage", fold.take_snapshot())
            thawed.find_events = diary.recall
            try:
                thawed.replay(forged)
            except StoreCorrupted:
                continue
            # What it passes is another input, which is as good as the one that was given: only the
            # chain of seals can tell them apart, at the next line.
            assert inputs(forged) != inputs(event)
            if place + 1 < len(diary.log):
                with pytest.raises(StoreCorrupted):
                    thawed.replay(diary.log[place + 1])


def test_a_decision_that_would_be_made_otherwise_now_says_what_an_upgrade_needs() -> None:
    diary = eventful()
    fold = RouterAggregate.from_first_event("triage", diary.log[0])
    event = next(one for one in diary.log if one.kind == "decided")
    assert event.seq == 1
    line = BODY_DECODERS["decided"](event.body)
    other = structs.replace(line, spend=dict.fromkeys(line.spend, 0.0))
    with pytest.raises(StoreCorrupted, match="another version of bylot"):
        fold.replay(rehash_event(fold.seal, event._replace(body=encode_body(other))))


def inputs(event: Event) -> Any:
    """What a caller has said, of a line."""
    body = BODY_DECODERS[event.kind](event.body)
    names = ("context", "available", "defer", "by", "value", "spend", "key", "config")
    return [getattr(body, name, None) for name in names]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_snapshot_goes_on_as_the_fold_it_was_taken_of(policy: str) -> None:
    diary = Diary(policy=policy)
    for n in range(23):
        diary.reward(diary.decide(context=f"c{n % 5}"), n / 23)
    twin = RouterAggregate.from_snapshot("triage", diary.fold.take_snapshot())
    # Compiled code is made for types: other ones would be compiled again, for half a minute.
    assert twin.core._handle._numba_type_ == diary.fold.core._handle._numba_type_
    command = MakeDecision("triage", "c1")
    assert [twin.decide(9, command) for _ in range(30)] == [
        diary.fold.decide(9, command) for _ in range(30)
    ]
    assert twin.fingerprint() == diary.fold.fingerprint()


def test_a_snapshot_that_is_not_what_was_written_is_refused() -> None:
    diary = eventful()
    good = diary.fold.take_snapshot()
    bodies = [
        good.body[:place] + bytes([good.body[place] ^ 1]) + good.body[place + 1 :]
        for place in range(0, len(good.body), 97)
    ]
    for body in [*bodies, good.body[:-1], b""]:
        with pytest.raises(StoreCorrupted, match="triage"):
            RouterAggregate.from_snapshot("triage", good._replace(body=body))
    with pytest.raises(StoreCorrupted):
        RouterAggregate.from_snapshot("triage", good._replace(router=2))
    with pytest.raises(StoreCorrupted):
        RouterAggregate.from_snapshot("triage", good._replace(seq=good.seq - 1))
