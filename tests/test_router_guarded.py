"""Routers that guard their limits: what they tell, through outages, reloads and late rewards."""

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from bylot import Decision, Problem, Router
from bylot.errors import PolicyError
from bylot.numerics.jit import Floats
from bylot.policies import POLICIES, Distinct, Tangent
from bylot.policies.budget import compute_min_panel_costs
from bylot.policies.constraint_rows import compute_row_units
from bylot.problem import at_least, at_most, share
from bylot.router import persistence
from bylot.router.core import iterate_arrays
from small import five
from test_router import memory

GUARDED = ["distinct", "tangent", "noisy-or"]
OTHERS = [name for name in POLICIES if name not in GUARDED]
NAMES = five().experts
WORTH = dict(zip(NAMES, (0.9, 0.7, 0.4, 0.3, 0.1), strict=True))


def pool(period: int | None) -> Problem:
    """The five, whose limits are to hold at the end of every so many decisions."""
    small = five()
    return Problem(small.experts, dict(small.costs), small.limits, draws=2, period=period)


def costs(decisions: list[Decision], problem: Problem) -> Floats:
    """(n, d) what panels cost under each limit, from the names of their members."""
    inside = np.array([[name in one.subset for name in NAMES] for one in decisions], float)
    return np.asarray(inside @ problem.rows.T)


def inside(spend: Floats, problem: Problem) -> bool:
    """Do the averages of these rounds keep all limits?"""
    slack = problem.signs * (spend.mean(axis=0) - problem.bounds)
    return bool((slack >= -1e-12 * problem.bounds).all())


def rewarded(router: Router, rounds: int, available: list[str] | None = None) -> list[Decision]:
    """Decisions, each with its prompt reward."""
    decisions = []
    for _ in range(rounds):
        decision = router.decide(available=available)
        router.reward(decision.id, max(WORTH[name] for name in decision.subset))
        decisions.append(decision)
    return decisions


# What a status tells of the current period.


@pytest.mark.parametrize("policy", GUARDED)
def test_the_status_tells_where_the_period_stands(policy: str) -> None:
    router, problem = Router(pool(100), policy, seed=3), pool(100)
    decisions = rewarded(router, 230)
    status = router.status()
    assert status.period is not None
    assert (status.period.length, status.period.played) == (100, 30)
    assert status.period.replaced == sum(one.replaced for one in decisions)
    current = [one.current for one in status.limits if one.current is not None]
    means = costs(decisions[200:], problem).mean(axis=0)
    assert_allclose([one.mean or 0.0 for one in current], means, rtol=1e-12)
    in_force = -problem.signs * compute_row_units(problem) * router.core.state.bounds
    assert_allclose([one.in_force for one in current], in_force, rtol=1e-15)
    whole = costs(decisions, problem).mean(axis=0)
    assert_allclose([one.mean for one in status.limits], whole, rtol=1e-12)
    assert not np.allclose(means, whole)  # the two averages are not the same thing


@pytest.mark.parametrize("policy", GUARDED)
def test_limits_are_within_reach_exactly_as_long_as_decisions_are_feasible(policy: str) -> None:
    router = Router(pool(60), policy, seed=1)
    told = set()
    for t in range(59):  # after the last of a period the status speaks of the next
        dear = ["ann", "bob"] if 10 <= t < 50 else None
        [decision] = rewarded(router, 1, dear)
        limits = router.status().limits
        reach = all(one.current is not None and one.current.within_reach for one in limits)
        assert decision.feasible == reach
        told.add(reach)
    assert told == {True, False}


@pytest.mark.parametrize("policy", GUARDED)
def test_a_new_period_has_no_average_yet(policy: str) -> None:
    router = Router(pool(50), policy)
    rewarded(router, 50)
    status = router.status()
    assert [one.current and one.current.mean for one in status.limits] == [None] * 3
    assert "a new period of 50 begins" in str(status)


@pytest.mark.parametrize("policy", OTHERS)
def test_a_policy_without_a_guard_tells_of_no_period(policy: str) -> None:
    router = Router(five(), policy)
    rewarded(router, 30)
    status = router.status()
    assert status.period is None
    assert all(one.current is None for one in status.limits)
    assert "guard" not in str(status)
    assert "this period" not in str(status)


@pytest.mark.parametrize("policy", [Distinct(guard=False), Tangent(guard=False)], ids=str)
def test_a_guard_that_is_off_promises_nothing(policy: Distinct | Tangent) -> None:
    router = Router(five(), policy)
    rewarded(router, 30)
    assert router.status().period is None


@pytest.mark.parametrize("policy", GUARDED)
def test_the_status_reads_well_in_a_terminal(policy: str) -> None:
    router = Router(pool(200), policy, seed=4)
    rewarded(router, 30)
    text = str(router.status())
    assert "replaced by the guard; round 30 of a period of 200" in text
    words = {
        "distinct": "inclusion probabilities now: ",
        "tangent": "draw probabilities now: ",
        "noisy-or": "drawn so far: ",
    }
    assert words[policy] in text
    rewarded(router, 160, ["ann", "bob"])
    lines = str(router.status()).splitlines()
    assert (
        "out of reach for the 10 decisions left, whichever experts are available: usd"
        in " ".join(lines)
    )
    assert [line.split()[-3:] for line in lines if line.startswith("usd <=")] == [
        ["out", "of", "reach"]
    ]
    assert max(map(len, lines)) <= 100


def test_the_chances_of_a_set_are_those_to_be_in_it() -> None:
    router = Router(five(), "distinct", seed=4)
    rewarded(router, 200)
    chances = np.array(list(router.status().q.values()))
    assert chances.sum() == pytest.approx(2)
    usd = float(chances @ five().costs["usd"])
    assert usd == pytest.approx(router.decide().expected["usd"], abs=0.2)


def test_the_price_is_what_a_looser_bound_would_buy() -> None:
    worth = {"cardio": 0.7, "renal": 0.5, "neuro": 0.6, "general": 0.2}
    usd = {"usd": [3.0, 2.0, 2.5, 0.5], "server": [1.0, 1.0, 0.0, 0.0]}
    limits = [at_most("usd", 3.0), at_most("server", 1.2)]
    router = Router(Problem(list(worth), usd, limits, draws=2), "distinct")
    for _ in range(5_000):
        decision = router.decide()
        router.reward(decision.id, max(worth[name] for name in decision.subset))
    prices = [one.price for one in router.status().limits]
    # The general practitioner and one other, who gives 0.1 more for half a dollar more.
    assert prices[0] == pytest.approx(0.2, abs=0.05)
    assert prices[1] == 0.0


# Out of the reach of a policy.


def test_the_remedy_for_full_panels_that_cannot_keep_a_budget_is_one() -> None:
    trio = Problem(["a", "b", "c"], {"usd": [2.0, 2.0, 3.0]}, [at_most("usd", 3.0)], draws=2)
    with pytest.raises(PolicyError, match="use 'tangent', which may ask fewer"):
        Router(trio, "distinct")
    assert Router(trio, "tangent").decide().feasible


def test_the_remedy_for_a_short_period_and_for_limits_without_room_is_named() -> None:
    costs, limits = {"a": [1, 0], "b": [0, 1]}, [at_least("a", 0.3), at_least("b", 0.3)]
    with pytest.raises(PolicyError, match="at least 3 as the problem's period or the horizon"):
        Router(Problem(["ann", "bob"], costs, limits, draws=1, period=2))
    Router(Problem(["ann", "bob"], costs, limits, draws=1, period=3))
    tight = [at_least("a", 0.5), at_least("b", 0.5)]
    with pytest.raises(PolicyError, match="loosen the limits, or use 'omd'"):
        Router(Problem(["ann", "bob"], costs, tight, draws=1))
    Router(Problem(["ann", "bob"], costs, tight, draws=1), "omd")


# Outages.

OUTAGES = {
    "the cheap ones": ["ann", "bob"],
    "all but one": ["ann"],
    "a required group": ["ann", "bob", "dan"],
}


@pytest.mark.parametrize("policy", GUARDED)
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_long_outage_is_told_and_the_next_period_is_well_again(policy: str, outage: str) -> None:
    router, problem, up = Router(pool(80), policy, seed=1), pool(80), OUTAGES[outage]
    decisions = rewarded(router, 10)
    decisions += rewarded(router, 60, up)
    assert not decisions[-1].feasible
    assert "out of reach for the 10 decisions left" in str(router.status())
    decisions += rewarded(router, 10, up)
    assert not inside(costs(decisions, problem), problem)  # it was no false alarm
    for _ in range(3):
        after = rewarded(router, 80)
        assert all(one.feasible for one in after)
        assert inside(costs(after, problem), problem)


@pytest.mark.parametrize("policy", GUARDED)
def test_what_cannot_be_kept_any_more_is_told_apart_from_what_others_could_keep(
    policy: str,
) -> None:
    """Of 100 decisions at 2 at most, the cheap ones at 1 each: lost as soon as what was spent and
    1 for each of those left are more than 200.
    """
    costs = {"usd": [1.0, 1.0, 4.0, 4.0]}
    cheap = Problem(list("abcd"), costs, [at_most("usd", 2.0)], draws=1, period=100)
    router, spent, told = Router(cheap, policy, seed=1), 0.0, set()
    for t in range(99):
        decision = router.decide(available=["c", "d"] if t < 60 else None)
        router.reward(decision.id, 0.5)
        spent += decision.spend["usd"]
        [usd] = router.status().limits
        assert usd.current is not None
        assert usd.current.lost == (spent + 99 - t > 200)
        assert ("whichever experts are available: usd" in str(router.status())) == usd.current.lost
        assert ("unless experts become available again: usd" in str(router.status())) == (
            usd.way_out == "unless experts become available again"
        )
        if t >= 60:
            assert usd.way_out != "unless experts become available again"  # as all are there
        told.add(usd.way_out)
    assert told == {"unless experts become available again", "whichever experts are available"}


def test_what_the_rota_would_miss_other_panels_may_still_keep() -> None:
    costs = {"usd": [1.0, 1.0, 4.0, 4.0]}
    limits = [at_most("usd", 2.0), at_least(share("new", ["c", "d"]), 0.1)]
    cheap = Problem(list("abcd"), costs, limits, draws=1, period=100)
    router = Router(cheap, "distinct", seed=1)
    spent = sum(router.decide().spend["usd"] for _ in range(50))
    assert router.status().limits[0].way_out is None
    router.core.settle({"usd": 149.0 - spent})  # it was more: 51 are left for 50 decisions
    said = "out of reach for the 50 decisions left, unless panels other than the fallback"
    assert said in str(router.status())
    router.core.settle({"usd": 2.0})
    assert "out of reach for the 50 decisions left, whichever experts are available: usd" in str(
        router.status()
    )


def test_a_panel_that_need_not_be_full_may_cost_less() -> None:
    rows = np.array([[3.0, 1.0, 2.0], [-3.0, 1.0, -2.0]])
    bound = POLICIES["distinct"].bind(pool(80), None).guard._replace(A=rows)
    assert compute_min_panel_costs(bound, 2).tolist() == [3.0, -5.0]
    assert compute_min_panel_costs(bound._replace(full=False), 2).tolist() == [1.0, -5.0]


def test_in_a_short_outage_the_others_make_up_for_it() -> None:
    for policy in GUARDED:
        router, problem = Router(pool(80), policy, seed=1), pool(80)
        decisions = rewarded(router, 10)
        decisions += rewarded(router, 10, ["ann", "bob"])
        assert not decisions[-1].feasible  # if it stayed at that
        assert "unless experts become available again" in str(router.status())
        decisions += rewarded(router, 60)
        assert all(one.feasible for one in decisions[20:])
        assert inside(costs(decisions, problem), problem)


def after_an_outage(policy: str, seed: int) -> tuple[bool, bool]:
    """Was a period kept in which most were down for long, and could it have been after that, with
    the cost of two members to spare?
    """
    rng, rounds, rows = np.random.default_rng(seed), 200, np.zeros(2)
    cost, names = rng.random((2, 6)).round(2), [f"e{i}" for i in range(6)]
    bounds = 2 * cost.mean(axis=1) * (0.95, 1.0)
    limits = [at_most("usd", float(bounds[0])), at_least("hours", float(bounds[1]))]
    costs = {"usd": cost[0], "hours": cost[1]}
    router = Router(Problem(names, costs, limits, draws=2, period=rounds), policy, seed=seed)
    down = int(rng.integers(20, 150))
    up = [names[i] for i in rng.permutation(6)[: rng.integers(1, 4)]]
    for t in range(rounds):
        decision = router.decide(available=up if t < down else None)
        router.reward(decision.id, float(rng.random()))
        rows += (decision.spend["usd"], decision.spend["hours"])
        if t == down - 1:
            left = rounds * bounds - rows
    way_back = linprog(
        np.zeros(6),
        A_ub=(rounds - down) * np.array([cost[0], -cost[1]]),
        b_ub=(left[0] - 2, -left[1] - 2),
        A_eq=np.ones((1, 6)),
        b_eq=[2],
        bounds=[(0, 1)] * 6,
    )
    return not router.core.state.budget.missed.any(), bool(way_back.status == 0)


@pytest.mark.filterwarnings("ignore::bylot.errors.OutOfReachWarning")
@pytest.mark.parametrize("policy", GUARDED)
def test_what_can_be_made_up_for_after_an_outage_is(policy: str) -> None:
    ends = [after_an_outage(policy, seed) for seed in range(1, 41)]
    assert all(kept for kept, way_back in ends if way_back)
    assert sum(not kept for kept, _ in ends) >= 3  # as some outages are too long


def test_a_minimum_that_was_reached_leaves_the_budget_to_others() -> None:
    """Those up can keep the budget only if they stop asking the dear one, whose share is full."""
    costs = {"usd": [1.0, 1.0, 1.0, 8.0, 1.0]}
    limits = [at_most("usd", 2.3), at_least(share("new", ["d", "e"]), 0.1)]
    problem = Problem(list("abcde"), costs, limits, draws=2, period=400)
    router, spent = Router(problem, seed=3), []
    for t in range(400):
        decision = router.decide(available=None if t < 150 else list("abcd"))
        router.reward(decision.id, 0.9 if "e" in decision.subset else 0.3)
        spent.append((decision.spend["usd"], decision.spend["new"]))
    usd, new = np.mean(spent, axis=0)
    assert usd <= 2.3
    assert new >= 0.1


def test_periods_that_ended_outside_are_counted() -> None:
    router = Router(pool(80), seed=1)
    rewarded(router, 80, ["ann", "bob"])
    rewarded(router, 160)
    missed = [one.current.missed for one in router.status().limits if one.current is not None]
    assert missed == [1, 1, 0]  # too dear, and no junior; the least that is to be spent was
    assert "periods that ended outside a limit: usd in 1, junior in 1" in str(router.status())


def test_a_shallow_copy_goes_its_own_way() -> None:
    router = Router(five(), seed=1)
    router.decide()
    other = copy.copy(router)
    for name in range(40):
        other.decide(f"n{name}")
    for name in range(40):
        chance = router.decide(f"n{name}").propensity
        assert chance is not None
        assert 0 < chance <= 1


def masks() -> st.SearchStrategy[list[str] | None]:
    """Who is up: mostly everybody, else any that leave somebody."""
    some = st.sets(st.sampled_from(NAMES), min_size=1).map(sorted)
    return st.none() | some


@pytest.mark.parametrize("policy", GUARDED)
@given(
    events=st.lists(
        st.tuples(masks(), st.sampled_from(["prompt", "late", "never"]), st.floats(0, 1)),
        min_size=20,
        max_size=90,
    ),
    seed=st.integers(0, 1_000),
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_whatever_is_down_and_whenever_rewards_come(
    policy: str, events: list[tuple[list[str] | None, str, float]], seed: int
) -> None:
    router, problem = Router(pool(20), policy, seed=seed), pool(20)
    decisions: list[Decision] = []
    late: list[tuple[Decision, float]] = []
    for available, when, value in events:
        decision = router.decide(f"kind {len(decisions) % 2}", available)
        decisions.append(decision)
        assert set(decision.subset) <= set(available or NAMES)
        most = min(2, len(available or NAMES))
        assert len(decision.subset) == most or (policy == "tangent" and len(decision.subset) < most)
        assert 0 < (decision.propensity or 1.0) <= 1
        assert (decision.propensity is None) == (policy == "noisy-or")
        if when == "prompt":
            router.reward(decision.id, value)
            for one, earned in reversed(late):
                router.reward(one.id, earned)
            late = []
        elif when == "late":
            late.append((decision, value))
    assert all(np.isfinite(leaf).all() for leaf in iterate_arrays(router.core.state))
    str(router.status())
    for start in range(0, len(decisions) - 19, 20):
        period, rounds = decisions[start : start + 20], events[start : start + 20]
        if all(one.feasible for one in period):
            assert inside(costs(period, problem), problem)
        if all(available is None for available, _, _ in rounds):
            assert all(one.feasible for one in period)


# Stop, reload, continue.


def driven(router: Router, start: int, stop: int) -> None:
    """Three contexts, outages, rewards four decisions late, a third of them never, one refused."""
    for t in range(start, stop):
        up = ["ann", "bob", "dan"] if t % 50 > 38 else ["eve", "bob"] if t % 7 == 0 else None
        router.decide(f"kind {t % 3}", up)
        if t >= 4 and t % 3 != 1:
            router.reward(f"d{t - 4}", ((t * 37) % 101) / 100)


@pytest.mark.parametrize("policy", GUARDED)
@pytest.mark.parametrize("cut", [1, 2, 29, 30, 31, 45, 60, 119])
def test_kill_reload_continue_equals_one_run(policy: str, cut: int, tmp_path: Path) -> None:
    whole, first = (Router(pool(60), policy, seed=5) for _ in range(2))
    driven(whole, 0, 150)
    driven(first, 0, cut)
    first.save(tmp_path / "router.json")
    first.decide()  # lost in the crash
    second = Router.load(tmp_path / "router.json")
    assert any(not isinstance(held, float) for held in second.open.values())
    driven(second, cut, 150)
    assert memory(second) == memory(whole)
    assert saved(second) == saved(whole)
    assert str(second.status()) == str(whole.status())


def saved(router: Router) -> dict[str, Any]:
    """The content of its saved file."""
    return persistence.router_to_data(router.core, router.memory, router.open)


def test_what_follows_from_theta_is_not_saved(tmp_path: Path) -> None:
    router = Router(five(), "distinct")
    driven(router, 0, 50)
    router.save(tmp_path / "router.json")
    data = json.loads((tmp_path / "router.json").read_text())
    assert set(data["state"]) == set(router.core.state._fields) - set(Distinct.derived)
    assert set(Distinct.derived) < set(router.core.state._fields)
    again = Router.load(tmp_path / "router.json")
    for name in Distinct.derived:
        assert (getattr(again.core.state, name) == getattr(router.core.state, name)).all()


# Rewards in any order.


def everything(router: Router) -> Iterator[tuple[str, Floats]]:
    """All arrays that learning can move."""
    state = router.core.state
    for name, value in [*state._asdict().items(), *state.gradient._asdict().items()]:
        if not isinstance(value, tuple):
            yield name, np.asarray(value, float)


def after(router: Router, rewards: list[tuple[str, float]]) -> Router:
    """A copy that gets these rewards in this order, and then moves."""
    twin = copy.deepcopy(router)
    for id, value in rewards:
        twin.reward(id, value)
    for _ in range(4):
        twin.decide()
    return twin


def ready(policy: Any, seed: int) -> tuple[Router, list[Decision]]:
    """A router that has a baseline, and a batch of decisions without rewards."""
    router = Router(five(), policy, seed=seed)
    rewarded(router, 12)
    return router, [router.decide() for _ in range(4)]


BATCHED = [Distinct(batch=4), Tangent(batch=4)]


@pytest.mark.parametrize("policy", BATCHED, ids=str)
@given(
    values=st.lists(st.none() | st.floats(0, 1), min_size=4, max_size=4),
    seed=st.integers(0, 100),
)
@settings(deadline=None, derandomize=True, max_examples=15)
def test_the_order_of_a_batch_s_rewards_does_not_matter(
    policy: Distinct | Tangent, values: list[float | None], seed: int
) -> None:
    router, decisions = ready(policy, seed)
    came = [(one.id, v) for one, v in zip(decisions, values, strict=True) if v is not None]
    first = dict(everything(after(router, came)))
    for order in itertools.permutations(came):
        for name, array in everything(after(router, list(order))):
            scale = np.abs(first[name]).max(initial=0.0)
            assert_allclose(array, first[name], rtol=1e-12, atol=1e-12 * scale, err_msg=name)


@pytest.mark.parametrize("policy", BATCHED, ids=str)
def test_rewards_given_to_the_wrong_decisions_would_be_noticed(policy: Distinct | Tangent) -> None:
    router, decisions = ready(policy, seed=1)
    a, b = next(
        pair for pair in itertools.combinations(decisions, 2) if pair[0].subset != pair[1].subset
    )
    right, wrong = (after(router, [(a.id, x), (b.id, 1 - x)]) for x in (0.9, 0.1))
    assert np.abs(right.core.state.theta - wrong.core.state.theta).max() > 1e-3
