"""Policies in plain Python: what they see, what they may answer, and that a seed fixes a play."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bylot import Problem, Router, play, simulate
from bylot.environments import Given, RewardDelay
from bylot.errors import PolicyError
from bylot.policies import policy_to_data, resolve_policy
from bylot_paper.policies.bandits import Cucb
from reference_baseline import SEED, ReferenceBaseline
from sample_problem import make_five_expert_problem, make_recorded_environment
from traces import traces_are_equal

PROBLEM = make_five_expert_problem()


class Noting:
    """Draws at random, from one member to all seats, and notes what it learns from."""

    def start(self, problem: Problem, feedback: str) -> None:
        self.draws, self.kind, self.seen = problem.draws, feedback, list[Any]()

    def decide(self, context: int, available: Any, rng: np.random.Generator) -> Any:
        self.rounds = getattr(self, "rounds", 0) + 1
        return rng.permutation(available)[: rng.integers(1, self.draws + 1)]

    def learn(self, context: int, members: Any, feedback: Any) -> None:
        self.seen.append((context, tuple(members), feedback))


class Port:
    """`cucb` with scores of members, by the reference that the compiled one is tested against."""

    def start(self, problem: Problem, feedback: str) -> None:
        self.reference, self.t = ReferenceBaseline(problem, Cucb(c=0.3), None), 0

    def decide(self, context: int, available: Any, rng: np.random.Generator) -> Any:
        draws = self.reference.decide(context, self.t, set(available))
        self.t += 1
        return draws

    def learn(self, context: int, members: Any, feedback: Any) -> None:
        seen = dict(zip(members, feedback.scores.tolist(), strict=True))
        self.reference.learn(context, set(members), feedback.reward, seen)


def test_a_plain_policy_plays_what_the_compiled_one_plays() -> None:
    settings: Any = {"rounds": 300, "seed": SEED, "feedback": "members"}
    environment = make_recorded_environment(300, 2)
    plain, compiled = (
        simulate(PROBLEM, environment, one, late=RewardDelay(lag=9, lost=0.1), **settings)
        for one in (Port(), Cucb(c=0.3))
    )
    for field, one, other in zip(plain.record._fields, plain.record, compiled.record, strict=True):
        assert_array_equal(one, other, err_msg=field)


def test_router_and_simulator_play_the_same_and_the_object_stays_as_it_is() -> None:
    mine, environment = Noting(), make_recorded_environment(60)
    trace = simulate(PROBLEM, environment, mine, rounds=60, seed=4, keep_distributions=False)
    assert not hasattr(mine, "rounds")
    assert traces_are_equal(play(Router(PROBLEM, mine, seed=4), environment, 60), trace)
    again = simulate(PROBLEM, environment, mine, rounds=60, seed=4)
    assert_array_equal(trace.draws, again.draws)
    other = simulate(PROBLEM, environment, mine, rounds=60, seed=5)
    assert (trace.draws != other.draws).any()


@pytest.mark.parametrize("feedback", ["panel", "members", "winner"])
def test_it_learns_from_members_without_the_repeated_draws_of_a_small_panel(feedback: Any) -> None:
    played: list[Any] = []

    class Kept(Noting):
        def __deepcopy__(self, memo: Any) -> Any:
            played.append(Kept())
            return played[-1]

    environment = make_recorded_environment(50, 3)
    trace = simulate(PROBLEM, environment, Kept(), rounds=50, feedback=feedback)
    (one,) = played
    assert (one.kind, len(one.seen)) == (feedback, 50)
    assert {len(members) for _, members, _ in one.seen} == {1, 2}
    for t, (context, members, told) in enumerate(one.seen):
        assert context == environment.index[t]
        assert list(dict.fromkeys(trace.draws[t].tolist())) == list(members)
        assert told.reward == trace.rewards[t]
        alone = environment.values[t].sum(axis=0)[list(members)]
        assert_array_equal(told.scores, alone if feedback == "members" else [])
        assert (told.winner in members) == (feedback == "winner")


class Answering(Noting):
    """Answers what it was told to."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def decide(self, context: int, available: Any, rng: np.random.Generator) -> Any:
        return self.answer


@pytest.mark.parametrize("answer", [[], [0, 1, 2], [1, 1], [5], [-1], ["ann"], None, 3, [0.5j]])
def test_a_wrong_panel_is_refused_with_a_remedy(answer: Any) -> None:
    with pytest.raises(PolicyError, match="1 to 2 different numbers of available experts"):
        simulate(PROBLEM, make_recorded_environment(5), Answering(answer), rounds=5)


def test_the_fewest_members_of_a_problem_are_demanded() -> None:
    problem = make_five_expert_problem(draws=3).replace(min_draws=2)
    environment = make_recorded_environment(5)
    assert simulate(problem, environment, Answering([4, 2]), rounds=5).draws[0].tolist() == [
        4,
        2,
        4,
    ]
    with pytest.raises(PolicyError, match="2 to 3 different numbers"):
        simulate(problem, environment, Answering([4]), rounds=5)


def test_a_router_passes_scores_of_members_on() -> None:
    router = Router(PROBLEM, Noting(), feedback="members")
    decision = router.decide()
    router.reward(decision.id, 0.6, members={decision.subset[0]: 0.25})
    ((_, members, told),) = router.core.state.player[0].seen
    assert [PROBLEM.experts[i] for i in members] == list(decision.subset)
    assert (told.reward, told.scores[0]) == (0.6, 0.25)
    assert np.isnan(told.scores[1:]).all()


def test_an_unavailable_expert_is_refused() -> None:
    router = Router(PROBLEM, Answering([0]))
    assert router.decide(available=["ann", "eve"]).draws == ("ann", "ann")
    with pytest.raises(PolicyError, match="available"):
        router.decide(available=["bob", "eve"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Noting, "it is a class, not an object"),
        (object(), "it has no start and no decide and no learn"),
        (3, "it has no start"),
        (type("Half", (), {"start": print, "decide": print})(), "it has no learn"),
    ],
)
def test_other_objects_are_refused(given: Any, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        Router(PROBLEM, given)


def test_it_cannot_be_saved_served_or_moved_to_another_problem(tmp_path: Path) -> None:
    router = Router(PROBLEM, Noting())
    with pytest.raises(PolicyError, match="cannot be saved or served; write it as compiled steps"):
        router.save(tmp_path / "router.bylot")
    with pytest.raises(PolicyError, match="cannot be saved or served"):
        policy_to_data(resolve_policy(Noting(), PROBLEM))
    with pytest.raises(PolicyError, match="make a new router"):
        router.change(PROBLEM.replace(draws=3))
    router.decide("ward")  # it still works


def test_a_copy_of_a_router_continues_alike_and_by_itself() -> None:
    router = Router(PROBLEM, Port(), seed=SEED)
    for _ in range(7):
        router.decide()
    other = copy.deepcopy(router)
    assert [other.decide() for _ in range(5)] == [router.decide() for _ in range(5)]
    assert (router.status().decisions, other.t) == (12, 12)


def test_new_contexts_do_not_restart_it() -> None:
    router = Router(PROBLEM, Noting())
    for n in range(9):
        router.reward(router.decide(f"context {n}").id, 0.5)
    (player,) = router.core.state.player
    assert [context for context, _, _ in player.seen] == list(range(9))


def test_values_of_one_dimension_are_played_too() -> None:
    values = np.random.default_rng(2).random((30, 1, 5))
    assert simulate(PROBLEM, Given(values), Noting(), rounds=30).rewards.shape == (30,)
