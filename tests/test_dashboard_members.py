"""The section "Members" of a router's page: its table, its JSON, and how it is refreshed."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from browsers import launch_chromium
from bylot.gateway.asking import Pause
from bylot.gateway.gateway import RouterGateway
from bylot.server.dashboard import sections
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.sections import build_members, describe_pause
from bylot.server.dashboard.source import ServerSource
from dashboard_states import (
    PRICES,
    READER,
    SKILLS,
    StateServer,
    make_failure,
    make_gateway,
    play_chat,
    play_new,
    serve_routes,
)
from page_client import PageClient

PANELS = [("ann", "eve"), ("ann", "cat"), ("ann", "eve")]
ROWS = """all => all.map((row) => [...row.children].map((cell) => cell.innerText.trim()))"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> StateServer:
    server = StateServer(tmp_path_factory.mktemp("members"))
    play_new(server)
    play_chat(server)
    return server


@pytest.fixture
def source(server: StateServer) -> ServerSource:
    return server.source()


@pytest.fixture
def chat() -> RouterGateway:
    return make_gateway(PANELS).routers["chat"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra test has playwright")
    with playwright.sync_playwright() as started:
        browser = launch_chromium(started)
        if browser is None:
            pytest.skip("no chromium on this machine (Debian: apt install chromium)")
        yield browser
        browser.close()


def test_every_expert_has_a_row_the_most_asked_first(chat: RouterGateway) -> None:
    rows = build_members(chat, SKILLS)["rows"]
    asked = {one["name"]: one["asked"] for one in rows}
    assert asked == {"cat": 4, "ann": 3, "eve": 2, "bob": 0, "dan": 0}  # 3 calls pause cat
    assert [one["asked"] for one in rows] == sorted(asked.values(), reverse=True)


def test_a_row_has_the_numbers_of_its_member(chat: RouterGateway) -> None:
    rows = {one["name"]: SimpleNamespace(**one) for one in build_members(chat, SKILLS)["rows"]}
    ann, cat, bob = rows["ann"], rows["cat"], rows["bob"]
    assert (ann.answered, ann.answered_share, ann.won) == (3, 1.0, 3)
    assert ann.cost_per_1000_wins == pytest.approx(1_000 * PRICES[0])
    assert ann.failures == []
    times = sorted(chat.stats.members["ann"].seconds)
    assert (ann.median_s, ann.p99_s) == (times[1], times[2])
    assert 0.7 * SKILLS["ann"] <= (ann.mean_score or 0.0) <= SKILLS["ann"]
    assert (cat.answered, cat.answered_share) == (1, 0.25)
    assert cat.failures == [{"reason": "timeout", "count": 3}]
    unknown = bob.answered_share, bob.mean_score, bob.median_s, bob.p99_s, bob.cost_per_1000_wins
    assert set(unknown) == {None}


def test_a_pause_is_described_until_a_call_succeeds() -> None:
    assert describe_pause(Pause(11.2, trying=False)) == ("paused", "paused for 12 s")
    assert describe_pause(Pause(0.0, trying=False)) == ("paused", "tried with the next panel")
    assert describe_pause(Pause(0.0, trying=True)) == ("being tried", "being tried")
    assert describe_pause(None) == ("available", "available")


def test_an_expert_that_is_no_model_is_named_as_such(chat: RouterGateway) -> None:
    (row,) = (one for one in build_members(chat, [*SKILLS, "zoe"])["rows"] if one["name"] == "zoe")
    assert (row["state"], row["sentence"]) == ("no model", "not in model_list")


def test_a_member_that_left_the_router_stays_in_the_table(chat: RouterGateway) -> None:
    assert {one["name"] for one in build_members(chat, ["bob"])["rows"]} == {
        "bob",
        "ann",
        "cat",
        "eve",
    }


def test_a_table_says_how_many_members_it_leaves_out(
    chat: RouterGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections, "MAX_MEMBER_ROWS", 2)
    table = build_members(chat, SKILLS)
    assert ([one["name"] for one in table["rows"]], table["members_left"]) == (["cat", "ann"], 3)


def test_the_json_of_a_page_has_the_members(source: ServerSource) -> None:
    client = PageClient([*dashboard_routes(source, lambda token: READER)])
    found = client.get("/routers/chat.json").json()["members"]
    assert (found["model"], found["panels"]) == ("bylot/chat", 1_200)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT.*Z", found["since"])
    assert found["paused"] == 1
    (cat,) = (one for one in found["rows"] if one["name"] == "cat")
    assert (cat["state"], cat["sentence"]) == ("paused", "paused for 12 s")
    assert client.get("/routers/new.json").json()["members"] is None
    listed = client.get("/routers.json").json()["routers"]
    assert {one["name"]: one["model"] for one in listed} == {"chat": "bylot/chat", "new": None}


def test_a_page_shows_the_members_with_and_without_javascript(
    chromium: Any, source: ServerSource
) -> None:
    found = {}
    with serve_routes(dashboard_routes(source, lambda token: READER)) as address:
        for scripts in (False, True):
            page = chromium.new_page(java_script_enabled=scripts)
            page.goto(f"{address}/routers/chat")
            if scripts:
                page.locator("#live[data-link=live]").wait_for()
            found[scripts] = page.eval_on_selector_all("table.members tbody tr", ROWS)
            assert "Since this server started" in page.locator("main").inner_text()
            page.goto(f"{address}/routers/new")
            assert not page.locator("table.members").is_visible()
            page.goto(address)
            (listed,) = page.locator("table.routers .gateway:visible").all_inner_texts()
            assert listed == "gateway bylot/chat"
            page.close()
    assert found[True] == found[False]
    rows = {row[0]: row[1:] for row in found[True]}
    assert rows["cat"][0] == "paused for 12 s"
    assert {row[0] for name, row in rows.items() if name != "cat"} == {"available"}
    for row in rows.values():
        for cell in row[5:9]:  # two decimals each, so that columns are aligned
            assert re.fullmatch(r"\d+\.\d\d", cell), row


def test_members_are_refreshed_without_a_reload(chromium: Any, source: ServerSource) -> None:
    assert source.gateway is not None
    chat = source.gateway.routers["chat"]
    with serve_routes(dashboard_routes(source, lambda token: READER)) as address:
        page = chromium.new_page()
        page.goto(f"{address}/routers/chat")
        page.locator("#live[data-link=live]").wait_for()
        dan = page.locator("table.members tbody tr", has_text="dan")
        assert "available" in dan.inner_text()
        for _ in range(3):
            chat.health.end(make_failure("dan", "unreachable"))
            chat.stats.members["dan"].add_call(make_failure("dan", "unreachable"))
        dan.locator(".state[data-state=paused]").wait_for()
        assert dan.locator("td").nth(0).inner_text() == "paused for 30 s"
        assert "unreachable 3" in dan.inner_text()
        page.close()


def test_a_phone_keeps_the_names_of_members_in_view(
    chromium: Any, source: ServerSource, tmp_path: Path
) -> None:
    with serve_routes(dashboard_routes(source, lambda token: READER)) as address:
        page = chromium.new_page(viewport={"width": 390, "height": 844}, has_touch=True)
        page.goto(f"{address}/routers/chat")
        page.locator("#live[data-link=live]").wait_for()
        box = page.locator(".scroll:has(table.members)")
        box.evaluate("one => { one.scrollLeft = one.scrollWidth; }")
        page.wait_for_timeout(100)
        head, cell = (
            page.locator("table.members tbody tr").first.locator(one).bounding_box()
            for one in ("th", "td:last-child")
        )
        assert 0 <= head["x"] < 40
        assert cell["x"] < 390
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        box.screenshot(path=tmp_path / "scrolled.png")
        page.close()
