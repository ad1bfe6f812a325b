"""The routers of a store as the dashboard gets to see them."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bylot import policies
from bylot.api import RouterView
from bylot.errors import StoreCorrupted
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import CreateRouter, EditRouter, GetRouter, MakeDecision, RecordReward
from bylot.eventlog.repository import RouterRepository
from bylot.router import persistence
from bylot.router.config import RouterConfig
from bylot.server.auth import Caller
from bylot.server.dashboard import source
from bylot.server.dashboard.router_view import build_overview, build_router_page
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.source import ServerSource
from bylot.server.writer import Reader, Writer
from bylot.store import Store, open_store
from page_client import PageClient
from small import five

TERMS = RouterConfig(
    problem=persistence.problem_to_data(five()),
    policy=policies.policy_to_data(policies.find_policy("distinct")),
    wait=60.0,
)


class Direct:
    """Writer and reader of a server, without threads."""

    def __init__(self, keeper: CommandHandler, store: Store) -> None:
        self.keeper, self.store, self.at, self.commands = keeper, store, 1_000_000, list[Any]()

    def do(self, *commands: Any) -> list[Any]:
        self.at += 1_000
        return self.keeper.perform(commands, self.at)

    async def execute(self, command: Any) -> Any:
        (answer,) = await self.execute_all([command])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def execute_all(self, commands: Sequence[Any]) -> list[Any]:
        self.commands += commands
        return self.do(*commands)

    show_routers, read_router = Writer.show_routers, Reader.read_router

    async def read(self, question: Callable[[Store], Any]) -> Any:
        return question(self.store)


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[Direct]:
    address = f"sqlite:///{tmp_path}/log.db"
    with (
        contextlib.closing(CommandHandler(RouterRepository(open_store(address), "us"))) as keeper,
        contextlib.closing(open_store(address)) as store,
    ):
        yield Direct(keeper, store)


def now(question: Coroutine[Any, Any, Any]) -> Any:
    """The answer to a question that nobody else waits for."""
    return asyncio.run(question)


def make_source(direct: Any, *recent: str) -> ServerSource:
    return ServerSource(direct, direct, recent)


def play(direct: Direct, name: str, rounds: int = 5) -> list[str]:
    """Make a router and ask it; every second decision is rewarded."""
    direct.do(CreateRouter(name, TERMS, by="root"))
    ids = [direct.do(MakeDecision(name, context="a"))[0].id for _ in range(rounds)]
    for id in ids[::2]:
        direct.do(RecordReward(id, 0.5, spend={"usd": 1.25}))
    return ids


def test_a_router_is_shown_with_its_latest_decisions_and_all_versions(direct: Direct) -> None:
    ids = play(direct, "triage")
    direct.do(EditRouter("triage", msgspec.structs.replace(TERMS, wait=90.0), by="ops"))
    here = make_source(direct)
    view = now(here.show_router("triage"))
    latest, edits = now(here.latest_decisions("triage", 3)), now(here.config_changes("triage"))
    assert isinstance(view, RouterView)
    assert [one.decision.id for one in latest] == ids[:1:-1]
    assert [one.state for one in latest] == ["rewarded", "waiting", "rewarded"]
    assert [(one.config.version, one.by) for one in edits] == [(1, "root"), (2, "ops")]
    page = build_router_page(view, latest, edits)
    assert (page.status.decisions, page.status.rewards, page.status.waiting) == (5, 3, 2)
    assert page.latest[0].spend[0].value == 1.25
    assert page.versions[0].changes == ["wait: 60 → 90"]
    direct.do(*[MakeDecision("triage")] * 1_100)  # far more than pages look back for decisions
    direct.do(EditRouter("triage", msgspec.structs.replace(TERMS, wait=30.0), by="ops"))
    again = build_router_page(view, latest, now(here.config_changes("triage")))
    assert [one.changes for one in again.versions] == [
        ["wait: 90 → 30"],
        ["wait: 60 → 90"],
        ["created"],
    ]
    assert sum(span.decisions for span in page.timeline) == 5


def test_a_router_that_is_not_there_is_none(direct: Direct) -> None:
    here = make_source(direct)
    assert now(here.show_router("none")) is None
    assert now(here.latest_decisions("none", 3)) == []
    assert now(here.config_changes("none")) == []


def test_the_list_tells_who_is_served_where_and_what_is_broken(
    direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        play(direct, name, 2)
    direct.keeper.close()  # which gives the leases back
    direct.store.lease(2, "them", 60.0)
    show = CommandHandler.get_router

    def damaged(keeper: CommandHandler, asked: Any) -> RouterView:
        if asked.name == "c":
            raise StoreCorrupted("router 'c': line 3 was changed")
        return show(keeper, asked)

    monkeypatch.setitem(CommandHandler.HANDLERS, GetRouter, damaged)
    listed = now(make_source(direct).list_routers())
    assert [(one.name, one.location, one.error) for one in build_overview(listed).routers] == [
        ("a", "here", None),
        ("b", "another server", None),
        ("c", "here", "router 'c': line 3 was changed"),
    ]
    assert [isinstance(one, RouterView) for one in listed.values()] == [True, False, False]


def test_of_many_routers_only_those_asked_for_lately_are_woken(
    direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_POLLED_ROUTERS", 2)
    for name in ("a", "b", "c", "d"):
        play(direct, name, 1)
    listed = now(make_source(direct, "a", "c", "gone", "d").list_routers())
    assert [one.location for one in build_overview(listed).routers] == [
        "not loaded",
        "not loaded",
        "here",
        "here",
    ]


def test_however_many_look_the_list_is_made_once_in_a_while(direct: Direct) -> None:
    play(direct, "a", 1)
    here = make_source(direct)

    async def crowd() -> None:
        await asyncio.gather(*(here.list_routers() for _ in range(20)))

    now(crowd())
    assert len(direct.commands) == 1


def test_what_the_store_refuses_is_said_on_the_page(direct: Direct) -> None:
    play(direct, "a", 1)
    direct.keeper.close()
    direct.store.lease(1, "them", 60.0)

    guest = Caller(None, frozenset({"read"}), frozenset())
    client = PageClient([*dashboard_routes(make_source(direct), lambda token: guest)])
    page, twin = client.get("/routers/a"), client.get("/routers/a.json")
    assert (page.status_code, twin.status_code) == (503, 503)
    assert "another server" in page.text
    assert "them" in page.text
    assert twin.json()["error"]["code"] == "router_busy"
    assert 0 < int(twin.headers["retry-after"]) <= 60
