"""The sentences of a what-if report follow the numbers: other numbers, other sentences."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bylot.harness import PlaySummary
from bylot.optima import ShadowPrice
from bylot.policies import POLICIES, resolve_policy, summarize_policy
from bylot.problem_files import read
from bylot.scenario import synthetic_scenario
from bylot.whatif.plan import Reference, WhatifJob, WhatifPlan
from bylot.whatif.report import describe_policy, describe_setup
from bylot.whatif.results import WhatifResults, find_reward_interval
from bylot.whatif.summary import compare_rewards, make_advice, summarize_results

POOL = """\
draws: 1
period: 100
costs: {usd: US dollars}
experts: [{name: ann, usd: 2}, {name: bob, usd: 1}]
limits: [{cost: usd, at_most: 1.5, per: request}]
"""


def make_play_summary(
    reward: float, bad: int = 0, outside: float = 0.0, periods: int = 2
) -> PlaySummary:
    """A play of two periods."""
    t = np.array([200])
    each, asked = np.full((periods, 1), 1.5), np.array([0.5, 0.5])
    return PlaySummary(
        *(reward, reward, np.array([1.5]), outside, periods, bad, each),
        *(0, asked, t, t / 400, t[None]),
    )


@pytest.fixture
def whatif_results(tmp_path: Path) -> WhatifResults:
    """Two policies, one of which breaks the limit and earns more."""
    (tmp_path / "pool.yaml").write_text(POOL)
    file = read(tmp_path / "pool.yaml")
    results: dict[WhatifJob, object] = {
        WhatifJob("distinct", 0): make_play_summary(0.6),
        WhatifJob("ts", 0): make_play_summary(0.8, bad=2, outside=0.1),
        WhatifJob("panels"): Reference(0.75, 0.75),
        WhatifJob("exact"): Reference(0.5, 0.5),
        WhatifJob("equal"): Reference(0.4),
        WhatifJob("set"): Reference(0.9, kept=False),
        WhatifJob("free-panels"): Reference(0.9375, 0.9375, kept=False),
        WhatifJob("free-draws"): Reference(0.625, 0.625, kept=False),
    }
    plan = WhatifPlan(file, synthetic_scenario(file), ["distinct", "ts", "tangent"], [0], 200)
    return WhatifResults(plan, {}, {}, results)


def summarize(results: WhatifResults) -> list[str]:
    """The sentences: what to do, rewards, costs of the limits, what is not allowed."""
    return summarize_results(results, make_advice(results))


def test_the_summary_starts_with_what_to_do(whatif_results: WhatifResults) -> None:
    advice, earned, cost, broken = summarize(whatif_results)
    assert advice == (
        "Run distinct, which keeps the limit in every period: expect a reward of 600 for 1,500 US "
        "dollars per 1,000 requests; what limits cost is unknown."
    )
    assert earned == (
        "distinct earns 0.600 of 1 per request over 200 requests (mean of 1 seed), 0.600 in the "
        "last tenth: 20% less than the best mixture of full panels under the limits (0.750) and "
        "50% more than asking all experts equally often under the limits (0.400)."
    )
    assert cost == (
        "Together the limits cost 0.188 per request, 20% of what panels of different experts "
        "earn without them."
    )
    assert broken == (
        "Not allowed, because they break limits: ts (0.800; it violated a limit in 2 of 2 periods) "
        "and the best fixed panel (0.900)."
    )


def add_prices(results: WhatifResults, **changes: Any) -> WhatifResults:
    """The same with a shadow price of 0.2 per dollar."""
    price = ShadowPrice(results.plan.problem.limits[0], 0.2, 1e-3, 0.2, 0.2, "agrees")
    best = Reference(0.75, 0.75, prices=(replace(price, **changes),))
    return change_result(results, WhatifJob("panels"), best)


def test_the_first_sentence_says_what_a_looser_limit_buys(whatif_results: WhatifResults) -> None:
    """A step of 10 dollars is less than 5 % of the bound of 1,500."""
    priced = add_prices(whatif_results)
    assert summarize(priced)[0].endswith(
        '; to earn more, loosen "usd at most 1.5 per request" first: 10 more US dollars per 1,000 '
        "requests would buy up to 2 more reward."
    )
    kink = add_prices(whatif_results, above=0.1, verdict="kink")
    assert "would buy up to 1 more reward." in summarize(kink)[0]
    unsure = add_prices(whatif_results, verdict="differs")
    assert summarize(unsure)[0].endswith("more reward (by a price that is not confirmed).")
    free = add_prices(whatif_results, price=0.0)
    assert summarize(free)[0].endswith("; no single limit is worth loosening.")


def test_totals_are_per_day_if_the_requests_per_day_are_known(
    whatif_results: WhatifResults,
) -> None:
    daily = replace(whatif_results, plan=replace(whatif_results.plan, per_day=20_000))
    text = summarize(add_prices(daily))[0]
    assert (
        "at 20,000 requests a day expect a reward of 12,000 for 30,000 US dollars a day; " in text
    )
    assert "first: 1,000 more US dollars a day would buy up to 200 more reward." in text


def test_solved_requests_are_counted_as_such(whatif_results: WhatifResults) -> None:
    plan = whatif_results.plan
    binary = replace(plan, scenario=replace(plan.scenario, solves=True))
    text = summarize(add_prices(replace(whatif_results, plan=binary)))[0]
    assert "expect 600 solved requests for 1,500 US dollars per 1,000 requests" in text
    assert text.endswith("would buy up to 2 more solved requests.")


def test_the_interval_covers_the_seeds_and_the_sample_of_questions(
    whatif_results: WhatifResults,
) -> None:
    runs = [make_play_summary(reward)._replace(spread=0.3) for reward in (0.5, 0.7)]
    far = 12.706204736 * 0.1  # of Student's t with one degree of freedom; 0.1 = s / sqrt(2)
    assert find_reward_interval(runs[:1], 0, (0.0, 1.0)) is None
    assert find_reward_interval(runs, 0, (-9.0, 9.0)) == pytest.approx((0.6 - far, 0.6 + far))
    assert find_reward_interval(runs, 0, (0.0, 1.0)) == (0.0, 1.0)  # no reward is outside
    both = math.hypot(far, 1.959963985 * 0.3 / math.sqrt(40))
    found = find_reward_interval(runs, 40, (-9.0, 9.0))
    assert found == pytest.approx((0.6 - both, 0.6 + both))
    plan = replace(whatif_results.plan, seeds=[0, 1])
    results: dict[WhatifJob, object] = {
        WhatifJob("distinct", seed): make_play_summary(0.6 + 0.001 * seed) for seed in (0, 1)
    }
    text = summarize(WhatifResults(plan, {}, {}, results))[0]
    assert "expect a reward of 600.5 (95% interval 594.1 to 606.9) for" in text


def test_the_advice_has_the_numbers_of_its_sentence(whatif_results: WhatifResults) -> None:
    data = make_advice(add_prices(whatif_results))
    assert data is not None
    assert (data["policy"], data["keeps"], data["requests"]) == ("distinct", True, 1_000)
    assert data["reward"] == {"value": 0.6}
    assert data["total_reward"] == {"value": 600.0}
    assert (data["spend"], data["total_spend"]) == ({"usd": 1.5}, {"usd": 1_500.0})
    (looser,) = data["loosen"]
    assert looser == {
        "limit": "usd",
        "side": "at_most",
        "bound": 1.5,
        "per": "request",
        "step": 10.0,
        "gain": pytest.approx(2.0),
        "verdict": "agrees",
        "words": '"usd at most 1.5 per request"',
    }


def test_missing_answers_are_a_warning_if_they_are_many(whatif_results: WhatifResults) -> None:
    for blanks, warned in ((10, False), (30, True)):
        scenario = replace(whatif_results.plan.scenario, questions=500, blanks=blanks)
        plan = replace(whatif_results.plan, scenario=scenario)
        last = summarize(replace(whatif_results, plan=plan))[-1]
        expected = "3% of the answers in the table are missing and count as 0: rewards may be"
        assert last.startswith(expected) == warned  # of 1,000 answers


def test_a_report_says_which_policies_share_what_contexts_teach(
    whatif_results: WhatifResults,
) -> None:
    scenario = replace(whatif_results.plan.scenario, contexts=("chest pain", "headache"))
    plan = replace(whatif_results.plan, scenario=scenario)
    lines = list(describe_setup(replace(whatif_results, plan=plan)))
    shared = "distinct and noisy-or share among them what they learn, others learn each alone"
    assert f"Contexts: chest pain, headache; {shared}." in lines


def test_a_policy_that_is_as_good_is_named_as_such(whatif_results: WhatifResults) -> None:
    plan = replace(whatif_results.plan, seeds=[0, 1, 2], policies=["noisy-or", "distinct", "ts"])
    rewards = {"noisy-or": (0.6, 0.61, 0.62), "distinct": (0.6, 0.6, 0.6), "ts": (0.5, 0.51, 0.52)}
    results: dict[WhatifJob, object] = {
        WhatifJob(name, seed): make_play_summary(reward)
        for name, each in rewards.items()
        for seed, reward in enumerate(each)
    }
    earned = summarize(WhatifResults(plan, {}, {}, results))[1]
    assert " distinct (0.600, not clearly less) and ts (0.510) are allowed too. " in earned
    assert earned.endswith(
        "To evaluate other policies from its log, run distinct: noisy-or does not record all "
        "propensities."
    )


def change_result(whatif_results: WhatifResults, job: WhatifJob, result: object) -> WhatifResults:
    return replace(whatif_results, results={**whatif_results.results, job: result})


@pytest.mark.parametrize(
    ("change", "which", "expected"),
    [
        (
            lambda f: change_result(f, WhatifJob("ts", 0), make_play_summary(0.8)),
            0,
            "Run ts, which keeps the limit in every period: expect a reward of 800",
        ),
        (
            lambda f: change_result(f, WhatifJob("ts", 0), make_play_summary(0.8)),
            1,
            "distinct (0.600, not clearly less) is allowed too.",
        ),
        (
            lambda f: change_result(f, WhatifJob("distinct", 0), make_play_summary(0.6, bad=1)),
            0,
            "Do not go live like this: no policy kept the limit in every period. distinct, which "
            "violated a limit in 1 of 2 periods, would earn a reward of 600",
        ),
        (
            lambda f: change_result(f, WhatifJob("distinct", 0), make_play_summary(0.675)),
            1,
            "10% less than the best",
        ),
        (
            lambda f: change_result(f, WhatifJob("panels"), Reference(0.6)),
            1,
            "as much as the best mixture",
        ),
        (
            lambda f: change_result(f, WhatifJob("tangent", 0), make_play_summary(0.7)),
            1,
            "0.700 in the last tenth: 40% more than the best distribution of independent draws",
        ),
        (
            lambda f: change_result(f, WhatifJob("tangent", 0), make_play_summary(0.7)),
            2,
            "cost 0.125 per request, 20% of what independent draws earn",
        ),
        (
            lambda f: change_result(f, WhatifJob("distinct", 0), make_play_summary(0.6, bad=1)),
            3,
            "distinct (0.600; it violated a limit in 1 of 2 periods), ts (0.800; it violated",
        ),
        (
            lambda f: change_result(
                change_result(f, WhatifJob("distinct", 0), make_play_summary(0.6, periods=0)),
                WhatifJob("ts", 0),
                make_play_summary(0.8, periods=0, outside=0.1),
            ),
            0,
            "No period of 100 requests is complete, so no limit can be judged: use --rounds 100",
        ),
        (
            lambda f: change_result(f, WhatifJob("set"), Reference(0.3)),
            1,
            "100% more than the best fixed panel under the limits (0.300)",
        ),
        (
            lambda f: change_result(
                f, WhatifJob("set"), Reference(0.7, asked=np.array([0.0, 1.0]), kept=True)
            ),
            1,
            " If you trust these values, always asking bob earns more.",
        ),
        (
            lambda f: change_result(f, WhatifJob("equal"), Reference(0.4, kept=False)),
            3,
            "and asking all experts equally often (0.400).",
        ),
        (
            lambda f: change_result(f, WhatifJob("panels"), Reference(0.9375)),
            2,
            "the limits cost nothing",
        ),
        (
            lambda f: change_result(f, WhatifJob("panels"), "none"),
            2,
            "The cost of the limits is unknown.",
        ),
    ],
)
def test_the_sentences_change_with_the_numbers(
    whatif_results: WhatifResults,
    change: Callable[[WhatifResults], WhatifResults],
    which: int,
    expected: str,
) -> None:
    assert expected not in " ".join(summarize(whatif_results)[which:])
    assert expected in " ".join(summarize(change(whatif_results))[which:])


def test_every_policy_has_a_sentence() -> None:
    assert all(summarize_policy(name) for name in POLICIES)


GUARDED, UNGUARDED = (
    "its guard keeps the limits at the end",
    "its guard is off, so it does not guarantee",
)
RECORDS_SOME, RECORDS_NONE = "it records propensities in", "it records no propensities"


@pytest.mark.parametrize(
    ("spec", "expected", "unexpected"),
    [
        ("distinct", [GUARDED], [UNGUARDED, RECORDS_SOME, RECORDS_NONE]),
        ("distinct:guard=false", [UNGUARDED], [GUARDED]),
        ("noisy-or", [GUARDED, RECORDS_NONE], [UNGUARDED, RECORDS_SOME]),
        ("noisy-or:guard=false", [UNGUARDED, RECORDS_NONE], [GUARDED]),
        (
            "noisy-or:explore=0.02,guard=false",
            [UNGUARDED, f"{RECORDS_SOME} 2% of its rounds"],
            [GUARDED, RECORDS_NONE],
        ),
        ("noisy-or:explore=1", [GUARDED, f"{RECORDS_SOME} every round"], [RECORDS_NONE]),
        ("tangent", [GUARDED], [UNGUARDED]),
        ("tangent:guard=false", [UNGUARDED], [GUARDED]),
        ("strict", [], [GUARDED, UNGUARDED]),
        ("strict:guard=true", [GUARDED], [UNGUARDED]),
        ("ts", [], [GUARDED, UNGUARDED]),
    ],
)
def test_the_description_of_a_policy_follows_from_its_settings(
    spec: str, expected: list[str], unexpected: list[str], whatif_results: WhatifResults
) -> None:
    text = describe_policy(spec, resolve_policy(spec, whatif_results.plan.problem))
    assert text.startswith(f"{spec} {summarize_policy(spec.partition(':')[0])}")
    assert all(part in text for part in expected)
    assert not any(part in text for part in unexpected)


def test_the_description_of_auto_is_that_of_the_selected_policy(
    whatif_results: WhatifResults,
) -> None:
    for spec, expected in {"auto": GUARDED, "auto:propensities=false": RECORDS_NONE}.items():
        assert expected in describe_policy(spec, resolve_policy(spec, whatif_results.plan.problem))


def test_the_gain_at_a_kink_uses_the_price_of_loosening(whatif_results: WhatifResults) -> None:
    """Any number between the two sides is a price there."""
    limit = whatif_results.plan.problem.limits[0]
    price = ShadowPrice(limit, 0.4, 1e-3, 0.6, 0.2, "kink")
    assert whatif_results.gain(price) == pytest.approx(0.2 * 0.01 * 1.5)
    assert whatif_results.gain(replace(price, verdict="agrees")) == pytest.approx(0.4 * 0.01 * 1.5)


def test_if_only_other_policies_break_limits_one_to_try_is_named(
    whatif_results: WhatifResults,
) -> None:
    results = {WhatifJob("ts", 0): make_play_summary(0.8, bad=2, outside=0.1)}
    assert summarize(replace(whatif_results, results=results))[0].startswith(
        "Do not go live like this: no policy kept the limit in every period (try distinct). ts,"
    )


def test_the_first_sentence_names_the_limits_that_were_violated(
    whatif_results: WhatifResults,
) -> None:
    (limit,) = whatif_results.plan.file.limits
    means = np.array([[1.5], [limit.limit.bound * (1.0 - limit.limit.sign)]])
    broken = make_play_summary(0.6, bad=1, outside=0.1)._replace(by_period=means)
    results = {WhatifJob("distinct", 0): broken}
    first = summarize(replace(whatif_results, results=results))[0]
    assert first.startswith("Do not go live like this: no policy kept the limit in every period. ")
    assert f'distinct, which violated "{limit.words}" in 1 of 2 periods' in first


def test_without_results_the_summary_says_so(whatif_results: WhatifResults) -> None:
    refused = replace(whatif_results, results={}, refused={"distinct": "why"})
    assert summarize(refused)[1:] == ["distinct did not run: why"]
    assert summarize(replace(whatif_results, results={})) == [
        "No policy ran, so there are no results."
    ]


def test_rewards_of_0_can_be_compared() -> None:
    assert compare_rewards(0.0, 0.0) == "as much as"
    assert compare_rewards(0.5, 0.0) == "more than"
    assert compare_rewards(-0.5, -1.0) == "more than"
