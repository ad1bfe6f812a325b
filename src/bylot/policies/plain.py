"""Policies in plain Python: any object with `start`, `decide` and `learn`, for trying an idea.

Simulator and router run the source of their own loops on it instead of the compiled ones, so that
it sees what a compiled policy sees. A round takes about 100 microseconds and its own time.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.dispatch import step
from bylot.numerics.jit import Bools, Ints
from bylot.numerics.philox import RngKey, RngStream
from bylot.numerics.set_selection import fill_draws_from_set
from bylot.policies import base
from bylot.policies.base import PLAIN_RULES, Feedback, FeedbackKind, Policy, Ticket, decide, learn
from bylot.problem import Problem
from bylot.problem.change import BoundPolicy

PLAIN_METHODS = ("start", "decide", "learn")


@runtime_checkable
class PlainPolicy(Protocol):
    """What an object needs to be played as a policy. Experts and contexts are numbers from 0.

    A play uses a copy of the object, which `start` prepares; the object itself stays as it is. What
    it draws must come from `rng` only: a play then depends on its seed and on nothing else. It
    has no guard: what it chooses is played, whatever the limits.
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


@step(decide, PlainRule)
def decide_plain(
    rule: PlainRule, state: PlainState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`: ask the object, and check its answer."""
    bits = np.random.Philox(counter=[0, rng.t, 0, 0], key=[rng.seed, RngStream.PLAIN.value])
    choice = np.flatnonzero(available) if available.size else np.arange(rule.size)
    chosen = state.player[0].decide(int(context), choice.tolist(), np.random.Generator(bits))
    members = check_panel_members(rule, chosen, choice)
    draws = np.empty(rule.draws, np.int64)
    fill_draws_from_set(draws, members)
    state.visits[context] += 1
    state.drawn[context, members] += 1
    none = np.empty(0)
    return Ticket(rng.t, int(context), draws, none, none, available, 1.0, True, np.nan, 1.0, False)


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
        expected = f"{count} different numbers of available experts"
        remedy = "let `decide` return a list of some of the numbers in `available`"
        raise PolicyError(
            "panel of a policy in plain Python", got=chosen, expected=expected, remedy=remedy
        )
    return members


@dataclass(frozen=True)
class PlainAdapter(Policy):
    """The policy that plays an object with `start`, `decide` and `learn`."""

    player: PlainPolicy

    name = "plain"
    label = "plain Python"
    summary = "plays an object in plain Python, slowly; it cannot be saved"
    streams = (RngStream.PLAIN,)
    feedback: ClassVar[tuple[FeedbackKind, ...]] = ("panel", "members", "winner")

    def to_settings(self) -> dict[str, Any]:
        what = f"a policy in plain Python ({type(self.player).__name__}) cannot be saved or served"
        raise PolicyError(what, remedy="write it as compiled steps: see CONTRIBUTING.md")

    def bind(
        self, problem: Problem, horizon: int | None = None, feedback: FeedbackKind = "panel"
    ) -> PlainRule:
        return PlainRule(problem.draws, problem.size, problem, feedback)

    def start(self, rule: PlainRule, contexts: int = 1) -> PlainState:
        player = np.empty(1, object)  # an array, as every part of a state
        player[0] = copy.deepcopy(self.player)
        player[0].start(rule.problem, rule.feedback)
        counts = np.zeros(contexts, np.int64), np.zeros((contexts, rule.size), np.int64)
        return PlainState(*counts, player)

    def migrate(self, old: BoundPolicy, problem: Problem, rule: Any) -> Any:
        what = "a policy in plain Python cannot continue under another problem"
        raise PolicyError(what, remedy="make a new router")


def wrap_plain_policy(given: PlainPolicy) -> PlainAdapter:
    """The adapter of an object in plain Python, which must have the methods of one."""
    missing = [name for name in PLAIN_METHODS if not callable(getattr(given, name, None))]
    if missing or isinstance(given, type):
        why = f"it has no {' and no '.join(missing)}" if missing else "it is a class, not an object"
        what = f"{given!r} is no policy: {why}"
        remedy = "give a name, settings, or an object with the methods start, decide and learn"
        raise PolicyError(what, remedy=remedy)
    return PlainAdapter(given)
