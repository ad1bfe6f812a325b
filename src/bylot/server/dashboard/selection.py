"""Whom a router asks: the chance of every expert, over all and in each context."""

import math

from msgspec import Struct

from bylot.router.config import RouterConfig
from bylot.router.status import RouterStatus


class ContextColumn(Struct, frozen=True):
    """A context."""

    context: str
    decisions: int


class ExpertRow(Struct, frozen=True):
    """An expert."""

    expert: str
    paused: bool
    overall: float
    chances: list[float]  # in the order of the columns


class SelectionTable(Struct, frozen=True):
    """What the numbers are, the experts from the likeliest down, the contexts from the busiest."""

    kind: str
    columns: list[ContextColumn]
    rows: list[ExpertRow]
    others: int  # contexts without a column
    entropy: float  # in nats
    effective: float  # exp(entropy): equal chances for so many experts would be as even


def build_selection(status: RouterStatus, terms: RouterConfig) -> SelectionTable:
    """The table of chances."""
    shown, whole = status.distributions, status.whole
    seats = min(terms.problem["draws"], len(status.q)) if whole else 1
    rows = [
        ExpertRow(
            name, name in terms.paused, chance, [seats * one.distribution[i] for one in shown]
        )
        for i, (name, chance) in enumerate(status.q.items())
    ]
    effective = status.effective_experts
    return SelectionTable(
        kind=selection_kind(whole, status.multinomial),
        columns=[ContextColumn(context_label(one.context), one.visits) for one in shown],
        rows=sorted(rows, key=lambda row: -row.overall),
        others=status.contexts - len(shown),
        entropy=math.log(effective),
        effective=effective,
    )


def context_label(context: str | None) -> str:
    """What a context is called on the page.

    >>> context_label("chest pain"), context_label(None), context_label(" ")
    ('chest pain', 'no context', "' '")
    """
    if context is None:
        return "no context"
    return context if context.strip() else repr(context)


def selection_kind(whole: bool, multinomial: bool) -> str:
    """What the numbers of a law are."""
    if whole:
        return "chance to be in the panel"
    return "chance of each draw" if multinomial else "share of draws so far"
