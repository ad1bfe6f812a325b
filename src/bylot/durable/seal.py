"""Seals: digests that chain the lines of a log, so that none can be changed, lost or moved."""

from hashlib import blake2b

from msgspec import msgpack

from bylot.store.contract import Event

SIZE = 16  # bytes
ENCODE = msgpack.Encoder().encode  # a tuple of these has one encoding, and no other tuple has it


def sealed(
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
    seal = blake2b(ENCODE((before, number, seq, kind, of, key, at, body)), digest_size=SIZE)
    return Event(router, seq, kind, of, key, at, body, seal.digest())


def resealed(before: bytes, event: Event) -> Event:
    """The line with the seal that it should have."""
    return sealed(before, *event[:-1])


def digest(body: bytes) -> bytes:
    """The seal of a snapshot."""
    return blake2b(body, digest_size=SIZE).digest()
