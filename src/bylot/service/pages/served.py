"""The routers of a running service as a source of pages."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from bylot.durable.commands import Recall, Recalled, RouterView, Show
from bylot.durable.history import READ, moment
from bylot.durable.ids import Id
from bylot.errors import NoSuchRouter, RouterBusy
from bylot.service.pages.source import Amended, Listed
from bylot.store import Event, RouterRow, Store

Answer = TypeVar("Answer")

MOST = 1_000
"""Routers of the list."""
AWAKE = 50
"""Of these, so many are asked how they stand: to ask one opens it, and keeps the writer."""
TOGETHER = 10
"""So many at a time: others have requests."""
EVERY = 2.0
"""Seconds between two looks at all of them, however many people look at the page."""
EDITS = 50
"""Versions of terms that are told, besides the first."""


class Asks(Protocol):
    """The one who has the routers: the service's desk."""

    async def ask(self, command: Any) -> Any:
        """The answer to a command."""
        ...

    async def ask_all(self, commands: Sequence[Any]) -> list[Any]:
        """Answers to some, or the errors they came to."""
        ...


class Reads(Protocol):
    """The one who looks things up: the service's reader."""

    async def read(self, question: Callable[[Store], Answer]) -> Answer:
        """What a question to the store gives."""
        ...


class Served:
    """A source; recent: names of routers that were asked for lately."""

    def __init__(self, desk: Asks, reader: Reads, recent: Callable[[], Collection[str]]) -> None:
        self.desk, self.reader, self.recent = desk, reader, recent
        self.turn = asyncio.Lock()
        self.known: list[Listed] = []
        self.until = 0.0

    async def routers(self) -> list[Listed]:
        """All routers, as they stood a moment ago."""
        async with self.turn:
            if time.monotonic() >= self.until:
                self.known = await self.look()
                self.until = time.monotonic() + EVERY
        return self.known

    async def look(self) -> list[Listed]:
        """All routers now; of many, only those that were asked for lately are asked."""
        rows = await self.reader.read(lambda store: store.routers(limit=MOST))
        names = [row.name for row in rows]
        if len(names) > AWAKE:
            recent = [name for name in self.recent() if name in set(names)]
            names = recent[-AWAKE:]
        found: dict[str, Listed] = {}
        for first in range(0, len(names), TOGETHER):
            some = names[first : first + TOGETHER]
            answers = await self.desk.ask_all([Show(name) for name in some])
            found |= {n: listed(n, answer) for n, answer in zip(some, answers, strict=True)}
        return [found.get(row.name) or Listed(name=row.name, place="asleep") for row in rows]

    async def router(self, name: str) -> RouterView | None:
        """A router as it stands."""
        try:
            view: RouterView = await self.desk.ask(Show(name))
        except NoSuchRouter:
            return None
        return view

    async def latest(self, name: str, limit: int) -> list[Recalled]:
        """Its last decisions, newest first; what is still open only the desk knows."""
        lines = await self.reader.read(lambda store: decided(store, name, limit))
        ids = [str(Id(name, line.router, line.seq)) for line in lines]
        answers = await self.desk.ask_all([Recall(id) for id in ids])  # noqa: A001
        return [one for one in answers if isinstance(one, Recalled)]

    async def edits(self, name: str) -> list[Amended]:
        """Its terms, those of its creation first; older edits than the last few are in the log."""
        return await self.reader.read(lambda store: amended(store, name))


def listed(name: str, answer: RouterView | Exception) -> Listed:
    """A router of the list, from what it answered."""
    if isinstance(answer, RouterBusy):
        return Listed(name=name, place="elsewhere")
    if isinstance(answer, Exception):
        return Listed(name=name, trouble=str(answer))
    return Listed(name=name, view=answer)


def decided(store: Store, name: str, limit: int) -> list[Event]:
    """The lines of the last decisions, newest first."""
    row: RouterRow | None = store.find(name)
    return [] if row is None else store.latest(row.number, "decided", limit)


def amended(store: Store, name: str) -> list[Amended]:
    """The terms of a router, from its log: all versions, or as many of the last."""
    row = store.find(name)
    first = None if row is None else store.event(row.number, 0)
    edits = [] if row is None else store.edits(row.number, EDITS)[::-1]
    lines = edits if first is None or len(edits) == EDITS else [first, *edits]
    bodies = [(line.at, READ[line.kind](line.body)) for line in lines]
    return [Amended(at=moment(at), by=body.by, terms=body.terms) for at, body in bodies]
