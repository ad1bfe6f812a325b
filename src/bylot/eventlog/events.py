"""Events of a log: their bodies and encoding, the hash chain, verified reads, timestamps.

Each event carries a seal, a hash of itself and of the seal of its predecessor.

CONTRIBUTING.md says how an event is added.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from msgspec import msgpack

from bylot.errors import StoreCorrupted
from bylot.limits.book import Tables
from bylot.problem.instants import LAST_SECOND
from bylot.router.changes import (
    Change,
    DecisionActivated,
    DecisionCancelled,
    DecisionClosed,
    MemberReplaced,
    PackedDecision,
    RewardReceived,
)
from bylot.router.config import RouterConfig
from bylot.router.past_rounds import PastRound
from bylot.store import DecisionEvents, Event, Store

UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HASH_BYTES = 16
LOG_VERSION = 2


class ConfigRecorded(Change, frozen=True):
    """An event with the configuration that is in force after it."""

    config: RouterConfig


class RouterCreated(ConfigRecorded, frozen=True):
    """Event 0: the configuration of the router, its name, and the version of its log."""

    name: str
    log: int = 1


class RouterCopied(ConfigRecorded, frozen=True):
    """Event 0 of a router that continues another one, from a snapshot after event -1."""

    name: str
    state: bytes  # the hash of the snapshot
    origin: str  # where it comes from, for people


class ConfigChanged(ConfigRecorded, frozen=True):
    """Another configuration from here on."""

    tables: Tables | None = None  # of windows, if they had to be filled


class KeyChanged(Change, frozen=True):
    """A key has bounds of its own from here on; without limits, those of all apply again."""

    scope: str
    key: str
    limits: tuple[dict[str, Any], ...]


class RoundsLearned(Change, frozen=True):
    """Rounds of the log of another router were learned; no decision was made before."""

    rounds: tuple[PastRound, ...]


class SegmentSealed(ConfigRecorded, frozen=True):
    """A segment of the log ended before this event. With a snapshot of that moment, the log can be
    continued and verified from here on without the events before.
    """

    name: str
    state: bytes  # the hash of the snapshot


class Remark(Change, frozen=True):
    """An event that changes nothing in the router: to replay it is to write it again."""


EVENT_BODIES: Mapping[str, type[Change]] = {
    "created": RouterCreated,
    "copied": RouterCopied,
    "decided": PackedDecision,
    "rewarded": RewardReceived,
    "replaced": MemberReplaced,
    "activated": DecisionActivated,
    "cancelled": DecisionCancelled,
    "closed": DecisionClosed,
    "edited": ConfigChanged,
    "key": KeyChanged,
    "learned": RoundsLearned,
    "sealed": SegmentSealed,
}
EVENT_KINDS = {body: kind for kind, body in EVENT_BODIES.items()}
BODY_DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    kind: msgpack.Decoder(body).decode for kind, body in EVENT_BODIES.items()
}
encode_body = msgpack.Encoder().encode  # of tuples, it is injective


def find_learned_value(body: Change) -> float | None:
    """The value that the policy learned by an event, if any."""
    match body:
        case RewardReceived(receipt="learned"):
            return body.value
        case DecisionClosed():
            return body.learned
    return None


def hash_event(before: bytes, router: int, seq: int, *fields: str | int | bytes | None) -> bytes:
    """The seal of an event: blake2b of the seal before it and of all its other fields.

    Event 0 is made before the store has assigned the number of the router, so its seal does not
    cover the number; every later one does.
    """
    content = encode_body((before, router if seq else None, seq, *fields))
    return blake2b(content, digest_size=HASH_BYTES).digest()


def rehash_event(before: bytes, event: Event) -> Event:
    """The event with the seal that it should have."""
    fields = event[:-1]
    return Event(*fields, hash_event(before, *fields))


def hash_snapshot(body: bytes) -> bytes:
    return blake2b(body, digest_size=HASH_BYTES).digest()


def read_decision_events(store: Store, router: int, seq: int) -> DecisionEvents | None:
    """A decision and the later events about it, verified."""
    found = store.decision_events(router, seq)
    if found is None:
        return None
    verify_event_hash(found.decided, store.event(router, seq - 1))
    if found.since:
        before = {one.seq: one for one in store.preceding_events(router, seq)}
        for event in found.since:
            verify_event_hash(event, before.get(event.seq - 1))
    return found


def verify_chain(events: Iterable[Event], seal: bytes, first: int, name: str) -> Iterator[Event]:
    """Events that follow each other, verified one by one; seal: of the event before the first."""
    for seq, event in enumerate(events, first):
        if event.seq != seq or rehash_event(seal, event) != event:
            raise StoreCorrupted(f"router {name!r}: event {seq} of its log was changed or removed")
        seal = event.seal
        yield event


def read_decision_by_key(store: Store, router: int, key: str, expired: int = 0) -> Event | None:
    """The decision made under an idempotency key, verified unless it is before `expired`: the event
    before that one may be deleted.
    """
    found = store.decision_by_key(router, key)
    if found is not None and found.seq >= expired:
        verify_event_hash(found, store.event(router, found.seq - 1))
    return found


def verify_event_hash(event: Event, before: Event | None) -> None:
    """Refuse an event that was changed after it was written."""
    if before is None or rehash_event(before.seal, event) != event:
        raise StoreCorrupted(f"event {event.seq} of the log of router {event.router} was changed")


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000


@lru_cache(64)  # the commands of a commit have one time
def format_timestamp(at: int) -> str:
    """Microseconds since 1970 as RFC 3339, UTC; times after the year 9999 as its last second.

    >>> format_timestamp(1_500_000), format_timestamp(10**18)
    ('1970-01-01T00:00:01.500000Z', '9999-12-31T23:59:59.000000Z')
    """
    seconds, rest = divmod(min(at, LAST_SECOND * 1_000_000), 1_000_000)
    return f"{(UNIX_EPOCH + timedelta(seconds=seconds)).isoformat()[:-6]}.{rest:06}Z"
