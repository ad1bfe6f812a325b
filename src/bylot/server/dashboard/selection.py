"""Which experts a router selects: the probability of each, overall and in each context."""

import math

from msgspec import Struct

from bylot.router.config import RouterConfig
from bylot.router.status import RouterStatus


class ContextColumn(Struct, frozen=True):
    """A context of the table."""

    context: str
    decisions: int


class ExpertRow(Struct, frozen=True):
    """An expert of the table; by_context: in the order of the columns."""

    expert: str
    paused: bool
    overall: float
    by_context: list[float]


class SelectionTable(Struct, frozen=True):
    """Experts by probability, contexts by number of decisions; kind: what the numbers mean."""

    kind: str
    columns: list[ContextColumn]
    rows: list[ExpertRow]
    others: int  # contexts without a column
    entropy: float  # in nats


def build_selection(status: RouterStatus, config: RouterConfig) -> SelectionTable:
    """The table of selection probabilities."""
    shown, whole = status.distributions, status.whole
    seats = min(config.problem["draws"], len(status.q)) if whole else 1
    rows = [
        ExpertRow(name, name in config.paused, p, [seats * one.distribution[i] for one in shown])
        for i, (name, p) in enumerate(status.q.items())
    ]
    kind = "probability of each draw" if status.multinomial else "share of the draws so far"
    return SelectionTable(
        kind="inclusion probability" if whole else kind,
        columns=[ContextColumn(context_label(one.context), one.visits) for one in shown],
        rows=sorted(rows, key=lambda row: -row.overall),
        others=status.contexts - len(shown),
        entropy=math.log(status.effective_experts),
    )


def context_label(context: str | None) -> str:
    """The name of a context on the page.

    >>> context_label("chest pain"), context_label(None), context_label(" ")
    ('chest pain', 'no context', "' '")
    """
    if context is None:
        return "no context"
    return context if context.strip() else repr(context)
