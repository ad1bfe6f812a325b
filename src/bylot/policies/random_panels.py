"""Random: any M experts, all sets equally likely; the baseline of learning."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.distributions import FixedSizeSets
from bylot.numerics.conditional_poisson import restrict_logits
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import DRAW_STREAM, RngKey, RngStream
from bylot.numerics.sampling import choose_random_experts
from bylot.policies.base import (
    MIN_PROPENSITY,
    Policy,
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
    """The size of panels and of the pool."""

    draws: int  # M
    size: int  # K


class RandomState(NamedTuple):
    """How often it was asked."""

    visits: Ints  # (X,)


@jit
def compute_equal_inclusion(rule: RandomRule, available: Bools) -> Floats:
    """(K,) inclusion probabilities: min(1, M / n) for each of the n available experts."""
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
    """1 / C(n, M) for n available experts; 1 if they are no more than M."""
    n, propensity = rule.size if available.size == 0 else available.sum(), 1.0
    for j in range(min(rule.draws, n)):
        propensity *= (min(rule.draws, n) - j) / (n - j)
    return max(propensity, MIN_PROPENSITY)


@step(decide, RandomRule)
def decide_random(
    rule: RandomRule, state: RandomState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`: any set."""
    state.visits[context] += 1
    draws = choose_random_experts(rule.size, rule.draws, available, rng, DRAW_STREAM)
    pi = compute_equal_inclusion(rule, available)
    p = compute_uniform_propensity(rule, available)
    return make_set_ticket(rng.t, context, draws, pi, available, True, p, 1.0, False)


@step(learn, RandomRule)
def learn_random(rule: RandomRule, state: RandomState, ticket: Ticket, reward: float) -> None:
    """`learn`: nothing."""


@step(compute_distribution, RandomRule)
def compute_random_distribution(
    rule: RandomRule, state: RandomState, context: int, available: Bools
) -> Floats:
    """`compute_distribution`: equal shares."""
    p: Floats = compute_equal_inclusion(rule, available)
    total = p.sum()
    for i in range(p.size):
        p[i] /= total
    return p


@step(compute_inclusion, RandomRule)
def compute_random_inclusion(rule: RandomRule, state: RandomState, ticket: Ticket) -> Floats:
    """`compute_inclusion`: equal probabilities."""
    return compute_equal_inclusion(rule, ticket.available)


@dataclass(frozen=True)
class Random(Policy):
    """M experts without replacement, uniformly; it neither learns nor uses limits."""

    name: ClassVar[str] = "random"
    label: ClassVar[str] = "Random"
    summary: ClassVar[str] = "draws panels uniformly; it does not learn and ignores limits"
    streams: ClassVar[tuple[RngStream, ...]] = (RngStream.DRAWS,)
    uses_limits: ClassVar[bool] = False
    draws_sets: ClassVar[bool] = True

    def bind(self, problem: Problem, horizon: int | None = None) -> RandomRule:
        """Make the rule; the horizon does not matter."""
        return RandomRule(problem.draws, problem.size)

    def start(self, rule: RandomRule, contexts: int = 1) -> RandomState:
        """No visits."""
        return RandomState(np.zeros(contexts, np.int64))

    def is_valid_state(self, rule: RandomRule, state: RandomState) -> bool:
        """Validate a state loaded from disk."""
        return bool(len(state.visits) > 0 and (state.visits >= 0).all())

    def distribution(
        self, rule: RandomRule, state: RandomState, context: int, available: Bools
    ) -> FixedSizeSets:
        """All sets of available experts, equally likely."""
        theta = restrict_logits(np.zeros(rule.size), available)
        return FixedSizeSets(theta, min(rule.draws, int(np.isfinite(theta).sum())))
