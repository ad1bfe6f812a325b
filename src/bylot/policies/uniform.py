"""Random: any M experts, each as likely as the other; what learning has to be better than."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints
from bylot.kernels.draw import DRAWS
from bylot.kernels.shuffle import some
from bylot.policies import lagrangian, tally
from bylot.policies.contract import Ticket, chances, decide, law, learn, step
from bylot.policies.tally import count, shares, untold
from bylot.problem import Problem


class RandomRule(NamedTuple):
    """All there is to know."""

    draws: int  # M
    size: int  # K


class RandomState(NamedTuple):
    """What it remembers, only to report it."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member


@step(decide, RandomRule)
def _(rule: RandomRule, state: RandomState, context: int, chance: Chance, up: Bools) -> Ticket:
    state.visits[context] += 1
    draws = some(rule.size, rule.draws, up, chance, DRAWS)
    count(state.drawn[context], draws)
    return untold(chance.t, context, draws, up)


@step(learn, RandomRule)
def _(rule: RandomRule, state: RandomState, ticket: Ticket, reward: float) -> None:
    pass


@step(law, RandomRule)
def _(rule: RandomRule, state: RandomState, context: int, up: Bools) -> Floats:
    return shares(state.drawn[context])


@step(chances, RandomRule)
def _(rule: RandomRule, state: RandomState, ticket: Ticket) -> Floats:
    p, n = np.ones(rule.size), rule.size
    if ticket.up.size > 0:
        n = 0
        for i in range(rule.size):
            p[i] = 1.0 if ticket.up[i] else 0.0
            n += 1 if ticket.up[i] else 0
    for i in range(rule.size):
        p[i] *= min(1.0, rule.draws / n)
    return p


@dataclass(frozen=True)
class Random:
    """M experts without replacement, uniformly; it neither learns nor looks at limits."""

    aware: ClassVar[bool] = False
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    prices = staticmethod(lagrangian.unpriced)

    def bind(self, problem: Problem, horizon: int | None = None) -> RandomRule:
        """The rule for this problem; the horizon does not matter."""
        return RandomRule(problem.draws, problem.size)

    def start(self, rule: RandomRule, contexts: int = 1) -> RandomState:
        """Nobody was drawn yet."""
        drawn = np.zeros((contexts, rule.size), np.int64)
        return RandomState(np.zeros(contexts, np.int64), drawn)

    def sound(self, rule: RandomRule, state: RandomState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        return tally.counted(state.visits, state.drawn)
