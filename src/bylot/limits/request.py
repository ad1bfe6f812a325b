"""One request under limits: what a policy sees of them, what it proposes, and what is played.

    view = open_request(limits, context, at, available)
    proposal = propose(rule, state, view, rng)      # the policy
    ticket = admit(limits, view, proposal, t)

Windows that are over end, the ledgers of the request are found and bounds in force are set when it
is opened. A proposal is admitted or replaced, and booked. `Unlimited` stands for limits that nobody
keeps: a policy that reads none plays exactly what it proposes.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from bylot.limits.guard import clear_shortfall, find_spent_limit, forecast_shortfall, guard_panel
from bylot.limits.ledger import advance_windows, begin_key_windows, find_places
from bylot.limits.pacing import fill_key_bounds, fill_paced_bounds
from bylot.limits.records import Limits, LimitsType, LimitTables, point_to_limits
from bylot.limits.settlement import settle_calls
from bylot.limits.windows import count_requests
from bylot.numerics.embedded import jit_embedded
from bylot.numerics.jit import LINKED_OPTIONS, Bools, Floats, Ints, jit
from bylot.numerics.scratch_arrays import INLINED, no_floats
from bylot.numerics.set_selection import choose_top_m, count_available, fill_draws_from_set
from bylot.problem import Problem


class Unlimited(NamedTuple):
    """Limits that are not kept."""

    draws: int


def point_to(tables: LimitTables | None, problem: Problem) -> Limits | Unlimited:
    """Return what compiled code takes for limits."""
    return Unlimited(problem.draws) if tables is None else point_to_limits(*tables)


class View(NamedTuple):
    """What a policy sees of the limits for one request."""

    limits: Any  # Limits or Unlimited
    context: int
    available: Bools  # (K,) the experts that can be asked; empty: all
    begun: bool  # has a window begun, so that bounds in force have jumped?
    narrow: bool  # has this request bounds of its own, for its keys or its context?


class Proposal(NamedTuple):
    """The panel that a policy wants to ask."""

    members: Ints  # i.i.d. draws, or different experts
    draw_probabilities: Floats  # (M,) of each i.i.d. draw; empty if the panel is drawn as a set
    inclusion: Floats  # (K,) under the learned distribution of panels; empty if there is none
    share: float  # of q that the available experts hold
    weight: float  # of what is learned from it: 1, unless it was drawn from a mixture
    propensity: float  # probability of the panel; NaN if unknown or not computed yet
    feasible: bool  # could the policy satisfy the limits?


class Ticket(NamedTuple):
    """All that a later reward needs: it is never read back from the state."""

    t: int
    context: int
    draws: Ints  # (M,)
    draw_probabilities: Floats  # (M,) of each i.i.d. draw; empty if the panel is drawn as a set
    inclusion: Floats  # (K,) under the learned distribution of panels; empty if there is none
    available: Bools  # (K,) the experts it could be drawn from; empty: all
    share: float  # of q that the available experts hold
    feasible: bool  # can the limits still hold? omd: could q satisfy its constraint?
    propensity: float  # probability of the panel; NaN if unknown or not computed yet
    weight: float  # of what is learned from it: 1, unless it was drawn from a mixture
    replaced: bool  # by the guard, or a member that failed was? Gradient policies then skip it


def open_limits(limits: Limits, context: int, at: int, available: Bools) -> View:
    """Open a request: end windows that are over, find its ledgers, and set bounds in force."""
    clock = limits.clock[0]
    narrow = limits.columns > 0 or limits.counts.shape[0] > 0
    if narrow:
        find_places(limits, get_counting_limits(limits, context))
    if limits.windows.size > 0:
        advance_windows(limits, at)
    if limits.columns > 0:
        begin_key_windows(limits)
    begun = clock.begun
    if limits.paced > 0 and (clock.asked % limits.paced == 0 or begun):
        fill_paced_bounds(limits)
    elif limits.paced > 0 and limits.columns > 0:
        fill_key_bounds(limits)
    clock.asked += 1
    if available.size > 0:
        forecast_shortfall(limits, compute_least_costs(limits, available))
    elif clock.alarm:
        clear_shortfall(limits)
    return View(limits, context, available, begun, narrow)


@jit
def get_counting_limits(limits: Limits, context: int) -> Bools:
    """Return (d,) which limits count requests of a context; empty: all do."""
    return limits.counts[context] if limits.counts.shape[0] > 0 else np.empty(0, np.bool_)


@jit
def compute_least_costs(limits: Limits, available: Bools) -> Floats:
    """Return (d,) what panels of the available experts cost at least, under each row by itself."""
    costs = np.zeros(limits.rows.size)
    size = min(limits.most, count_available(available))
    for j in range(costs.size):
        row = limits.means[j]
        cheapest = choose_top_m(-row, size, available)
        for n in range(size):
            cost = row[cheapest[n]]
            costs[j] += cost if n < limits.fewest else min(cost, 0.0)
    return costs


def admit_panel(limits: Limits, view: View, proposal: Proposal, t: int) -> Ticket:
    """Play the proposal, or a panel in its place, and book it as decision t."""
    admitted = guard_panel(limits, proposal.members, view.available)
    draws = fill_draws(proposal, admitted.members, limits.draws, admitted.replaced)
    propensity = proposal.propensity
    drawn = proposal.draw_probabilities.size > 0
    if admitted.replaced and (drawn or not math.isnan(propensity)):
        propensity = 1.0
        for k in range(proposal.draw_probabilities.size):
            proposal.draw_probabilities[k] = 1.0
    feasible = admitted.kept and proposal.feasible and not limits.clock[0].alarm
    return Ticket(
        t,
        view.context,
        draws,
        proposal.draw_probabilities,
        proposal.inclusion,
        view.available,
        proposal.share,
        feasible,
        propensity,
        proposal.weight,
        admitted.replaced,
    )


@jit_embedded
def fill_draws(proposal: Proposal, members: Ints, count: int, replaced: bool) -> Ints:
    """Return the draws of a panel, repeated if there are more draws than members.

    An array of as many draws is the policy's own, which a replacement is written into.
    """
    draws = proposal.members
    own = draws.size == count
    if not own:
        draws = np.empty(count, np.int64)
    if replaced or not own:
        fill_draws_from_set(draws, members)
    return draws


def open_unlimited(limits: Unlimited, context: int, at: int, available: Bools) -> View:
    """Open a request where nothing is kept."""
    return View(limits, context, available, False, False)


def admit_unlimited(limits: Unlimited, view: View, proposal: Proposal, t: int) -> Ticket:
    """Play the proposal as decision t."""
    return Ticket(
        t,
        view.context,
        fill_draws(proposal, proposal.members, limits.draws, False),
        proposal.draw_probabilities,
        proposal.inclusion,
        view.available,
        proposal.share,
        proposal.feasible,
        proposal.propensity,
        proposal.weight,
        False,
    )


def find_spent_everybody(limits: Limits, context: int, at: int, available: Bools) -> int:
    """Return the budget that leaves no panel for a request of everybody, or -1; nothing changes."""
    if limits.counts.shape[0] > 0:
        find_places(limits, get_counting_limits(limits, context))
    return find_spent_limit(limits, at, available)


def find_nothing_spent(limits: Unlimited, context: int, at: int, available: Bools) -> int:
    """Return that no budget is spent."""
    return -1


def note_refused_requests(limits: Limits, at: int, requests: int) -> None:
    """Count requests that were refused, which are traffic too."""
    count_requests(limits, max(at, limits.clock[0].now), float(requests))


def ignore_refused(limits: Unlimited, at: int, requests: int) -> None:
    """Do nothing, as nobody forecasts traffic."""


def settle_limits(
    limits: Limits, context: int, t: int, members: Ints, more: Floats, spend: Floats
) -> None:
    """Book and learn what decision t cost (`settle_calls`), in the ledgers of everybody."""
    if limits.counts.shape[0] > 0:
        find_places(limits, get_counting_limits(limits, context))
    settle_calls(limits, t, members, more, spend, no_floats())


def ignore_bill(
    limits: Unlimited, context: int, t: int, members: Ints, more: Floats, spend: Floats
) -> None:
    """Do nothing, as nobody keeps ledgers."""


def choose_by_limits(kept: Callable[..., Any], unlimited: Callable[..., Any]) -> Any:
    """Return a function that is `kept` under limits and `unlimited` where none are kept.

    Compiled code picks the body by the type of its first argument. Python calls it compiled.
    """
    compiled = jit(kept)

    def run(limits: Any, *given: Any) -> Any:
        return (unlimited if isinstance(limits, Unlimited) else compiled)(limits, *given)

    @overload(run, jit_options=LINKED_OPTIONS, strict=False)  # type: ignore[untyped-decorator]
    def find_kept(limits: Any, *given: Any) -> Any:
        return kept if isinstance(limits, LimitsType) else None

    @overload(run, **INLINED)  # type: ignore[untyped-decorator]
    def find_unlimited(limits: Any, *given: Any) -> Any:
        return None if isinstance(limits, LimitsType) else unlimited

    return run


open_request = choose_by_limits(open_limits, open_unlimited)
"""open_request(limits, context, at, available) -> View

at: the time in microseconds; without windows it is not read"""
admit = choose_by_limits(admit_panel, admit_unlimited)
"""admit(limits, view, proposal, t) -> Ticket"""
find_spent = choose_by_limits(find_spent_everybody, find_nothing_spent)
"""find_spent(limits, context, at, available) -> int"""
note_refused = choose_by_limits(note_refused_requests, ignore_refused)
"""note_refused(limits, at, requests)"""
settle_everybody = choose_by_limits(settle_limits, ignore_bill)
"""settle_everybody(limits, context, t, members, more, spend)"""
