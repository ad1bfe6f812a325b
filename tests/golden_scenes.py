"""Scenes of golden plays: a problem for each kind of limit, and what happens while it is played.

A scene is played by the simulator, by a router in memory and by a router with a log. A play is
recorded as hashes of its panels and of the bits of all its numbers, block by block, and as what the
status says at the end.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

import bylot
from bylot.environments import Noisy, RewardDelay
from bylot.environments.call_costs import CallCosts
from bylot.errors import BudgetSpent
from bylot.limits.status import LimitStatus
from bylot.problem import Limit
from scripted_routers import MemoryRouter, StoredRouter

STEPS, BLOCK_STEPS, HASH_CHARS = 320, 50, 8
START = 1_774_580_400.0  # 27 March 2026: a week, a month and summer time begin in the days after it
ZONE = "Europe/Berlin"
PAUSES_S = [20, 60, 300, 900, 1_800, 3_600, 7_200]

Way = Literal["simulator", "memory", "stored"]
ROUTERS: tuple[Way, ...] = ("memory", "stored")
WAYS: tuple[Way, ...] = ("simulator", *ROUTERS)
GUARDED = ("distinct", "noisy-or", "tangent")
PRODUCT = (*GUARDED, "omd")
RESEARCH = ("strict", "random", "greedy", "cucb", "cbwk", "ts", "ts-bwk", "moe", "c2mab-v")

EXPERTS = [f"e{i}" for i in range(8)]
COSTS: dict[str, list[float]] = {
    "usd": [1.0, 2.0, 3.0, 1.5, 0.5, 4.0, 2.2, 0.9],
    "gpu": [0, 1, 1, 0, 0, 1, 0, 1],
}
LARGEST = [2.0, 5.0, 4.0, 1.5, 2.5, 9.0, 2.2, 3.5]
ACTUAL = [
    1.3,
    1.2,
    3.6,
    1.5,
    1.0,
    3.1,
    2.9,
    0.4,
]  # what calls really cost in US dollars, on average
SKILLS = np.random.default_rng(3).uniform(0.1, 0.9, size=(3, 3, 8))  # by context and dimension
NEW = bylot.share("new", ["e5", "e6"])
SMALL = bylot.share("small", ["e0", "e4", "e7"])

PER_REQUEST = [bylot.at_most("usd", 5.5), bylot.at_most("gpu", 1.2), bylot.at_least(NEW, 0.4)]
HOUR = bylot.at_most("usd", 16.0, per="hour", zone=ZONE)
DAY = bylot.at_most("usd", 140.0, per="day", zone=ZONE)
WEEK = bylot.at_most("usd", 640.0, per="week", zone=ZONE)
MONTH = bylot.at_most("usd", 3_600.0, per="month", zone=ZONE)


def make_problem(*limits: Limit, **more: Any) -> bylot.Problem:
    """The pool of all scenes under these limits."""
    settings = {"draws": 3, **more}
    if any(limit.per is not None for limit in limits):
        settings.setdefault("traffic", 36.0)
    return bylot.Problem(EXPERTS, COSTS, limits, **settings)


@dataclass(frozen=True)
class Scene:
    """A problem, the policies and ways that play it, and what happens at each step.

    bills:     costs are reported, some late, some never, most of them other than declared
    dear:      one bill in four is so many times as high
    outages:   some experts are not available now and then
    exchanges: decisions are cancelled and members are replaced now and then
    edits:     the problem that is in force from a step on
    own:       bounds of single tenants from a step on
    """

    problem: bylot.Problem
    policies: tuple[str, ...] = GUARDED
    ways: tuple[Way, ...] = WAYS
    contexts: tuple[str | None, ...] = (None,)
    tenants: tuple[str | None, ...] = (None,)
    bills: bool = False
    dear: float = 1.0
    outages: bool = False
    exchanges: bool = False
    edits: Mapping[int, bylot.Problem] = field(default_factory=dict)
    own: Mapping[int, tuple[str, tuple[Limit, ...]]] = field(default_factory=dict)


def list_scenes() -> dict[str, Scene]:
    """All scenes, by the kind of limit or event."""
    period = make_problem(*PER_REQUEST, period=60)
    certain = {"max_costs": {"usd": LARGEST}}
    two_sided = make_problem(bylot.at_least("usd", 4.0), bylot.at_most("usd", 5.0), period=70)
    minima = make_problem(
        bylot.at_least(NEW, 0.4),
        bylot.at_least(SMALL, 0.9),
        bylot.at_most(bylot.share("old", ["e1"]), 0.2),
        period=50,
    )
    nested = make_problem(HOUR, DAY, WEEK, MONTH, bylot.at_most("gpu", 1.2))
    averages = make_problem(
        bylot.at_least(NEW, 0.4, per="day", zone=ZONE),
        bylot.at_most(SMALL, 1.5, per="hour", zone=ZONE),
        bylot.at_least(SMALL, 0.6, per="week", zone=ZONE),
        bylot.at_most("usd", 5.5),
    )
    refuse, fewer = (
        [
            bylot.at_most("usd", 14.0, per="hour", zone=ZONE, when_spent=what),
            bylot.at_most("usd", 130.0, per="day", zone=ZONE, when_spent=what),
        ]
        for what in ("refuse", "fewer")
    )
    tenant_day = bylot.at_most("usd", 50.0, per="day", zone=ZONE, scope="tenant")
    tenant = make_problem(
        DAY,
        tenant_day,
        bylot.at_most("usd", 280.0, per="week", zone=ZONE, scope="tenant"),
        bylot.at_least(NEW, 0.3, per="week", zone=ZONE, scope="tenant"),
    )
    where = make_problem(
        bylot.at_most("usd", 5.0, where={"context": ["a"]}),
        bylot.at_least(NEW, 0.5, where={"context": ["b", "c"]}),
        bylot.at_most("usd", 48.0, per="day", zone=ZONE, where={"context": ["b"]}),
        bylot.at_most(SMALL, 1.6, per="day", zone=ZONE, where={"context": ["a", "c"]}),
        period=60,
    )
    mixed = make_problem(bylot.at_most("usd", 5.5), bylot.at_least(NEW, 0.4), HOUR, DAY, period=60)
    larger = Pool([*EXPERTS, "e8"], {"usd": [*COSTS["usd"], 0.7], "gpu": [*COSTS["gpu"], 0]})
    smaller = Pool(EXPERTS[:-2], {name: row[:-2] for name, row in COSTS.items()})
    elsewhere = bylot.at_most("usd", 90.0, per="day", zone="America/New_York")
    own = {50: ("t1", (tenant_day.at(15.0),)), 180: ("t1", ()), 200: ("t0", (tenant_day.at(60.0),))}
    overspent = make_problem(
        bylot.at_most("usd", 5.5),
        bylot.at_least(NEW, 0.4),
        HOUR.at(25.0),
        DAY.at(200.0),
        bylot.at_least(NEW, 0.5, per="day", zone=ZONE),
        bylot.at_most(SMALL, 1.0, per="hour", zone=ZONE),
        period=40,
    )
    overspent_by_tenants = make_problem(
        tenant_day.at(70.0),
        bylot.at_least(NEW, 0.5, per="day", zone=ZONE, scope="tenant"),
        bylot.at_most("usd", 60.0, per="day", zone=ZONE, where={"context": ["a"]}),
        bylot.at_most("usd", 5.0, where={"context": ["b"]}),
        period=30,
    )
    return {
        "period": Scene(period, PRODUCT),
        "two-sided": Scene(two_sided, PRODUCT),
        "minimum": Scene(minima, PRODUCT),
        "contexts": Scene(period, (*PRODUCT, *RESEARCH), contexts=("a", "b", "c")),
        "explored": Scene(period, ("noisy-or:explore=0.1",)),
        "hour": Scene(make_problem(HOUR)),
        "day": Scene(make_problem(DAY)),
        "week": Scene(make_problem(WEEK)),
        "month": Scene(make_problem(MONTH.at(700.0))),
        "nested": Scene(nested, contexts=("a", "b")),
        "averages": Scene(averages),
        "refuse": Scene(make_problem(*refuse)),
        "fewer": Scene(make_problem(*fewer)),
        "tenant": Scene(tenant, ("noisy-or",), tenants=("t0", "t0", "t1", "t2"), own=own),
        "where": Scene(where, ("noisy-or",), contexts=("a", "b", "c")),
        "learned": Scene(period, PRODUCT, bills=True),
        "learned hour": Scene(mixed, bills=True),
        "certain": Scene(make_problem(*PER_REQUEST, period=60, **certain), bills=True),
        "certain hour": Scene(
            make_problem(HOUR.at(25.0), DAY.at(180.0), **certain),
            contexts=("a", "b"),
            bills=True,
        ),
        "certain tenant": Scene(
            make_problem(DAY.at(200.0), tenant_day.at(70.0), **certain),
            ("noisy-or",),
            ROUTERS,
            tenants=("t0", "t0", "t1", "t2"),
            bills=True,
        ),
        "overspent": Scene(overspent, GUARDED, ROUTERS, bills=True, dear=5.0, outages=True),
        "overspent tenant": Scene(
            overspent_by_tenants,
            ("noisy-or",),
            ROUTERS,
            contexts=("a", "b"),
            tenants=("t0", "t1"),
            bills=True,
            dear=5.0,
            outages=True,
        ),
        "outage": Scene(period, PRODUCT, ROUTERS, outages=True),
        "outage hour": Scene(nested, GUARDED, ROUTERS, outages=True),
        "min-draws": Scene(make_problem(*PER_REQUEST, DAY, min_draws=1, period=60)),
        "exchange": Scene(
            make_problem(*PER_REQUEST, DAY.at(180.0), period=60, **certain),
            GUARDED,
            ("stored",),
            bills=True,
            exchanges=True,
        ),
        "exchange tenant": Scene(
            make_problem(DAY, tenant_day),
            ("noisy-or",),
            ("stored",),
            tenants=("t0", "t1"),
            exchanges=True,
        ),
        "edited period": Scene(
            period,
            PRODUCT,
            ROUTERS,
            edits={
                70: larger.make_problem(*PER_REQUEST, period=60),
                130: make_problem(*PER_REQUEST[1:], bylot.at_most("usd", 5.0), period=60),
                190: make_problem(*PER_REQUEST, period=40),
                240: smaller.make_problem(bylot.at_most("usd", 5.5), period=40),
            },
        ),
        "edited hour": Scene(
            mixed,
            GUARDED,
            ROUTERS,
            bills=True,
            edits={
                40: make_problem(HOUR.at(18.0), DAY, **certain),
                80: make_problem(HOUR, WEEK.at(800.0), bylot.at_least(NEW, 0.3, per="day")),
                130: make_problem(HOUR, elsewhere, bylot.at_least(NEW, 0.3, per="week")),
                180: larger.make_problem(elsewhere, MONTH.at(3_000.0)),
                230: smaller.make_problem(elsewhere, bylot.at_most("gpu", 1.5), period=30),
            },
        ),
        "edited tenant": Scene(
            make_problem(DAY, tenant_day),
            ("noisy-or",),
            ROUTERS,
            tenants=("t0", "t1"),
            own={20: ("t1", (tenant_day.at(25.0),))},
            edits={
                60: make_problem(DAY, tenant_day.at(50.0)),
                120: make_problem(DAY, bylot.at_most("usd", 200.0, per="week", scope="tenant")),
                190: make_problem(bylot.at_most("usd", 20.0, per="hour", scope="tenant")),
            },
        ),
    }


@dataclass(frozen=True)
class Pool:
    """Other experts than those of `make_problem`."""

    experts: list[str]
    costs: dict[str, list[float]]

    def make_problem(self, *limits: Limit, **more: Any) -> bylot.Problem:
        if any(limit.per is not None for limit in limits):
            more.setdefault("traffic", 36.0)
        return bylot.Problem(self.experts, self.costs, limits, draws=3, **more)


class PlayLog:
    """What a play shows, step by step, as text with the bits of every number."""

    def __init__(self) -> None:
        self.panels: list[str] = []
        self.numbers: list[str] = []

    def add(self, panel: Iterable[object], numbers: Iterable[float | None]) -> None:
        self.panels.append(" ".join(map(str, panel)))
        self.numbers.append(" ".join(map(format_bits, numbers)))

    def to_record(self) -> dict[str, Any]:
        """The hashes of blocks of steps, so that a difference has a place."""
        return {"panels": hash_blocks(self.panels), "numbers": hash_blocks(self.numbers)}


def format_bits(number: float | None) -> str:
    """The exact value of a number.

    >>> format_bits(0.1), format_bits(None)
    ('0x1.999999999999ap-4', 'None')
    """
    return "None" if number is None else float(number).hex()


def hash_blocks(lines: list[str]) -> str:
    """A short hash of every block of lines."""
    blocks = ("\n".join(lines[n : n + BLOCK_STEPS]) for n in range(0, len(lines), BLOCK_STEPS))
    return " ".join(sha256(block.encode()).hexdigest()[:HASH_CHARS] for block in blocks)


def play_scene(scene: Scene, policy: str, way: Way) -> dict[str, Any]:
    """Play a scene, and return its record."""
    if way == "simulator":
        return simulate_scene(scene, policy)
    kind = MemoryRouter if way == "memory" else StoredRouter
    return RouterPlay(scene, kind, policy).run()


def list_times() -> list[float]:
    """The seconds since 1970 at which requests come."""
    rng, now, times = random.Random(11), START, list[float]()
    for _ in range(STEPS):
        now += rng.choice(PAUSES_S) + rng.random()
        times.append(now)
    return times


def simulate_scene(scene: Scene, policy: str) -> dict[str, Any]:
    """Let the simulator play, with late and missing rewards."""
    calls = CallCosts({"usd": ACTUAL}, noise=0.3, report="members") if scene.bills else None
    names = [str(name) for name in scene.contexts]
    trace = bylot.simulate(
        scene.problem,
        Noisy(SKILLS[: len(names)], worth=1 / 3),
        policy,
        rounds=STEPS,
        seed=7,
        late=RewardDelay(lag=20, lost=0.1),
        calls=calls,
        times=np.array([round(1e6 * now) for now in list_times()]),
        context_names=names,
    )
    log, record = PlayLog(), trace.record
    for t in range(STEPS):
        flags = record.feasible[t], record.replaced[t], record.contexts[t]
        reals = record.propensities[t], trace.rewards[t]
        rows = record.draw_probabilities[t], trace.spend[t], record.distributions[t]
        log.add(trace.draws[t].tolist(), [*flags, *reals, *(x for row in rows for x in row)])
    return {
        **log.to_record(),
        "refused": int(trace.refused.sum()),
        "replaced": int(record.replaced.sum()),
        "spent": trace.spend.sum(axis=0).tolist(),
    }


class RouterPlay:
    """A play of a router: at each step a request, and what is reported about earlier ones.

    Half-way it is saved and loaded, or continued from a snapshot.
    """

    def __init__(self, scene: Scene, kind: type[MemoryRouter | StoredRouter], policy: str) -> None:
        self.scene, self.log, self.rng = scene, PlayLog(), random.Random(5)
        self.router: Any = kind(scene.problem, policy, seed=7)
        self.experts = scene.problem.experts
        self.waiting: list[bylot.Decision] = []  # for a reward
        self.unbilled: list[bylot.Decision] = []
        self.refused = self.replaced = 0

    def run(self) -> dict[str, Any]:
        for step, now in enumerate(list_times()):
            self.router.now = now
            if step in self.scene.edits:
                problem = self.scene.edits[step]
                self.router.edit(problem)
                self.experts = problem.experts
            if step in self.scene.own:
                self.router.set_tenant(*self.scene.own[step])
            if step == STEPS // 2:
                with TemporaryDirectory() as folder:
                    self.router.reopen(Path(folder) / "router.bylot")
            self.decide()
            if self.scene.exchanges:
                self.exchange()
            if self.scene.bills:
                self.bill()
            while self.waiting and self.rng.random() < 0.55:
                self.reward(self.waiting.pop(self.rng.randrange(len(self.waiting))))
        self.router.check()
        return {**self.log.to_record(), **self.describe_end()}

    def decide(self) -> None:
        labels: dict[str, Any] = {
            "context": self.rng.choice(self.scene.contexts),
            "tenant": self.rng.choice(self.scene.tenants),
        }
        if self.scene.outages and self.rng.random() < 0.3:
            labels["available"] = self.rng.sample(self.experts, self.rng.randint(2, 6))
        try:
            made = self.router.decide(**labels)
        except BudgetSpent as error:
            self.refused += 1
            self.log.add(["refused by", error.limit], [error.reset_s])
            return
        self.note(made)
        self.replaced += made.replaced
        self.waiting.append(made)
        self.unbilled.append(made)

    def note(self, made: bylot.Decision) -> None:
        """Keep what is shown of a decision."""
        parts = made.draw_probabilities or (), (made.inclusion or {}).values()
        costs = made.spend.values(), made.expected.values()
        numbers = [made.feasible, made.replaced, made.propensity]
        self.log.add(made.draws, [*numbers, *(x for part in (*parts, *costs) for x in part)])

    def exchange(self) -> None:
        """Cancel a decision, or replace a member of its panel, now and then."""
        open_ones = [made for made in self.waiting if made in self.unbilled]
        if not open_ones or self.rng.random() > 0.3:
            return
        made = self.rng.choice(open_ones)
        self.waiting.remove(made)
        self.unbilled.remove(made)
        if self.rng.random() < 0.4:
            assert self.router.cancel(made.id), "nothing was reported about the decision"
            self.log.add(["cancelled", made.t], [])
            return
        now = self.router.replace(made.id, self.rng.choice(made.subset)) or made
        self.note(now)
        self.waiting.append(now)
        self.unbilled.append(now)

    def bill(self) -> None:
        """Report what some decisions cost before their reward, by member or in all."""
        while self.unbilled and self.rng.random() < 0.5:
            made = self.unbilled.pop(self.rng.randrange(len(self.unbilled)))
            if made in self.waiting and self.rng.random() < 0.6:
                self.router.report(made.id, None, self.draw_costs(made))

    def reward(self, made: bylot.Decision) -> None:
        """Report a reward, some with costs; one in eight is lost."""
        if self.rng.random() < 0.125:
            return
        skill = SKILLS[0, 0, [int(name[1:]) % len(EXPERTS) for name in made.subset]]
        value = float(skill.max() * self.rng.random())
        spend = None
        if self.scene.bills and made in self.unbilled and self.rng.random() < 0.5:
            spend = self.draw_costs(made)
        if made in self.unbilled:
            self.unbilled.remove(made)  # no bill comes after the reward
        self.router.report(made.id, value, spend)

    def draw_costs(self, made: bylot.Decision) -> Any:
        """What the members of a panel cost, as a mapping or as a sum."""
        spend = {}
        for name in made.subset:
            i = int(name[1:]) % len(EXPERTS)
            spend[name] = min(ACTUAL[i] * self.rng.uniform(0.5, 1.5), LARGEST[i])
        if self.scene.dear > 1.0 and self.rng.random() < 0.25:
            spend = {name: self.scene.dear * cost for name, cost in spend.items()}
        return spend if self.rng.random() < 0.7 else sum(spend.values())

    def describe_end(self) -> dict[str, Any]:
        """What the status says at the end, numbers of ledgers in clear."""
        status = self.router.status()
        outlook = [*status.q.values()]
        for limit in status.limits:
            outlook += [limit.price, limit.mean, limit.slack]
            if limit.current is not None:
                outlook += [limit.current.in_force, limit.current.within_reach]
            if limit.window is not None:
                outlook += [limit.window.to_come, limit.window.projected]
        found = {
            "refused": self.refused,
            "replaced": self.replaced,
            "limits": [describe_limit(limit) for limit in status.limits],
            "outlook": hash_blocks([" ".join(map(format_bits, outlook))]),
        }
        names = dict.fromkeys(name for name in self.scene.tenants if name is not None)
        if names:
            found["tenants"] = {
                name: [
                    [now.spent, now.reserved, now.requests, now.bound]
                    for now in self.router.measure_tenant(name)
                ]
                for name in names
            }
        return found


def describe_limit(limit: LimitStatus) -> list[Any]:
    """The verdict of a limit, its mean and windows missed, and what it has spent and reserved."""
    found: list[Any] = [limit.label, limit.verdict]
    if limit.current is not None:
        found += [limit.current.mean, limit.current.missed]
    if limit.window is not None:
        found += [limit.window.spent, limit.window.reserved, limit.window.requests]
    if limit.tenants is not None:
        found += [limit.tenants.total, limit.tenants.active, limit.tenants.outside]
    return found
