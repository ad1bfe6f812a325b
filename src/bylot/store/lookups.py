"""Looking up lines of a log: the same for every database, but for how its questions are written."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from bylot.store.contract import Event, Past


class Queries(NamedTuple):
    """The questions, each with the number of a router as its first value."""

    event: str
    last: str
    after: str
    latest: str
    edits: str
    since: str
    before: str
    keyed: str


class Lookups(ABC):
    """The part of a `Store` that reads lines."""

    queries: ClassVar[Queries]

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

    def past(self, router: int, seq: int) -> Past | None:
        """A decision and all later lines that speak of it."""
        decided = self.event(router, seq)
        if decided is None or decided.kind != "decided":
            return None
        return Past(decided, self._lines(self.queries.since, router, seq))

    def before(self, router: int, seq: int) -> list[Event]:
        """The lines that stand just before those that speak of a decision."""
        return self._lines(self.queries.before, router, seq)
