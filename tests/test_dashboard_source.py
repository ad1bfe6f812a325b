"""The source of the dashboard: the routers of a store."""

import asyncio
import contextlib
import re
from collections.abc import Coroutine, Iterator
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
from bylot.gateway.gateway import Gateway
from bylot.router.config import RouterConfig, problem_to_data
from bylot.server.auth import Caller
from bylot.server.dashboard import source
from bylot.server.dashboard.router_view import build_overview, build_router_page
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.source import RecentLog, ServerSource, summarise_events
from bylot.store import open_store
from direct_server import DirectServer
from page_client import PageClient
from sample_problem import make_five_expert_problem

CONFIG = RouterConfig(
    problem=problem_to_data(make_five_expert_problem()),
    policy=policies.policy_to_data(policies.find_policy("distinct")),
    wait=60.0,
)


@pytest.fixture
def direct_server(tmp_path: Path) -> Iterator[DirectServer]:
    address = f"sqlite:///{tmp_path}/log.db"
    with (
        contextlib.closing(CommandHandler(RouterRepository(open_store(address), "us"))) as handler,
        contextlib.closing(open_store(address)) as store,
    ):
        yield DirectServer(handler, store)


def run(question: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine."""
    return asyncio.run(question)


def make_source(direct_server: Any, *recent: str) -> ServerSource:
    gateway = Gateway(None, {}, {})  # type: ignore[arg-type]
    return ServerSource(direct_server, direct_server, recent, gateway)


def play_router(direct_server: DirectServer, name: str, rounds: int = 5) -> list[str]:
    """Create a router and make decisions; every second one is rewarded."""
    direct_server.do(CreateRouter(name, CONFIG, by="root"))
    ids = [direct_server.do(MakeDecision(name, context="a"))[0].id for _ in range(rounds)]
    for id in ids[::2]:
        direct_server.do(RecordReward(id, 0.5, spend={"usd": 1.25}))
    return ids


def test_a_router_is_shown_with_its_latest_decisions_and_all_versions(
    direct_server: DirectServer,
) -> None:
    ids = play_router(direct_server, "triage")
    direct_server.do(EditRouter("triage", msgspec.structs.replace(CONFIG, wait=90.0), by="ops"))
    server_source = make_source(direct_server)
    view = run(server_source.show_router("triage"))
    latest, edits = (
        run(server_source.latest_decisions("triage", 3)),
        run(server_source.config_changes("triage")),
    )
    assert isinstance(view, RouterView)
    assert [one.decision.id for one in latest] == ids[:1:-1]
    assert [one.state for one in latest] == ["rewarded", "waiting", "rewarded"]
    assert [(one.config.version, one.by) for one in edits] == [(1, "root"), (2, "ops")]
    page = build_router_page(view, latest, edits)
    status = page["status"]
    assert (status.decisions, status.rewards, status.waiting) == (5, 3, 2)
    assert page["latest"][0]["spend"][0]["value"] == 1.25
    assert page["versions"][0]["changes"] == ["wait: 60 -> 90"]
    direct_server.do(*[MakeDecision("triage")] * 1_100)  # far more than the page looks back
    direct_server.do(EditRouter("triage", msgspec.structs.replace(CONFIG, wait=30.0), by="ops"))
    page_after_edit = build_router_page(view, latest, run(server_source.config_changes("triage")))
    assert [one["changes"] for one in page_after_edit["versions"]] == [
        ["wait: 90 -> 30"],
        ["wait: 60 -> 90"],
        ["created"],
    ]
    assert sum(span["decisions"] for span in page["timeline"]) == 5


def test_an_unknown_router_is_none(direct_server: DirectServer) -> None:
    server_source = make_source(direct_server)
    assert run(server_source.show_router("none")) is None
    assert run(server_source.latest_decisions("none", 3)) == []
    assert run(server_source.config_changes("none")) == []


def test_the_list_shows_locations_and_errors_of_routers(
    direct_server: DirectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        play_router(direct_server, name, 2)
    direct_server.handler.close()  # releases the leases
    direct_server.store.lease(2, "them", 60.0)
    show = CommandHandler.get_router

    def raise_for_router_c(handler: CommandHandler, command: Any) -> RouterView:
        if command.name == "c":
            raise StoreCorrupted("router 'c': line 3 was changed")
        return show(handler, command)

    monkeypatch.setitem(CommandHandler.HANDLERS, GetRouter, raise_for_router_c)
    listed = run(make_source(direct_server).list_routers())
    rows = build_overview(listed)["routers"]
    assert [(one["name"], one["location"], one["error"]) for one in rows] == [
        ("a", "here", None),
        ("b", "another server", None),
        ("c", "here", "the router or its store is damaged; see the server log"),
    ]
    assert [isinstance(one, RouterView) for one in listed.values()] == [True, False, False]


def test_only_recently_used_routers_are_loaded_for_the_list(
    direct_server: DirectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_POLLED_ROUTERS", 2)
    for name in ("a", "b", "c", "d"):
        play_router(direct_server, name, 1)
    listed = run(make_source(direct_server, "a", "c", "gone", "d").list_routers())
    assert [one["location"] for one in build_overview(listed)["routers"]] == [
        "not loaded",
        "not loaded",
        "here",
        "here",
    ]


def test_concurrent_requests_share_one_list(direct_server: DirectServer) -> None:
    play_router(direct_server, "a", 1)
    server_source = make_source(direct_server)

    async def list_many_times() -> None:
        await asyncio.gather(*(server_source.list_routers() for _ in range(20)))

    run(list_many_times())
    assert len(direct_server.commands) == 1


def test_an_error_of_the_store_is_shown_on_the_page(direct_server: DirectServer) -> None:
    play_router(direct_server, "a", 1)
    direct_server.handler.close()
    direct_server.store.lease(1, "db1.internal:boot:ns/4711@5/ab", 60.0)

    visitor = Caller(None, frozenset({"read"}), frozenset())
    client = PageClient([*dashboard_routes(make_source(direct_server), lambda token: visitor)])
    page, json_answer = client.get("/routers/a"), client.get("/routers/a.json")
    assert (page.status_code, json_answer.status_code) == (503, 503)
    assert "another server" in page.text
    assert not re.search("internal|4711", page.text + json_answer.text)
    assert json_answer.json()["error"]["code"] == "router_busy"
    assert 0 < int(json_answer.headers["retry-after"]) <= 60


def test_the_recent_log_has_outages_and_is_read_once(direct_server: DirectServer) -> None:
    play_router(direct_server, "a", 300)
    direct_server.do(*[MakeDecision("a", None, ("ann", "bob"))] * 40)
    server_source, reads = make_source(direct_server), []
    view, changes = (
        run(server_source.show_router("a")),
        run(server_source.config_changes("a")),
    )
    read = direct_server.read

    async def count_reads(query: Any) -> Any:
        reads.append(query)
        return await read(query)

    async def look_twice() -> tuple[Any, Any]:
        direct_server.read = count_reads  # type: ignore[method-assign, assignment]
        first = await server_source.recent_log(view, changes)
        await server_source.logs[f"a.{view.number}"].task
        return first, await server_source.recent_log(view, changes)

    _, found = run(look_twice())
    assert len(reads) == 1
    assert found.decisions == 340
    assert sum(one["decisions"] for one in found.outages) == view.status.counters.infeasible > 0
    assert [one.name.split(",")[0] for one in found.levels] == [
        "random panels",
        "best fixed mixture within the limits",
    ]


def test_a_recent_log_that_cannot_be_read_leaves_the_page_as_it_is(
    direct_server: DirectServer, caplog: pytest.LogCaptureFixture
) -> None:
    play_router(direct_server, "a", 3)
    server_source = make_source(direct_server)
    view = run(server_source.show_router("a"))

    async def fail(query: Any) -> Any:
        raise StoreCorrupted("unreadable")

    direct_server.read = fail  # type: ignore[method-assign, assignment]
    assert run(server_source.recent_log(view, [])) == RecentLog()
    assert "unreadable" in caplog.text


def test_a_log_is_read_from_the_middle(direct_server: DirectServer) -> None:
    """Rewards of decisions before the part that is read are left out, and edits count."""
    play_router(direct_server, "a", 40)
    config = msgspec.structs.replace(CONFIG, paused=("bob",))
    direct_server.do(EditRouter("a", config, by="ops"))
    made = direct_server.do(*[MakeDecision("a")] * 20)
    direct_server.do(*[RecordReward(one.id, 0.5) for one in made])
    number, events = 1, direct_server.store.events(1, -1, 1_000)
    changes = run(make_source(direct_server).config_changes("a"))
    whole = summarise_events(f"a.{number}", events, changes)
    assert (whole.decisions, [one.reason is None for one in whole.levels]) == (60, [False] * 2)
    first = next(i for i, one in enumerate(events) if one.kind == "rewarded")
    assert summarise_events(f"a.{number}", events[first:], changes).decisions == 20
    assert summarise_events(f"a.{number}", [], changes) == RecentLog()
