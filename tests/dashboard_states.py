"""States of the dashboard that people should look at: `python tests/dashboard_states.py FOLDER`
writes a picture of each at three widths, light and dark. More arguments name the states. With the
path of a PNG instead of a folder, it writes the screenshot of the README (docs/dashboard.png).
"""

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import uvicorn
from starlette.applications import Starlette

from browsers import launch_chromium, run_uvicorn
from bylot import policies
from bylot.api import RouterView
from bylot.demo import DEMO_ROUTER, run_demo
from bylot.errors import BudgetSpent
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import (
    CreateRouter,
    EditRouter,
    GetRouter,
    MakeDecision,
    RecordReward,
    SetTenant,
)
from bylot.eventlog.events import now_us
from bylot.eventlog.repository import RouterRepository
from bylot.gateway.answers import Answer, Failure, Usage, Verdict
from bylot.gateway.asking import HealthTable, PanelResult
from bylot.gateway.config import GatewayEntry, ModelEntry, build_models
from bylot.gateway.gateway import Gateway, RouterGateway
from bylot.problem import Limit, Problem, at_least, at_most, share
from bylot.problem.calendar import Calendar, find_window
from bylot.router.config import RouterConfig, problem_to_data
from bylot.server.auth import Caller
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.source import ServerSource
from bylot.store import open_store
from direct_server import DirectServer
from server_process import serve_store

READER = Caller(None, frozenset({"read"}), frozenset())
WIDTHS = (1440, 768, 390)
SKILLS = {"ann": 0.95, "bob": 0.7, "cat": 0.5, "dan": 0.45, "eve": 0.3}
PRICES = (0.0031, 0.0024, 0.00061, 0.00058, 0.0002)  # of one call in dollars
CONTEXTS = ("chest pain", "headache", None)
HOUR = 3_600_000_000
ZONE = "Europe/Berlin"


class StateServer(DirectServer):
    """A store, its handler and a clock; routers are played through real commands."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        address = f"sqlite:///{folder}/log.db"
        handler = CommandHandler(RouterRepository(open_store(address), "us"))
        super().__init__(handler, open_store(address))
        self.seed = seed
        self.panels: dict[str, list[Sequence[str]]] = {}  # by router
        self.clocks: dict[str, int] = {}  # the time of each router

    def create(
        self,
        name: str,
        policy: str = "distinct",
        *,
        limits: Sequence[Limit] = (),
        start: int | None = None,
        **changes: Any,
    ) -> None:
        """A router of five experts that began 30 hours ago; unless given, under limits on two costs
        per request.
        """
        self.at = now_us() - 30 * HOUR if start is None else start
        self.rng = np.random.default_rng(self.seed)
        usual = at_most("usd", changes.pop("usd", 3.5)), at_least("junior", 0.3)
        problem = Problem(
            experts=[*SKILLS],
            costs={"usd": [4.0, 3.0, 1.0, 1.0, 0.5], "junior": [0, 0, 1, 0, 1]},
            limits=limits or usual,
            draws=2,
            period=changes.pop("period", 100),
            max_costs=changes.pop("max_costs", {}),
        )
        data = policies.policy_to_data(policies.find_policy(policy))
        config = RouterConfig(problem=problem_to_data(problem), policy=data, wait=3600.0, **changes)
        self.check(self.do(CreateRouter(name, config, by="root")))
        self.clocks[name] = self.at

    def edit(self, name: str, usd: float | None = None, **changes: Any) -> None:
        """Change the bound of usd, or settings."""
        self.at += HOUR // 60
        config = self.handler.repository.get(name, self.at).config
        if usd is not None:
            old, *others = config.problem["limits"]
            limits = [{**old, "at_most": usd}, *others]
            changes["problem"] = {**config.problem, "limits": limits}
        command = EditRouter(name, msgspec.structs.replace(config, **changes), by="ops")
        self.check(self.do(command))
        self.clocks[name] = self.at

    def edit_limit(self, name: str, place: int, **changes: Any) -> None:
        """Change the data of a limit."""
        limits = list(self.handler.repository.get(name, self.at).config.problem["limits"])
        limits[place] = {**limits[place], **changes}
        problem = self.handler.repository.get(name, self.at).config.problem
        self.edit(name, problem={**problem, "limits": limits})

    def play(
        self,
        name: str,
        decisions: int,
        available: Sequence[str] | None = None,
        *,
        reward_share: float = 1.0,
        minutes: float = 1.0,
        even: bool = False,
        tenants: Sequence[str] = (),
    ) -> None:
        """Decisions, ten at a time, a share of them with rewards and actual costs.

        minutes: per decision, on average; even: exactly; tenants: each with half of the requests of
        the one before
        """
        weights = 0.5 ** np.arange(len(tenants))
        names = None if available is None else tuple(available)
        for first in range(0, decisions, 10):
            number = min(10, decisions - first)
            pause = 1.0 if even else self.rng.exponential()
            self.at += int(pause * number * minutes * HOUR / 60)
            contexts = [CONTEXTS[i] for i in self.rng.integers(len(CONTEXTS), size=number)]
            whose = [None] * number
            if tenants:
                p = weights / weights.sum()
                whose = [tenants[i] for i in self.rng.choice(len(tenants), size=number, p=p)]
            requests = zip(contexts, whose, strict=True)
            answers = self.do(
                *(
                    MakeDecision(name, x, names, keys={"tenant": y} if y else {})
                    for x, y in requests
                )
            )
            made = self.check([one for one in answers if not isinstance(one, BudgetSpent)])
            self.panels.setdefault(name, []).extend(one.subset for one in made)
            rewards = []
            for decision in made:
                value = max(SKILLS[one] for one in decision.subset) * self.rng.uniform(0.7, 1.0)
                spend = {"usd": decision.spend["usd"] * float(self.rng.uniform(0.95, 1.05))}
                if self.rng.random() < reward_share:
                    rewards.append(RecordReward(decision.id, float(value), spend))
            self.check(self.do(*rewards))
            self.clocks[name] = self.at

    def view(self, name: str) -> RouterView:
        """A router as the server sees it."""
        (found,) = self.check(self.do(GetRouter(name)))
        assert isinstance(found, RouterView)
        return found

    async def execute_all(self, commands: Sequence[Any]) -> list[Any]:
        """Execute each command at the time of its router, as windows move with the time."""
        found = []
        for one in commands:
            name = one.id.partition(".")[0] if hasattr(one, "id") else one.name
            found += self.handler.perform([one], self.clocks[name])
        return found

    @staticmethod
    def check(answers: list[Any]) -> list[Any]:
        for one in answers:
            if isinstance(one, Exception):
                raise one
        return answers

    def source(self, *recent: str) -> ServerSource:
        """The source of a dashboard."""
        gateway = make_gateway(self.panels.get("chat", ()))
        add_blind(gateway, self.panels.get("blind", ()))
        return ServerSource(self, self, recent, gateway)  # type: ignore[arg-type]


def make_gateway(panels: Iterable[Sequence[str]], seed: int = 0) -> Gateway:
    """The gateway of the router `chat`, which has asked these panels; one member is paused."""
    entries = [
        ModelEntry(model_name=name, litellm_params={"model": f"openai/{name}"}) for name in SKILLS
    ]
    gateway = Gateway(None, build_models(entries), {})  # type: ignore[arg-type]
    gateway.since = time.time() - 26 * 3_600
    chat = gateway.routers["chat"] = RouterGateway(gateway, "chat", GatewayEntry(), None)
    chat.health = HealthTable(3, 30.0, clock=lambda: 1_000.0)
    rng, costs = np.random.default_rng(seed), dict(zip(SKILLS, PRICES, strict=True))
    for panel in panels:
        outcomes = [make_outcome(name, rng) for name in panel]
        answers = [one for one in outcomes if isinstance(one, Answer)]
        failures = [one for one in outcomes if isinstance(one, Failure)]
        scores = {one.member: SKILLS[one.member] * rng.uniform(0.7, 1.0) for one in answers}
        verdict = Verdict(scores=scores, source="exact")
        spend = {one.member: costs[one.member] for one in answers}
        chat.stats.add_panel(PanelResult(answers, failures, {}), spend, verdict)
        chat.stats.settlements += 1
        chat.note_panel(failed=not answers, scored=True)
        chat.stats.quorum_misses += not answers
        if scores:
            chat.stats.members[max(scores, key=scores.__getitem__)].won += 1
    for _ in range(3):
        failure = make_failure("cat", "timeout")
        chat.health.end(failure)
        chat.stats.members["cat"].add_call(failure)
    chat.health.clock = lambda: 1_018.2  # 11.8 s of the pause are left
    return gateway


def add_blind(gateway: Gateway, panels: Iterable[Sequence[str]]) -> None:
    """Add the gateway of the router `blind`: its judge and three of its five models are dead."""
    blind = gateway.routers["blind"] = RouterGateway(gateway, "blind", GatewayEntry(), None)
    blind.health = HealthTable(3, 30.0, clock=lambda: 1_000.0)
    dead, rng = ("ann", "bob", "cat"), np.random.default_rng(1)
    for panel in panels:
        answers = [make_outcome(name, rng) for name in panel if name == "dan"]
        failures = [make_failure(name, "http_503") for name in panel if name in dead]
        blind.stats.add_panel(PanelResult(answers, failures, {}), {}, None)  # type: ignore[arg-type]
        blind.stats.unscored += 1
        blind.note_panel(failed=False, scored=False)
    for member in dead * 3:
        blind.health.end(make_failure(member, "http_503"))


def make_outcome(member: str, rng: np.random.Generator) -> Answer | Failure:
    """An answer or, from `cat` and `eve`, sometimes a failure."""
    if member in ("cat", "eve") and rng.random() < 0.06:
        return make_failure(member, str(rng.choice(["timeout", "http_503", "rate_limited"])))
    choice = {"message": {"role": "assistant", "content": "yes"}}
    seconds = float(rng.lognormal(-0.3 if member == "ann" else -1.2, 0.5))
    usage = Usage(420, 96)
    return Answer(
        member=member, choice=choice, model=member, usage=usage, cost=0.01, seconds=seconds
    )


def make_failure(member: str, reason: str) -> Failure:
    return Failure(member=member, reason=reason, sent=True, cost=None, usage=Usage(), seconds=60.0)


def play_new(server: StateServer) -> None:
    server.create("new")


def play_running(server: StateServer) -> None:
    server.create("running")
    server.play("running", 1_560)
    server.play("running", 30, reward_share=0.1)


def play_outage(server: StateServer) -> None:
    """Only dear experts are available: a limit will be missed."""
    server.create("outage")
    server.play("outage", 620)
    server.play("outage", 60, ["ann", "bob"])
    server.play("outage", 270)
    server.play("outage", 60, ["ann", "bob"])


def play_recovering(server: StateServer) -> None:
    """Outside now, inside again by the end of the period."""
    server.create("recovering")
    server.play("recovering", 400)
    server.play("recovering", 12, ["ann", "bob"])
    server.play("recovering", 4)


def play_edited(server: StateServer) -> None:
    server.create("edited")
    server.play("edited", 650)
    server.edit("edited", usd=2.4)
    server.play("edited", 310)
    server.edit("edited", paused=("bob",))
    server.play("edited", 150)
    server.edit("edited", usd=3.0, paused=())
    server.play("edited", 25)


def play_unguarded(server: StateServer) -> None:
    """A policy without periods and without propensities."""
    server.create("unguarded", policy="greedy")
    server.play("unguarded", 300)


def play_chat(server: StateServer) -> None:
    """A gateway with one paused member."""
    server.create("chat")
    server.play("chat", 1_200)


def play_blind(server: StateServer) -> None:
    """A gateway without a judge and with two of five models; no rewards come any more."""
    server.create("blind", start=now_us() - HOUR // 2)
    server.play("blind", 400, minutes=0.05, even=True)
    server.play("blind", 160, minutes=0.05, even=True, reward_share=0.0)


def find_yesterday() -> int:
    """The start of yesterday in the zone of the budgets."""
    return find_window(Calendar("day", ZONE), now_us()).start - 24 * HOUR


def make_budgets(per_day: float, **more: Any) -> list[Limit]:
    """A budget per day and one per month, and a minimum of juniors in every week."""
    return [
        at_most("usd", per_day, per="day", zone=ZONE, **more),
        at_most("usd", 25 * per_day, per="month", zone=ZONE),
        at_least(share("novices", ["cat", "eve"]), 0.3, per="week", zone=ZONE),
    ]


def play_budget(server: StateServer) -> None:
    """Budgets of the calendar beside a limit per request, all of them on track."""
    limits = [*make_budgets(1_200.0), at_most("usd", 3.5)]
    most = {"usd": [8.0, 6.0, 2.0, 2.0, 1.0]}  # so that open calls have something reserved
    start = find_yesterday() - 36 * HOUR
    server.create("budget", limits=limits, start=start, max_costs=most)
    server.play("budget", 432, minutes=5, even=True)
    server.edit_limit("budget", 0, at_most=1_500.0, when_spent="fewer")
    server.play("budget", 150, minutes=5, even=True)
    server.play("budget", 30, minutes=5, even=True, reward_share=0.0)


def play_hurried(server: StateServer) -> None:
    """Since some hours there are several times as many requests as before."""
    server.create("hurried", limits=make_budgets(900.0), start=find_yesterday() - 48 * HOUR)
    server.play("hurried", 576, minutes=5, even=True)
    server.play("hurried", 100, minutes=5, even=True)
    server.play("hurried", 250, minutes=0.5, even=True)


def play_burst(server: StateServer) -> None:
    """The first 600 requests of a router come in 7 seconds, under a budget per day."""
    limits = [at_most("usd", 5_000.0, per="day", zone=ZONE)]
    server.create("burst", limits=limits, start=find_yesterday() + 6 * HOUR)
    server.play("burst", 600, minutes=7 / 600 / 60, even=True)


def play_spent(server: StateServer) -> None:
    """A budget is spent, and requests are refused."""
    limits = make_budgets(900.0, when_spent="refuse")
    server.create("spent", limits=limits, start=find_yesterday() - 48 * HOUR)
    server.play("spent", 576, minutes=5, even=True)
    server.play("spent", 100, minutes=5, even=True)
    server.play("spent", 700, minutes=0.5, even=True)


def play_weekly(server: StateServer) -> None:
    """Only windows of the calendar; the experts available now cannot meet a minimum."""
    novices = at_least(share("novices", ["cat", "eve"]), 0.5, per="week", zone=ZONE)
    limits = [novices, at_most("usd", 9_000.0, per="week", zone=ZONE)]
    server.create("weekly", limits=limits, start=find_yesterday() + 2 * HOUR)
    server.play("weekly", 60, minutes=5, even=True)
    server.play("weekly", 100, ["ann", "bob", "dan"], minutes=5, even=True)


TENANTS = [
    "acme",
    "<b>bolt & sons</b>",
    "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz " * 3 + "Ltd",
    *(f"tenant {n:03}" for n in range(9)),
]


def play_tenants(server: StateServer) -> None:
    """Budgets for each tenant, two of which have nothing left; one has a bound of its own."""
    ache = {"context": ["headache"]}
    limits = [
        at_most("usd", 300.0, per="month", zone=ZONE, scope="tenant"),
        at_most("usd", 120.0, per="day", zone=ZONE, scope="tenant", where=ache),
        at_least(share("novices", ["cat", "eve"]), 0.3, per="week", zone=ZONE, scope="tenant"),
    ]
    server.create("tenants", "noisy-or", limits=limits, start=find_yesterday())
    own = at_most("usd", 900.0, per="month", scope="tenant")
    server.check(server.do(SetTenant("tenants", "acme", (own,), by="ops")))
    server.play("tenants", 900, minutes=1, even=True, tenants=TENANTS)
    server.edit_limit("tenants", 0, at_most=320.0)
    server.play("tenants", 100, minutes=1, even=True, tenants=TENANTS)


def play_groups(server: StateServer) -> None:
    """Limits that count some contexts only, beside one that counts all."""
    pain, more = {"context": ["chest pain"]}, {"context": ["headache", "cough", "cold", "rash"]}
    limits = [
        at_most("usd", 3.5),
        at_most("usd", 4.5, where=pain),
        at_most("usd", 1_200.0, per="day", zone=ZONE, where=more),
        at_least(share("novices", ["cat", "eve"]), 0.3, per="week", zone=ZONE, where=pain),
    ]
    server.create("groups", "noisy-or", limits=limits, start=find_yesterday())
    server.play("groups", 400, minutes=2, even=True)
    server.edit_limit("groups", 2, at_most=1_500.0)
    server.play("groups", 100, minutes=2, even=True)


STATES = {
    "new": play_new,
    "running": play_running,
    "outage": play_outage,
    "recovering": play_recovering,
    "edited": play_edited,
    "unguarded": play_unguarded,
    "chat": play_chat,
    "blind": play_blind,
    "budget": play_budget,
    "hurried": play_hurried,
    "burst": play_burst,
    "spent": play_spent,
    "weekly": play_weekly,
    "tenants": play_tenants,
    "groups": play_groups,
}
"""One router each."""


def play_many(server: StateServer) -> list[str]:
    """Two hundred routers, most of them without decisions; the names of those used last."""
    for play in STATES.values():
        play(server)
    for i in range(200 - len(STATES)):
        server.create(f"router-{i:03}", usd=3.0 + i % 5 / 10)
        if i % 10 == 0:
            server.play(f"router-{i:03}", 3 + i)
    return [f"router-{i:03}" for i in range(0, 200 - len(STATES), 10)] + list(STATES)


@contextlib.contextmanager
def serve_routes(routes: Sequence[Any]) -> Iterator[str]:
    """Serve routes from a thread; yields the address."""
    app = Starlette(routes=list(routes))
    with run_uvicorn(uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))) as address:
        yield address


def take_pictures(out: Path, states: Sequence[str]) -> None:
    """Write STATE-WIDTH-SCHEME.png of every state."""
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        browser = launch_chromium(started)
        empty, many = (Path(folder) / name for name in ("empty", "many"))
        for state in states:
            path = f"/routers/{state}" if state in STATES else "/"
            at = empty if state == "empty" else many
            if not at.exists():
                at.mkdir()
                server = StateServer(at)
                source = server.source(*(play_many(server) if at == many else []))
            with serve_routes(dashboard_routes(source, lambda token: READER)) as address:
                for width in WIDTHS:
                    for scheme in ("light", "dark"):
                        page = browser.new_page(
                            viewport={"width": width, "height": 900}, color_scheme=scheme
                        )
                        page.goto(address + path)
                        page.locator("#live[data-link=live]").wait_for()
                        if path != "/" and state != "new":
                            page.locator(".levels .key:has-text('panels')").first.wait_for()
                        page.wait_for_timeout(300)
                        picture = out / f"{state}-{width}-{scheme}.png"
                        page.screenshot(path=picture, full_page=True)
                        page.close()
                        print(picture)
        browser.close()


def take_screenshot(path: Path) -> None:
    """Write the picture of the README: the first screen of the router of the demo, in a server."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        run_demo(Path(folder), 4_700, seed=0)
        with serve_store(f"sqlite:///{folder}/bylot.db") as server:
            page = launch_chromium(started).new_page(viewport={"width": 1280, "height": 760})
            page.goto(f"{server.url}/routers/{DEMO_ROUTER}")
            page.locator(".levels .key:has-text('panels')").first.wait_for()
            page.screenshot(path=path)


if __name__ == "__main__":
    folder, *names = sys.argv[1:] or ["out/dashboard"]
    if folder.endswith(".png"):
        take_screenshot(Path(folder))
    else:
        take_pictures(Path(folder), names or ["empty", "many", *STATES])
