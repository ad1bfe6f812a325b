"""RouterRepository: the routers that a process has open under leases, and their uncommitted events.

A lease expires by itself. The owner's name contains machine and process, so that a server that
starts on the same machine sees that the owner is dead, and need not wait.
"""

import logging
import os
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from bylot.errors import LeaseLost, RouterBusy, RouterNotFound, StoreCorrupted, StoreUnavailable
from bylot.eventlog import snapshot
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.clock import BOOT_CLOCK, compute_clock_lead
from bylot.eventlog.events import read_decision_by_key, read_decision_events
from bylot.eventlog.loading import load_aggregate
from bylot.store import DecisionEvents, Event, RouterRow, Segment, Snapshot, Store

EVENTLOG_LOGGER = logging.getLogger("bylot.eventlog")

LEASE_S = 10.0
MIN_EVENTS_BETWEEN_SNAPSHOTS = 1_000
SNAPSHOT_BYTES_PER_EVENT = 100  # at most
MAX_REPLAY_S = 10.0  # work after which a snapshot is due in any case
SEGMENT_EVENTS, SEGMENT_US = 100_000, 86_400_000_000  # a segment ends after either: a day
SEGMENT_SNAPSHOT_BYTES_PER_EVENT = 20  # at most: the snapshots after segments are kept
DAMAGED_LOG_RETRY_US = 10_000_000
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE_FILE = Path("/proc/self/ns/pid")  # a process id is unique within a container only


def make_owner_name() -> str:
    """A unique name of this process: machine/process@start/random."""
    pid = os.getpid()
    return f"{identify_machine()}/{pid}@{read_process_start(pid)}/{secrets.token_hex(4)}"


def identify_machine() -> str:
    """The machine since its last boot, as seen from this process."""
    try:
        boot = f"{BOOT_ID_FILE.read_text().strip()}:{os.readlink(PID_NAMESPACE_FILE)}"
    except OSError:  # unknown: no two machines are taken to be the same
        boot = secrets.token_hex(8)
    return f"{socket.gethostname()}:{boot}"


def read_process_start(pid: int) -> str:
    """The start of a process, in ticks since boot; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def is_dead_owner(owner: str) -> bool:
    """Whether an owner was a process of this machine that has ended."""
    where, _, rest = owner.partition("/")
    pid, _, since = rest.partition("/")[0].partition("@")
    return where == identify_machine() and pid.isdigit() and read_process_start(int(pid)) != since


def describe_owner(owner: str) -> str:
    """An owner, for people.

    >>> describe_owner("ward-3:5f0c:pid:[4026531836]/4711@90125/a1b2c3d4")
    'process 4711 on ward-3'
    """
    where, _, rest = owner.partition("/")
    pid, at, _ = rest.partition("@")
    return f"process {pid} on {where.partition(':')[0]}" if at else repr(owner)


def release_dead_leases(store: Store) -> None:
    """Release the leases of servers of this machine that have ended."""
    for owner in store.lease_owners():
        if is_dead_owner(owner):
            store.release(owner)


class OpenRouter:
    """An open router: its row, its aggregate, and when to take a snapshot."""

    def __init__(self, row: RouterRow, aggregate: RouterAggregate, every: int) -> None:
        self.row, self.aggregate = row, aggregate
        self.saved_seq = aggregate.seq  # of the last snapshot, or when it was opened
        self.snapshot_due = aggregate.seq + every  # the first seq with a new snapshot
        self.work_s = 0.0  # of the events since then, which a replay would take again
        self.expired = 0  # decisions before this event are no longer known to callers
        self.writing: snapshot.SnapshotWrite | None = None

    def is_snapshot_due(self) -> bool:
        """Whether enough events, or enough work, came after the last snapshot."""
        due = self.aggregate.seq >= self.snapshot_due or self.work_s >= MAX_REPLAY_S
        return due and self.writing is None

    def is_segment_due(self, taken: Snapshot) -> bool:
        """Whether the segment of the log should end here, where a snapshot was taken."""
        start = self.aggregate.segment
        events = self.aggregate.seq + 1 - start.first
        age_us = self.aggregate.at - (start.at or self.row.created)
        old = age_us >= SEGMENT_US and events >= MIN_EVENTS_BETWEEN_SNAPSHOTS
        small = len(taken.body) <= events * SEGMENT_SNAPSHOT_BYTES_PER_EVENT
        return small and (old or events >= SEGMENT_EVENTS)


class UncommittedEvents:
    """Events of one router that are not in the store yet."""

    def __init__(self) -> None:
        self.events: list[Event] = []  # in order
        self.by_key: dict[str, Event] = {}  # decisions, by idempotency key
        self.about: dict[int, list[Event]] = defaultdict(list)  # by the seq of their decision
        self.segments: list[Segment] = []  # that ended before one of them

    def add(self, event: Event) -> None:
        self.events.append(event)
        if event.of is not None:
            self.about[event.of].append(event)
        if event.kind == "decided" and event.key is not None:
            self.by_key[event.key] = event


class RouterRepository:
    """Opens routers under leases and commits their events in one transaction.

    A router that is ahead of what could be written is closed, and loaded from the store again.
    Reads see uncommitted events together with those in the store.

    owner: a name that no other process has
    lease: seconds until an unrenewed lease expires
    every: events of a log between two snapshots
    check_router: raises an error for a router that cannot be loaded now
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        lease: float = LEASE_S,
        every: int = MIN_EVENTS_BETWEEN_SNAPSHOTS,
        check_router: Callable[[Store, RouterRow], None] = lambda store, row: None,
    ) -> None:
        self.check_router = check_router
        self.store, self.owner, self.lease, self.every = store, owner, lease, every
        self.uncommitted: dict[int, UncommittedEvents] = defaultdict(UncommittedEvents)
        self.opened: dict[str, OpenRouter] = {}
        self.damaged: dict[str, tuple[int, StoreCorrupted]] = {}  # when it was found, and how
        self.renewed_s = time.clock_gettime(BOOT_CLOCK)  # when all leases were renewed
        self.keep_us: int | None = None  # microseconds for which events are kept; None: for ever
        self.is_leaving = False  # this process stops, and opens no router any more

    def get(self, name: str, at: int) -> RouterAggregate:
        """A router, opened if it is not open."""
        one = self.opened.get(name)
        return self.open(name, at) if one is None else one.aggregate

    def open(self, name: str, at: int) -> RouterAggregate:
        """Take the lease of a router and load it."""
        if self.is_leaving:
            raise RouterBusy("this server stops", seconds=0.0, remedy="ask another server")
        found, error = self.damaged.get(name, (0, None))
        if error is not None and at < found + DAMAGED_LOG_RETRY_US:
            raise error
        row = self.store.find(name)
        if row is None:
            raise RouterNotFound(
                f"no router named {name!r}", remedy="create it, or check the spelling"
            )
        self.check_router(self.store, row)
        self.claim(row)
        start = time.perf_counter()
        try:
            loaded = load_aggregate(self.store, row, lambda: self.renew_after(self.lease / 3))
        except StoreCorrupted as damage:
            self.abandon(name, at, damage)
            self.store.release(self.owner, [row.number])
            raise
        loaded.lead = compute_clock_lead(name, loaded.at, at)
        self.add_opened(row, loaded)
        self.opened[name].work_s = time.perf_counter() - start  # the next one need not do it again
        self.opened[name].expired = self.find_expired(row.number, loaded.local_time(at))
        return loaded

    def add_opened(self, row: RouterRow, aggregate: RouterAggregate) -> None:
        """Add a router, whose lease was taken, to those that are open."""
        aggregate.find_events = lambda seq: self.find_decision(row.number, seq)
        self.opened[row.name] = OpenRouter(row, aggregate, self.every)
        self.damaged.pop(row.name, None)

    def claim(self, row: RouterRow) -> None:
        """Take or renew the lease of a router; RouterBusy if another server has it."""
        seconds = self.store.lease(row.number, self.owner, self.lease)
        if seconds is not None:
            owners = ", ".join(map(describe_owner, self.store.lease_owners(row.number)))
            raise RouterBusy(
                f"router {row.name!r} is leased by another server ({owners}); the lease expires in "
                f"{seconds:.1f} s unless renewed",
                seconds=seconds,
                remedy="send requests there, or start all servers with --advertise",
            )

    def abandon(self, name: str, at: int, error: Exception) -> None:
        """Close a router that cannot continue; a damaged log is not read again for a while."""
        if isinstance(error, StoreCorrupted):
            self.damaged[name] = at, error
        EVENTLOG_LOGGER.error("router %r closed: %s", name, error)
        self.drop([name])

    def drop(self, names: Iterable[str]) -> None:
        """Close routers, and discard their uncommitted events."""
        closed = [self.opened.pop(name) for name in names if name in self.opened]
        self.discard(one.row.number for one in closed)

    def add(self, event: Event) -> Event:
        """Add the next event of a router's log to those that `commit` will write."""
        self.uncommitted[event.router].add(event)
        return event

    def discard(self, routers: Iterable[int]) -> None:
        """Remove the uncommitted events of some routers."""
        for router in routers:
            self.uncommitted.pop(router, None)

    def find_expired(self, router: int, at: int) -> int:
        """The first event after the segments that were dropped, or are older than `keep_us`."""
        before = 0 if self.keep_us is None else at - self.keep_us
        segments = self.store.segments(router)
        ends = [one.last for one in segments if one.dropped or one.ended < before]
        return max(ends, default=-1) + 1

    def find_key(self, name: str, key: str) -> Event | None:
        """The decision that a router made under an idempotency key."""
        number, expired = self.opened[name].row.number, self.opened[name].expired
        waiting = self.uncommitted.get(number)
        found = waiting and waiting.by_key.get(key)
        return found or read_decision_by_key(self.store, number, key, expired)

    def find_event(self, router: int, seq: int) -> Event | None:
        """One event of a log, not verified if it is in the store."""
        return self.find_uncommitted(router, seq) or self.store.event(router, seq)

    def find_uncommitted(self, router: int, seq: int) -> Event | None:
        """One event of those that `commit` will write."""
        waiting = self.uncommitted.get(router)
        events = waiting.events if waiting else []
        place = seq - events[0].seq if events else -1
        return events[place] if 0 <= place < len(events) else None

    def find_decision(self, router: int, seq: int) -> DecisionEvents | None:
        """A decision and the later events about it."""
        waiting = self.uncommitted.get(router)
        since = waiting.about.get(seq, []) if waiting else []
        made = self.find_uncommitted(router, seq)
        if made is not None:
            return DecisionEvents(made, since) if made.kind == "decided" else None
        stored = read_decision_events(self.store, router, seq)
        return None if stored is None else DecisionEvents(stored.decided, [*stored.since, *since])

    def commit(self) -> dict[str, Exception]:
        """Write all uncommitted events; returns the routers for which that failed, and why.

        If another writer has taken over a router, or one has an event that cannot be written, the
        events of the others are written all the same. A snapshot never prevents that.
        """
        failed: dict[str, Exception] = {}
        events = self.uncommitted
        while events:
            names = [name for name, one in self.opened.items() if one.row.number in events]
            try:
                snapshots = self.take_snapshots(names)  # may add events
                batch = [event for part in events.values() for event in part.events]
                ended = [one for part in events.values() for one in part.segments]
                self.store.append(batch, snapshots, ended)
                self.discard(list(events))
            except LeaseLost as error:
                lost = [n for n in names if self.opened[n].row.number in error.routers] or names
                failed |= dict.fromkeys(lost, error)
                self.drop(lost)
            except StoreUnavailable as error:
                failed |= dict.fromkeys(names, error)
                self.drop(names)
            except Exception:  # of one of them, or of a snapshot
                failed |= self.commit_separately(names)
        return failed

    def commit_separately(self, names: Iterable[str]) -> dict[str, Exception]:
        """Write the events of each router on their own, without snapshots."""
        failed: dict[str, Exception] = {}
        for name in names:
            number = self.opened[name].row.number
            try:
                self.store.append(
                    self.uncommitted[number].events, (), self.uncommitted[number].segments
                )
                self.discard([number])
            except Exception as error:
                failed[name] = error
                self.drop([name])
        return failed

    def take_snapshots(self, names: Iterable[str]) -> list[Snapshot]:
        """Small snapshots that are due: neither too often nor too large for the growth of the log.
        A large one is written later. Segments of logs end here, which adds events.
        """
        made = []
        for one in map(self.opened.__getitem__, names):
            if one.is_snapshot_due():
                seq = one.aggregate.seq
                one.snapshot_due, one.work_s = seq + self.every, 0.0  # also if this one fails
                new = one.aggregate.take_snapshot()
                if one.is_segment_due(new):
                    self.end_segment(one, new)
                one.snapshot_due = seq + max(self.every, len(new.body) // SNAPSHOT_BYTES_PER_EVENT)
                if len(new.body) > snapshot.SNAPSHOT_PART_BYTES:
                    one.writing = snapshot.SnapshotWrite(new)
                else:
                    made.append(new)
                    one.saved_seq = seq
        return made

    def end_segment(self, one: OpenRouter, taken: Snapshot) -> None:
        """End the segment of a log after a snapshot."""
        segment, event = one.aggregate.seal_segment(taken)
        self.add(event)
        self.uncommitted[segment.router].segments.append(segment)

    def write_parts(self) -> bool:
        """Write parts of one of the snapshots that are being written; whether there was any. One
        that cannot be written is given up: it only saves time.
        """
        for one in self.opened.values():
            if one.writing is not None:
                write, one.writing = one.writing, None
                if write.write_parts(self.store, one.work_s):
                    one.writing = write
                else:
                    one.saved_seq = write.snapshot.seq
                return True
        return False

    def record_work(self, name: str, seconds: float) -> None:
        """Record how long a router worked on events that are not committed yet."""
        one = self.opened.get(name)
        if one is not None and one.row.number in self.uncommitted:
            one.work_s += seconds

    def check_current(self, name: str) -> None:
        """LeaseLost, and the router is closed, if another writer has continued its log.

        Uncommitted events need no check: their commit fails if they are not the next ones.
        """
        one = self.opened.get(name)
        if one is None or one.row.number in self.uncommitted:
            return
        if self.store.last_seq(one.row.number) != one.aggregate.seq:
            self.drop([name])
            raise LeaseLost(
                f"router {name!r}: another server has continued its log",
                routers=(one.row.number,),
                remedy="send the request again",
            )

    def renew_after(self, seconds: float) -> None:
        """Renew the leases if that was not done for so long."""
        if time.clock_gettime(BOOT_CLOCK) - self.renewed_s > seconds:
            self.renew()

    def renew(self) -> None:
        """Renew the leases of all open routers; those that were lost are closed.

        One with uncommitted events stays open: their commit fails, and then it is closed.
        """
        now = time.clock_gettime(BOOT_CLOCK)
        owned = self.store.renew(self.owner, self.lease) | self.uncommitted.keys()
        self.renewed_s = now
        self.drop([name for name, one in self.opened.items() if one.row.number not in owned])

    def release(self, name: str) -> None:
        """Close one router as `close` does; its events are committed."""
        one = self.opened[name]
        self.save(one)
        self.store.release(self.owner, [one.row.number])
        self.drop([name])

    def release_all(self) -> None:
        """Close all routers as `close` does, one after the other."""
        self.commit()
        for name in list(self.opened):
            self.release(name)

    def close(self) -> None:
        """Write a snapshot of every router that has changed, and release the leases.

        A snapshot that cannot be written is logged: it only saves time.
        """
        try:
            self.commit()
            for one in self.opened.values():
                self.save(one)
        finally:
            self.store.release(self.owner)
            self.drop(list(self.opened))

    def save(self, one: OpenRouter) -> None:
        """Write a snapshot of a router that has changed, if possible."""
        try:
            if one.aggregate.seq > one.saved_seq:
                write = snapshot.SnapshotWrite(one.aggregate.take_snapshot())
                while write.write_part(self.store):
                    self.renew_after(self.lease / 3)
        except Exception as error:
            EVENTLOG_LOGGER.error("router %r: no snapshot was written: %s", one.row.name, error)
