"""Audit: prove that replaying a router's log gives exactly what the store contains."""

import math
from array import array
from bisect import bisect_left
from typing import NamedTuple

from bylot.errors import RouterNotFound, StoreCorrupted
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.events import BODY_DECODERS
from bylot.eventlog.repository import aggregate_from_first_event, iterate_events, load_aggregate
from bylot.store import Event, RouterRow, Store

AUDIT_RELATIVE_TOLERANCE = 1e-9  # the sums are taken in another order


class AuditResult(NamedTuple):
    """The result of an audit; `fault` is None if everything agrees."""

    router: str
    events: int  # that agree
    decisions: int
    fingerprint: str  # of the state after the last of them
    fault: str | None


class StatedCosts:
    """The stated costs of a log: a column per cost, with a number for each decision."""

    def __init__(self) -> None:
        self.decisions = array("q")  # their seqs, in order
        self.columns: dict[str, array[float]] = {}

    def add(self, event: Event) -> None:
        """Add an event; a cancelled decision costs nothing."""
        if event.kind == "decided":
            for name, cost in BODY_DECODERS["decided"](event.body).spend.items():
                column = self.columns.setdefault(name, array("d"))
                column.extend([0.0] * (len(self.decisions) - len(column)))  # a new cost
                column.append(cost)
            self.decisions.append(event.seq)
        elif event.kind == "cancelled" and event.of is not None:
            t = bisect_left(self.decisions, event.of)
            for column in self.columns.values():
                if t < len(column):
                    column[t] = 0.0

    def total(self, cost: str, since: int) -> float:
        """The sum of a cost over the decisions from number `since` on."""
        return math.fsum(self.columns.get(cost, array("d"))[since:])


def audit_router(store: Store, name: str) -> AuditResult:
    """Replay the whole log: every event must result again bit for bit, and so must the snapshot
    and the state that a server would start with.
    """
    row = store.find(name)
    if row is None:
        raise RouterNotFound(f"no router named {name!r} in {store.address}")
    try:
        aggregate = aggregate_from_first_event(store, row)
    except StoreCorrupted as error:
        return AuditResult(name, 0, 0, "", str(error))
    stated, fault = StatedCosts(), None
    try:
        fault = find_fault(store, row, aggregate, stated)
    except StoreCorrupted as error:
        fault = str(error)
    decisions = len(stated.decisions)
    return AuditResult(row.name, aggregate.seq + 1, decisions, aggregate.fingerprint(), fault)


def find_fault(
    store: Store, row: RouterRow, aggregate: RouterAggregate, stated: StatedCosts
) -> str | None:
    """Replay the rest of the log; returns the first thing that differs."""
    snapshot, same = store.snapshot(row.number), True
    for event in iterate_events(store, row.number, aggregate.seq):
        aggregate.replay(event)
        stated.add(event)
        if snapshot is not None and snapshot.seq == event.seq:
            same = aggregate.take_snapshot() == snapshot
    if snapshot is not None and snapshot.seq > aggregate.seq:
        return f"there is a snapshot after event {snapshot.seq}, but the log ends before it"
    if snapshot is not None and not same:
        return f"the snapshot after event {snapshot.seq} is not the replay's"
    loaded = load_aggregate(store, row)
    if loaded.seq == aggregate.seq and loaded.fingerprint() != aggregate.fingerprint():
        return "the latest snapshot and the events after it give another state"
    tolerance = AUDIT_RELATIVE_TOLERANCE
    for name, booked in aggregate.stated.items():
        total = stated.total(name, aggregate.core.uncounted.since.get(name, 0))
        if not math.isclose(booked, total, rel_tol=tolerance, abs_tol=tolerance):
            return f"the router has booked {booked!r} of {name}, but its log sums to {total!r}"
    return None
