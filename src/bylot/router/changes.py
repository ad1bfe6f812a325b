"""Changes: what has happened to a router. Its engine returns them; a log keeps them as events."""

import math
from collections.abc import Sequence
from operator import attrgetter, itemgetter

import numpy as np
from msgspec import Struct

from bylot.limits.book import RequestLabels, Tables
from bylot.limits.keys import NO_KEYS, KeyNames
from bylot.limits.request import Ticket
from bylot.numerics.jit import Floats
from bylot.router.decision import Decision, ReceiptName


class DecisionMade(Struct, gc=False):
    """A decision, and all that its reward and its bill need. It has the panel of now: if a member
    fails, another one takes its place.

    panel:      the name of each draw
    inclusion:  the probability of each draw's expert to be in the panel; None: unknown
    propensity: of the panel; None: unknown
    spend:      the stated cost of the panel, by name
    expected:   the same before the draw
    held:       by cost, what is reserved beyond `spend` until that cost is reported
    available:  the experts that the request named
    holder:     the part of the server that made it, uses it and will settle it; None: a caller
    version:    of the configuration
    refused:    requests since the last decision: the hour, and how many
    tables:     of windows, if they had to be filled
    """

    ticket: Ticket
    panel: tuple[str, ...]
    inclusion: Sequence[float] | None
    propensity: float | None
    spend: dict[str, float]
    expected: dict[str, float]
    held: dict[str, float]
    context: str | None = None
    keys: KeyNames = NO_KEYS
    available: tuple[str, ...] | None = None
    defer: bool = False
    holder: str | None = None
    by: str | None = None
    version: int = 1
    refused: tuple[tuple[int, int], ...] = ()
    tables: Tables | None = None

    @property
    def labels(self) -> RequestLabels:
        """The labels of its request."""
        return RequestLabels(self.context, self.keys)

    def show(self, id: str) -> Decision:
        """Return the decision as callers see it, without what only a log knows."""
        ticket = self.ticket
        panel = self.panel
        inclusion: dict[str, float] | None = None
        if self.inclusion is None:
            subset = tuple(dict.fromkeys(panel))
        else:  # of one length: to check that would take half as long again
            inclusion = dict(zip(panel, self.inclusion))  # noqa: B905
            subset = panel if len(inclusion) == len(panel) else tuple(inclusion)
        return Decision(
            id,
            ticket.t,
            self.context,
            panel,
            subset,
            self.spend.copy(),
            self.expected.copy(),
            ticket.feasible,
            tuple(ticket.draw_probabilities.tolist()) or None,
            inclusion,
            self.propensity,
            ticket.replaced,
            dict(self.keys) if self.keys else {},
        )


class Change(Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """Any other change; by: the API key of the caller."""

    by: str | None = None


class RewardReceived(Change, frozen=True, omit_defaults=True):
    """A reward, or costs without one; the receipt says what the router did with it.

    The first report under a key of the holder settles a decision that is held, also without costs.
    """

    value: float | None  # None: costs only, receipt settled
    receipt: ReceiptName  # never duplicate: those change nothing
    spend: dict[str, float] | None = None  # actual cost of the panel; others: as stated
    key: str | None = None  # tells several reports about one decision apart
    members: dict[str, float] | None = None  # these and the others: as in `RewardReport`
    winner: str | None = None
    member_spend: dict[str, dict[str, float]] | None = None
    from_members: bool = False


class MemberReplaced(Change, frozen=True):
    """A member of an open panel failed, and another expert took its place."""

    failed: str
    available: tuple[str, ...] | None  # as requested
    added: str
    seat: int  # the index of the added one among the experts
    spend: dict[str, float]  # stated cost of the panel from here on
    held: dict[str, float] = {}  # what is reserved beyond it, likewise


class DecisionActivated(Change, frozen=True):
    """A deferred decision is in use: its wait begins."""


class DecisionCancelled(Change, frozen=True):
    """A decision was never used: it has no reward, and costs nothing unless costs are reported."""


class DecisionClosed(Change, frozen=True):
    """The wait of a decision is over."""

    learned: float | None  # None: nothing was learned
    members: dict[str, float] | None = None  # scores that were learned with it
    winner: str | None = None  # likewise


class PackedDecision(Change, frozen=True, omit_defaults=True):
    """A decision as it was made: fields of `DecisionMade` and of its ticket, by their names; a type
    of its own, as the order of fields and their defaults are part of the hash of an event.
    """

    version: int
    t: int
    context: str | None
    available: tuple[str, ...] | None
    defer: bool
    draws: tuple[str, ...]
    seats: tuple[int, ...]  # indices of the draws among the experts of that version
    draw_probabilities: bytes  # the ticket's, float64, little endian
    learned_inclusion: bytes  # the ticket's, float64, little endian
    available_mask: bytes  # one byte per expert; empty: all
    share: float
    feasible: bool
    propensity: float | None
    weight: float
    replaced: bool
    inclusion: tuple[float, ...] | None
    spend: dict[str, float]
    expected: dict[str, float]
    refused: tuple[tuple[int, int], ...] = ()
    tables: Tables | None = None
    keys: dict[str, str] = {}
    held: dict[str, float] = {}
    holder: str | None = None


PACKED_APART = ("seats", "draws", "draw_probabilities", "learned_inclusion", "available_mask")
"""The fields that are packed as another type, in the order of `pack_decision`."""
PACKED = [name for name in PackedDecision.__struct_fields__ if name != "by"]
OF_DECISION = DecisionMade.__struct_fields__[2:]  # all but ticket and panel
OF_TICKET = [name for name in PACKED if name not in (*PACKED_APART, *OF_DECISION)]
read_decision_fields = attrgetter(*OF_DECISION)
read_ticket_fields = attrgetter(*OF_TICKET)
order_fields = itemgetter(*map([*PACKED_APART, *OF_TICKET, *OF_DECISION].index, PACKED))


def pack_decision(made: DecisionMade) -> PackedDecision:
    """Return what the log keeps of a decision."""
    ticket = made.ticket
    fields = (
        tuple(ticket.draws.tolist()),
        made.panel,
        ticket.draw_probabilities.tobytes(),
        ticket.inclusion.tobytes(),
        ticket.available.tobytes(),
        *read_ticket_fields(ticket),
        *read_decision_fields(made),
    )
    return PackedDecision(*order_fields(fields), by=made.by)


def unpack_decision(packed: PackedDecision, context: int) -> DecisionMade:
    """Return a decision, its ticket bit for bit as it was when it was made."""
    ticket = Ticket(
        context=context,
        draws=np.array(packed.seats, np.int64),
        draw_probabilities=floats_from_bytes(packed.draw_probabilities),
        inclusion=floats_from_bytes(packed.learned_inclusion),
        available=np.frombuffer(packed.available_mask, np.bool_).copy(),
        propensity=math.nan if packed.propensity is None else packed.propensity,
        **dict(zip(OF_TICKET, read_ticket_fields(packed), strict=True)),
    )
    return DecisionMade(ticket, packed.draws, *read_decision_fields(packed))


def floats_from_bytes(raw: bytes) -> Floats:
    """Return a writable copy, as compiled code requires."""
    return np.frombuffer(raw, "<f8").astype(np.float64)
