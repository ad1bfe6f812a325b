"""What a router hands out and takes back: a Decision, and the receipt for its reward."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Decision(NamedTuple):
    """One panel: whom to consult, and all that was known when it was drawn."""

    id: str
    t: int
    context: str | None
    draws: tuple[str, ...]  # M names, with multiplicity, in order
    odds: tuple[float, ...]  # the probability each draw had; empty where the policy cannot tell
    subset: tuple[str, ...]  # the distinct experts: these are to be consulted
    spend: Mapping[str, float]  # what consulting them costs
    expected: Mapping[str, float]  # what it was expected to cost before the draw, if that is known
    feasible: bool  # False: the step before this draw could not keep the paper's constraint
    chance: float = 0.0  # of this whole panel, where it is drawn as one; 0: not told
    replaced: bool = False  # by the guard, as the draw would have endangered a limit


class Receipt(StrEnum):
    """What became of a reward."""

    LEARNED = "learned"
    DUPLICATE = "duplicate"  # the same value was there already; nothing changed
    LATE = "late"  # the decision is no longer held; nothing changed
    UNKNOWN = "unknown"  # no such decision was ever made; nothing changed
