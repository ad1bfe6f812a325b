"""Decision and Receipt: what a router returns for a request and for a reward."""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

ReceiptName = Literal["learned", "pending", "noted", "late", "settled", "duplicate"]
"""What a router did with a report."""

DecisionState = Literal["deferred", "waiting", "rewarded", "cancelled", "closed"]


class Decision(Struct, frozen=True):
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
        The cost that was expected before the draw; that of the panel itself if the policy does not
        know its inclusion probabilities.
    feasible
        For policies that guard the limits (`distinct`, `tangent`, `noisy-or`): whether all limits
        can still be kept at the end of this period; a long outage can make it False until the
        next period. For `omd`: whether the step before the draw could keep the paper's
        constraint. Always True for the others.
    draw_probabilities
        The probability of each i.i.d. draw; None for panels drawn as a set.
    inclusion
        The probability of each member to be in the panel; None if the policy does not know it.
    propensity
        The probability of this panel, exact, exploration included; 1 for a panel that the guard
        chose, None if the policy does not know it.
    replaced
        Whether the guard replaced the panel that was drawn, to protect a limit.
    keys
        Whose limits count the request too, by scope: ``{"tenant": "acme"}``.
    router, version, at, deferred, key
        For stored routers: its name, the version of its configuration, the time (RFC 3339, UTC),
        whether it was made with `defer` (it counts after `activate`), and its idempotency key.
    failed
        The members that failed and were replaced. Panel and cost are then as they are now, and
        their probabilities None.
    """

    id: str
    t: int
    context: str | None
    draws: tuple[str, ...]
    subset: tuple[str, ...]
    spend: dict[str, float]
    expected: dict[str, float]
    feasible: bool
    draw_probabilities: tuple[float, ...] | None = None
    inclusion: dict[str, float] | None = None
    propensity: float | None = None
    replaced: bool = False
    keys: dict[str, str] = {}
    router: str | None = None
    version: int | None = None
    at: str | None = None
    deferred: bool = False
    key: str | None = None
    failed: tuple[str, ...] = ()


class Receipt(StrEnum):
    """What happened to a report; PENDING occurs on a server only."""

    LEARNED = "learned"  # the policy has learned from it
    PENDING = "pending"  # it counts at the deadline of the decision
    NOTED = "noted"  # stored, not learned: another reward counts, or the pool has changed since
    SETTLED = "settled"  # costs without a reward, booked; a reward may still come
    DUPLICATE = "duplicate"  # the decision already has this report; nothing was changed
    LATE = "late"  # the decision is no longer held, or its deadline has passed; not learned
    UNKNOWN = "unknown"  # there is no such decision; nothing was changed
