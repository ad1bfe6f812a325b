"""Random: any M experts, all sets equally likely; the baseline of learning."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.distributions import FixedSizeSets
from bylot.limits.records import LimitRule
from bylot.limits.request import Proposal, Ticket, View
from bylot.numerics.conditional_poisson import restrict_logits
from bylot.numerics.dispatch import step
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import DRAW_STREAM, RngKey
from bylot.numerics.sampling import fill_random_experts
from bylot.numerics.scratch_arrays import make_draws, no_floats
from bylot.numerics.set_selection import count_available
from bylot.policies import base
from bylot.policies.base import Feedback, FeedbackKind
from bylot.problem import Problem


class RandomRule(NamedTuple):
    """The size of panels and of the pool, and the probabilities of these while all can be asked."""

    draws: int  # M
    size: int  # K
    inclusion: Floats  # (K,)
    propensity: float


class RandomState(NamedTuple):
    """How often it was asked."""

    visits: Ints  # (X,)


@jit
def compute_equal_inclusion(rule: RandomRule, available: Bools) -> Floats:
    """(K,) inclusion probabilities: min(1, M / n) for each of the n available experts."""
    if available.size == 0:
        return rule.inclusion
    n = count_available(available)
    p = np.zeros(rule.size)
    for i in range(rule.size):
        if available[i]:
            p[i] = min(1.0, rule.draws / n)
    return p


@jit
def compute_uniform_propensity(draws: int, n: int) -> float:
    """1 / C(n, M) for n available experts; 1 if they are no more than M."""
    propensity = 1.0
    for j in range(min(draws, n)):
        propensity *= (min(draws, n) - j) / (n - j)
    return max(propensity, base.MIN_PROPENSITY)


@step(base.propose, RandomRule)
def propose_random(rule: RandomRule, state: RandomState, view: View, rng: RngKey) -> Proposal:
    """Draw any set."""
    context = view.context
    available = view.available
    state.visits[context] += 1
    draws = make_draws(rng, rule.draws)
    fill_random_experts(draws, rule.size, available, rng, DRAW_STREAM)
    pi = compute_equal_inclusion(rule, available)
    p = rule.propensity
    if available.size > 0:
        p = compute_uniform_propensity(rule.draws, count_available(available))
    return Proposal(draws, no_floats(), pi, 1.0, 1.0, p, True)


@step(base.learn, RandomRule)
def learn_random(rule: RandomRule, state: RandomState, ticket: Ticket, feedback: Feedback) -> None:
    """Learn nothing."""


@step(base.compute_distribution, RandomRule)
def compute_random_distribution(rule: RandomRule, state: RandomState, view: View) -> Floats:
    """Return equal shares."""
    return base.compute_shares(compute_equal_inclusion(rule, view.available))


@step(base.compute_inclusion, RandomRule)
def compute_random_inclusion(
    rule: RandomRule, state: RandomState, view: View, ticket: Ticket
) -> Floats:
    """Return equal probabilities, or the panel itself if the guard replaced the draw."""
    if ticket.replaced:
        return base.mark_members(ticket.draws, rule.size)
    return compute_equal_inclusion(rule, view.available)


@dataclass(frozen=True)
class Random(base.Policy):
    """M experts without replacement, uniformly; it neither learns nor uses limits."""

    name = "random"
    label = "Random"
    summary = "draws panels uniformly; it does not learn and ignores limits"
    uses_limits = False
    draws_sets = True

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> RandomRule:
        return RandomRule(
            draws=problem.draws,
            size=problem.size,
            inclusion=np.full(problem.size, min(1.0, problem.draws / problem.size)),
            propensity=compute_uniform_propensity(problem.draws, problem.size),
        )

    def start(self, rule: RandomRule, contexts: int = 1) -> RandomState:
        return RandomState(np.zeros(contexts, np.int64))

    def distribution(self, rule: RandomRule, state: RandomState, view: View) -> FixedSizeSets:
        """Return all sets of available experts, equally likely."""
        theta = restrict_logits(np.zeros(rule.size), view.available)
        return FixedSizeSets(theta, min(rule.draws, int(np.isfinite(theta).sum())))
