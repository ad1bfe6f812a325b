"""Tickets, from and for the lines that tell of decisions."""

from struct import unpack, unpack_from

import numpy as np

from bylot.durable.bodies import Decided
from bylot.policies.contract import Ticket
from bylot.policies.desk import Served
from bylot.problem import Problem


def line_of(
    served: Served,
    problem: Problem,
    *,
    version: int,
    context: str | None,
    available: tuple[str, ...] | None,
    defer: bool,
    by: str | None,
) -> Decided:
    """What the line of a decision says."""
    ticket, experts, names = served.ticket, problem.experts, problem.costs
    seats = ticket.draws.tolist()
    spend, expected = served.costs.tolist()
    return Decided(
        version=version,
        t=ticket.t,
        context=context,
        available=available,
        defer=defer,
        draws=tuple([experts[i] for i in seats]),
        seats=tuple(seats),
        odds=ticket.odds.tobytes(),
        up=ticket.up.tobytes(),
        share=ticket.share,
        feasible=ticket.feasible,
        chance=min(served.chance, 1.0),  # the exponential of a rounded logarithm may be above
        weight=ticket.weight,
        replaced=ticket.replaced,
        inclusion=tuple(served.included[ticket.draws].tolist()),
        spend=dict(zip(names, spend, strict=True)),
        expected=dict(zip(names, expected, strict=True)),
        by=by,
    )


def ticket_of(line: Decided, context: int) -> Ticket:
    """The ticket of a decision, to the last bit as it was when it was made."""
    return Ticket(
        t=line.t,
        context=context,
        draws=np.array(line.seats, np.int64),
        odds=np.frombuffer(line.odds, "<f8").astype(np.float64),  # a copy: compiled code writes
        up=np.frombuffer(line.up, np.bool_).copy(),
        share=line.share,
        feasible=line.feasible,
        chance=line.chance,
        weight=line.weight,
        replaced=line.replaced,
    )


def odds_of_draws(line: Decided) -> tuple[float, ...]:
    """The odds of each draw, none where they are not told; as `bylot.Decision.odds`."""
    count = len(line.odds) // 8
    if count in (0, len(line.draws)):
        return unpack(f"<{count}d", line.odds)
    return tuple([unpack_from("<d", line.odds, 8 * i)[0] for i in line.seats])  # every expert's
