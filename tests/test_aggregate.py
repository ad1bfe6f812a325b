"""Aggregates decide like routers in memory, and a replayed log gives the same aggregate."""

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
from bylot.eventlog.commands import CreateRouter, EditRouter
from bylot.eventlog.history import show_events
from bylot.numerics.iid_sets import log_iid_set_probability
from bylot.router.core_status import report_status
from bylot.store import DecisionEvents
from logged_aggregate import LoggedRouter, decode_decision, make_config, make_problem_with_frank
from sample_problem import make_five_expert_problem

POLICY_NAMES = ["distinct", "tangent", "noisy-or", "omd", "cbwk", "ts-bwk", "moe", "random"]


PROBLEMS = [make_five_expert_problem(), make_problem_with_frank(3.0), make_problem_with_frank(2.5)]

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
RARE_OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["activate", "cancel"]), st.integers(0, 9)),
    st.tuples(st.just("close"), st.integers(1, 3)),
    st.just(("reopen",)),
    EDIT,
)
OPERATIONS = st.one_of(DECIDE, DECIDE, REWARD, REWARD, RARE_OPERATIONS)  # weighted by repetition
PAUSES = st.sampled_from([-5, 0, 1, 1, 1, 300_000])


def perform(logged: LoggedRouter, operation: tuple[Any, ...], at: int) -> None:
    """Perform one of the operations above, on one of the last decisions if it needs one."""
    seqs = [one.seq for one in logged.log if one.kind == "decided"][-10:] or [1]
    verb, *given = operation
    match verb:
        case "decide":
            context, available, defer = given
            logged.decide(at, context=context, available=available, defer=defer)
        case "reward":
            position, value, key, spend = given
            logged.reward(seqs[position % len(seqs)], value, at, key=key, spend=spend)
        case "activate" | "cancel":
            logged.append(getattr(logged.aggregate, verb)(at, of=seqs[given[0] % len(seqs)]))
        case "close":
            logged.close(at, most=given[0])
        case "edit":
            problem, paused, aggregate, wait = given
            logged.edit(PROBLEMS[problem], at, paused=paused, aggregate=aggregate, wait=wait)
        case "reopen":
            logged.reopen()


@pytest.mark.parametrize("policy", POLICY_NAMES)
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(OPERATIONS, PAUSES), min_size=30, max_size=80))
def test_a_replayed_log_gives_the_same_aggregate_bit_for_bit(policy: str, steps: Any) -> None:
    logged = LoggedRouter(policy=policy, wait=1.0, memory=12)
    now = 0
    for operation, pause in steps:
        now = max(0, now + pause)
        before = logged.aggregate.fingerprint()
        event_count = len(logged.log)
        try:
            perform(logged, operation, now)
        except BylotError:
            assert logged.aggregate.fingerprint() == before, "an error has changed something"
        assert logged.aggregate.seq == len(logged.log) - 1
        assert operation[0] == "reopen" or (logged.aggregate.fingerprint() == before) == (
            len(logged.log) == event_count
        )
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()
    assert (
        RouterAggregate.from_snapshot("triage", logged.aggregate.take_snapshot()).fingerprint()
        == logged.aggregate.fingerprint()
    )


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_an_aggregate_decides_and_learns_like_a_router_in_memory(policy: str) -> None:
    logged, router = (
        LoggedRouter(policy=policy, seed=4),
        Router(make_five_expert_problem(), policy, seed=4),
    )
    for n in range(60):
        available = ["ann", "cat", "eve"] if n % 7 == 3 else None
        in_memory = router.decide("ab"[n % 2], available)
        seq = logged.decide(
            context="ab"[n % 2], available=None if available is None else tuple(available)
        )
        stored = show_events("triage", DecisionEvents(logged.log[seq], ()))
        assert (stored.draws, stored.inclusion, stored.t) == (
            in_memory.draws,
            in_memory.inclusion,
            in_memory.t,
        )
        assert stored.draw_probabilities == in_memory.draw_probabilities
        assert stored.propensity == in_memory.propensity
        assert (stored.subset, stored.spend, stored.expected) == (
            in_memory.subset,
            in_memory.spend,
            in_memory.expected,
        )
        value = len(in_memory.draws[0]) / 10 + 0.1 * ("ann" in in_memory.subset)
        router.reward(in_memory.id, value)
        assert logged.reward(seq, value) == "learned"
    assert str(report_status(logged.aggregate.core)) == str(router.status())


@pytest.mark.parametrize("policy", ["omd", "tangent"])
def test_events_of_independent_draws_have_propensity_and_inclusion(policy: str) -> None:
    logged = LoggedRouter(policy=policy)
    for _ in range(20):
        event = decode_decision(logged.log[logged.decide()])
        assert event.propensity is not None
        assert event.inclusion is not None
        q = dict(zip(event.draws, np.frombuffer(event.draw_probabilities), strict=True))
        exact = np.exp(log_iid_set_probability(np.array(list(q.values())), 2))
        np.testing.assert_allclose(event.propensity, exact, rtol=1e-12)
        included = [1 - (1 - q[name]) ** 2 for name in event.draws]
        np.testing.assert_allclose(event.inclusion, included, rtol=1e-12)


def test_events_of_a_policy_without_a_distribution_have_no_propensity() -> None:
    logged = LoggedRouter(policy="greedy")
    assert decode_decision(logged.log[logged.decide()]).propensity is None


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"policy": {"name": "unknown"}}, PolicyError, "does not know the policy"),
        ({"policy": {}}, PolicyError, "name"),
        ({"problem": {"experts": ["a", "b"], "costs": {}}}, ProblemError, "missing field 'draws'"),
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
        ({"paused": make_five_expert_problem().experts}, ProblemError, "all experts are paused"),
    ],
)
def test_an_invalid_config_is_refused(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    valid = make_config(make_five_expert_problem())
    invalid = type(valid)(
        **{name: getattr(valid, name) for name in valid.__struct_fields__} | changes
    )
    with pytest.raises(error, match=words):
        RouterAggregate.create(1, 0, CreateRouter("triage", invalid))
    aggregate, _ = RouterAggregate.create(1, 0, CreateRouter("triage", valid))
    before = aggregate.fingerprint()
    with pytest.raises((error, PolicyError), match=rf"{words}|cannot be changed"):
        aggregate.edit(1, EditRouter("triage", invalid))
    assert aggregate.fingerprint() == before


def test_an_infeasible_edit_changes_nothing() -> None:
    logged = LoggedRouter()
    logged.decide()
    before = logged.aggregate.fingerprint()
    with pytest.raises(InfeasibleLimits):
        logged.edit(make_problem_with_frank(0.4))
    assert logged.aggregate.fingerprint() == before
    logged.edit(make_problem_with_frank(3.0))
    assert logged.aggregate.config.version == 2
    assert logged.aggregate.fingerprint() != before


def test_an_edit_that_keeps_the_problem_keeps_the_state_of_the_policy() -> None:
    logged = LoggedRouter()
    for _ in range(25):
        logged.reward(logged.decide(), 0.5)
    router = logged.aggregate.core
    state, period = router.state, report_status(router).period
    logged.edit(paused=("ann",), wait=2.0)
    assert router.state is state
    assert report_status(router).period == period


def test_a_paused_expert_is_not_asked_until_it_is_resumed() -> None:
    logged = LoggedRouter(policy="random")
    logged.edit(paused=("ann", "bob"))
    panels = [decode_decision(logged.log[logged.decide()]).draws for _ in range(40)]
    assert not {"ann", "bob"} & {name for panel in panels for name in panel}
    assert decode_decision(logged.log[logged.decide(available=("bob", "cat"))]).draws == (
        "cat",
        "cat",
    )
    with pytest.raises(DecisionError, match="are paused"):
        logged.decide(available=("ann", "bob"))
    logged.edit(paused=())
    panels = [decode_decision(logged.log[logged.decide()]).draws for _ in range(40)]
    assert {"ann", "bob"} <= {name for panel in panels for name in panel}


def test_times_never_decrease() -> None:
    logged = LoggedRouter()
    logged.decide(50)
    assert logged.log[logged.decide(20)].at == 50


@pytest.mark.parametrize("text", ["\ud800", b"bytes", 7])
def test_a_text_that_cannot_be_stored_is_refused_and_changes_nothing(text: Any) -> None:
    logged = LoggedRouter()
    before = logged.aggregate.fingerprint()
    for field in ("context", "key"):
        with pytest.raises(DecisionError, match="expected a text"):
            logged.decide(**{field: text})
    assert logged.aggregate.fingerprint() == before


@pytest.mark.parametrize("policy", ["distinct", "tangent"])
def test_probabilities_of_paused_experts_are_0(policy: str) -> None:
    logged = LoggedRouter(policy=policy)
    for _ in range(30):
        logged.reward(logged.decide(context="a"), 0.5)
    logged.edit(paused=("ann", "dan"))
    status = logged.aggregate.status()
    total_probability = 2 if policy == "distinct" else 1
    assert status.q["ann"] == status.q["dan"] == 0.0
    assert sum(status.q.values()) == pytest.approx(total_probability)
    (distribution,) = status.distributions
    assert distribution.distribution[0] == distribution.distribution[3] == 0.0
    assert sum(distribution.distribution) == pytest.approx(1.0)


def test_an_edit_keeps_the_number_of_decisions_of_a_context() -> None:
    logged = LoggedRouter()
    for n in range(37):
        logged.decide(context="aab"[n % 3])
    for problem in (make_problem_with_frank(3.0), make_five_expert_problem()):
        logged.edit(problem)
        logged.reopen()
        visits = {one.context: one.visits for one in logged.aggregate.status().distributions}
        assert visits == {"a": 25, "b": 12}
    logged.decide(context="b")
    assert [one.visits for one in logged.aggregate.status().distributions] == [25, 13]


@pytest.mark.parametrize("policy", ["distinct", "tangent"])
def test_the_active_experts_must_be_able_to_keep_the_limits(policy: str) -> None:
    logged = LoggedRouter(policy=policy)
    logged.edit(paused=("cat",))
    before = logged.aggregate.fingerprint()
    with pytest.raises(InfeasibleLimits, match=r"with 'cat', 'eve' paused.*resume"):
        logged.edit(paused=("cat", "eve"))
    assert logged.aggregate.fingerprint() == before
    with pytest.raises(InfeasibleLimits, match="resume"):
        LoggedRouter(policy=policy, paused=("cat", "eve"))
    with pytest.raises(InfeasibleLimits, match="'dan' alone costs"):
        logged.edit(paused=("ann", "bob", "cat", "eve"))
    logged.edit(paused=("ann", "bob", "dan", "eve"))
    assert decode_decision(logged.log[logged.decide()]).draws == ("cat", "cat")


def test_pausing_an_expert_that_the_limits_need_is_refused() -> None:
    costs = {"usd": [3.0, 2.0, 2.5, 0.5]}
    problem = Problem(
        ["cardio", "renal", "neuro", "general"], costs, [at_most("usd", 2.5)], draws=2
    )
    with pytest.raises(InfeasibleLimits, match=r"with 'renal' paused.*2 different experts"):
        LoggedRouter(problem, paused=("renal",))
    LoggedRouter(problem, paused=("cardio",))
