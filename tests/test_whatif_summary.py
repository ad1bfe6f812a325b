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


def played(reward: float, bad: int = 0, away: float = 0.0, periods: int = 2) -> PlaySummary:
    """A play of two periods."""
    t = np.array([200])
    each, asked = np.full((periods, 1), 1.5), np.array([0.5, 0.5])
    return PlaySummary(
        *(reward, reward, np.array([1.5]), away, periods, bad, each),
        *(0, asked, t, t / 400, t[None]),
    )


@pytest.fixture
def found(tmp_path: Path) -> WhatifResults:
    """Two policies, one of which breaks the limit and earns more."""
    (tmp_path / "pool.yaml").write_text(POOL)
    file = read(tmp_path / "pool.yaml")
    results: dict[WhatifJob, object] = {
        WhatifJob("distinct", 0): played(0.6),
        WhatifJob("ts", 0): played(0.8, bad=2, away=0.1),
        WhatifJob("panels"): Reference(0.75, 0.75),
        WhatifJob("exact"): Reference(0.5, 0.5),
        WhatifJob("equal"): Reference(0.4),
        WhatifJob("set"): Reference(0.9, kept=False),
        WhatifJob("free-panels"): Reference(0.9375, 0.9375, kept=False),
        WhatifJob("free-draws"): Reference(0.625, 0.625, kept=False),
    }
    plan = WhatifPlan(file, synthetic_scenario(file), ["distinct", "ts", "tangent"], [0], 200)
    return WhatifResults(plan, {}, {}, results)


def test_the_first_is_about_the_best_of_those_that_keep_the_limits(found: WhatifResults) -> None:
    earned, kept, cost = summarize_results(found)
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


def changed(found: WhatifResults, job: WhatifJob, result: object) -> WhatifResults:
    return replace(found, results={**found.results, job: result})


@pytest.mark.parametrize(
    ("change", "which", "said"),
    [
        (lambda f: changed(f, WhatifJob("ts", 0), played(0.8)), 0, "ts earns 0.800"),
        (
            lambda f: changed(f, WhatifJob("ts", 0), played(0.8)),
            1,
            "distinct and ts kept the limit in",
        ),
        (
            lambda f: changed(f, WhatifJob("distinct", 0), played(0.6, bad=1)),
            1,
            "No policy kept the limit in every period; distinct violated a limit in 1 of 2",
        ),
        (
            lambda f: changed(f, WhatifJob("distinct", 0), played(0.675)),
            0,
            "10.0% less than the best",
        ),
        (
            lambda f: changed(f, WhatifJob("panels"), Reference(0.6)),
            0,
            "as much as the best mixture",
        ),
        (
            lambda f: changed(f, WhatifJob("tangent", 0), played(0.7)),
            0,
            "(mean of 1 seed): 40.0% more than the best distribution of independent draws",
        ),
        (
            lambda f: changed(f, WhatifJob("tangent", 0), played(0.7)),
            2,
            "cost 0.125 per request, 20.0% of what independent draws earn",
        ),
        (
            lambda f: changed(f, WhatifJob("distinct", 0), played(0.6, bad=1)),
            0,
            "ts, which violates limits, earns",
        ),
        (
            lambda f: changed(
                changed(f, WhatifJob("distinct", 0), played(0.6, periods=0)),
                WhatifJob("ts", 0),
                played(0.8, periods=0, away=0.1),
            ),
            1,
            "No period of 100 requests is complete, so no limit can be judged.",
        ),
        (
            lambda f: changed(f, WhatifJob("set"), Reference(0.3)),
            0,
            "100% more than the best fixed panel under the limits (0.300)",
        ),
        (
            lambda f: changed(f, WhatifJob("equal"), Reference(0.4, kept=False)),
            0,
            "equally often (0.400, which violates limits)",
        ),
        (
            lambda f: changed(f, WhatifJob("panels"), Reference(0.9375)),
            2,
            "the limits cost nothing",
        ),
        (
            lambda f: changed(f, WhatifJob("panels"), "none"),
            2,
            "The cost of the limits is unknown.",
        ),
    ],
)
def test_other_numbers_make_other_sentences(
    found: WhatifResults, change: Callable[[WhatifResults], WhatifResults], which: int, said: str
) -> None:
    assert said not in summarize_results(found)[which]
    assert said in summarize_results(change(found))[which]


def test_every_policy_has_a_sentence() -> None:
    assert all(summarize_policy(name) for name in POLICIES)


HOLD, OFF = "its guard keeps the limits at the end", "its guard is off, so it does not guarantee"
SOME, NONE = "it records propensities in", "it records no propensities"


@pytest.mark.parametrize(
    ("words", "said", "unsaid"),
    [
        ("distinct", [HOLD], [OFF, SOME, NONE]),
        ("distinct:guard=false", [OFF], [HOLD]),
        ("noisy-or", [HOLD, NONE], [OFF, SOME]),
        ("noisy-or:guard=false", [OFF, NONE], [HOLD]),
        ("noisy-or:explore=0.02,guard=false", [OFF, f"{SOME} 2% of its rounds"], [HOLD, NONE]),
        ("noisy-or:explore=1", [HOLD, f"{SOME} every round"], [NONE]),
        ("tangent", [HOLD], [OFF]),
        ("tangent:guard=false", [OFF], [HOLD]),
        ("strict", [], [HOLD, OFF]),
        ("strict:guard=true", [HOLD], [OFF]),
        ("ts", [], [HOLD, OFF]),
    ],
)
def test_what_a_policy_promises_follows_from_its_settings(
    words: str, said: list[str], unsaid: list[str], found: WhatifResults
) -> None:
    text = describe_policy(words, resolve_policy(words, found.plan.problem))
    assert text.startswith(f"{words} {summarize_policy(words.partition(':')[0])}")
    assert all(part in text for part in said)
    assert not any(part in text for part in unsaid)


def test_what_auto_took_promises_what_its_own_settings_do(found: WhatifResults) -> None:
    for words, promised in {"auto": HOLD, "auto:propensities=false": NONE}.items():
        assert promised in describe_policy(words, resolve_policy(words, found.plan.problem))


def test_a_kink_is_told_by_what_more_room_is_worth(found: WhatifResults) -> None:
    """Any number between the two sides is a price there."""
    limit = found.plan.problem.limits[0]
    price = ShadowPrice(limit, 0.4, 1e-3, 0.6, 0.2, "kink")
    assert found.gain(price) == pytest.approx(0.2 * 0.01 * 1.5)
    assert found.gain(replace(price, verdict="agrees")) == pytest.approx(0.4 * 0.01 * 1.5)


def test_nothing_to_tell_is_told(found: WhatifResults) -> None:
    assert summarize_results(replace(found, results={})) == [
        "No policy ran, so there are no results."
    ]


def test_a_reward_of_nothing_is_no_reason_to_fail() -> None:
    assert compare_rewards(0.0, 0.0) == "as much as"
    assert compare_rewards(0.5, 0.0) == "more than"
    assert compare_rewards(-0.5, -1.0) == "more than"
