"""The contract of all policies: settings, a rule, a state, and four compiled steps.

A fifth step, `settle` in `spend_settlement`, is for policies that learn what calls cost.

A *policy* holds settings and describes itself; `bind` makes a *rule*, a NamedTuple bound to a
problem, `start` a *state*, a NamedTuple of arrays that the steps write into. Simulator, router
and server call the same steps; they keep a ticket between a decision and its reward.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numba.extending import overload

from bylot.distributions import IidSets, PanelDistribution
from bylot.numerics.jit import INLINED_OPTIONS, LINKED_OPTIONS, Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.philox import RngKey, RngStream
from bylot.numerics.sampling import is_first_draw
from bylot.numerics.scratch_arrays import no_floats
from bylot.policies.validation import FeedbackKind as FeedbackKind
from bylot.policies.validation import SettingKind, check_settings
from bylot.problem import Limit, Problem

MIN_PROPENSITY = 2.0**-1022  # recorded for rarer panels: a propensity is never 0

StepBody = TypeVar("StepBody", bound=Callable[..., Any])
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


STEP_BODIES: dict[tuple[Callable[..., Any], type], Callable[..., Any]] = {}


def dispatch_by_type(
    generic: Callable[..., Any], inline: bool = False, default: Callable[..., Any] | None = None
) -> None:
    """Let compiled code pick the body of a function by the *type* of its first argument.

    A loop over such steps can be cached on disk, which one that takes them as arguments cannot.
    """
    how = ("always", INLINED_OPTIONS) if inline else ("never", LINKED_OPTIONS)

    @overload(generic, inline=how[0], jit_options=how[1], strict=False)  # type: ignore[untyped-decorator]
    def find_body(rule: Any, *others: Any) -> Any:
        return STEP_BODIES.get((generic, rule.instance_class), default)


for generic_step in (decide, learn, compute_distribution, compute_inclusion):
    dispatch_by_type(generic_step, inline=True)


def step(generic: Callable[..., Any], rule: type) -> Callable[[StepBody], StepBody]:
    """Register the body that `generic` has for rules of this type.

    Bodies are inlined, and numba then drops writes whose target it cannot trace back to an
    argument: take an array from the state where it is written to, or hand it to a compiled kernel.
    Tests that replay a policy in Python notice a write that is gone.
    """

    def register(body: StepBody) -> StepBody:
        STEP_BODIES[generic, rule] = body
        return body

    return register


@jit_inline
def count_members(drawn: Ints, draws: Ints) -> None:
    """Add a round for each distinct member of a panel."""
    for j in range(draws.size):
        drawn[draws[j]] += 1 if is_first_draw(draws, j) else 0


@jit
def select_first(values: Any, draws: Ints) -> Any:
    """The values at the first draw of each member; of draws themselves: the distinct members."""
    chosen, n = np.empty_like(values), 0
    for j in range(draws.size):
        if is_first_draw(draws, j):
            chosen[n] = values[j]
            n += 1
    return chosen[:n]


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


def has_same_pool(old: Problem, new: Problem) -> bool:
    """Are panels drawn from the same experts, as many at a time?"""
    return old.experts == new.experts and old.draws == new.draws


def match_positions(old: Sequence[Any], new: Sequence[Any]) -> tuple[Ints, Ints]:
    """The positions of what both have: in the first, in the second."""
    place = {one: i for i, one in enumerate(old)}
    pairs = [(place[one], i) for i, one in enumerate(new) if one in place]
    here, there = np.array(pairs, np.int64).reshape(-1, 2).T
    return here, there


@dataclass(frozen=True)
class ProblemChange:
    """What stays under another problem: experts by name, limits by cost and side."""

    old: Problem
    new: Problem
    used: Bools  # contexts with visits

    @cached_property
    def experts(self) -> tuple[Ints, Ints]:
        """The positions of the experts in both problems."""
        return match_positions(self.old.experts, self.new.experts)

    @cached_property
    def limits(self) -> tuple[Ints, Ints]:
        """The positions of limits on the same side of the same cost, whatever their bounds."""
        old, new = ([limit.key for limit in one.limits] for one in (self.old, self.new))
        return match_positions(old, new)

    @property
    def same_limits(self) -> Bools:
        """Which of the `limits` have the same bound as before, in the same windows."""
        here, there = self.limits
        pairs = zip(here.tolist(), there.tolist(), strict=True)
        same = [is_same_bound(self.old.limits[a], self.new.limits[b]) for a, b in pairs]
        return np.array(same, np.bool_)

    def copy_by_limit(self, old: Floats, new: Floats, growth: Any = 1.0) -> None:
        """Copy a number per limit; a policy that ignores limits has none."""
        if old.size and new.size:
            here, there = self.limits
            new[there] = old[here] * np.broadcast_to(growth, new.shape)[there]

    def growth(self, old: Floats, new: Floats) -> Floats:
        """By how much the unit of each limit has grown; 1 for a new one."""
        factor, (here, there) = np.ones(new.size), self.limits
        factor[there] = new[there] / old[here]
        return factor

    def copy_state(self, old: Any, new: Any, skip: Sequence[str] = ()) -> None:
        """Copy (X, K) by expert in used contexts, parts by their `migrate`, others as they are."""
        here, there = self.experts
        for name, was, now in zip(old._fields, old, new, strict=True):
            if name in skip:
                continue
            if hasattr(was, "migrate"):
                was.migrate(now, self)
            elif isinstance(was, tuple):
                self.copy_state(was, now, skip)
            elif was.ndim == 2:
                now[np.ix_(self.used, there)] = was[np.ix_(self.used, here)]
            else:
                now[:] = was


def is_same_bound(old: Limit, new: Limit) -> bool:
    """Whether two limits on one side of a cost have one bound, in the same windows."""
    return old.bound == new.bound and old.calendar == new.calendar


def round_up_visits(visits: Ints, batch: int) -> None:
    """Round visits up to whole batches, so that a step is due at the next decision."""
    visits[:] = -(-visits // batch) * batch


class BoundPolicy(NamedTuple):
    """A policy at work: the problem, the rule it was bound to, and its state."""

    problem: Problem
    rule: Any
    state: Any


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
