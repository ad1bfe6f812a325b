"""What the baselines share: how often each expert was drawn, and a round-robin warm-up.

The first ceil(K / M) visits of a context go through all experts in a random order of its own.
"""

from typing import Any, ClassVar

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.philox import WARMUP_STREAM, RngKey, RngStream
from bylot.numerics.sampling import is_first_draw, shuffle_front
from bylot.policies.base import (
    BoundPolicy,
    Policy,
    ProblemChange,
    Ticket,
    compute_distribution,
    compute_inclusion,
    step,
)
from bylot.policies.multipliers import compute_multiplier_prices
from bylot.problem import Problem


@jit_inline
def count_members(drawn: Ints, draws: Ints) -> None:
    """Add a round for each distinct member of a panel."""
    for j in range(draws.size):
        drawn[draws[j]] += 1 if is_first_draw(draws, j) else 0


@jit
def compute_pull_shares(drawn: Ints) -> Floats:
    """The share of each expert in all draws so far; equal shares before the first."""
    total = 0
    for i in range(drawn.size):
        total += drawn[i]
    shares = np.empty(drawn.size)
    for i in range(drawn.size):
        shares[i] = drawn[i] / total if total > 0 else 1.0 / drawn.size
    return shares


@jit
def mark_members(draws: Ints, size: int) -> Floats:
    """1 for the members of a panel, 0 for the others: unbiased for inclusion probabilities."""
    inside = np.zeros(size)
    for j in range(draws.size):
        inside[draws[j]] = 1.0
    return inside


def has_valid_counts(visits: Ints, drawn: Ints) -> bool:
    """Validate counts loaded from disk."""
    possible = (drawn >= 0).all() and (drawn <= visits[:, None]).all()
    return bool(len(visits) > 0 and (visits >= 0).all() and possible)


def compute_pull_distribution(rule: Any, state: Any, context: int, available: Bools) -> Floats:
    """`compute_distribution`: how often each expert was drawn."""
    return compute_pull_shares(state.drawn[context])


def compute_pull_inclusion(rule: Any, state: Any, ticket: Ticket) -> Floats:
    """`compute_inclusion`: the panel itself."""
    return mark_members(ticket.draws, state.drawn.shape[1])


def register_pull_steps(rule: type) -> None:
    """Register the steps that the baselines share."""
    step(compute_distribution, rule)(compute_pull_distribution)
    step(compute_inclusion, rule)(compute_pull_inclusion)


def count_warmup_visits(problem: Problem) -> int:
    """Visits of a context until every expert had a turn: ceil(K / M)."""
    return -(-problem.size // problem.draws)


@jit
def draw_warmup_order(place: Ints, rng: RngKey) -> None:
    """Draw a random order, and write the place of each expert in it."""
    order = np.arange(place.size)
    shuffle_front(order, place.size, rng, WARMUP_STREAM)
    for n in range(place.size):
        place[order[n]] = n


@jit
def fill_warmup_scores(scores: Floats, place: Ints, turn: int, draws: int) -> None:
    """Scores whose best M are next in the order: place M turn and the following ones.

    An unavailable expert is passed over for the next in the order.
    """
    for i in range(scores.size):
        scores[i] = -float((place[i] - turn * draws) % scores.size)


def has_valid_warmup_order(visits: Ints, place: Ints) -> bool:
    """Validate the orders of visited contexts, loaded from disk."""
    used = np.sort(place[visits > 0], axis=1)
    return bool((used == np.arange(place.shape[1])).all())


class BaselinePolicy(Policy):
    """What the paper's learning baselines share; states have `multipliers`, and some a `place`."""

    def prices(self, problem: Problem, rule: Any, state: Any) -> Floats:
        """The current multipliers; NaN for a policy that ignores limits."""
        if not self.uses_limits:
            return super().prices(problem, rule, state)
        return compute_multiplier_prices(problem, state.multipliers)


class WarmupPolicy(BaselinePolicy):
    """A baseline with a round-robin warm-up."""

    streams: ClassVar[tuple[RngStream, ...]] = (RngStream.WARMUP,)

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Experts that stay keep their order in the warm-up; new ones come after them."""
        place = new.state.place
        joined = np.ones(place.shape[1], np.bool_)
        joined[change.experts[1]] = False
        behind = place + np.where(joined, len(change.old.experts), 0)
        place[:] = np.argsort(np.argsort(behind, axis=1, kind="stable"), axis=1, kind="stable")
