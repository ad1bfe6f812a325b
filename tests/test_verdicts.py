"""The verdict on a limit: its words, and that every surface shows the same."""

import random
from pathlib import Path
from typing import Any

import pytest

from bylot import Problem, Router, at_least, at_most, share
from bylot.errors import BudgetSpent
from bylot.limits.book import ALL_AVAILABLE
from bylot.limits.keys import TenantsSummary, TenantUse
from bylot.limits.report import LimitInPeriod
from bylot.limits.status import LimitStatus
from bylot.limits.verdict import (
    BROKEN_VERDICTS,
    PeriodPosition,
    judge_average,
    judge_period,
    judge_tenants,
)
from bylot.problem import Limit

USD, JUNIOR = at_most("usd", 1.0), at_least("junior", 0.3)


def judge(
    limit: Limit, mean: float | None, reach: bool = True, short: bool = False, lost: bool = False
) -> tuple[str, str]:
    """The verdict in a period that ends with decision 5,000."""
    now = LimitInPeriod(mean, limit.bound, reach, short, lost, missed=0)
    verdict = judge_period(limit, PeriodPosition(now, mean, end=5_000, final=False))
    assert verdict.kept == reach
    return verdict.name, verdict.sentence


def test_the_sentence_of_a_limit_in_a_period() -> None:
    assert judge(USD, 0.9) == (
        "on track",
        "inside now (0.9 of at most 1), inside at decision 5,000",
    )
    over = "over now (1.24 of at most 1)"
    assert judge(USD, 1.24) == ("recovering", f"{over}, back inside by decision 5,000")
    under = "under now (0.21 of at least 0.3), back inside by decision 5,000"
    assert judge(JUNIOR, 0.21) == ("recovering", under)
    for short, lost, condition in (
        (False, True, "whichever experts are available"),
        (True, True, "whichever experts are available"),
        (True, False, "unless experts become available again"),
        (False, False, "unless other panels compensate"),
    ):
        sentence = f"{over}, outside at decision 5,000 {condition}"
        assert judge(USD, 1.24, False, short, lost) == ("will be missed", sentence)
    inside = (
        "inside now (0.9 of at most 1), outside at decision 5,000 whichever experts are available"
    )
    assert judge(USD, 0.9, reach=False, lost=True) == ("will be missed", inside)
    begun = "no decisions in this period yet, inside at decision 5,000"
    assert judge(USD, None) == ("on track", begun)


def test_an_average_that_is_outside_never_looks_like_its_bound() -> None:
    assert judge(USD, 1.0 + 1e-12)[0] == "on track"  # rounding
    assert judge(USD, 1.00001)[1].startswith("over now (1.00001 of at most 1)")
    assert judge(JUNIOR, 0.3 - 1e-8)[1].startswith("under now (0.29999999 of at least 0.3)")
    sixth = judge_average(at_most("usd", 1 / 6), 1 / 6 + 1e-8)
    assert sixth.sentence == "average 0.166666676666667 of at most 0.166666666666667"


def make_router(policy: str = "distinct", horizon: int | None = None) -> Router:
    costs = {"usd": [1.0, 1.0, 4.0, 4.0]}
    problem = Problem(list("abcd"), costs, [at_most("usd", 2.0)], draws=1, period=100)
    return Router(problem, policy, seed=1, horizon=horizon)


def play(router: Router, rounds: int, *available: str) -> float:
    """Make decisions, and return what they cost."""
    return sum(router.decide(available=available or None).spend["usd"] for _ in range(rounds))


def edit_bound(router: Router, bound: float) -> LimitStatus:
    router.change(router.problem.replace(limits=[at_most("usd", bound)]))
    return router.status().limits[0]


def test_after_an_edit_the_period_shows_what_was_measured() -> None:
    router = make_router()
    play(router, 100)
    spent = play(router, 10, "c", "d") + play(router, 10)
    before = router.status().limits[0]
    assert before.current is not None
    assert before.current.mean == before.counted == pytest.approx(spent / 20)
    assert before.verdict == "recovering"
    edited = edit_bound(router, 2.5)
    assert edited.current is not None
    assert edited.current.mean == pytest.approx(spent / 20)
    # Beyond the old bound, spread over the decisions of the period: still to be made up for.
    assert edited.counted == pytest.approx(2.5 + (spent - 2.0 * 20) / 20)
    counted = f"over now (counts as {edited.counted:.4g} of at most 2.5, measured {spent / 20:.4g})"
    assert edited.sentence == (
        f"{counted}, back inside by decision 200; decisions before the edit count by the bound "
        "they had"
    )
    spent += play(router, 1)
    again = edit_bound(router, 2.4)  # a second edit of the same period
    assert again.current is not None
    assert again.current.mean == pytest.approx(spent / 21)


def test_an_edit_at_the_first_decisions_of_a_period_shows_no_other_period() -> None:
    router = make_router()
    play(router, 100)
    edited = edit_bound(router, 2.5)
    assert edited.current is not None
    assert (edited.current.mean, edited.verdict) == (None, "on track")
    spent = play(router, 3)
    now = router.status().limits[0].current
    assert now is not None
    assert now.mean == pytest.approx(spent / 3)
    play(router, 97)
    assert router.status().limits[0].sentence.startswith("no decisions in this period yet")


def test_what_was_measured_survives_saving(tmp_path: Path) -> None:
    router = make_router()
    play(router, 150)
    edited = edit_bound(router, 2.5)
    router.save(f"{tmp_path}/router.bylot")
    assert Router.load(f"{tmp_path}/router.bylot").status().limits[0] == edited


def test_a_horizon_is_judged_at_its_end() -> None:
    kept, missed = make_router(horizon=50), make_router(horizon=50)
    play(kept, 50)
    play(missed, 50, "c", "d")
    for router, verdict in ((kept, "kept"), (missed, "missed")):
        usd = router.status().limits[0]
        assert (usd.verdict, usd.kept) == (verdict, verdict == "kept")
        assert usd.sentence == "judged at decision 50, the end of the horizon"


def test_cancelling_a_decision_of_a_horizon_that_is_over_leaves_its_verdict() -> None:
    router = make_router(horizon=50)
    play(router, 49, "c", "d")
    made = router.core.decide(None, ALL_AVAILABLE)
    router.core.cancel(49, made.spend, made.expected)
    usd = router.status().limits[0]
    assert str(usd) == "usd missed: judged at decision 50, the end of the horizon"


def test_a_limit_is_not_promised_while_another_is_out_of_reach() -> None:
    """The guard minimises the sum of what all limits are missed by, so it may miss both."""
    costs = {"usd": [1.0, 3.0], "junior": [0.0, 1.0]}
    limits = [at_most("usd", 2.5), at_least("junior", 0.3)]
    router = Router(Problem(["a", "b"], costs, limits, draws=1, period=100), "distinct")
    router.decide(available=["b"])
    router.decide()
    assert [one.sentence[-22:] for one in router.status().limits] == ["inside at decision 100"] * 2
    router.core.settle(None, {"usd": 500.0})
    usd, junior = router.status().limits
    assert (usd.verdict, junior.verdict) == ("will be missed", "on track")
    end = "at decision 100 unless the guard misses it too, for a limit that is out of reach"
    assert junior.sentence.endswith(end)


def test_nothing_is_outside_before_the_first_decision() -> None:
    problem = Problem(["a", "b"], {"x": [1.0, 0.0]}, [at_least("x", 0.4)], draws=1)
    for policy in ("random", "distinct"):
        status = Router(problem, policy).status()
        assert status.kept
        assert [one.verdict for one in status.limits] == ["not started"]


def test_a_policy_without_periods_promises_nothing() -> None:
    router = make_router("random")
    play(router, 20, "c", "d")
    usd = router.status().limits[0]
    assert (usd.verdict, usd.sentence, usd.kept) == ("outside", "average 4 of at most 2", False)
    play(router, 80, "a", "b")
    usd = router.status().limits[0]
    assert (usd.verdict, usd.sentence, usd.kept) == ("inside", "average 1.6 of at most 2", True)
    assert BROKEN_VERDICTS == ("will be missed", "missed", "outside")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_measured_average_is_that_of_the_decisions_of_the_period(seed: int) -> None:
    """Against a list, with settled costs, cancelled decisions and edits at random.

    Cancelling a decision of an earlier period leaves the period as it is.
    """
    router, rng, compared = make_router(), random.Random(seed), 0
    core, costs, first, more = router.core, dict[int, float](), 0, 0.0
    made = list[tuple[int, float, float]]()
    for _ in range(600):
        action = rng.random()
        if action < 0.05:
            core.settle(None, {"usd": (extra := rng.uniform(-0.5, 0.5))})
            more += extra
        elif action < 0.12 and made:
            t, spend, expected = made.pop(rng.randrange(len(made)))
            core.cancel(t, {"usd": spend}, {"usd": expected})
            if t >= first:
                del costs[t]
        elif action < 0.18:
            bound = rng.choice([1.8, 2.0, 2.5])
            edit_bound(router, bound)
        else:
            decision = core.decide(None, ALL_AVAILABLE)
            spend, expected = decision.spend["usd"], decision.expected["usd"]
            costs[core.t - 1] = spend
            made = [*made, (core.t - 1, spend, expected)][-20:]
            period = router.status().period
            if period is not None and period.played == 0:
                costs, first, more = {}, core.t, 0.0
        now = router.status().limits[0].current
        assert now is not None
        if costs and now.mean is not None:
            assert now.mean == pytest.approx((sum(costs.values()) + more) / len(costs))
            compared += 1
    assert compared > 450


def judge_summary(
    limit: Limit, *top: tuple[str, float, float], missed: int = 0, **counts: int
) -> tuple[str, str]:
    """The verdict on tenants that have used these amounts of their bounds."""
    used = tuple(TenantUse(*one) for one in top)
    total = sum(one.spent for one in used)
    numbers: dict[str, Any] = {"active": len(used), "spent": 0, "outside": 0} | counts
    summary = TenantsSummary(per="month", starts=0, ends=1, total=total, top=used, **numbers)
    verdict = judge_tenants(limit, summary, missed)
    return verdict.name, verdict.sentence


def test_the_sentence_of_a_budget_for_each_tenant() -> None:
    limit = at_most("usd", 20, per="month", scope="tenant")
    assert judge_summary(limit) == ("not started", "no tenant has sent a request this month yet")
    acme, bolt = ("acme", 19.5, 20.0), ("bolt", 4.0, 20.0)
    assert judge_summary(limit, acme) == (
        "on track",
        "1 tenant this month; 19.5 spent in all; all have something left; "
        "most used by acme: 19.5 of at most 20",
    )
    assert judge_summary(limit, acme, bolt, spent=1, missed=2) == (
        "on track",
        "2 tenants this month; 23.5 spent in all; 1 has nothing left; "
        "most used by acme: 19.5 of at most 20; 2 earlier windows of tenants ended outside",
    )
    name, sentence = judge_summary(limit, ("x" * 200, 21.0, 20.0), spent=1, outside=1)
    assert name == "missed"
    assert "1 has spent more than its bound: calls cost more than was reserved" in sentence
    assert f"most used by {'x' * 39}…: 21 of at most 20" in sentence
    assert "'a\\nb': 4 of" in judge_summary(limit, ("a\nb", 4.0, 20.0))[1], "on one line"


def test_the_sentence_of_a_share_for_each_tenant() -> None:
    limit = at_least(share("junior", ["ann"]), 0.3, per="month", scope="tenant")
    low, high = ("acme", 0.2, 0.3), ("bolt", 0.5, 0.3)
    assert judge_summary(limit, high) == (
        "on track",
        "1 tenant this month; all are inside now; lowest average: bolt, 0.5 of at least 0.3",
    )
    assert judge_summary(limit, low, high, outside=1) == (
        "recovering",
        "2 tenants this month; 1 is outside now, which the guard corrects; "
        "lowest average: acme, 0.2 of at least 0.3",
    )


def test_limits_on_the_same_cost_have_different_names_in_a_status() -> None:
    now = 1_772_442_000.0
    icu = {"context": ["icu"]}
    problem = Problem(
        experts=["small", "large"],
        costs={"usd": [0.1, 1.0]},
        limits=[
            at_most("usd", 0.8),
            at_most("usd", 0.6, where=icu),
            at_most("usd", 40, per="day"),
            at_most("usd", 1.0, per="day", where=icu),
            at_most("usd", 5, per="day", scope="tenant"),
            at_most("usd", 4, per="day", scope="tenant", where=icu),
            at_least(share("big", ["large"]), 0.05, per="day", scope="tenant"),
        ],
        draws=1,
    )
    router = Router(problem, seed=1, clock=lambda: now)
    subjects = [
        "usd",
        "usd in icu",
        "usd per day",
        "usd per day in icu",
        "usd per day for each tenant",
        "usd per day for each tenant in icu",
        "big per day for each tenant",
    ]
    assert [one.subject for one in router.status().limits] == subjects, "before the first decision"
    refused = set[str | None]()
    for n in range(300):
        now += 60
        try:
            router.decide(context=["icu", "ward"][n % 2], tenant=["acme", "bolt"][n % 3 == 0])
        except BudgetSpent as error:
            refused.add(error.field)
    status = router.status()
    assert [one.subject for one in status.limits] == subjects
    of_group, of_tenants = status.limits[3], status.limits[4]
    assert of_group.verdict == "spent", "also if the last request was of another context"
    assert of_group.window is not None
    assert of_group.window.to_come < 0.7 * status.limits[2].window.to_come  # type: ignore[union-attr]
    assert of_tenants.tenants is not None
    first = of_tenants.tenants.top[0]
    assert of_tenants.slack == pytest.approx(first.bound - first.spent)
    assert refused == {None, "tenant"}
    shares = status.limits[6].tenants
    assert shares is not None
    assert all(0 <= one.spent <= 1 for one in shares.top), "averages"
    for subject in subjects:
        assert f"\n{subject} " in str(status)
