"""What a router hands out and takes back: a Decision, and the receipt for its reward."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Decision(NamedTuple):
    """One panel: whom to consult, and all that was known when it was drawn.

    feasible tells, of a policy that guards its limits (`distinct`, `tangent`, `noisy-or`), whether all
    of them can still be kept at the end of this period: False is what a long outage may come to,
    until the next period begins. Of the paper's policies it tells whether the step before this draw
    could keep the paper's constraint.

    The probabilities are those before the draw and exact, exploration included; a panel that the
    guard put in the place of a draw has probability 1.
    """

    id: str
    t: int
    context: str | None
    draws: tuple[str, ...]  # M names, with multiplicity, in order
    subset: tuple[str, ...]  # the distinct experts: these are to be consulted
    spend: Mapping[str, float]  # what consulting them costs
    expected: Mapping[str, float]  # what it was expected to cost before the draw, if that is known
    feasible: bool  # can the limits be kept?
    draw_probabilities: tuple[float, ...] | None = None  # of i.i.d. draws; None: drawn as a set
    inclusion: Mapping[str, float] | None = None  # of each member; None: unknown to the policy
    propensity: float | None = None  # of this panel; None: unknown to the policy
    replaced: bool = False  # by the guard, as the draw would have endangered a limit


class Receipt(StrEnum):
    """What became of a reward."""

    LEARNED = "learned"
    PENDING = "pending"  # it will count when the decision's time is up; of served routers only
    NOTED = "noted"  # kept, but another reward of the decision counts; of served routers only
    DUPLICATE = "duplicate"  # the same value was there already; nothing changed
    LATE = "late"  # the decision is no longer held, or its time is up; nothing was learned
    UNKNOWN = "unknown"  # no such decision was ever made; nothing changed
