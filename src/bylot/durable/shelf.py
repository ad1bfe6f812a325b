"""The routers that a process has open, and the lines they made that are not yet in the store."""

import logging
from collections.abc import Iterable

from bylot.durable.fold import Fold
from bylot.durable.opening import opened
from bylot.durable.owner import known_as
from bylot.durable.pending import Pending
from bylot.errors import Fenced, NoSuchRouter, RouterBusy, StoreDamaged, StoreDown
from bylot.store import Event, RouterRow, Snapshot, Store

log = logging.getLogger("bylot.durable")

LEASE = 15.0  # seconds; a server that was killed leaves its routers to others after that
EVERY = 1_000  # lines between two snapshots of a router, at least
DENSITY = 100  # bytes of snapshot per line of the log, at most
SICK = 10_000_000  # microseconds until a damaged log is looked at again


class Shelf:
    """Opens routers under a lease, and writes what they made: all of it in one transaction.

    A router that is ahead of what could be written is let go, and opened from the store again.
    """

    def __init__(self, store: Store, owner: str, lease: float = LEASE, every: int = EVERY) -> None:
        self.store, self.owner, self.lease, self.every = store, owner, lease, every
        self.pending = Pending(store)
        self.folds: dict[str, Fold] = {}
        self.rows: dict[str, RouterRow] = {}  # of the open ones
        self.frozen: dict[str, int] = {}  # the line after which it was opened, or frozen since
        self.due: dict[str, int] = {}  # the line from which on a snapshot is to be taken
        self.sick: dict[str, tuple[int, StoreDamaged]] = {}  # when a log was found damaged

    def fold(self, name: str, at: int) -> Fold:
        """An open router, opened if it is not."""
        fold = self.folds.get(name)
        return self.open(name, at) if fold is None else fold

    def open(self, name: str, at: int) -> Fold:
        """Take the lease of a router and bring it up to the end of its log."""
        seen, error = self.sick.get(name, (0, None))
        if error is not None and at < seen + SICK:
            raise error
        row = self.store.find(name)
        if row is None:
            raise NoSuchRouter(
                f"there is no router {name!r}; create it first, or mind the spelling"
            )
        self.claim(row)
        try:
            fold = opened(self.store, row)
        except StoreDamaged as damage:
            self.give_up(name, at, damage)
            self.store.release(self.owner, [row.number])
            raise
        return self.place(row, fold)

    def claim(self, row: RouterRow) -> None:
        """Take the lease of a router, or see that it is ours."""
        others = self.store.lease(row.number, self.owner, self.lease)
        if others is not None:
            who = ", ".join(map(known_as, self.store.owners(row.number)))
            raise RouterBusy(
                f"router {row.name!r} is in the hands of another server ({who}) for {others:.1f} s "
                "more, or longer if that one runs; ask it there",
                others,
            )

    def give_up(self, name: str, at: int, error: Exception) -> None:
        """Let go of a router that cannot be gone on with, for some time if its log is damaged."""
        if isinstance(error, StoreDamaged):
            self.sick[name] = at, error
        log.error("router %r is let go: %s", name, error)
        self.drop([name])

    def place(self, row: RouterRow, fold: Fold) -> Fold:
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
            except Fenced as error:
                lost = [name for name in touched if self.rows[name].number in error.routers]
                failed |= dict.fromkeys(lost or touched, error)
                self.drop(lost or touched)
            except StoreDown as error:
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
                self.due[name] = fold.seq + max(self.every, len(made[-1].body) // DENSITY)
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
