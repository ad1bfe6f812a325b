"""The round robin that index policies begin with, and what all baselines count.

The first ceil(K / M) visits of a context go through all experts in a random order of its own.
"""

import numpy as np

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints, compiled, inlined
from bylot.kernels.draw import is_new
from bylot.kernels.shuffle import shuffle
from bylot.policies.contract import Ticket
from bylot.problem import Problem

ORDER = 1  # the stream of chance that the order is drawn from


def length(problem: Problem) -> int:
    """Visits of a context until every expert had a turn: ceil(K / M)."""
    return -(-problem.size // problem.draws)


@compiled
def set_order(place: Ints, chance: Chance) -> None:
    """Draw a random order, and write the place that each expert has in it."""
    order = np.arange(place.size)
    shuffle(order, place.size, chance, ORDER)
    for n in range(place.size):
        place[order[n]] = n


@compiled
def round_robin(scores: Floats, place: Ints, turn: int, draws: int) -> None:
    """Scores whose best M are whose turn it is: place M turn and the next ones, going round.

    Whoever is down is passed over for the next in the order.
    """
    for i in range(scores.size):
        scores[i] = -float((place[i] - turn * draws) % scores.size)


@inlined
def count(drawn: Ints, draws: Ints) -> None:
    """One more round for each distinct member of a panel."""
    for j in range(draws.size):
        drawn[draws[j]] += 1 if is_new(draws, j) else 0


@inlined
def untold(t: int, context: int, draws: Ints, up: Bools) -> Ticket:
    """The ticket of a policy that cannot tell the odds of single draws, as they have none."""
    return Ticket(t, context, draws, np.empty(0), up, 1.0, True)


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


def orderly(visits: Ints, place: Ints) -> bool:
    """Is the order of every context that was visited one of all experts? Asked of files."""
    used = np.sort(place[visits > 0], axis=1)
    return bool((used == np.arange(place.shape[1])).all())


def counted(visits: Ints, drawn: Ints) -> bool:
    """Could these be counts of ours? Asked of files."""
    possible = (drawn >= 0).all() and (drawn <= visits[:, None]).all()
    return bool(len(visits) > 0 and (visits >= 0).all() and possible)
