"""Routers that were really played, as the dashboard's source: what the service would tell of them."""

from collections.abc import Iterable
from typing import Any

import numpy as np

import bylot
from bylot import codec, policies
from bylot.durable.commands import Decision, Recalled, RouterView, Told
from bylot.durable.terms import Terms
from bylot.policies.contract import law
from bylot.problem import Problem
from bylot.service.pages.course import moment
from bylot.service.pages.source import Amended, Listed

START, SECOND = 1_794_000_000_000_000, 1_000_000
SPANS = 60


class Played:
    """One router, a world that rewards it, and its books."""

    def __init__(
        self, name: str, problem: Problem, contexts: Iterable[str | None] = (None,), seed: int = 0
    ) -> None:
        self.name, self.problem, self.contexts = name, problem, list(contexts)
        self.router = bylot.Router(problem, seed=seed)
        self.rng = np.random.default_rng(seed)
        self.skill = self.rng.random((len(self.contexts), problem.size))
        self.at = START
        self.bins: list[dict[str, Any]] = []
        self.late = self.missing = self.infeasible = 0
        self.past: list[Recalled] = []
        self.terms = Terms(
            problem=codec.write_problem(problem),
            policy=policies.write(policies.named("distinct")),
            wait=600.0,
        )
        self.edits = [Amended(at=moment(START), by="root", terms=self.terms)]

    def play(self, rounds: int) -> "Played":
        """Requests, most of them rewarded."""
        for _ in range(rounds):
            self.step(max(1, rounds // SPANS))
        return self

    def step(self, span: int) -> None:
        """One request."""
        self.at += int(self.rng.exponential(5 * SECOND))
        if not self.bins or self.bins[-1]["decisions"] >= span:
            self.bins.append(
                {
                    "start": self.at,
                    "decisions": 0,
                    "rewards": 0,
                    "reward": 0.0,
                    "settled": dict.fromkeys(self.problem.costs, 0.0),
                }
            )
        bin_, which = self.bins[-1], int(self.rng.integers(len(self.contexts)))
        made = self.router.decide(self.contexts[which])
        bin_["decisions"] += 1
        for cost, value in made.spend.items():
            bin_["settled"][cost] += value
        members = [self.problem.experts.index(name) for name in made.subset]
        value = float(max(self.skill[which, members]) * self.rng.uniform(0.7, 1.0))
        state, rewards = "waiting", ()
        if self.rng.random() < 0.9:
            self.router.reward(made.id, value)
            bin_["rewards"] += 1
            bin_["reward"] += value
            at = moment(self.at + SECOND)
            state = "rewarded"
            rewards = (
                Told(at=at, value=value, receipt="learned", spend=None, key=None, by="web"),
            )
        elif self.rng.random() < 0.3:
            self.missing += 1
            state = "closed"
        self.infeasible += not made.feasible
        self.past = [self.recalled(made, state, rewards), *self.past][:25]

    def recalled(self, made: bylot.Decision, state: Any, rewards: Any) -> Recalled:
        """A decision as the service keeps it."""
        decision = Decision(
            id=f"{self.name}.1.{made.t}",
            router=self.name,
            version=1,
            t=made.t,
            at=moment(self.at),
            context=made.context,
            draws=made.draws,
            subset=made.subset,
            odds=made.odds,
            inclusion=dict(zip(made.draws, made.odds, strict=True)),
            chance=made.chance,
            spend=dict(made.spend),
            expected=dict(made.expected),
            feasible=made.feasible,
            replaced=made.replaced,
            deferred=False,
        )
        return Recalled(decision=decision, state=state, rewards=rewards)

    def view(self) -> RouterView:
        """The router as it stands."""
        return RouterView(
            name=self.name,
            number=1,
            created=moment(START),
            seq=2 * self.router.t,
            terms=self.terms,
            status=self.status(),
        )

    def status(self) -> dict[str, Any]:
        """Plain data of its status."""
        one = self.router.status()
        rule, state, up = self.router.rule, self.router.state, np.empty(0, np.bool_)
        seats = min(self.problem.draws, self.problem.size)
        return {
            "rounds": one.rounds,
            "rewards": one.rewards,
            "waiting": one.waiting,
            "contexts": one.contexts,
            "mean_reward": one.mean_reward,
            "limits": [
                {
                    "cost": limit.limit.name,
                    "side": limit.limit.side,
                    "bound": limit.limit.bound,
                    "mean": limit.mean,
                    "slack": limit.slack,
                    "price": limit.price,
                    "verdict": limit.verdict,
                    "current": vars(limit.current),
                }
                for limit in one.limits
            ],
            "costs": {"stated": dict(one.mean_cost), "expected": dict(one.expected_cost)},
            "q": dict(one.q),
            "laws": [
                {
                    "context": context,
                    "decisions": int(state.visits[i]),
                    "q": (seats * law(rule, state, i, up)).tolist(),
                }
                for context, i in self.router.contexts.items()
            ],
            "multinomial": one.multinomial,
            "whole": one.whole,
            "period": vars(one.period),
            "counters": {
                "late": self.late,
                "missing": self.missing,
                "infeasible": self.infeasible,
                "deferred": 0,
                "cancelled": 0,
            },
            "course": self.bins,
        }


class Standins:
    """A source of such routers."""

    def __init__(self, *routers: Played, others: Iterable[Listed] = ()) -> None:
        self.played = {one.name: one for one in routers}
        self.others = list(others)

    async def routers(self) -> list[Listed]:
        known = [Listed(name=one.name, view=one.view()) for one in self.played.values()]
        return sorted([*known, *self.others], key=lambda one: one.name)

    async def router(self, name: str) -> RouterView | None:
        return self.played[name].view() if name in self.played else None

    async def latest(self, name: str, limit: int) -> list[Recalled]:
        return self.played[name].past[:limit]

    async def edits(self, name: str) -> list[Amended]:
        return self.played[name].edits
