"""Who was asked how often: what every baseline counts, and what it can say of its panels."""

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit, jit_inline
from bylot.numerics.philox import WARMUP_STREAM, RngKey
from bylot.numerics.sampling import is_first_draw, shuffle_front
from bylot.problem import Problem


@jit_inline
def count_members(drawn: Ints, draws: Ints) -> None:
    """One more round for each distinct member of a panel."""
    for j in range(draws.size):
        drawn[draws[j]] += 1 if is_first_draw(draws, j) else 0


@jit
def compute_pull_shares(drawn: Ints) -> Floats:
    """How often each expert was drawn so far, of all draws; equal shares before the first."""
    total = 0
    for i in range(drawn.size):
        total += drawn[i]
    law = np.empty(drawn.size)
    for i in range(drawn.size):
        law[i] = drawn[i] / total if total > 0 else 1.0 / drawn.size
    return law


@jit
def mark_members(draws: Ints, size: int) -> Floats:
    """1 for the members of a panel, 0 for the others: unbiased for their chances to be in it."""
    inside = np.zeros(size)
    for j in range(draws.size):
        inside[draws[j]] = 1.0
    return inside


def has_valid_counts(visits: Ints, drawn: Ints) -> bool:
    """Could these be counts of ours? Asked of files."""
    possible = (drawn >= 0).all() and (drawn <= visits[:, None]).all()
    return bool(len(visits) > 0 and (visits >= 0).all() and possible)


def count_warmup_visits(problem: Problem) -> int:
    """Visits of a context until every expert had a turn: ceil(K / M)."""
    return -(-problem.size // problem.draws)


@jit
def draw_warmup_order(place: Ints, rng: RngKey) -> None:
    """Draw a random order, and write the place that each expert has in it."""
    order = np.arange(place.size)
    shuffle_front(order, place.size, rng, WARMUP_STREAM)
    for n in range(place.size):
        place[order[n]] = n


@jit
def fill_warmup_scores(scores: Floats, place: Ints, turn: int, draws: int) -> None:
    """Scores whose best M are whose turn it is: place M turn and the next ones, going round.

    Whoever is down is passed over for the next in the order.
    """
    for i in range(scores.size):
        scores[i] = -float((place[i] - turn * draws) % scores.size)


def has_valid_warmup_order(visits: Ints, place: Ints) -> bool:
    """Is the order of every context that was visited one of all experts? Asked of files."""
    used = np.sort(place[visits > 0], axis=1)
    return bool((used == np.arange(place.shape[1])).all())
