"""Where a router's calls cross into compiled code: rule, state, ledger and costs in one handle.

Handing over some thirty arrays by themselves costs more than deciding does; a `Desk` is handed
over as one pointer. It holds the very arrays of the NamedTuples it was made from, not copies.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.experimental import structref

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, compiled
from bylot.kernels.draw import add_cost
from bylot.kernels.inclusion import add_costs
from bylot.kernels.sets import log_set_probability
from bylot.policies.contract import RAREST, Ticket, chances, decide, law_compiled, learn
from bylot.policies.ledger import book
from bylot.policies.lot import of_members


@structref.register
class DeskType(types.StructRef):  # type: ignore[misc]
    """The compiled side of `Desk`."""


class Desk(structref.StructRefProxy):  # type: ignore[misc]
    """Desk(rule, state, ledger, costs), with costs (n, K) in the order of their names."""


structref.define_proxy(Desk, DeskType, ["rule", "state", "ledger", "costs"])


class Served(NamedTuple):
    """A decision, what it costs, and what can be told of the law it was drawn from."""

    ticket: Ticket
    costs: Floats  # (2, n): line 0 in fact, line 1 as expected before the draw
    included: Floats  # (K,) the chances to be in the panel, as `contract.chances` has them
    chance: float  # of the whole set: the ticket's, or by the odds of independent draws; 0: unknown


@compiled
def serve(desk: Any, context: int, seed: int, t: int, up: Bools) -> Served:
    """Decide and book: the cost is owed from now on, whether or not a reward ever comes."""
    ticket = decide(desk.rule, desk.state, context, Chance(seed, t), up)
    costs = np.zeros((2, desk.costs.shape[0]))
    included = chances(desk.rule, desk.state, ticket)
    add_cost(costs[0], desk.costs, ticket.draws)
    add_costs(costs[1], desk.costs, included)
    book(desk.ledger, costs)
    chance = ticket.chance
    if chance == 0.0 and ticket.odds.size > 0:
        masses = of_members(ticket.odds, ticket.draws)
        chance = max(np.exp(log_set_probability(masses, ticket.draws.size)), RAREST)
    return Served(ticket, costs, included, chance)


@compiled
def credit(desk: Any, ticket: Ticket, value: float, low: float, high: float) -> None:
    """Book a reward as it was given, and let the policy learn from it on the scale [0, 1]."""
    learn(desk.rule, desk.state, ticket, (value - low) / (high - low))
    desk.ledger.rewards[0] += 1
    desk.ledger.total[0] += value


@compiled
def mean_law(desk: Any, weights: Floats, up: Bools) -> Floats:
    """sum_x w_x law(x) / sum_x w_x over the first contexts, as many as there are weights."""
    mean, total = np.zeros(desk.costs.shape[1]), weights.sum()
    for x in range(weights.size):
        if weights[x] > 0.0:
            q = law_compiled(desk.rule, desk.state, x, up)
            for i in range(mean.size):
                mean[i] += weights[x] / total * q[i]
    return mean
