"""Whom a router asks: the chance of every expert, over all and in each context."""

import math
from typing import Any

from msgspec import Struct

from bylot.durable.terms import Terms


class Column(Struct, frozen=True):
    """A context."""

    context: str
    decisions: int


class Row(Struct, frozen=True):
    """An expert."""

    expert: str
    paused: bool
    overall: float
    chances: list[float]  # in the order of the columns


class Law(Struct, frozen=True):
    """What the numbers are, the experts from the likeliest down, the contexts from the busiest."""

    kind: str
    columns: list[Column]
    rows: list[Row]
    others: int  # contexts without a column
    entropy: float  # in nats
    effective: float  # exp(entropy): equal chances for so many experts would be as even


def law(status: dict[str, Any], terms: Terms) -> Law:
    """The table of chances."""
    laws, whole = status["laws"], status["whole"]
    seats = min(terms.problem["draws"], len(status["q"])) if whole else 1
    rows = [
        Row(name, name in terms.paused, chance, [seats * one["law"][i] for one in laws])
        for i, (name, chance) in enumerate(status["q"].items())
    ]
    effective = status["effective_experts"]
    return Law(
        kind=kind(whole, status["multinomial"]),
        columns=[Column(label(one["context"]), one["visits"]) for one in laws],
        rows=sorted(rows, key=lambda row: -row.overall),
        others=status["contexts"] - len(laws),
        entropy=math.log(effective),
        effective=effective,
    )


def label(context: str | None) -> str:
    """What a context is called on the page.

    >>> label("chest pain"), label(None), label(" ")
    ('chest pain', 'no context', "' '")
    """
    if context is None:
        return "no context"
    return context if context.strip() else repr(context)


def kind(whole: bool, multinomial: bool) -> str:
    """What the numbers of a law are."""
    if whole:
        return "chance to be in the panel"
    return "chance of each draw" if multinomial else "share of draws so far"
