"""What was spent: the realised and the expected cost of all decisions, and the rewards so far."""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats, Ints, compiled


class Ledger(NamedTuple):
    """Sums since the first decision; one column a named cost."""

    rounds: Ints
    spent: Floats
    expected: Floats
    rewards: Ints
    total: Floats  # of the rewards, as they were given


def blank(costs: int) -> Ledger:
    """A ledger with nothing in it."""
    return Ledger(
        rounds=np.zeros(1, np.int64),
        spent=np.zeros(costs),
        expected=np.zeros(costs),
        rewards=np.zeros(1, np.int64),
        total=np.zeros(1),
    )


@compiled
def book(ledger: Ledger, costs: Floats) -> None:
    """One more decision: what it costs in fact (line 0) and as expected (line 1)."""
    ledger.rounds[0] += 1
    for j in range(costs.shape[1]):
        ledger.spent[j] += costs[0, j]
        ledger.expected[j] += costs[1, j]
