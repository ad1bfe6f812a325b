"""The boundary between a router and compiled code: rule, state, totals and costs in one handle.

Passing some thirty arrays takes longer than a decision; a `CompiledHandle` is passed as one
pointer. It holds the arrays of the NamedTuples that it was made from, not copies. `Entries` are the
functions that take handles of one type.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.experimental import structref

from bylot.limits.entries import BOOL, BOOLS, FLOAT, FLOATS, INT, INTS, TABLE
from bylot.limits.request import Ticket, View, admit, open_request
from bylot.numerics.iid_sets import add_expected_costs
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_entry
from bylot.numerics.philox import RngKey
from bylot.numerics.sampling import add_panel_cost
from bylot.policies.base import (
    PLAIN_RULES,
    Feedback,
    FunctionT,
    compute_distribution,
    compute_iid_propensity,
    compute_inclusion,
    learn,
    note_played,
    propose,
)

TICKET = types.NamedTuple(
    (INT, INT, INTS, FLOATS, FLOATS, BOOLS, FLOAT, BOOL, FLOAT, FLOAT, BOOL), Ticket
)
HANDLE_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {}
"""Compiled functions of a handle by their names, with the types of their other arguments."""


class Totals(NamedTuple):
    """Sums since the first decision; one column a named cost."""

    rounds: Ints
    spent: Floats
    expected: Floats
    rewards: Ints
    total: Floats  # of the rewards, as they were given


def make_totals(costs: int) -> Totals:
    """Totals of 0."""
    rounds, rewards = np.zeros(1, np.int64), np.zeros(1, np.int64)
    return Totals(rounds, np.zeros(costs), np.zeros(costs), rewards, np.zeros(1))


@jit
def add_to_totals(totals: Totals, costs: Floats) -> None:
    """Add the realised and the expected costs of a decision."""
    totals.rounds[0] += 1
    for j in range(costs.shape[1]):
        totals.spent[j] += costs[0, j]
        totals.expected[j] += costs[1, j]


@structref.register
class CompiledHandleType(types.StructRef):  # type: ignore[misc]
    """The compiled side of `CompiledHandle`."""


class CompiledHandle(structref.StructRefProxy):  # type: ignore[misc]
    """CompiledHandle(rule, state, limits, totals, costs); costs: (n, K) in the order of names."""


structref.define_proxy(
    CompiledHandle, CompiledHandleType, ["rule", "state", "limits", "totals", "costs"]
)


@jit_entry
def make_compiled_handle(
    rule: Any, state: Any, limits: Any, totals: Totals, costs: Floats
) -> CompiledHandle:
    """Make a handle; the constructor of numba's proxy would be compiled again in every process."""
    return CompiledHandle(rule, state, limits, totals, costs)


class PlainHandle(NamedTuple):
    """The same parts for a rule whose steps are plain Python."""

    rule: Any
    state: Any
    limits: Any
    totals: Totals
    costs: Floats


def make_handle(rule: Any, state: Any, limits: Any, totals: Totals, costs: Floats) -> Any:
    """Return the handle that the functions below take; limits: `Limits` or `Unlimited`."""
    make = PlainHandle if type(rule) in PLAIN_RULES else make_compiled_handle
    return make(rule, state, limits, totals, costs)


class Entries:
    """The functions below for handles of one type, each compiled when it is first asked for.

    numba's dispatcher finds out the types of all arguments in every call, which takes longer than
    to learn from a reward. Here they are known, and numba checks only that an argument is an array
    whose items have the right size. An array of another type, with other dimensions or strides is
    misread without an error: callers must pass contiguous arrays of the types that `takes_handle`
    names.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind  # numba's type of the handles, or PlainHandle

    def __getattr__(self, name: str) -> Any:
        if name not in HANDLE_FUNCTIONS:
            raise AttributeError(name)
        entry, others = HANDLE_FUNCTIONS[name]
        plain = self._kind is PlainHandle
        found = entry.py_func if plain else entry.compile((self._kind, *others))
        setattr(self, name, found)  # Python calls this method for missing attributes only
        return found


find_entries_of_type = functools.cache(Entries)


def find_entries(handle: Any) -> Entries:
    """The entries for a handle; all handles of one type share them."""
    plain = type(handle) is PlainHandle
    return find_entries_of_type(PlainHandle if plain else handle._numba_type_)


def takes_handle(*others: Any) -> Callable[[FunctionT], FunctionT]:
    """Compile a function of a handle and of arguments of these types.

    It can be called with any handle, as unchecked as by `Entries`, which has it by its name for
    those who call it often.
    """

    def register(function: FunctionT) -> FunctionT:
        HANDLE_FUNCTIONS[function.__name__] = jit_entry(function), others

        @functools.wraps(function)
        def run(handle: Any, *given: Any) -> Any:
            return getattr(find_entries(handle), function.__name__)(handle, *given)

        return run  # type: ignore[return-value]

    return register


DrawnTicket = tuple[Ints, Floats | None, Floats | None, float, bool, float, float, bool]
"""Of a ticket all but number, context and available experts, with None for an empty array. To hand
a NamedTuple or an array over to Python takes long."""


@takes_handle(INT, INT, INT, INT, BOOLS, TABLE, FLOATS)
def draw_and_book(
    handle: Any,
    x: int,
    at: int,
    seed: int,
    t: int,
    available: Bools,
    costs: Floats,
    inclusion: Floats,
) -> DrawnTicket:
    """Decide in context x and charge the cost, whether or not a reward comes.

    at: as in `open_request`
    costs (2, n): are filled in, those of the panel, and those expected before the draw
    inclusion (draws,): likewise, the probability of each draw's expert to be in the panel
    """
    rule, state, limits = handle.rule, handle.state, handle.limits
    view = open_request(limits, x, at, available)
    proposal = propose(rule, state, view, RngKey(seed, t))
    ticket = admit(limits, view, proposal, t)
    note_played(rule, state, view, ticket)
    of_experts = compute_inclusion(rule, state, view, ticket)
    costs[:] = 0.0
    add_panel_cost(costs[0], handle.costs, ticket.draws)
    add_expected_costs(costs[1], handle.costs, of_experts)
    add_to_totals(handle.totals, costs)
    for j in range(ticket.draws.size):
        inclusion[j] = of_experts[ticket.draws[j]]
    propensity, q, learned = ticket.propensity, ticket.draw_probabilities, ticket.inclusion
    if math.isnan(propensity) and q.size > 0:
        propensity = compute_iid_propensity(q, ticket.draws)
    if propensity > 1.0:  # the exponential of a rounded logarithm may be
        propensity = 1.0
    return (
        ticket.draws,
        q if q.size > 0 else None,
        learned if learned.size > 0 else None,
        ticket.share,
        ticket.feasible,
        propensity,
        ticket.weight,
        ticket.replaced,
    )


@takes_handle(TICKET, FLOAT, FLOATS, INT, FLOAT, FLOAT)
def learn_feedback(
    handle: Any, ticket: Ticket, value: float, scores: Floats, winner: int, low: float, high: float
) -> None:
    """Add a reward to the totals, and let the policy learn from it on the scale [0, 1].

    scores, winner: as in `Feedback`, but scores as they were given
    """
    span = high - low
    feedback = Feedback((value - low) / span, scale_scores(scores, low, span), winner)
    learn(handle.rule, handle.state, ticket, feedback)
    handle.totals.rewards[0] += 1
    handle.totals.total[0] += value


@jit
def scale_scores(scores: Floats, low: float, span: float) -> Floats:
    """Map scores from [low, low + span] to [0, 1]; NaN stays NaN."""
    if scores.size == 0:
        return scores
    scaled = np.empty(scores.size)
    for j in range(scores.size):
        scaled[j] = (scores[j] - low) / span
    return scaled


@takes_handle(FLOATS, BOOLS)
def average_distribution(handle: Any, weights: Floats, available: Bools) -> Floats:
    """sum_x w_x q_x / sum_x w_x over the first contexts, as many as there are weights."""
    mean, total = np.zeros(handle.costs.shape[1]), 0.0
    for x in range(weights.size):
        total += weights[x]
    for x in range(weights.size):
        if weights[x] > 0.0:
            view = View(handle.limits, x, available, False, False)
            q = compute_distribution(handle.rule, handle.state, view)
            for i in range(mean.size):
                mean[i] += weights[x] / total * q[i]
    return mean
