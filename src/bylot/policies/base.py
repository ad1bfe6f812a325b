"""The contract of all policies: settings, a rule, a state, and compiled steps.

A policy must `propose` panels and `learn` from rewards. It may know the distribution of its panels,
and note which panel is played. The limits decide what is played (`bylot.limits.request`).

A *policy* holds settings and describes itself; `bind` makes a *rule*, a NamedTuple bound to a
problem, `start` a *state*, a NamedTuple of arrays that the steps write into. Simulator, router
and server call the same steps; they keep a ticket between a decision and its reward.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from bylot.distributions import IidSets, PanelDistribution
from bylot.limits.binding import Pace, bind_limits, check_full_panels
from bylot.limits.records import LimitRule, LimitTables
from bylot.limits.request import Proposal, Ticket, View
from bylot.numerics.dispatch import STEP_BODIES, dispatch_by_type, step
from bylot.numerics.embedded import jit_embedded
from bylot.numerics.iid_sets import log_iid_set_probability
from bylot.numerics.jit import Floats, Ints, jit, jit_inline
from bylot.numerics.philox import RngKey, RngStream
from bylot.numerics.sampling import fill_first, is_first_draw
from bylot.numerics.scratch_arrays import no_floats, scratch_floats
from bylot.policies.validation import FeedbackKind as FeedbackKind
from bylot.policies.validation import SettingKind, check_settings
from bylot.problem import Problem
from bylot.problem.change import ProblemChange

GUARD_BATCH = 10  # requests after which the guard forecasts again for policies without pacing
MIN_PROPENSITY = 2.0**-1022  # recorded for rarer panels: a propensity is never 0

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Feedback(NamedTuple):
    """What was reported about a panel, on the scale [0, 1] of rewards."""

    reward: float  # of the panel: what is to be maximised
    scores: Floats  # (M,) of the expert of each draw by itself; NaN: unknown; empty: all unknown
    winner: int  # the expert that earned the reward; -1: unknown, or nobody


NO_SCORES: Floats = np.empty(0)
NO_WINNER = -1


@jit_inline
def propose_members(members: Ints) -> Proposal:
    """Return the proposal of a policy that does not know the probabilities of its panels."""
    none = no_floats()
    return Proposal(members, none, none, 1.0, 1.0, np.nan, True)


def propose(rule: Any, state: Any, view: View, rng: RngKey) -> Proposal:
    """Move the policy if a step is due, and choose a panel of available experts."""
    return choose_step(propose, rule)(rule, state, view, rng)  # type: ignore[no-any-return]


def learn(rule: Any, state: Any, ticket: Ticket, feedback: Feedback) -> None:
    """Learn from the feedback on a decision; late or out of order is as good as prompt."""
    choose_step(learn, rule)(rule, state, ticket, feedback)


def note_played(rule: Any, state: Any, view: View, ticket: Ticket) -> None:
    """Note which panel is played in the place of the proposal, or that it is the proposal.

    Most policies do nothing here.
    """
    body: Any = STEP_BODIES.get((note_played, type(rule)), ignore_played)
    body(rule, state, view, ticket)


def note_past(rule: Any, state: Any, view: View, draws: Ints, rng: RngKey) -> None:
    """Count a round of a log before it is learned, and do what a proposal would do every batch.

    Policies that do not learn from logs do nothing here.
    """
    body: Any = STEP_BODIES.get((note_past, type(rule)), ignore_past)
    body(rule, state, view, draws, rng)


def compute_distribution(rule: Any, state: Any, view: View) -> Floats:
    """Return the distribution that the last decision in this context was drawn from, of sum 1.

    Policies that do not draw from one: how often each expert was drawn so far in this context.
    """
    return choose_step(compute_distribution, rule)(rule, state, view)  # type: ignore[no-any-return]


def compute_inclusion(rule: Any, state: Any, view: View, ticket: Ticket) -> Floats:
    """Return (K,) probability to be in the panel of the last decision, before it was drawn.

    Where that has no closed form: the panel itself, 1 for its members, which is unbiased.
    """
    run = choose_step(compute_inclusion, rule)
    return run(rule, state, view, ticket)  # type: ignore[no-any-return]


PLAIN_RULES: set[type] = set()
"""Types of rules whose steps are plain Python: their source is run, nothing is compiled."""


def choose_step(generic: Any, rule: Any) -> Any:
    """Return the body of a step for Python: compiled, or as it is for a plain rule."""
    body = STEP_BODIES[generic, type(rule)]
    return body if type(rule) in PLAIN_RULES else compile_step(body)


compile_step = functools.cache(jit)


def choose_runner(entry: FunctionT, rule: Any) -> FunctionT:
    """A compiled function that runs steps, or its source for a plain rule."""
    return entry.py_func if type(rule) in PLAIN_RULES else entry  # type: ignore[attr-defined]


def ignore_played(rule: Any, state: Any, view: View, ticket: Ticket) -> None:
    """`note_played`: nothing."""


def ignore_past(rule: Any, state: Any, view: View, draws: Ints, rng: RngKey) -> None:
    """`note_past`: nothing."""


for generic_step in (propose, learn, compute_distribution, compute_inclusion):
    dispatch_by_type(generic_step, inline=True)
dispatch_by_type(note_played, default=ignore_played)
dispatch_by_type(note_past, default=ignore_past)


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


def compute_pull_distribution(rule: Any, state: Any, view: View) -> Floats:
    """`compute_distribution`: how often each expert was drawn."""
    return compute_shares(state.drawn[view.context])


def compute_pull_inclusion(rule: Any, state: Any, view: View, ticket: Ticket) -> Floats:
    """`compute_inclusion`: the panel itself."""
    return mark_members(ticket.draws, state.drawn.shape[1])


def register_pull_steps(rule: type) -> None:
    """Register the other two steps of a policy without propensities, whose state has `drawn`."""
    step(compute_distribution, rule)(compute_pull_distribution)
    step(compute_inclusion, rule)(compute_pull_inclusion)


def round_up_visits(visits: Ints, batch: int) -> None:
    """Round visits up to whole batches, so that a step is due at the next decision."""
    visits[:] = -(-visits // batch) * batch


class BoundPolicy(NamedTuple):
    """A policy at work: the problem, the rule it was bound to, its state, and the limits."""

    problem: Problem
    rule: Any
    state: Any
    limits: LimitTables | None  # None: they are not kept


@dataclass(frozen=True)
class Policy:
    """Frozen settings of a policy, and all that others need to know about it.

    guard: replace panels after which the limits could not be kept

    Subclasses are frozen dataclasses, listed once in `catalog`. The steps registered for the rule
    that `bind` returns do the work. A part of a state may have methods `migrate(new, change)`, for
    another problem, and `is_valid(rule)`, for states loaded from disk.
    """

    guard: bool = field(default=False, kw_only=True)

    name: ClassVar[str]  # in saved files, on the command line, over HTTP
    label: ClassVar[str]  # in figures and tables
    summary: ClassVar[str]  # what it does: completes the sentence "<name> ..."
    streams: ClassVar[tuple[RngStream, ...]] = (RngStream.DRAWS,)
    checks: ClassVar[Mapping[str, SettingKind]] = {}  # what each setting may be
    uses_limits: ClassVar[bool] = True
    feedback: ClassVar[tuple[FeedbackKind, ...]] = ("panel",)
    """Kinds of feedback of which it uses everything that is reported."""
    learns_from_logs: ClassVar[bool] = False  # also from panels that others chose: `note_past`
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
        """Return the settings as plain data, for saved files; without a guard that is usually off,
        if it is.
        """
        settings = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        if not (self.guard or type(self).guard):
            del settings["guard"]
        return settings

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The inverse of `to_settings`."""
        return cls(**settings)

    def bind_limits(self, problem: Problem, horizon: int | None = None) -> LimitRule | None:
        """Return the limits that are kept for this policy; None: it plays what it proposes."""
        if not self.guard:
            return None
        pace = Pace(None, GUARD_BATCH)
        return bind_limits(problem, horizon, self.find_fewest(problem), True, pace)

    def find_fewest(self, problem: Problem) -> int:
        """Return how few members a panel may have; raises if such panels cannot keep the limits."""
        return 1 if self.draws_iid else check_full_panels(problem, self.name)

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> Any:
        """Make the rule for this problem; the horizon is None if it is unknown.

        feedback: what will be reported; a policy may ignore all but the reward
        limits:   as `bind_limits` has returned them
        """
        raise NotImplementedError

    def find_margin(self, rule: Any, limits: LimitRule) -> float:
        """Return by which part the panels of this policy can keep tighter limits."""
        return limits.margin

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

    def distribution(self, rule: Any, state: Any, view: View) -> PanelDistribution | None:
        """The distribution of panels that the last decision was drawn from, if known."""
        if not self.draws_iid:
            return None
        return IidSets(compute_distribution(rule, state, view), rule.draws)

    def migrate(self, old: BoundPolicy, problem: Problem, rule: Any) -> Any:
        """The state to continue with under another problem, bound to this rule.

        Experts keep what was learned about them, by name; a new one begins as in `start`. Limits
        keep their multipliers, in the units of the new problem; a new one begins at 0.
        """
        change = ProblemChange(old.problem, problem, old.state.visits > 0)
        state = self.start(rule, len(old.state.visits))
        change.copy_state(old.state, state, (*self.derived, *self.restarted))
        self.finish_migration(change, old, BoundPolicy(problem, rule, state, None))
        return state

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Repair what copying field by field leaves inconsistent."""
