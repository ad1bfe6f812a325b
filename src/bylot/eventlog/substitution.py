"""Substitution: whether a member of a stored decision can be replaced, and by whom."""

import numpy as np

from bylot.errors import DecisionError, NoSubstitute
from bylot.eventlog.commands import ReplaceMember
from bylot.eventlog.events import MemberReplaced
from bylot.eventlog.history import CurrentDecision
from bylot.numerics.jit import Bools
from bylot.problem import Problem
from bylot.router.core import CostsByName, RouterCore


def choose_substitute(
    core: RouterCore, active: Bools, current: CurrentDecision, command: ReplaceMember
) -> tuple[int, int]:
    """The numbers of the member that failed and of its substitute, drawn from those who can."""
    made, failed = current.made, find_member(current, command)
    candidates = mark_candidates(core, active, current, command)
    candidates &= core.mark_substitutes(failed)
    if not candidates.any():
        raise NoSubstitute(
            f"nobody can take the place of {command.failed!r} in decision {command.id}",
            expected="an available expert that is not paused, was not in the panel, and costs no "
            "more under any limit",
            remedy="go on with the other members; nothing was changed",
        )
    context = core.contexts[made.context]
    number = len(current.failed)
    return failed, core.draw_substitute(context, made.t, number, candidates, active)


def find_member(current: CurrentDecision, command: ReplaceMember) -> int:
    """The number of the member that failed, or an error if the panel does not have it."""
    made = current.made
    if command.failed not in made.draws:
        raise DecisionError(
            f"decision {command.id} has no member {command.failed!r}",
            expected=f"one of {', '.join(map(repr, dict.fromkeys(made.draws)))}",
            remedy="nothing was changed",
        )
    return made.seats[made.draws.index(command.failed)]


def mark_candidates(
    core: RouterCore, active: Bools, current: CurrentDecision, command: ReplaceMember
) -> Bools:
    """A mask of the available experts that are not paused, and never were in the panel."""
    mask = np.ones(core.problem.size, np.bool_)
    if command.available is not None:
        named = core.mask_available(command.available) if command.available else ~mask
        mask &= named if named.size else mask
    if active.size:
        mask &= active
    gone = set(current.failed)
    mask[[i for i, name in enumerate(core.problem.experts) if name in gone]] = False
    mask[list(current.made.seats)] = False
    return mask


def make_exchange(
    problem: Problem,
    current: CurrentDecision,
    command: ReplaceMember,
    added: int,
    more: CostsByName,
    more_held: CostsByName,
) -> MemberReplaced:
    """The body of the event; more: by how much the stated costs of the panel change; more_held: and
    what is reserved beyond them.
    """
    spend = {name: cost + more.get(name, 0.0) for name, cost in current.made.spend.items()}
    held = {name: cost + more_held.get(name, 0.0) for name, cost in current.made.held.items()}
    return MemberReplaced(
        failed=command.failed,
        available=command.available,
        added=problem.experts[added],
        seat=added,
        spend=spend,
        held=held,
        by=command.by,
    )
