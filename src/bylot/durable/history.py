"""What a log says of a decision, as callers get to see it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec import Struct, msgpack, structs

from bylot.durable.bodies import (
    Activated,
    Cancelled,
    Closed,
    Created,
    Decided,
    Edited,
    Rewarded,
)
from bylot.durable.commands import Decision, Recalled, State, Told
from bylot.durable.held import Held
from bylot.durable.ids import Id
from bylot.durable.tickets import odds_of_draws
from bylot.store.contract import Event, Past

KINDS: Mapping[str, type[Struct]] = {
    "created": Created,
    "decided": Decided,
    "rewarded": Rewarded,
    "activated": Activated,
    "cancelled": Cancelled,
    "closed": Closed,
    "edited": Edited,
}
READ: Mapping[str, Callable[[bytes], Any]] = {
    kind: msgpack.Decoder(body).decode for kind, body in KINDS.items()
}
"""How the body of a line is read, by its kind."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at: int) -> str:
    """A time in words.

    >>> moment(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    seconds, rest = divmod(at, 1_000_000)
    return f"{second(seconds)}.{rest:06}Z"


@lru_cache(64)  # most of what is told in a row happened in the same second
def second(at: int) -> str:
    """A whole second in words, without its zone."""
    return (EPOCH + timedelta(seconds=at)).isoformat()[:-6]


def decision_of(name: str, event: Event, said: Decided | None = None) -> Decision:
    """A decision as its caller gets it, from its line; said: what that says, if it is at hand."""
    line: Decided = said or READ["decided"](event.body)
    inclusion = dict(zip(line.draws, line.inclusion, strict=True))
    return Decision(
        id=str(Id(name, event.router, event.seq)),
        router=name,
        version=line.version,
        t=line.t,
        at=moment(event.at),
        context=line.context,
        draws=line.draws,
        subset=tuple(inclusion),
        odds=odds_of_draws(line),
        inclusion=inclusion if line.chance else None,
        chance=line.chance or None,
        spend=line.spend,
        expected=line.expected,
        feasible=line.feasible,
        replaced=line.replaced,
        deferred=line.defer,
        key=event.key,
    )


def said_in(event: Event) -> Struct:
    """What a line says, for others to read: of a chance that is not told there is none."""
    body: Struct = READ[event.kind](event.body)
    if isinstance(body, Decided) and not body.chance:
        return structs.replace(body, chance=None, inclusion=None)
    return body


def rewards_in(lines: Iterable[Event]) -> list[Rewarded]:
    """The rewards among some lines."""
    return [READ["rewarded"](one.body) for one in lines if one.kind == "rewarded"]


def recalled_of(name: str, past: Past, held: Held | None) -> Recalled:
    """A decision and what became of it, if it is held or not."""
    lines = [(event, READ[event.kind](event.body)) for event in past.since]
    bodies = [body for _, body in lines]
    return Recalled(
        decision=decision_of(name, past.decided),
        state=state_of(bodies, held),
        rewards=tuple([told(event, body) for event, body in lines if isinstance(body, Rewarded)]),
        learned=learned_in(bodies),
    )


def learned_in(bodies: Iterable[Struct]) -> float | None:
    """The value that a decision taught."""
    for body in bodies:
        if isinstance(body, Closed):
            return body.learned
        if isinstance(body, Rewarded) and body.receipt == "learned":
            return body.value
    return None


def told(event: Event, line: Rewarded) -> Told:
    """One reward."""
    return Told(
        at=moment(event.at),
        value=line.value,
        receipt=line.receipt,
        spend=line.spend,
        key=line.key,
        by=line.by,
    )


def state_of(bodies: Sequence[Struct], held: Held | None) -> State:
    """Where a decision is in its life, by what was said of it since."""
    if held is not None:
        return "deferred" if held.deferred else "waiting"
    if any(isinstance(one, Cancelled) for one in bodies):
        return "cancelled"
    counted = any(isinstance(one, Rewarded) and one.receipt != "late" for one in bodies)
    return "rewarded" if counted else "closed"
