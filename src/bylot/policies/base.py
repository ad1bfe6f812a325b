"""The contract of all policies: settings, a rule, a state, and four compiled steps.

A fifth step, `settle` in `spend_settlement`, is for policies that learn what calls cost.

A *policy* holds settings and describes itself; `bind` makes a *rule*, a NamedTuple bound to a
problem, `start` a *state*, a NamedTuple of arrays that the steps write into. Simulator, router
and server call the same steps; they keep a ticket between a decision and its reward.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from bylot.distributions import IidSets, PanelDistribution
from bylot.numerics.dispatch import STEP_BODIES, dispatch_by_type, step
from bylot.numerics.embedded import jit_embedded
from bylot.numerics.iid_sets import log_iid_set_probability
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.philox import RngKey, RngStream
from bylot.numerics.sampling import fill_first, is_first_draw
from bylot.numerics.scratch_arrays import no_floats, scratch_floats
from bylot.policies.validation import FeedbackKind as FeedbackKind
from bylot.policies.validation import SettingKind, check_settings
from bylot.problem import Problem
from bylot.problem.change import BoundPolicy, ProblemChange

MIN_PROPENSITY = 2.0**-1022  # recorded for rarer panels: a propensity is never 0

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


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


class Feedback(NamedTuple):
    """What was reported about a panel, on the scale [0, 1] of rewards."""

    reward: float  # of the panel: what is to be maximised
    scores: Floats  # (M,) of the expert of each draw by itself; NaN: unknown; empty: all unknown
    winner: int  # the expert that earned the reward; -1: unknown, or nobody


NO_SCORES: Floats = np.empty(0)
NO_WINNER = -1


@jit_inline
def make_plain_ticket(
    t: int, context: int, draws: Ints, available: Bools, feasible: bool, replaced: bool
) -> Ticket:
    """The ticket of a policy that does not know the probabilities of its panels."""
    none = no_floats()
    return Ticket(t, context, draws, none, none, available, 1.0, feasible, np.nan, 1.0, replaced)


def decide(rule: Any, state: Any, context: int, rng: RngKey, available: Bools) -> Ticket:
    """Move the policy if a step is due, draw a panel of available experts, and charge its cost.

    `available` is a mask of the experts that can be drawn; an empty one stands for all.
    """
    run = choose_step(decide, decide_compiled, rule)
    return run(rule, state, context, rng, available)  # type: ignore[no-any-return]


def learn(rule: Any, state: Any, ticket: Ticket, feedback: Feedback) -> None:
    """Learn from the feedback on a decision; late or out of order is as good as prompt."""
    choose_step(learn, learn_compiled, rule)(rule, state, ticket, feedback)


def compute_distribution(rule: Any, state: Any, context: int, available: Bools) -> Floats:
    """The distribution that the last decision in this context was drawn from, of sum 1.

    Policies that do not draw from one: how often each expert was drawn so far in this context.
    """
    run = choose_step(compute_distribution, compute_distribution_compiled, rule)
    return run(rule, state, context, available)  # type: ignore[no-any-return]


def compute_inclusion(rule: Any, state: Any, ticket: Ticket) -> Floats:
    """(K,) probability to be in the panel of the last decision, before it was drawn.

    Where that has no closed form: the panel itself, 1 for its members, which is unbiased.
    """
    run = choose_step(compute_inclusion, compute_inclusion_compiled, rule)
    return run(rule, state, ticket)  # type: ignore[no-any-return]


PLAIN_RULES: set[type] = set()
"""Types of rules whose steps are plain Python: their source is run, nothing is compiled."""


def choose_step(generic: Any, compiled: Any, rule: Any) -> Any:
    """The body that Python calls for a step: compiled, or plain for a plain rule."""
    return STEP_BODIES[generic, type(rule)] if type(rule) in PLAIN_RULES else compiled


def choose_runner(entry: FunctionT, rule: Any) -> FunctionT:
    """A compiled function that runs steps, or its source for a plain rule."""
    return entry.py_func if type(rule) in PLAIN_RULES else entry  # type: ignore[attr-defined]


# For callers in Python; inside compiled code the four names above are the steps themselves.
@jit
def decide_compiled(rule: Any, state: Any, context: int, rng: RngKey, available: Bools) -> Ticket:
    return decide(rule, state, context, rng, available)


@jit
def learn_compiled(rule: Any, state: Any, ticket: Ticket, feedback: Feedback) -> None:
    learn(rule, state, ticket, feedback)


@jit
def compute_distribution_compiled(rule: Any, state: Any, context: int, available: Bools) -> Floats:
    return compute_distribution(rule, state, context, available)


@jit
def compute_inclusion_compiled(rule: Any, state: Any, ticket: Ticket) -> Floats:
    return compute_inclusion(rule, state, ticket)


for generic_step in (decide, learn, compute_distribution, compute_inclusion):
    dispatch_by_type(generic_step, inline=True)


@jit_inline
def count_members(drawn: Ints, draws: Ints) -> None:
    """Add a round for each distinct member of a panel."""
    for j in range(draws.size):
        drawn[draws[j]] += 1 if is_first_draw(draws, j) else 0


def has_valid_counts(visits: Ints, drawn: Ints) -> bool:
    """Validate counts loaded from disk."""
    possible = (drawn >= 0).all() and (drawn <= visits[:, None]).all()
    return bool(len(visits) > 0 and (visits >= 0).all() and possible)


@jit
def compute_shares(amounts: Any) -> Floats:
    """Amounts over their sum; equal shares if that is 0."""
    total, shares = 0.0, np.empty(amounts.size)
    for i in range(amounts.size):
        total += amounts[i]
    for i in range(amounts.size):
        shares[i] = amounts[i] / total if total > 0 else 1.0 / amounts.size
    return shares


@jit
def mark_members(draws: Ints, size: int) -> Floats:
    """1 for the members of a panel, 0 for the others: unbiased for inclusion probabilities."""
    inside = np.zeros(size)
    for j in range(draws.size):
        inside[draws[j]] = 1.0
    return inside


@jit_embedded
def compute_iid_propensity(probabilities: Floats, draws: Ints) -> float:
    """Return the probability of the set that M draws form, given that of each draw."""
    masses = scratch_floats(draws.size)
    n = fill_first(masses, probabilities, draws)
    p: float = np.exp(log_iid_set_probability(masses[:n], draws.size))
    return max(p, MIN_PROPENSITY)


def compute_pull_distribution(rule: Any, state: Any, context: int, available: Bools) -> Floats:
    """`compute_distribution`: how often each expert was drawn."""
    return compute_shares(state.drawn[context])


def compute_pull_inclusion(rule: Any, state: Any, ticket: Ticket) -> Floats:
    """`compute_inclusion`: the panel itself."""
    return mark_members(ticket.draws, state.drawn.shape[1])


def register_pull_steps(rule: type) -> None:
    """Register the other two steps of a policy without propensities, whose state has `drawn`."""
    step(compute_distribution, rule)(compute_pull_distribution)
    step(compute_inclusion, rule)(compute_pull_inclusion)


def round_up_visits(visits: Ints, batch: int) -> None:
    """Round visits up to whole batches, so that a step is due at the next decision."""
    visits[:] = -(-visits // batch) * batch


class Policy:
    """Frozen settings of a policy, and all that others need to know about it.

    Subclasses are frozen dataclasses, listed once in `registry`. The steps registered for the rule
    that `bind` returns do the work. A part of a state may have methods `migrate(new, change)`, for
    another problem, and `is_valid(rule)`, for states loaded from disk.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    name: ClassVar[str]  # in saved files, on the command line, over HTTP
    label: ClassVar[str]  # in figures and tables
    summary: ClassVar[str]  # what it does: completes the sentence "<name> ..."
    streams: ClassVar[tuple[RngStream, ...]] = (RngStream.DRAWS,)
    checks: ClassVar[Mapping[str, SettingKind]] = {}  # what each setting may be
    uses_limits: ClassVar[bool] = True
    keeps_windows: ClassVar[bool] = False  # of the calendar? Only a policy with a budget can
    keeps_groups: ClassVar[bool] = False  # limits of some contexts, or of each tenant?
    feedback: ClassVar[tuple[FeedbackKind, ...]] = ("panel",)
    """Kinds of feedback of which it uses everything that is reported."""
    draws_iid: ClassVar[bool] = False  # is a panel M i.i.d. draws? Else no theorem applies
    draws_sets: ClassVar[bool] = False  # is a panel drawn as one set from a known distribution?
    derived: ClassVar[tuple[str, ...]] = ()  # fields of the state that `derive` computes
    restarted: ClassVar[tuple[str, ...]] = ()  # fields that a change of the problem resets
    variants: ClassVar[Mapping[str, tuple[Mapping[str, Any], str]]] = {}
    """Other settings that have a name: the settings, and their summary."""

    def __post_init__(self) -> None:
        check_settings(self, self.checks)

    @property
    def has_propensities(self) -> bool:
        """Does every decision record the propensity of its panel?"""
        return self.draws_iid or self.draws_sets

    def to_settings(self) -> dict[str, Any]:
        """The settings as plain data, for saved files."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The inverse of `to_settings`."""
        return cls(**settings)

    def bind(
        self, problem: Problem, horizon: int | None = None, feedback: FeedbackKind = "panel"
    ) -> Any:
        """Make the rule for this problem; the horizon is None if it is unknown.

        feedback: what will be reported; a policy may ignore all but the reward
        """
        raise NotImplementedError

    def start(self, rule: Any, contexts: int = 1) -> Any:
        """Make the state before the first decision; it has a field `visits`, one per context."""
        raise NotImplementedError

    def is_valid_state(self, rule: Any, state: Any) -> bool:
        """Validate a state loaded from disk: its visits, and parts with an `is_valid`."""
        counted = len(state.visits) > 0 and (state.visits >= 0).all()
        parts = (part for part in state if hasattr(part, "is_valid"))
        return bool(counted and all(part.is_valid(rule) for part in parts))

    def prices(self, problem: Problem, rule: Any, state: Any) -> Floats:
        """The shadow price of each limit, in rewards of [0, 1] per unit of its bound; NaN: none."""
        return np.full(len(problem.limits), np.nan)

    def predict_random_panels(self, rule: Any, state: Any, context: int) -> float | None:
        """Return the expected reward of random panels, in [0, 1], or None without a model of it."""
        return None

    def derive(self, rule: Any, state: Any) -> None:
        """Compute the derived fields, which saved files leave out, to the last bit as the steps."""

    def max_contexts(self, size: int) -> int:
        """Contexts of a pool of `size` experts that `start` has memory for."""
        return 2**62

    def distribution(
        self, rule: Any, state: Any, context: int, available: Bools
    ) -> PanelDistribution | None:
        """The distribution of panels that the last decision was drawn from, if known."""
        if not self.draws_iid:
            return None
        return IidSets(compute_distribution(rule, state, context, available), rule.draws)

    def migrate(self, old: BoundPolicy, problem: Problem, rule: Any) -> Any:
        """The state to continue with under another problem, bound to this rule.

        Experts keep what was learned about them, by name; a new one begins as in `start`. Limits
        keep their multipliers, in the units of the new problem; a new one begins at 0.
        """
        change = ProblemChange(old.problem, problem, old.state.visits > 0)
        state = self.start(rule, len(old.state.visits))
        change.copy_state(old.state, state, (*self.derived, *self.restarted))
        self.finish_migration(change, old, BoundPolicy(problem, rule, state))
        return state

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Repair what copying field by field leaves inconsistent."""
