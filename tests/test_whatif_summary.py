"""The sentences of a what-if report follow the numbers: other numbers, other sentences."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bylot.harness import PlaySummary
from bylot.optima import ShadowPrice
from bylot.policies import POLICIES, resolve_policy, summarize_policy
from bylot.problem_files import read
from bylot.scenario import synthetic_scenario
from bylot.whatif import Reference, WhatifPlan, WhatifResults
from bylot.whatif.plan import WhatifJob
from bylot.whatif.report import describe_policy
from bylot.whatif.summary import compare_rewards, summarize_results

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


def test_the_summary_starts_with_the_best_policy_within_the_limits(
    whatif_results: WhatifResults,
) -> None:
    earned, kept, cost = summarize_results(whatif_results)
    assert earned == (
        "distinct earns 0.600 of 1 per request over 200 requests (mean of 1 seed): 20.0% less than "
        "the best mixture of full panels under the limits (0.750) and 50.0% more than asking all "
        "experts equally often (0.400)."
    )
    assert kept == (
        "distinct kept the limit in every period; ts violated a limit in 2 of 2 periods."
    )
    assert cost == (
        "Together the limits cost 0.188 per request, 20.0% of what panels of different experts "
        "earn without them."
    )


def change_result(whatif_results: WhatifResults, job: WhatifJob, result: object) -> WhatifResults:
    return replace(whatif_results, results={**whatif_results.results, job: result})


@pytest.mark.parametrize(
    ("change", "which", "expected"),
    [
        (
            lambda f: change_result(f, WhatifJob("ts", 0), make_play_summary(0.8)),
            0,
            "ts earns 0.800",
        ),
        (
            lambda f: change_result(f, WhatifJob("ts", 0), make_play_summary(0.8)),
            1,
            "distinct and ts kept the limit in",
        ),
        (
            lambda f: change_result(f, WhatifJob("distinct", 0), make_play_summary(0.6, bad=1)),
            1,
            "No policy kept the limit in every period; distinct violated a limit in 1 of 2",
        ),
        (
            lambda f: change_result(f, WhatifJob("distinct", 0), make_play_summary(0.675)),
            0,
            "10.0% less than the best",
        ),
        (
            lambda f: change_result(f, WhatifJob("panels"), Reference(0.6)),
            0,
            "as much as the best mixture",
        ),
        (
            lambda f: change_result(f, WhatifJob("tangent", 0), make_play_summary(0.7)),
            0,
            "(mean of 1 seed): 40.0% more than the best distribution of independent draws",
        ),
        (
            lambda f: change_result(f, WhatifJob("tangent", 0), make_play_summary(0.7)),
            2,
            "cost 0.125 per request, 20.0% of what independent draws earn",
        ),
        (
            lambda f: change_result(f, WhatifJob("distinct", 0), make_play_summary(0.6, bad=1)),
            0,
            "ts, which violates limits, earns",
        ),
        (
            lambda f: change_result(
                change_result(f, WhatifJob("distinct", 0), make_play_summary(0.6, periods=0)),
                WhatifJob("ts", 0),
                make_play_summary(0.8, periods=0, outside=0.1),
            ),
            1,
            "No period of 100 requests is complete, so no limit can be judged.",
        ),
        (
            lambda f: change_result(f, WhatifJob("set"), Reference(0.3)),
            0,
            "100% more than the best fixed panel under the limits (0.300)",
        ),
        (
            lambda f: change_result(f, WhatifJob("equal"), Reference(0.4, kept=False)),
            0,
            "equally often (0.400, which violates limits)",
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
    assert expected not in summarize_results(whatif_results)[which]
    assert expected in summarize_results(change(whatif_results))[which]


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


def test_without_results_the_summary_says_so(whatif_results: WhatifResults) -> None:
    assert summarize_results(replace(whatif_results, results={})) == [
        "No policy ran, so there are no results."
    ]


def test_rewards_of_0_can_be_compared() -> None:
    assert compare_rewards(0.0, 0.0) == "as much as"
    assert compare_rewards(0.5, 0.0) == "more than"
    assert compare_rewards(-0.5, -1.0) == "more than"
