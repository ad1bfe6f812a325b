"""The pages of the dashboard as they are sent."""

import asyncio
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

import bylot
from bylot.errors import ProblemError, RouterBusy, StoreCorrupted
from bylot.limits.gauge import make_budget_gauge, make_gauge
from bylot.limits.window_status import WindowStatus
from bylot.router.config import RouterConfig
from bylot.router.status import TimelinePoints
from bylot.server.auth import Caller
from bylot.server.dashboard import router_view
from bylot.server.dashboard.render import (
    FORMATS,
    asset_url,
    bound_attributes,
    bound_element,
    load_assets,
)
from bylot.server.dashboard.router_view import (
    MAX_CHART_SPANS,
    build_overview,
    build_router_page,
    timeline_spans,
)
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.sections import (
    build_selection,
    list_config_versions,
    read_limits,
    view_limits,
)
from bylot.server.dashboard.source import ConfigChange, ListedRouters
from bylot.server.reconcile import list_changes
from page_client import PageClient
from played_routers import PlayedRouter, PlayedSource
from sample_problem import make_five_expert_problem

HOSTILE_NAME = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&\u2028\u202e漢"


def make_reader(*routers: str) -> Caller:
    """A caller who may read some routers, or all."""
    return Caller(None, frozenset({"read"}), frozenset(routers))


@pytest.fixture(scope="module")
def triage() -> PlayedRouter:
    return PlayedRouter("triage", make_five_expert_problem(), ["chest pain", None]).play(600)


@pytest.fixture(scope="module")
def hostile_router() -> PlayedRouter:
    pool = bylot.Problem(
        experts=[HOSTILE_NAME, "ok"],
        costs={HOSTILE_NAME: [1.0, 2.0]},
        limits=[bylot.at_most(HOSTILE_NAME, 1.9)],
        draws=1,
    )
    return PlayedRouter("evil", pool, [HOSTILE_NAME]).play(30)


def open_dashboard(
    *routers: PlayedRouter, caller: Caller | None = None, others: ListedRouters | None = None
) -> PageClient:
    """A client of a dashboard of these routers."""
    visitor = caller or make_reader()
    return PageClient(
        [*dashboard_routes(PlayedSource(*routers, others=others), lambda token: visitor)]
    )


class PageContent(HTMLParser):
    """The elements of a page, and the text outside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.data = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and data.strip():
            self.data = data
        self.texts.append(data)


def test_a_page_has_the_data_of_its_json(
    triage: PlayedRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_view, "now_us", lambda: triage.at)
    client = open_dashboard(triage)
    for page, json_path in (("/", "/routers.json"), ("/routers/triage", "/routers/triage.json")):
        content = PageContent(client.get(page).text)
        assert json.loads(content.data) == client.get(json_path).json()


def test_the_numbers_are_those_of_the_router(triage: PlayedRouter) -> None:
    status = triage.router.status()
    json_path = open_dashboard(triage).get("/routers/triage.json").json()
    assert json_path["status"]["decisions"] == status.decisions == 600
    assert json_path["status"]["mean_reward"] == status.mean_reward
    assert [one["status"]["mean"] for one in json_path["limits"]] == [
        one.mean for one in status.limits
    ]
    assert [one["status"]["verdict"] for one in json_path["limits"]] == [
        one.verdict for one in status.limits
    ]
    assert {one["expert"]: one["overall"] for one in json_path["selection"]["rows"]} == dict(
        status.q
    )
    assert sum(span["decisions"] for span in json_path["timeline"]) == 600
    spans = json_path["timeline"]
    rewards = sum(span["rewards"] * span["reward"] for span in spans if span["rewards"])
    assert rewards / status.rewards == pytest.approx(status.mean_reward, rel=1e-5)
    spent = sum(span["decisions"] * span["costs"][0] for span in spans)
    assert spent / 600 == pytest.approx(status.limits[0].mean, rel=1e-5)


def test_the_probabilities_of_a_context_sum_to_the_number_of_draws(triage: PlayedRouter) -> None:
    table = build_selection(triage.status(), triage.config)
    for i, _ in enumerate(table["columns"]):
        assert sum(row["by_context"][i] for row in table["rows"]) == pytest.approx(
            make_five_expert_problem().draws
        )
    overall = [row["overall"] for row in table["rows"]]
    assert overall == sorted(overall, reverse=True)


def test_a_page_has_the_most_likely_experts_and_says_how_many_it_leaves_out(
    triage: PlayedRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = triage.status()
    monkeypatch.setattr("bylot.server.dashboard.sections.MAX_EXPERT_ROWS", 3)
    table = build_selection(status, triage.config)
    assert [row["expert"] for row in table["rows"]] == sorted(
        status.q, key=lambda one: -status.q[one]
    )[:3]
    assert table["experts_left"] == 2
    assert "2 less likely experts are not shown" in "".join(
        PageContent(open_dashboard(triage).get("/routers/triage").text).texts
    )


def test_hostile_names_are_escaped(hostile_router: PlayedRouter) -> None:
    client = open_dashboard(hostile_router)
    content = PageContent(client.get("/routers/evil").text)
    assert "img" not in content.tags
    assert content.tags.count("script") == 2  # the script of the page, and the data
    assert json.loads(content.data)["limits"][0]["status"]["cost"] == HOSTILE_NAME
    assert HOSTILE_NAME in content.texts
    missing = PageContent(client.get("/routers/%3Cimg%20src=x%3E").text)
    assert "img" not in missing.tags


def test_pages_follow_their_content_security_policy(triage: PlayedRouter) -> None:
    client = open_dashboard(triage)
    for path in ("/", "/routers/triage", "/sign-in", "/routers/none"):
        answer = client.get(path)
        content = PageContent(answer.text)
        assert not {name for name in content.attributes if name.startswith("on") or name == "style"}
        assert "style" not in content.tags
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r"(src|href)=\"(https?:)?//", answer.text)


def test_an_unknown_router_is_a_404_as_page_and_as_json(
    triage: PlayedRouter,
) -> None:
    client = open_dashboard(triage)
    page, json_path = client.get("/routers/none"), client.get("/routers/none.json")
    assert (page.status_code, json_path.status_code) == (404, 404)
    assert "no router named &#39;none&#39;" in page.text
    assert json_path.json()["error"]["code"] == "no_such_router"


def test_a_key_for_some_routers_shows_no_others(
    triage: PlayedRouter, hostile_router: PlayedRouter
) -> None:
    client = open_dashboard(triage, hostile_router, caller=make_reader("triage"))
    assert [one["name"] for one in client.get("/routers.json").json()["routers"]] == ["triage"]
    assert client.get("/routers/triage").status_code == 200
    assert client.get("/routers/evil").status_code == 404
    assert client.get("/routers/evil.json").status_code == 404


def test_assets_are_immutable_and_addressed_by_content() -> None:
    client = open_dashboard()
    for name in load_assets():
        answer = client.get(asset_url(name))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.content == load_assets()[name].content
    assert client.get(asset_url("../routes.py")).status_code == 404
    assert {"page.css", "live.js", "icon.svg"} <= set(load_assets())


def test_a_router_before_its_first_decision_has_a_page() -> None:
    new = PlayedRouter("new", make_five_expert_problem())
    page = build_router_page(new.view(), [], new.edits)
    assert page["status"].state.name == "not started"
    assert page["timeline"] == []
    assert page["status"].mean_reward is None
    assert "None yet." in open_dashboard(new).get("/routers/new").text


def test_a_router_without_limits_has_a_page() -> None:
    unlimited = PlayedRouter("free", bylot.Problem(["a", "b"], {}, [], draws=1)).play(3)
    page = build_router_page(unlimited.view(), unlimited.records, unlimited.edits)
    assert page["status"].state.name == "no limits"
    assert open_dashboard(unlimited).get("/routers/free").status_code == 200


def test_a_policy_without_a_guard_has_no_period(triage: PlayedRouter) -> None:
    status, replace = triage.status(), msgspec.structs.replace
    limits = tuple(replace(one, current=None, price=None) for one in status.limits)
    view = replace(triage.view(), status=replace(status, period=None, limits=limits))
    page = build_router_page(view, [], [])
    assert page["period_progress"] is None
    for one in page["limits"]:
        assert (one["status"].current, one["gauge"].in_force) == (None, None)
        assert one["gauge"].now == one["gauge"].mean  # it is judged by the average since the first


def test_the_overview_counts_routers_that_need_attention(triage: PlayedRouter) -> None:
    view, replace = triage.view(), msgspec.structs.replace
    limits = tuple(replace(one, verdict="will be missed") for one in view.status.limits)
    outside = replace(view, status=replace(view.status, limits=limits).judge())
    found = build_overview(
        {
            "a": view,
            "b": outside,
            "c": StoreCorrupted("its log is damaged"),
            "d": RouterBusy("leased by another server"),
        }
    )
    assert [found[name] for name in ("count", "attention", "critical", "failed")] == [4, 2, 2, 1]
    assert found["unknown"] == 1
    states = [row["state"] for row in found["routers"]][1:]
    names = [None if state is None else state.name for state in states]
    assert names == ["will be missed", "cannot be served", None]
    assert found["decisions"] == 1200
    content = PageContent(open_dashboard(others={"c": ProblemError(HOSTILE_NAME)}).get("/").text)
    assert HOSTILE_NAME in content.texts


def test_the_overview_names_the_models_of_gateways(triage: PlayedRouter) -> None:
    overview = build_overview({"triage": triage.view(), "gone": None}, ["triage", "other"])
    assert {one["name"]: one["model"] for one in overview["routers"]} == {
        "triage": "bylot/triage",
        "gone": None,
    }


def test_a_router_without_a_gateway_has_no_members(triage: PlayedRouter) -> None:
    client = open_dashboard(triage)
    assert client.get("/routers/triage.json").json()["members"] is None
    text = client.get("/routers/triage").text
    assert re.search(r'<section aria-labelledby="members" data-bind="[^"]*" hidden="">', text)


def test_a_gauge_marks_the_side_outside_the_bound() -> None:
    most = make_gauge("at_most", bound=3.0, mean=2.0, now=None, in_force=3.1)
    least = make_gauge("at_least", bound=3.0, mean=2.0, now=None, in_force=3.1)
    assert (most.outside, most.outside + most.beyond) == (most.bound, 1.0)
    assert (least.outside, least.beyond) == (0.0, least.bound)
    nothing = make_gauge("at_most", bound=0.0, mean=0.0, now=0.0, in_force=0.0)
    assert nothing.top == 1.0


def test_stated_and_expected_costs_are_means(triage: PlayedRouter) -> None:
    status = triage.status()
    first = view_limits(status, read_limits(triage.config))[0]
    assert first["stated"] == pytest.approx(status.costs["usd"].stated / 600)
    assert first["expected"] == pytest.approx(status.costs["usd"].expected / 600)


@pytest.mark.parametrize("bins", [0, 1, MAX_CHART_SPANS, MAX_CHART_SPANS + 1, 4 * MAX_CHART_SPANS])
def test_a_long_timeline_is_merged_without_loss(bins: int) -> None:
    points = TimelinePoints(
        started=[i * 1_000_000 for i in range(bins)],
        decisions=[2] * bins,
        rewards=[1] * bins,
        total=[0.5] * bins,
        spent={"usd": [3.0] * bins},
    )
    spans = timeline_spans(points, ["usd"])
    assert len(spans) <= MAX_CHART_SPANS
    assert sum(span["decisions"] for span in spans) == 2 * bins
    assert {span["reward"] for span in spans} <= {0.5}
    assert {span["costs"][0] for span in spans} <= {1.5}


DAILY = {
    "cost": "usd",
    "at_most": 500.0,
    "per": "day",
    "zone": "Europe/Berlin",
    "when_spent": "refuse",
}


def make_config(**changes: object) -> RouterConfig:
    """The config of a small router, with changes."""
    problem = {
        "experts": ["ann", "bob"],
        "costs": {"usd": [1.0, 2.0]},
        "limits": [{"cost": "usd", "at_most": 2.0}],
        "draws": 1,
        "floor": 0.1,
        "period": None,
        "min_draws": None,
    }
    base = RouterConfig(problem=problem, policy={"name": "distinct"})
    inner = {key: changes.pop(key) for key in list(changes) if key in problem}
    return msgspec.structs.replace(base, problem={**problem, **inner}, **changes)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (make_config(), []),
        (make_config(limits=[{"cost": "usd", "at_most": 1.5}]), ["limits: usd at most 2 -> 1.5"]),
        (make_config(limits=[]), ["limits: drop usd at most 2"]),
        (
            make_config(
                limits=[
                    {"cost": "usd", "at_most": 2.0},
                    {"share": "x", "members": ["ann"], "at_least": 0.5},
                ]
            ),
            ["limits: add x at least 0.5"],
        ),
        (
            make_config(limits=[DAILY]),
            ["limits: drop usd at most 2, add usd at most 500 per day, Europe/Berlin, refuse"],
        ),
        (
            make_config(experts=["ann", "bob", "eve"], costs={"usd": [1.0, 2.0, 3.0]}),
            ["add expert eve"],
        ),
        (make_config(experts=["bob"], costs={"usd": [2.0]}), ["remove expert ann"]),
        (make_config(costs={"usd": [1.0, 9.0]}), ["costs of bob"]),
        (make_config(paused=("bob",)), ["pause bob"]),
        (make_config(wait=60.0, default=0.0), ["wait: none -> 60", "default: none -> 0"]),
        (make_config(min_draws=1), ["min_draws: none -> 1"]),
    ],
)
def test_an_edit_is_described_by_its_changes(after: RouterConfig, expected: list[str]) -> None:
    assert list(list_changes(make_config(), after)) == expected


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        ({}, []),
        ({"at_most": 600.0}, ["limits: usd at most per day 500 -> 600"]),
        ({"zone": "UTC"}, ["limits: usd at most per day, zone: Europe/Berlin -> UTC"]),
        ({"when_spent": "fewer"}, ["limits: usd at most per day, when_spent: refuse -> fewer"]),
        (
            {"per": "week"},
            [
                "limits: drop usd at most 500 per day, Europe/Berlin, refuse, "
                "add usd at most 500 per week, Europe/Berlin, refuse",
            ],
        ),
    ],
)
def test_an_edit_of_a_budget_is_described(edited: dict[str, object], expected: list[str]) -> None:
    before, after = make_config(limits=[DAILY]), make_config(limits=[DAILY | edited])
    assert list(list_changes(before, after)) == expected


def test_a_chart_has_no_bound_for_the_total_of_a_window() -> None:
    changes = [
        ConfigChange(at="", by=None, config=make_config(limits=limits, version=n))
        for n, limits in enumerate(([{"cost": "usd", "at_most": 2.0}], [DAILY]), start=1)
    ]
    per_request, per_day = (read_limits(one.config) for one in changes)
    bounds = [one["bounds"] for one in list_config_versions(changes, [*per_request, *per_day])]
    assert bounds == [[None, None], [2.0, None]]


def test_the_gauge_of_a_budget_shows_what_is_spent_reserved_and_projected() -> None:
    window = WindowStatus(
        per="day",
        zone="UTC",
        starts=0,
        ends=86_400_000_000,
        spent=200.0,
        reserved=50.0,
        left=250.0,
        used=0.4,
        projected=400.0,
        requests=30,
        to_come=70.0,
    )
    gauge = make_budget_gauge(500.0, window)
    assert gauge.top == 625.0
    positions = gauge.now, gauge.reserved, gauge.projected, gauge.bound
    assert positions == (200 / 625, 250 / 625, 400 / 625, 500 / 625)
    assert gauge.mean == pytest.approx(0.3 * 500 / 625), "30 of 100 requests have come"


def test_a_budget_has_a_card_before_the_first_decision() -> None:
    limits = [bylot.at_most("usd", 500, per="day", zone="Europe/Berlin")]
    new = PlayedRouter("new", make_five_expert_problem().replace(limits=limits))
    page = build_router_page(new.view(), [], new.edits)
    assert (page["status"].state.name, page["has_periods"]) == ("not started", False)
    (card,) = page["limits"]
    assert (card["per"], card["is_total"], card["window"]) == ("per day", True, None)
    assert "usd" in open_dashboard(new).get("/routers/new").text


def test_versions_are_listed_newest_first() -> None:
    new = PlayedRouter("new", make_five_expert_problem())
    second = msgspec.structs.replace(new.config, version=2, wait=5.0)
    edits = [*new.edits, ConfigChange(at="2026-01-01T00:00:00Z", by="ops", config=second)]
    expected = build_router_page(new.view(), [], edits)["versions"]
    assert [(one["version"], one["by"], one["changes"]) for one in expected] == [
        (2, "ops", ["wait: 600 -> 5"]),
        (1, "root", ["created"]),
    ]


def test_only_the_latest_versions_are_listed_with_their_changes() -> None:
    new = PlayedRouter("new", make_five_expert_problem())
    edits = [
        ConfigChange(
            at="", by="ops", config=msgspec.structs.replace(new.config, version=n, wait=float(n))
        )
        for n in (7, 8, 9)
    ]
    expected = build_router_page(new.view(), [], edits)["versions"]
    assert [(one["version"], one["changes"]) for one in expected] == [
        (9, ["wait: 8 -> 9"]),
        (8, ["wait: 7 -> 8"]),
    ]


@pytest.mark.parametrize(
    ("name", "values", "texts"),
    [
        ("propensity", (0.25, 0.00123, 3.2e-9, 0.0, None), ("0.25", "0.00123", "3.2e-9", "–", "–")),
        ("hundredths", (0.125, 12, 0.0, None), ("0.13", "12.00", "0.00", "–")),
        ("time", ("2026-11-15T17:18:45.123456Z", None), ("2026-11-15 17:18:45", "–")),
        ("level", (0, 0.01, 0.3, 1, None), ("0", "1", "5", "9", "0")),
        ("width", (0.5, 2.0, None), ("50.00%", "100.00%", "0%")),
        ("router", ("a/b?", None), ("/routers/a%2Fb%3F", "/routers/")),
        ("plain", ("a", 7, "", None), ("a", "7", "–", "–")),
    ],
)
def test_values_are_formatted(
    name: str, values: tuple[object, ...], texts: tuple[str, ...]
) -> None:
    assert tuple(FORMATS[name](value) for value in values) == texts


def test_bound_attributes_are_escaped() -> None:
    element = bound_element("td", {"name": '"><b>'}, "text:name title:name")
    assert element == (
        '<td data-bind="text:name title:name" title="&#34;&gt;&lt;b&gt;">&#34;&gt;&lt;b&gt;</td>'
    )
    assert "hidden" in bound_attributes({"limits": []}, "hidden:limits|missing").split()[-1]
    assert "hidden=" not in bound_attributes({"limits": [1]}, "hidden:limits|missing")


def test_the_played_source_lists_its_routers(triage: PlayedRouter) -> None:
    listed = asyncio.run(PlayedSource(triage).list_routers())
    assert [*listed] == ["triage"]
