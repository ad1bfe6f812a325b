"""Decisions that are still open: their reward may come, or they may be used after all."""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import numpy as np
from msgspec import Struct

from bylot.eventlog.events import RewardReceived
from bylot.policies.base import Ticket

NO_DEADLINE = -1  # a wait without an end
NOT_STARTED = -2  # one that has not begun
MAX_CACHED_TICKETS = (
    10_000  # decisions whose tickets are kept at hand: each takes more than a kilobyte
)


class OpenDecision:
    """One open decision.

    due:    the last moment at which a reward is in time, in microseconds; NEVER or ASLEEP
    told:   the rewards that were told so far, by their keys; None for none
    ticket: what learning needs, if it was made in this process; else it is in the log
    spend:  what was stated to be its cost, likewise
    """

    __slots__ = ("due", "spend", "t", "ticket", "told")

    def __init__(
        self,
        t: int,
        due: int,
        ticket: Ticket | None = None,
        spend: dict[str, float] | None = None,
        told: dict[str | None, RewardReceived] | None = None,
    ) -> None:
        self.t, self.due, self.ticket, self.spend, self.told = t, due, ticket, spend, told

    @property
    def deferred(self) -> bool:
        """Has its time not begun?"""
        return self.due == NOT_STARTED

    def over(self, at: int) -> bool:
        """Is its time up?"""
        return 0 <= self.due < at

    @property
    def pending(self) -> list[float]:
        """Values that will count when the time is up, in the order they came."""
        told = self.told or {}
        return [one.value for one in told.values() if one.receipt == "pending"]


class OpenDecisionColumns(Struct, frozen=True):
    """Open decisions as they are kept in snapshots: int64 columns, and rewards by seq."""

    seq: bytes
    t: bytes
    due: bytes
    told: dict[int, list[RewardReceived]]


class OpenDecisions:
    """All open decisions of a router, by the seq of their lines."""

    def __init__(self) -> None:
        self.by_seq: dict[int, OpenDecision] = {}
        self.oldest: deque[int] = deque()  # seqs in order; those closed since are passed over
        self.dues: list[tuple[int, int]] = []  # a heap of (due, seq), likewise
        self.fresh: deque[int] = deque()  # seqs of those whose tickets are at hand, likewise

    def __len__(self) -> int:
        return len(self.by_seq)

    def __iter__(self) -> Iterator[tuple[int, OpenDecision]]:
        return iter(self.by_seq.items())

    def get(self, seq: int) -> OpenDecision | None:
        """An open decision, None if it is not open."""
        return self.by_seq.get(seq)

    def add(self, seq: int, held: OpenDecision) -> None:
        """One more, later than all others."""
        self.by_seq[seq] = held
        self.oldest.append(seq)
        if held.ticket is not None:
            self.fresh.append(seq)
            self.lighten()
        if held.due >= 0:
            heappush(self.dues, (held.due, seq))

    def lighten(self) -> None:
        """Let go of what the log has too, but for the latest decisions."""
        while len(self.fresh) > MAX_CACHED_TICKETS:
            held = self.by_seq.get(self.fresh.popleft())
            if held is not None:
                held.ticket = held.spend = None

    def wake(self, seq: int, due: int) -> None:
        """The time of a deferred one begins."""
        self.by_seq[seq].due = due
        if due >= 0:
            heappush(self.dues, (due, seq))

    def close(self, seq: int) -> None:
        """Be done with one."""
        del self.by_seq[seq]
        if len(self.dues) > 2 * len(self.by_seq) + 64:  # most of them are of closed ones
            self.dues = [one for one in self.dues if one[1] in self.by_seq]
            heapify(self.dues)

    def let_go(self, before: int) -> list[OpenDecision]:
        """Close all that were decided before decision number `before`, and return them."""
        gone = []
        while self.oldest:
            held = self.by_seq.get(self.oldest[0])
            if held is not None:
                if held.t >= before:
                    break
                self.close(self.oldest[0])
                gone.append(held)
            self.oldest.popleft()
        return gone

    def next_due(self) -> int | None:
        """The earliest end of a wait."""
        while self.dues and self.dues[0][1] not in self.by_seq:
            heappop(self.dues)
        return self.dues[0][0] if self.dues else None

    def first(self) -> tuple[int, OpenDecision]:
        """The one whose wait ends first, if `next_due` says that there is one."""
        seq = self.dues[0][1]
        return seq, self.by_seq[seq]

    def write(self) -> OpenDecisionColumns:
        """All that a later process cannot read from the log."""
        rows = self.by_seq
        return OpenDecisionColumns(
            seq=np.fromiter(rows, np.int64, len(rows)).tobytes(),
            t=np.fromiter((one.t for one in rows.values()), np.int64, len(rows)).tobytes(),
            due=np.fromiter((one.due for one in rows.values()), np.int64, len(rows)).tobytes(),
            told={seq: [*one.told.values()] for seq, one in rows.items() if one.told},
        )

    @classmethod
    def read(cls, columns: OpenDecisionColumns) -> "OpenDecisions":
        """The inverse of `write`."""
        made, told = cls(), columns.told
        numbers = (
            np.frombuffer(column, np.int64).tolist()
            for column in (columns.seq, columns.t, columns.due)
        )
        for seq, t, due in zip(*numbers, strict=True):
            rewards = {one.key: one for one in told.get(seq, ())} or None
            made.add(seq, OpenDecision(t, due, told=rewards))
        return made
