"""Audit: prove that replaying a router's log gives exactly what the store contains."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping
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


class LoggedCosts:
    """The costs of a log: for each cost a column of stated and one of settled costs, with a number
    for each decision.

    early: settled costs of decisions from before the cost was introduced, by name and the number of
           decisions at that time; its sums contain them
    """

    def __init__(self) -> None:
        self.decisions = array("q")  # their seqs, in order
        self.stated: dict[str, array[float]] = {}
        self.settled: dict[str, array[float]] = {}
        self.early: dict[tuple[str, int], list[float]] = {}

    def add(self, event: Event, since: Mapping[str, int]) -> None:
        """Add an event; since: the decisions before each cost was introduced."""
        body = BODY_DECODERS[event.kind](event.body)
        if event.kind == "decided":
            for name, cost in body.spend.items():
                self.column(self.stated, name).append(cost)
                self.column(self.settled, name).append(cost)
            self.decisions.append(event.seq)
        elif event.kind == "cancelled" and event.of is not None:  # it costs nothing
            t = bisect_left(self.decisions, event.of)
            for column in (*self.stated.values(), *self.settled.values()):
                if t < len(column):
                    column[t] = 0.0
        elif event.kind == "replaced" and event.of is not None:  # nothing was reported before
            t = bisect_left(self.decisions, event.of)
            for name, cost in body.spend.items():
                self.column(self.stated, name)[t] = self.column(self.settled, name)[t] = cost
        elif event.kind == "rewarded" and event.of is not None:
            t = bisect_left(self.decisions, event.of)
            for name, cost in (body.spend or {}).items():
                column = self.column(self.settled, name)
                if t < since.get(name, 0):
                    self.early.setdefault((name, since[name]), []).extend((cost, -column[t]))
                column[t] = cost

    def column(self, columns: dict[str, "array[float]"], name: str) -> "array[float]":
        """The column of a cost, with 0 for all decisions that it has no number of."""
        column = columns.setdefault(name, array("d"))
        column.extend([0.0] * (len(self.decisions) - len(column)))
        return column

    def totals(self, cost: str, since: int) -> tuple[float, float]:
        """The sums of the stated and the settled cost over decisions from number `since` on."""
        stated, settled = self.column(self.stated, cost), self.column(self.settled, cost)
        early = self.early.get((cost, since), [])
        return math.fsum(stated[since:]), math.fsum([*settled[since:], *early])


def audit_router(store: Store, name: str) -> AuditResult:
    """Replay the whole log: events, snapshot and the state at a start must agree bit for bit."""
    row = store.find(name)
    if row is None:
        raise RouterNotFound(f"no router named {name!r} in {store.address}")
    try:
        aggregate = aggregate_from_first_event(store, row)
    except StoreCorrupted as error:
        return AuditResult(name, 0, 0, "", str(error))
    costs, fault = LoggedCosts(), None
    try:
        fault = find_fault(store, row, aggregate, costs)
    except StoreCorrupted as error:
        fault = str(error)
    decisions = len(costs.decisions)
    return AuditResult(row.name, aggregate.seq + 1, decisions, aggregate.fingerprint(), fault)


def find_fault(
    store: Store, row: RouterRow, aggregate: RouterAggregate, costs: LoggedCosts
) -> str | None:
    """Replay the rest of the log; returns the first thing that differs."""
    snapshot, same = store.snapshot(row.number), True
    for event in iterate_events(store, row.number, aggregate.seq):
        aggregate.replay(event)
        costs.add(event, aggregate.core.uncounted.since)
        if snapshot is not None and snapshot.seq == event.seq:
            same = aggregate.take_snapshot() == snapshot
    if snapshot is not None and snapshot.seq > aggregate.seq:
        return f"there is a snapshot after event {snapshot.seq}, but the log ends before it"
    if snapshot is not None and not same:
        return f"the snapshot after event {snapshot.seq} is not the replay's"
    loaded = load_aggregate(store, row)
    if loaded.seq == aggregate.seq and loaded.fingerprint() != aggregate.fingerprint():
        return "the latest snapshot and the events after it give another state"
    core, tolerance = aggregate.core, AUDIT_RELATIVE_TOLERANCE
    for name, settled in core.name_costs(core.totals.spent).items():
        totals = costs.totals(name, core.uncounted.since.get(name, 0))
        for booked, total in zip((aggregate.stated[name], settled), totals, strict=True):
            if not math.isclose(booked, total, rel_tol=tolerance, abs_tol=tolerance):
                return f"the router has booked {booked!r} of {name}, but its log sums to {total!r}"
    return None
