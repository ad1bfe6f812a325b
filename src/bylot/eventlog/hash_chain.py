"""Single lines of a log, looked up in a store and held against their seals."""

from hashlib import blake2b

from msgspec import msgpack

from bylot.errors import StoreCorrupted
from bylot.store import DecisionEvents, Event, Store

HASH_BYTES = 16  # bytes
encode_hashed_fields = (
    msgpack.Encoder().encode
)  # a tuple of these has one encoding, and no other tuple has it


def chain_event(
    before: bytes,
    router: int,
    seq: int,
    kind: str,
    of: int | None,
    key: str | None,
    at: int,
    body: bytes,
) -> Event:
    """The line with its seal: blake2b of the seal before it and of all its other fields.

    Line 0 is written before the store has given the router its number, so that its seal does
    without; every later one has it.
    """
    number = router if seq else None
    seal = blake2b(
        encode_hashed_fields((before, number, seq, kind, of, key, at, body)), digest_size=HASH_BYTES
    )
    return Event(router, seq, kind, of, key, at, body, seal.digest())


def rehash_event(before: bytes, event: Event) -> Event:
    """The line with the seal that it should have."""
    return chain_event(before, *event[:-1])


def hash_snapshot(body: bytes) -> bytes:
    """The seal of a snapshot."""
    return blake2b(body, digest_size=HASH_BYTES).digest()


def read_decision_events(store: Store, router: int, seq: int) -> DecisionEvents | None:
    """A decision and what was said of it since."""
    found = store.decision_events(router, seq)
    if found is None:
        return None
    verify_event_hash(found.decided, store.event(router, seq - 1))
    if found.since:
        before = {one.seq: one for one in store.preceding_events(router, seq)}
        for event in found.since:
            verify_event_hash(event, before.get(event.seq - 1))
    return found


def read_decision_by_key(store: Store, router: int, key: str) -> Event | None:
    """The decision made under a key."""
    found = store.decision_by_key(router, key)
    if found is not None:
        verify_event_hash(found, store.event(router, found.seq - 1))
    return found


def verify_event_hash(event: Event, before: Event | None) -> None:
    """A line that was changed after it was written must not be learned from, nor answered with;
    the seal of the one before it tells.
    """
    if before is None or rehash_event(before.seal, event) != event:
        raise StoreCorrupted(
            f"line {event.seq} of the log of router {event.router} is not what was written; "
            "restore the store from a copy"
        )
