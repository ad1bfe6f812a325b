"""Playing any router in an environment, round by round, as a caller would.

The compiled loop of `simulation` plays the same policies much faster; this one plays what is really
asked in the end: a router in memory, one in a store, one behind a server.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from bylot.decision import Decision
from bylot.environments import Environment
from bylot.kernels.compile import Floats
from bylot.kernels.summax import sum_max
from bylot.policies import Policy
from bylot.policies.terms import at_least_one
from bylot.problem import Problem
from bylot.simulation import CHUNK, Record, Trace, blank, fitting, met


class Playable(Protocol):
    """Something to ask, and what it was declared with."""

    @property
    def problem(self) -> Problem: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def seed(self) -> int: ...
    @property
    def horizon(self) -> int | None: ...
    @property
    def rewards(self) -> tuple[float, float]: ...

    def decide(self, context: str | None = None) -> Decision:
        """Draw a panel."""
        ...

    def reward(self, id: str, value: float) -> Any:  # noqa: A002
        """Tell how well it went."""
        ...


def play(router: Playable, environment: Environment, rounds: int, *, start: int = 0) -> Trace:
    """Ask a router for the panels of some rounds of an environment, and tell it each reward.

    A new router gives the trace that `simulate` gives for what it was declared with, bit for bit,
    if the environment's contexts come up in the order of their numbers: a router numbers them as
    they come. The law is not kept, as a router tells only what it drew from it.

    start: the first round, for a play that goes on where another one ended.
    """
    problem = router.problem
    fitting(environment, problem)
    at_least_one("rounds", rounds)
    record = blank(problem, rounds, keep_law=False)
    place = {name: i for i, name in enumerate(problem.experts)}
    several = environment.contexts > 1
    stop = start + rounds
    for n, values, context in enumerated(environment, start, stop, router.seed):
        decision = router.decide(str(context) if several else None)
        record.draws[n] = [place[name] for name in decision.draws]
        reward = float(sum_max(values, record.draws[n]))
        router.reward(decision.id, reward)
        record.rewards[n], record.contexts[n] = reward, context
        note(record, n, decision, [limit.name for limit in problem.limits])
    return Trace(problem, router.policy, router.seed, router.horizon, router.rewards, record)


def enumerated(
    environment: Environment, start: int, stop: int, seed: int
) -> Iterator[tuple[int, Floats, int]]:
    """Rounds of an environment, counted from 0: the values and the context of each."""
    for first in range(start, stop, CHUNK):
        values, contexts = met(environment, first, min(first + CHUNK, stop), seed)
        for n, context in enumerate(contexts.tolist()):
            yield first - start + n, values[n], context


def note(record: Record, n: int, decision: Decision, limits: list[str]) -> None:
    """Write down what a decision tells of itself."""
    spend: Mapping[str, float] = decision.spend
    record.odds[n] = decision.odds or np.nan
    record.spend[n] = [spend[name] for name in limits]
    record.feasible[n] = decision.feasible
    record.chance[n] = decision.chance or 0.0
    record.replaced[n] = decision.replaced
