"""Decisions and the events of a log: from a ticket to an event, and back to what callers see."""

import math
from collections.abc import Iterable

import numpy as np

from bylot.api import DecisionRecord, DecisionState, RewardRecord
from bylot.eventlog.commands import DecisionId
from bylot.eventlog.events import (
    BODY_DECODERS,
    DecisionMade,
    EventBody,
    RewardReceived,
    format_timestamp,
)
from bylot.eventlog.open_decisions import OpenDecision
from bylot.numerics.jit import Floats
from bylot.policies.base import Ticket
from bylot.policies.compiled_handle import BookedDecision
from bylot.problem import Problem
from bylot.router.decision import Decision
from bylot.store import DecisionEvents, Event


def body_from_ticket(
    booked: BookedDecision,
    problem: Problem,
    *,
    version: int,
    context: str | None,
    available: tuple[str, ...] | None,
    defer: bool,
    by: str | None,
) -> DecisionMade:
    """The body of a decision's event."""
    ticket, experts, names = booked.ticket, problem.experts, problem.costs
    seats, known = ticket.draws.tolist(), not math.isnan(booked.propensity)
    spend, expected = booked.costs.tolist()
    return DecisionMade(
        version=version,
        t=ticket.t,
        context=context,
        available=available,
        defer=defer,
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
        by=by,
    )


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


def decision_from_event(name: str, event: Event, body: DecisionMade | None = None) -> Decision:
    """A decision as its caller gets it; body: of the event, if it is decoded already."""
    made: DecisionMade = body or BODY_DECODERS["decided"](event.body)
    return Decision(
        id=str(DecisionId(name, event.router, event.seq)),
        router=name,
        version=made.version,
        t=made.t,
        at=format_timestamp(event.at),
        context=made.context,
        draws=made.draws,
        subset=tuple(dict.fromkeys(made.draws)),
        draw_probabilities=tuple(floats_from_bytes(made.draw_probabilities).tolist()) or None,
        inclusion=None
        if made.inclusion is None
        else dict(zip(made.draws, made.inclusion, strict=True)),
        propensity=made.propensity,
        spend=made.spend,
        expected=made.expected,
        feasible=made.feasible,
        replaced=made.replaced,
        deferred=made.defer,
        key=event.key,
    )


def rewards_from_events(events: Iterable[Event]) -> list[RewardReceived]:
    """The rewards among some events."""
    return [BODY_DECODERS["rewarded"](one.body) for one in events if one.kind == "rewarded"]


def decision_record_from_events(
    name: str, events: DecisionEvents, opened: OpenDecision | None
) -> DecisionRecord:
    """A decision and its history; opened: None if it is no longer open."""
    later = [(event, BODY_DECODERS[event.kind](event.body)) for event in events.since]
    bodies = [body for _, body in later]
    learned = [body.learned_value for body in bodies if body.learned_value is not None]
    return DecisionRecord(
        decision=decision_from_event(name, events.decided),
        state=decision_state_from_bodies(bodies, opened),
        rewards=tuple(
            [
                RewardRecord(
                    at=format_timestamp(event.at),
                    value=body.value,
                    receipt=body.receipt,
                    spend=body.spend,
                    key=body.key,
                    by=body.by,
                )
                for event, body in later
                if isinstance(body, RewardReceived)
            ]
        ),
        learned=learned[0] if learned else None,
    )


def decision_state_from_bodies(
    bodies: Iterable[EventBody], opened: OpenDecision | None
) -> DecisionState:
    """Where a decision is in its life cycle."""
    if opened is not None:
        return "deferred" if opened.is_deferred else "waiting"
    outcomes = {body.outcome for body in bodies}
    if "cancelled" in outcomes:
        return "cancelled"
    return "rewarded" if "rewarded" in outcomes else "closed"
