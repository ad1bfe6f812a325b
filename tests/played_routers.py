"""Routers that were really played, as a source of the dashboard."""

import collections
from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec import structs

import bylot
from bylot import policies
from bylot.api import DecisionRecord, RewardRecord, RouterView
from bylot.eventlog.events import format_timestamp
from bylot.eventlog.timeline import Timeline
from bylot.policies.base import compute_distribution
from bylot.problem import Problem
from bylot.router import persistence
from bylot.router.config import RouterConfig
from bylot.router.status import ContextDistribution, Counters, RouterStatus
from bylot.server.dashboard.source import ConfigChange, ListedRouters, ServerSource

START, SECOND = 1_794_000_000_000_000, 1_000_000


class PlayedRouter:
    """One router, a world that rewards it, and its books."""

    def __init__(
        self, name: str, problem: Problem, contexts: Iterable[str | None] = (None,), seed: int = 0
    ) -> None:
        self.name, self.problem, self.contexts = name, problem, list(contexts)
        self.router = bylot.Router(problem, seed=seed)
        self.rng = np.random.default_rng(seed)
        self.skill = self.rng.random((len(self.contexts), problem.size))
        self.at = START
        self.course = Timeline({name: [] for name in problem.costs})
        self.counts = collections.Counter[str]()
        self.past: list[DecisionRecord] = []
        self.terms = RouterConfig(
            problem=persistence.problem_to_data(problem),
            policy=policies.policy_to_data(policies.find_policy("distinct")),
            wait=600.0,
        )
        self.edits = [ConfigChange(at=format_timestamp(START), by="root", config=self.terms)]

    def play(self, rounds: int) -> "PlayedRouter":
        """Requests, most of them rewarded."""
        for _ in range(rounds):
            self.step()
        return self

    def step(self) -> None:
        """One request."""
        self.at += int(self.rng.exponential(5 * SECOND))
        which = int(self.rng.integers(len(self.contexts)))
        made = self.router.decide(self.contexts[which])
        self.course.add_decision(made.t, self.at, made.spend)
        members = [self.problem.experts.index(name) for name in made.subset]
        value = float(max(self.skill[which, members]) * self.rng.uniform(0.7, 1.0))
        state, rewards = "waiting", list[RewardRecord]()
        if self.rng.random() < 0.9:
            self.router.reward(made.id, value)
            self.course.add_reward(made.t, value)
            at = format_timestamp(self.at + SECOND)
            state = "rewarded"
            rewards = [
                RewardRecord(at=at, value=value, receipt="learned", spend=None, key=None, by="web")
            ]
        elif self.rng.random() < 0.3:
            self.counts["missing"] += 1
            state = "closed"
        self.counts["infeasible"] += not made.feasible
        self.past = [self.recalled(made, state, rewards), *self.past][:25]

    def recalled(
        self, made: bylot.Decision, state: Any, rewards: list[RewardRecord]
    ) -> DecisionRecord:
        """A decision as the service keeps it."""
        decision = bylot.Decision(
            id=f"{self.name}.1.{made.t}",
            router=self.name,
            version=1,
            t=made.t,
            at=format_timestamp(self.at),
            context=made.context,
            draws=made.draws,
            subset=made.subset,
            draw_probabilities=made.draw_probabilities,
            inclusion=None if made.inclusion is None else dict(made.inclusion),
            propensity=made.propensity,
            spend=dict(made.spend),
            expected=dict(made.expected),
            feasible=made.feasible,
            replaced=made.replaced,
            deferred=False,
        )
        return DecisionRecord(decision=decision, state=state, rewards=tuple(rewards))

    def view(self) -> RouterView:
        """The router as it stands."""
        return RouterView(
            name=self.name,
            number=1,
            created=format_timestamp(START),
            seq=2 * self.router.t,
            config=self.terms,
            status=self.status(),
        )

    def status(self) -> RouterStatus:
        """Its status as a server sends it."""
        one, state = self.router.status(), self.router.core.state
        rule, everybody = self.router.core.rule, np.empty(0, np.bool_)
        return structs.replace(
            one,
            distributions=tuple(
                ContextDistribution(
                    context,
                    int(state.visits[i]),
                    compute_distribution(rule, state, i, everybody).tolist(),
                )
                for context, i in list(self.router.core.contexts.items())[:12]
            ),
            counters=Counters(**self.counts),
            timeline=self.course.points(one.decisions),
        )


class PlayedSource(ServerSource):
    """A source of such routers."""

    def __init__(self, *routers: PlayedRouter, others: ListedRouters | None = None) -> None:
        self.played = {one.name: one for one in routers}
        self.others = others or {}

    async def list_routers(self) -> ListedRouters:
        known = {one.name: one.view() for one in self.played.values()}
        return dict(sorted({**known, **self.others}.items()))

    async def show_router(self, name: str) -> RouterView | None:
        return self.played[name].view() if name in self.played else None

    async def latest_decisions(self, name: str, limit: int) -> list[DecisionRecord]:
        return self.played[name].past[:limit]

    async def config_changes(self, name: str) -> list[ConfigChange]:
        return self.played[name].edits
