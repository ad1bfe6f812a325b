"""Retention: drop the oldest segments of logs, as whole segments, after a given time.

The log can be replayed from the oldest snapshot that is left. A segment stays, whatever its age,
while one of its decisions is needed for that: it was open then, or a later event is about it.
"""

import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from bylot import errors
from bylot.eventlog.events import BODY_DECODERS, hash_snapshot
from bylot.eventlog.repository import EVENTLOG_LOGGER, RouterRepository
from bylot.store import RouterRow, Segment, Store

MAX_ROUTERS_PER_SCAN = 20
MIN_EVENTS_PER_STEP, MAX_EVENTS_PER_STEP = 100, 500
MORE_EVENTS_PER_STEP = 5  # after a step that took less than it may
STEP_S = 0.002  # that a step may take: requests wait for it
EVENTS_PER_FREED_PAGE = 8
MIN_SCAN_INTERVAL_US = 1_000_000
RETRY_US = 10_000_000  # after a router could not be opened
SCANS_PER_KEEP = 100


class DropPlan(NamedTuple):
    """What to drop: the events up to `last`; the log can be replayed from the snapshot `base`."""

    last: int
    base: int


def choose_drop(
    segments: Sequence[Segment], bases: Collection[int], refers: int, before: int
) -> DropPlan | None:
    """The largest part that can be dropped; None if there is none.

    segments: those that are not dropped, in order
    bases:    the events after which there are snapshots
    refers:   the oldest decision that events after the last segment are about
    before:   only segments that ended before this time are dropped
    """
    needed: list[tuple[int, int]] = []  # a base, and the oldest decision that is needed with it
    for one in reversed(segments):
        if one.last in bases:
            needed.append((one.last, min(refers, one.open_since)))
        refers = min(refers, one.refers)
    for last in reversed([one.last for one in segments if one.ended < before]):
        enough = [base for base, oldest in needed if base >= last and oldest > last]
        if enough:
            return DropPlan(last, min(enough))
    return None


def has_valid_base(store: Store, router: int, seq: int) -> bool:
    """Whether the snapshot after the end of a segment is the one that the next event records."""
    stored, event = store.snapshot(router, seq), store.event(router, seq + 1)
    if stored is None or event is None or event.kind != "sealed":
        return False
    recorded = BODY_DECODERS["sealed"](event.body).state
    return bool(hash_snapshot(stored.body) == stored.seal == recorded)


class Retention:
    """Drops segments of all routers of a store that are old enough, a little at a time.

    keep_us: microseconds for which events are kept at least
    """

    def __init__(self, repository: RouterRepository, keep_us: int) -> None:
        self.repository, self.store, self.keep_us = repository, repository.store, keep_us
        self.next_scan_at = 0  # when to look at all routers again
        self.scan_after: str | None = ""  # the last name that was looked at; None: all were
        self.to_delete: list[int] = []  # routers with dropped events
        self.step_events = MIN_EVENTS_PER_STEP

    def step(self, at: int) -> bool:
        """Do a short piece of work; whether more can be done at once."""
        if self.to_delete:
            self.delete_some()
            return True
        if self.scan_after is None and at >= self.next_scan_at:
            self.scan_after = ""
        if self.scan_after is None:
            return False
        if self.scan_after == "":
            self.next_scan_at = at + max(MIN_SCAN_INTERVAL_US, self.keep_us // SCANS_PER_KEEP)
        rows = self.store.routers(self.scan_after, MAX_ROUTERS_PER_SCAN)
        for row in rows:
            self.check_router(row, at)
        self.scan_after = rows[-1].name if rows else None
        return True

    def delete_some(self) -> None:
        """Delete some dropped events; the next time fewer or more, by how long that took."""
        start = time.perf_counter()
        if not self.store.delete_dropped(self.to_delete[-1], self.step_events):
            self.to_delete.pop()
        # each time: to take pages from a long list of free ones is slow
        self.store.shrink(1 + self.step_events // EVENTS_PER_FREED_PAGE)
        took_s = time.perf_counter() - start
        if took_s > 2 * STEP_S:
            self.step_events = max(self.step_events // 2, MIN_EVENTS_PER_STEP)
        elif took_s < STEP_S:
            self.step_events = min(self.step_events + MORE_EVENTS_PER_STEP, MAX_EVENTS_PER_STEP)

    def check_router(self, row: RouterRow, at: int) -> None:
        """Drop segments of one router, unless another server has it or there are none."""
        segments = self.store.segments(row.number)
        if any(one.dropped for one in segments) and self.store.has_dropped_events(row.number):
            self.to_delete.append(row.number)
        kept = [one for one in segments if not one.dropped]
        if not kept or kept[0].ended >= at - self.keep_us:
            return
        was_open = row.name in self.repository.opened
        try:
            self.drop(row, kept, at)
            if not was_open:
                self.repository.release(row.name)
        except (errors.RouterBusy, errors.PolicyCompiling):
            self.next_scan_at = min(self.next_scan_at, at + RETRY_US)
        except errors.RouterNotFound:
            return
        except (errors.LeaseLost, errors.StoreCorrupted) as error:
            EVENTLOG_LOGGER.error("router %r: nothing was dropped: %s", row.name, error)

    def drop(self, row: RouterRow, segments: Sequence[Segment], at: int) -> None:
        """Drop segments of a router, which is opened if it is not open."""
        router = self.repository.get(row.name, at)
        now, bases = router.local_time(at), set(self.store.snapshot_seqs(row.number))
        self.repository.opened[row.name].expired = self.repository.find_expired(row.number, now)
        plan = choose_drop(segments, bases, router.segment.refers, now - self.keep_us)
        while plan is not None and not has_valid_base(self.store, row.number, plan.base):
            EVENTLOG_LOGGER.error(
                "router %r: its snapshot after event %d is damaged", row.name, plan.base
            )
            bases.discard(plan.base)
            plan = choose_drop(segments, bases, router.segment.refers, now - self.keep_us)
        if plan is not None:
            self.store.drop_segments(row.number, *plan)
            self.to_delete.append(row.number)
            EVENTLOG_LOGGER.info(
                "router %r: dropped the events up to %d of its log", row.name, plan.last
            )
