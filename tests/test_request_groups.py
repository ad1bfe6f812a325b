"""Limits on some requests: `where` names the contexts whose requests count."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bylot
from bylot.errors import BudgetSpent, InfeasibleLimits, PolicyError, ProblemError
from bylot.problem.calendar import Calendar, find_window
from logged_aggregate import LoggedRouter, decode_decision
from test_calendar_limits import COSTS, EXPERTS, PARTNER, ZONE
from test_tenants import START, Clock

ICU = {"context": ["icu"]}


def make_problem(*limits: bylot.Limit, **more: Any) -> bylot.Problem:
    return bylot.Problem(EXPERTS, COSTS, limits, draws=2, **more)


def play(router: bylot.Router, clock: Clock, rounds: int, step_us: int = 200_000_000) -> Any:
    """Decide in four contexts, a fifth of the requests in icu; what each cost, and had partners."""
    rng, made = np.random.default_rng(1), []
    for n in range(rounds):
        clock.at = START + n * step_us
        context = str(rng.choice(["icu", "er", "ward", "lab"], p=[0.2, 0.3, 0.3, 0.2]))
        try:
            decision = router.decide(context=context)
        except BudgetSpent:
            continue
        router.reward(decision.id, 0.3 + 0.3 * ("e5" in decision.subset) + 0.1 * rng.random())
        partners = len({"e2", "e4"} & set(decision.subset))
        made.append((clock.at, context, decision.spend["usd"], partners))
    return made


def test_an_average_of_some_contexts_is_kept_and_others_are_free() -> None:
    limits = [bylot.at_most("usd", 2.0, where=ICU), bylot.at_least(PARTNER, 0.5, where=ICU)]
    clock = Clock()
    router = bylot.Router(make_problem(*limits, period=500), clock=clock)
    made = play(router, clock, 3_000)
    icu = np.array([(cost, partners) for _, context, cost, partners in made if context == "icu"])
    others = np.array([(cost, part) for _, context, cost, part in made if context != "icu"])
    for start in range(0, len(icu) - 500, 500):
        cost, partners = icu[start : start + 500].mean(axis=0)
        assert cost <= 2.0 + 1e-9
        assert partners >= 0.5 - 1e-9
    assert icu[500:, 0].mean() > 1.9, "it is used"
    assert others[500:, 0].mean() > 4.0, "the limit does not count these"
    status = router.status()
    assert [one.where for one in status.limits] == [("icu",), ("icu",)]
    assert "in icu" in str(status.limits[0])
    period = icu[500 * (len(icu) // 500) :, 0]
    assert status.limits[0].mean == pytest.approx(period.mean())


def test_a_budget_of_some_contexts_is_kept_beside_one_of_all() -> None:
    limits = [
        bylot.at_most("usd", 1_400.0, per="day", zone=ZONE),
        bylot.at_most("usd", 150.0, per="day", zone=ZONE, where=ICU),
    ]
    clock = Clock()
    router = bylot.Router(make_problem(*limits), clock=clock)
    made = play(router, clock, 6_000)
    spent = defaultdict[tuple[bool, int], float](float)
    for at, context, cost, _ in made:
        spent[context == "icu", find_window(Calendar("day", ZONE), at).start] += cost
    icu = [amount for (in_icu, _), amount in sorted(spent.items()) if in_icu]
    rest = [amount for (in_icu, _), amount in sorted(spent.items()) if not in_icu]
    assert max(icu) <= 150.0 * (1 + 1e-12)
    assert max(np.add(icu, rest)) <= 1_400.0 * (1 + 1e-12)
    assert np.mean(icu[4:-1]) > 0.95 * 150.0
    assert np.mean(np.add(icu, rest)[4:-1]) > 0.95 * 1_400.0


def test_limits_of_different_contexts_cannot_conflict() -> None:
    low = bylot.at_most(PARTNER, 0.2, where={"context": ["er"]})
    high = bylot.at_least(PARTNER, 1.5, where=ICU)
    problem = make_problem(low, high)
    with pytest.raises(InfeasibleLimits, match="partner"):
        make_problem(bylot.at_most(PARTNER, 0.2), high)
    with pytest.raises(InfeasibleLimits):
        make_problem(low, bylot.at_least(PARTNER, 1.5, where={"context": ["icu", "er"]}))
    router = bylot.Router(problem)
    partners = defaultdict[str, list[int]](list)
    for n in range(600):
        context = ("icu", "er", "lab")[n % 3]
        decision = router.decide(context=context)
        router.reward(decision.id, 0.2 + 0.5 * ("e5" in decision.subset))
        partners[context].append(len({"e2", "e4"} & set(decision.subset)))
    assert np.mean(partners["icu"]) >= 1.5 - 1e-9
    assert np.mean(partners["er"]) <= 0.2 + 1e-9


def test_bad_groups_get_a_clear_error() -> None:
    for where, message in (
        ({"context": []}, "at least one context"),
        ({"tenant": ["a"]}, "context"),
        ({"context": ["icu", "icu"]}, "twice"),
        ({"context": [7]}, "names of contexts"),
        (["icu"], None),
        ("icu", "expected"),
    ):
        if message is None:
            assert bylot.at_most("usd", 2, where=where).where == ("icu",)  # type: ignore[arg-type]
            continue
        with pytest.raises(ProblemError, match=message):
            bylot.at_most("usd", 2, where=where)  # type: ignore[arg-type]
    problem = make_problem(bylot.at_most("usd", 3.0, where=ICU))
    for policy in ("distinct:guard=false", "noisy-or:guard=false", "omd", "random"):
        with pytest.raises(PolicyError, match="of some contexts"):
            bylot.Router(problem, policy=policy)
    plain = bylot.Router(make_problem(bylot.at_most("usd", 3.0)), policy="omd")
    with pytest.raises(PolicyError, match="some contexts"):
        plain.change(problem)


@pytest.mark.parametrize(
    "policy", ["distinct", "tangent", "noisy-or:explore=0.5", "omd:guard=true", "random:guard=true"]
)
def test_every_policy_with_a_guard_keeps_limits_of_some_contexts(policy: str) -> None:
    limits = [bylot.at_most("usd", 2.0, where=ICU), bylot.at_least(PARTNER, 0.5, where=ICU)]
    clock = Clock()
    router = bylot.Router(make_problem(bylot.at_most("usd", 8.0), period=200), policy, clock=clock)
    router.change(make_problem(*limits, period=200))
    made = play(router, clock, 2_500)
    icu = np.array([(cost, partners) for _, context, cost, partners in made if context == "icu"])
    others = np.array([cost for _, context, cost, _ in made if context != "icu"])
    periods = icu[: 200 * (len(icu) // 200)].reshape(-1, 200, 2).mean(axis=1)
    assert len(periods) >= 2
    assert (periods[:, 0] <= 2.0 + 1e-9).all()
    assert (periods[:, 1] >= 0.5 - 1e-9).all()
    if not policy.startswith("omd"):  # whose dual variables count requests of all contexts
        assert others.mean() > icu[:, 0].mean() + 0.5, "the limit does not count these"


def test_a_saved_router_and_a_log_go_on_with_groups(tmp_path: Path) -> None:
    problem = make_problem(
        bylot.at_most("usd", 3.0, where=ICU),
        bylot.at_most("usd", 900.0, per="day", where={"context": ["er", "lab"]}),
    )
    clock, path = Clock(), tmp_path / "router.bylot"
    router = bylot.Router(problem, clock=clock)
    for n in range(80):
        decision = router.decide(context=("icu", "er", "lab", "ward")[n % 4])
        if n % 3:
            router.reward(decision.id, 0.5, spend={"usd": 1.5})
    router.save(path)
    again = bylot.Router.load(path)
    again.clock = clock
    for n in range(40):
        assert router.decide(context="icu" if n % 2 else "new") == again.decide(
            context="icu" if n % 2 else "new"
        )
    router.reward("d3", 0.2, spend={"usd": 9.0})
    again.reward("d3", 0.2, spend={"usd": 9.0})
    assert router.status() == again.status()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_groups_agree_with_what_was_paid(seed: int) -> None:
    """Random decisions, cancellations, reports and edits in several contexts; the log replays."""
    groups = [["icu"], ["icu", "er"], ["lab"]]
    edits = [
        [
            bylot.at_most("usd", bound, per="day", zone=ZONE, where={"context": one})
            for one in groups
        ]
        for bound in (60.0, 90.0)
    ]
    rng, at = np.random.default_rng(seed), START
    logged = LoggedRouter(make_problem(*edits[0]), "auto", max_contexts=10)
    paid: dict[int, tuple[str, int, float]] = {}
    for _ in range(200):
        at += int(rng.choice([60, 1_800, 20_000, 100_000], p=[0.6, 0.3, 0.08, 0.02])) * 1_000_000
        what = rng.random()
        if what < 0.9:
            context = str(rng.choice(["icu", "er", "lab", "ward"]))
            try:
                seq = logged.decide(at, context=context, defer=what < 0.1)
            except BudgetSpent:
                continue
            made = decode_decision(logged.log[seq])
            paid[seq] = context, at, made.spend["usd"]
            if what < 0.1 and rng.random() < 0.7:
                logged.append(logged.aggregate.cancel(at, seq))
                del paid[seq]
            elif what > 0.1:
                cost = float(made.spend["usd"] * rng.uniform(0.2, 1.0))
                logged.reward(seq, 0.5, at, spend={"usd": cost})
                paid[seq] = context, at, cost
        else:
            logged.edit(make_problem(*edits[int(rng.integers(2))]), at)
        for one, group in zip(logged.aggregate.status(at).limits, groups, strict=True):
            if one.window is not None:
                start = one.window.starts
                exact = sum(
                    cost
                    for context, when, cost in paid.values()
                    if context in group and when >= start
                )
                assert one.window.spent == pytest.approx(exact, abs=1e-6)
    logged.reopen()
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()
