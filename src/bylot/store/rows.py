"""Rows of the tables of a store."""

from collections.abc import Sequence
from typing import NamedTuple


class Event(NamedTuple):
    """One event of a router's log."""

    router: int
    seq: int
    kind: str  # a key of `bylot.eventlog.events.EVENT_BODIES`
    of: int | None  # the seq of the decision that it is about
    key: str | None  # idempotency key: unique among the decisions of a router
    at: int  # microseconds since 1970, never before the previous event
    body: bytes
    seal: bytes  # hash of this event and of the seal before it: a change is detected


class DecisionEvents(NamedTuple):
    """A decision, and the later events about it."""

    decided: Event
    since: Sequence[Event]


class RouterRow(NamedTuple):
    """A router, by the number of its log; a name can be reused, a number never."""

    number: int
    name: str
    created: int  # microseconds since 1970


class Snapshot(NamedTuple):
    """The state of a router after event `seq`."""

    router: int
    seq: int
    body: bytes
    seal: bytes  # a hash of the body


class Segment(NamedTuple):
    """A part of a log that has ended; the event after it records the state at that time.

    ended:      when its last event happened, in microseconds since 1970
    seal:       of its last event, so that the next one can be verified without it
    refers:     the oldest decision that its events are about; its first event if none is older
    open_since: the oldest decision that was open at its end; the next event if there was none
    dropped:    1 if its events are deleted, or will be
    """

    router: int
    first: int
    last: int
    ended: int
    seal: bytes
    refers: int
    open_since: int
    dropped: int = 0


class ApiKey(NamedTuple):
    """A credential; the store has only a digest of its secret."""

    id: str
    digest: bytes
    label: str
    scopes: tuple[str, ...]
    routers: tuple[str, ...]  # names; empty: all of them
    created: int
    revoked: int | None


class ServerRow(NamedTuple):
    """A server that shares the store; owner: as of leases; release: of bylot."""

    owner: str
    address: str
    release: str
