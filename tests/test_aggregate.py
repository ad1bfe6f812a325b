"""Folds: they decide as routers in memory do, and a log replayed gives the same fold."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot import Problem, Router, at_most
from bylot.errors import (
    BylotError,
    DecisionError,
    InfeasibleLimits,
    PolicyError,
    ProblemError,
    RewardError,
)
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.history import decision_from_event
from bylot.numerics.iid_sets import log_iid_set_probability
from logged_aggregate import Diary, decided, terms_of, with_frank
from small import five

EVERY = ["distinct", "tangent", "noisy-or", "omd", "cbwk", "ts-bwk", "moe", "random"]


PROBLEMS = [five(), with_frank(3.0), with_frank(2.5)]

DECIDE = st.tuples(
    st.just("decide"),
    st.sampled_from([None, "a", "ü"]),
    st.sampled_from([None, None, ("ann", "cat"), ("eve",), ("ann", "bob", "cat", "eve")]),
    st.sampled_from([False, False, False, True]),
)
REWARD = st.tuples(
    st.just("reward"),
    st.integers(0, 9),
    st.sampled_from([0.0, 0.25, 0.5]),
    st.sampled_from([None, "x", "y"]),
    st.sampled_from([None, None, {}, {"usd": 2.5}, {"usd": 0.0}]),
)
EDIT = st.tuples(
    st.just("edit"),
    st.sampled_from(range(len(PROBLEMS))),
    st.sampled_from([(), ("cat",), ("ann", "eve")]),
    st.sampled_from(["earliest", "last", "sum"]),
    st.sampled_from([0.5, 2.0]),
)
RARE = st.one_of(
    st.tuples(st.sampled_from(["activate", "cancel"]), st.integers(0, 9)),
    st.tuples(st.just("close"), st.integers(1, 3)),
    st.just(("reopen",)),
    EDIT,
)
OPERATIONS = st.one_of(DECIDE, DECIDE, REWARD, REWARD, RARE)  # as often as it says
PAUSES = st.sampled_from([-5, 0, 1, 1, 1, 300_000])


def perform(diary: Diary, operation: tuple[Any, ...], at: int) -> None:
    """Do one of the operations above, on one of the last decisions where it is on one."""
    seqs = [one.seq for one in diary.log if one.kind == "decided"][-10:] or [1]
    verb, *given = operation
    match verb:
        case "decide":
            context, available, defer = given
            diary.decide(at, context=context, available=available, defer=defer)
        case "reward":
            place, value, key, spend = given
            diary.reward(seqs[place % len(seqs)], value, at, key=key, spend=spend)
        case "activate" | "cancel":
            diary.note(getattr(diary.fold, verb)(at, of=seqs[given[0] % len(seqs)]))
        case "close":
            diary.close(at, most=given[0])
        case "edit":
            problem, paused, aggregate, wait = given
            diary.edit(PROBLEMS[problem], at, paused=paused, aggregate=aggregate, wait=wait)
        case "reopen":
            diary.reopen()


@pytest.mark.parametrize("policy", EVERY)
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(OPERATIONS, PAUSES), min_size=30, max_size=80))
def test_a_replayed_log_gives_the_same_fold_bit_for_bit(policy: str, steps: Any) -> None:
    diary = Diary(policy=policy, wait=1.0, memory=12)
    now = 0
    for operation, pause in steps:
        now = max(0, now + pause)
        before = diary.fold.fingerprint()
        lines = len(diary.log)
        try:
            perform(diary, operation, now)
        except BylotError:
            assert diary.fold.fingerprint() == before, "an error has changed something"
        assert diary.fold.seq == len(diary.log) - 1
        assert operation[0] == "reopen" or (diary.fold.fingerprint() == before) == (
            len(diary.log) == lines
        )
    assert diary.replayed().fingerprint() == diary.fold.fingerprint()
    assert (
        RouterAggregate.from_snapshot("triage", diary.fold.take_snapshot()).fingerprint()
        == diary.fold.fingerprint()
    )


@pytest.mark.parametrize("policy", EVERY)
def test_a_fold_decides_and_learns_as_a_router_in_memory_does(policy: str) -> None:
    diary, router = Diary(policy=policy, seed=4), Router(five(), policy, seed=4)
    for n in range(60):
        up = ["ann", "cat", "eve"] if n % 7 == 3 else None
        ours = router.decide("ab"[n % 2], up)
        seq = diary.decide(context="ab"[n % 2], available=None if up is None else tuple(up))
        stored = decision_from_event("triage", diary.log[seq])
        assert (stored.draws, stored.inclusion, stored.t) == (ours.draws, ours.inclusion, ours.t)
        assert stored.draw_probabilities == ours.draw_probabilities
        assert stored.propensity == ours.propensity
        assert (stored.subset, stored.spend, stored.expected) == (
            ours.subset,
            ours.spend,
            ours.expected,
        )
        value = len(ours.draws[0]) / 10 + 0.1 * ("ann" in ours.subset)
        router.reward(ours.id, value)
        assert diary.reward(seq, value) == "learned"
    assert str(diary.fold.core.status()) == str(router.status())


@pytest.mark.parametrize("policy", ["omd", "tangent"])
def test_independent_draws_tell_the_chance_of_their_set_and_of_its_members(policy: str) -> None:
    diary = Diary(policy=policy)
    for _ in range(20):
        line = decided(diary.log[diary.decide()])
        assert line.propensity is not None
        assert line.inclusion is not None
        q = dict(zip(line.draws, np.frombuffer(line.draw_probabilities), strict=True))
        exact = np.exp(log_iid_set_probability(np.array(list(q.values())), 2))
        np.testing.assert_allclose(line.propensity, exact, rtol=1e-12)
        included = [1 - (1 - q[name]) ** 2 for name in line.draws]
        np.testing.assert_allclose(line.inclusion, included, rtol=1e-12)


def test_a_policy_without_a_law_tells_no_chance() -> None:
    diary = Diary(policy="greedy")
    assert decided(diary.log[diary.decide()]).propensity is None


@pytest.mark.parametrize(
    ("terms", "error", "words"),
    [
        ({"policy": {"name": "nobody"}}, PolicyError, "does not know the policy"),
        ({"policy": {}}, PolicyError, "name"),
        ({"problem": {"experts": ["a", "b"], "costs": {}}}, ProblemError, "lacks 'draws'"),
        ({"problem": {"expert": []}}, ProblemError, "did you mean 'experts'"),
        ({"problem": {"experts": 3, "costs": {}, "draws": 1}}, ProblemError, "list of names"),
        ({"seed": -1}, PolicyError, "seed=-1"),
        ({"rewards": (1.0, 0.0)}, RewardError, "low < high"),
        ({"memory": 0}, PolicyError, "memory=0"),
        ({"max_contexts": 0}, PolicyError, "max_contexts=0"),
        ({"wait": 0.0}, RewardError, r"wait 0\.0: expected"),
        ({"wait": float("inf")}, RewardError, "wait inf: expected"),
        ({"default": 0.5}, RewardError, "give a wait"),
        ({"aggregate": "sum"}, RewardError, "give a wait"),
        ({"wait": 1.0, "default": 2.0}, RewardError, r"default 2\.0: expected"),
        ({"wait": 1.0, "default": float("nan")}, RewardError, "default nan: expected"),
        ({"paused": ("anne",)}, ProblemError, "did you mean 'ann'"),
        ({"paused": five().experts}, ProblemError, "all experts are paused"),
    ],
)
def test_terms_that_make_no_sense_are_refused_by_name(
    terms: dict[str, Any], error: type[Exception], words: str
) -> None:
    good = terms_of(five())
    bad = type(good)(**{name: getattr(good, name) for name in good.__struct_fields__} | terms)
    with pytest.raises(error, match=words):
        RouterAggregate.create(1, "triage", bad, at=0)
    fold, _ = RouterAggregate.create(1, "triage", good, at=0)
    before = fold.fingerprint()
    with pytest.raises((error, PolicyError), match=rf"{words}|cannot be changed"):
        fold.edit(1, bad)
    assert fold.fingerprint() == before


def test_an_edit_that_cannot_be_kept_changes_nothing() -> None:
    diary = Diary()
    diary.decide()
    before = diary.fold.fingerprint()
    with pytest.raises(InfeasibleLimits):
        diary.edit(with_frank(0.4))
    assert diary.fold.fingerprint() == before
    diary.edit(with_frank(3.0))
    assert diary.fold.config.version == 2
    assert diary.fold.fingerprint() != before


def test_an_edit_of_other_terms_leaves_the_policy_as_it_is() -> None:
    diary = Diary()
    for _ in range(25):
        diary.reward(diary.decide(), 0.5)
    router = diary.fold.core
    state, period = router.state, router.status().period
    diary.edit(paused=("ann",), wait=2.0)
    assert router.state is state
    assert router.status().period == period


def test_a_paused_expert_is_never_asked_and_comes_back() -> None:
    diary = Diary(policy="random")
    diary.edit(paused=("ann", "bob"))
    panels = [decided(diary.log[diary.decide()]).draws for _ in range(40)]
    assert not {"ann", "bob"} & {name for panel in panels for name in panel}
    assert decided(diary.log[diary.decide(available=("bob", "cat"))]).draws == ("cat", "cat")
    with pytest.raises(DecisionError, match="are paused"):
        diary.decide(available=("ann", "bob"))
    diary.edit(paused=())
    panels = [decided(diary.log[diary.decide()]).draws for _ in range(40)]
    assert {"ann", "bob"} <= {name for panel in panels for name in panel}


def test_times_never_go_back() -> None:
    diary = Diary()
    diary.decide(50)
    assert diary.log[diary.decide(20)].at == 50


@pytest.mark.parametrize("text", ["\ud800", b"bytes", 7])
def test_a_text_that_no_log_can_hold_is_refused_and_changes_nothing(text: Any) -> None:
    diary = Diary()
    before = diary.fold.fingerprint()
    for what in ("context", "key"):
        with pytest.raises(DecisionError, match="expected a text"):
            diary.decide(**{what: text})
    assert diary.fold.fingerprint() == before


@pytest.mark.parametrize("policy", ["distinct", "tangent"])
def test_chances_are_among_those_who_are_not_paused(policy: str) -> None:
    diary = Diary(policy=policy)
    for _ in range(30):
        diary.reward(diary.decide(context="a"), 0.5)
    diary.edit(paused=("ann", "dan"))
    status = diary.fold.status()
    seats = 2 if policy == "distinct" else 1
    assert status.q["ann"] == status.q["dan"] == 0.0
    assert sum(status.q.values()) == pytest.approx(seats)
    (law,) = status.distributions
    assert law.distribution[0] == law.distribution[3] == 0.0
    assert sum(law.distribution) == pytest.approx(1.0)


def test_an_edit_leaves_the_count_of_decisions_of_a_context() -> None:
    diary = Diary()
    for n in range(37):
        diary.decide(context="aab"[n % 3])
    for problem in (with_frank(3.0), five()):
        diary.edit(problem)
        diary.reopen()
        laws = {one.context: one.visits for one in diary.fold.status().distributions}
        assert laws == {"a": 25, "b": 12}
    diary.decide(context="b")
    assert [one.visits for one in diary.fold.status().distributions] == [25, 13]


@pytest.mark.parametrize("policy", ["distinct", "tangent"])
def test_limits_must_be_kept_by_those_who_are_not_paused(policy: str) -> None:
    diary = Diary(policy=policy)
    diary.edit(paused=("cat",))
    before = diary.fold.fingerprint()
    with pytest.raises(InfeasibleLimits, match=r"with 'cat', 'eve' paused.*resume"):
        diary.edit(paused=("cat", "eve"))
    assert diary.fold.fingerprint() == before
    with pytest.raises(InfeasibleLimits, match="resume"):
        Diary(policy=policy, paused=("cat", "eve"))
    with pytest.raises(InfeasibleLimits, match="'dan' alone costs"):
        diary.edit(paused=("ann", "bob", "cat", "eve"))
    diary.edit(paused=("ann", "bob", "dan", "eve"))
    assert decided(diary.log[diary.decide()]).draws == ("cat", "cat")


def test_a_pair_that_is_too_dear_without_the_paused_one_is_refused() -> None:
    costs = {"usd": [3.0, 2.0, 2.5, 0.5]}
    ward = Problem(["cardio", "renal", "neuro", "general"], costs, [at_most("usd", 2.5)], draws=2)
    with pytest.raises(InfeasibleLimits, match=r"with 'renal' paused.*2 different experts"):
        Diary(ward, paused=("renal",))
    Diary(ward, paused=("cardio",))
