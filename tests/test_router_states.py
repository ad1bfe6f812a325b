"""The state of a router is the same on every surface: in ten situations, on a real server.

Each situation is made by requests to a server whose clock the test moves. Then the status, the
clients, the command line, the list, its attention filter, the page, the metrics and the alert rules
are compared.
"""

import contextlib
import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import bylot
from browsers import launch_chromium
from bylot.cli import main
from bylot.eventlog.events import now_us
from bylot.gateway.config import GatewayEntry, ScorerEntry
from bylot.gateway.gateway import RouterGateway
from bylot.limits.verdict import LimitVerdict
from bylot.problem import at_least, at_most
from bylot.problem.calendar import Calendar, find_window
from bylot.router.config import problem_to_data
from bylot.router.state import (
    FIRST_OVERDUE_US,
    LEVELS,
    REASON_KINDS,
    RECENT_US,
    PanelHealth,
    RecentCounts,
    RewardArrivals,
    RouterHealth,
    judge_state,
)
from bylot.server.dashboard import source
from bylot.server.settings import RouterEntry, ServerSettings
from bylot.server.state import ServerState
from chat_models import PROBLEM, ChatModels, FixedScorer, ask_panel, chat_models
from gateway_target import create_routers
from live_server import ServerClient, live_server, wait_until
from sample_problem import make_five_expert_problem

ALERTS = Path(__file__).parents[1] / "deploy" / "prometheus" / "alerts.yml"
CHAT_ROUTERS = ("healthy", "judge-dead", "models-dead", "one-model-dead", "quiet")
SCRAPE_S = 15  # between two scrapes of Prometheus
STEP_S = 10  # between two looks at a state
NOTICE_S = 120  # within which every surface has to tell


class MovableClock:
    """A clock that the test moves; it begins tomorrow at six in the morning."""

    def __init__(self) -> None:
        self.start = find_window(Calendar("day", "UTC"), now_us()).end + 6 * 3_600_000_000
        self.moved_s = 0.0

    def read_us(self) -> int:
        return self.start + int(1e6 * self.moved_s)

    def read_s(self) -> float:
        return self.moved_s


class Scene(NamedTuple):
    """A server, the models that it asks, and the clock of both."""

    server: ServerClient
    models: ChatModels
    clock: MovableClock

    def chat(self, router: str, chats: int) -> None:
        """Ask a gateway, and wait until it has counted the panels."""
        for _ in range(chats):
            ask_panel(self.server, model=f"bylot/{router}")
        gateway = self.server.app.state.gateway
        wait_until(lambda: not gateway.tasks)

    def create(self, problem: bylot.Problem, policy: str = "distinct") -> str:
        path = self.server.create_router(problem=problem_to_data(problem), policy=policy)
        return path.rpartition("/")[2]

    def play(self, router: str, decisions: int, rewarded: bool = True, **asked: Any) -> None:
        """Make decisions, and report their rewards."""
        path = f"/v1/routers/{router}/decisions:batch"
        response = self.server.post(path, json={"decisions": [asked] * decisions})
        assert response.status_code == 200, response.text
        results = response.json()["results"]
        ids = [result["decision"]["id"] for result in results if "decision" in result]
        if rewarded and ids:
            rewards = [{"decision": id, "value": 0.5} for id in ids]
            response = self.server.post("/v1/rewards:batch", json={"rewards": rewards})
            assert response.status_code == 200, response.text

    def read_state(self, router: str) -> dict[str, Any]:
        return dict(self.server.get(f"/v1/routers/{router}/status").json()["state"])

    def wait_for_notice(self, router: str, traffic: Callable[[], None]) -> float:
        """Let traffic go on until the state is not ok; return the seconds that this took."""
        start = self.clock.moved_s
        while self.read_state(router)["level"] == "ok":
            assert self.clock.moved_s - start < NOTICE_S, "nobody noticed"
            traffic()
            self.clock.moved_s += STEP_S
        return self.clock.moved_s - start


def make_healthy(scene: Scene) -> str:
    scene.chat("healthy", 20)
    return "healthy"


def kill_judge(scene: Scene) -> str:
    """The judge answers with errors after two minutes in which all panels were scored."""
    gateway = scene.server.app.state.gateway.find("judge-dead")
    judge, gateway.scorer = gateway.scorer, FixedScorer()
    for _ in range(12):
        scene.chat("judge-dead", 2)
        scene.clock.moved_s += STEP_S
    assert scene.read_state("judge-dead")["level"] == "ok"
    gateway.scorer = judge
    scene.models.faults = {"judge": 500}
    noticed_s = scene.wait_for_notice("judge-dead", lambda: scene.chat("judge-dead", 2))
    check_alert_time(noticed_s)
    scene.clock.moved_s += RECENT_US / 1e6
    scene.chat("judge-dead", 16)
    return "judge-dead"


def kill_models(scene: Scene) -> str:
    """Two of three members answer with errors."""
    scene.chat("models-dead", 5)
    assert scene.read_state("models-dead")["level"] == "ok"
    scene.models.faults = {"a": 503, "b": 401}
    noticed_s = scene.wait_for_notice("models-dead", lambda: scene.chat("models-dead", 3))
    check_alert_time(noticed_s)
    return "models-dead"


def kill_a_model(scene: Scene) -> str:
    scene.models.faults = {"a": 503}
    scene.chat("one-model-dead", 4)
    return "one-model-dead"


def become_quiet(scene: Scene) -> str:
    """Nobody asks any more after panels without scores."""
    scene.models.faults = {"a": 503, "judge": 500}
    scene.chat("quiet", 5)
    assert scene.read_state("quiet")["level"] == "critical"
    scene.clock.moved_s += RECENT_US / 1e6 + STEP_S
    return "quiet"


def stop_rewards(scene: Scene) -> str:
    router = scene.create(make_five_expert_problem())
    for _ in range(10):
        scene.play(router, 10)
        scene.clock.moved_s += STEP_S
    assert scene.read_state(router)["level"] == "ok"
    noticed_s = scene.wait_for_notice(router, lambda: scene.play(router, 50, rewarded=False))
    check_alert_time(noticed_s)
    return router


def begin_without_rewards(scene: Scene) -> str:
    """The first rewards of a router may take long."""
    router = scene.create(make_five_expert_problem())
    for _ in range(6):
        scene.play(router, 100, rewarded=False)
        scene.clock.moved_s += 60
    return router


def send_burst(scene: Scene, per_day: float) -> str:
    """600 requests in 7 seconds under a budget per day."""
    limits = [at_most("usd", per_day, per="day")]
    router = scene.create(make_five_expert_problem().replace(limits=limits))
    for _ in range(6):
        scene.play(router, 100)
        scene.clock.moved_s += 7 / 6
    return router


def send_burst_beyond(scene: Scene) -> str:
    router = send_burst(scene, 5_000.0)
    check_alert_time(7)
    return router


def send_burst_within(scene: Scene) -> str:
    return send_burst(scene, 80_000.0)


def spend_budget(scene: Scene) -> str:
    limits = [at_most("usd", 20.0, per="day", when_spent="refuse")]
    router = scene.create(make_five_expert_problem().replace(limits=limits))
    scene.play(router, 40)
    return router


def lose_experts(scene: Scene) -> str:
    limits = [at_least("junior", 0.9)]
    router = scene.create(make_five_expert_problem().replace(limits=limits, period=20))
    scene.play(router, 15, available=["ann", "bob"])
    return router


class Expected(NamedTuple):
    """What all surfaces say; sentence: a pattern of it; kinds: the reasons."""

    make: Callable[[Scene], str]
    level: str
    name: str
    sentence: str
    kinds: tuple[str, ...] = ()


CLOCK = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
SITUATIONS = {
    "all is well": Expected(make_healthy, "ok", "inside", r"usd inside: average .*"),
    "the judge is dead": Expected(
        kill_judge,
        "critical",
        "not scored",
        "not scored: 16 of the last 16 panels",
        ("scoring", "rewards"),
    ),
    "two of three models are dead": Expected(
        kill_models, "critical", "models down", "2 of 3 models down: a, b", ("members",)
    ),
    "one of three models is dead": Expected(
        kill_a_model, "attention", "models down", "1 of 3 models down: a", ("members",)
    ),
    "nobody asks after failures": Expected(become_quiet, "ok", "inside", r"usd inside: .*"),
    "rewards have stopped": Expected(
        stop_rewards,
        "attention",
        "no rewards",
        r"no rewards for the last \d+ decisions",
        ("rewards",),
    ),
    "no reward has come yet": Expected(
        begin_without_rewards, "ok", "on track", r"usd on track: .*"
    ),
    "a burst beyond a daily budget": Expected(
        send_burst_beyond,
        "attention",
        "will run out",
        rf"usd per day will run out: .*; requests will be refused from {CLOCK}, as .* more are "
        rf"forecast until {CLOCK}",
        ("limits",),
    ),
    "a burst within a daily budget": Expected(
        send_burst_within, "ok", "on track", r"usd per day on track: .*"
    ),
    "a budget is spent": Expected(
        spend_budget, "attention", "spent", r"usd per day spent: .* refused until .*", ("limits",)
    ),
    "experts that a limit needs are gone": Expected(
        lose_experts, "critical", "will be missed", r"junior will be missed: .*", ("limits",)
    ),
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A server with some gateways, whose list is not cached."""
    folder, clock = tmp_path_factory.mktemp("states"), MovableClock()
    (folder / "panel.yaml").write_text(PROBLEM)
    judge = ScorerEntry(judge={"model": "judge"})
    entry = GatewayEntry(ask="together", retries=0, refill=0, scorer=judge, cooldown_s=600.0)
    routers = {
        name: RouterEntry(problem=folder / "panel.yaml", policy="random", gateway=entry)
        for name in CHAT_ROUTERS
    }
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(source, "LIST_REFRESH_S", 0.0)
        models = stack.enter_context(chat_models())
        declared = models.list_models("judge")
        create_routers(f"sqlite:///{folder}/bylot.db", declared, routers)
        server = stack.enter_context(live_server(folder, routers=routers, model_list=declared))
        wait_until(lambda: server.get("/readyz").status_code == 200, 300)
        state = server.app.state
        state.writer.clock = clock.read_us  # type: ignore[assignment]
        for name in CHAT_ROUTERS:
            state.gateway.find(name).health.clock = clock.read_s
            if name not in ("judge-dead", "quiet"):
                state.gateway.find(name).scorer = FixedScorer()
        yield Scene(server, models, clock)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_all_surfaces_show_the_same_state(
    situation: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = SITUATIONS[situation]
    scene.models.faults = {}
    router = expected.make(scene)
    server = scene.server
    state = scene.read_state(router)
    assert (state["level"], state["name"]) == (expected.level, expected.name), state
    assert re.fullmatch(expected.sentence, state["sentence"]), state["sentence"]
    assert {reason["kind"] for reason in state["reasons"]} == set(expected.kinds)
    assert server.get(f"/v1/routers/{router}").json()["status"]["state"] == state
    with bylot.Client(str(server.base_url)) as client:
        typed = client.router(router).status().state
    assert (typed.level, typed.name, typed.sentence) == (
        state["level"],
        state["name"],
        state["sentence"],
    )
    check_command_line(server, router, state, capsys)
    check_list(server, router, state)
    check_page(server, router, state)
    rates = check_metrics(server, router, state)
    check_alerts(rates, state)


def check_command_line(
    server: ServerClient, router: str, state: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    show = ["router", "show", router, "--server", str(server.base_url)]
    assert main([*show, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"]["state"] == state
    assert main(show) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{router}, {state['name']}, policy ")
    for reason in state["reasons"]:
        assert reason["sentence"] in printed


def check_list(server: ServerClient, router: str, state: dict[str, Any]) -> None:
    """The list has the state, and counts it."""
    data = server.get("/routers.json").json()
    rows = {row["name"]: row["state"] for row in data["routers"]}
    assert rows[router] == state
    levels = [row["level"] for row in rows.values()]
    assert data["attention"] == sum(level != "ok" for level in levels)
    assert data["critical"] == levels.count("critical")
    page = server.get("/").text
    (shown,) = re.findall(rf'<tr[^>]*data-name="{router}".*?</tr>', page, re.S)
    assert f'data-level="{state["level"]}"' in shown
    assert f">{state['name']}</span>" in shown
    assert html.escape(state["sentence"]) in shown


def check_page(server: ServerClient, router: str, state: dict[str, Any]) -> None:
    """The page has the state beside its title, and the reasons under it."""
    assert server.get(f"/routers/{router}.json").json()["status"]["state"] == state
    title = server.get(f"/routers/{router}").text.partition('class="tiles"')[0]
    (headline,) = re.findall(r'<span class="state"[^>]*>', title)
    assert f'data-level="{state["level"]}"' in headline
    assert f">{state['name']}</span>" in title
    (reasons,) = re.findall(r'<ul[^>]*class="reasons".*?</ul>', title, re.S)
    listed = re.findall(r"<span[^>]*>([^<]+)</span>", reasons.partition("</template>")[2])
    assert [html.unescape(sentence) for sentence in listed] == [
        reason["sentence"] for reason in state["reasons"]
    ]


def check_metrics(server: ServerClient, router: str, state: dict[str, Any]) -> dict[str, float]:
    """Each kind of reason has the worst level of its reasons; return them by kind."""
    rates = {
        sample.labels["kind"]: sample.value
        for family in text_string_to_metric_families(server.get("/metrics").text)
        for sample in family.samples
        if sample.name == "bylot_router_state" and sample.labels["router"] == router
    }
    expected = dict.fromkeys(REASON_KINDS, 0)
    for reason in state["reasons"]:
        kind = reason["kind"]
        expected[kind] = max(expected[kind], LEVELS.index(reason["level"]))
    assert rates == expected
    assert LEVELS[int(max(rates.values()))] == state["level"]
    return rates


def list_state_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "router_state" in rule["expr"]]


def check_alerts(rates: dict[str, float], state: dict[str, Any]) -> None:
    """The rules, evaluated on the metrics, fire for the kinds and levels of the reasons."""
    severities = {"attention": "warning", "critical": "critical"}
    firing = set()
    for rule in list_state_rules():
        (value,) = re.fullmatch(r"bylot_router_state == (\d)", rule["expr"]).groups()  # type: ignore[union-attr]
        for kind, rate in rates.items():
            if rate == int(value):
                firing.add((kind, rule["labels"]["severity"]))
    worst = {reason["kind"]: reason["level"] for reason in reversed(state["reasons"])}
    assert firing == {(kind, severities[level]) for kind, level in worst.items()}


def check_alert_time(noticed_s: float) -> None:
    """An alert fires within two minutes: after two scrapes, and for as long as its rule waits."""
    for rule in list_state_rules():
        (waits_s,) = re.fullmatch(r"(\d+)s", rule["for"]).groups()  # type: ignore[union-attr]
        assert noticed_s + 2 * SCRAPE_S + int(waits_s) <= NOTICE_S


def test_the_attention_filter_shows_the_routers_whose_state_is_not_ok(scene: Scene) -> None:
    """After the situations above, in a browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = launch_chromium(started)
        if browser is None:
            pytest.skip("chromium is not installed")
        page = browser.new_page()
        page.goto(str(scene.server.base_url))
        page.locator("#live[data-link=live]").wait_for()
        page.get_by_label("only routers that need attention").check()
        rows = page.locator("table.routers tbody tr:visible").all()
        shown = {row.get_attribute("data-name") for row in rows}
        browser.close()
    listed = scene.server.get("/routers.json").json()["routers"]
    assert shown == {row["name"] for row in listed if row["state"]["level"] != "ok"}
    assert 0 < len(shown) < len(listed)


def test_the_worst_reason_is_the_headline() -> None:
    panels = PanelHealth(panels=10, unanswered=0, unscored=2, models=4, down=("a", "b", "c", "d"))
    limits = (LimitVerdict("spent", "usd spent"), LimitVerdict("missed", "junior missed"))
    state = judge_state(RouterHealth(limits, 50, panels))
    assert [(reason.kind, reason.level) for reason in state.reasons] == [
        ("limits", "critical"),
        ("members", "critical"),
        ("limits", "attention"),
        ("scoring", "attention"),
        ("rewards", "attention"),
    ]
    assert (state.level, state.name, state.sentence) == ("critical", "missed", "junior missed")
    assert state.reasons[1].sentence == "4 of 4 models down: a, b, c, ..."


@pytest.mark.parametrize(
    ("unscored", "level"), [(1, "ok"), (10, "ok"), (11, "attention"), (50, "critical")]
)
def test_the_share_of_unscored_panels_decides(unscored: int, level: str) -> None:
    panels = PanelHealth(panels=100, unanswered=0, unscored=unscored, models=3, down=())
    assert judge_state(RouterHealth((), panels=panels)).level == level


def test_what_only_one_server_of_several_has_seen_is_said_as_such() -> None:
    panels = PanelHealth(panels=9, unanswered=9, unscored=0, models=3, down=("a",), is_shared=True)
    state = judge_state(RouterHealth((), panels=panels))
    assert [reason.sentence for reason in state.reasons] == [
        "not answered: 9 of the last 9 panels, as this server has seen",
        "1 of 3 models down: a, as this server has seen",
    ]


def test_the_gateway_of_a_cluster_knows_that_other_servers_count_too(tmp_path: Path) -> None:
    alone = ServerSettings(store=f"sqlite:///{tmp_path}/bylot.db")
    several = msgspec.structs.replace(
        alone, advertise="http://127.0.0.1:8001", cluster_key="k" * 40
    )
    for settings in (alone, several):
        gateway = ServerState(settings).gateway
        route = RouterGateway(gateway, "panel", GatewayEntry(), None)
        assert route.measure_health(["a"]).is_shared == (settings is several)


def test_recent_counts_forget_after_five_minutes_and_stay_small() -> None:
    counts = RecentCounts()
    for second in range(3_600):
        counts.add(float(second), "panels", *["unscored"] * (second < 3_400))
    assert counts.sum(3_599.0) == {"panels": 300, "unscored": 100}
    assert len(counts.buckets) == 30
    assert counts.sum(3_700.0)["panels"] == 190, "whole buckets"
    assert counts.sum(4_000.0) == {}


def play_arrivals(
    hours: float, delay_s: int, share: int, stops_s: float
) -> list[tuple[float, int]]:
    """Make a decision a second, of which every `share`-th is rewarded until rewards stop; return
    the seconds since then and the decisions of each alarm.
    """
    arrivals = RewardArrivals()
    alarms = list[tuple[float, int]]()
    rewarded = 0
    for second in range(int(hours * 3_600)):
        arrivals.add_decision(to_us(second))
        decided = second - delay_s
        if decided >= 0 and decided % share == 0 and decided < stops_s:
            arrivals.add_reward(to_us(second), to_us(decided))
            rewarded += 1
        overdue = arrivals.count_overdue(to_us(second), second + 1, rewarded)
        if overdue:
            alarms.append((second - stops_s, overdue))
    return alarms


def to_us(second: int) -> int:
    """Microseconds of a second that is not the first of the clock."""
    return 1_000_000 * (second + 1)


@pytest.mark.parametrize(("delay_s", "share"), [(0, 1), (5, 1), (1_200, 1), (0, 100), (600, 20)])
def test_rewards_that_are_late_or_rare_are_no_alarm(delay_s: int, share: int) -> None:
    assert play_arrivals(1.0, delay_s, share, stops_s=1e9) == []


def test_rewards_that_come_in_batches_are_no_alarm() -> None:
    """A job that reports the rewards of an hour at its end."""
    arrivals = RewardArrivals()
    rewarded = 0
    for second in range(4 * 3_600):
        arrivals.add_decision(to_us(second))
        if second % 3_600 == 3_599:
            for made in range(second - 3_599, second + 1):
                arrivals.add_reward(to_us(second), to_us(made))
            rewarded += 3_600
        if rewarded:
            assert not arrivals.count_overdue(to_us(second), second + 1, rewarded)


def test_cancelled_decisions_need_no_reward() -> None:
    arrivals = RewardArrivals()
    arrivals.add_decision(to_us(0))
    arrivals.add_reward(to_us(1), to_us(0))
    for second in range(2, 200):
        arrivals.add_decision(to_us(second))
        arrivals.cancel_decision()
    assert arrivals.count_overdue(to_us(200), 199, 199) == 0
    for second in range(200, 400):
        arrivals.add_decision(to_us(second))
    assert arrivals.count_overdue(to_us(400), 399, 199) == 200


@pytest.mark.parametrize(("delay_s", "share", "most_s"), [(0, 1, 31), (5, 1, 36), (0, 4, 45)])
def test_rewards_that_stop_are_noticed(delay_s: int, share: int, most_s: float) -> None:
    alarms = play_arrivals(0.5, delay_s, share, stops_s=1_200.0)
    assert 0 < alarms[0][0] <= most_s
    assert alarms[-1][0] > 500, "until there is one"


def test_a_router_without_any_reward_is_noticed_after_an_hour() -> None:
    alarms = play_arrivals(1.2, 0, 1, stops_s=0.0)
    assert alarms[0][0] == pytest.approx(FIRST_OVERDUE_US / 1e6, abs=2)


def test_a_pause_of_traffic_is_no_alarm() -> None:
    arrivals, night = RewardArrivals(), 12 * 3_600 * 1_000_000
    for n in range(100):
        arrivals.add_decision(n)
        arrivals.add_reward(n + 60_000_000, n + 1)
    for n in range(100):
        arrivals.add_decision(n)
    assert arrivals.count_overdue(night, 200, 100) == 0, "nobody asks"
    arrivals = RewardArrivals()
    arrivals.add_decision(1)
    arrivals.add_reward(2, 1)
    for n in range(100):
        arrivals.add_decision(night + n)
    assert arrivals.count_overdue(night + 10_000_000, 101, 50) == 0, "they have just begun"
