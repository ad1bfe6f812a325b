"""The routers that a process has open, and the lines they made that are not yet in the store."""

import logging
import os
import secrets
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from bylot.errors import LeaseLost, RouterBusy, RouterNotFound, StoreCorrupted, StoreUnavailable
from bylot.eventlog import hash_chain
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.hash_chain import read_decision_events
from bylot.store import DecisionEvents, Event, RouterRow, Snapshot, Store

EVENTS_PER_PAGE = 1000  # lines read at a time


def load_aggregate(store: Store, row: RouterRow) -> RouterAggregate:
    """The fold of a router's log. A snapshot that is damaged is done without."""
    fold = aggregate_from_latest_snapshot(store, row) or aggregate_from_first_event(store, row)
    fold.recall = lambda seq: read_decision_events(store, row.number, seq)
    for event in iterate_events(store, row.number, fold.seq):
        fold.replay(event)
    return fold


def aggregate_from_latest_snapshot(store: Store, row: RouterRow) -> RouterAggregate | None:
    """The fold of the latest snapshot, if there is one and it is what was written."""
    snapshot = store.snapshot(row.number)
    if snapshot is None:
        return None
    try:
        fold = RouterAggregate.thaw(row.name, snapshot)
    except StoreCorrupted:
        return None
    last = store.event(row.number, snapshot.seq)
    if last is None or last.seal != fold.seal:
        raise StoreCorrupted(
            f"router {row.name!r}: its snapshot is of line {snapshot.seq}, which its log "
            f"{'does not have' if last is None else 'has otherwise'}; restore the store from a copy"
        )
    return fold


def aggregate_from_first_event(store: Store, row: RouterRow) -> RouterAggregate:
    """The fold of the first line alone."""
    first = store.event(row.number, 0)
    if first is None:
        raise StoreCorrupted(
            f"router {row.name!r} has no first line in its log; restore the store from a copy"
        )
    return RouterAggregate.begin(row.name, first)


def iterate_events(store: Store, router: int, after: int = -1) -> Iterator[Event]:
    """All lines of a log after one, in order."""
    while page := store.events(router, after, EVENTS_PER_PAGE):
        yield from page
        after = page[-1].seq


BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE_FILE = Path("/proc/self/ns/pid")  # what a number of a process means, in a container


def make_owner_name() -> str:
    """A name that no other server has, now or later: machine/process/chance."""
    pid = os.getpid()
    return f"{identify_machine()}/{pid}@{read_process_start(pid)}/{secrets.token_hex(4)}"


def identify_machine() -> str:
    """The machine we are on, since it was booted, as seen from this process."""
    try:
        seen = f"{BOOT_ID_FILE.read_text().strip()}:{os.readlink(PID_NAMESPACE_FILE)}"
    except OSError:  # where the system does not tell, no two are taken to be the same
        seen = secrets.token_hex(8)
    return f"{socket.gethostname()}:{seen}"


def read_process_start(pid: int) -> str:
    """When a process began, in ticks since the machine did; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def is_dead_owner(owner: str) -> bool:
    """Was this the name of a process of this machine that is no more?"""
    where, _, rest = owner.partition("/")
    pid, _, since = rest.partition("/")[0].partition("@")
    return where == identify_machine() and pid.isdigit() and read_process_start(int(pid)) != since


def describe_owner(owner: str) -> str:
    """An owner as people know it.

    >>> describe_owner("ward-3:5f0c:pid:[4026531836]/4711@90125/a1b2c3d4")
    'process 4711 on ward-3'
    """
    where, _, rest = owner.partition("/")
    pid, at, _ = rest.partition("@")
    return f"process {pid} on {where.partition(':')[0]}" if at else repr(owner)


def release_dead_leases(store: Store) -> None:
    """Give back the leases of servers that ran on this machine and are gone."""
    for owner in store.lease_owners():
        if is_dead_owner(owner):
            store.release(owner)


class UncommittedEvents:
    """The lines of one batch, looked up together with those that the store has."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lines: dict[int, list[Event]] = defaultdict(list)  # by router
        self.keyed: dict[tuple[int, str], Event] = {}
        self.decided: dict[tuple[int, int], Event] = {}

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, event: Event) -> None:
        """One more line, the next of its router's log."""
        self.lines[event.router].append(event)
        if event.kind == "decided":
            self.decided[event.router, event.seq] = event
            if event.key is not None:
                self.keyed[event.router, event.key] = event

    def forget(self, router: int) -> None:
        """Lines that will not be written."""
        self.lines.pop(router, None)
        self.keyed = {at: event for at, event in self.keyed.items() if at[0] != router}
        self.decided = {at: event for at, event in self.decided.items() if at[0] != router}

    def clear(self) -> None:
        """All of it is written, or none of it will be."""
        self.lines.clear()
        self.keyed.clear()
        self.decided.clear()

    def events(self) -> list[Event]:
        """All lines, those of a router in their order."""
        return [event for lines in self.lines.values() for event in lines]

    def find(self, router: int, key: str) -> Event | None:
        """The decision made under a key."""
        return self.keyed.get((router, key)) or hash_chain.read_decision_by_key(
            self.store, router, key
        )

    def past(self, router: int, seq: int) -> DecisionEvents | None:
        """A decision and what was said of it since."""
        here = [event for event in self.lines.get(router, ()) if event.of == seq]
        made = self.decided.get((router, seq))
        if made is not None:
            return DecisionEvents(made, here)
        before = hash_chain.read_decision_events(self.store, router, seq)
        return None if before is None else DecisionEvents(before.decided, [*before.since, *here])


EVENTLOG_LOGGER = logging.getLogger("bylot.eventlog")

LEASE_S = 15.0  # seconds; a server that was killed leaves its routers to others after that
MIN_EVENTS_BETWEEN_SNAPSHOTS = 1_000  # lines between two snapshots of a router, at least
MAX_SNAPSHOT_BYTES_PER_EVENT = 100  # bytes of snapshot per line of the log, at most
DAMAGED_LOG_RETRY_US = 10_000_000  # microseconds until a damaged log is looked at again


class RouterRepository:
    """Opens routers under a lease, and writes what they made: all of it in one transaction.

    A router that is ahead of what could be written is let go, and opened from the store again.
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        lease: float = LEASE_S,
        every: int = MIN_EVENTS_BETWEEN_SNAPSHOTS,
    ) -> None:
        self.store, self.owner, self.lease, self.every = store, owner, lease, every
        self.pending = UncommittedEvents(store)
        self.folds: dict[str, RouterAggregate] = {}
        self.rows: dict[str, RouterRow] = {}  # of the open ones
        self.frozen: dict[str, int] = {}  # the line after which it was opened, or frozen since
        self.due: dict[str, int] = {}  # the line from which on a snapshot is to be taken
        self.sick: dict[str, tuple[int, StoreCorrupted]] = {}  # when a log was found damaged

    def fold(self, name: str, at: int) -> RouterAggregate:
        """An open router, opened if it is not."""
        fold = self.folds.get(name)
        return self.open(name, at) if fold is None else fold

    def open(self, name: str, at: int) -> RouterAggregate:
        """Take the lease of a router and bring it up to the end of its log."""
        seen, error = self.sick.get(name, (0, None))
        if error is not None and at < seen + DAMAGED_LOG_RETRY_US:
            raise error
        row = self.store.find(name)
        if row is None:
            raise RouterNotFound(
                f"there is no router {name!r}; create it first, or mind the spelling"
            )
        self.claim(row)
        try:
            fold = load_aggregate(self.store, row)
        except StoreCorrupted as damage:
            self.give_up(name, at, damage)
            self.store.release(self.owner, [row.number])
            raise
        return self.place(row, fold)

    def claim(self, row: RouterRow) -> None:
        """Take the lease of a router, or see that it is ours."""
        others = self.store.lease(row.number, self.owner, self.lease)
        if others is not None:
            who = ", ".join(map(describe_owner, self.store.lease_owners(row.number)))
            raise RouterBusy(
                f"router {row.name!r} is in the hands of another server ({who}) for {others:.1f} s "
                "more, or longer if that one runs; ask it there",
                others,
            )

    def give_up(self, name: str, at: int, error: Exception) -> None:
        """Let go of a router that cannot be gone on with, for some time if its log is damaged."""
        if isinstance(error, StoreCorrupted):
            self.sick[name] = at, error
        EVENTLOG_LOGGER.error("router %r is let go: %s", name, error)
        self.drop([name])

    def place(self, row: RouterRow, fold: RouterAggregate) -> RouterAggregate:
        """Put a router on the shelf."""
        number = row.number
        fold.recall = lambda seq: self.pending.past(number, seq)
        self.folds[row.name], self.rows[row.name] = fold, row
        self.frozen[row.name] = fold.seq
        self.due[row.name] = fold.seq + self.every
        self.sick.pop(row.name, None)
        return fold

    def drop(self, names: Iterable[str]) -> None:
        """Let routers go, and what they made since the last commit."""
        for name in names:
            row = self.rows.pop(name, None)
            if row is not None:
                self.pending.forget(row.number)
            self.folds.pop(name, None)
            self.frozen.pop(name, None)
            self.due.pop(name, None)

    def add(self, event: Event) -> None:
        """A line to be written with the next commit."""
        self.pending.add(event)

    def commit(self) -> dict[str, Exception]:
        """Write all that is pending; the routers for which that failed, with the reason.

        Where another writer has taken over a router, or one has a line that cannot be written, the
        others' lines are written all the same. No snapshot keeps a line from being written.
        """
        failed: dict[str, Exception] = {}
        while self.pending:
            touched = [name for name, row in self.rows.items() if row.number in self.pending.lines]
            try:
                self.store.append(self.pending.events(), self.snapshots(touched))
                self.pending.clear()
            except LeaseLost as error:
                lost = [name for name in touched if self.rows[name].number in error.routers]
                failed |= dict.fromkeys(lost or touched, error)
                self.drop(lost or touched)
            except StoreUnavailable as error:
                failed |= dict.fromkeys(touched, error)
                self.drop(touched)
            except Exception:  # of one of them, or of a snapshot
                failed |= self.one_by_one(touched)
        return failed

    def one_by_one(self, names: Iterable[str]) -> dict[str, Exception]:
        """Write the lines of each router by themselves, without snapshots."""
        failed: dict[str, Exception] = {}
        for name in names:
            number = self.rows[name].number
            try:
                self.store.append(self.pending.lines[number])
                self.pending.forget(number)
            except Exception as error:
                failed[name] = error
                self.drop([name])
        return failed

    def snapshots(self, names: Iterable[str]) -> list[Snapshot]:
        """Of those for which one is due: not too often, nor too much for what the log has grown."""
        made = []
        for name in names:
            fold = self.folds[name]
            if fold.seq >= self.due[name]:
                self.due[name] = fold.seq + self.every
                made.append(fold.freeze())
                self.frozen[name] = fold.seq
                self.due[name] = fold.seq + max(
                    self.every, len(made[-1].body) // MAX_SNAPSHOT_BYTES_PER_EVENT
                )
        return made

    def renew(self) -> None:
        """Keep the leases of all open routers; those that were lost are let go."""
        ours = self.store.renew(self.owner, self.lease)
        self.drop([name for name, row in self.rows.items() if row.number not in ours])

    def close(self) -> None:
        """Leave a snapshot of every router that has changed, and give leases back."""
        self.commit()
        for name, fold in self.folds.items():
            if fold.seq > self.frozen[name]:
                self.store.append([], [fold.freeze()])
        self.store.release(self.owner)
        self.drop(list(self.folds))
