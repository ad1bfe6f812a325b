"""What a store keeps, and what it promises: the same for every database.

The log is the truth: events of a router, numbered from 0 without gaps. (router, seq) is the primary
key, so that of two writers that believe a router to be theirs only one can append: the other is
`Fenced`, and has changed nothing. Snapshots only save time; they follow from the log.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class Event(NamedTuple):
    """One line of a router's log.

    seal: a digest of this line and of the seal before it, so that a line that was changed, lost or
    moved is noticed.
    """

    router: int
    seq: int
    kind: str  # created, decided, rewarded, activated, cancelled, closed, edited
    of: int | None  # the seq of the decision it speaks of
    key: str | None  # the caller's own name for it: no two decisions of a router have the same
    at: int  # microseconds since 1970, never less than of the line before
    body: bytes
    seal: bytes


class DecisionEvents(NamedTuple):
    """A decision, and what was said of it since."""

    decided: Event
    since: Sequence[Event]


class RouterRow(NamedTuple):
    """A router, by the number that its log is under; names can be used again, numbers never."""

    number: int
    name: str
    created: int  # microseconds since 1970


class Snapshot(NamedTuple):
    """What the log of a router adds up to, after line `seq`."""

    router: int
    seq: int
    body: bytes
    seal: bytes  # a digest of the body


class ApiKey(NamedTuple):
    """A credential: the store has a digest of its secret only."""

    id: str
    digest: bytes
    label: str
    scopes: tuple[str, ...]
    routers: tuple[str, ...]  # names; empty: all of them
    created: int
    revoked: int | None


class Store(Protocol):
    """One connection, for one thread at a time.

    A store that cannot be reached, is locked or is full raises StoreDown, after which the same call
    may succeed later (it connects anew). Every call that writes is one transaction, on disk when it
    returns.
    """

    address: str

    def create(self, name: str, at: int, first: Event) -> RouterRow:
        """A router under a new number, which takes the place of the one in `first`, line 0 of its
        log; NameTaken if the name is in use.
        """
        ...

    def delete(self, router: int) -> None:
        """Forget a router, its log and its snapshots; its number is never used again."""
        ...

    def find(self, name: str) -> RouterRow | None:
        """The router of this name."""
        ...

    def routers(self, after: str = "", limit: int = 1000) -> list[RouterRow]:
        """Routers by name, those after the given one."""
        ...

    def append(self, events: Sequence[Event], snapshots: Sequence[Snapshot] = ()) -> None:
        """Add lines to the logs of one or more routers, all or nothing.

        Fenced(routers) if one of these lines is there already, of a router that was deleted, or of
        one whose lease is another owner's: nothing was written then. A snapshot takes the place of
        an older one.
        """
        ...

    def last(self, router: int) -> Event | None:
        """The last line of a log."""
        ...

    def event(self, router: int, seq: int) -> Event | None:
        """One line of a log."""
        ...

    def events(self, router: int, after: int = -1, limit: int = 1000) -> list[Event]:
        """Lines after one, in order: by the primary key, so equally quick wherever they are."""
        ...

    def latest(self, router: int, kind: str, limit: int) -> list[Event]:
        """The last lines of a kind, newest first, among the last thousand or so of the log."""
        ...

    def edits(self, router: int, limit: int) -> list[Event]:
        """The last edits, newest first, wherever in the log they are."""
        ...

    def past(self, router: int, seq: int) -> DecisionEvents | None:
        """A decision and all later lines that speak of it."""
        ...

    def before(self, router: int, seq: int) -> list[Event]:
        """The lines that stand just before those that speak of a decision, in any order: by their
        seals it can be seen that what is said of it was not changed.
        """
        ...

    def keyed(self, router: int, key: str) -> Event | None:
        """The decision that was made under this key."""
        ...

    def snapshot(self, router: int) -> Snapshot | None:
        """The latest snapshot."""
        ...

    def lease(self, router: int, owner: str, seconds: float) -> float | None:
        """Take or renew the right to write to a log for some time, by the store's own clock.

        None if it was granted; else the seconds for which another owner still has it.
        """
        ...

    def renew(self, owner: str, seconds: float) -> set[int]:
        """Renew all leases of an owner; the numbers of the routers that are still its own."""
        ...

    def owners(self, router: int | None = None) -> list[str]:
        """Whoever has leases, of one router or of any, also such as ran out."""
        ...

    def release(self, owner: str, routers: Iterable[int] | None = None) -> None:
        """Give leases back: these, or all of an owner."""
        ...

    def add_key(self, key: ApiKey) -> None:
        """Keep a credential."""
        ...

    def keys(self) -> list[ApiKey]:
        """All credentials, revoked ones too, oldest first."""
        ...

    def revoke(self, id: str, at: int) -> bool:
        """From now on this credential is none; False if there is no such."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...
