"""The event log of a router as a log of decisions for evaluation (docs/log.md)."""

from collections.abc import Iterable

import msgspec

from bylot import evaluate, policies
from bylot.api import EventRecord
from bylot.evaluate import LogEntry
from bylot.eventlog import events
from bylot.eventlog.commands import DECISION_TAG_CHARS
from bylot.router.changes import (
    Change,
    DecisionActivated,
    DecisionCancelled,
    DecisionClosed,
    MemberReplaced,
    PackedDecision,
    RewardReceived,
    unpack_decision,
)


class LogReader:
    """Collects the entries of an event log, one per decision; prefix: of the decisions' ids."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.entries: dict[int | None, LogEntry] = {}  # by the seq of the decision's event
        self.unused: set[int | None] = set()  # cancelled, or deferred and never activated
        self.pools: dict[int | None, list[str]] = {}  # the experts at the time of a decision
        self.bills: dict[int | None, dict[str, float]] = {}  # costs that were reported

    def read(self, records: Iterable[EventRecord]) -> list[LogEntry]:
        """The decisions that were used, in order."""
        for record in records:
            if record.kind in events.EVENT_BODIES:  # others do not concern decisions
                kind = events.EVENT_BODIES[record.kind]
                body = msgspec.json.decode(record.body, type=kind)
                self.apply(record.seq, record.of, record.seal, body)
        return self.list_entries()

    def list_billed_entries(self) -> list[LogEntry]:
        """Return the decisions that were used, of their costs only those that were reported."""
        used = (seq for seq in self.entries if seq not in self.unused)
        return [self.entries[seq]._replace(spend=self.bills.get(seq, {})) for seq in used]

    def list_entries(self) -> list[LogEntry]:
        """Return the decisions that were used, in order."""
        return [
            # If the pool has changed since, the pool of then was what was available.
            entry._replace(available=tuple(self.pools[seq]))
            if entry.available is None and set(self.pools[seq]) != set(self.experts)
            else entry
            for seq, entry in self.entries.items()
            if seq not in self.unused
        ]

    def apply(self, seq: int, of: int | None, seal: str, body: Change) -> None:
        """Take one event into account, unless its decision is of a part that was dropped."""
        if of is not None and of not in self.entries:
            return
        match body:
            case events.ConfigRecorded():
                policy = body.config.build_policy()
                assert not isinstance(policy, policies.Auto), "a log has the policy that was chosen"
                self.policy, self.experts = policy, body.config.problem["experts"]
            case PackedDecision():
                self.add_decision(seq, seal[:DECISION_TAG_CHARS], body)
            case DecisionActivated():
                self.unused.discard(of)
            case DecisionCancelled():
                self.unused.add(of)
            case MemberReplaced():
                entry = self.entries[of].exchange_member(body.failed, body.added)
                self.entries[of] = entry._replace(spend=body.spend)
            case RewardReceived():
                self.bills.setdefault(of, {}).update(body.spend or {})
                spend = {**self.entries[of].spend, **self.bills[of]}
                self.entries[of] = self.entries[of]._replace(spend=spend)
        learned = events.find_learned_value(body)
        if learned is not None and isinstance(body, RewardReceived | DecisionClosed):
            members, winner = body.members, body.winner
            entry = self.entries[of]._replace(reward=learned, members=members, winner=winner)
            self.entries[of] = entry

    def add_decision(self, seq: int, tag: str, packed: PackedDecision) -> None:
        """Add an entry, without a reward."""
        decision = unpack_decision(packed, 0).show(f"{self.prefix}.{seq}.{tag}")
        mask = zip(self.experts, packed.available_mask, strict=False)
        available = [name for name, is_available in mask if is_available]
        self.entries[seq] = evaluate.entry_from_decision(
            decision, None, self.policy, available or None
        )
        self.pools[seq] = self.experts
        if packed.defer:
            self.unused.add(seq)
