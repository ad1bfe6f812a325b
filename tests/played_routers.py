"""Routers with a played history, as a source of the dashboard."""

import collections
from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec import structs

import bylot
from bylot import policies
from bylot.api import DecisionRecord, RewardRecord, RouterView
from bylot.eventlog.events import format_timestamp
from bylot.gateway.gateway import Gateway
from bylot.limits.request import View
from bylot.policies.base import compute_distribution
from bylot.problem import Problem
from bylot.router.config import RouterConfig, problem_to_data
from bylot.router.status import ContextDistribution, Counters, RouterStatus
from bylot.router.timeline import Timeline
from bylot.server.dashboard.source import ConfigChange, ListedRouters, RecentLog, ServerSource

START, SECOND = 1_794_000_000_000_000, 1_000_000


class PlayedRouter:
    """One router, an environment that rewards it, and its records."""

    def __init__(
        self, name: str, problem: Problem, contexts: Iterable[str | None] = (None,), seed: int = 0
    ) -> None:
        self.name, self.problem, self.contexts = name, problem, list(contexts)
        self.router = bylot.Router(problem, seed=seed, clock=lambda: self.at / SECOND)
        self.rng = np.random.default_rng(seed)
        self.skill = self.rng.random((len(self.contexts), problem.size))
        self.at = START
        self.timeline = Timeline({name: [] for name in problem.costs})
        self.counts = collections.Counter[str]()
        self.records: list[DecisionRecord] = []
        self.config = RouterConfig(
            problem=problem_to_data(problem),
            policy=policies.policy_to_data(policies.find_policy("distinct")),
            wait=600.0,
        )
        self.edits = [ConfigChange(at=format_timestamp(START), by="root", config=self.config)]

    def play(self, rounds: int) -> "PlayedRouter":
        """Make requests, most of them with a reward."""
        for _ in range(rounds):
            self.step()
        return self

    def step(self) -> None:
        """Make one request."""
        self.at += int(self.rng.exponential(5 * SECOND))
        context_index = int(self.rng.integers(len(self.contexts)))
        drawn = self.router.decide(self.contexts[context_index])
        self.timeline.add_decision(drawn.t, self.at, drawn.spend)
        members = [self.problem.experts.index(name) for name in drawn.subset]
        value = float(max(self.skill[context_index, members]) * self.rng.uniform(0.7, 1.0))
        state, rewards = "waiting", list[RewardRecord]()
        if self.rng.random() < 0.9:
            self.router.reward(drawn.id, value)
            self.timeline.add_reward(drawn.t, value)
            at = format_timestamp(self.at + SECOND)
            state = "rewarded"
            rewards = [
                RewardRecord(at=at, value=value, receipt="learned", spend=None, key=None, by="web")
            ]
        elif self.rng.random() < 0.3:
            self.counts["missing"] += 1
            state = "closed"
        self.counts["infeasible"] += not drawn.feasible
        self.records = [self.make_record(drawn, state, rewards), *self.records][:25]

    def make_record(
        self, drawn: bylot.Decision, state: Any, rewards: list[RewardRecord]
    ) -> DecisionRecord:
        """The record of a decision, as the server keeps it."""
        decision = bylot.Decision(
            id=f"{self.name}.1.{drawn.t}.9f3ab01c",
            router=self.name,
            version=1,
            t=drawn.t,
            at=format_timestamp(self.at),
            context=drawn.context,
            draws=drawn.draws,
            subset=drawn.subset,
            draw_probabilities=drawn.draw_probabilities,
            inclusion=None if drawn.inclusion is None else dict(drawn.inclusion),
            propensity=drawn.propensity,
            spend=dict(drawn.spend),
            expected=dict(drawn.expected),
            feasible=drawn.feasible,
            replaced=drawn.replaced,
            deferred=False,
        )
        return DecisionRecord(decision=decision, state=state, rewards=tuple(rewards))

    def view(self) -> RouterView:
        """The view of the router."""
        return RouterView(
            name=self.name,
            number=1,
            created=format_timestamp(START),
            seq=2 * self.router.t,
            config=self.config,
            status=self.status(),
        )

    def status(self) -> RouterStatus:
        """The status as a server sends it."""
        one, core = self.router.status(), self.router.core
        all_available = np.empty(0, np.bool_)
        return structs.replace(
            one,
            distributions=tuple(
                ContextDistribution(
                    context,
                    int(core.state.visits[i]),
                    compute_distribution(
                        core.rule,
                        core.state,
                        View(core.book.pointer, i, all_available, False, False),
                    ).tolist(),
                )
                for context, i in list(core.contexts.items())[:12]
            ),
            counters=Counters(**dict[str, Any](self.counts)),
            timeline=self.timeline.points(one.decisions),
        )


class PlayedSource(ServerSource):
    """A source of played routers."""

    def __init__(self, *routers: PlayedRouter, others: ListedRouters | None = None) -> None:
        self.routers_by_name = {one.name: one for one in routers}
        self.others = others or {}
        self.gateway = Gateway(None, {}, {})  # type: ignore[arg-type]

    async def list_routers(self) -> ListedRouters:
        known = {one.name: one.view() for one in self.routers_by_name.values()}
        return dict(sorted({**known, **self.others}.items()))

    async def show_router(self, name: str) -> RouterView | None:
        return self.routers_by_name[name].view() if name in self.routers_by_name else None

    async def latest_decisions(self, name: str, limit: int) -> list[DecisionRecord]:
        return self.routers_by_name[name].records[:limit]

    async def config_changes(self, name: str) -> list[ConfigChange]:
        return self.routers_by_name[name].edits

    async def recent_log(self, view: RouterView, changes: object) -> RecentLog:
        return RecentLog()
