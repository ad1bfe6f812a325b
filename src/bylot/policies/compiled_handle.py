"""The boundary between a router and compiled code: rule, state, totals and costs in one handle.

Passing some thirty arrays takes longer than a decision; a `CompiledHandle` is passed as one
pointer. It holds the arrays of the NamedTuples that it was made from, not copies.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.experimental import structref

from bylot.numerics.iid_sets import add_expected_costs
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_entry
from bylot.numerics.philox import RngKey
from bylot.numerics.sampling import add_panel_cost
from bylot.policies.base import (
    PLAIN_RULES,
    Feedback,
    FunctionT,
    Ticket,
    compute_distribution,
    compute_inclusion,
    decide,
    learn,
)
from bylot.policies.guard import advance, enter, find_spent, note_refused
from bylot.policies.iid_draws import compute_iid_propensity
from bylot.policies.spend_settlement import settle
from bylot.policies.tenant_ledgers import Ledgers, begin_tenant, load_tenant, store_tenant


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
    """CompiledHandle(rule, state, totals, costs), with costs (n, K) in the order of their names."""


structref.define_proxy(CompiledHandle, CompiledHandleType, ["rule", "state", "totals", "costs"])


@jit_entry
def make_compiled_handle(rule: Any, state: Any, totals: Totals, costs: Floats) -> CompiledHandle:
    """Make a handle; the constructor of numba's proxy would be compiled again in every process."""
    return CompiledHandle(rule, state, totals, costs)


class PlainHandle(NamedTuple):
    """The same parts for a rule whose steps are plain Python."""

    rule: Any
    state: Any
    totals: Totals
    costs: Floats


def make_handle(rule: Any, state: Any, totals: Totals, costs: Floats) -> Any:
    """The handle that the functions below take."""
    make = PlainHandle if type(rule) in PLAIN_RULES else make_compiled_handle
    return make(rule, state, totals, costs)


def takes_handle(entry: FunctionT) -> FunctionT:
    """Run the source of a compiled function if the handle is plain."""

    @functools.wraps(entry)
    def run(handle: Any, *others: Any) -> Any:
        chosen: Any = entry.py_func if type(handle) is PlainHandle else entry  # type: ignore[attr-defined]
        return chosen(handle, *others)

    return run  # type: ignore[return-value]


def choose_entry(entry: FunctionT, handle: Any) -> FunctionT:
    """The compiled function itself, unless the handle is plain: it saves a call."""
    return entry if type(handle) is PlainHandle else entry.__wrapped__  # type: ignore[attr-defined]


class BookedDecision(NamedTuple):
    """A decision, its costs, and its probabilities."""

    ticket: Ticket
    costs: Floats  # (2, n): row 0 realised, row 1 expected before the draw
    inclusion: Floats  # (M,) probability of each draw's expert to be in the panel
    propensity: float  # of the panel; NaN if the policy does not know it


DrawnParts = tuple[Ints, Floats, Floats, float, bool, float, float, bool, Floats, Floats, float]
"""What `draw_and_book` returns: of the ticket all but number, context and available experts, then
the rest of a `BookedDecision`. A plain tuple reaches Python in half the time of a NamedTuple."""


@takes_handle
@jit_entry
def draw_and_book(handle: Any, x: int, seed: int, t: int, available: Bools) -> DrawnParts:
    """Decide in context x and charge the cost, whether or not a reward comes."""
    enter(handle.rule, handle.state, x)
    ticket = decide(handle.rule, handle.state, x, RngKey(seed, t), available)
    costs = np.zeros((2, handle.costs.shape[0]))
    inclusion = compute_inclusion(handle.rule, handle.state, ticket)
    add_panel_cost(costs[0], handle.costs, ticket.draws)
    add_expected_costs(costs[1], handle.costs, inclusion)
    add_to_totals(handle.totals, costs)
    propensity, q = ticket.propensity, ticket.draw_probabilities
    if math.isnan(propensity) and q.size > 0:
        propensity = compute_iid_propensity(q, ticket.draws)
    if propensity > 1.0:  # the exponential of a rounded logarithm may be
        propensity = 1.0
    of_draws = np.empty(ticket.draws.size)
    for j in range(of_draws.size):
        of_draws[j] = inclusion[ticket.draws[j]]
    return (
        ticket.draws,
        ticket.draw_probabilities,
        ticket.inclusion,
        ticket.share,
        ticket.feasible,
        ticket.propensity,
        ticket.weight,
        ticket.replaced,
        costs,
        of_draws,
        propensity,
    )


def book_parts(parts: DrawnParts, x: int, t: int, available: Bools) -> BookedDecision:
    """The decision of these parts."""
    draws, q, inclusion, share, feasible, p, weight, replaced, costs, of_draws, propensity = parts
    ticket = Ticket(t, x, draws, q, inclusion, available, share, feasible, p, weight, replaced)
    return BookedDecision(ticket, costs, of_draws, propensity)


@takes_handle
@jit_entry
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


@jit_entry
def settle_spend(handle: Any, t: int, members: Ints, more: Floats, spend: Floats) -> None:
    """Book and learn what the calls of decision t cost (`spend_settlement.settle_calls`)."""
    settle(handle.rule, handle.state, t, members, more, spend)


@jit_entry
def advance_time(handle: Any, at: int) -> None:
    """Let windows of the calendar that are over at this instant end (`guard.advance`)."""
    advance(handle.rule, handle.state, at)


@jit_entry
def find_spent_budget(handle: Any, at: int, available: Bools) -> int:
    """The limit whose budget leaves no panel at this instant, by its place; -1: none does."""
    return find_spent(handle.rule, handle.state, at, available)


@jit_entry
def find_spent_tenant(
    handle: Any, at: int, available: Bools, ledgers: Ledgers, slot: int, tenants: int
) -> int:
    """`find_spent_budget` for a tenant; nothing changes."""
    load_tenant(handle.rule, handle.state, ledgers, slot)
    begin_tenant(handle.rule, handle.state, ledgers, slot, tenants, False)
    found = find_spent(handle.rule, handle.state, at, available)
    store_tenant(handle.rule, handle.state, ledgers, -1)
    return found


@jit_entry
def load_ledger(handle: Any, ledgers: Ledgers, slot: int) -> None:
    """Make the rows of limits for each tenant those of one (`tenant_ledgers.load_rows`)."""
    load_tenant(handle.rule, handle.state, ledgers, slot)


@jit_entry
def begin_ledger(handle: Any, ledgers: Ledgers, slot: int, tenants: int) -> None:
    """The same for a decision: windows that are over end (`tenant_ledgers.begin_windows`)."""
    load_tenant(handle.rule, handle.state, ledgers, slot)
    begin_tenant(handle.rule, handle.state, ledgers, slot, tenants, True)


@jit_entry
def store_ledger(handle: Any, ledgers: Ledgers, slot: int) -> None:
    """Write the rows back into the ledger (`tenant_ledgers.store_rows`)."""
    store_tenant(handle.rule, handle.state, ledgers, slot)


@jit_entry
def note_refused_requests(handle: Any, at: int, requests: int) -> None:
    """Count requests that were refused (`guard.note_refused`)."""
    note_refused(handle.rule, handle.state, at, requests)


@jit
def scale_scores(scores: Floats, low: float, span: float) -> Floats:
    """Map scores from [low, low + span] to [0, 1]; NaN stays NaN."""
    if scores.size == 0:
        return scores
    scaled = np.empty(scores.size)
    for j in range(scores.size):
        scaled[j] = (scores[j] - low) / span
    return scaled


@takes_handle
@jit_entry
def average_distribution(handle: Any, weights: Floats, available: Bools) -> Floats:
    """sum_x w_x q_x / sum_x w_x over the first contexts, as many as there are weights."""
    mean, total = np.zeros(handle.costs.shape[1]), 0.0
    for x in range(weights.size):
        total += weights[x]
    for x in range(weights.size):
        if weights[x] > 0.0:
            q = compute_distribution(handle.rule, handle.state, x, available)
            for i in range(mean.size):
                mean[i] += weights[x] / total * q[i]
    return mean
