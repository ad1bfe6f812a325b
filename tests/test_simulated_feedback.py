"""Feedback in the simulator: scores of members, the winner, and both for late rewards."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from bylot import Problem, simulate
from bylot.environments import Given, RewardDelay
from bylot.errors import RewardError
from bylot.limits.records import LimitRule
from bylot.limits.request import Proposal, Ticket, View
from bylot.numerics.dispatch import step
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import RngKey
from bylot.numerics.sampling import fill_random_experts
from bylot.policies import base
from bylot.policies.base import Feedback, FeedbackKind, Policy, learn, propose
from bylot.simulation import find_winner

ROUNDS = 40
POOL = Problem(["a", "b", "c", "d"], draws=2)
VALUES = np.random.default_rng(5).random((ROUNDS, 3, 4)) / 3


class NotedRule(NamedTuple):
    draws: int


class NotedState(NamedTuple):
    visits: Ints
    drawn: Ints
    learned: Floats  # (rounds, 4) reward, both scores, winner


@jit
def choose_members(count: int, available: Bools, rng: RngKey) -> Ints:
    members = np.empty(count, np.int64)
    fill_random_experts(members, 4, available, rng, 0)
    return members


@step(propose, NotedRule)
def propose_noted(rule: NotedRule, state: NotedState, view: View, rng: RngKey) -> Proposal:
    state.visits[view.context] += 1
    return base.propose_members(choose_members(rule.draws, view.available, rng))


@step(learn, NotedRule)
def learn_noted(rule: NotedRule, state: NotedState, ticket: Ticket, feedback: Feedback) -> None:
    learned = state.learned
    learned[ticket.t, 0] = feedback.reward
    for j in range(feedback.scores.size):
        learned[ticket.t, 1 + j] = feedback.scores[j]
    learned[ticket.t, 3] = feedback.winner


base.register_pull_steps(NotedRule)
STATES: list[NotedState] = []


@dataclass(frozen=True)
class Noted(Policy):
    """Writes down what it learns from."""

    name = "noted"
    label = "noted"
    summary = "writes down what it learns from"

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> NotedRule:
        return NotedRule(problem.draws)

    def start(self, rule: NotedRule, contexts: int = 1) -> NotedState:
        learned = np.full((ROUNDS, 4), np.nan)
        STATES.append(NotedState(np.zeros(1, np.int64), np.zeros((1, 4), np.int64), learned))
        return STATES[-1]


def play_noted(feedback: FeedbackKind, lag: int) -> tuple[Ints, Floats]:
    """The draws of a play, and what was learned in it, of rewards in [-1, 1]."""
    settings = {"rounds": ROUNDS, "rewards": (-1.0, 1.0), "feedback": feedback}
    trace = simulate(POOL, Given(VALUES), Noted(), late=RewardDelay(lag=lag), **settings)  # type: ignore[arg-type]
    return trace.draws, STATES[-1].learned


@pytest.mark.parametrize("lag", [0, 7])
def test_a_policy_learns_the_score_of_each_member_whenever_it_arrives(lag: int) -> None:
    draws, learned = play_noted("members", lag)
    rounds = np.flatnonzero(~np.isnan(learned[:, 0]))
    assert len(rounds) >= ROUNDS - lag
    for t in rounds:
        own = VALUES[t][:, draws[t]]
        expected = np.array([own.max(axis=1).sum(), *own.sum(axis=0)])
        assert learned[t, :3] == pytest.approx((expected + 1) / 2, abs=1e-12)
        assert learned[t, 3] == -1


@pytest.mark.parametrize("lag", [0, 7])
def test_a_policy_learns_who_won_whenever_it_arrives(lag: int) -> None:
    draws, learned = play_noted("winner", lag)
    rounds = np.flatnonzero(~np.isnan(learned[:, 0]))
    best = [draws[t][np.argmax(VALUES[t][:, draws[t]].sum(axis=0))] for t in rounds]
    assert learned[rounds, 3].tolist() == best
    assert np.isnan(learned[:, 1:3]).all()


def test_a_policy_learns_the_reward_alone_by_default() -> None:
    _, learned = play_noted("panel", 0)
    assert np.isnan(learned[:, 1:3]).all()
    assert (learned[:, 3] == -1).all()


@pytest.mark.filterwarnings("error")
def test_a_trace_says_whether_the_policy_used_the_feedback() -> None:
    kinds: tuple[FeedbackKind, ...] = ("panel", "members", "winner")
    for policy, used in (("random", [True, False, False]), ("ts", [True, True, True])):
        found = [simulate(POOL, Given(VALUES), policy, rounds=5, feedback=kind) for kind in kinds]
        assert [trace.feedback for trace in found] == list(kinds)
        assert [trace.uses_feedback for trace in found] == used


def test_one_of_several_best_members_wins_by_chance_and_nobody_wins_nothing() -> None:
    values = np.array([[0.5, 0.5, 0.2, 0.0]])
    draws = np.array([2, 1, 0, 1])
    won = [find_winner(values, draws, 0.0, RngKey(1, t)) for t in range(2_000)]
    share = np.bincount(won, minlength=4) / len(won)
    assert share[:2].sum() == 1
    assert abs(share[0] - 0.5) < 0.05
    assert find_winner(np.zeros((1, 4)), draws, 0.0, RngKey(1, 0)) == -1


def test_an_unknown_kind_of_feedback_is_refused() -> None:
    with pytest.raises(RewardError, match="'panel' or 'members' or 'winner'"):
        simulate(POOL, Given(VALUES), "random", rounds=1, feedback="all")  # type: ignore[arg-type]
