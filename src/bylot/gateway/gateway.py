"""Gateway: all routers that answer chat requests, their members, and work that must be finished.

It reaches the routers through a `RouterPort`, which the server implements by its writer.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import structs

from bylot.api import RouterView
from bylot.errors import BylotError, NoSubstitute, RouterNotFound
from bylot.eventlog.commands import Command, DecisionCommand, RecordReward, ReplaceMember
from bylot.eventlog.events import BODY_DECODERS, EVENT_KINDS
from bylot.eventlog.loading import read_stored_config
from bylot.gateway.answers import Scorer
from bylot.gateway.asking import HealthTable
from bylot.gateway.chat import MODEL_PREFIX, ChatError, unknown_model
from bylot.gateway.config import GatewayEntry, Model, ScorerEntry
from bylot.gateway.contexts import find_cluster_file, make_contexts
from bylot.gateway.member_stats import MemberStats, StatsTable
from bylot.gateway.scoring import make_scorer
from bylot.gateway.settlement import HOLDER, RouterFacts
from bylot.gateway.upstream import UpstreamClient
from bylot.router.changes import RewardReceived
from bylot.router.decision import Decision
from bylot.router.state import PanelHealth, RecentCounts
from bylot.store import Store

log = logging.getLogger("bylot.gateway")

CLOSE_TICK_S = 0.02
FIRST_RETRY_S, MAX_RETRY_S = 0.05, 5.0  # between two tries to report to a router
REPORT_TRIES = 200  # about a quarter of an hour
MAX_REWARDS_READ = 1_000  # for the scores of members
Result = TypeVar("Result")


class RouterPort(Protocol):
    """What the gateway needs of the server that it is a part of."""

    async def execute(self, command: Command) -> Any:
        """The result of a command, once it is on disk."""

    async def read(self, query: Callable[[Store], Result]) -> Result:
        """The result of a query to the store."""

    def can_retry(self, error: Exception) -> bool:
        """Whether the same command may succeed later."""


def read_facts(store: Store, router: str, cost_name: str = "") -> RouterFacts:
    """Read experts, declared costs and feedback of a router."""
    row = store.find(router)
    config = None if row is None else read_stored_config(store, row)
    if config is None:
        raise RouterNotFound(f"no router named {router!r}", remedy="create it")
    experts = tuple(config.problem["experts"])
    costs = dict(zip(experts, config.problem["costs"].get(cost_name) or (), strict=False))
    return RouterFacts(config.version, experts, costs, config.feedback, config.rewards)


def read_scores(store: Store, router: str, rewards: tuple[float, float]) -> dict[str, list[float]]:
    """Read the last scores in [0, 1] by member that scorers of gateways have reported."""
    row = store.find(router)
    kind = EVENT_KINDS[RewardReceived]
    events = [] if row is None else store.latest(row.number, kind, MAX_REWARDS_READ)
    low, high = rewards
    found: dict[str, list[float]] = {}
    for event in events:
        body: RewardReceived = BODY_DECODERS[event.kind](event.body)
        if body.members and (body.key or "").startswith(f"{HOLDER}/"):
            for name, score in body.members.items():
                found.setdefault(name, []).append((score - low) / (high - low))
    return found


class RouterGateway:
    """The gateway of one router: how its members are asked, and how they have done so far."""

    def __init__(
        self, gateway: "Gateway", router: str, entry: GatewayEntry, folder: Path | None
    ) -> None:
        self.gateway, self.router, self.entry = gateway, router, entry
        self.scorer = None if entry.scorer is None else self.make_scorer(entry.scorer)
        file, what = find_cluster_file(folder, router), f"routers.{router}.gateway.context"
        self.contexts = make_contexts(entry.context, default_file=file, what=what)
        self.health = HealthTable(entry.cooldown_after, entry.cooldown_s)
        self.stats = StatsTable()
        self.recent = RecentCounts()
        self.facts: RouterFacts | None = None

    def make_scorer(self, entry: ScorerEntry) -> Scorer:
        """The scorer of this router; a judge is asked over the same connections as members."""
        client, what = self.gateway.client, f"routers.{self.router}.gateway.scorer"
        ask = partial(client.ask, timeout_s=self.entry.member_timeout_s)
        return make_scorer(entry, ask, session=client.session, what=what)

    async def load_facts(self, version: int | None = None) -> RouterFacts:
        """What is known of the router, read again if its configuration has changed."""
        if self.facts is None or (version is not None and version != self.facts.version):
            router, cost, read = self.router, self.entry.cost, self.gateway.port.read
            found = await read(lambda store: read_facts(store, router, cost))
            if self.facts is None and self.scorer is not None:  # later scores are counted here
                earlier = await read(lambda store: read_scores(store, router, found.rewards))
                for name, scores in earlier.items():
                    self.stats.members[name].earlier = scores
            self.facts = found
        return self.facts

    def list_stats(self) -> dict[str, MemberStats]:
        """The counters of all members of `model_list` that were asked or can be."""
        experts = self.facts.experts if self.facts else ()  # as far as they were read
        names = dict.fromkeys((*experts, *self.stats.members))
        return {
            name: self.stats.members[name] for name in names if name in self.gateway.client.models
        }

    def note_panel(self, *, failed: bool, scored: bool) -> None:
        """Count a panel. `failed` says that no member answered, through no fault of the request."""
        counts = {"panels": True, "unanswered": failed, "unscored": not scored}
        self.recent.add(self.health.clock(), *(name for name in counts if counts[name]))

    def measure_health(self, experts: Iterable[str]) -> PanelHealth:
        """Return what was seen of the panels of these experts in the last minutes."""
        counts = self.recent.sum(self.health.clock())
        models = [name for name in experts if name in self.gateway.client.models]
        return PanelHealth(
            panels=counts["panels"],
            unanswered=counts["unanswered"],
            unscored=counts["unscored"],
            models=len(models),
            down=tuple(name for name in models if self.health.find_pause(name) is not None),
            is_shared=self.gateway.is_shared,
        )


class Gateway:
    """All gateways of a server.

    folder: for what routers keep in files, such as clusters of prompts; None: nowhere
    tasks: work that goes on although its request has ended, such as a settlement
    scoring_slots: for scorers that work after their request has ended
    since: when it began to count, in seconds since 1970
    is_shared: other servers answer chats of the same routers, and count them by themselves
    """

    is_shared = False

    def __init__(
        self,
        port: RouterPort,
        models: Mapping[str, Model],
        entries: Mapping[str, GatewayEntry],
        max_chats: int = 256,
        max_chats_per_key: int = 64,
        folder: Path | None = None,
    ) -> None:
        self.port, self.client = port, UpstreamClient(models)
        self.entries, self.folder = entries, folder
        self.routers: dict[str, RouterGateway] = {}
        self.max_chats, self.max_chats_per_key = max_chats, max_chats_per_key
        self.chats: dict[str | None, int] = {}  # open requests by key
        self.tasks: set[asyncio.Task[Any]] = set()
        self.scoring_slots = asyncio.Semaphore(max_chats)
        self.since = time.time()

    @property
    def open_chats(self) -> int:
        """How many requests are being served."""
        return sum(self.chats.values())

    async def load_all_facts(self) -> None:
        """Read routers that were not read yet, so that their members are counted from 0 on."""
        for one in self.routers.values():
            if one.facts is None:
                try:
                    await one.load_facts()
                except BylotError as error:
                    log.debug("router %s cannot be read: %s", one.router, error)

    async def start(self) -> None:
        """Open the pool of connections and make the scorers."""
        await self.client.start()
        for router, entry in self.entries.items():
            self.routers[router] = RouterGateway(self, router, entry, self.folder)

    async def close(self, timeout_s: float) -> None:
        """Finish settlements, then close the connections."""
        end = asyncio.get_running_loop().time() + timeout_s
        while (self.tasks or self.chats) and (left := end - asyncio.get_running_loop().time()) > 0:
            if self.tasks:
                await asyncio.wait(self.tasks, timeout=min(left, CLOSE_TICK_S))
            else:  # requests that were cancelled will start some
                await asyncio.sleep(CLOSE_TICK_S)
        if self.tasks:
            log.error("%d panels were not settled: they stay at declared costs", len(self.tasks))
        for task in self.tasks:
            task.cancel()
        await self.client.close()

    def find(self, router: str) -> RouterGateway:
        """The gateway of a router, or the error of an unknown model."""
        found = self.routers.get(router)
        if found is None:
            raise unknown_model(MODEL_PREFIX + router)
        return found

    def judge(self, view: RouterView) -> RouterView:
        """Return a router with its state, in which what its gateway has seen counts."""
        found = self.routers.get(view.name)
        if found is None:
            return view
        health = found.measure_health(view.config.problem["experts"])
        return structs.replace(view, status=view.status.judge(health))

    @contextmanager
    def admit(self, key: str | None) -> Iterator[None]:
        """Count an open request, or refuse one too many."""
        own, every = self.chats.get(key, 0), self.open_chats
        if own >= self.max_chats_per_key or every >= self.max_chats:
            which = "of this key " if own >= self.max_chats_per_key else ""
            raise ChatError(
                429,
                "too_many_requests",
                f"too many open requests {which}({own} of the key, {every} in all); retry",
                retry_after_s=1.0,
            )
        self.chats[key] = own + 1
        try:
            yield
        finally:
            self.chats[key] -= 1
            if not self.chats[key]:
                del self.chats[key]

    def spawn(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """Start work that is finished even if the request that needs it is cancelled."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def report(self, id: str, report: Mapping[str, Any], by: str | None) -> bool:
        """Report to a router until it is on disk; return whether it is."""
        return await self.persist(
            RecordReward(id, **{"value": None, **report}, by=by, holder=HOLDER)
        )

    async def substitute(self, command: ReplaceMember) -> Decision | None:
        """The decision with a substitute for a member that failed; None if there is none. The error
        that says so stays here: it is in a cycle, and would keep the whole answer.
        """
        try:
            decision: Decision = await self.port.execute(command)
        except NoSubstitute:
            return None
        return decision

    async def persist(self, command: DecisionCommand) -> bool:
        """Send a command about a decision until it is on disk; return whether it is."""
        wait_s = FIRST_RETRY_S
        for _ in range(REPORT_TRIES):
            try:
                await self.port.execute(command)
                return True
            except Exception as error:
                if not self.port.can_retry(error):
                    log.error("decision %s was not settled: %s", command.id, error)
                    return False
                log.debug("decision %s is settled later: %s", command.id, error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_RETRY_S)
        log.error("decision %s was not settled; it stays at its declared cost", command.id)
        return False
