"""How a router did over time: means of each span of its history, and from the first to each."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from bylot.durable.history import moment

MOST = 64
"""Spans of a course: as many as a small chart can show."""
DIGITS = 6
"""Of a mean in it."""


class Mean(Struct, frozen=True):
    """A mean over time; None where there was nothing to take it of."""

    each: float | None  # of the span alone
    so_far: float | None  # of all until its end


class Span(Struct, frozen=True):
    """Some time of a router's history; costs are in the order of the limits."""

    at: str  # when it began, RFC 3339, UTC
    decisions: int
    rewards: int
    reward: Mean  # per reward
    costs: list[Mean]  # settled, per decision


def course(points: dict[str, Any], costs: Iterable[str]) -> list[Span]:
    """The spans, oldest first: columns of sums as `durable.course` has them, at most `MOST`."""
    by = -(-len(points["begun"]) // MOST) or 1
    decisions, rewards = merged(points["decisions"], by), merged(points["rewards"], by)
    reward = means(merged(points["total"], by), rewards)
    spent = [means(merged(points["spent"][name], by), decisions) for name in costs]
    return [
        Span(moment(at), decisions[i], rewards[i], reward[i], [row[i] for row in spent])
        for i, at in enumerate(points["begun"][::by])
    ]


def merged(column: Sequence[Any], by: int) -> list[Any]:
    """Sums of so many neighbours each; the last may be of fewer.

    >>> merged([1, 2, 3, 4, 5], by=2)
    [3, 7, 5]
    """
    return [sum(column[i : i + by]) for i in range(0, len(column), by)]


def means(sums: Sequence[float], counts: Sequence[int]) -> list[Mean]:
    """Sum over count, of each span and of all spans until its end.

    >>> means([2.0, 0.0], [2, 0])
    [Mean(each=1.0, so_far=1.0), Mean(each=None, so_far=1.0)]
    """
    found = []
    total, number = 0.0, 0
    for part, count in zip(sums, counts, strict=True):
        total, number = total + part, number + count
        found.append(Mean(ratio(part, count), ratio(total, number)))
    return found


def ratio(total: float, number: int) -> float | None:
    """A mean, to so many digits."""
    return float(f"{total / number:.{DIGITS}g}") if number else None
