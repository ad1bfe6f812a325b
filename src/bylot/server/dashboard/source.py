"""Where the pages get their data: the writer and the reader of the server."""

import asyncio
import time
from collections.abc import Collection, Mapping

from msgspec import Struct

from bylot.api import DecisionRecord, RouterView
from bylot.errors import RouterNotFound
from bylot.eventlog.commands import DecisionId, GetDecision, GetRouter
from bylot.eventlog.events import BODY_DECODERS, format_timestamp
from bylot.router.config import RouterConfig
from bylot.server.writer import Reader, Writer
from bylot.store import Event, Store

MAX_LISTED_ROUTERS = 1_000
MAX_POLLED_ROUTERS = 50  # showing a router loads it, and occupies the writer
LIST_REFRESH_S = 2.0  # however many people look at the page
MAX_CONFIG_VERSIONS = 50  # shown besides the first


ListedRouters = Mapping[str, RouterView | Exception | None]
"""By name: a router, why it cannot be shown here, or None if it is not loaded; the next request for
it loads it.
"""


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A version of a router's configuration: since when, and by whom."""

    at: str  # RFC 3339, UTC
    by: str | None  # id of the API key
    config: RouterConfig


class ServerSource:
    """The routers of a running server; recent: names of the routers that were used last."""

    def __init__(self, writer: Writer, reader: Reader, recent: Collection[str]) -> None:
        self.writer, self.reader, self.recent = writer, reader, recent
        self.refresh_lock = asyncio.Lock()
        self.cached: ListedRouters = {}
        self.cached_until = 0.0

    async def list_routers(self) -> ListedRouters:
        """All routers, at most `LIST_REFRESH_S` old."""
        async with self.refresh_lock:
            if time.monotonic() >= self.cached_until:
                self.cached = await self.poll_routers()
                self.cached_until = time.monotonic() + LIST_REFRESH_S
        return self.cached

    async def poll_routers(self) -> ListedRouters:
        """All routers now; if there are many, the status only of those used last."""
        rows = await self.reader.read(lambda store: store.routers(limit=MAX_LISTED_ROUTERS))
        names = [row.name for row in rows]
        if len(names) > MAX_POLLED_ROUTERS:
            recent = [name for name in self.recent if name in set(names)]
            names = recent[-MAX_POLLED_ROUTERS:]
        views = await self.writer.show_routers(names)
        return {row.name: views.get(row.name) for row in rows}

    async def show_router(self, name: str) -> RouterView | None:
        """A router as it is now, None if there is none of this name."""
        try:
            view: RouterView = await self.writer.execute(GetRouter(name))
        except RouterNotFound:
            return None
        return view

    async def latest_decisions(self, name: str, limit: int) -> list[DecisionRecord]:
        """The last decisions, newest first; the writer knows those that are still open."""
        events = await self.reader.read_router(
            name, lambda store, number: store.latest(number, "decided", limit)
        )
        ids = [DecisionId.of_event(name, one) for one in events or ()]
        commands = [GetDecision(str(id)) for id in ids]
        found = await self.writer.execute_all(commands)
        return [one for one in found if isinstance(one, DecisionRecord)]

    async def config_changes(self, name: str) -> list[ConfigChange]:
        """The versions of a router's configuration, oldest first: all, or the last few."""

        def read(store: Store, number: int) -> list[Event]:
            edits = store.edits(number, MAX_CONFIG_VERSIONS)[::-1]
            first = store.event(number, 0) if len(edits) < MAX_CONFIG_VERSIONS else None
            return edits if first is None else [first, *edits]

        events = await self.reader.read_router(name, read) or []
        bodies = [BODY_DECODERS[one.kind](one.body) for one in events]
        return [
            ConfigChange(at=format_timestamp(one.at), by=body.by, config=body.config)
            for one, body in zip(events, bodies, strict=True)
        ]
