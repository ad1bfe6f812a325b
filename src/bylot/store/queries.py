"""Looking up lines of a log: the same for every database, but for how its questions are written."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from bylot.errors import (
    IdempotencyKeyReused,
    LeaseLost,
    StoreCorrupted,
    StoreError,
    UnsupportedStore,
)
from bylot.store.protocol import DecisionEvents, Event


class EventQueries(NamedTuple):
    """The questions, each with the number of a router as its first value."""

    event: str
    last: str
    after: str
    latest: str
    edits: str
    since: str
    before: str
    keyed: str


class EventReader(ABC):
    """The part of a `Store` that reads lines."""

    queries: ClassVar[EventQueries]

    @abstractmethod
    def _lines(self, query: str, *values: int | str) -> list[Event]: ...

    def _line(self, query: str, *values: int | str) -> Event | None:
        return next(iter(self._lines(query, *values)), None)

    def last(self, router: int) -> Event | None:
        """The last line of a log."""
        return self._line(self.queries.last, router)

    def event(self, router: int, seq: int) -> Event | None:
        """One line of a log."""
        return self._line(self.queries.event, router, seq)

    def keyed(self, router: int, key: str) -> Event | None:
        """The decision that was made under this key."""
        return self._line(self.queries.keyed, router, key)

    def events(self, router: int, after: int = -1, limit: int = 1000) -> list[Event]:
        """Lines after one, in order."""
        return self._lines(self.queries.after, router, after, limit)

    def latest(self, router: int, kind: str, limit: int) -> list[Event]:
        """The last lines of a kind, newest first, among the last thousand of the log."""
        return self._lines(self.queries.latest, router, router, kind, limit)

    def edits(self, router: int, limit: int) -> list[Event]:
        """The last edits, newest first, wherever in the log they are."""
        return self._lines(self.queries.edits, router, limit)

    def past(self, router: int, seq: int) -> DecisionEvents | None:
        """A decision and all later lines that speak of it."""
        decided = self.event(router, seq)
        if decided is None or decided.kind != "decided":
            return None
        return DecisionEvents(decided, self._lines(self.queries.since, router, seq))

    def before(self, router: int, seq: int) -> list[Event]:
        """The lines that stand just before those that speak of a decision."""
        return self._lines(self.queries.before, router, seq)


STORE_VERSION = 1
"""Of the tables; a store of an older one would be brought to this one when it is opened."""


def check_store_version(place: str, rows: Sequence[tuple[int]]) -> None:
    """Refuse tables of a version that this bylot cannot read."""
    if len(rows) != 1:
        raise StoreCorrupted(
            f"{place}: its table bylot_meta has {len(rows)} rows instead of one; "
            "restore it from a copy"
        )
    if rows[0][0] != STORE_VERSION:
        raise UnsupportedStore(
            f"{place} is a store of version {rows[0][0]}, and this bylot knows version {STORE_VERSION} "
            "only; use the bylot that wrote it, or a newer one"
        )


def make_foreign_database_error(place: str) -> StoreError:
    """For a database that somebody else uses."""
    return UnsupportedStore(
        f"{place} has no table bylot_meta: it is no store, or belongs to another program; "
        "give an empty one, or a new name"
    )


def make_fenced_error(place: str, routers: Iterable[int]) -> LeaseLost:
    """For lines that do not continue a log, or of a router that another owner has."""
    lost = tuple(sorted(routers))
    return LeaseLost(
        f"{place}: the log of router {', '.join(map(str, lost))} was deleted, is another owner's, "
        "or goes on otherwise; nothing was written: read it again before writing",
        lost,
    )


def make_duplicate_event_error(place: str, error: Exception) -> IdempotencyKeyReused:
    """For a batch that is wrong in itself, or has a key that a decision had before."""
    return IdempotencyKeyReused(
        f"{place}: two lines under one number, or two decisions under one key ({error}); "
        "nothing was written"
    )


def make_unstorable_value_error(error: Exception) -> StoreError:
    """For texts and numbers that the database has no way to keep."""
    said = str(error).splitlines()[0]
    return StoreError(
        f"a text or number that cannot be kept ({said}); give short texts without NUL "
        "and half characters, and numbers below 2**63"
    )
