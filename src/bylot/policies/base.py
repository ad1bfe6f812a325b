"""The one contract of all policies: a rule, a state, and four compiled steps chosen by the rule.

A *rule* is a NamedTuple of settings bound to a problem, a *state* a NamedTuple of arrays that the
steps write into. Simulator, router and service call the same steps; who calls them, and what
happens to a ticket between decision and reward, is left to them.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numba.extending import overload

from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.philox import RngKey
from bylot.numerics.sampling import IidDraws
from bylot.problem import Problem

MIN_PROPENSITY = 2.0**-1022  # recorded for rarer panels: a propensity is never 0

StepBody = TypeVar("StepBody", bound=Callable[..., Any])


class Ticket(NamedTuple):
    """All that a later reward needs: it is never read back from the state."""

    t: int
    context: int
    draws: Ints  # (M,)
    draw_probabilities: Floats  # (M,) of each i.i.d. draw; empty if the panel is drawn as a set
    inclusion: Floats  # (K,) under the learned distribution of panels; empty if there is none
    available: Bools  # (K,) the experts it could be drawn from; empty: all
    share: float  # of q that the available experts hold
    feasible: bool  # could the step before this draw satisfy its constraint?
    propensity: float  # probability of the panel; NaN if unknown or not computed yet
    weight: float  # of what is learned from it: 1, unless it was drawn from a mixture
    replaced: bool  # did the guard replace the draw, so that nothing can be learned from it?


@jit_inline
def make_iid_ticket(
    t: int,
    context: int,
    panel: IidDraws,
    available: Bools,
    share: float,
    feasible: bool,
    propensity: float,
    replaced: bool,
) -> Ticket:
    """The ticket of M i.i.d. draws."""
    draws, q = panel.draws, panel.probabilities
    return Ticket(
        t,
        context,
        draws,
        q,
        np.empty(0),
        available,
        share,
        feasible,
        propensity,
        1.0,
        replaced,
    )


@jit_inline
def make_set_ticket(
    t: int,
    context: int,
    draws: Ints,
    inclusion: Floats,
    available: Bools,
    feasible: bool,
    propensity: float,
    weight: float,
    replaced: bool,
) -> Ticket:
    """The ticket of a panel that was drawn as one set."""
    return Ticket(
        t,
        context,
        draws,
        np.empty(0),
        inclusion,
        available,
        1.0,
        feasible,
        propensity,
        weight,
        replaced,
    )


@jit_inline
def make_plain_ticket(
    t: int, context: int, draws: Ints, available: Bools, feasible: bool, replaced: bool
) -> Ticket:
    """The ticket of a policy that does not know the probabilities of its panels."""
    none = np.empty(0)
    return Ticket(t, context, draws, none, none, available, 1.0, feasible, np.nan, 1.0, replaced)


def decide(rule: Any, state: Any, context: int, rng: RngKey, available: Bools) -> Ticket:
    """Move the policy if it is due, draw a panel among the experts that are up, owe its cost.

    `up` is a mask of the experts that can be drawn; an empty one stands for all.
    """
    return decide_compiled(rule, state, context, rng, available)


def learn(rule: Any, state: Any, ticket: Ticket, reward: float) -> None:
    """Credit a reward to the decision it belongs to; late or out of order is as good as prompt."""
    learn_compiled(rule, state, ticket, reward)


def compute_distribution(rule: Any, state: Any, context: int, available: Bools) -> Floats:
    """The distribution that a decision just made in this context, among these, was drawn from.

    Where panels are not drawn from one: how often each expert was drawn so far in this context.
    """
    return compute_distribution_compiled(rule, state, context, available)


def compute_inclusion(rule: Any, state: Any, ticket: Ticket) -> Floats:
    """The (K,) chances to be in the panel that a decision just made had before it was drawn.

    Where they have no closed form: the panel itself, 1 for its members, which is right on average.
    """
    return compute_inclusion_compiled(rule, state, ticket)


@jit
def decide_compiled(rule: Any, state: Any, context: int, rng: RngKey, available: Bools) -> Ticket:
    """`decide` for callers in Python; in compiled code the name below is the step itself."""
    return decide(rule, state, context, rng, available)


@jit
def learn_compiled(rule: Any, state: Any, ticket: Ticket, reward: float) -> None:
    """`learn` for callers in Python."""
    learn(rule, state, ticket, reward)


@jit
def compute_distribution_compiled(rule: Any, state: Any, context: int, available: Bools) -> Floats:
    """`compute_distribution` for callers in Python."""
    return compute_distribution(rule, state, context, available)


@jit
def compute_inclusion_compiled(rule: Any, state: Any, ticket: Ticket) -> Floats:
    """`compute_inclusion` for callers in Python."""
    return compute_inclusion(rule, state, ticket)


STEP_BODIES: dict[tuple[Callable[..., Any], type], Callable[..., Any]] = {}


def step(generic: Callable[..., Any], rule: type) -> Callable[[StepBody], StepBody]:
    """Register the body that `generic` has for rules of this type.

    Bodies are inlined, and numba then throws away writes whose target it cannot trace back to an
    argument: take an array from the state where it is written to, or hand it to a compiled kernel.
    Tests that replay a policy in Python notice a write that is gone.
    """

    def register(body: StepBody) -> StepBody:
        STEP_BODIES[generic, rule] = body
        return body

    return register


# Compiled code picks the body by the *type* of the rule. A loop over `decide` and `learn` can then
# be kept on disk, which one that is handed the steps as arguments cannot.
@overload(decide, strict=False, inline="always")  # type: ignore[untyped-decorator]
def _(rule: Any, state: Any, context: Any, rng: Any, available: Any) -> Any:
    return STEP_BODIES[decide, rule.instance_class]


@overload(learn, strict=False, inline="always")  # type: ignore[untyped-decorator]
def _(rule: Any, state: Any, ticket: Any, reward: Any) -> Any:
    return STEP_BODIES[learn, rule.instance_class]


@overload(compute_distribution, strict=False, inline="always")  # type: ignore[untyped-decorator]
def _(rule: Any, state: Any, context: Any, available: Any) -> Any:
    return STEP_BODIES[compute_distribution, rule.instance_class]


@overload(compute_inclusion, strict=False, inline="always")  # type: ignore[untyped-decorator]
def _(rule: Any, state: Any, ticket: Any) -> Any:
    return STEP_BODIES[compute_inclusion, rule.instance_class]


class Policy(Protocol):
    """Frozen settings; what they do is in the steps registered for the rule they bind to."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    aware: ClassVar[bool]
    """Does it look at the limits?"""

    multinomial: ClassVar[bool]
    """Is a panel M i.i.d. draws from its law? If not, no theorem applies."""

    whole: ClassVar[bool]
    """Is a panel drawn as one set? Tickets then have propensities and inclusion probabilities."""

    def bind(self, problem: Problem, horizon: int | None = None) -> Any:
        """The rule for this problem, over a known horizon or for as long as it is asked."""
        ...

    def start(self, rule: Any, contexts: int = 1) -> Any:
        """The state before the first decision; a line of `visits` for each context."""
        ...

    def sound(self, rule: Any, state: Any) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        ...

    def prices(self, problem: Problem, rule: Any, state: Any) -> Floats:
        """What each limit costs now, in rewards of [0, 1] per unit of its bound; NaN: unknown."""
        ...


@runtime_checkable
class HasMaxContexts(Protocol):
    """A policy that remembers so much of every context that there is room for only so many."""

    def most_contexts(self, size: int) -> int:
        """Contexts of a pool of so many experts that `start` has room for."""
        ...


@runtime_checkable
class HasDerivedState(Protocol):
    """A policy whose state holds, for speed, what follows from the rest of it.

    Saved files do without: they would be many times as large.
    """

    derived: ClassVar[tuple[str, ...]]
    """The fields of the state that follow from the others."""

    def derive(self, rule: Any, state: Any) -> None:
        """Write them, to the last bit as the steps do."""
        ...
