"""What was spent: the realised and the expected cost of all decisions, and the rewards so far."""

from typing import Any, NamedTuple

import numpy as np

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints, compiled
from bylot.kernels.draw import distinct, restrict
from bylot.kernels.inclusion import expected_costs
from bylot.policies.contract import Ticket, decide, law


class Ledger(NamedTuple):
    """Sums since the first decision; one column a named cost."""

    rounds: Ints
    spent: Floats
    expected: Floats
    rewards: Ints
    total: Floats  # of the rewards, as they were given


class Served(NamedTuple):
    """A decision, and what it costs."""

    ticket: Ticket
    subset: Ints
    spend: Floats
    expected: Floats


def blank(costs: int) -> Ledger:
    """A ledger with nothing in it."""
    count, sums = lambda: np.zeros(1, np.int64), np.zeros
    return Ledger(count(), sums(costs), sums(costs), count(), sums(1))


@compiled
def cost_of(costs: Floats, subset: Ints) -> Floats:
    """Cost j of a subset: sum over its members of c_ij.

    >>> cost_of(np.array([[1.0, 2.0, 4.0]]), np.array([0, 2]))
    array([5.])
    """
    out = np.zeros(costs.shape[0])
    for j in range(out.size):
        for i in subset:
            out[j] += costs[j, i]
    return out


@compiled
def serve(
    rule: Any, state: Any, ledger: Ledger, costs: Floats, context: int, chance: Chance, up: Bools
) -> Served:
    """Decide and book: the cost is owed from now on, whether or not a reward ever comes."""
    ticket = decide(rule, state, context, chance, up)
    subset = distinct(ticket.draws)
    spend = cost_of(costs, subset)
    q = restrict(law(rule, state, context), up)
    expected = expected_costs(q, costs, ticket.draws.size)
    ledger.rounds[0] += 1
    ledger.spent[:] += spend
    ledger.expected[:] += expected
    return Served(ticket, subset, spend, expected)

