"""The one contract of all policies: a rule, a state, and four compiled steps chosen by the rule.

A *rule* is a NamedTuple of settings bound to a problem, a *state* a NamedTuple of arrays that the
steps write into. Simulator, router and service call the same steps; who calls them, and what
happens to a ticket between decision and reward, is left to them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba.extending import overload

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints, compiled, inlined

RAREST = 2.0**-1022  # told of a set that is rarer still: a chance of 0 stands for one not told

Step = TypeVar("Step", bound=Callable[..., Any])


class Ticket(NamedTuple):
    """All that a later reward needs: it is never read back from the state."""

    t: int
    context: int
    draws: Ints
    odds: Floats  # of each draw; of every expert, where the set is drawn as one; empty: untold
    up: Bools  # the experts it could be drawn from; empty: all
    share: float  # of q that they held
    feasible: bool  # could the step that led here keep its constraint?
    chance: float  # of the whole set, where it is drawn as one; 0: not told
    weight: float  # of what is learned from it: 1, unless it was drawn from a mixture
    replaced: bool  # was the draw replaced, so that nothing can be learned from it?


@inlined
def odds_of(ticket: Ticket, j: int) -> float:
    """Of draw j: its own, or its expert's chance to be in the set; NaN where none is told."""
    told, draws = ticket.odds, ticket.draws
    if told.size == draws.size:
        return float(told[j])
    return float(told[draws[j]]) if told.size > 0 else np.nan


def decide(rule: Any, state: Any, context: int, chance: Chance, up: Bools) -> Ticket:
    """Move the policy if it is due, draw a panel among the experts that are up, owe its cost.

    `up` is a mask of the experts that can be drawn; an empty one stands for all.
    """
    return decide_compiled(rule, state, context, chance, up)


def learn(rule: Any, state: Any, ticket: Ticket, reward: float) -> None:
    """Credit a reward to the decision it belongs to; late or out of order is as good as prompt."""
    learn_compiled(rule, state, ticket, reward)


def law(rule: Any, state: Any, context: int, up: Bools) -> Floats:
    """The distribution that a decision just made in this context, among these, was drawn from.

    Where panels are not drawn from one: how often each expert was drawn so far in this context.
    """
    return law_compiled(rule, state, context, up)


def chances(rule: Any, state: Any, ticket: Ticket) -> Floats:
    """The (K,) chances to be in the panel that a decision just made had before it was drawn.

    Where they have no closed form: the panel itself, 1 for its members, which is right on average.
    """
    return chances_compiled(rule, state, ticket)


@compiled
def decide_compiled(rule: Any, state: Any, context: int, chance: Chance, up: Bools) -> Ticket:
    """`decide` for callers in Python; in compiled code the name below is the step itself."""
    return decide(rule, state, context, chance, up)


@compiled
def learn_compiled(rule: Any, state: Any, ticket: Ticket, reward: float) -> None:
    """`learn` for callers in Python."""
    learn(rule, state, ticket, reward)


@compiled
def law_compiled(rule: Any, state: Any, context: int, up: Bools) -> Floats:
    """`law` for callers in Python."""
    return law(rule, state, context, up)


@compiled
def chances_compiled(rule: Any, state: Any, ticket: Ticket) -> Floats:
    """`chances` for callers in Python."""
    return chances(rule, state, ticket)


STEPS: dict[tuple[Callable[..., Any], type], Callable[..., Any]] = {}


def step(generic: Callable[..., Any], rule: type) -> Callable[[Step], Step]:
    """Register the body that `generic` has for rules of this type.

    Bodies are inlined, and numba then throws away writes whose target it cannot trace back to an
    argument: take an array from the state where it is written to, or hand it to a compiled kernel.
    Tests that replay a policy in Python notice a write that is gone.
    """

    def register(body: Step) -> Step:
        STEPS[generic, rule] = body
        return body

    return register


# Compiled code picks the body by the *type* of the rule. A loop over `decide` and `learn` can then
# be kept on disk, which one that is handed the steps as arguments cannot.
@overload(decide, strict=False, inline="always")  # type: ignore[untyped-decorator]
def _(rule: Any, state: Any, context: Any, chance: Any, up: Any) -> Any:
    return STEPS[decide, rule.instance_class]


@overload(learn, strict=False, inline="always")  # type: ignore[untyped-decorator]
def _(rule: Any, state: Any, ticket: Any, reward: Any) -> Any:
    return STEPS[learn, rule.instance_class]


@overload(law, strict=False, inline="always")  # type: ignore[untyped-decorator]
def _(rule: Any, state: Any, context: Any, up: Any) -> Any:
    return STEPS[law, rule.instance_class]


@overload(chances, strict=False, inline="always")  # type: ignore[untyped-decorator]
def _(rule: Any, state: Any, ticket: Any) -> Any:
    return STEPS[chances, rule.instance_class]
