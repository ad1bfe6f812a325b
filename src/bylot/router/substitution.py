"""Substitution: whether a member of a decision can be replaced, and by whom."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import structs

from bylot.errors import DecisionError, NoSubstitute
from bylot.limits.book import NO_FLOATS
from bylot.limits.substitutes import draw_substitute
from bylot.numerics.jit import Bools, announce_compilation
from bylot.numerics.philox import RngKey
from bylot.problem import Problem
from bylot.router.changes import DecisionMade, MemberReplaced
from bylot.router.core import RouterCore
from bylot.router.open_decisions import OpenDecision

GO_ON = "go on with the other members"


def find_member(made: DecisionMade, failed: str, id: str) -> int:
    """Return the number of the member that failed, or raise an error if there is none."""
    if failed not in made.panel:
        raise DecisionError(
            f"decision {id} has no member {failed!r}",
            expected=f"one of {', '.join(map(repr, dict.fromkeys(made.panel)))}",
            remedy="nothing was changed",
        )
    return int(made.ticket.draws[made.panel.index(failed)])


def choose_substitute(
    core: RouterCore,
    active: Bools,
    decision: OpenDecision,
    failed: int,
    available: Sequence[str] | None,
    id: str,
) -> int:
    """Return the number of an expert who can take the place of a member, drawn from those."""
    made = decision.known
    candidates = mark_candidates(core, active, decision, available)
    candidates &= core.book.mark_substitutes(failed)
    if not candidates.any():
        raise NoSubstitute(
            f"nobody can take the place of {core.problem.experts[failed]!r} in decision {id}",
            expected="an available expert that is not paused, was not in the panel, and costs no "
            "more under any limit",
            remedy=f"{GO_ON}; nothing was changed",
        )
    context = core.contexts[made.context]
    return draw_expert(core, context, decision.t, len(decision.failed), candidates, active)


def draw_expert(
    core: RouterCore, context: int, t: int, number: int, candidates: Bools, active: Bools
) -> int:
    """Draw one of the candidates from the distribution of a context as it is now.

    number: of exchanges in decision t so far
    """
    with announce_compilation(f"the distributions of {core.policy.name}"):
        q = core.read_distribution(context, active)
    return draw_substitute(q, candidates, RngKey(core.run.seed, t), number)


def mark_candidates(
    core: RouterCore, active: Bools, decision: OpenDecision, available: Sequence[str] | None
) -> Bools:
    """Return a mask of the available experts that are not paused, and never were in the panel."""
    mask = np.ones(core.problem.size, np.bool_)
    if available is not None:
        named = core.mask_available(available) if available else ~mask
        mask &= named if named.size else mask
    if active.size:
        mask &= active
    gone = set(decision.failed)
    mask[[i for i, name in enumerate(core.problem.experts) if name in gone]] = False
    mask[decision.known.ticket.draws] = False
    return mask


def add_costs(costs: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Return costs by name, changed by as much as is given, but not below 0."""
    return {name: max(cost + more.get(name, 0.0), 0.0) for name, cost in costs.items()}


def has_current_costs(problem: Problem, made: DecisionMade) -> bool:
    """Return whether a panel is booked at what it would cost now: costs may have been edited."""
    members = np.unique(made.ticket.draws)
    return all(
        math.isclose(row[members].sum(), made.spend.get(name, 0.0), abs_tol=1e-12)
        for name, row in problem.costs.items()
        if name in made.spend
    )


def exchange_member(decision: OpenDecision, change: MemberReplaced) -> None:
    """Exchange a member. The panel was then not drawn as a whole: it has no probabilities."""
    made = decision.known
    draws = made.ticket.draws.copy()
    draws[[name == change.failed for name in made.panel]] = change.seat
    ticket = made.ticket._replace(
        draws=draws, draw_probabilities=NO_FLOATS, inclusion=NO_FLOATS, propensity=np.nan
    )
    decision.made = structs.replace(
        made,
        ticket=ticket,
        panel=tuple(change.added if name == change.failed else name for name in made.panel),
        inclusion=None,
        propensity=None,
        spend=change.spend,
        held=change.held,
    )
    decision.failed = (*decision.failed, change.failed)
