"""Where the pages get their data: the commands and the reader of the server, and what the last
events of a log say: reference levels of reward, and outages.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct
from starlette.concurrency import run_in_threadpool

from bylot.api import DecisionRecord, RouterView
from bylot.errors import BylotError, RouterNotFound
from bylot.evaluate.log import find_unknown_experts, log_from_entries
from bylot.evaluate.result import ReferenceLevel, estimate_reference_levels
from bylot.eventlog.commands import GetDecision, GetRouter, format_decision_id
from bylot.eventlog.decision_log import LogReader
from bylot.eventlog.events import BODY_DECODERS, ConfigChanged, format_timestamp
from bylot.gateway.gateway import Gateway
from bylot.router.config import RouterConfig
from bylot.server.writer import CommandRunner, Reader
from bylot.store import Event, Store

log = logging.getLogger("bylot.server")
MAX_LISTED_ROUTERS = 1_000
MAX_POLLED_ROUTERS = 50  # showing a router loads it, and occupies the writer
LIST_REFRESH_S = 2.0  # however many people look at the page
MAX_CONFIG_VERSIONS = 50  # shown besides the first
MAX_CACHED_LOGS = 20
LOG_REFRESH_S = 30.0
LOG_WAIT_S = 0.5
MAX_EVENTS_READ = 5_000
MAX_OUTAGES = 100
DAY_US = 86_400_000_000

ListedRouters = Mapping[str, RouterView | Exception | None]
"""By name: a router, why it cannot be shown here, or None if it is not loaded; the next request for
it loads it.
"""


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A version of a router's configuration: since when, and by whom."""

    at: str  # RFC 3339, UTC
    by: str | None  # id of the API key
    config: RouterConfig
    seq: int = 0  # of its event


class RecentLog(Struct, frozen=True):
    """The last decisions of a log.

    outages: successive decisions at which a limit could not be met: from when to when, how many
    """

    decisions: int = 0
    levels: list[ReferenceLevel] = []
    outages: list[dict[str, Any]] = []


class CachedLog(Struct):
    """The recent log of a router: the one to show, the next one, and when to read it again."""

    shown: RecentLog
    task: "asyncio.Task[RecentLog]"
    until: float


class ServerSource:
    """The routers of a running server.

    runner:  executes commands, on whichever server owns the router
    recent:  names of the routers that were used last
    gateway: what asks models for some of the routers
    """

    def __init__(
        self,
        runner: CommandRunner,
        reader: Reader,
        recent: Collection[str],
        gateway: Gateway,
    ) -> None:
        self.runner, self.reader, self.recent, self.gateway = runner, reader, recent, gateway
        self.refresh_lock = asyncio.Lock()
        self.cached: ListedRouters = {}
        self.cached_until = 0.0
        self.logs: dict[str, CachedLog] = {}  # of the routers looked at last

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
            names = [name for name in self.recent if name in set(names)][-MAX_POLLED_ROUTERS:]
        views = await self.runner.show_routers(names)
        for name, found in views.items():
            if isinstance(found, RouterView):
                views[name] = self.gateway.judge(found)
        return {row.name: views.get(row.name) for row in rows}

    async def show_router(self, name: str) -> RouterView | None:
        """A router as it is now, None if there is none of this name."""
        try:
            view: RouterView = await self.runner.execute(GetRouter(name))
        except RouterNotFound:
            return None
        return self.gateway.judge(view)

    async def latest_decisions(self, name: str, limit: int) -> list[DecisionRecord]:
        """The last decisions, newest first; the writer knows those that are still open."""
        events = await self.reader.read_router(
            name, lambda store, number: store.latest(number, "decided", limit)
        )
        commands = [GetDecision(format_decision_id(name, one)) for one in events or ()]
        found = await self.runner.execute_all(commands)
        return [one for one in found if isinstance(one, DecisionRecord)]

    async def config_changes(self, name: str) -> list[ConfigChange]:
        """The versions of a router's configuration, oldest first: all, or the last few."""

        def read(store: Store, number: int) -> list[Event]:
            edits = store.edits(number, MAX_CONFIG_VERSIONS)[::-1]
            first = store.events(number, limit=1) if len(edits) < MAX_CONFIG_VERSIONS else []
            return first + edits

        events = await self.reader.read_router(name, read) or []
        bodies = [BODY_DECODERS[one.kind](one.body) for one in events]
        return [
            ConfigChange(at=format_timestamp(one.at), by=body.by, config=body.config, seq=one.seq)
            for one, body in zip(events, bodies, strict=True)
        ]

    async def recent_log(self, view: RouterView, changes: Sequence[ConfigChange]) -> RecentLog:
        """What the log says about the last decisions, at most `LOG_REFRESH_S` old. A page waits for
        it only for a moment, and then shows what was read before.
        """
        prefix, now = f"{view.name}.{view.number}", time.monotonic()
        found = self.logs.pop(prefix, None)
        if found is None or (now >= found.until and found.task.done()):
            task = asyncio.create_task(self.read_recent_log(view, prefix, changes))
            shown = RecentLog() if found is None else found.shown
            found = CachedLog(shown, task, now + LOG_REFRESH_S)
        self.logs[prefix] = found
        if len(self.logs) > MAX_CACHED_LOGS:
            del self.logs[next(iter(self.logs))]
        await asyncio.wait({found.task}, timeout=LOG_WAIT_S)
        if found.task.done() and (error := found.task.exception()) is not None:
            log.warning("the recent log of router %s cannot be read: %s", view.name, error)
        elif found.task.done():
            found.shown = found.task.result()
        return found.shown

    async def read_recent_log(
        self, view: RouterView, prefix: str, changes: Sequence[ConfigChange]
    ) -> RecentLog:
        """Read the last events, and summarise them in another thread."""
        after = view.seq - MAX_EVENTS_READ
        events = await self.reader.read_router(
            view.name, lambda store, number: store.events(number, after, MAX_EVENTS_READ)
        )
        return await run_in_threadpool(summarise_events, prefix, events or (), changes)


def summarise_events(
    prefix: str, events: Sequence[Event], changes: Sequence[ConfigChange]
) -> RecentLog:
    """What the last events of a log say, under the latest configuration."""
    if not events or not changes:
        return RecentLog()
    reader, made = LogReader(prefix), list[tuple[int, bool]]()
    before = [one.config for one in changes if one.seq <= events[0].seq] or [changes[0].config]
    reader.apply(0, None, "", ConfigChanged(before[-1]))
    for event in events:
        if event.of is None or event.of in reader.entries:  # else of an earlier decision
            body = BODY_DECODERS[event.kind](event.body)
            reader.apply(event.seq, event.of, event.seal.hex(), body)
            if event.kind == "decided":
                made.append((event.at, body.feasible))
    outages = list[dict[str, Any]]()
    for feasible, run in groupby(made, key=lambda one: one[1]):
        times = [format_timestamp(at) for at, _ in run]
        if not feasible:
            outages.append({"start": times[0], "end": times[-1], "decisions": len(times)})
    config = changes[-1].config
    problem, entries = config.build_problem(), reader.read(())
    if len(made) > 1 and made[-1][0] > made[0][0]:
        days = (made[-1][0] - made[0][0]) / DAY_US
        problem = problem.at_traffic(len(made) / days)  # what budgets mean per request
    try:
        log = log_from_entries(problem, entries, find_unknown_experts(problem, entries))
        levels = estimate_reference_levels(log, config.rewards)
    except BylotError as error:
        levels = [ReferenceLevel(name="reference levels", reason=error.what)]
    return RecentLog(len(made), levels, outages[-MAX_OUTAGES:])
