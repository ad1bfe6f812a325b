"""Proof that a router's log, played from its first line, is what the store says it is."""

import math
from typing import NamedTuple

from bylot.durable.fold import Fold
from bylot.durable.lookup import past
from bylot.durable.opening import begun, lines, opened
from bylot.durable.tallies import Tallies
from bylot.errors import NoSuchRouter, StoreDamaged
from bylot.store import RouterRow, Store

CLOSE = 1e-9  # relative: sums of the log are taken in another way than the ledger's


class Finding(NamedTuple):
    """What an audit came to; `fault` is None if everything agrees."""

    router: str
    lines: int  # that agree
    decisions: int
    fingerprint: str  # of the state after the last of them
    fault: str | None


def audit(store: Store, name: str) -> Finding:
    """Play the whole log again: every line must come out as it is, to the last bit; so must the
    snapshot on the way, and the state that a server would begin with.
    """
    row = store.find(name)
    if row is None:
        raise NoSuchRouter(f"there is no router {name!r} in {store.address}")
    try:
        fold = begun(store, row)
    except StoreDamaged as damage:
        return Finding(name, 0, 0, "", str(damage))
    return replayed(store, row, fold)


def replayed(store: Store, row: RouterRow, fold: Fold) -> Finding:
    """The rest of the log, line by line."""
    fold.recall = lambda seq: past(store, row.number, seq)
    kept, stated, fault = store.snapshot(row.number), Tallies(), None
    try:
        for event in lines(store, row.number, fold.seq):
            fold.replay(event)
            stated.take(event)
            if kept is not None and event.seq == kept.seq and fold.freeze() != kept:
                fault = f"the snapshot after line {kept.seq} is not what the log adds up to"
        if kept is not None and kept.seq > fold.seq:
            fault = f"there is a snapshot after line {kept.seq}, and the log ends before it"
        fault = fault or unlike(store, row, fold) or uneven(fold, stated)
    except StoreDamaged as damage:
        fault = str(damage)
    return Finding(row.name, fold.seq + 1, len(stated), fold.fingerprint(), fault)


def unlike(store: Store, row: RouterRow, fold: Fold) -> str | None:
    """Is this not the state that a server would begin with now?"""
    found = opened(store, row)
    if found.seq == fold.seq and found.fingerprint() != fold.fingerprint():
        return "the latest snapshot and the lines after it add up to another state"
    return None


def uneven(fold: Fold, stated: Tallies) -> str | None:
    """Are the books other than the sums of the log, taken in another way?"""
    for name, book in fold.accounts.stated.items():
        total = stated.total(name, fold.router.since.get(name, 0))
        if not math.isclose(book, total, rel_tol=CLOSE, abs_tol=CLOSE):
            return f"the books have {book!r} of {name}, the lines of the log add up to {total!r}"
    return None
