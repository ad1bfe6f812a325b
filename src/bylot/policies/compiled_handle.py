"""The boundary between a router and compiled code: rule, state, totals and costs in one handle.

Passing some thirty arrays takes longer than a decision; a `CompiledHandle` is passed as one
pointer. It holds the arrays of the NamedTuples that it was made from, not copies.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.experimental import structref

from bylot.numerics.iid_sets import add_expected_costs, log_iid_set_probability
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import RngKey
from bylot.numerics.sampling import add_panel_cost
from bylot.policies.base import (
    MIN_PROPENSITY,
    Ticket,
    compute_distribution_compiled,
    compute_inclusion,
    decide,
    learn,
)
from bylot.policies.iid_draws import select_member_probabilities


class Totals(NamedTuple):
    """Sums since the first decision; one column a named cost."""

    rounds: Ints
    spent: Floats
    expected: Floats
    rewards: Ints
    total: Floats  # of the rewards, as they were given


def make_totals(costs: int) -> Totals:
    """Totals of 0."""
    return Totals(
        rounds=np.zeros(1, np.int64),
        spent=np.zeros(costs),
        expected=np.zeros(costs),
        rewards=np.zeros(1, np.int64),
        total=np.zeros(1),
    )


@jit
def add_to_totals(ledger: Totals, costs: Floats) -> None:
    """Add a decision: its realised cost (line 0) and its expected cost (line 1)."""
    ledger.rounds[0] += 1
    for j in range(costs.shape[1]):
        ledger.spent[j] += costs[0, j]
        ledger.expected[j] += costs[1, j]


@structref.register
class CompiledHandleType(types.StructRef):  # type: ignore[misc]
    """The compiled side of `CompiledHandle`."""


class CompiledHandle(structref.StructRefProxy):  # type: ignore[misc]
    """CompiledHandle(rule, state, ledger, costs), with costs (n, K) in the order of their names."""


structref.define_proxy(CompiledHandle, CompiledHandleType, ["rule", "state", "ledger", "costs"])


class BookedDecision(NamedTuple):
    """A decision, its costs, and its probabilities."""

    ticket: Ticket
    costs: Floats  # (2, n): line 0 realised, line 1 expected before the draw
    inclusion: Floats  # (M,) probability of each draw's expert to be in the panel
    propensity: float  # of the panel; NaN if the policy does not know it


@jit
def decide_and_book(desk: Any, context: int, seed: int, t: int, available: Bools) -> BookedDecision:
    """Decide and charge the cost, whether or not a reward comes."""
    ticket = decide(desk.rule, desk.state, context, RngKey(seed, t), available)
    costs = np.zeros((2, desk.costs.shape[0]))
    inclusion = compute_inclusion(desk.rule, desk.state, ticket)
    add_panel_cost(costs[0], desk.costs, ticket.draws)
    add_expected_costs(costs[1], desk.costs, inclusion)
    add_to_totals(desk.ledger, costs)
    propensity, q = ticket.propensity, ticket.draw_probabilities
    if np.isnan(propensity) and q.size > 0:
        masses = select_member_probabilities(q, ticket.draws)
        propensity = max(np.exp(log_iid_set_probability(masses, q.size)), MIN_PROPENSITY)
    if propensity > 1.0:  # the exponential of a rounded logarithm may be
        propensity = 1.0
    return BookedDecision(ticket, costs, inclusion[ticket.draws], propensity)


@jit
def learn_reward(desk: Any, ticket: Ticket, value: float, low: float, high: float) -> None:
    """Add a reward to the totals, and let the policy learn from it on the scale [0, 1]."""
    learn(desk.rule, desk.state, ticket, (value - low) / (high - low))
    desk.ledger.rewards[0] += 1
    desk.ledger.total[0] += value


@jit
def average_distribution(desk: Any, weights: Floats, available: Bools) -> Floats:
    """sum_x w_x q_x / sum_x w_x over the first contexts, as many as there are weights."""
    mean, total = np.zeros(desk.costs.shape[1]), weights.sum()
    for x in range(weights.size):
        if weights[x] > 0.0:
            q = compute_distribution_compiled(desk.rule, desk.state, x, available)
            for i in range(mean.size):
                mean[i] += weights[x] / total * q[i]
    return mean
