"""Random command sequences, mistakes among them, which routers of all kinds must answer alike."""

import random
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

import bylot
from bylot.api import RewardReceipt, RouterView, TenantView
from bylot.errors import BylotError, BylotWarning, DecisionNotFound
from bylot.eventlog.audit import audit_router
from bylot.router.engine import RouterEngine
from bylot.router.snapshot import core_to_data
from bylot.router.state import RouterState
from bylot.router.status import RouterStatus
from limit_fuzzer import LARGEST, PAUSES_S, SETUPS, USD, Pool, Setup
from scripted_routers import START
from sequence_players import (
    VARIANTS,
    MemoryPlayer,
    Step,
    StorePlayer,
    StoreSide,
    Variant,
    list_decisions,
    make_template,
)

BATCHES = 10  # of a sequence, each committed as one
LONG_BATCHES = 80  # of every 23rd, in which routers learn their traffic
MAX_BATCH = 4  # commands
AUDITED = 10  # of so many sequences, one log is replayed from its first event
OF_THE_LOG = ("id", "router", "version", "at", "key")
"""Fields of a decision that only a stored one has, or that differ from those in memory."""
COUNTED_BY_THE_LOG = (
    "counters",
    "distributions",
    "timeline",
    "unrewarded",  # of decisions since the router was opened, as is the state that follows from it
    "state",
)
DECISION_ID = re.compile(r"\bd\d+\b|\b[a-z0-9-]+\.\d+\.\d+(\.[0-9a-f]+)?")
WRONG_IDS = ("", "d", "d01", "x.1.2", "pool.1.0.00000000", "d999999", "{}.1.999999.0123abcd")


@dataclass
class Made:
    """A decision as the writer of the sequence knows it."""

    number: int
    decision: bylot.Decision
    reports: list[dict[str, Any]] = field(default_factory=list)
    since: int | None = None  # how much was said before the first that was said about it


class Disagreement(AssertionError):
    """Two routers gave different answers, or are in different states."""


class SequenceWriter:
    """Draws commands to a router from what it has answered so far."""

    def __init__(self, name: str, rng: random.Random, setup: Setup, variant: Variant) -> None:
        self.name = name
        self.rng = rng
        self.setup = setup
        self.variant = variant
        self.pool = Pool()
        self.limits = list(setup.limits)
        self.made: list[Made] = []
        self.said = 0  # about decisions
        self.keyed: list[Step] = []
        verbs = {
            self.decide: 10.0,
            self.report: 8.0,
            self.repeat: 2.0,
            self.cancel: 1.2,
            self.replace: 1.5,
            self.edit: 0.8,
            self.set_tenant: 0.6,
            self.measure_tenant: 0.4,
            self.show_status: 0.6,
        }
        if not any(limit.scope for limit in self.limits):
            verbs |= {self.set_tenant: 0.1, self.measure_tenant: 0.1}
        if variant.is_stored_only:
            verbs |= {
                self.activate: 1.5,
                self.record: 1.0,
                self.repeat_key: 1.0,
                self.reconfigure: 0.6,
                self.list_tenants: 0.3,
            }
        self.verbs = list(verbs)
        self.weights = list(verbs.values())

    def draw_batch(self) -> list[Step]:
        """Return a few commands."""
        count = self.rng.choice([1, 1, 2, 3, MAX_BATCH])
        return [write() for write in self.rng.choices(self.verbs, self.weights, k=count)]

    def note(self, batch: Sequence[Step], answers: Sequence[Any]) -> None:
        """Note what was answered."""
        for decision in list_decisions(batch, answers):
            self.made.append(Made(len(self.made), decision))
        for step, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                continue
            if step.pool is not None:
                self.limits = list(step.given["problem"].limits)
                self.pool = step.pool
            elif step.verb == "replace" and isinstance(step.about, int):
                self.made[step.about].decision = answer
            elif step.verb == "report" and isinstance(step.about, int):
                self.made[step.about].reports.append(step.given)

    def choose(self, is_fresh: bool = False) -> Made | None:
        """Return a decision, most often one of the last, or sometimes None.

        is_fresh: prefer one about which nothing was said
        """
        if not self.made or self.rng.random() < 0.04:
            return None
        if is_fresh and self.rng.random() < 0.6:
            fresh = [made for made in self.made if made.since is None]
            if fresh:
                return self.rng.choice(fresh)
        return self.made[-1 - int(len(self.made) * self.rng.random() ** 2)]

    def draw_wrong_id(self) -> str:
        return self.rng.choice(WRONG_IDS).format(self.name)

    def decide(self) -> Step:
        rng = self.rng
        tenant = rng.choice(self.setup.tenants)
        if rng.random() < 0.04:
            tenant = rng.choice([None, "t9", "", "x" * 300])
        context = rng.choice(self.setup.contexts)
        if rng.random() < 0.1:
            context = rng.choice([None, "x", "n1", "n2", "n3"])
        available: Any = None
        if rng.random() < 0.3:
            names = [*rng.sample(self.pool.experts, 3)]
            available = tuple(rng.choice([names, names, ["a", "b"], ["e"], [], ["nobody"]]))
        given: dict[str, Any] = {"context": context, "available": available}
        given["keys"] = {"tenant": tenant}
        if self.variant.is_stored_only:
            if rng.random() < 0.2:
                given["defer"] = True
            if rng.random() < 0.15:
                given["holder"] = "gateway"
            if rng.random() < 0.2:
                given["key"] = f"k{rng.randrange(8)}"
        step = Step("decide", given=given)
        if "key" in given:
            self.keyed.append(step)
        return step

    def repeat_key(self) -> Step:
        return self.rng.choice(self.keyed) if self.keyed else self.decide()

    def report(self) -> Step:
        made = self.choose()
        if made is None:
            return Step("report", self.draw_wrong_id(), {"value": 0.5})
        is_first = made.since is None
        is_known = not self.may_be_forgotten(made)
        self.note_said(made)
        if is_known:
            return Step("report", made.number, self.draw_report(made.decision))
        return Step("report", made.number, {"value": 0.5}) if is_first else self.decide()

    def may_be_forgotten(self, made: Made) -> bool:
        """Return whether a router in memory, unlike a log, may no longer know a decision: only a
        first reward of it has the same answer.
        """
        most = self.variant.memory - MAX_BATCH
        said = 0 if made.since is None else self.said - made.since
        return made.number < len(self.made) - most or said > most

    def note_said(self, made: Made) -> None:
        """Note that something is said about a decision, which may then be closed."""
        if made.since is None:
            made.since = self.said
        self.said += 1

    def draw_report(self, decision: bylot.Decision) -> dict[str, Any]:
        """Return what to say about a decision, which may be a mistake."""
        rng = self.rng
        low, high = self.variant.rewards
        given: dict[str, Any] = {"value": rng.uniform(low, high)}
        if rng.random() < 0.2:
            given["value"] = rng.choice([low, high, None, True, high + 1.0, float("nan")])
        if self.variant.feedback == "members" and rng.random() < 0.7:
            given["members"] = {name: rng.uniform(low, high) for name in decision.subset}
            if rng.random() < 0.5:
                given["members"].popitem()
            if rng.random() < 0.5:
                given["value"] = None
            if rng.random() < 0.08:
                given["members"]["nobody"] = 0.5
        if self.variant.feedback == "winner" and rng.random() < 0.7:
            given["winner"] = rng.choice([*decision.subset, *decision.subset, "f"])
        elif rng.random() < 0.03:
            given["winner"] = decision.subset[0]
        if rng.random() < 0.5:
            given["spend"] = self.draw_spend(decision)
            if rng.random() < 0.4:
                given["value"] = None
                given.pop("members", None)
                given.pop("winner", None)
        if rng.random() < 0.3:
            given["key"] = rng.choice(["k1", "k2", "k3", "gateway/1"])
        if self.variant.is_stored_only and rng.random() < 0.2:
            given["holder"] = "gateway"
            given["key"] = "gateway"
        return given

    def draw_spend(self, decision: bylot.Decision) -> dict[str, Any]:
        """Return what a decision cost, which may be a mistake."""
        rng = self.rng
        most = rng.choice([0.5, 1.0, 1.0, 2.0, 8.0])
        if self.setup.has_largest:
            parts = {name: most / 8.0 * LARGEST[name] for name in decision.subset}
        else:
            parts = {name: most * rng.random() * USD[name] for name in decision.subset}
        if rng.random() < 0.03:
            parts["nobody"] = 1.0
        if rng.random() < 0.03:
            parts.popitem()
        spend: dict[str, Any] = {"usd": rng.choice([parts, sum(parts.values())])}
        if rng.random() < 0.1:
            spend["gpu"] = rng.choice([0.0, 1.0, 2.0])
        if rng.random() < 0.06:
            wrong = {"euro": 1.0}, {"usd": -1.0}, {"usd": 1e9}, {"usd": float("nan")}, {"new": 1.0}
            spend = rng.choice([*wrong, {}])
        return spend

    def repeat(self) -> Step:
        """Report the same again, or something else under the same key."""
        made = self.choose()
        if made is None or not made.reports or self.may_be_forgotten(made):
            return self.report()
        self.note_said(made)
        given = dict(self.rng.choice(made.reports))
        if self.rng.random() < 0.4:
            given |= {"value": self.draw_report(made.decision)["value"]}
        if self.rng.random() < 0.3:
            given["key"] = "k4"
        return Step("report", made.number, given)

    def cancel(self) -> Step:
        made = self.choose(is_fresh=True)
        if made is None:
            return Step("cancel", self.draw_wrong_id())
        if self.may_be_forgotten(made):
            return self.decide()
        self.note_said(made)
        given: dict[str, Any] = {}
        if self.variant.is_stored_only and self.rng.random() < 0.2:
            given["holder"] = "gateway"
        return Step("cancel", made.number, given)

    def replace(self) -> Step:
        rng = self.rng
        made = self.choose(is_fresh=True)
        available: Any = None
        if rng.random() < 0.4:
            available = tuple(rng.choice([rng.sample(self.pool.experts, 3), [], ["nobody"]]))
        given: dict[str, Any] = {"failed": "a", "available": available}
        if made is None:
            return Step("replace", self.draw_wrong_id(), given)
        if self.may_be_forgotten(made):
            return self.decide()
        self.note_said(made)
        decision = made.decision
        given["failed"] = rng.choice(
            [*decision.subset, *decision.subset, "nobody", *decision.failed]
        )
        if self.variant.is_stored_only and rng.random() < 0.2:
            given["holder"] = "gateway"
        return Step("replace", made.number, given)

    def activate(self) -> Step:
        made = self.choose()
        return Step("activate", self.draw_wrong_id() if made is None else made.number)

    def record(self) -> Step:
        made = self.choose()
        return Step("record", self.draw_wrong_id() if made is None else made.number)

    def edit(self) -> Step:
        """Change the pool, costs, a bound or nothing; some limits can then not be kept."""
        rng = self.rng
        pool = Pool(list(self.pool.experts), dict(self.pool.usd), dict(self.pool.largest))
        limits = list(self.limits)
        what = rng.choice(["pool", "costs", "bound", "bound", "nothing", "fewer"])
        j = rng.randrange(len(limits))
        if what == "pool":
            pool.experts = sorted({*pool.experts} ^ {rng.choice(["e", "f"])})
        elif what == "costs":
            name = rng.choice(pool.experts)
            pool.usd[name] = rng.uniform(0.5, 3.0)
            pool.largest[name] = pool.usd[name] * rng.choice([1.0, 2.0, 4.0])
        elif what == "bound":
            limits[j] = limits[j].at(limits[j].bound * rng.choice([0.9, 1.1, 0.6, 0.01]))
        elif what == "fewer" and len(limits) > 1:
            limits.pop(j)
        try:
            problem = self.setup.make_problem(limits, pool)
        except BylotError:  # its limits exclude each other
            return self.show_status()
        return Step("edit", given={"problem": problem}, pool=pool)

    def reconfigure(self) -> Step:
        """Change what only stored routers have."""
        rng = self.rng
        paused = tuple(rng.sample(self.pool.experts, rng.choice([0, 1, 1, 4])))
        changes: list[dict[str, Any]] = [
            {"paused": paused},
            {"wait": rng.choice([60.0, 5_000.0, -1.0, None])},
            {"default": rng.choice([None, 0.5, 9.0])},
            {"aggregate": rng.choice(["earliest", "last", "sum"])},
            {"memory": rng.choice([0, 3, 100])},
            {"seed": 99},
        ]
        return Step("reconfigure", given=rng.choice(changes))

    def set_tenant(self) -> Step:
        rng = self.rng
        tenant = rng.choice(["t0", "t1", "t7", ""])
        scoped = [limit for limit in self.limits if limit.scope]
        chosen = rng.choice([*scoped, *scoped, *self.limits])
        limits = () if rng.random() < 0.3 else (chosen.at(chosen.bound * rng.uniform(0.5, 1.5)),)
        return Step("set_tenant", given={"tenant": tenant, "limits": limits})

    def measure_tenant(self) -> Step:
        tenant = self.rng.choice(["t0", "t1", "t8", ""])
        return Step("measure_tenant", given={"tenant": tenant})

    def list_tenants(self) -> Step:
        return Step("list_tenants")

    def show_status(self) -> Step:
        return Step("show_status")


class SequencePlay:
    """One sequence on all routers: a `Router` unless only stored ones can play it, and one in each
    store.
    """

    def __init__(self, number: int, sides: Sequence[StoreSide], path: Path) -> None:
        self.rng = random.Random(number)
        setup, variant = choose_kind(number)
        self.number = number
        self.steps = 0
        self.at = round(START * 1e6)
        self.is_reopened = False
        name = f"pool-{number}"
        self.writer = SequenceWriter(name, self.rng, SETUPS[setup], variant)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BylotWarning)
            router, prepared = make_template(setup, variant, number % 3)
        self.stored = [StorePlayer(side, name, prepared, self.at) for side in sides]
        self.memory = None if variant.is_stored_only else MemoryPlayer(router, path)

    @property
    def players(self) -> list[Any]:
        return [*self.stored, *([] if self.memory is None else [self.memory])]

    def run(self) -> None:
        """Play the sequence; raises Disagreement."""
        for _ in range(BATCHES if self.number % 23 else LONG_BATCHES):
            self.at += 1_000_000 * self.rng.choice(PAUSES_S)
            self.play(self.writer.draw_batch())
            if self.rng.random() < 0.12:
                self.reopen()
            if self.writer.variant.is_stored_only:
                for player in self.stored:
                    player.sweep()
        self.play([self.writer.show_status()])
        self.compare_states()
        if self.number % AUDITED == 0:
            for player in self.stored:
                self.require(audit_router(player.side.store, player.name).fault, None, "audit")
        for player in self.stored:
            player.finish()

    def play(self, batch: list[Step]) -> None:
        """Let all routers answer commands, and compare."""
        self.steps += len(batch)
        first, *others = (player.play(batch, self.at) for player in self.players)
        for answers, player in zip(others, self.players[1:], strict=True):
            describe = describe_answer if player is self.memory else self.describe_stored_answer
            for step, ours, theirs in zip(batch, first, answers, strict=True):
                self.require(describe(step, ours), describe(step, theirs), step)
        self.writer.note(batch, first)

    def reopen(self) -> None:
        """Load all routers again, and compare their states with those before."""
        self.is_reopened = True
        if self.memory is not None:
            self.memory.reopen()
        for player in self.stored:
            player.reopen(is_lost=self.rng.random() < 0.6)
        self.compare_states()

    def compare_states(self) -> None:
        """Compare all that the routers know."""
        first, *others = self.players
        for player in others:
            if isinstance(player, StorePlayer):
                same = first.aggregate.fingerprint() == player.aggregate.fingerprint()
                self.require(same, True, "fingerprint")
            here = describe_engine(first.engine)
            self.require(here, describe_engine(player.engine), "state")
        for made in self.writer.made:
            shown = [show_open_decision(player, made.number) for player in self.players]
            for other in shown[1:]:
                self.require(shown[0], other, f"decision {made.number}")

    def describe_stored_answer(self, step: Step, answer: Any) -> object:
        """Return what must be equal of the answers of two stored routers."""
        if isinstance(answer, Exception):
            return type(answer), str(answer)
        if self.is_reopened and isinstance(answer, RouterView):
            status = structs.replace(answer.status, unrewarded=0, state=RouterState())
            return structs.replace(answer, status=status)
        return answer

    def require(self, ours: Any, theirs: Any, what: object) -> None:
        """Raise an error if two things differ."""
        if ours != theirs:
            raise Disagreement(
                f"sequence {self.number} {choose_kind(self.number)}, {what}:\n  {ours}\n  {theirs}"
            )


def choose_kind(number: int) -> tuple[str, Variant]:
    """Return the limits of a sequence, and what else its routers are created with."""
    names = list(SETUPS)
    return names[number % len(names)], VARIANTS[number // len(names) % len(VARIANTS)]


def describe_answer(step: Step, answer: Any) -> object:
    """Return what must be equal of the answers of a stored router and one in memory."""
    if isinstance(answer, DecisionNotFound):
        return DecisionNotFound  # one in memory may have forgotten a decision, and says so
    if isinstance(answer, Exception):
        return type(answer), DECISION_ID.sub("ID", str(answer))
    if step.verb in ("edit", "cancel", "set_tenant"):
        return "done"
    if isinstance(answer, RouterStatus | RouterView):
        status = answer.status if isinstance(answer, RouterView) else answer
        costs = {name: structs.replace(x, stated=0.0) for name, x in status.costs.items()}
        fields = structs.asdict(status) | {"costs": costs}
        return {name: x for name, x in fields.items() if name not in COUNTED_BY_THE_LOG}
    if isinstance(answer, TenantView):
        return answer.windows
    if isinstance(answer, RewardReceipt):
        return answer.receipt
    if isinstance(answer, bylot.Decision):
        return {name: x for name, x in structs.asdict(answer).items() if name not in OF_THE_LOG}
    return answer


def show_open_decision(player: Any, number: int) -> object:
    """Return what a router knows of a decision that is open; None if it is not."""
    engine = player.engine
    place = player.find_place(number)
    if engine.open.get(place) is None:
        return None
    opened = engine.open.find(place)
    made = opened.known
    ticket = [
        part.tolist() if isinstance(part, np.ndarray) else str(part) for part in opened.ticket
    ]
    costs = made.spend, made.expected, made.held
    known = ticket, made.panel, *costs, made.context, dict(made.keys), made.version
    return *known, opened.failed, opened.rewards, opened.is_cancelled, opened.due


def describe_engine(engine: RouterEngine) -> dict[str, Any]:
    """Return what an engine knows, but its open decisions."""
    data = structs.asdict(core_to_data(engine.core, with_rule=False))
    return data | {
        "since": engine.pool_since,
        "version": engine.version,
        "refused": engine.core.book.refused,
    }
