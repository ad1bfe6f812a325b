"""Scores of members, winners and actual costs, reported to a router in memory."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot import Decision, Problem, Receipt, Router, at_least, at_most, share, simulate
from bylot.environments import Noisy
from bylot.errors import IgnoredFeedbackWarning, RewardConflict, RewardError
from bylot.policies import Auto, Distinct, NoisyOr, Tangent, find_policy
from bylot.policies.base import FeedbackKind
from bylot.router.core import iterate_arrays
from bylot.router.feedback import RewardReport, check_report

POOL = Problem(
    ["ann", "bob", "cat", "dan"],
    {"usd": [1.0, 2.0, 0.5, 3.0]},
    [at_most("usd", 4.0), at_least(share("new", ["dan"]), 0.1)],
    draws=2,
)
POLICY = "ts"  # small, and learns from scores and winners


def make_router(feedback: FeedbackKind, **settings: Any) -> Router:
    return Router(POOL, POLICY, seed=3, feedback=feedback, **settings)


def list_state(router: Router) -> list[Any]:
    """All numbers of a router, to be compared bit for bit."""
    arrays = [*iterate_arrays(router.core.state), *iterate_arrays(router.core.totals)]
    return [[one.tolist() for one in arrays], str(dict(router.engine.open))]


def test_scores_reach_the_policy_and_a_missing_one_is_not_zero() -> None:
    states = []
    for scores in ((1.0, 0.0), (1.0, None), (0.0, 0.0)):
        router = make_router("members")
        one, other = router.decide().subset
        given = {name: x for name, x in zip((one, other), scores, strict=True) if x is not None}
        assert router.reward("d0", 1.0, members=given) is Receipt.LEARNED
        states.append(list_state(router)[0])
    assert states[0] != states[1] != states[2] != states[0]


def test_a_winner_reaches_the_policy() -> None:
    states = []
    for place in (0, 1, None):
        router = make_router("winner")
        panel = router.decide().subset
        winner = None if place is None else panel[place]
        assert router.reward("d0", 1.0, winner=winner) is Receipt.LEARNED
        states.append(list_state(router)[0])
    assert states[0] != states[1] != states[2] != states[0]


def test_without_a_value_the_reward_is_the_best_score_and_true_is_one() -> None:
    router, other = make_router("members"), make_router("members")
    panel = router.decide().subset
    other.decide()
    assert router.reward("d0", members={panel[0]: False, panel[1]: True}) is Receipt.LEARNED
    scores: Any = {panel[0]: 0, panel[1]: np.float32(1)}
    other.reward("d0", 1, members=scores)
    assert router.status().mean_reward == 1.0
    assert list_state(router)[0] == list_state(other)[0]


def test_the_value_stays_the_objective_whatever_the_members_score() -> None:
    router = make_router("members")
    panel = router.decide().subset
    router.reward("d0", 0.25, members=dict.fromkeys(panel, 1.0))
    assert router.status().mean_reward == 0.25


def test_an_expert_that_is_drawn_twice_has_one_score() -> None:
    problem = Problem(["ann", "bob"], {}, draws=4)
    with pytest.warns(IgnoredFeedbackWarning, match="tangent ignores scores of members"):
        router = Router(problem, "tangent", feedback="members")
    decision = router.decide()
    assert len(decision.draws) > len(decision.subset)
    receipt = router.reward(decision.id, members=dict.fromkeys(decision.subset, 0.5))
    assert receipt is Receipt.LEARNED


@pytest.mark.parametrize(
    ("feedback", "report", "words"),
    [
        ("panel", {"members": {"x": 1}}, "takes no scores of members; create it with feedback='m"),
        ("panel", {"winner": "x"}, "takes no winner; create it with feedback='winner'"),
        ("members", {"winner": "x"}, "feedback='members' takes no winner"),
        ("winner", {"members": {"x": 1}}, "feedback='winner' takes no scores of members"),
        ("members", {"members": {"x": 1}}, "d0 has no member 'x': expected some of '"),
        ("winner", {"winner": "x", "value": 1}, "d0 has no member 'x': expected some of '"),
        ("winner", {"winner": 3, "value": 1}, "invalid winner 3: expected a name"),
        ("members", {"members": {}}, "reward None: expected a number, or scores of members"),
        ("members", {}, "reward None: expected a number, or scores of members"),
        ("winner", {"winner": "ann"}, "reward None: expected a number, True or False"),
        ("members", {"members": {"ann": None}}, "leave out a member whose score is unknown"),
        ("members", {"members": {"ann": 1.5}}, r"score of 'ann' 1\.5: expected a number in \[0"),
        ("members", {"members": {"ann": None}}, "score of 'ann' None: expected a number, True"),
        ("members", {"members": ["ann"]}, "invalid members .* expected scores by name"),
        ("members", {"members": {"ann": float("nan")}}, "score of 'ann' nan: expected a finite"),
        ("panel", {"value": 1, "spend": {"usd": {"x": 1}}}, "spend on 'usd' lacks member"),
        ("panel", {"value": 1, "spend": {"new": 1}}, "no cost 'new' to settle"),
        ("panel", {"value": 1, "spend": {"usd": -1}}, "spend on 'usd' -1: expected a number from"),
        ("panel", {"value": 1, "spend": {"usd": {"ann": True}}}, "spend on 'usd' by 'ann' True"),
        ("panel", {"value": 1, "spend": {"usd": 1e6}}, "1,000 times the stated cost"),
        ("panel", {"value": 1, "spend": [1]}, "invalid spend .* expected costs by name"),
    ],
)
def test_an_invalid_report_is_refused_with_a_remedy_and_changes_nothing(
    feedback: FeedbackKind, report: dict[str, Any], words: str
) -> None:
    router = make_router(feedback)
    router.decide()
    before = list_state(router)
    with pytest.raises(RewardError, match=words):
        router.reward("d0", **report)
    assert list_state(router) == before


def test_the_same_report_again_is_a_duplicate_and_another_one_a_conflict() -> None:
    router = make_router("members")
    one, other = router.decide().subset
    report: dict[str, Any] = {"members": {one: 1.0, other: 0.0}, "spend": {"usd": 2.0}}
    assert router.reward("d0", **report) is Receipt.LEARNED
    before = list_state(router)
    assert router.reward("d0", 1.0, **report) is Receipt.DUPLICATE
    for changes, words in (
        ({"members": {one: 1.0}}, "already has members"),
        ({"members": {one: 1.0, other: 0.5}}, "already has members"),
        ({"value": 0.5}, "already has reward"),
        ({"spend": {"usd": 3.0}}, "already has spend"),
        ({"spend": {"usd": {one: 1.0, other: 1.0}}}, "already has spend by member"),
        ({"spend": None}, "already has spend"),
    ):
        with pytest.raises(RewardConflict, match=words):
            router.reward("d0", **{**report, **changes})
    assert list_state(router) == before


def test_reported_costs_replace_stated_ones_as_a_total_or_by_member() -> None:
    for by_member in (False, True):
        router = make_router("panel")
        panel = router.decide().subset
        spend: Any = dict.fromkeys(panel, 1.25) if by_member else 2.5
        router.reward("d0", 0.5, spend={"usd": spend})
        assert router.status().costs["usd"].settled == 2.5


def test_costs_are_settled_against_what_was_booked_after_a_change_of_costs() -> None:
    router = make_router("panel")
    router.decide()
    costs = {"ms": [1.0] * 4, "usd": [9.0, 9.0, 9.0, 9.0]}
    limits = [at_most("usd", 40.0), *POOL.limits[1:]]
    router.change(POOL.replace(costs=costs, limits=limits))
    router.reward("d0", 0.5, spend={"usd": 2.5, "ms": 3.0})
    spent = router.core.sums.list_spent()
    assert spent["usd"] == pytest.approx(2.5, abs=1e-12)
    assert spent["ms"] == 3.0


@pytest.mark.parametrize("feedback", ["members", "winner"])
def test_a_saved_router_with_open_and_reported_decisions_continues_bit_for_bit(
    feedback: FeedbackKind, tmp_path: Path
) -> None:
    router, path = make_router(feedback), tmp_path / "router.bylot"

    def report(one: Router, decision: Decision) -> Receipt:
        first = decision.subset[0]
        more: Any = {"winner": first} if feedback == "winner" else {"members": {first: 0.5}}
        return one.reward(decision.id, 0.75, spend={"usd": 1.0}, **more)

    decisions = [router.decide() for _ in range(4)]
    report(router, decisions[0])
    router.reward(decisions[1].id, 0.5)
    router.save(path)
    others = [Router.load(path), copy.deepcopy(router), pickle.loads(pickle.dumps(router))]
    for one in (router, *others):
        assert one.feedback == feedback
        assert report(one, decisions[0]) is Receipt.DUPLICATE
        with pytest.raises(RewardConflict):
            report(one, decisions[1])
        assert report(one, decisions[2]) is Receipt.LEARNED
        for _ in range(50):
            report(one, one.decide())
    for other in others:
        assert list_state(other)[0] == list_state(router)[0]


@pytest.mark.parametrize("rewards", [(0.0, 1.0), (-0.3, 1.7)])
@pytest.mark.parametrize("feedback", ["panel", "members", "winner"])
def test_playing_a_router_gives_the_trace_of_the_simulator(
    feedback: FeedbackKind, rewards: tuple[float, float]
) -> None:
    from bylot import play

    environment = Noisy(np.random.default_rng(2).uniform(0.1, 0.7, (2, 4)), worth=0.5)
    given: Any = {"seed": 5, "rewards": rewards, "feedback": feedback}
    expected = simulate(POOL, environment, POLICY, rounds=200, **given).record
    found = play(Router(POOL, POLICY, **given), environment, 200).record
    for name in ("draws", "rewards", "spend", "scores", "winners"):
        np.testing.assert_array_equal(getattr(expected, name), getattr(found, name), name)


def test_auto_takes_a_policy_that_uses_the_declared_feedback_unless_propensities_are_demanded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NoisyOr, "feedback", ("panel", "members"))
    tight = POOL.replace(limits=[at_most("usd", 1.0)])
    for auto, problem, feedback, expected in (
        (Auto(), POOL, "panel", Distinct),
        (Auto(), POOL, "members", NoisyOr),
        (Auto(), POOL, "winner", Distinct),  # it would not be used
        (Auto(propensities=True), POOL, "members", Distinct),
        (Auto(propensities=False), POOL, "panel", NoisyOr),
        (Auto(), tight, "members", Tangent),
        (find_policy("auto:propensities=none"), POOL, "members", NoisyOr),
    ):
        kind: Any = feedback
        assert isinstance(auto, Auto)
        assert type(auto.resolve(problem, kind)) is expected


def test_a_policy_that_ignores_the_declared_feedback_says_so() -> None:
    with pytest.warns(IgnoredFeedbackWarning, match=r"random ignores winners.*: .*\bts\b"):
        router = Router(POOL, "random", feedback="winner")
    assert not router.status().uses_feedback
    assert "the policy ignores winners: it learns from the reward alone" in str(router.status())
    assert "ignores" not in str(make_router("winner").status())


NAMES = st.sampled_from(["ann", "bob", "cat", "dan", "x", "", 3, None])
NUMBERS = st.one_of(
    st.floats(), st.integers(-(10**400), 10**400), st.booleans(), st.none(), st.text(max_size=3)
)


@settings(max_examples=300, deadline=None)
@given(
    feedback=st.sampled_from(["panel", "members", "winner"]),
    value=NUMBERS,
    members=st.one_of(st.none(), st.dictionaries(NAMES, NUMBERS, max_size=3), NUMBERS),
    winner=NAMES,
    spend=st.one_of(
        st.none(),
        st.dictionaries(
            st.sampled_from(["usd", "new", "x", 1]),
            st.one_of(NUMBERS, st.dictionaries(NAMES, NUMBERS, max_size=3)),
            max_size=2,
        ),
        NUMBERS,
    ),
)
def test_any_report_is_accepted_with_valid_numbers_or_refused(
    feedback: FeedbackKind, value: Any, members: Any, winner: Any, spend: Any
) -> None:
    run = make_run(feedback)
    try:
        report = check_report(POOL, run, "d0", value, members, winner, spend)
    except RewardError:
        return
    if report.value is None:
        assert value is None
        assert report == RewardReport(None, spend=report.spend, member_spend=report.member_spend)
        assert report.spend
    else:
        assert -1e-9 <= report.value <= 1.0 + 1e-9
    assert feedback == "members" or report.members is None
    assert feedback == "winner" or report.winner is None
    assert all(-1e-9 <= score <= 1.0 + 1e-9 for score in (report.members or {}).values())
    assert all(0.0 <= cost < np.inf for cost in (report.spend or {}).values())


def make_run(feedback: FeedbackKind) -> Any:
    from bylot.policies.validation import check_run_config

    return check_run_config(POOL, 0, None, (0.0, 1.0), feedback)
