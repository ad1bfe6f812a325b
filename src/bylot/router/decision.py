"""Decision and Receipt: what a router returns for a request and for a reward."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Decision(NamedTuple):
    """A panel for one request, with its probabilities and costs.

    Attributes
    ----------
    id
        The id to give to `Router.reward`.
    t
        The number of the decision, from 0.
    context
        The context of the request.
    draws
        M names, with multiplicity, in order.
    subset
        The distinct experts: the panel to ask.
    spend
        The cost of the panel, by name of the cost.
    expected
        The cost that was expected before the draw, if the policy knows it.
    feasible
        For policies that guard the limits (`distinct`, `tangent`, `noisy-or`): whether all limits
        can still be kept at the end of this period; a long outage can make it False until the
        next period. For the paper's policies: whether the step before the draw could keep the
        paper's constraint.
    draw_probabilities
        The probability of each i.i.d. draw; None for panels drawn as a set.
    inclusion
        The probability of each member to be in the panel; None if the policy does not know it.
    propensity
        The probability of this panel, exact, exploration included; 1 for a panel that the guard
        chose, None if the policy does not know it.
    replaced
        Whether the guard replaced the panel that was drawn, to protect a limit.
    """

    id: str
    t: int
    context: str | None
    draws: tuple[str, ...]
    subset: tuple[str, ...]
    spend: Mapping[str, float]
    expected: Mapping[str, float]
    feasible: bool
    draw_probabilities: tuple[float, ...] | None = None
    inclusion: Mapping[str, float] | None = None
    propensity: float | None = None
    replaced: bool = False


class Receipt(StrEnum):
    """What happened to a reward; PENDING and NOTED occur on a server only."""

    LEARNED = "learned"  # the policy has learned from it
    PENDING = "pending"  # it counts when the reward window of the decision ends
    NOTED = "noted"  # stored, but another reward of the decision counts
    DUPLICATE = "duplicate"  # the decision already has this reward; nothing was changed
    LATE = "late"  # the decision is no longer held, or its window has ended; nothing was learned
    UNKNOWN = "unknown"  # there is no such decision; nothing was changed
