"""The one contract of all policies: a rule, a state, and three compiled steps chosen by the rule.

A *rule* is a NamedTuple of settings bound to a problem, a *state* a NamedTuple of arrays that the
steps write into. Simulator, router and service call the same steps; who calls them, and what
happens to a ticket between decision and reward, is left to them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from numba.extending import overload

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints, compiled

Step = TypeVar("Step", bound=Callable[..., Any])


class Ticket(NamedTuple):
    """All that a later reward needs: it is never read back from the state."""

    t: int
    context: int
    draws: Ints
    odds: Floats  # of each draw, at decision time
    up: Bools  # the experts it could be drawn from; empty: all
    share: float  # of q that they held
    feasible: bool  # could the step that led here keep its constraint?


def decide(rule: Any, state: Any, context: int, chance: Chance, up: Bools) -> Ticket:
    """Move the policy if it is due, draw a panel among the experts that are up, owe its cost.

    `up` is a mask of the experts that can be drawn; an empty one stands for all.
    """
    return decide_compiled(rule, state, context, chance, up)


def learn(rule: Any, state: Any, ticket: Ticket, reward: float) -> None:
    """Credit a reward to the decision it belongs to; late or out of order is as good as prompt."""
    learn_compiled(rule, state, ticket, reward)


def law(rule: Any, state: Any, context: int, up: Bools) -> Floats:
    """The distribution that a decision just made in this context, among these, was drawn from."""
    return law_compiled(rule, state, context, up)


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


STEPS: dict[tuple[Callable[..., Any], type], Callable[..., Any]] = {}


def step(generic: Callable[..., Any], rule: type) -> Callable[[Step], Step]:
    """Register the body that `generic` has for rules of this type."""

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
