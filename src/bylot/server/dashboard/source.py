"""Where the pages get their data: the writer and the reader of the server."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Literal, Protocol

from msgspec import Struct

from bylot.api import DecisionRecord, RouterView
from bylot.errors import RouterBusy, RouterNotFound
from bylot.eventlog.commands import DecisionId, RecallDecision, ShowRouter
from bylot.eventlog.events import BODY_DECODERS, format_timestamp
from bylot.router.config import RouterConfig
from bylot.server.writer import Reader, Writer
from bylot.store import Event, Store

MAX_LISTED_ROUTERS = 1_000
MAX_POLLED_ROUTERS = 50  # showing a router loads it, and occupies the writer
POLL_BATCH_ROUTERS = 10  # at a time, so that other requests are served in between
LIST_REFRESH_S = 2.0  # however many people look at the page
MAX_CONFIG_VERSIONS = 50  # shown besides the first


class ListedRouter(Struct, frozen=True, kw_only=True):
    """An entry of the list of routers.

    view:     None if only the name is known
    location: where the router is served; an unloaded router is loaded by the next request for it
    error:    why the router cannot be served, such as a damaged log
    """

    name: str
    view: RouterView | None = None
    location: Literal["here", "another server", "not loaded"] = "here"
    error: str | None = None


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A version of a router's configuration: since when, and by whom."""

    at: str  # RFC 3339, UTC
    by: str | None  # id of the API key
    config: RouterConfig


class DashboardSource(Protocol):
    """The data of the pages."""

    async def list_routers(self) -> list[ListedRouter]:
        """All routers, by name."""
        ...

    async def show_router(self, name: str) -> RouterView | None:
        """A router as it is now, None if there is none of this name."""
        ...

    async def latest_decisions(self, name: str, limit: int) -> list[DecisionRecord]:
        """The last decisions of a router, newest first."""
        ...

    async def config_changes(self, name: str) -> list[ConfigChange]:
        """The versions of a router's configuration, oldest first."""
        ...


class ServerSource:
    """The routers of a running server; recent: names of the routers that were used last."""

    def __init__(
        self, writer: Writer, reader: Reader, recent: Callable[[], Collection[str]]
    ) -> None:
        self.writer, self.reader, self.recent = writer, reader, recent
        self.refresh_lock = asyncio.Lock()
        self.cached: list[ListedRouter] = []
        self.cached_until = 0.0

    async def list_routers(self) -> list[ListedRouter]:
        """All routers, at most `LIST_REFRESH_S` old."""
        async with self.refresh_lock:
            if time.monotonic() >= self.cached_until:
                self.cached = await self.poll_routers()
                self.cached_until = time.monotonic() + LIST_REFRESH_S
        return self.cached

    async def poll_routers(self) -> list[ListedRouter]:
        """All routers now; if there are many, the status only of those used last."""
        rows = await self.reader.read(lambda store: store.routers(limit=MAX_LISTED_ROUTERS))
        names = [row.name for row in rows]
        if len(names) > MAX_POLLED_ROUTERS:
            recent = [name for name in self.recent() if name in set(names)]
            names = recent[-MAX_POLLED_ROUTERS:]
        found: dict[str, ListedRouter] = {}
        for first in range(0, len(names), POLL_BATCH_ROUTERS):
            some = names[first : first + POLL_BATCH_ROUTERS]
            views = await self.writer.execute_all([ShowRouter(name) for name in some])
            found |= {n: listed_router(n, view) for n, view in zip(some, views, strict=True)}
        return [
            found.get(row.name) or ListedRouter(name=row.name, location="not loaded")
            for row in rows
        ]

    async def show_router(self, name: str) -> RouterView | None:
        """A router as it is now."""
        try:
            view: RouterView = await self.writer.execute(ShowRouter(name))
        except RouterNotFound:
            return None
        return view

    async def latest_decisions(self, name: str, limit: int) -> list[DecisionRecord]:
        """The last decisions, newest first; the writer knows those that are still open."""
        events = await self.reader.read(lambda store: read_latest_decisions(store, name, limit))
        commands = [RecallDecision(str(DecisionId(name, one.router, one.seq))) for one in events]
        found = await self.writer.execute_all(commands)
        return [one for one in found if isinstance(one, DecisionRecord)]

    async def config_changes(self, name: str) -> list[ConfigChange]:
        """The first version of the configuration and the last few."""
        return await self.reader.read(lambda store: read_config_changes(store, name))


def listed_router(name: str, view: RouterView | Exception) -> ListedRouter:
    """An entry of the list, from the result of `ShowRouter`."""
    if isinstance(view, RouterBusy):
        return ListedRouter(name=name, location="another server")
    if isinstance(view, Exception):
        return ListedRouter(name=name, error=str(view))
    return ListedRouter(name=name, view=view)


def read_latest_decisions(store: Store, name: str, limit: int) -> list[Event]:
    """The events of the last decisions, newest first."""
    row = store.find(name)
    return [] if row is None else store.latest(row.number, "decided", limit)


def read_config_changes(store: Store, name: str) -> list[ConfigChange]:
    """The versions of a router's configuration, from its log: all, or the last few."""
    row = store.find(name)
    first = None if row is None else store.event(row.number, 0)
    events = [] if row is None else store.edits(row.number, MAX_CONFIG_VERSIONS)[::-1]
    if first is not None and len(events) < MAX_CONFIG_VERSIONS:
        events = [first, *events]
    bodies = [(one.at, BODY_DECODERS[one.kind](one.body)) for one in events]
    return [
        ConfigChange(at=format_timestamp(at), by=body.by, config=body.config) for at, body in bodies
    ]
