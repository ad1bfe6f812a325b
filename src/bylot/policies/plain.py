"""Policies in plain Python: any object with `start`, `decide` and `learn`, for trying an idea.

Simulator and router run the source of their own loops on it instead of the compiled ones, so that
it sees what a compiled policy sees. A round takes about 100 microseconds and its own time.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from bylot.errors import PolicyError
from bylot.limits.records import LimitRule
from bylot.limits.request import Proposal, Ticket, View
from bylot.numerics.dispatch import step
from bylot.numerics.jit import Ints
from bylot.numerics.philox import RngKey, RngStream
from bylot.policies import base
from bylot.policies.base import (
    PLAIN_RULES,
    BoundPolicy,
    Feedback,
    FeedbackKind,
    Policy,
    learn,
    note_played,
    propose,
)
from bylot.problem import Problem

PLAIN_METHODS = ("start", "decide", "learn")


@runtime_checkable
class PlainPolicy(Protocol):
    """What an object needs to be played as a policy. Experts and contexts are numbers from 0.

    A play uses a copy of the object, which `start` prepares; the object itself stays as it is. What
    it draws must come from `rng` only: a play then depends on its seed and on nothing else. Unless
    guard=False is given, the guard replaces a panel after which the limits could not be kept.
    """

    def start(self, problem: Problem, feedback: FeedbackKind) -> None:
        """Prepare for the first request of a problem; `feedback`: what will be reported."""

    def decide(
        self, context: int, available: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        """Choose the members of a panel: different experts of `available`.

        At least `problem.min_draws`, or 1 if that is None, and at most `problem.draws`.
        """

    def learn(self, context: int, members: Sequence[int], feedback: Feedback) -> None:
        """Learn from the feedback on a panel. Its scores are in the order of the members, NaN where
        one is unknown; there are none if none was reported.
        """


class PlainRule(NamedTuple):
    draws: int
    size: int
    problem: Problem
    feedback: FeedbackKind


class PlainState(NamedTuple):
    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    player: Any  # one element: the object that is played


PLAIN_RULES.add(PlainRule)


@step(propose, PlainRule)
def propose_plain(rule: PlainRule, state: PlainState, view: View, rng: RngKey) -> Proposal:
    """`propose`: ask the object, and check its answer."""
    bits = np.random.Philox(counter=[0, rng.t, 0, 0], key=[rng.seed, RngStream.PLAIN.value])
    available = view.available
    choice = np.flatnonzero(available) if available.size else np.arange(rule.size)
    chosen = state.player[0].decide(int(view.context), choice.tolist(), np.random.Generator(bits))
    members = check_panel_members(rule, chosen, choice)
    state.visits[view.context] += 1
    none = np.empty(0)
    return Proposal(members, none, none, 1.0, 1.0, np.nan, True)


@step(note_played, PlainRule)
def note_plain(rule: PlainRule, state: PlainState, view: View, ticket: Ticket) -> None:
    """`note_played`: count the members."""
    state.drawn[ticket.context, np.unique(ticket.draws)] += 1


@step(learn, PlainRule)
def learn_plain(rule: PlainRule, state: PlainState, ticket: Ticket, feedback: Feedback) -> None:
    """`learn`: without the repeated draws of a panel of fewer members."""
    members = list(dict.fromkeys(ticket.draws.tolist()))
    known = feedback._replace(scores=feedback.scores[: len(members)])
    state.player[0].learn(ticket.context, members, known)


base.register_pull_steps(PlainRule)


def check_panel_members(rule: PlainRule, chosen: Any, available: Ints) -> Ints:
    """The members of a panel, if these are different available experts, and not too many."""
    try:
        members = np.array([int(one) for one in chosen], np.int64)
    except (TypeError, ValueError):
        members = np.empty(0, np.int64)
    most = min(rule.draws, available.size)
    fewest = min(rule.problem.min_draws or 1, most)
    different = np.unique(members).size == members.size
    if not (fewest <= members.size <= most and different and np.isin(members, available).all()):
        count = str(most) if fewest == most else f"{fewest} to {most}"
        raise PolicyError(
            "panel of a policy in plain Python",
            got=chosen,
            expected=f"{count} different numbers of available experts",
            remedy="let `decide` return a list of some of the numbers in `available`",
        )
    return members


@dataclass(frozen=True)
class PlainAdapter(Policy):
    """The policy that plays an object with `start`, `decide` and `learn`."""

    player: PlainPolicy
    guard: bool = field(default=True, kw_only=True)

    name = "plain"
    label = "plain Python"
    summary = "plays an object in plain Python, slowly; it cannot be saved"
    streams = (RngStream.PLAIN,)
    feedback: ClassVar[tuple[FeedbackKind, ...]] = ("panel", "members", "winner")

    def find_fewest(self, problem: Problem) -> int:
        """Return the smallest panel that the object may choose."""
        return min(problem.min_draws or 1, problem.size)

    def to_settings(self) -> dict[str, Any]:
        raise PolicyError(
            f"a policy in plain Python ({type(self.player).__name__}) cannot be saved or served",
            remedy="write it as compiled steps: see CONTRIBUTING.md",
        )

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> PlainRule:
        return PlainRule(problem.draws, problem.size, problem, feedback)

    def start(self, rule: PlainRule, contexts: int = 1) -> PlainState:
        player = np.empty(1, object)  # an array, as every part of a state
        player[0] = copy.deepcopy(self.player)
        player[0].start(rule.problem, rule.feedback)
        counts = np.zeros(contexts, np.int64), np.zeros((contexts, rule.size), np.int64)
        return PlainState(*counts, player)

    def migrate(self, old: BoundPolicy, problem: Problem, rule: Any) -> Any:
        """Return the state as it is if only the traffic is another: the object never learns it."""
        if problem.replace(traffic=old.problem.traffic) == old.problem:
            return old.state
        raise PolicyError(
            "a policy in plain Python cannot continue under another problem",
            remedy="make a new router",
        )


def wrap_plain_policy(given: PlainPolicy) -> PlainAdapter:
    """The adapter of an object in plain Python, which must have the methods of one."""
    missing = [name for name in PLAIN_METHODS if not callable(getattr(given, name, None))]
    if missing or isinstance(given, type):
        why = f"it has no {' and no '.join(missing)}" if missing else "it is a class, not an object"
        raise PolicyError(
            f"{given!r} is no policy: {why}",
            remedy="give a name, settings, or an object with the methods start, decide and learn",
        )
    return PlainAdapter(given)
