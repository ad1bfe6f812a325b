"""The round robin that CUCB, TS and their kin begin with.

The first ceil(K / M) visits of a context go through all experts in a random order of its own.
"""

import numpy as np

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Floats, Ints, compiled
from bylot.kernels.shuffle import shuffle
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


def orderly(visits: Ints, place: Ints) -> bool:
    """Is the order of every context that was visited one of all experts? Asked of files."""
    used = np.sort(place[visits > 0], axis=1)
    return bool((used == np.arange(place.shape[1])).all())
