"""Scores of members, winners and costs by member in the log: aggregation, replay, snapshots."""

from typing import Any

import pytest

from bylot import Problem, at_most
from bylot.errors import (
    DataError,
    DecisionStateError,
    PolicyError,
    RewardConflict,
    RewardError,
    StoreCorrupted,
)
from bylot.evaluate.entries import parse_entry
from bylot.evaluate.log import log_from_entries
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.decision_log import LogReader
from bylot.eventlog.events import BODY_DECODERS
from bylot.policies.base import FeedbackKind
from bylot.server.dashboard.router_view import latest_decision
from logged_aggregate import SECOND, LoggedRouter, decode_closing, decode_reward

POOL = Problem(
    ["ann", "bob", "cat", "dan"],
    {"usd": [1.0, 2.0, 0.5, 3.0]},
    [at_most("usd", 4.0)],
    draws=2,
)


def make_logged(feedback: FeedbackKind = "members", **settings: Any) -> LoggedRouter:
    return LoggedRouter(POOL, "ts", feedback=feedback, **settings)


def find_panel(logged: LoggedRouter, seq: int) -> tuple[str, ...]:
    return logged.record(seq).decision.subset


def assert_log_gives_the_state(logged: LoggedRouter) -> None:
    """A replay, and a snapshot with what follows it, give the same state."""
    expected = logged.aggregate.fingerprint()
    assert logged.replay_log().fingerprint() == expected
    logged.reopen()
    assert logged.aggregate.fingerprint() == expected


@pytest.mark.parametrize("reopened", [False, True])
def test_scores_are_learned_once_and_shown_with_their_decision(reopened: bool) -> None:
    logged = make_logged()
    one = logged.decide()
    if reopened:
        logged.reopen()
    first, other = find_panel(logged, one)
    assert logged.reward(one, members={first: True, other: False}) == "learned"
    body = decode_reward(logged.log[-1])
    assert (body.value, body.members, body.from_members) == (1.0, {first: 1.0, other: 0.0}, True)
    record = logged.record(one)
    assert record.learned_members == record.rewards[0].members == {first: 1.0, other: 0.0}
    assert logged.aggregate.tally.counters.detailed == 1
    before = logged.aggregate.fingerprint()
    assert logged.reward(one, 1.0, members={other: 0, first: 1}) == "duplicate"
    for report in ({"members": {first: 1}}, {"value": 0.5}, {"members": {first: 0, other: 1}}):
        with pytest.raises(RewardConflict, match="already has"):
            logged.reward(one, **report)
    assert logged.aggregate.fingerprint() == before
    assert_log_gives_the_state(logged)


def test_learning_from_scores_is_that_of_the_router_in_memory() -> None:
    from bylot import Router

    logged, router = make_logged(seed=4), Router(POOL, "ts", seed=4, feedback="members")
    for n in range(30):
        seq, decision = logged.decide(), router.decide()
        first, other = decision.subset
        report: Any = {"members": {first: n % 2, other: 0.25}, "spend": {"usd": n % 5}}
        if n % 3:
            report["spend"] = {"usd": {first: 1.5, other: 0.5}}
        logged.reward(seq, **report)
        router.reward(decision.id, **report)
    assert str(logged.aggregate.core.state) == str(router.core.state)
    assert str(logged.aggregate.core.totals) == str(router.core.totals)


def test_only_the_earliest_of_partial_reports_is_learned_by_default() -> None:
    logged = make_logged()
    one = logged.decide()
    first, other = find_panel(logged, one)
    assert logged.reward(one, members={first: 0.25}, key="judge-1") == "learned"
    assert logged.reward(one, members={other: 1.0}, key="judge-2") == "noted"
    assert logged.record(one).learned_members == {first: 0.25}
    assert logged.record(one).learned == 0.25


@pytest.mark.parametrize(
    ("aggregate", "reports", "expected"),
    [
        # the last score of each member; the reward is the best of these
        ("last", [{"a": 1.0}, {"b": 0.0}], (1.0, {"a": 1.0, "b": 0.0})),
        ("last", [{"a": 1.0, "b": 0.5}, {"a": 0.0}], (0.5, {"a": 0.0, "b": 0.5})),
        # a reward that was reported counts, whatever the scores are
        ("last", [{"a": 1.0}, 0.25, {"b": 0.5}], (0.25, {"a": 1.0, "b": 0.5})),
        ("last", [0.75, 0.25, {"b": 0.5}], (0.25, {"b": 0.5})),
        # sums of the scores of each member, and of the rewards that were reported
        ("sum", [{"a": 0.25}, {"a": 0.5, "b": 0.5}], (0.75, {"a": 0.75, "b": 0.5})),
        ("sum", [0.25, {"a": 0.5}, 0.5], (0.75, {"a": 0.5})),
        ("sum", [0.25, 0.5], (0.75, None)),
    ],
)
def test_reports_under_different_keys_are_aggregated_member_by_member(
    aggregate: str, reports: list[Any], expected: tuple[float, Any]
) -> None:
    logged = make_logged(wait=10.0, aggregate=aggregate)
    one = logged.decide(0)
    names = dict(zip("ab", find_panel(logged, one), strict=True))
    for n, report in enumerate(reports):
        given = report if isinstance(report, dict) else {}
        members = {names[name]: score for name, score in given.items()} or None
        value = None if isinstance(report, dict) else report
        assert logged.reward(one, value, n, members=members, key=f"k{n}") == "pending"
        if n == 0:
            logged.reopen()
    logged.close(11 * SECOND)
    closed = decode_closing(logged.log[-1])
    scores = expected[1] and {names[name]: score for name, score in expected[1].items()}
    assert (closed.learned, closed.members) == (expected[0], scores)
    record = logged.record(one)
    assert (record.learned, record.learned_members) == (expected[0], scores)
    assert_log_gives_the_state(logged)


def test_the_last_winner_counts() -> None:
    logged = make_logged("winner", wait=10.0, aggregate="sum")
    one = logged.decide(0)
    first, other = find_panel(logged, one)
    for n, winner in enumerate((first, other, None)):
        logged.reward(one, 0.25, n, winner=winner, key=f"k{n}")
    logged.close(11 * SECOND)
    closed = decode_closing(logged.log[-1])
    assert (closed.learned, closed.winner) == (0.75, other)
    assert logged.record(one).learned_winner == other
    assert_log_gives_the_state(logged)


def test_sums_of_scores_must_be_in_the_range_of_rewards() -> None:
    logged = make_logged(wait=10.0, aggregate="sum")
    one = logged.decide(0)
    first, other = find_panel(logged, one)
    logged.reward(one, members={first: 0.75}, key="x")
    before = logged.aggregate.fingerprint()
    with pytest.raises(RewardError, match=rf"scores of '{first}' for decision .* would sum to 1\."):
        logged.reward(one, members={first: 0.5}, key="y")
    assert logged.aggregate.fingerprint() == before
    assert logged.reward(one, members={other: 0.5}, key="y") == "pending"


def test_a_late_report_is_stored_and_not_learned() -> None:
    logged = make_logged(wait=1.0)
    one = logged.decide(0)
    first, _ = find_panel(logged, one)
    logged.close(2 * SECOND)
    assert logged.reward(one, at=3 * SECOND, members={first: 1}) == "late"
    assert logged.record(one).learned is None
    assert logged.record(one).rewards[0].members == {first: 1.0}
    assert_log_gives_the_state(logged)


@pytest.mark.parametrize(
    ("feedback", "report", "words"),
    [
        ("panel", {"members": {"ann": 1}}, "create it with feedback='members'"),
        ("members", {"winner": "ann", "value": 1}, "create it with feedback='winner'"),
        ("members", {"members": {"eve": 1}}, "has no member 'eve'"),
        ("winner", {"winner": "eve", "value": 1}, "has no member 'eve'"),
        ("winner", {"winner": "ann"}, "invalid reward None"),
        ("members", {"value": 1, "spend": {"usd": {"eve": 1}}}, "lacks member"),
    ],
)
@pytest.mark.parametrize("closed", [False, True])
def test_an_invalid_report_is_refused_and_changes_nothing(
    feedback: FeedbackKind, report: dict[str, Any], words: str, closed: bool
) -> None:
    logged = make_logged(feedback)
    one = logged.decide()
    if closed:
        logged.reward(one, 0.5)
    before = logged.aggregate.fingerprint()
    with pytest.raises(RewardError, match=words):
        logged.reward(one, key="other", **report)
    assert logged.aggregate.fingerprint() == before


def test_costs_by_member_are_totals_that_the_last_report_corrects() -> None:
    logged = make_logged()
    one = logged.decide()
    first, other = find_panel(logged, one)
    spend: Any = {"usd": {first: 0.5, other: 0.75}}
    assert logged.reward(one, 0.5, spend=spend) == "learned"
    body = decode_reward(logged.log[-1])
    assert (body.spend, body.member_spend) == ({"usd": 1.25}, spend)
    assert logged.aggregate.core.totals.spent[0] == 1.25
    assert logged.reward(one, 0.5, spend=spend) == "duplicate"
    assert logged.reward(one, 0.5, spend={"usd": 3.0}, key="bill") == "noted"
    assert logged.aggregate.core.totals.spent[0] == 3.0
    assert_log_gives_the_state(logged)


def test_a_report_about_a_panel_from_before_a_change_of_the_pool_is_noted() -> None:
    logged = make_logged()
    one = logged.decide()
    panel = find_panel(logged, one)
    experts = [name for name in POOL.experts if name != panel[0]] + ["eve"]
    logged.edit(Problem(experts, {"usd": [1.0] * 4}, [at_most("usd", 4.0)], draws=2))
    with pytest.raises(RewardError, match="has no member 'eve'"):
        logged.reward(one, members={"eve": 1})
    assert logged.reward(one, members={panel[0]: 1}) == "noted"
    assert_log_gives_the_state(logged)


def test_the_feedback_of_a_running_router_cannot_be_edited() -> None:
    logged = make_logged()
    with pytest.raises(PolicyError, match="feedback cannot be changed from 'members' to 'panel'"):
        logged.edit(feedback="panel")


def test_a_page_and_a_log_line_show_what_was_learned_of_members() -> None:
    scored, won = make_logged(), make_logged("winner")
    assert find_panel(scored, scored.decide()) == find_panel(won, won.decide())
    first, other = find_panel(scored, 1)
    scored.reward(1, members={first: 0.25})
    row = latest_decision(scored.record(1))
    assert {one["name"]: one["score"] for one in row["panel"]} == {first: "scored 0.25", other: ""}
    won.reward(1, 1.0, winner=other)
    row = latest_decision(won.record(1))
    assert {one["name"]: one["score"] for one in row["panel"]} == {first: "", other: "won"}
    for logged, line in ((scored, {"members": {first: 0.25}}), (won, {"winner": other})):
        reader = LogReader("triage.1")
        for event in logged.log:
            body = BODY_DECODERS[event.kind](event.body)
            reader.apply(event.seq, event.of, event.seal.hex(), body)
        (entry,) = reader.entries.values()
        data = entry.to_data()
        assert {name: data.get(name) for name in line} == line
        assert parse_entry(data) == entry


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"members": {"cat": 1}}, "'cat' has a score or won, and is not of the panel"),
        ({"winner": "cat"}, "'cat' has a score or won, and is not of the panel"),
        ({"members": [1]}, "an object of scores"),
        ({"members": {"ann": 1e999}}, "an object of scores"),
        ({"winner": 3}, "the name of a member, or null"),
    ],
)
def test_a_log_line_with_impossible_scores_is_refused(fields: Any, words: str) -> None:
    line = {"id": "a", "t": 0, "subset": ["ann", "bob"], "reward": 1, "propensity": 0.5}
    given = {"members": {"ann": True, "bob": None}, "winner": "ann"}
    entry = log_from_entries(POOL, [parse_entry({**line, **given})]).entries[0]
    assert (entry.members, entry.winner) == ({"ann": 1.0}, "ann")
    with pytest.raises(DataError, match=words):
        log_from_entries(POOL, [parse_entry({**line, **fields})])


def test_a_deferred_decision_takes_no_report() -> None:
    logged = make_logged()
    one = logged.decide(defer=True)
    with pytest.raises(DecisionStateError, match="activate it first"):
        logged.reward(one, members=dict.fromkeys(find_panel(logged, one), 1))


def test_a_changed_score_in_the_log_is_noticed() -> None:
    logged = make_logged()
    logged.reward(one := logged.decide(), members=dict.fromkeys(find_panel(logged, one), 1))
    last = logged.log[-1]
    assert b"members" in last.body
    logged.log[-1] = last._replace(body=last.body.replace(b"members", b"membert"))
    with pytest.raises(StoreCorrupted):
        logged.replay_log()


def test_a_log_without_feedback_has_the_bytes_it_had_before() -> None:
    logged = LoggedRouter()
    logged.reward(logged.decide(), 0.5, spend={"usd": 1.0})
    for event in (logged.log[0], logged.log[-1]):
        for word in (b"feedback", b"members", b"winner", b"member_spend"):
            assert word not in event.body
    assert isinstance(logged.replay_log(), RouterAggregate)
