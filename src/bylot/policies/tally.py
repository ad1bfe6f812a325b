"""Who was asked how often: what every baseline counts, and what it can say of its panels."""

import numpy as np

from bylot.kernels.compile import Bools, Floats, Ints, compiled, inlined
from bylot.kernels.draw import is_new
from bylot.policies.contract import Ticket


@inlined
def count(drawn: Ints, draws: Ints) -> None:
    """One more round for each distinct member of a panel."""
    for j in range(draws.size):
        drawn[draws[j]] += 1 if is_new(draws, j) else 0


@inlined
def untold(t: int, context: int, draws: Ints, up: Bools) -> Ticket:
    """The ticket of a policy that cannot tell the odds of single draws, as they have none."""
    return Ticket(t, context, draws, np.empty(0), up, 1.0, True, 0.0, 1.0, False)


@compiled
def shares(drawn: Ints) -> Floats:
    """How often each expert was drawn so far, of all draws; equal shares before the first."""
    total = 0
    for i in range(drawn.size):
        total += drawn[i]
    law = np.empty(drawn.size)
    for i in range(drawn.size):
        law[i] = drawn[i] / total if total > 0 else 1.0 / drawn.size
    return law


@compiled
def membership(draws: Ints, size: int) -> Floats:
    """1 for the members of a panel, 0 for the others: unbiased for their chances to be in it."""
    inside = np.zeros(size)
    for j in range(draws.size):
        inside[draws[j]] = 1.0
    return inside


def counted(visits: Ints, drawn: Ints) -> bool:
    """Could these be counts of ours? Asked of files."""
    possible = (drawn >= 0).all() and (drawn <= visits[:, None]).all()
    return bool(len(visits) > 0 and (visits >= 0).all() and possible)
