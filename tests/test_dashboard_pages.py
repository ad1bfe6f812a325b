"""The pages of the dashboard as they are sent."""

import asyncio
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

import bylot
from bylot.errors import RouterBusy, StoreCorrupted
from bylot.router.config import RouterConfig
from bylot.router.status import TimelinePoints
from bylot.server.auth import Caller
from bylot.server.dashboard.formatting import FORMATS
from bylot.server.dashboard.render import asset_url, bound_attributes, bound_element, load_assets
from bylot.server.dashboard.router_view import (
    MAX_CHART_SPANS,
    build_overview,
    build_router_page,
    timeline_spans,
)
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.sections import (
    build_selection,
    describe_changes,
    make_gauge,
    view_limits,
)
from bylot.server.dashboard.source import ConfigChange, ListedRouters
from page_client import PageClient
from played_routers import PlayedRouter, PlayedSource
from small import five

EVIL = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&\u2028\u202e漢"


def reader(*routers: str) -> Caller:
    """A visitor who may read some routers, or all."""
    return Caller(None, frozenset({"read"}), frozenset(routers))


@pytest.fixture(scope="module")
def triage() -> PlayedRouter:
    return PlayedRouter("triage", five(), ["chest pain", None]).play(600)


@pytest.fixture(scope="module")
def evil() -> PlayedRouter:
    pool = bylot.Problem(
        experts=[EVIL, "ok"], costs={EVIL: [1.0, 2.0]}, limits=[bylot.at_most(EVIL, 1.9)], draws=1
    )
    return PlayedRouter("evil", pool, [EVIL]).play(30)


def visit(
    *routers: PlayedRouter, who: Caller | None = None, others: ListedRouters | None = None
) -> PageClient:
    """A browser at a dashboard of these routers."""
    guest = who or reader()
    return PageClient(
        [*dashboard_routes(PlayedSource(*routers, others=others), lambda token: guest)]
    )


class Texts(HTMLParser):
    """The elements of a page, and the text outside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.said: list[str] = []
        self.data = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and data.strip():
            self.data = data
        self.said.append(data)


def test_a_page_holds_the_data_of_its_twin(triage: PlayedRouter) -> None:
    client = visit(triage)
    for page, twin in (("/", "/routers.json"), ("/routers/triage", "/routers/triage.json")):
        shown = Texts(client.get(page).text)
        assert json.loads(shown.data) == client.get(twin).json()


def test_the_numbers_are_those_of_the_router(triage: PlayedRouter) -> None:
    status = triage.router.status()
    twin = visit(triage).get("/routers/triage.json").json()
    assert twin["status"]["decisions"] == status.decisions == 600
    assert twin["status"]["mean_reward"] == status.mean_reward
    assert [one["status"]["mean"] for one in twin["limits"]] == [one.mean for one in status.limits]
    assert [one["state"] for one in twin["limits"]] == [one.verdict for one in status.limits]
    assert {one["expert"]: one["overall"] for one in twin["selection"]["rows"]} == dict(status.q)
    assert sum(span["decisions"] for span in twin["timeline"]) == 600
    assert twin["timeline"][-1]["reward"]["so_far"] == pytest.approx(status.mean_reward, rel=1e-5)
    cost = [span["costs"][0]["so_far"] for span in twin["timeline"]][-1]
    assert cost == pytest.approx(status.limits[0].mean, rel=1e-5)


def test_the_chances_of_a_context_fill_the_panel(triage: PlayedRouter) -> None:
    table = build_selection(triage.status(), triage.terms)
    for i, _ in enumerate(table.columns):
        assert sum(row.by_context[i] for row in table.rows) == pytest.approx(five().draws)
    overall = [row.overall for row in table.rows]
    assert overall == sorted(overall, reverse=True)


def test_whatever_a_name_holds_it_is_text(evil: PlayedRouter) -> None:
    client = visit(evil)
    shown = Texts(client.get("/routers/evil").text)
    assert "img" not in shown.tags
    assert shown.tags.count("script") == 2  # ours, and the data
    assert json.loads(shown.data)["limits"][0]["status"]["cost"] == EVIL
    assert EVIL in shown.said
    missing = Texts(client.get("/routers/%3Cimg%20src=x%3E").text)
    assert "img" not in missing.tags


def test_nothing_is_written_into_a_page_that_its_policy_forbids(triage: PlayedRouter) -> None:
    client = visit(triage)
    for path in ("/", "/routers/triage", "/sign-in", "/routers/none"):
        answer = client.get(path)
        shown = Texts(answer.text)
        assert not {name for name in shown.attributes if name.startswith("on") or name == "style"}
        assert "style" not in shown.tags
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r"(src|href)=\"(https?:)?//", answer.text)


def test_a_router_that_is_not_there_is_told_in_the_shape_that_was_asked(
    triage: PlayedRouter,
) -> None:
    client = visit(triage)
    page, twin = client.get("/routers/none"), client.get("/routers/none.json")
    assert (page.status_code, twin.status_code) == (404, 404)
    assert "no router named &#39;none&#39;" in page.text
    assert twin.json()["error"]["code"] == "no_such_router"


def test_a_key_for_some_routers_shows_no_others(triage: PlayedRouter, evil: PlayedRouter) -> None:
    client = visit(triage, evil, who=reader("triage"))
    assert [one["name"] for one in client.get("/routers.json").json()["routers"]] == ["triage"]
    assert client.get("/routers/triage").status_code == 200
    assert client.get("/routers/evil").status_code == 404
    assert client.get("/routers/evil.json").status_code == 404


def test_assets_may_be_kept_for_ever_as_their_address_is_their_content() -> None:
    client = visit()
    for name in load_assets():
        answer = client.get(asset_url(name))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.content == load_assets()[name].content
    assert client.get(asset_url("../routes.py")).status_code == 404
    assert {"page.css", "live.js", "icon.svg"} <= set(load_assets())


def test_a_router_before_its_first_decision_has_a_page() -> None:
    new = PlayedRouter("new", five())
    page = build_router_page(new.view(), [], new.edits)
    assert page.state == "not started"
    assert page.timeline == []
    assert page.status.mean_reward is None
    assert "None yet." in visit(new).get("/routers/new").text


def test_a_router_without_limits_has_a_page() -> None:
    free = PlayedRouter("free", bylot.Problem(["a", "b"], {}, [], draws=1)).play(3)
    assert build_router_page(free.view(), free.past, free.edits).state == "no limits"
    assert visit(free).get("/routers/free").status_code == 200


def test_a_policy_that_guards_nothing_has_no_period(triage: PlayedRouter) -> None:
    status, replace = triage.status(), msgspec.structs.replace
    limits = tuple(replace(one, current=None, price=None) for one in status.limits)
    view = replace(triage.view(), status=replace(status, period=None, limits=limits))
    page = build_router_page(view, [], [])
    assert page.period_progress is None
    assert {(one.status.current, one.gauge.now, one.gauge.in_force) for one in page.limits} == {
        (None, None, None)
    }


def test_the_list_counts_what_needs_attention(triage: PlayedRouter) -> None:
    view, replace = triage.view(), msgspec.structs.replace
    limits = tuple(replace(one, verdict="out of reach") for one in view.status.limits)
    outside = replace(view, status=replace(view.status, limits=limits))
    found = build_overview(
        {
            "a": view,
            "b": outside,
            "c": StoreCorrupted("its log is damaged"),
            "d": RouterBusy("leased by another server"),
        }
    )
    assert (found.count, found.violated, found.failed) == (4, 1, 1)
    assert [one.state for one in found.routers][1:] == ["out of reach", "cannot be served", None]
    assert found.decisions == 1200
    shown = Texts(visit(others={"c": StoreCorrupted(EVIL)}).get("/").text)
    assert EVIL in shown.said


def test_a_gauge_tints_the_side_that_is_outside() -> None:
    most = make_gauge("at_most", bound=3.0, mean=2.0, now=None, in_force=3.1)
    least = make_gauge("at_least", bound=3.0, mean=2.0, now=None, in_force=3.1)
    assert (most.outside, most.outside + most.beyond) == (most.bound, 1.0)
    assert (least.outside, least.beyond) == (0.0, least.bound)
    nothing = make_gauge("at_most", bound=0.0, mean=0.0, now=0.0, in_force=0.0)
    assert nothing.top == 1.0


def test_stated_and_expected_costs_are_means(triage: PlayedRouter) -> None:
    status = triage.status()
    first = view_limits(status)[0]
    assert first.stated == pytest.approx(status.costs["usd"].stated / 600)
    assert first.expected == pytest.approx(status.costs["usd"].expected / 600)


@pytest.mark.parametrize("bins", [0, 1, MAX_CHART_SPANS, MAX_CHART_SPANS + 1, 4 * MAX_CHART_SPANS])
def test_a_long_course_is_merged_and_loses_nothing(bins: int) -> None:
    points = TimelinePoints(
        started=[i * 1_000_000 for i in range(bins)],
        decisions=[2] * bins,
        rewards=[1] * bins,
        total=[0.5] * bins,
        spent={"usd": [3.0] * bins},
    )
    spans = timeline_spans(points, ["usd"])
    assert len(spans) <= MAX_CHART_SPANS
    assert sum(span.decisions for span in spans) == 2 * bins
    assert {span.reward.so_far for span in spans} <= {0.5}
    assert {span.costs[0].each for span in spans} <= {1.5}


def terms(**changed: object) -> RouterConfig:
    """Terms of a small router, some of them changed."""
    problem = {
        "experts": ["ann", "bob"],
        "costs": {"usd": [1.0, 2.0]},
        "limits": [{"cost": "usd", "at_most": 2.0}],
        "draws": 1,
        "floor": 0.1,
        "period": None,
    }
    base = RouterConfig(problem=problem, policy={"name": "distinct"})
    inner = {key: changed.pop(key) for key in list(changed) if key in problem}
    return msgspec.structs.replace(base, problem={**problem, **inner}, **changed)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (terms(), []),
        (terms(limits=[{"cost": "usd", "at_most": 1.5}]), ["usd at most: 2 → 1.5"]),
        (terms(limits=[]), ["usd at most: 2 → none"]),
        (
            terms(limits=[{"cost": "usd", "at_most": 2.0}, {"share": "x", "at_least": 0.5}]),
            ["x at least: none → 0.5"],
        ),
        (
            terms(experts=["ann", "bob", "eve"], costs={"usd": [1.0, 2.0, 3.0]}),
            ["added: eve"],
        ),
        (terms(experts=["bob"], costs={"usd": [2.0]}), ["removed: ann"]),
        (terms(costs={"usd": [1.0, 9.0]}), ["costs of bob"]),
        (terms(paused=("bob",)), ["paused: bob"]),
        (terms(wait=60.0, default=0.0), ["wait: none → 60", "default: none → 0"]),
        (terms(rewards=(0.0, 5.0)), ["rewards: 0 to 1 → 0 to 5"]),
        (terms(draws=2), ["draws: 1 → 2"]),
    ],
)
def test_an_edit_says_what_it_changed(after: RouterConfig, told: list[str]) -> None:
    assert list(describe_changes(terms(), after)) == told


def test_versions_are_told_newest_first() -> None:
    new = PlayedRouter("new", five())
    second = msgspec.structs.replace(new.terms, version=2, wait=5.0)
    edits = [*new.edits, ConfigChange(at="2026-01-01T00:00:00Z", by="ops", config=second)]
    told = build_router_page(new.view(), [], edits).versions
    assert [(one.version, one.by, one.changes) for one in told] == [
        (2, "ops", ["wait: 600 → 5"]),
        (1, "root", ["created"]),
    ]


def test_of_very_many_versions_the_last_are_told_each_against_the_one_before() -> None:
    new = PlayedRouter("new", five())
    edits = [
        ConfigChange(
            at="", by="ops", config=msgspec.structs.replace(new.terms, version=n, wait=float(n))
        )
        for n in (7, 8, 9)
    ]
    told = build_router_page(new.view(), [], edits).versions
    assert [(one.version, one.changes) for one in told] == [
        (9, ["wait: 8 → 9"]),
        (8, ["wait: 7 → 8"]),
    ]


@pytest.mark.parametrize(
    ("name", "values", "texts"),
    [
        ("propensity", (0.25, 0.00123, 3.2e-9, 0.0, None), ("0.25", "0.00123", "3.2e-9", "–", "–")),
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


def test_attributes_that_are_bound_are_escaped() -> None:
    made = bound_element("td", {"name": '"><b>'}, "text:name title:name")
    assert made == (
        '<td data-bind="text:name title:name" title="&#34;&gt;&lt;b&gt;">&#34;&gt;&lt;b&gt;</td>'
    )
    assert "hidden" in bound_attributes({"limits": []}, "hidden:limits|missing").split()[-1]
    assert "hidden=" not in bound_attributes({"limits": [1]}, "hidden:limits|missing")


def test_the_standin_is_a_source(triage: PlayedRouter) -> None:
    listed = asyncio.run(PlayedSource(triage).list_routers())
    assert [*listed] == ["triage"]
