"""What the lines of a log say, beyond what every line has."""

import time

from msgspec import Struct

from bylot.api import ReceiptName
from bylot.router.config import RouterConfig


class RouterCreated(Struct, frozen=True):
    """Line 0: the terms of the router."""

    terms: RouterConfig
    by: str | None = None  # the credential


class ConfigChanged(Struct, frozen=True):
    """From here on, other terms."""

    terms: RouterConfig
    by: str | None = None


class DecisionMade(Struct, frozen=True, omit_defaults=True):
    """A decision: what was asked, what was drawn, and all that its reward will need.

    share, feasible, weight, replaced: as in `policies.base.Ticket`
    """

    version: int  # of the terms
    t: int  # decisions before this one
    context: str | None
    available: tuple[str, ...] | None  # as asked
    defer: bool
    draws: tuple[str, ...]
    seats: tuple[int, ...]  # the places of the draws among the experts of that version
    draw_probabilities: bytes  # the ticket's, float64, little endian
    learned_inclusion: bytes  # the ticket's, float64, little endian
    available_mask: bytes  # one byte an expert; empty: all
    share: float
    feasible: bool
    propensity: float | None  # of the panel; None: unknown to the policy
    weight: float
    replaced: bool
    inclusion: tuple[float, ...] | None  # of each draw's expert; None: unknown to the policy
    spend: dict[str, float]  # stated cost of the panel
    expected: dict[str, float]  # before the draw
    by: str | None = None


class RewardReceived(Struct, frozen=True, omit_defaults=True):
    """A reward was told; `receipt` says what became of it."""

    value: float
    receipt: ReceiptName  # never duplicate: those leave no line
    # what the panel really cost, by name; those left out: as stated
    spend: dict[str, float] | None = None
    key: str | None = None  # which of several rewards
    by: str | None = None


class DecisionActivated(Struct, frozen=True):
    """A deferred decision is being used after all: its time begins."""

    by: str | None = None


class DecisionCancelled(Struct, frozen=True):
    """A decision was never used: it costs nothing and has no reward."""

    by: str | None = None


class DecisionClosed(Struct, frozen=True):
    """The time of a decision is up."""

    learned: float | None  # the value that counted; None: nothing was learned


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000
