"""Whom a router asks: the chance of every expert, over all and in each context."""

import math
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

MOST = 30
"""Contexts that have a column of their own: those with most decisions."""


class Column(Struct, frozen=True):
    """A context."""

    context: str
    decisions: int
    effective: float | None  # number of experts it is spread over


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
    entropy: float | None
    effective: float | None


def law(status: dict[str, Any], paused: Sequence[str]) -> Law:
    """The table of chances."""
    overall = status["q"]
    busiest = sorted(status["laws"], key=lambda one: -one["decisions"])[:MOST]
    rows = [
        Row(name, name in paused, chance, [one["q"][i] for one in busiest])
        for i, (name, chance) in enumerate(overall.items())
    ]
    return Law(
        kind=kind(status["whole"], status["multinomial"]),
        columns=[
            Column(label(one["context"]), one["decisions"], effective(one["q"]))
            for one in busiest
        ],
        rows=sorted(rows, key=lambda row: -row.overall),
        others=len(status["laws"]) - len(busiest),
        entropy=entropy(list(overall.values())),
        effective=effective(list(overall.values())),
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


def entropy(chances: Sequence[float]) -> float | None:
    """-sum p log p in nats, of the chances over their sum; None if they are all 0.

    >>> entropy([0.5, 0.5, 0.0]) == math.log(2)
    True
    """
    total = sum(chances)
    if total <= 0:
        return None
    return 0.0 - sum(p / total * math.log(p / total) for p in chances if p > 0)


def effective(chances: Sequence[float]) -> float | None:
    """exp(entropy): equal chances for so many experts would be as even."""
    nats = entropy(chances)
    return None if nats is None else math.exp(nats)
