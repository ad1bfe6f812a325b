"""What a router hands out and takes back: a Decision, and the receipt for its reward."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Decision(NamedTuple):
    """One panel: whom to consult, and all that was known when it was drawn.

    feasible tells, of a policy that guards its limits (`distinct`, `tangent`, `panel`), whether all
    of them can still be kept at the end of this period: False is what a long outage may come to,
    until the next period begins. Of the paper's policies it tells whether the step before this draw
    could keep the paper's constraint. odds are those of the law that is being learned; a policy
    that mixes another into it tells the exact chance of the whole panel beside them.
    """

    id: str
    t: int
    context: str | None
    draws: tuple[str, ...]  # M names, with multiplicity, in order
    odds: tuple[float, ...]  # of each draw, or to be in the set; empty where they are not told
    subset: tuple[str, ...]  # the distinct experts: these are to be consulted
    spend: Mapping[str, float]  # what consulting them costs
    expected: Mapping[str, float]  # what it was expected to cost before the draw, if that is known
    feasible: bool  # can the limits be kept?
    chance: float | None = None  # of this whole panel; None: not told
    replaced: bool = False  # by the guard, as the draw would have endangered a limit


class Receipt(StrEnum):
    """What became of a reward."""

    LEARNED = "learned"
    PENDING = "pending"  # it will count when the decision's time is up; of served routers only
    NOTED = "noted"  # kept, but another reward of the decision counts; of served routers only
    DUPLICATE = "duplicate"  # the same value was there already; nothing changed
    LATE = "late"  # the decision is no longer held, or its time is up; nothing was learned
    UNKNOWN = "unknown"  # no such decision was ever made; nothing changed
