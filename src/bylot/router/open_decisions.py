"""Open decisions: those whose reward may still come, and deferred ones."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

import numpy as np
from msgspec import Struct

from bylot.errors import DecisionStateError
from bylot.limits.request import Ticket
from bylot.router.changes import DecisionMade, RewardReceived
from bylot.router.decision import DecisionState

NO_DEADLINE = -1
NOT_STARTED = -2  # the wait of a deferred decision
MAX_CACHED_BYTES = 40 * 2**20  # of decisions in memory that a log has too, of one router
CACHED_DECISION_BYTES = 2_000  # of one of them, without what grows with experts and draws

ReportKey = tuple[str | None, bool]
"""The key of a report, and whether it is of costs alone: a key has one reward and one bill."""


class OpenDecision(Struct, gc=False):
    """A decision and what was reported about it; also one that is no longer open.

    due:    the last moment at which a reward is in time, in microseconds, or one of the constants
    made:   None: it is in the log only
    failed: members that were replaced, in order
    seal:   of its event; empty: it is in the log only
    at:     when it was made, in microseconds; 0: before the router was opened
    """

    t: int
    due: int = NO_DEADLINE
    made: DecisionMade | None = None
    holder: str | None = None  # as in `DecisionMade`
    at: int = 0
    rewards: dict[ReportKey, RewardReceived] = {}
    failed: tuple[str, ...] = ()
    seal: bytes = b""
    is_cancelled: bool = False

    @property
    def known(self) -> DecisionMade:
        """The decision itself, which was read from the log if need be."""
        assert self.made is not None
        return self.made

    @property
    def ticket(self) -> Ticket:
        """What learning needs; policies must not take an exchanged panel for their own draw."""
        assert self.made is not None
        ticket = self.made.ticket
        return ticket._replace(replaced=True) if self.failed else ticket

    @property
    def booked(self) -> dict[str, float]:
        """The stated cost of the panel, by name; nothing of a cancelled decision."""
        return {} if self.is_cancelled else self.known.spend

    @property
    def is_in_use(self) -> bool:
        """Whether its holder has not settled it yet."""
        return self.holder is not None and not any(self.is_reserved(key) for key, _ in self.rewards)

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
        return [report for report in self.rewards.values() if report.receipt != "settled"]

    @property
    def has_reward(self) -> bool:
        """Whether a reward came in time."""
        return any(report.receipt != "late" for report in self.valued)

    @property
    def pending(self) -> list[RewardReceived]:
        """Rewards that will count when the wait is over, in the order they came."""
        return [report for report in self.rewards.values() if report.receipt == "pending"]

    def add_report(self, report: RewardReceived) -> None:
        """Keep a report, which must be recognised if it comes again."""
        self.rewards[report.key, report.receipt == "settled"] = report


def index_reports(reports: Iterable[RewardReceived]) -> dict[ReportKey, RewardReceived]:
    """Return reports by their keys."""
    return {(report.key, report.receipt == "settled"): report for report in reports}


class OpenDecisionColumns(Struct, frozen=True, omit_defaults=True):
    """Open decisions in a snapshot: int64 columns, and rewards and holders by place."""

    place: bytes
    t: bytes
    due: bytes
    rewards: dict[int, list[RewardReceived]]
    holders: dict[int, str] = {}  # omitted if empty: snapshots without holders keep their hashes


class OpenDecisions:
    """All open decisions of a router by their places: the seq in a log, the number in memory.

    read:       finds a decision that is not in memory, with its reports; or raises an error
    max_recent: of decisions in memory that are no longer open
    max_bytes:  of open ones in memory; others are in the log only. None: all are in memory
    """

    def __init__(
        self,
        read: Callable[[int], OpenDecision],
        max_recent: int = 0,
        max_bytes: int | None = None,
    ) -> None:
        self.read = read
        self.max_recent = max_recent
        self.max_bytes = max_bytes
        self.recent: dict[int, OpenDecision] = {}
        self.remembered: deque[int] = deque()  # the places of recent ones, in order
        self.by_place: dict[int, OpenDecision] = {}
        # These hold the places of closed decisions too, which are skipped.
        self.oldest: deque[int] = deque()  # in order
        self.deadlines: list[tuple[int, int]] = []  # a heap of (due, place)
        self.cached: deque[int] = deque()  # those that are in memory

    def __len__(self) -> int:
        return len(self.by_place)

    def __iter__(self) -> Iterator[tuple[int, OpenDecision]]:
        return iter(self.by_place.items())

    def get(self, place: int) -> OpenDecision | None:
        """Return an open decision; None if it is not open."""
        return self.by_place.get(place)

    def find(self, place: int) -> OpenDecision:
        """Return a decision with all that learning needs, open or not."""
        opened = self.by_place.get(place)
        if opened is None:
            found = self.recent.get(place)
            if found is None:
                found = self.read(place)
                self.remember(place, found)
            return found
        if opened.made is None:
            found = self.read(place)
            opened.made = found.made
            opened.failed = found.failed
        return opened

    def remember(self, place: int, decision: OpenDecision) -> None:
        """Keep a decision that is open no longer, in the place of the first one."""
        self.recent[place] = decision
        remembered = self.remembered
        remembered.append(place)
        if len(remembered) > self.max_recent:
            self.recent.pop(remembered.popleft(), None)

    def add(self, place: int, opened: OpenDecision) -> None:
        """Add a decision, later than all others."""
        self.by_place[place] = opened
        self.oldest.append(place)
        if self.max_bytes is not None and opened.made is not None:
            self.cached.append(place)
            ticket = opened.made.ticket
            arrays = ticket.inclusion.nbytes + ticket.available.nbytes  # may be empty
            size = CACHED_DECISION_BYTES + arrays + 16 * len(ticket.draws)
            while len(self.cached) * size > self.max_bytes:  # the log has them too
                old = self.by_place.get(self.cached.popleft())
                if old is not None:
                    old.made = None
        if opened.due >= 0:
            heappush(self.deadlines, (opened.due, place))

    def start_wait(self, place: int, due: int) -> None:
        """Set the deadline of a decision."""
        self.by_place[place].due = due
        if due >= 0:
            heappush(self.deadlines, (due, place))

    def close(self, place: int) -> None:
        """Remove a decision."""
        del self.by_place[place]
        if self.deadlines and len(self.deadlines) > 2 * len(self.by_place) + 64:
            # most are of closed decisions
            self.deadlines = [entry for entry in self.deadlines if entry[1] in self.by_place]
            heapify(self.deadlines)

    def drop_before(self, t: int) -> list[OpenDecision]:
        """Remove all that were made before decision number t, and return them."""
        dropped = []
        while self.oldest:
            first = self.by_place.get(self.oldest[0])
            if first is not None:
                if first.t >= t:
                    break
                self.close(self.oldest[0])
                dropped.append(first)
            self.oldest.popleft()
        return dropped

    def first_place(self) -> int:
        """Return the place of the oldest one; a number above all if there is none."""
        return next(iter(self.by_place), sys.maxsize)

    def first_due(self) -> tuple[int, int] | None:
        """Return the earliest deadline and the place of its decision; None if there is none."""
        while self.deadlines and self.deadlines[0][1] not in self.by_place:
            heappop(self.deadlines)
        return self.deadlines[0] if self.deadlines else None

    def to_columns(self) -> OpenDecisionColumns:
        """Return all that a later process cannot read from the log."""
        decisions = self.by_place.values()
        numbers = [opened.t for opened in decisions]
        deadlines = [opened.due for opened in decisions]
        return OpenDecisionColumns(
            place=np.fromiter(self.by_place, np.int64, len(self)).tobytes(),
            t=np.fromiter(numbers, np.int64, len(self)).tobytes(),
            due=np.fromiter(deadlines, np.int64, len(self)).tobytes(),
            rewards={place: [*opened.rewards.values()] for place, opened in self if opened.rewards},
            holders={place: opened.holder for place, opened in self if opened.holder},
        )

    def fill_from_columns(self, columns: OpenDecisionColumns) -> None:
        """Read what `to_columns` has written."""
        raw = columns.place, columns.t, columns.due
        numbers = (np.frombuffer(column, np.int64).tolist() for column in raw)
        for place, t, due in zip(*numbers, strict=True):
            rewards = index_reports(columns.rewards.get(place, ()))
            holder = columns.holders.get(place)
            self.add(place, OpenDecision(t, due, holder=holder, rewards=rewards))


def describe_state(decision: OpenDecision, is_open: bool) -> DecisionState:
    """Return the state of a decision in a word."""
    if is_open:
        return "deferred" if decision.is_deferred else "waiting"
    if decision.is_cancelled:
        return "cancelled"
    return "rewarded" if decision.has_reward else "closed"


def make_cancelled_error(id: str, remedy: str) -> DecisionStateError:
    """For a reward of a decision that was cancelled, or a request with its key."""
    return DecisionStateError(f"decision {id} was cancelled", remedy=remedy)
