"""Audit: prove that replaying a router's log gives exactly what the store contains."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from itertools import takewhile
from typing import NamedTuple

from bylot.errors import StoreCorrupted
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.events import BODY_DECODERS, verify_chain
from bylot.eventlog.loading import (
    aggregate_from_log_start,
    find_stored_router,
    iterate_events,
    load_aggregate,
)
from bylot.router.core import RouterCore
from bylot.store import Event, RouterRow, Segment, Store

AUDIT_RELATIVE_TOLERANCE = 1e-9  # the sums are taken in another order


class AuditResult(NamedTuple):
    """The result of an audit; `fault` is None if everything agrees.

    first:  the first event of the log; those before it were dropped
    events: that agree
    """

    router: str
    first: int
    events: int
    decisions: int
    fingerprint: str  # of the state after the last of them
    fault: str | None


class LoggedCosts:
    """The costs of a log: for each cost a column of stated and one of settled costs, with a number
    for each decision that is read.

    before: decisions of the part of the log that was dropped
    early:  settled costs of decisions from before the cost was introduced, by name and the number
            of decisions at that time; its sums contain them
    """

    def __init__(self) -> None:
        self.before = 0
        self.decisions = array("q")  # their seqs, in order
        self.stated: dict[str, array[float]] = {}
        self.settled: dict[str, array[float]] = {}
        self.early: dict[tuple[str, int], list[float]] = {}

    def add(self, event: Event, since: Mapping[str, int]) -> None:
        """Add an event; since: the decisions before each cost was introduced."""
        body = BODY_DECODERS[event.kind](event.body)
        if event.of is not None and (not self.decisions or event.of < self.decisions[0]):
            return  # before the snapshot that the replay begins with: nothing later is about it
        if event.kind == "decided":
            if not self.decisions:
                self.before = body.t
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
                if self.before + t < since.get(name, 0):
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
        early, first = self.early.get((cost, since), []), max(0, since - self.before)
        return math.fsum(stated[first:]), math.fsum([*settled[first:], *early])

    def all_totals(self, core: RouterCore) -> dict[tuple[str, int], tuple[float, float]]:
        """The sums of all costs of a router, by name and the decisions before its introduction."""
        since = {name: core.sums.uncounted.since.get(name, 0) for name in core.problem.costs}
        return {one: self.totals(*one) for one in since.items()}


def audit_router(store: Store, name: str) -> AuditResult:
    """Replay the whole log: events, snapshot and the state at a start must agree bit for bit."""
    row = find_stored_router(store, name)
    while True:
        first = store.first_seq(row.number)
        result = audit_from(store, row, first)
        if result.fault is None or store.first_seq(row.number) == first:
            return result  # else a server dropped events meanwhile


def audit_from(store: Store, row: RouterRow, first: int) -> AuditResult:
    """Replay a log that begins with this event."""
    try:
        aggregate = aggregate_from_log_start(store, row)
    except StoreCorrupted as error:
        return AuditResult(row.name, first, 0, 0, "", str(error))
    costs, fault = LoggedCosts(), None
    try:
        fault = find_fault(store, row, aggregate, costs)
    except StoreCorrupted as error:
        fault = str(error)
    counts = aggregate.seq + 1 - first, len(costs.decisions)
    return AuditResult(row.name, first, *counts, aggregate.fingerprint(), fault)


def find_fault(
    store: Store, row: RouterRow, aggregate: RouterAggregate, costs: LoggedCosts
) -> str | None:
    """Replay the rest of the log; returns the first thing that differs."""
    read_without_replay(store, row, aggregate, costs)
    booked_before, logged_before = book_totals(aggregate), costs.all_totals(aggregate.core)
    snapshot, same = store.snapshot(row.number), True
    segments = {one.last: one for one in store.segments(row.number)}
    for event in iterate_events(store, row.number, aggregate.seq):
        if event.kind == "sealed":
            check_segment(store, aggregate, segments.get(event.seq - 1))
        aggregate.replay(event)
        costs.add(event, aggregate.core.sums.uncounted.since)
        if snapshot is not None and snapshot.seq == event.seq:
            same = aggregate.take_snapshot() == snapshot
    if snapshot is not None and snapshot.seq > aggregate.seq:
        return f"there is a snapshot after event {snapshot.seq}, but the log ends before it"
    if snapshot is not None and not same:
        return f"the snapshot after event {snapshot.seq} is not the replay's"
    loaded = load_aggregate(store, row)
    if loaded.seq == aggregate.seq and loaded.fingerprint() != aggregate.fingerprint():
        return "the latest snapshot and the events after it give another state"
    tolerance, logged = AUDIT_RELATIVE_TOLERANCE, costs.all_totals(aggregate.core)
    for key, totals in book_totals(aggregate).items():
        start = zip(booked_before.get(key, (0, 0)), logged_before.get(key, (0, 0)), strict=True)
        offsets = [was - read for was, read in start]  # of the part of the log that is not read
        for booked, total, offset in zip(totals, logged[key], offsets, strict=True):
            total += offset
            if not math.isclose(booked, total, rel_tol=tolerance, abs_tol=tolerance):
                name = key[0]
                return f"the router has booked {booked!r} of {name}, but its log sums to {total!r}"
    return None


def check_segment(store: Store, aggregate: RouterAggregate, stored: Segment | None) -> None:
    """Refuse the row of a segment that ends here, or the snapshot after it, if it was changed."""
    ours, place = aggregate.describe_segment(), f"router {aggregate.name!r}: the segment that ends"
    if stored is None or stored._replace(dropped=0) != ours:
        raise StoreCorrupted(f"{place} with event {ours.last} is not the replay's")
    taken = store.snapshot(ours.router, ours.last)
    if taken is not None and taken != aggregate.take_snapshot():
        raise StoreCorrupted(f"{place} with event {ours.last} has a snapshot that was changed")


def book_totals(aggregate: RouterAggregate) -> dict[tuple[str, int], tuple[float, float]]:
    """The sums of stated and settled costs that a router has booked, as `all_totals` of its log."""
    core = aggregate.core
    settled = core.sums.list_spent()
    since = core.sums.uncounted.since
    stated = aggregate.tally.stated
    return {(name, since.get(name, 0)): (stated[name], cost) for name, cost in settled.items()}


def read_without_replay(
    store: Store, row: RouterRow, aggregate: RouterAggregate, costs: LoggedCosts
) -> None:
    """Verify the hashes of the events before the snapshot that the replay begins with."""
    first = store.first_seq(row.number)
    seal = next((one.seal for one in store.segments(row.number) if one.last == first - 1), b"")
    log = takewhile(lambda event: event.seq <= aggregate.seq, iterate_events(store, row.number))
    for event in verify_chain(log, seal, first, row.name):
        seal = event.seal
        costs.add(event, aggregate.core.sums.uncounted.since)
    if seal != aggregate.seal:
        raise StoreCorrupted(f"router {row.name!r}: its log and its oldest snapshot differ")
