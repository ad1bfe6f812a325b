"""Decisions in a log: read from its events, and shown to callers."""

from collections.abc import Mapping

from msgspec import structs

from bylot.api import DecisionRecord, RewardRecord
from bylot.eventlog.commands import RecordReward, SetTenant, format_decision_id
from bylot.eventlog.events import (
    BODY_DECODERS,
    KeyChanged,
    find_learned_value,
    format_timestamp,
)
from bylot.problem import Limit
from bylot.router.changes import RewardReceived, unpack_decision
from bylot.router.decision import Decision
from bylot.router.feedback import SpendReport
from bylot.router.open_decisions import OpenDecision, describe_state
from bylot.router.substitution import exchange_member
from bylot.store import DecisionEvents, Event

NO_CONTEXTS: Mapping[str | None, int] = {}


def read_decision(
    events: DecisionEvents, contexts: Mapping[str | None, int] = NO_CONTEXTS
) -> OpenDecision:
    """Return a decision as it is after the events about it.

    contexts: the row of each; without them, nothing can be learned from the decision
    """
    packed = BODY_DECODERS["decided"](events.decided.body)
    made = unpack_decision(packed, contexts.get(packed.context, -1))
    decision = OpenDecision(packed.t, made=made, holder=packed.holder, seal=events.decided.seal)
    for event in events.since:
        body = BODY_DECODERS[event.kind](event.body)
        if event.kind == "replaced":
            exchange_member(decision, body)
        elif event.kind == "rewarded":
            decision.add_report(body)
        elif event.kind == "cancelled":
            decision.is_cancelled = True
    return decision


def show_events(name: str, events: DecisionEvents) -> Decision:
    """Return the decision of a stored router as it is after the events about it."""
    return show_stored(name, events.decided, read_decision(events))


def show_stored(name: str, event: Event, decision: OpenDecision) -> Decision:
    """Return a decision of a stored router as callers see it; event: that made it."""
    made = decision.known
    return structs.replace(
        made.show(format_decision_id(name, event)),
        router=name,
        version=made.version,
        at=format_timestamp(event.at),
        deferred=made.defer,
        key=event.key,
        failed=decision.failed,
    )


def command_from_bounds(name: str, body: KeyChanged) -> SetTenant:
    """Return the command that gave a tenant bounds of its own."""
    limits = tuple(map(Limit.from_data, body.limits))
    return SetTenant(name, body.key, limits, by=body.by)


def command_from_reward(id: str, body: RewardReceived) -> RecordReward:
    """Return the command whose event has this body; id: of its decision."""
    spend: SpendReport | None = None
    if body.spend is not None:
        by_member = body.member_spend or {}
        spend = {name: by_member.get(name, total) for name, total in body.spend.items()}
    value = None if body.from_members else body.value
    return RecordReward(id, value, spend, body.key, body.members, body.winner, by=body.by)


def record_decision(
    name: str, events: DecisionEvents, opened: OpenDecision | None
) -> DecisionRecord:
    """Return a decision and its history; opened: None if it is no longer open."""
    rewards: list[RewardRecord] = []
    learned, members, winner = None, None, None
    for event in events.since:
        body = BODY_DECODERS[event.kind](event.body)
        value = find_learned_value(body)
        if value is not None:
            learned, members, winner = value, body.members, body.winner
        if event.kind == "rewarded":
            rewards.append(RewardRecord(at=format_timestamp(event.at), **structs.asdict(body)))
    decision = read_decision(events)
    return DecisionRecord(
        decision=show_stored(name, events.decided, decision),
        state=describe_state(opened or decision, opened is not None),
        rewards=tuple(rewards),
        learned=learned,
        learned_members=members,
        learned_winner=winner,
    )
