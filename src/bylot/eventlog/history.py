"""Decisions and the events of a log: from a ticket to an event, and back to what callers see."""

import math
from typing import NamedTuple

import numpy as np
from msgspec import structs

from bylot.api import DecisionRecord, DecisionState, RewardRecord
from bylot.eventlog.commands import MakeDecision, RecordReward, format_decision_id
from bylot.eventlog.events import (
    BODY_DECODERS,
    DecisionMade,
    MemberReplaced,
    RewardReceived,
    find_learned_value,
    format_timestamp,
)
from bylot.eventlog.open_decisions import OpenDecision
from bylot.limits.request import Ticket
from bylot.numerics.jit import Floats
from bylot.policies.compiled_handle import BookedDecision
from bylot.router.core import Refusals, RequestLabels, RouterCore
from bylot.router.decision import Decision
from bylot.router.feedback import SpendReport
from bylot.store import DecisionEvents, Event


def body_from_ticket(
    booked: BookedDecision, core: RouterCore, version: int, command: MakeDecision, refused: Refusals
) -> DecisionMade:
    """The body of a decision's event, just made by this core."""
    problem = core.problem
    ticket, experts, names = booked.ticket, problem.experts, problem.costs
    seats, known = ticket.draws.tolist(), not math.isnan(booked.propensity)
    spend, expected = booked.costs.tolist()
    return DecisionMade(
        version=version,
        t=ticket.t,
        context=command.context,
        available=command.available,
        defer=command.defer,
        draws=tuple([experts[i] for i in seats]),
        seats=tuple(seats),
        draw_probabilities=ticket.draw_probabilities.tobytes(),
        learned_inclusion=ticket.inclusion.tobytes(),
        available_mask=ticket.available.tobytes(),
        share=ticket.share,
        feasible=ticket.feasible,
        propensity=booked.propensity if known else None,
        weight=ticket.weight,
        replaced=ticket.replaced,
        inclusion=tuple(booked.inclusion.tolist()) if known else None,
        spend=dict(zip(names, spend, strict=True)),
        expected=dict(zip(names, expected, strict=True)),
        refused=tuple(refused),
        tables=read_tables(core),
        keys=dict(command.keys),
        held=booked.held,
        holder=command.holder,
        by=command.by,
    )


def labels_from_body(body: DecisionMade) -> RequestLabels:
    """The labels of the request that a decision was made for."""
    return RequestLabels(body.context, body.keys)


def read_tables(core: RouterCore) -> tuple[tuple[int, ...], ...] | None:
    """The tables of windows that a decision or an edit has just filled, if it had to."""
    return None if core.tables is None else tuple(map(tuple, core.tables))


class CurrentDecision(NamedTuple):
    """A decision with the panel, and at the stated cost, that it has now."""

    made: DecisionMade
    failed: tuple[str, ...] = ()  # members that were replaced, in order


def current_from_events(events: DecisionEvents) -> CurrentDecision:
    """A decision as it is after the events about it."""
    current = CurrentDecision(BODY_DECODERS["decided"](events.decided.body))
    for event in events.since:
        if event.kind == "replaced":
            current = exchange_member(current, BODY_DECODERS["replaced"](event.body))
    return current


def exchange_member(current: CurrentDecision, body: MemberReplaced) -> CurrentDecision:
    """Exchange a member. The panel was then not drawn as a whole: it has no probabilities."""
    made, pairs = current.made, zip(current.made.draws, current.made.seats, strict=True)
    new = [(body.added, body.seat) if name == body.failed else (name, i) for name, i in pairs]
    changed = structs.replace(
        made,
        draws=tuple(name for name, _ in new),
        seats=tuple(seat for _, seat in new),
        draw_probabilities=b"",
        learned_inclusion=b"",
        propensity=None,
        inclusion=None,
        spend=body.spend,
        held=body.held,
    )
    return CurrentDecision(changed, (*current.failed, body.failed))


def ticket_from_current(current: CurrentDecision, context: int) -> Ticket:
    """The ticket of a decision; policies must not take an exchanged panel for their own draw."""
    ticket = ticket_from_body(current.made, context)
    return ticket._replace(replaced=True) if current.failed else ticket


def ticket_from_body(body: DecisionMade, context: int) -> Ticket:
    """The ticket of a decision, bit for bit as it was when it was made."""
    return Ticket(
        t=body.t,
        context=context,
        draws=np.array(body.seats, np.int64),
        draw_probabilities=floats_from_bytes(body.draw_probabilities),
        inclusion=floats_from_bytes(body.learned_inclusion),
        available=np.frombuffer(body.available_mask, np.bool_).copy(),
        share=body.share,
        feasible=body.feasible,
        propensity=math.nan if body.propensity is None else body.propensity,
        weight=body.weight,
        replaced=body.replaced,
    )


def floats_from_bytes(raw: bytes) -> Floats:
    """A writable copy, as compiled code requires."""
    return np.frombuffer(raw, "<f8").astype(np.float64)


def decision_from_events(name: str, events: DecisionEvents) -> Decision:
    """A decision as it is after the events about it."""
    return make_stored_decision(name, events.decided, *current_from_events(events))


def make_stored_decision(
    name: str, event: Event, made: DecisionMade, failed: tuple[str, ...] = ()
) -> Decision:
    """A decision of a stored router; made, failed: as in `CurrentDecision`."""
    return decision_from_body(
        format_decision_id(name, event),
        made,
        router=name,
        version=made.version,
        at=format_timestamp(event.at),
        key=event.key,
        failed=failed,
    )


def decision_from_body(
    id: str,
    made: DecisionMade,
    *,
    router: str | None = None,
    version: int | None = None,
    at: str | None = None,
    key: str | None = None,
    failed: tuple[str, ...] = (),
) -> Decision:
    """A decision; the keywords are known of stored ones only."""
    draws, p, raw = made.draws, made.inclusion, made.draw_probabilities
    distinct = dict.fromkeys(draws)
    return Decision(
        id=id,
        t=made.t,
        context=made.context,
        draws=draws,
        subset=draws if len(distinct) == len(draws) else tuple(distinct),
        spend=made.spend,
        expected=made.expected,
        feasible=made.feasible,
        draw_probabilities=tuple(floats_from_bytes(raw).tolist()) if raw else None,
        inclusion=None if p is None else dict(zip(draws, p, strict=True)),
        propensity=made.propensity,
        replaced=made.replaced,
        keys=made.keys,
        router=router,
        version=version,
        at=at,
        deferred=made.defer,
        key=key,
        failed=failed,
    )


def command_from_reward(id: str, body: RewardReceived) -> RecordReward:
    """The command whose event has this body; id: of its decision."""
    spend: SpendReport | None = None
    if body.spend is not None:
        by_member = body.member_spend or {}
        spend = {name: by_member.get(name, total) for name, total in body.spend.items()}
    value = None if body.from_members else body.value
    return RecordReward(id, value, spend, body.key, body.members, body.winner, by=body.by)


def decision_record_from_events(
    name: str, events: DecisionEvents, opened: OpenDecision | None
) -> DecisionRecord:
    """A decision and its history; opened: None if it is no longer open."""
    kinds = {event.kind for event in events.since}
    rewards: list[RewardRecord] = []
    learned, members, winner = None, None, None
    for event in events.since:
        body = BODY_DECODERS[event.kind](event.body)
        value = find_learned_value(body)
        if value is not None:
            learned, members, winner = value, body.members, body.winner
        if event.kind == "rewarded":
            rewards.append(RewardRecord(at=format_timestamp(event.at), **structs.asdict(body)))
    state: DecisionState = "closed"
    if opened is not None:
        state = "deferred" if opened.is_deferred else "waiting"
    elif "cancelled" in kinds:
        state = "cancelled"
    elif any(one.receipt not in ("late", "settled") for one in rewards):
        state = "rewarded"
    return DecisionRecord(
        decision=decision_from_events(name, events),
        state=state,
        rewards=tuple(rewards),
        learned=learned,
        learned_members=members,
        learned_winner=winner,
    )
