"""Open decisions: those whose reward may still come, and deferred ones."""

import sys
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import numpy as np
from msgspec import Struct

from bylot.eventlog.events import RewardReceived
from bylot.limits.request import Ticket
from bylot.router.core import NO_LABELS, RequestLabels

NO_DEADLINE = -1
NOT_STARTED = -2  # the wait of a deferred decision
MAX_CACHED_BYTES = 40 * 2**20  # of tickets in memory, of one router
CACHED_DECISION_BYTES = 1_600  # of one of them, without what grows with experts and draws


class OpenDecision(Struct):
    """One open decision."""

    t: int
    due: int  # the last moment at which a reward is in time, in microseconds; or one of the above
    ticket: Ticket | None = None  # what learning needs; None: it is in the log only
    spend: dict[str, float] | None = None  # its stated cost, likewise
    panel: tuple[str, ...] = ()  # the name of each draw, likewise
    rewards: dict[str | None, RewardReceived] = {}  # all reports so far, by their keys
    seal: bytes = b""  # of its event; empty: it is in the log only
    labels: RequestLabels = NO_LABELS  # of the request, once the panel is known
    held: dict[str, float] = {}  # what is reserved beyond its stated cost, likewise
    holder: str | None = None  # as in `DecisionMade`
    is_cancelled: bool = False
    made: int = 0  # when, in microseconds; 0: before the router was opened

    @property
    def is_in_use(self) -> bool:
        """Whether its holder has not settled it yet."""
        return self.holder is not None and not any(map(self.is_reserved, self.rewards))

    def is_reserved(self, key: str | None) -> bool:
        """Whether only its holder reports under this key: the holder's name, or NAME/ANYTHING."""
        return key is not None and key.partition("/")[0] == self.holder

    @property
    def is_deferred(self) -> bool:
        """Whether its wait has not begun."""
        return self.due == NOT_STARTED

    @property
    def valued(self) -> list[RewardReceived]:
        """Reports with a reward, in the order they came; the others are of costs only."""
        return [one for one in self.rewards.values() if one.receipt != "settled"]

    @property
    def reported(self) -> str | None:
        """What was reported about it, in a word; None: nothing yet."""
        return "rewarded" if self.valued else "settled" if self.rewards else None

    @property
    def pending(self) -> list[RewardReceived]:
        """Rewards that will count when the wait is over, in the order they came."""
        return [one for one in self.rewards.values() if one.receipt == "pending"]


class OpenDecisionColumns(Struct, frozen=True, omit_defaults=True):
    """Open decisions in a snapshot: int64 columns, and rewards and holders by seq."""

    seq: bytes
    t: bytes
    due: bytes
    rewards: dict[int, list[RewardReceived]]
    holders: dict[int, str] = {}  # omitted if empty: snapshots without holders keep their hashes


class OpenDecisions:
    """All open decisions of a router, by the seq of their events."""

    def __init__(self) -> None:
        self.by_seq: dict[int, OpenDecision] = {}
        # These hold the seqs of closed decisions too, which are skipped.
        self.oldest: deque[int] = deque()  # in order
        self.deadlines: list[tuple[int, int]] = []  # a heap of (due, seq)
        self.cached: deque[int] = deque()  # those whose tickets are in memory

    def __len__(self) -> int:
        return len(self.by_seq)

    def __iter__(self) -> Iterator[tuple[int, OpenDecision]]:
        return iter(self.by_seq.items())

    def get(self, seq: int) -> OpenDecision | None:
        """An open decision; None if it is not open."""
        return self.by_seq.get(seq)

    def add(self, seq: int, one: OpenDecision) -> None:
        """Add one, later than all others."""
        self.by_seq[seq] = one
        self.oldest.append(seq)
        if one.ticket is not None:
            self.cached.append(seq)
            arrays = one.ticket.inclusion.nbytes + one.ticket.available.nbytes  # may be empty
            size = CACHED_DECISION_BYTES + arrays + 16 * len(one.panel)
            while len(self.cached) * size > MAX_CACHED_BYTES:  # the log has them too
                old = self.by_seq.get(self.cached.popleft())
                if old is not None:
                    old.ticket = old.spend = None
        self.start_wait(seq, one.due)

    def start_wait(self, seq: int, due: int) -> None:
        """Set the deadline of a decision."""
        self.by_seq[seq].due = due
        if due >= 0:
            heappush(self.deadlines, (due, seq))

    def close(self, seq: int) -> None:
        del self.by_seq[seq]
        if len(self.deadlines) > 2 * len(self.by_seq) + 64:  # most are of closed decisions
            self.deadlines = [one for one in self.deadlines if one[1] in self.by_seq]
            heapify(self.deadlines)

    def drop_before(self, t: int) -> list[OpenDecision]:
        """Remove all that were made before decision number t, and return them."""
        dropped = []
        while self.oldest:
            one = self.by_seq.get(self.oldest[0])
            if one is not None:
                if one.t >= t:
                    break
                self.close(self.oldest[0])
                dropped.append(one)
            self.oldest.popleft()
        return dropped

    def first_seq(self) -> int:
        """The seq of the oldest one; a number above all if there is none."""
        return next(iter(self.by_seq), sys.maxsize)

    def first_due(self) -> tuple[int, int] | None:
        """The earliest deadline and the seq of its decision; None if there is none."""
        while self.deadlines and self.deadlines[0][1] not in self.by_seq:
            heappop(self.deadlines)
        return self.deadlines[0] if self.deadlines else None

    def to_columns(self) -> OpenDecisionColumns:
        """All that a later process cannot read from the log."""
        held, count = self.by_seq.values(), len(self)
        seq = np.fromiter(self.by_seq, np.int64, count)
        t = np.fromiter([one.t for one in held], np.int64, count)
        due = np.fromiter([one.due for one in held], np.int64, count)
        rewards = {seq: [*one.rewards.values()] for seq, one in self if one.rewards}
        holders = {seq: decision.holder for seq, decision in self if decision.holder}
        return OpenDecisionColumns(seq.tobytes(), t.tobytes(), due.tobytes(), rewards, holders)

    @classmethod
    def from_columns(cls, columns: OpenDecisionColumns) -> "OpenDecisions":
        """Inverse of `to_columns`."""
        made = cls()
        raw = columns.seq, columns.t, columns.due
        numbers = (np.frombuffer(column, np.int64).tolist() for column in raw)
        for seq, t, due in zip(*numbers, strict=True):
            rewards = {one.key: one for one in columns.rewards.get(seq, ())}
            holder = columns.holders.get(seq)
            made.add(seq, OpenDecision(t, due, rewards=rewards, holder=holder))
        return made
