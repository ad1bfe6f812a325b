"""What a log says of a decision, as callers get to see it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct, msgpack

from bylot.api import DecisionRecord, DecisionState, RewardRecord, StoredDecision
from bylot.eventlog.commands import DecisionId
from bylot.eventlog.events import (
    ConfigChanged,
    DecisionActivated,
    DecisionCancelled,
    DecisionClosed,
    DecisionMade,
    RewardReceived,
    RouterCreated,
)
from bylot.eventlog.open_decisions import OpenDecision
from bylot.numerics.jit import Floats
from bylot.policies.base import Ticket
from bylot.policies.compiled_handle import BookedDecision
from bylot.problem import Problem
from bylot.store.protocol import DecisionEvents, Event


def body_from_ticket(
    served: BookedDecision,
    problem: Problem,
    *,
    version: int,
    context: str | None,
    available: tuple[str, ...] | None,
    defer: bool,
    by: str | None,
) -> DecisionMade:
    """What the line of a decision says."""
    ticket, experts, names = served.ticket, problem.experts, problem.costs
    seats, known = ticket.draws.tolist(), not math.isnan(served.propensity)
    spend, expected = served.costs.tolist()
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
        propensity=served.propensity if known else None,
        weight=ticket.weight,
        replaced=ticket.replaced,
        inclusion=tuple(served.inclusion.tolist()) if known else None,
        spend=dict(zip(names, spend, strict=True)),
        expected=dict(zip(names, expected, strict=True)),
        by=by,
    )


def ticket_from_body(line: DecisionMade, context: int) -> Ticket:
    """The ticket of a decision, to the last bit as it was when it was made."""
    return Ticket(
        t=line.t,
        context=context,
        draws=np.array(line.seats, np.int64),
        draw_probabilities=floats_from_bytes(line.draw_probabilities),
        inclusion=floats_from_bytes(line.learned_inclusion),
        available=np.frombuffer(line.available_mask, np.bool_).copy(),
        share=line.share,
        feasible=line.feasible,
        propensity=math.nan if line.propensity is None else line.propensity,
        weight=line.weight,
        replaced=line.replaced,
    )


def floats_from_bytes(raw: bytes) -> Floats:
    """A copy, as compiled code writes into it."""
    return np.frombuffer(raw, "<f8").astype(np.float64)


EVENT_BODIES: Mapping[str, type[Struct]] = {
    "created": RouterCreated,
    "decided": DecisionMade,
    "rewarded": RewardReceived,
    "activated": DecisionActivated,
    "cancelled": DecisionCancelled,
    "closed": DecisionClosed,
    "edited": ConfigChanged,
}
BODY_DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    kind: msgpack.Decoder(body).decode for kind, body in EVENT_BODIES.items()
}
"""How the body of a line is read, by its kind."""

UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_timestamp(at: int) -> str:
    """A time in words.

    >>> format_timestamp(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    seconds, rest = divmod(at, 1_000_000)
    return f"{format_whole_second(seconds)}.{rest:06}Z"


@lru_cache(64)  # most of what is told in a row happened in the same second
def format_whole_second(at: int) -> str:
    """A whole second in words, without its zone."""
    return (UNIX_EPOCH + timedelta(seconds=at)).isoformat()[:-6]


def decision_from_event(
    name: str, event: Event, said: DecisionMade | None = None
) -> StoredDecision:
    """A decision as its caller gets it, from its line; said: what that says, if it is at hand."""
    line: DecisionMade = said or BODY_DECODERS["decided"](event.body)
    inclusion = line.inclusion
    return StoredDecision(
        id=str(DecisionId(name, event.router, event.seq)),
        router=name,
        version=line.version,
        t=line.t,
        at=format_timestamp(event.at),
        context=line.context,
        draws=line.draws,
        subset=tuple(dict.fromkeys(line.draws)),
        draw_probabilities=tuple(floats_from_bytes(line.draw_probabilities).tolist()) or None,
        inclusion=None if inclusion is None else dict(zip(line.draws, inclusion, strict=True)),
        propensity=line.propensity,
        spend=line.spend,
        expected=line.expected,
        feasible=line.feasible,
        replaced=line.replaced,
        deferred=line.defer,
        key=event.key,
    )


def body_for_readers(event: Event) -> Struct:
    """What a line says, for others to read."""
    body: Struct = BODY_DECODERS[event.kind](event.body)
    return body


def rewards_from_events(lines: Iterable[Event]) -> list[RewardReceived]:
    """The rewards among some lines."""
    return [BODY_DECODERS["rewarded"](one.body) for one in lines if one.kind == "rewarded"]


def decision_record_from_events(
    name: str, past: DecisionEvents, held: OpenDecision | None
) -> DecisionRecord:
    """A decision and what became of it, if it is held or not."""
    lines = [(event, BODY_DECODERS[event.kind](event.body)) for event in past.since]
    bodies = [body for _, body in lines]
    return DecisionRecord(
        decision=decision_from_event(name, past.decided),
        state=decision_state_from_bodies(bodies, held),
        rewards=tuple(
            [
                reward_record_from_event(event, body)
                for event, body in lines
                if isinstance(body, RewardReceived)
            ]
        ),
        learned=learned_value_from_bodies(bodies),
    )


def learned_value_from_bodies(bodies: Iterable[Struct]) -> float | None:
    """The value that a decision taught."""
    for body in bodies:
        if isinstance(body, DecisionClosed):
            return body.learned
        if isinstance(body, RewardReceived) and body.receipt == "learned":
            return body.value
    return None


def reward_record_from_event(event: Event, line: RewardReceived) -> RewardRecord:
    """One reward."""
    return RewardRecord(
        at=format_timestamp(event.at),
        value=line.value,
        receipt=line.receipt,
        spend=line.spend,
        key=line.key,
        by=line.by,
    )


def decision_state_from_bodies(
    bodies: Sequence[Struct], held: OpenDecision | None
) -> DecisionState:
    """Where a decision is in its life, by what was said of it since."""
    if held is not None:
        return "deferred" if held.deferred else "waiting"
    if any(isinstance(one, DecisionCancelled) for one in bodies):
        return "cancelled"
    counted = any(isinstance(one, RewardReceived) and one.receipt != "late" for one in bodies)
    return "rewarded" if counted else "closed"
