"""Hash chain: each event carries a hash of itself and of its predecessor; verified reads."""

from hashlib import blake2b

from msgspec import msgpack

from bylot.errors import StoreCorrupted
from bylot.store import DecisionEvents, Event, Store

HASH_BYTES = 16
encode_hashed_fields = msgpack.Encoder().encode  # an injective encoding of tuples


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
    """An event with its seal: blake2b of the seal before it and of all its other fields.

    Event 0 is made before the store has assigned the number of the router, so its seal does not
    cover the number; every later one does.
    """
    number = router if seq else None
    fields = encode_hashed_fields((before, number, seq, kind, of, key, at, body))
    seal = blake2b(fields, digest_size=HASH_BYTES).digest()
    return Event(router, seq, kind, of, key, at, body, seal)


def rehash_event(before: bytes, event: Event) -> Event:
    """The event with the seal that it should have."""
    return chain_event(before, *event[:-1])


def hash_snapshot(body: bytes) -> bytes:
    """The seal of a snapshot."""
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


def read_decision_by_key(store: Store, router: int, key: str) -> Event | None:
    """The decision made under an idempotency key, verified."""
    found = store.decision_by_key(router, key)
    if found is not None:
        verify_event_hash(found, store.event(router, found.seq - 1))
    return found


def verify_event_hash(event: Event, before: Event | None) -> None:
    """Refuse an event that was changed after it was written."""
    if before is None or rehash_event(before.seal, event) != event:
        raise StoreCorrupted(
            f"event {event.seq} of the log of router {event.router} was changed",
            remedy="restore the store from a backup",
        )
