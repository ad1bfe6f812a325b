"""Random: any M experts, each as likely as the other; what learning has to be better than."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import DRAW_STREAM, RngKey
from bylot.numerics.sampling import choose_random_experts
from bylot.policies import multipliers
from bylot.policies.base import (
    MIN_PROPENSITY,
    Ticket,
    compute_distribution,
    compute_inclusion,
    decide,
    learn,
    make_set_ticket,
    step,
)
from bylot.problem import Problem


class RandomRule(NamedTuple):
    """All there is to know."""

    draws: int  # M
    size: int  # K


class RandomState(NamedTuple):
    """What it remembers: nothing, but how often it was asked."""

    visits: Ints  # (X,)


@jit
def compute_equal_inclusion(rule: RandomRule, available: Bools) -> Floats:
    """(K,) the chance of each expert to be in the panel, min(1, M / n) for each of the n up."""
    p, n = np.ones(rule.size), rule.size
    if available.size > 0:
        n = 0
        for i in range(rule.size):
            p[i] = 1.0 if available[i] else 0.0
            n += 1 if available[i] else 0
    for i in range(rule.size):
        p[i] *= min(1.0, rule.draws / n)
    return p


@jit
def compute_uniform_propensity(rule: RandomRule, available: Bools) -> float:
    """1 / C(n, M), the chance of each set of M among the n up; 1 if those are no more than M."""
    n, propensity = rule.size if available.size == 0 else available.sum(), 1.0
    for j in range(min(rule.draws, n)):
        propensity *= (min(rule.draws, n) - j) / (n - j)
    return max(propensity, MIN_PROPENSITY)


@step(decide, RandomRule)
def _(rule: RandomRule, state: RandomState, context: int, rng: RngKey, available: Bools) -> Ticket:
    state.visits[context] += 1
    draws = choose_random_experts(rule.size, rule.draws, available, rng, DRAW_STREAM)
    inclusion = compute_equal_inclusion(rule, available)
    propensity = compute_uniform_propensity(rule, available)
    return make_set_ticket(
        rng.t, context, draws, inclusion, available, True, propensity, 1.0, False
    )


@step(learn, RandomRule)
def _(rule: RandomRule, state: RandomState, ticket: Ticket, reward: float) -> None:
    pass


@step(compute_distribution, RandomRule)
def _(rule: RandomRule, state: RandomState, context: int, available: Bools) -> Floats:
    p: Floats = compute_equal_inclusion(rule, available)
    total = p.sum()
    for i in range(p.size):
        p[i] /= total
    return p


@step(compute_inclusion, RandomRule)
def _(rule: RandomRule, state: RandomState, ticket: Ticket) -> Floats:
    return compute_equal_inclusion(rule, ticket.available)


@dataclass(frozen=True)
class Random:
    """M experts without replacement, uniformly; it neither learns nor looks at limits."""

    aware: ClassVar[bool] = False
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = True
    prices = staticmethod(multipliers.make_unknown_prices)

    def bind(self, problem: Problem, horizon: int | None = None) -> RandomRule:
        """The rule for this problem; the horizon does not matter."""
        return RandomRule(problem.draws, problem.size)

    def start(self, rule: RandomRule, contexts: int = 1) -> RandomState:
        """Nobody was asked yet."""
        return RandomState(np.zeros(contexts, np.int64))

    def sound(self, rule: RandomRule, state: RandomState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        return bool(len(state.visits) > 0 and (state.visits >= 0).all())
