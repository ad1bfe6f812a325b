"""Where the pages get what they show: the service's routers, or whatever can tell the same."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from bylot.api import DecisionRecord, RouterView
from bylot.errors import RouterBusy, RouterNotFound
from bylot.eventlog.commands import DecisionId, RecallDecision, ShowRouter
from bylot.eventlog.history import BODY_DECODERS, format_timestamp
from bylot.router.config import RouterConfig
from bylot.store import Event, RouterRow, Store


class ListedRouter(Struct, frozen=True, kw_only=True):
    """A router of the list; `view` is None while nothing is known of it but its name.

    trouble: why it cannot be shown, such as that its log is damaged
    place:   where it is served: 'here', 'elsewhere', or 'asleep' until it is asked for
    """

    name: str
    view: RouterView | None = None
    place: str = "here"
    trouble: str | None = None


class ConfigChange(Struct, frozen=True, kw_only=True):
    """From some moment on, these terms."""

    at: str  # RFC 3339, UTC
    by: str | None  # the credential
    terms: RouterConfig


class DashboardSource(Protocol):
    """What pages ask for."""

    async def routers(self) -> list[ListedRouter]:
        """All routers, by name."""
        ...

    async def router(self, name: str) -> RouterView | None:
        """A router as it stands, None if there is none of this name."""
        ...

    async def latest(self, name: str, limit: int) -> list[DecisionRecord]:
        """Its last decisions, newest first, and what became of them."""
        ...

    async def edits(self, name: str) -> list[ConfigChange]:
        """Its terms, those of its creation first."""
        ...


ReadResult = TypeVar("ReadResult")

MAX_LISTED_ROUTERS = 1_000
"""Routers of the list."""
MAX_POLLED_ROUTERS = 50
"""Of these, so many are asked how they stand: to ask one opens it, and keeps the writer."""
POLL_BATCH_ROUTERS = 10
"""So many at a time: others have requests."""
LIST_REFRESH_S = 2.0
"""Seconds between two looks at all of them, however many people look at the page."""
MAX_CONFIG_VERSIONS = 50
"""Versions of terms that are told, besides the first."""


class CommandSender(Protocol):
    """The one who has the routers: the service's desk."""

    async def ask(self, command: Any) -> Any:
        """The answer to a command."""
        ...

    async def ask_all(self, commands: Sequence[Any]) -> list[Any]:
        """Answers to some, or the errors they came to."""
        ...


class StoreReader(Protocol):
    """The one who looks things up: the service's reader."""

    async def read(self, question: Callable[[Store], ReadResult]) -> ReadResult:
        """What a question to the store gives."""
        ...


class ServerSource:
    """A source; recent: names of routers that were asked for lately."""

    def __init__(
        self, desk: CommandSender, reader: StoreReader, recent: Callable[[], Collection[str]]
    ) -> None:
        self.desk, self.reader, self.recent = desk, reader, recent
        self.turn = asyncio.Lock()
        self.known: list[ListedRouter] = []
        self.until = 0.0

    async def routers(self) -> list[ListedRouter]:
        """All routers, as they stood a moment ago."""
        async with self.turn:
            if time.monotonic() >= self.until:
                self.known = await self.look()
                self.until = time.monotonic() + LIST_REFRESH_S
        return self.known

    async def look(self) -> list[ListedRouter]:
        """All routers now; of many, only those that were asked for lately are asked."""
        rows = await self.reader.read(lambda store: store.routers(limit=MAX_LISTED_ROUTERS))
        names = [row.name for row in rows]
        if len(names) > MAX_POLLED_ROUTERS:
            recent = [name for name in self.recent() if name in set(names)]
            names = recent[-MAX_POLLED_ROUTERS:]
        found: dict[str, ListedRouter] = {}
        for first in range(0, len(names), POLL_BATCH_ROUTERS):
            some = names[first : first + POLL_BATCH_ROUTERS]
            answers = await self.desk.ask_all([ShowRouter(name) for name in some])
            found |= {n: listed_router(n, answer) for n, answer in zip(some, answers, strict=True)}
        return [found.get(row.name) or ListedRouter(name=row.name, place="asleep") for row in rows]

    async def router(self, name: str) -> RouterView | None:
        """A router as it stands."""
        try:
            view: RouterView = await self.desk.ask(ShowRouter(name))
        except RouterNotFound:
            return None
        return view

    async def latest(self, name: str, limit: int) -> list[DecisionRecord]:
        """Its last decisions, newest first; what is still open only the desk knows."""
        lines = await self.reader.read(lambda store: read_latest_decisions(store, name, limit))
        ids = [str(DecisionId(name, line.router, line.seq)) for line in lines]
        answers = await self.desk.ask_all([RecallDecision(id) for id in ids])
        return [one for one in answers if isinstance(one, DecisionRecord)]

    async def edits(self, name: str) -> list[ConfigChange]:
        """Its terms, those of its creation first; older edits than the last few are in the log."""
        return await self.reader.read(lambda store: read_config_changes(store, name))


def listed_router(name: str, answer: RouterView | Exception) -> ListedRouter:
    """A router of the list, from what it answered."""
    if isinstance(answer, RouterBusy):
        return ListedRouter(name=name, place="elsewhere")
    if isinstance(answer, Exception):
        return ListedRouter(name=name, trouble=str(answer))
    return ListedRouter(name=name, view=answer)


def read_latest_decisions(store: Store, name: str, limit: int) -> list[Event]:
    """The lines of the last decisions, newest first."""
    row: RouterRow | None = store.find(name)
    return [] if row is None else store.latest(row.number, "decided", limit)


def read_config_changes(store: Store, name: str) -> list[ConfigChange]:
    """The terms of a router, from its log: all versions, or as many of the last."""
    row = store.find(name)
    first = None if row is None else store.event(row.number, 0)
    edits = [] if row is None else store.edits(row.number, MAX_CONFIG_VERSIONS)[::-1]
    lines = edits if first is None or len(edits) == MAX_CONFIG_VERSIONS else [first, *edits]
    bodies = [(line.at, BODY_DECODERS[line.kind](line.body)) for line in lines]
    return [
        ConfigChange(at=format_timestamp(at), by=body.by, terms=body.terms) for at, body in bodies
    ]
