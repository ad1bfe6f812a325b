"""The dashboard in a real browser: what people see, live and without JavaScript."""

import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

import bylot
from browsers import CHROMIUM, launch_chromium, run_uvicorn
from bylot._text import format_number
from bylot.errors import StoreCorrupted
from bylot.router.config import problem_to_data
from bylot.server.app import HttpServer, ServerApp
from bylot.server.auth import Caller
from bylot.server.dashboard import router_view
from bylot.server.dashboard.render import FORMATS, asset_url
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.source import ListedRouters
from bylot.server.settings import ServerSettings
from live_server import is_compiling
from played_routers import SECOND, START, PlayedRouter, PlayedSource
from sample_problem import make_five_expert_problem

playwright = pytest.importorskip("playwright.sync_api", reason="the extra test has playwright")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (Debian: apt install chromium)"
)

AUDIT = (Path(__file__).parent / "audit.js").read_text()
HOSTILE_NAME = (
    "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'&\u202e漢字 a long name"
)
LONG_NAME = "a-name-as-long-as-they-can-be-" * 2 + "abc"
PATHS = ("/", "/routers/triage", f"/routers/{LONG_NAME}", "/routers/new", "/routers/budget")

REWRITE = """async (base) => {
  const { fill } = await import(base);
  for (const element of document.querySelectorAll("[data-each]")) {
    const template = element.querySelector(":scope > template");
    while (template.nextSibling) template.nextSibling.remove();
  }
  fill(document.querySelector("main"), JSON.parse(document.querySelector("#data").text));
}"""
"""Empties all lists and tables of a page, and fills it again from its data by the script."""


READER = Caller(None, frozenset({"read"}), frozenset())


class Site(NamedTuple):
    """A server, and a router that can make more decisions."""

    address: str
    triage: PlayedRouter


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A busy router, one with many experts, contexts and limits, hostile names, and a new one."""
    triage = PlayedRouter(
        "triage", make_five_expert_problem(), ["chest pain", "headache", None]
    ).play(300)
    experts = [HOSTILE_NAME, "x" * 100, *(f"expert-{i}" for i in range(28))]
    costs = {f"cost {i} {HOSTILE_NAME if i == 0 else ''}": [1.0 + (i + j) % 3 for j in range(30)]
             for i in range(8)}  # fmt: skip
    limits = [bylot.at_most(cost, 7.5) for cost in costs]
    many = PlayedRouter(
        LONG_NAME,
        bylot.Problem(experts, costs, limits, draws=3),
        [HOSTILE_NAME, *map(str, range(9))],
    )
    new = PlayedRouter("new", make_five_expert_problem())
    windows = [
        bylot.at_most("usd", 500, per="day", zone="Europe/Berlin"),
        bylot.at_least(bylot.share("novices", ["cat", "eve"]), 0.3, per="week"),
    ]
    budget = PlayedRouter("budget", make_five_expert_problem().replace(limits=windows))
    others: ListedRouters = {
        **{f"r{i}": None for i in range(40)},
        "broken": StoreCorrupted("its log is damaged"),
    }
    source = PlayedSource(triage, many.play(60), new, budget.play(60), others=others)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(router_view, "now_us", lambda: START + 300 * 3600 * SECOND)  # no rate moves
        yield from serve_dashboard(source, {"": READER}, triage)


@pytest.fixture(scope="module")
def protected_site() -> Iterator[Site]:
    """A site that requires a key."""
    triage = PlayedRouter("triage", make_five_expert_problem()).play(3)
    yield from serve_dashboard(PlayedSource(triage), {"sesame": READER}, triage)


def serve_dashboard(
    source: PlayedSource, keys: dict[str, Caller], triage: PlayedRouter
) -> Iterator[Site]:
    """Serve the dashboard only."""
    app = Starlette(routes=dashboard_routes(source, keys.get))
    with run_uvicorn(uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))) as address:
        yield Site(address, triage)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = launch_chromium(started)
        yield browser
        browser.close()


class BrowserWindow:
    """A browser window that records errors, warnings and requests."""

    def __init__(self, chromium: Any, site: Site, **options: Any) -> None:
        self.site = site
        self.context = chromium.new_context(**options)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self.listen)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"alert {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def listen(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def go(self, path: str) -> Any:
        self.page.goto(self.site.address + path)
        return self.page

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def window(chromium: Any, site: Site) -> Iterator[BrowserWindow]:
    """A window in which no error occurs and no external resource is requested."""
    window = BrowserWindow(chromium, site)
    yield window
    window.close()
    assert window.problems == []
    assert {url for url in window.requests if not url.startswith(site.address)} == set()


def read_bound_elements(page: Any) -> list[list[str]]:
    """All elements with a data binding, as they are in the page."""
    found: list[list[str]] = page.eval_on_selector_all(
        "main [data-bind]",
        "all => all.map(e => [e.dataset.bind, e.children.length ? '' : e.textContent, "
        "e.getAttribute('width') ?? '', String(e.hidden), e.dataset.state ?? '', "
        "String('periods' in e.dataset), String('early' in e.dataset)])",
    )
    return found


def test_a_page_shows_every_limit_and_whether_it_is_kept(window: BrowserWindow) -> None:
    page = window.go("/routers/triage")
    cards = page.locator(".limits article")
    for limit_status, i in zip(window.site.triage.router.status().limits, range(9), strict=False):
        card = cards.nth(i)
        side = limit_status.side.replace("_", " ")
        assert card.locator("h3").inner_text() == (
            f"{limit_status.cost} {side} {format_number(limit_status.bound)}"
        )
        assert card.locator(".state").inner_text() == limit_status.verdict
        assert card.locator("svg.gauge line.bound").get_attribute("x1") != "0%"
        assert card.locator("figure polyline").count() >= 2


def test_new_decisions_appear_without_a_reload(window: BrowserWindow) -> None:
    page = window.go("/routers/triage")
    page.evaluate("window.same = true")
    before = page.locator(".latest tbody tr:first-of-type .id").inner_text()
    label = page.locator("[data-chart=reward] svg").get_attribute("aria-label")
    window.site.triage.play(40)
    decisions = FORMATS["count"](window.site.triage.router.t)
    page.wait_for_function(
        "text => document.querySelector('.tiles dd').textContent === text", arg=decisions
    )
    assert page.locator(".latest tbody tr:first-of-type .id").inner_text() != before
    assert page.locator("[data-chart=reward] svg").get_attribute("aria-label") != label
    assert page.evaluate("window.same")


def test_the_server_and_the_browser_render_the_same(chromium: Any, window: BrowserWindow) -> None:
    without_javascript = BrowserWindow(chromium, window.site, java_script_enabled=False)
    for path in PATHS:
        from_server = read_bound_elements(without_javascript.go(path))
        assert from_server == read_bound_elements(window.go(path))
        window.page.evaluate(REWRITE, asset_url("bind.js"))
        assert from_server == read_bound_elements(window.page)
    without_javascript.close()


def test_numbers_are_formatted_the_same_by_server_and_browser(window: BrowserWindow) -> None:
    page, rng = window.go("/"), random.Random(5)
    numbers = [rng.choice((1, -1)) * 10 ** rng.uniform(-9, 17) for _ in range(3000)]
    numbers += [i / 8 for i in range(-99, 99)] + [i + 0.5 for i in range(995, 1005)]
    numbers += [0.0, 1.0, 999.95, 999.949, 0.0001, 0.00009999, 0.0005, 1e15, 1.25e15]
    numbers += [1.25e-5, 1.25e-7]
    names = ["number", "percent", "hundredths", "propensity", "level", "width"]
    from_browser = page.evaluate(
        "async ([base, names, numbers]) => { const { FORMATS } = await import(base);"
        "return names.map((name) => numbers.map((x) => FORMATS[name](x))); }",
        [asset_url("formatting.js"), names, [*numbers, None]],
    )
    for name, column in zip(names, from_browser, strict=True):
        assert column == [FORMATS[name](x) for x in [*numbers, None]]


def test_numbers_and_tables_are_shown_without_javascript(chromium: Any, site: Site) -> None:
    without_javascript = BrowserWindow(chromium, site, java_script_enabled=False)
    page = without_javascript.go("/routers/triage")
    assert page.locator(".tiles dd").first.inner_text() == FORMATS["count"](site.triage.router.t)
    assert page.locator(".latest tbody tr").count() == 25
    page.locator("summary", has_text="Timeline").click()
    assert page.locator("details table tbody tr").count() > 20
    assert not page.locator(".chart").first.is_visible()
    assert not page.locator("#live").is_visible()
    assert "need JavaScript" in page.locator("noscript").inner_text()
    without_javascript.go("/")
    assert not page.locator("#filter").is_visible()
    page.get_by_role("link", name="triage").click()
    assert page.locator("h1").inner_text() == "triage"
    without_javascript.close()


def test_a_lost_connection_is_announced_and_restored(window: BrowserWindow) -> None:
    window.page.clock.install()
    page = window.go("/routers/triage")
    page.route("**/*.json", lambda route: route.abort())
    page.clock.run_for(2_100)
    page.locator("#live[data-link=lost]").wait_for()
    assert "connection lost, retry in" in page.locator("#link").inner_text()
    assert page.locator("#announcement").inner_text() == "Connection lost"
    page.unroute("**/*.json")
    page.clock.run_for(2_100)  # the pause has doubled
    assert page.locator("#live[data-link=lost]").count() == 1
    page.clock.run_for(2_000)
    page.locator("#live[data-link=live]").wait_for()
    assert page.locator("#announcement").inner_text() == "Connection restored"
    window.problems = [one for one in window.problems if "ERR_FAILED" not in one]


def test_updates_can_be_paused(window: BrowserWindow) -> None:
    window.page.clock.install()
    page = window.go("/routers/triage")
    page.get_by_role("button", name="Pause").click()
    window.requests.clear()
    page.clock.run_for(10_000)
    assert window.requests == []
    assert page.locator("#link").inner_text() == "paused"
    page.get_by_role("button", name="Pause").click()
    page.locator("#live[data-link=live]").wait_for()
    assert any(url.endswith("/routers/triage.json") for url in window.requests)


def test_a_limit_that_changes_its_state_is_announced(window: BrowserWindow) -> None:
    window.page.clock.install()
    page = window.go("/routers/triage")
    page_data = page.evaluate("fetch('/routers/triage.json').then((one) => one.json())")
    page_data["limits"][0]["status"]["verdict"] = "will be missed"
    page.route("**/*.json", lambda route: route.fulfill(json=page_data))
    page.clock.run_for(2_100)
    page.locator("#announcement", has_text="usd at most 3: now will be missed").wait_for(
        state="attached"
    )
    assert page.locator(".limits .state").first.inner_text() == "will be missed"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_pass_the_accessibility_audit(chromium: Any, site: Site, scheme: str) -> None:
    window = BrowserWindow(chromium, site, color_scheme=scheme)
    for path in (*PATHS, "/sign-in", "/routers/none"):
        page = window.go(path)
        page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true; })")
        assert page.evaluate(AUDIT) == [], path
    window.close()


def test_the_test_above_would_notice_accessibility_faults(window: BrowserWindow) -> None:
    page = window.go("/routers/triage")
    page.evaluate(
        """() => {
        document.querySelector("h2").outerHTML = "<h4 id='reward'>Reward</h4>";
        document.querySelector(".note").style.color = "#aaa";
        document.querySelector("caption").remove();
        document.querySelector("main").append(document.createElement("input"));
        document.querySelector("svg.gauge").removeAttribute("aria-hidden");
        document.querySelector("#pause").textContent = "";
        }"""
    )
    found = "\n".join(page.evaluate(AUDIT))
    for fault in (
        "h4 after h1", "contrast", "without a caption", "without a label", "without a text",
        "nameless control",
    ):  # fmt: skip
        assert fault in found


def test_every_control_is_reachable_by_keyboard_with_a_visible_focus(window: BrowserWindow) -> None:
    page = window.go("/routers/triage")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    expected = page.eval_on_selector_all(
        "a, button, summary, .scroll, .chart svg",
        "all => all.filter(e => e.checkVisibility()).length",
    )
    reached = set()
    for _ in range(expected + 5):
        name, outlined = page.evaluate(
            "() => { const e = document.activeElement; e.mark ??= String(Math.random());"
            "return [e === document.body ? '' : e.mark, getComputedStyle(e).outlineStyle]; }"
        )
        if name:
            reached.add(name)
            assert outlined != "none"
        page.keyboard.press("Tab")
    assert len(reached) == expected


def test_a_chart_shows_its_numbers_for_arrow_keys_and_pointer(window: BrowserWindow) -> None:
    page = window.go("/routers/triage")
    chart = page.locator("[data-chart=reward]")
    chart.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    last = chart.locator("output").inner_text()
    page.keyboard.press("ArrowLeft")
    assert chart.locator("output").inner_text() != last
    assert "not finished" in last or "recent mean" in last  # other tests make decisions too
    page.keyboard.press("ArrowLeft")
    assert "recent mean" in chart.locator("output").inner_text()
    chart.locator("svg").hover(position={"x": 60, "y": 60})
    assert chart.locator("output").inner_text() not in ("", last)


def test_the_axis_of_charts_is_decisions_and_not_time(chromium: Any) -> None:
    triage = PlayedRouter("triage", make_five_expert_problem()).play(150)
    triage.at += 8 * 3600 * 1_000_000
    for site in serve_dashboard(PlayedSource(triage.play(150)), {"": READER}, triage):
        page = BrowserWindow(chromium, site).go("/routers/triage")
        drawn = page.locator("[data-chart=reward] polyline.each").get_attribute("points")
        positions = [float(one.split(",")[0]) for one in drawn.split()]
        steps = [b - a for a, b in itertools.pairwise(positions)]
        assert len(steps) > 40
        # Equal numbers of decisions; coordinates have one decimal
        assert max(steps) - min(steps) < 0.3
        assert page.locator("[data-chart=reward] text").count() >= 5


def test_a_phone_shows_a_page_without_scrolling_sideways(chromium: Any, site: Site) -> None:
    phone = BrowserWindow(chromium, site, viewport={"width": 375, "height": 700}, has_touch=True)
    for path in (*PATHS, "/sign-in"):
        page = phone.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") == 375, path
    phone.close()


def test_hostile_names_are_shown_as_text(window: BrowserWindow) -> None:
    page = window.go(f"/routers/{LONG_NAME}")
    assert page.locator("main img").count() == 0
    assert page.get_by_text(HOSTILE_NAME, exact=True).count() > 0
    page.evaluate("fetch('/routers.json')")


def test_the_list_can_be_filtered_by_name_and_state(window: BrowserWindow) -> None:
    page = window.go("/")
    rows = page.locator("table.routers tbody tr")
    assert rows.count() == 45
    page.get_by_label("Name contains").fill("RIA")
    assert [row.locator("a").inner_text() for row in rows.all() if row.is_visible()] == ["triage"]
    assert page.locator("#found").inner_text() == "1 of 45"
    page.get_by_label("Name contains").fill("")
    page.get_by_label("only routers that need attention").check()
    shown = [row.locator("a").inner_text() for row in rows.all() if row.is_visible()]
    assert shown == ["broken", "budget"], "cannot be served, will run out"


def test_the_list_says_which_routers_its_counts_leave_out(window: BrowserWindow) -> None:
    page = window.go("/")
    rows = page.eval_on_selector_all(
        "table.routers tbody tr", "all => all.map((row) => [...row.cells].map((x) => x.innerText))"
    )
    loaded = [row for row in rows if row[-1] == "here"]
    note = page.locator("main > .note:visible").inner_text()
    assert note.startswith(f"{sum(row[-1] == 'not loaded' for row in rows)} routers are not loaded")
    decisions = sum(int(row[3].replace(",", "")) for row in loaded)
    assert page.locator(".tiles dd").nth(1).inner_text() == FORMATS["count"](decisions)


def test_signing_in_and_out_with_a_key(chromium: Any, protected_site: Site) -> None:
    window = BrowserWindow(chromium, protected_site)
    page = window.go("/routers/triage")
    page.get_by_label("API key").fill("open")
    page.get_by_role("button", name="Sign in").click()
    assert page.get_by_role("alert").is_visible()
    page.get_by_label("API key").fill("sesame")
    page.keyboard.press("Enter")
    page.wait_for_url("**/routers/triage")
    page.locator("#live[data-link=live]").wait_for()
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    window.go("/")
    assert "/sign-in" in page.url
    assert [one for one in window.problems if "401" not in one] == []
    window.close()


def test_the_dashboard_shows_a_running_server(chromium: Any, tmp_path: Path) -> None:
    settings = ServerSettings(store=f"sqlite:///{tmp_path}/bylot.db")
    with (
        run_uvicorn(HttpServer(ServerApp(settings))) as address,
        httpx.Client(base_url=address) as client,
    ):
        problem = problem_to_data(make_five_expert_problem())
        body = {"name": "triage", "problem": problem}
        while is_compiling(client.post("/v1/routers", json=body, timeout=120.0)):
            time.sleep(0.1)
        window = BrowserWindow(
            chromium, Site(address, PlayedRouter("unused", make_five_expert_problem()))
        )
        page = window.go("/")
        page.get_by_role("link", name="triage").click()
        assert page.locator(".title .state").inner_text() == "not started"
        for _ in range(3):
            decision = client.post(
                "/v1/routers/triage/decisions",
                json={"context": HOSTILE_NAME.replace("\u202e", "")},  # which a server refuses
            ).json()
        client.post(
            f"/v1/decisions/{decision['id']}/reward", json={"value": 0.75, "spend": {"usd": 2}}
        )
        page.locator(".latest .id", has_text=decision["id"]).wait_for()
        row = page.locator(".latest tbody tr").first
        assert row.locator(".state").inner_text() == "rewarded"
        assert "usd 2 " in row.inner_text().replace("\n", " ")
        assert page.locator(".tiles").inner_text().split()[:3] == ["decisions", "3", "limits"]
        assert window.problems == []
        window.close()
