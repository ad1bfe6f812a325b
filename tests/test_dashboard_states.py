"""The dashboard in the states that operators meet: what it says, and that it never contradicts
itself.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from browsers import launch_chromium
from bylot._text import format_number
from bylot.eventlog.events import BODY_DECODERS, now_us
from bylot.limits.status import QUIET_VERDICTS
from bylot.limits.verdict import BROKEN_VERDICTS, VERDICTS
from bylot.problem import at_most
from bylot.problem.instants import format_instant
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.sections import MINUTE_US, measure_spend
from dashboard_states import (
    HOUR,
    READER,
    SKILLS,
    STATES,
    TENANTS,
    ZONE,
    StateServer,
    serve_routes,
)

playwright = pytest.importorskip("playwright.sync_api", reason="the extra test has playwright")

AUDIT = (Path(__file__).parent / "audit.js").read_text()
READ = """() => {
  const text = (element) => element?.checkVisibility() ? element.innerText.trim() : null;
  const width = (element, name) => parseFloat(element.getAttribute(name));
  const table = (name) => [...document.querySelectorAll(`table.${name} tbody tr`)].map(
    (row) => [...row.children].map((cell) => cell.innerText.trim()));
  const facts = (list) => Object.fromEntries([...list.querySelectorAll("div")]
    .filter((one) => one.checkVisibility())
    .map((one) => [one.querySelector("dt").innerText, one.querySelector("dd").innerText]));
  return {
    title: text(document.querySelector(".title .state")),
    tiles: facts(document.querySelector(".tiles")),
    period: text(document.querySelector(".period")),
    legend: text(document.querySelector(".levels")) ?? "",
    text: document.querySelector("main").innerText,
    cards: [...document.querySelectorAll(".limits article")].map((card) => ({
      heading: text(card.querySelector("h3")),
      verdict: text(card.querySelector(".state")),
      sentence: text(card.querySelector(".sentence")),
      facts: facts([...card.querySelectorAll(".facts.now")].find((one) => one.checkVisibility())),
      window: text(card.querySelector(".window")),
      projected: width(card.querySelector(".gauge .projected"), "width"),
      reserved: width(card.querySelector(".gauge .reserved"), "width"),
      now: width(card.querySelector(".gauge .now"), "width"),
      bound: width(card.querySelector(".gauge .bound"), "x1"),
      tenants: [...card.querySelectorAll(".tenants tbody tr")].map((row) => [...row.children]
        .filter((cell) => cell.checkVisibility()).map((cell) => cell.innerText.trim())),
      colour: getComputedStyle(card.querySelector(".gauge .now")).fill,
      chart: card.querySelector(".chart svg").getAttribute("aria-label"),
    })),
    spend: Object.fromEntries(table("spend").map(([cost, ...values]) => [cost, values])),
    flow: facts(document.querySelector("#flow").parentElement),
  };
}"""
"""What a router's page says, as data."""

PHRASES = {
    "on track": ("inside", "at its end", "lasts until", "nothing left", "something left"),
    "spent": ("requests are refused until",),
    "will run out": ("requests will be refused from",),
    "inside": ("average",),
    "recovering": ("over now", "under now"),
    "will be missed": ("outside at", "cannot change it"),
    "outside": ("average",),
    "not started": ("no decisions",),
}
"""What the sentence of a verdict says, one of these."""
OTHER_STATES = ("models down", "no rewards")  # not of limits


def find_contradictions(said: dict[str, Any]) -> list[str]:
    """Pairs of statements on a router's page that cannot both be true."""
    found, cards = [], said["cards"]
    worst = min((one["verdict"] for one in cards), key=VERDICTS.index)
    if said["title"] not in (worst, *OTHER_STATES):
        found.append(f"the title says {said['title']}, a limit {worst}")
    counted = Counter(one["verdict"] for one in cards)
    verdicts = ", ".join(f"{counted[one]} {one}" for one in VERDICTS if one in counted)
    if said["tiles"]["limits"] != verdicts:
        found.append(f"the tile counts {said['tiles']['limits']}, the cards are {verdicts}")
    colours: dict[str, set[str]] = {}
    for card in cards:
        where, verdict, sentence = card["heading"], card["verdict"], card["sentence"]
        wary = verdict in ("recovering", "spent", "will run out")
        kind = "bad" if verdict in BROKEN_VERDICTS else "wary" if wary else "ok"
        colours.setdefault(kind, set()).add(card["colour"])
        if not any(phrase in sentence for phrase in PHRASES[verdict]):
            found.append(f"{where}: {verdict}, but {sentence}")
        cost, side, bound = re.fullmatch(
            r"(.+) (at most|at least) ([\d.,]+)(?: (?:per|in) .+)?", where
        ).groups()  # type: ignore[union-attr]
        if "spent" in card["facts"]:
            found += find_budget_contradictions(card, bound)
            continue
        if "tenants with a request" in card["facts"]:
            found += find_tenant_contradictions(card)
            continue
        now = next(value for name, value in card["facts"].items() if name.startswith(NOW_NAMES))
        outside = any(word in sentence for word in ("over", "under", "outside now"))
        outside = verdict == "outside" or outside
        if now != "–" and "measured" not in sentence:
            beyond = (
                card["now"] > card["bound"] if side == "at most" else card["now"] < card["bound"]
            )
            if beyond != outside:
                found.append(f"{where}: the bar and '{sentence}' disagree")
            if f"{now} of at" not in sentence:
                found.append(f"{where}: '{sentence}' does not name {now}")
        if "since the first decision" not in card["facts"]:  # it counts some contexts only
            continue
        row = said["spend"][cost]
        if "this period, per decision" in card["facts"] and row[0] != now:
            found.append(f"{where}: {now} in this period, {row[0]} in the table of spend")
        if row[4] != card["facts"]["since the first decision"]:
            found.append(f"{where}: the averages since the first decision differ")
        if "no data" not in card["chart"] and f"bound {bound}" not in card["chart"]:
            found.append(f"{where}: the chart shows another bound: {card['chart']}")
        if said["period"] and (end := re.search(r"decision ([\d,]+)", sentence)):
            played, length = map(int, re.findall(r"\d+", said["period"])[:2])
            decisions = int(said["tiles"]["decisions"].replace(",", ""))
            if decisions - played + length != int(end[1].replace(",", "")):
                found.append(f"{where}: the period ends elsewhere than '{sentence}'")
    if len(set.union(*colours.values())) < len(colours) or any(
        len(x) > 1 for x in colours.values()
    ):
        found.append(f"colours do not follow verdicts: {colours}")
    unmet = int(said["flow"]["decisions at which a limit could not be met"])
    if (unmet > 0) != ("a limit could not be met" in said["legend"]):
        found.append(f"{unmet} unmet decisions, legend {said['legend']}")
    if "estimated from" in said["legend"] and "interval" not in said["legend"]:
        found.append(f"no estimate is shown: {said['legend']}")
    if re.search("every limit holds|limits are kept|always|guaranteed", said["text"]):
        found.append("a promise that a card may deny")
    return found


NOW_NAMES = ("this ", "since the first")


def find_budget_contradictions(card: dict[str, Any], bound: str) -> Iterator[str]:
    """Likewise, of the card of a limit on the total of a window."""
    where, sentence, facts = card["heading"], card["sentence"], card["facts"]
    spent, of = re.match(r"([\d.,]+) of ([\d.,]+), ", facts["spent"]).groups()  # type: ignore[union-attr]
    if f"{spent} of at most {bound} this" not in sentence or of != bound:
        yield f"{where}: spent {facts['spent']}, but {sentence}"
    if not card["now"] <= card["reserved"] <= card["projected"] <= card["bound"] + 0.01:
        yield f"{where}: spent, reserved and projected are not drawn in this order"
    lasts, ends = facts["will last until"], re.findall(r"to (.+ \d\d:\d\d) ", card["window"])[0]
    if ends not in sentence:
        yield f"{where}: {card['window']}, but {sentence}"
    early = "lasts until" in sentence or "will be refused" in sentence
    kind = "early" if early else "spent" if "refused" in sentence else "enough"
    said = "spent" if lasts == "it is spent" else "enough" if "the end of" in lasts else "early"
    if kind != said or (said == "early" and lasts not in sentence):
        yield f"{where}: will last until {lasts}, but {sentence}"
    if said == "enough" and f"about {facts['projected at its end']} at its end" not in sentence:
        yield f"{where}: projected {facts['projected at its end']}, but {sentence}"


def find_tenant_contradictions(card: dict[str, Any]) -> Iterator[str]:
    """Likewise, of the card of a limit for each tenant."""
    where, sentence, facts = card["heading"], card["sentence"], card["facts"]
    if not sentence.startswith(f"{facts['tenants with a request']} tenants this"):
        yield f"{where}: {facts['tenants with a request']} tenants, but {sentence}"
    name, spent, *_ = card["tenants"][0]
    if f"{name}: {spent} of" not in sentence and f"{name}, {spent} of" not in sentence:
        yield f"{where}: the first row is {name}, but {sentence}"
    left = facts.get("with nothing left", "0")
    if left != "0" and not re.search(f"; {left} ha(s|ve) nothing left", sentence):
        yield f"{where}: {left} have nothing left, but {sentence}"
    if "spent by all tenants" in facts and f"{facts['spent by all tenants']} spent" not in sentence:
        yield f"{where}: {facts['spent by all tenants']} in all, but {sentence}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> StateServer:
    """All states, one router each."""
    server = StateServer(tmp_path_factory.mktemp("states"))
    for play in STATES.values():
        play(server)
    return server


@pytest.fixture(scope="module")
def address(server: StateServer) -> Iterator[str]:
    with serve_routes(dashboard_routes(server.source(), lambda token: READER)) as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = launch_chromium(started)
        if browser is None:
            pytest.skip("no chromium on this machine (Debian: apt install chromium)")
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    yield page
    page.close()


def open_state(page: Any, address: str, state: str) -> Any:
    """The page of a state, once the log was read for it."""
    page.goto(f"{address}/routers/{state}")
    page.locator("#live[data-link=live]").wait_for()
    if state != "new":
        page.locator(".levels .key", has_text="random panels").wait_for()
    return page


@pytest.mark.parametrize("state", STATES)
def test_no_two_statements_of_a_page_contradict_each_other(
    page: Any, address: str, state: str
) -> None:
    said = open_state(page, address, state).evaluate(READ)
    assert find_contradictions(said) == []
    page.goto(address)
    rows = page.eval_on_selector_all(
        "table.routers tbody tr",
        "all => all.map((row) => [...row.children].map((x) => x.innerText))",
    )
    (listed,) = (row for row in rows if row[0].partition("\n")[0] == state)
    assert listed[1:4] == [said["title"], said["tiles"]["limits"], said["tiles"]["decisions"]]
    well = {*QUIET_VERDICTS, "recovering", "no limits", "–"}
    bad = sum(row[1] not in well for row in rows)
    assert page.locator(".tiles dd").nth(2).inner_text() == str(bad)


def test_the_test_above_would_notice_contradictions(page: Any, address: str) -> None:
    open_state(page, address, "outage")
    for selector, text, fault in (
        (".limits .state", "on track", "on track, but over now"),
        (".title .state", "on track", "the title says"),
        (".limits .sentence", "inside now (1 of at most 3.5), inside at decision 99", "but inside"),
        (".facts.now dd", "17", "does not name 17"),
        (".verdicts dd", "2 on track", "the tile counts"),
        (".period b", "3", "the period ends elsewhere"),
    ):
        before = page.locator(selector).first.inner_text()
        page.eval_on_selector(selector, "(one, text) => { one.textContent = text; }", text)
        assert any(fault in one for one in find_contradictions(page.evaluate(READ))), fault
        page.eval_on_selector(selector, "(one, text) => { one.textContent = text; }", before)


def test_contradictions_of_budgets_would_be_noticed_too(page: Any, address: str) -> None:
    open_state(page, address, "hurried")
    for selector, text, fault in (
        (".facts.budget dd span", "17", "spent 17"),
        (".facts.budget [data-early] dd", "the end of the day", "will last until the end"),
        (".limits .window", "this day: 1 to 2 00:00 UTC", "this day: 1 to 2"),
        (".limits .state", "spent", "spent, but"),
    ):
        before = page.locator(selector).first.inner_text()
        page.eval_on_selector(selector, "(one, text) => { one.textContent = text; }", text)
        assert any(fault in one for one in find_contradictions(page.evaluate(READ))), fault
        page.eval_on_selector(selector, "(one, text) => { one.textContent = text; }", before)


def test_the_card_of_a_budget_shows_its_window(
    page: Any, server: StateServer, address: str
) -> None:
    card = open_state(page, address, "budget").evaluate(READ)["cards"][0]
    router = server.handler.repository.get("budget", server.clocks["budget"])
    one = router.status(server.clocks["budget"]).limits[0]
    window, facts = one.window, card["facts"]
    assert window is not None
    assert card["heading"] == "usd at most 1,500 per day"
    assert window.reserved > 0
    assert window.projected is not None
    for position, amount in (
        ("now", window.spent),
        ("reserved", window.spent + window.reserved),
        ("projected", window.projected),
    ):
        assert card[position] / card["bound"] == pytest.approx(amount / one.bound, abs=1e-3)
    start, end = (format_instant(at, ZONE) for at in (window.starts, window.ends))
    assert card["window"] == f"this day: {start.removesuffix(' ' + ZONE)} to {end}"
    assert facts["left"] == format_number(window.left)
    assert facts["decisions so far"] == "182"
    assert facts["requests to come, forecast"] == str(round(window.to_come))
    assert one.current is not None
    assert facts["bound per decision in force"] == format_number(one.current.in_force)
    assert "usd at most per day 1,200 -> 1,500" in page.locator("#edits ~ .scroll").inner_text()
    assert (
        "usd at most per day, when_spent: cheapest -> fewer"
        in page.locator("#edits ~ .scroll").inner_text()
    )


def test_periods_are_only_mentioned_if_a_limit_has_one(page: Any, address: str) -> None:
    for state, mentioned in (("budget", True), ("weekly", False), ("running", True)):
        open_state(page, address, state)
        assert page.locator(".period").is_visible() == mentioned, state
        shown = "this period" in page.locator("main").inner_text()
        assert shown == mentioned, state


def test_a_spent_budget_needs_attention(page: Any, address: str) -> None:
    page.goto(address)
    page.get_by_label("only routers that need attention").check()
    rows = [one.inner_text() for one in page.locator("table.routers tbody tr:visible").all()]
    assert any(one.startswith("spent") for one in rows)
    shown = page.locator(".tiles dd").nth(2).inner_text()
    assert int(shown) == len(rows) >= 1


def test_the_states_have_the_verdicts_that_they_are_for(page: Any, address: str) -> None:
    verdicts = {state: open_state(page, address, state).evaluate(READ)["title"] for state in STATES}
    assert verdicts == {
        "new": "not started",
        "running": "on track",
        "outage": "will be missed",
        "recovering": "recovering",
        "edited": "on track",
        "unguarded": "outside",
        "chat": "models down",
        "blind": "models down",
        "budget": "no rewards",
        "hurried": "will run out",
        "burst": "will run out",
        "spent": "spent",
        "weekly": "will be missed",
        "tenants": "on track",
        "groups": "on track",
    }


def test_the_bar_of_this_period_is_the_prominent_one(page: Any, address: str) -> None:
    card = open_state(page, address, "recovering").locator(".limits article").first
    now, mean = (card.locator(f".gauge .{name}").bounding_box() for name in ("now", "mean"))
    assert now["height"] >= 3 * mean["height"]
    assert card.locator(".facts dt").first.inner_text() == "this period, per decision"
    limit = read_data(page)["limits"][0]
    assert limit["gauge"]["now"] * limit["gauge"]["top"] == pytest.approx(
        limit["status"]["current"]["mean"]
    )


def read_data(page: Any) -> Any:
    """The data that the page was sent with."""
    return page.evaluate("JSON.parse(document.querySelector('#data').text)")


def test_a_bound_is_drawn_as_it_was(page: Any, address: str) -> None:
    open_state(page, address, "edited")
    chart = page.locator("[data-chart=limit]").first
    drawn = chart.locator("polyline.bound").get_attribute("points")
    points = [tuple(map(float, one.split(","))) for one in drawn.split()]
    levels = [points[0][1]]
    for _, y in points:
        if y != levels[-1]:
            levels.append(y)
    assert len(levels) == 3  # 3.5, then 2.4, then 3
    assert levels[0] < levels[2] < levels[1]  # the y-axis points down
    steps = [x for (x, y), (_, other) in pairwise(points) if y != other]
    edits = [float(one.get_attribute("x1")) for one in chart.locator(".mark.edited").all()]
    assert len(edits) == 3  # the second one paused an expert
    assert steps == pytest.approx([edits[0], edits[2]], abs=0.1)
    assert page.locator("[data-chart=limit]").nth(1).locator("polyline.bound").count() == 1


def test_edits_and_outages_are_marked_with_a_legend(page: Any, address: str) -> None:
    open_state(page, address, "edited")
    for chart in page.locator(".chart").all():
        assert chart.locator(".mark.paused").count() == 1
        assert chart.locator(".mark.paused title").text_content() == "paused: bob"
        assert "usd at most 3.5 -> 2.4" in chart.locator(".mark.edited title").first.text_content()
    for legend in page.locator(".marks").all():
        assert "configuration edited" in legend.inner_text()
        assert "experts paused" in legend.inner_text()
    open_state(page, address, "outage")
    assert page.locator("[data-chart=reward] .mark.unmet").count() == 2
    assert "a limit could not be met" in page.locator(".marks").first.inner_text()
    open_state(page, address, "running")
    assert page.locator(".mark").count() == 0
    assert "edited" not in page.locator(".levels").inner_text()


def test_this_period_shows_measured_values_after_an_edit(
    page: Any, server: StateServer, address: str
) -> None:
    said = open_state(page, address, "edited").evaluate(READ)
    played = int(re.findall(r"\d+", said["period"])[0])
    router = server.handler.repository.get("edited", server.at)
    events = server.store.events(router.number, -1, 10_000)
    spend = {one.seq: BODY_DECODERS[one.kind](one.body).spend["usd"] for one in events[1:]
             if one.kind in ("decided", "rewarded")}  # fmt: skip
    decided = [one.seq for one in events if one.kind == "decided"]
    total = sum(spend[seq] for seq in decided[-played:])
    for one in events:  # actual costs count in the period of their decision
        if one.of in decided[-played:] and one.seq in spend:
            total += spend[one.seq] - spend[one.of]
    measured = total / played
    assert said["cards"][0]["facts"]["this period, per decision"] == format_number(measured)
    assert said["spend"]["usd"][1] == format_number(measured * played)


def test_reference_levels_are_estimates_with_intervals(page: Any, address: str) -> None:
    legend = open_state(page, address, "running").locator(".levels").inner_text()
    found = re.findall(r"(random|best).*: ([\d.]+) \(95 % interval ([\d.]+) to ([\d.]+)\)", legend)
    assert [one[0] for one in found] == ["random", "best"]
    for _, value, low, high in found:
        assert float(low) <= float(value) <= float(high)
    assert page.locator("[data-chart=reward] line.level").count() == 2
    assert page.locator("[data-chart=reward] rect.interval").count() == 2
    # Truth: the best of two experts earns 0.85 of its skill; mixtures keep usd at most 3.5
    assert float(found[1][1]) == pytest.approx(0.68, abs=0.03)
    # The policy knows its pool by now, and seldom draws the panels of random ones.
    pairs = [max(SKILLS[one], SKILLS[other]) for one, other in combinations(SKILLS, 2)]
    _, _, low, high = found[0]
    assert float(low) <= 0.85 * sum(pairs) / len(pairs) <= float(high)


def test_reference_levels_are_hidden_with_the_reason(page: Any, address: str) -> None:
    legend = open_state(page, address, "unguarded").locator(".levels").inner_text()
    assert "no estimate, as none of 300 rounds can be used" in legend
    assert page.locator("line.level").count() == 0


def test_unfinished_spans_are_not_drawn_as_finished(page: Any, address: str) -> None:
    open_state(page, address, "running")
    data = read_data(page)
    rewards = [one["rewards"] / one["decisions"] for one in data["timeline"]]
    assert rewards[0] == 1.0
    assert rewards[-1] < 0.5  # the last ones wait for their rewards
    for chart in page.locator(".chart").all():
        rings = chart.locator("circle.open").count()
        points = chart.locator("polyline.each").get_attribute("points").split()
        assert rings >= 1
        assert len(points) == sum(one == 1.0 for one in rewards) < len(rewards)
    assert "not finished" in page.locator(".levels").inner_text()


def test_spend_is_shown_in_totals_and_rates(page: Any, server: StateServer, address: str) -> None:
    row = open_state(page, address, "running").evaluate(READ)["spend"]["usd"]
    status = server.handler.repository.get("running", server.at).status()
    cost, now = status.costs["usd"], status.limits[0].current
    assert now is not None
    assert now.mean is not None
    assert status.period is not None
    assert row[0] == format_number(now.mean)
    assert row[1] == format_number(now.mean * status.period.played)
    assert row[4:] == [format_number(cost.settled / 1_590), format_number(cost.settled)]
    per_hour, per_day = (float(one.replace(",", "")) for one in row[2:4])
    assert per_day == pytest.approx(24 * per_hour, rel=1e-3)
    points = status.timeline
    assert points is not None
    caption = page.locator(".spend caption").inner_text()
    hours = float(re.findall(r"last ([\d.]+) hours", caption)[0])
    assert 24 <= hours < 25
    starts = [(now_us() - at) / HOUR for at in points.started]  # about, as the page is older
    rates = [
        sum(points.spent["usd"][i:]) / hours for i, x in enumerate(starts) if abs(x - hours) < 0.1
    ]
    assert any(per_hour == pytest.approx(rate, rel=1e-3) for rate in rates)


def test_the_first_minutes_are_not_extrapolated_to_a_day(server: StateServer) -> None:
    status = server.handler.repository.get("running", server.at).status()
    assert status.timeline is not None
    first = status.timeline.started[0]
    young, older = (measure_spend(status, first + minutes * MINUTE_US) for minutes in (9, 10))
    assert (young["hours"], young["rows"][0]["per_day"]) == (None, None)
    assert older["hours"] == pytest.approx(1 / 6)
    assert older["rows"][0]["per_day"] is not None


def test_what_only_authors_need_is_collapsed(page: Any, address: str) -> None:
    open_state(page, address, "running")
    for word in ("entropy", "effective sample", "last event of the log", "shadow price"):
        term = page.locator("dt", has_text=word).first
        assert not term.is_visible()
    page.locator("summary", has_text="authors").click()
    assert page.locator("dt", has_text="entropy").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_passes_the_accessibility_audit(
    chromium: Any, address: str, scheme: str
) -> None:
    page = chromium.new_page(color_scheme=scheme)
    for state in STATES:
        open_state(page, address, state)
        page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true; })")
        assert page.evaluate(AUDIT) == [], state
    page.close()


CUT = """() => {
  const cut = [];
  for (const one of document.querySelectorAll("main *")) {
    if (!one.checkVisibility() || one.closest("svg")) continue;
    const style = getComputedStyle(one);
    const wide = one.scrollWidth > one.clientWidth + 1 && style.overflowX !== "visible";
    const tall = one.scrollHeight > one.clientHeight + 1 && style.overflowY !== "visible";
    if (!one.clientWidth || (!wide && !tall)) continue;
    const hint = getComputedStyle(one, "::before").content;
    const dotted = style.textOverflow === "ellipsis" && one.title;
    if (!dotted && !(one.matches(".scroll") && hint.includes("scroll"))) {
      cut.push(one.outerHTML.slice(0, 80));
    }
  }
  return cut;
}"""
"""Elements whose content is cut, without a sign."""


def test_a_phone_cuts_nothing_without_a_sign(chromium: Any, address: str) -> None:
    phone = chromium.new_page(viewport={"width": 390, "height": 844}, has_touch=True)
    phone.goto(address)
    assert phone.locator(".scroll[data-more]").count() == 1
    assert phone.evaluate(CUT) == []
    for state in STATES:
        open_state(phone, address, state)
        phone.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true; })")
        phone.wait_for_timeout(50)
        assert phone.evaluate("document.documentElement.scrollWidth") == 390
        assert phone.evaluate(CUT) == [], state
    without_signs = f"""() => {{
      document.querySelectorAll("[data-more]").forEach((one) => delete one.dataset.more);
      return ({CUT})();
    }}"""
    assert len(phone.evaluate(without_signs)) >= 2  # so the test would notice
    phone.close()


def test_a_limit_for_each_tenant_shows_those_that_have_used_most(
    page: Any, server: StateServer, address: str
) -> None:
    cards = open_state(page, address, "tenants").evaluate(READ)["cards"]
    month, day, week = cards
    assert month["heading"] == "usd at most 320 per month for each tenant"
    assert day["heading"] == "usd at most 120 per day for each tenant in headache"
    known = server.view("tenants").status.limits[0].tenants
    assert known is not None
    assert month["facts"]["tenants with a request"] == str(known.active)
    assert month["facts"]["with nothing left"] == str(known.spent) != "0"
    assert month["facts"]["spent by all tenants"] == format_number(known.total)
    names = [row[0] for row in month["tenants"]]
    assert len(names) == min(10, known.active)
    assert {"acme", "<b>bolt & sons</b>", TENANTS[2]} <= set(names), "shown as text"
    assert page.locator(".tenants b").count() == 0
    own = next(row for row in month["tenants"] if row[0] == "acme")
    assert own[2] == "900"
    shares = [float(row[4].rstrip("%")) for row in month["tenants"]]
    assert shares == sorted(shares, reverse=True)
    assert [len(row) for row in week["tenants"]] == [3] * len(week["tenants"]), "no used share"
    assert "novices at least 0.3" in week["heading"]
    assert page.locator(".latest .tenant").first.inner_text() in {*TENANTS}
    history = page.locator("section", has=page.locator("#edits")).inner_text()
    assert "usd at most per month for each tenant 300 -> 320" in history


def test_a_limit_on_some_contexts_shows_averages_of_these_alone(page: Any, address: str) -> None:
    said = open_state(page, address, "groups").evaluate(READ)
    of_all, pain, day, _ = said["cards"]
    assert pain["heading"] == "usd at most 4.5 in chest pain"
    assert day["heading"] == "usd at most 1,500 per day in 4 contexts"
    assert "since the first decision" in of_all["facts"]
    assert "since the first decision" not in pain["facts"]
    charts = [one.is_visible() for one in page.locator("[data-chart=limit]").all()]
    assert charts == [True, False, False, False]
    page.locator(".limits article").nth(2).locator("summary").click()
    assert "headache, cough, cold, rash" in page.locator(".limits article").nth(2).inner_text()
    history = page.locator("section", has=page.locator("#edits")).inner_text()
    assert "usd at most per day in headache, cough, cold, rash 1,200 -> 1,500" in history


@pytest.mark.parametrize("requests", [0, 1])
def test_no_tenant_and_one_tenant_have_a_page(chromium: Any, tmp_path: Path, requests: int) -> None:
    server = StateServer(tmp_path)
    server.create("few", "noisy-or", limits=[at_most("usd", 20, per="month", scope="tenant")])
    if requests:
        server.play("few", requests, tenants=["solo"])
    with serve_routes(dashboard_routes(server.source(), lambda token: READER)) as address:
        page = chromium.new_page()
        page.goto(f"{address}/routers/few")
        (card,) = page.evaluate(READ)["cards"]
        page.close()
    assert card["facts"]["tenants with a request"] == str(requests)
    assert [row[0] for row in card["tenants"]] == ["solo"] * requests
    assert card["sentence"].startswith("1 tenant this month" if requests else "no tenant has sent")


def test_an_empty_store_says_how_to_begin(chromium: Any, tmp_path: Path) -> None:
    source = StateServer(tmp_path).source()
    with serve_routes(dashboard_routes(source, lambda token: READER)) as address:
        page = chromium.new_page()
        page.goto(address)
        assert "bylot router create" in page.locator("main").inner_text()
        assert not page.locator("table.routers").is_visible()
        assert page.locator(".tiles dd").all_inner_texts() == ["0", "0", "0", "0", "0"]
        page.close()
