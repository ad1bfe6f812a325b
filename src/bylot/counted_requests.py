"""Which requests of a simulation a limit counts: those of its contexts, by their names."""

from collections.abc import Sequence

import numpy as np

from bylot.errors import ValuesError
from bylot.limits.windows import note_context_label
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.policies.base import BoundPolicy
from bylot.problem import Problem
from bylot.problem.validation import suggest_counted_context


def check_context_names(
    problem: Problem, contexts: int, given: Sequence[str] | None
) -> tuple[str, ...]:
    """The names of contexts 0, 1, ..., by default the texts of these numbers."""
    names = tuple(map(str, range(contexts))) if given is None else tuple(given)
    if len(names) != contexts:
        raise ValuesError(
            f"context_names has {len(names)} names, and there are {contexts} contexts",
            remedy="name each context, in the order of their numbers",
        )
    for limit in problem.limits:
        remedy = suggest_counted_context(limit, names)
        if remedy:
            raise ValuesError(
                f"the limit on {limit.words} counts no context of the environment",
                remedy=f"{remedy}; see context_names",
            )
    return names


def fill_counting_limits(bound: BoundPolicy, names: Sequence[str]) -> None:
    """Write into a new state which limits count requests of each context."""
    if bound.limits is not None:
        for x, name in enumerate(names):
            note_context_label(bound.limits.state, bound.problem.limits, x, name)


def mark_counted(problem: Problem, contexts: Ints, names: Sequence[str]) -> Bools:
    """(T, d) which of the limits count each request; contexts: (T,) of the requests.

    >>> from bylot.problem import at_most
    >>> limits = [at_most("usd", 2), at_most("usd", 3, where={"context": ["icu"]})]
    >>> pair = Problem(["a", "b"], {"usd": [1, 2]}, limits, draws=1)
    >>> mark_counted(pair, np.array([0, 1]), ["er", "icu"]).tolist()
    [[True, False], [True, True]]
    """
    table = [[limit.counts(name) for limit in problem.limits] for name in names]
    return np.array(table, np.bool_)[contexts]


def average_counted(means: Floats, shares: Floats, empty: Floats) -> Floats:
    """Averages over the requests that count, from those over all requests, to which others add 0.

    shares: of the requests that count; empty: (d,) what to return where there is none

    >>> average_counted(np.array([1.0, 0.0]), np.array([0.5, 0.0]), np.array([3.0, 4.0]))
    array([2., 4.])
    """
    some = shares > 0.0
    return np.where(some, means / np.where(some, shares, 1.0), empty)
