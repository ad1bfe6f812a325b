"""Routers that were really played, as a source of the dashboard."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

import bylot
from bylot import codec, policies
from bylot.durable.commands import Decision, Recalled, RouterView, Told
from bylot.durable.course import blank
from bylot.durable.history import moment
from bylot.durable.terms import Terms
from bylot.policies.contract import law
from bylot.problem import Problem
from bylot.service.pages.source import Amended, Listed
from bylot.status import Standing

COUNTS = ("noted", "late", "missing", "defaulted", "cancelled", "replaced", "infeasible")
START, SECOND = 1_794_000_000_000_000, 1_000_000


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
        self.course = blank(problem.costs)
        self.counts = Counter[str]()
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
            self.step()
        return self

    def step(self) -> None:
        """One request."""
        self.at += int(self.rng.exponential(5 * SECOND))
        which = int(self.rng.integers(len(self.contexts)))
        made = self.router.decide(self.contexts[which])
        self.course.decided(made.t, self.at, made.spend)
        members = [self.problem.experts.index(name) for name in made.subset]
        value = float(max(self.skill[which, members]) * self.rng.uniform(0.7, 1.0))
        state, rewards = "waiting", list[Told]()
        if self.rng.random() < 0.9:
            self.router.reward(made.id, value)
            self.course.rewarded(made.t, value)
            at = moment(self.at + SECOND)
            state = "rewarded"
            rewards = [Told(at=at, value=value, receipt="learned", spend=None, key=None, by="web")]
        elif self.rng.random() < 0.3:
            self.counts["missing"] += 1
            state = "closed"
        self.counts["infeasible"] += not made.feasible
        self.past = [self.recalled(made, state, rewards), *self.past][:25]

    def recalled(self, made: bylot.Decision, state: Any, rewards: list[Told]) -> Recalled:
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
        return Recalled(decision=decision, state=state, rewards=tuple(rewards))

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
        one, state = self.router.status(), self.router.state
        q = np.array(list(one.q.values()))
        q /= q.sum()
        return {
            "decisions": one.rounds,
            "rewards": one.rewards,
            "waiting": one.waiting,
            "deferred": 0,
            "contexts": one.contexts,
            "max_contexts": one.max_contexts,
            "mean_reward": one.mean_reward,
            "kept": one.kept,
            "limits": [limit_of(limit) for limit in one.limits],
            "costs": {
                name: {
                    "stated": mean * one.rounds,
                    "expected": one.expected_cost[name] * one.rounds,
                    "settled": mean * one.rounds,
                    "decisions": one.rounds,
                }
                for name, mean in one.mean_cost.items()
            },
            "q": dict(one.q),
            "effective_experts": float(np.exp(-(q * np.log(q)).sum())),
            "multinomial": one.multinomial,
            "whole": one.whole,
            "period": vars(one.period),
            "laws": [
                {
                    "context": context,
                    "visits": int(state.visits[i]),
                    "law": law(self.router.rule, state, i, np.empty(0, np.bool_)).tolist(),
                }
                for context, i in list(self.router.contexts.items())[:12]
            ],
            "counts": {name: self.counts[name] for name in COUNTS},
            "course": self.course.points(one.rounds),
        }


def limit_of(one: Standing) -> dict[str, Any]:
    """One limit."""
    return {
        "cost": one.limit.name,
        "side": one.limit.side,
        "bound": one.limit.bound,
        "mean": one.mean,
        "slack": one.slack,
        "price": one.price,
        "kept": one.kept,
        "verdict": one.verdict,
        "current": one.current and vars(one.current),
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
