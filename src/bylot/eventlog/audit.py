"""Proof that a router's log, played from its first line, is what the store says it is."""

import math
from array import array
from bisect import bisect_left
from typing import NamedTuple

from bylot.errors import RouterNotFound, StoreCorrupted
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.hash_chain import read_decision_events
from bylot.eventlog.history import BODY_DECODERS
from bylot.eventlog.repository import aggregate_from_first_event, iterate_events, load_aggregate
from bylot.store import Event, RouterRow, Store


class StatedCosts:
    """A column for every cost that was ever stated, with a number for each decision."""

    def __init__(self) -> None:
        self.lines = array("q")  # of the decisions, in order
        self.columns: dict[str, array[float]] = {}

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, event: Event) -> None:
        """One more line; a decision that was taken back costs nothing."""
        if event.kind == "decided":
            for name, cost in BODY_DECODERS["decided"](event.body).spend.items():
                column = self.columns.setdefault(name, array("d"))
                column.extend([0.0] * (len(self.lines) - len(column)))  # it was not stated before
                column.append(cost)
            self.lines.append(event.seq)
        elif event.kind == "cancelled" and event.of is not None:
            t = bisect_left(self.lines, event.of)
            for column in self.columns.values():
                if t < len(column):
                    column[t] = 0.0

    def total(self, cost: str, since: int) -> float:
        """The sum of a cost over the decisions from number `since` on."""
        return math.fsum(self.columns.get(cost, array("d"))[since:])


AUDIT_RELATIVE_TOLERANCE = (
    1e-9  # relative: sums of the log are taken in another way than the ledger's
)


class AuditResult(NamedTuple):
    """What an audit came to; `fault` is None if everything agrees."""

    router: str
    lines: int  # that agree
    decisions: int
    fingerprint: str  # of the state after the last of them
    fault: str | None


def audit_router(store: Store, name: str) -> AuditResult:
    """Play the whole log again: every line must come out as it is, to the last bit; so must the
    snapshot on the way, and the state that a server would begin with.
    """
    row = store.find(name)
    if row is None:
        raise RouterNotFound(f"there is no router {name!r} in {store.address}")
    try:
        fold = aggregate_from_first_event(store, row)
    except StoreCorrupted as damage:
        return AuditResult(name, 0, 0, "", str(damage))
    return replay_and_compare(store, row, fold)


def replay_and_compare(store: Store, row: RouterRow, fold: RouterAggregate) -> AuditResult:
    """The rest of the log, line by line."""
    fold.recall = lambda seq: read_decision_events(store, row.number, seq)
    kept, stated, fault = store.snapshot(row.number), StatedCosts(), None
    try:
        for event in iterate_events(store, row.number, fold.seq):
            fold.replay(event)
            stated.take(event)
            if kept is not None and event.seq == kept.seq and fold.freeze() != kept:
                fault = f"the snapshot after line {kept.seq} is not what the log adds up to"
        if kept is not None and kept.seq > fold.seq:
            fault = f"there is a snapshot after line {kept.seq}, and the log ends before it"
        fault = fault or find_state_mismatch(store, row, fold) or find_cost_mismatch(fold, stated)
    except StoreCorrupted as damage:
        fault = str(damage)
    return AuditResult(row.name, fold.seq + 1, len(stated), fold.fingerprint(), fault)


def find_state_mismatch(store: Store, row: RouterRow, fold: RouterAggregate) -> str | None:
    """Is this not the state that a server would begin with now?"""
    found = load_aggregate(store, row)
    if found.seq == fold.seq and found.fingerprint() != fold.fingerprint():
        return "the latest snapshot and the lines after it add up to another state"
    return None


def find_cost_mismatch(fold: RouterAggregate, stated: StatedCosts) -> str | None:
    """Are the books other than the sums of the log, taken in another way?"""
    for name, book in fold.stated.items():
        total = stated.total(name, fold.router.since.get(name, 0))
        if not math.isclose(
            book, total, rel_tol=AUDIT_RELATIVE_TOLERANCE, abs_tol=AUDIT_RELATIVE_TOLERANCE
        ):
            return f"the books have {book!r} of {name}, the lines of the log add up to {total!r}"
    return None
