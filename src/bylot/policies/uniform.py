"""Random: any M experts, each as likely as the other; what learning has to be better than."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints, compiled
from bylot.kernels.draw import DRAWS
from bylot.kernels.shuffle import some
from bylot.policies import lagrangian
from bylot.policies.contract import RAREST, Ticket, chances, decide, law, learn, step
from bylot.problem import Problem


class RandomRule(NamedTuple):
    """All there is to know."""

    draws: int  # M
    size: int  # K


class RandomState(NamedTuple):
    """What it remembers: nothing, but how often it was asked."""

    visits: Ints  # (X,)


@compiled
def equal(rule: RandomRule, up: Bools) -> Floats:
    """(K,) the chance of each expert to be in the panel, min(1, M / n) for each of the n up."""
    p, n = np.ones(rule.size), rule.size
    if up.size > 0:
        n = 0
        for i in range(rule.size):
            p[i] = 1.0 if up[i] else 0.0
            n += 1 if up[i] else 0
    for i in range(rule.size):
        p[i] *= min(1.0, rule.draws / n)
    return p


@compiled
def of_each_set(rule: RandomRule, up: Bools) -> float:
    """1 / C(n, M), the chance of each set of M among the n up; 1 if those are no more than M."""
    n, told = rule.size if up.size == 0 else up.sum(), 1.0
    for j in range(min(rule.draws, n)):
        told *= (min(rule.draws, n) - j) / (n - j)
    return max(told, RAREST)


@step(decide, RandomRule)
def _(rule: RandomRule, state: RandomState, context: int, chance: Chance, up: Bools) -> Ticket:
    state.visits[context] += 1
    draws = some(rule.size, rule.draws, up, chance, DRAWS)
    odds = equal(rule, up)
    if odds.size == draws.size:  # all that are up: to be read draw by draw, as the size says
        odds[:] = 1.0
    told = of_each_set(rule, up)
    return Ticket(chance.t, context, draws, odds, up, 1.0, True, told, 1.0, False)


@step(learn, RandomRule)
def _(rule: RandomRule, state: RandomState, ticket: Ticket, reward: float) -> None:
    pass


@step(law, RandomRule)
def _(rule: RandomRule, state: RandomState, context: int, up: Bools) -> Floats:
    p: Floats = equal(rule, up)
    total = p.sum()
    for i in range(p.size):
        p[i] /= total
    return p


@step(chances, RandomRule)
def _(rule: RandomRule, state: RandomState, ticket: Ticket) -> Floats:
    return equal(rule, ticket.up)


@dataclass(frozen=True)
class Random:
    """M experts without replacement, uniformly; it neither learns nor looks at limits."""

    aware: ClassVar[bool] = False
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = True
    prices = staticmethod(lagrangian.unpriced)

    def bind(self, problem: Problem, horizon: int | None = None) -> RandomRule:
        """The rule for this problem; the horizon does not matter."""
        return RandomRule(problem.draws, problem.size)

    def start(self, rule: RandomRule, contexts: int = 1) -> RandomState:
        """Nobody was asked yet."""
        return RandomState(np.zeros(contexts, np.int64))

    def sound(self, rule: RandomRule, state: RandomState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        return bool(len(state.visits) > 0 and (state.visits >= 0).all())
