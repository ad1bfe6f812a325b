"""What is booked for each member of a panel, and what is reported to its router."""

import math

from hypothesis import given
from hypothesis import strategies as st

from bylot.gateway.answers import Verdict
from bylot.gateway.asking import PanelResult
from bylot.gateway.settlement import HOLDER, RouterFacts, compute_spend, make_report
from panel_outcomes import answer, failure

DECLARED = {"a": 0.5, "b": 0.25, "c": 0.125}
FACTS = RouterFacts(1, tuple(DECLARED), DECLARED, "members", (0.0, 1.0))


def test_an_answer_is_booked_at_its_price_or_else_at_the_declared_cost() -> None:
    result = PanelResult([answer("a", 0.01), answer("b", None)], [], {})
    assert compute_spend(("a", "b"), result, 0.0, FACTS) == {"a": 0.01, "b": 0.25}


def test_a_refusal_costs_nothing_and_a_timeout_the_declared_cost() -> None:
    result = PanelResult([], [failure("a", 0.0, "http_500"), failure("b", None)], {})
    assert compute_spend(("a", "b", "c"), result, 0.0, FACTS) == {"a": 0.0, "b": 0.25, "c": 0.0}


def test_the_cost_of_a_judge_is_shared_by_those_it_judged() -> None:
    result = PanelResult([answer("a", 0.5), answer("b", 0.25)], [failure("c", 0.0)], {})
    assert compute_spend(("a", "b", "c"), result, 1.0, FACTS) == {"a": 1.0, "b": 0.75, "c": 0.0}


def test_the_cost_of_a_replaced_member_is_booked_with_its_substitute() -> None:
    result = PanelResult([answer("c", 1.0)], [failure("a", None), failure("b", 0.0)], {"c": "a"})
    assert compute_spend(("c", "b"), result, 0.0, FACTS) == {"c": 1.5, "b": 0.0}


def test_without_scores_only_costs_are_reported() -> None:
    result = PanelResult([answer("a", 0.5)], [], {})
    report = make_report(("a",), result, None, 0.0, FACTS, "usd")
    assert report == {"key": HOLDER, "spend": {"usd": {"a": 0.5}}}


def test_without_costs_and_scores_the_report_is_that_the_decision_is_settled() -> None:
    facts = FACTS._replace(declared={})
    report = make_report(("a",), PanelResult([], [], {}), None, 0.0, facts, "usd")
    assert report == {"key": HOLDER}


def test_scores_are_reported_in_the_kind_of_feedback_of_the_router() -> None:
    result = PanelResult([answer("a", 0.5), answer("b", 0.5)], [failure("c", 0.0)], {})
    verdict = Verdict(scores={"a": 0.25, "b": 0.75}, source="exact", winner="b")
    expected = {
        "members": {"members": {"a": 0.25, "b": 0.75}},
        "panel": {"value": 0.75},
        "winner": {"value": 0.75, "winner": "b"},
    }
    for kind, parts in expected.items():
        facts = FACTS._replace(feedback=kind)
        report = make_report(("a", "b", "c"), result, verdict, 0.0, facts, "usd")
        assert {k: v for k, v in report.items() if k not in ("key", "spend")} == parts
        assert report["key"] == "gateway/exact"


def test_scores_are_mapped_to_the_range_of_rewards() -> None:
    facts = FACTS._replace(rewards=(-1.0, 3.0))
    verdict = Verdict(scores={"a": 0.5}, source="exact")
    report = make_report(("a",), PanelResult([answer("a", 0.5)], [], {}), verdict, 0, facts, "usd")
    assert report["members"] == {"a": 1.0}


def test_a_winner_without_merit_is_not_reported() -> None:
    facts = FACTS._replace(feedback="winner")
    verdict = Verdict(scores={"a": 0.0}, source="exact", winner="a")
    report = make_report(("a",), PanelResult([answer("a", 0.5)], [], {}), verdict, 0, facts, "usd")
    assert report["value"] == 0.0
    assert "winner" not in report


COSTS = st.one_of(st.none(), st.floats(0, 1))


@given(
    answered=st.dictionaries(st.sampled_from("abc"), COSTS),
    failed=st.dictionaries(st.sampled_from("de"), COSTS),
    judge=st.floats(0, 1),
    replaced=st.sampled_from([{}, {"a": "d"}, {"a": "d", "b": "e"}, {"b": "e", "e": "d"}]),
)
def test_every_dollar_is_booked_once(
    answered: dict[str, float | None],
    failed: dict[str, float | None],
    judge: float,
    replaced: dict[str, str],
) -> None:
    """The panel's spend is the sum of all calls, at declared costs where they are not known."""
    declared = dict.fromkeys("abcde", 0.5)
    facts = FACTS._replace(declared=declared)
    answers = [answer(*item) for item in answered.items()]
    result = PanelResult(answers, [failure(*item) for item in failed.items()], replaced)
    members = [name for name in "abcde" if name not in replaced.values()]
    booked = compute_spend(members, result, judge if answers else 0.0, facts)
    calls = {**answered, **failed}
    reached = set(members) | set(replaced.values())
    known = [declared[k] if v is None else v for k, v in calls.items() if k in reached]
    total = math.fsum(known) + (judge if answers else 0.0)
    assert math.isclose(math.fsum(booked.values()), total, abs_tol=1e-12)
