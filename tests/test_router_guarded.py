"""Routers that guard their limits: status, outages, saving and late rewards."""

import copy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog

from bylot import Decision, Problem, Router
from bylot.errors import PolicyError
from bylot.limits.pacing import compute_cheapest_panel
from bylot.limits.rows import compute_row_units
from bylot.numerics.jit import Floats
from bylot.policies import POLICIES, Distinct, Tangent
from bylot.problem import at_least, at_most, share
from bylot.router import saved_file
from bylot.router.core import iterate_arrays
from limit_tables import get_limits, iterate_numbers
from sample_problem import make_five_expert_problem
from test_router import snapshot_router

GUARDED = ["distinct", "tangent", "noisy-or"]
OTHERS = [name for name in POLICIES if name not in GUARDED]
NAMES = make_five_expert_problem().experts
WORTH = dict(zip(NAMES, (0.9, 0.7, 0.4, 0.3, 0.1), strict=True))


def make_problem_with_period(period: int | None) -> Problem:
    """Five experts whose limits must hold at the end of every period."""
    problem = make_five_expert_problem()
    return Problem(problem.experts, dict(problem.costs), problem.limits, draws=2, period=period)


def compute_costs(decisions: list[Decision], problem: Problem) -> Floats:
    """(n, d) costs of panels under each limit, from the names of their members."""
    membership = np.array([[name in one.subset for name in NAMES] for one in decisions], float)
    return np.asarray(membership @ problem.rows.T)


def keeps_limits(spend: Floats, problem: Problem) -> bool:
    """Whether the averages of these rounds keep all limits."""
    slack = problem.signs * (spend.mean(axis=0) - problem.bounds)
    return bool((slack >= -1e-12 * problem.bounds).all())


def play_rewarded(
    router: Router, rounds: int, available: list[str] | None = None
) -> list[Decision]:
    """Make decisions, each with an immediate reward."""
    decisions = []
    for _ in range(rounds):
        decision = router.decide(available=available)
        router.reward(decision.id, max(WORTH[name] for name in decision.subset))
        decisions.append(decision)
    return decisions


# The status of the current period.


@pytest.mark.parametrize("policy", GUARDED)
def test_the_status_shows_the_current_period(policy: str) -> None:
    router, problem = (
        Router(make_problem_with_period(100), policy, seed=3),
        make_problem_with_period(100),
    )
    decisions = play_rewarded(router, 230)
    status = router.status()
    assert status.period is not None
    assert (status.period.length, status.period.played) == (100, 30)
    assert status.period.replaced == sum(one.replaced for one in decisions)
    current = [one.current for one in status.limits if one.current is not None]
    means = compute_costs(decisions[200:], problem).mean(axis=0)
    assert_allclose([one.mean or 0.0 for one in current], means, rtol=1e-12)
    in_force = -problem.signs * compute_row_units(problem) * get_limits(router.core).state.bounds
    assert_allclose([one.in_force for one in current], in_force, rtol=1e-15)
    long_run = compute_costs(decisions, problem).mean(axis=0)
    assert_allclose([one.mean for one in status.limits], long_run, rtol=1e-12)
    assert not np.allclose(means, long_run)  # the two averages differ


@pytest.mark.parametrize("policy", GUARDED)
def test_limits_are_within_reach_exactly_while_decisions_are_feasible(policy: str) -> None:
    router = Router(make_problem_with_period(60), policy, seed=1)
    seen = set()
    for t in range(59):  # after the last round of a period the status is about the next
        expensive = ["ann", "bob"] if 10 <= t < 50 else None
        [decision] = play_rewarded(router, 1, expensive)
        limits = router.status().limits
        reach = all(one.current is not None and one.current.within_reach for one in limits)
        assert decision.feasible == reach
        seen.add(reach)
    assert seen == {True, False}


@pytest.mark.parametrize("policy", GUARDED)
def test_a_new_period_has_no_average(policy: str) -> None:
    router = Router(make_problem_with_period(50), policy)
    play_rewarded(router, 50)
    status = router.status()
    assert [one.current and one.current.mean for one in status.limits] == [None] * 3
    assert "a new period of 50 begins" in str(status)


@pytest.mark.parametrize("policy", OTHERS)
def test_a_policy_without_a_guard_has_no_period(policy: str) -> None:
    router = Router(make_five_expert_problem(), policy)
    play_rewarded(router, 30)
    status = router.status()
    assert status.period is None
    assert all(one.current is None for one in status.limits)
    assert "guard" not in str(status)
    assert "this period" not in str(status)


@pytest.mark.parametrize("policy", [Distinct(guard=False), Tangent(guard=False)], ids=str)
def test_a_disabled_guard_has_no_period(policy: Distinct | Tangent) -> None:
    router = Router(make_five_expert_problem(), policy)
    play_rewarded(router, 30)
    assert router.status().period is None


@pytest.mark.parametrize("policy", GUARDED)
def test_the_status_prints_the_guard_and_limits_out_of_reach(policy: str) -> None:
    router = Router(make_problem_with_period(200), policy, seed=4)
    play_rewarded(router, 30)
    text = str(router.status())
    assert "replaced by the guard; round 30 of a period of 200" in text
    titles = {
        "distinct": "inclusion probabilities now: ",
        "tangent": "draw probabilities now: ",
        "noisy-or": "drawn so far: ",
    }
    assert titles[policy] in text
    play_rewarded(router, 160, ["ann", "bob"])
    lines = str(router.status()).splitlines()
    row, sentence = (line for line in lines if line.startswith(("usd <=", "usd will")))
    assert row.endswith("will be missed")
    assert sentence.startswith("usd will be missed: over now (")
    endings = ("whichever experts are available", "unless experts become available again")
    assert sentence.endswith(tuple(f", outside at decision 200 {one}" for one in endings))
    assert max(len(line) for line in lines if "will be missed: " not in line) <= 100


def test_the_status_of_distinct_shows_inclusion_probabilities() -> None:
    router = Router(make_five_expert_problem(), "distinct", seed=4)
    play_rewarded(router, 200)
    inclusion = np.array(list(router.status().q.values()))
    assert inclusion.sum() == pytest.approx(2)
    usd = float(inclusion @ make_five_expert_problem().costs["usd"])
    assert usd == pytest.approx(router.decide().expected["usd"], abs=0.2)


def test_the_price_is_the_gain_of_a_looser_bound() -> None:
    worth = {"cardio": 0.7, "renal": 0.5, "neuro": 0.6, "general": 0.2}
    usd = {"usd": [3.0, 2.0, 2.5, 0.5], "server": [1.0, 1.0, 0.0, 0.0]}
    limits = [at_most("usd", 3.0), at_most("server", 1.2)]
    router = Router(Problem(list(worth), usd, limits, draws=2), "distinct")
    for _ in range(5_000):
        decision = router.decide()
        router.reward(decision.id, max(worth[name] for name in decision.subset))
    prices = [one.price for one in router.status().limits]
    # The general practitioner and one other, who earns 0.1 more for half a dollar more.
    assert prices[0] == pytest.approx(0.2, abs=0.05)
    assert prices[1] == 0.0


# Limits out of reach of a policy.


def test_the_remedy_for_infeasible_full_panels_works() -> None:
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
def test_a_long_outage_is_reported_and_the_next_period_keeps_the_limits(
    policy: str, outage: str
) -> None:
    router, problem, available = (
        Router(make_problem_with_period(80), policy, seed=1),
        make_problem_with_period(80),
        OUTAGES[outage],
    )
    decisions = play_rewarded(router, 10)
    decisions += play_rewarded(router, 60, available)
    assert not decisions[-1].feasible
    assert ", outside at decision 80 " in str(router.status())
    decisions += play_rewarded(router, 10, available)
    assert not keeps_limits(compute_costs(decisions, problem), problem)  # it was not a false alarm
    for _ in range(3):
        later = play_rewarded(router, 80)
        assert all(one.feasible for one in later)
        assert keeps_limits(compute_costs(later, problem), problem)


@pytest.mark.parametrize("policy", GUARDED)
def test_the_status_distinguishes_lost_limits_from_those_that_other_experts_could_keep(
    policy: str,
) -> None:
    """100 decisions may cost 2 on average, and the cheapest panel costs 1.

    The limit is lost when the spend plus 1 for each remaining decision exceeds 200.
    """
    costs = {"usd": [1.0, 1.0, 4.0, 4.0]}
    problem = Problem(list("abcd"), costs, [at_most("usd", 2.0)], draws=1, period=100)
    router, spent, seen = Router(problem, policy, seed=1), 0.0, set()
    for t in range(99):
        decision = router.decide(available=["c", "d"] if t < 60 else None)
        router.reward(decision.id, 0.5)
        spent += decision.spend["usd"]
        [usd] = router.status().limits
        assert usd.current is not None
        assert usd.current.lost == (spent + 99 - t > 200)
        assert usd.verdict == "will be missed"
        condition = usd.sentence.partition("outside at decision 100 ")[2]
        assert (condition == "whichever experts are available") == usd.current.lost
        if t >= 60:
            assert condition != "unless experts become available again"  # as all are available
        seen.add(condition)
    assert seen == {"unless experts become available again", "whichever experts are available"}


def test_other_panels_can_keep_limits_that_the_fallback_schedule_misses() -> None:
    costs = {"usd": [1.0, 1.0, 4.0, 4.0]}
    limits = [at_most("usd", 2.0), at_least(share("new", ["c", "d"]), 0.1)]
    problem = Problem(list("abcd"), costs, limits, draws=1, period=100)
    router = Router(problem, "distinct", seed=1)
    spent = sum(router.decide().spend["usd"] for _ in range(50))
    assert router.status().limits[0].kept
    router.core.settle(None, {"usd": 149.0 - spent})  # a correction: 51 are left for 50 decisions
    usd = router.status().limits[0]
    expected = (
        "over now (2.98 of at most 2), outside at decision 100 unless other panels compensate"
    )
    assert (usd.verdict, usd.sentence) == ("will be missed", expected)
    router.core.settle(None, {"usd": 2.0})
    assert router.status().limits[0].sentence.endswith("whichever experts are available")


def test_the_minimum_cost_of_a_panel_depends_on_the_fewest_members_it_may_have() -> None:
    rows = np.array([[3.0, 1.0, 2.0], [-3.0, 1.0, -2.0]])
    for fewest, draws, least in [
        (2, 2, [3, -5]),
        (1, 2, [1, -5]),
        (1, 3, [1, -5]),
        (2, 3, [3, -5]),
    ]:
        assert compute_cheapest_panel(rows, fewest, draws).tolist() == least
    assert compute_cheapest_panel(rows, 3, 3).tolist() == [6.0, -4.0]


def test_a_limit_that_no_panel_can_keep_at_learned_costs_is_lost() -> None:
    problem = Problem(["a", "b", "c"], {"usd": [1, 1, 2]}, [at_most("usd", 3)], draws=2, period=200)
    router, real = Router(problem, "distinct", seed=1), {"a": 1.8, "b": 1.8, "c": 3.6}
    for _ in range(150):
        decision = router.decide()
        spend = {"usd": {name: real[name] for name in decision.subset}}
        router.reward(decision.id, 0.5, spend=spend)
    usd = router.status().limits[0]
    assert usd.current is not None
    assert usd.current.lost


def test_after_a_short_outage_the_period_keeps_its_limits() -> None:
    for policy in GUARDED:
        router, problem = (
            Router(make_problem_with_period(80), policy, seed=1),
            make_problem_with_period(80),
        )
        decisions = play_rewarded(router, 10)
        decisions += play_rewarded(router, 10, ["ann", "bob"])
        assert not decisions[-1].feasible  # if the outage continued
        assert "unless experts become available again" in str(router.status())
        decisions += play_rewarded(router, 60)
        assert all(one.feasible for one in decisions[20:])
        assert keeps_limits(compute_costs(decisions, problem), problem)


def play_after_outage(policy: str, seed: int) -> tuple[bool, bool]:
    """Whether a period with a long outage kept its limits, and whether that was still possible.

    Possible means feasible after the outage, with the cost of two members to spare.
    """
    rng, rounds, rows = np.random.default_rng(seed), 200, np.zeros(2)
    cost, names = rng.random((2, 6)).round(2), [f"e{i}" for i in range(6)]
    bounds = 2 * cost.mean(axis=1) * (0.95, 1.0)
    limits = [at_most("usd", float(bounds[0])), at_least("hours", float(bounds[1]))]
    costs = {"usd": cost[0], "hours": cost[1]}
    router = Router(Problem(names, costs, limits, draws=2, period=rounds), policy, seed=seed)
    outage_rounds = int(rng.integers(20, 150))
    available = [names[i] for i in rng.permutation(6)[: rng.integers(1, 4)]]
    for t in range(rounds):
        decision = router.decide(available=available if t < outage_rounds else None)
        router.reward(decision.id, float(rng.random()))
        rows += (decision.spend["usd"], decision.spend["hours"])
        if t == outage_rounds - 1:
            left = rounds * bounds - rows
    feasible_rest = linprog(
        np.zeros(6),
        A_ub=(rounds - outage_rounds) * np.array([cost[0], -cost[1]]),
        b_ub=(left[0] - 2, -left[1] - 2),
        A_eq=np.ones((1, 6)),
        b_eq=[2],
        bounds=[(0, 1)] * 6,
    )
    missed = get_limits(router.core).state.learned["missed"]
    return not missed.any(), bool(feasible_rest.status == 0)


@pytest.mark.filterwarnings("ignore::bylot.errors.OutOfReachWarning")
@pytest.mark.parametrize("policy", GUARDED)
def test_after_an_outage_the_limits_are_kept_if_possible(policy: str) -> None:
    ends = [play_after_outage(policy, seed) for seed in range(1, 41)]
    assert all(kept for kept, feasible_rest in ends if feasible_rest)
    assert sum(not kept for kept, _ in ends) >= 3  # some outages are too long


def test_a_lower_limit_that_is_reached_no_longer_uses_the_budget() -> None:
    """The available experts keep the budget only without the expensive one, whose share is full."""
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


def test_periods_that_broke_a_limit_are_counted() -> None:
    router = Router(make_problem_with_period(80), seed=1)
    play_rewarded(router, 80, ["ann", "bob"])
    play_rewarded(router, 160)
    missed = [one.current.missed for one in router.status().limits if one.current is not None]
    assert missed == [1, 1, 0]  # too expensive and without juniors; the lower limit of usd holds
    assert "periods that ended outside a limit: usd in 1, junior in 1" in str(router.status())


def test_a_shallow_copy_is_independent() -> None:
    router = Router(make_five_expert_problem(), seed=1)
    router.decide()
    other = copy.copy(router)
    for name in range(40):
        other.decide(f"n{name}")
    for name in range(40):
        propensity = router.decide(f"n{name}").propensity
        assert propensity is not None
        assert 0 < propensity <= 1


def random_availability() -> st.SearchStrategy[list[str] | None]:
    """Available experts: all, or any non-empty subset."""
    some = st.sets(st.sampled_from(NAMES), min_size=1).map(sorted)
    return st.none() | some


@pytest.mark.parametrize("policy", GUARDED)
@given(
    events=st.lists(
        st.tuples(
            random_availability(), st.sampled_from(["prompt", "late", "never"]), st.floats(0, 1)
        ),
        min_size=20,
        max_size=90,
    ),
    seed=st.integers(0, 1_000),
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_any_availability_and_timing_of_rewards_is_handled(
    policy: str, events: list[tuple[list[str] | None, str, float]], seed: int
) -> None:
    router, problem = (
        Router(make_problem_with_period(20), policy, seed=seed),
        make_problem_with_period(20),
    )
    decisions: list[Decision] = []
    late: list[tuple[Decision, float]] = []
    for available, timing, value in events:
        decision = router.decide(f"kind {len(decisions) % 2}", available)
        decisions.append(decision)
        assert set(decision.subset) <= set(available or NAMES)
        most = min(2, len(available or NAMES))
        assert len(decision.subset) == most or (policy == "tangent" and len(decision.subset) < most)
        assert 0 < (decision.propensity or 1.0) <= 1
        assert (decision.propensity is None) == (policy == "noisy-or")
        if timing == "prompt":
            router.reward(decision.id, value)
            for one, value_of in reversed(late):
                router.reward(one.id, value_of)
            late = []
        elif timing == "late":
            late.append((decision, value))
    assert all(np.isfinite(leaf).all() for leaf in iterate_arrays(router.core.state))
    assert all(np.isfinite(leaf).all() for leaf in iterate_numbers(get_limits(router.core)))
    str(router.status())
    for start in range(0, len(decisions) - 19, 20):
        period, rounds = decisions[start : start + 20], events[start : start + 20]
        if all(one.feasible for one in period):
            assert keeps_limits(compute_costs(period, problem), problem)
        if all(available is None for available, _, _ in rounds):
            assert all(one.feasible for one in period)


# Stop, reload, continue.


def play_with_outages(router: Router, start: int, stop: int) -> None:
    """Play three contexts with outages; rewards are four decisions late, a third are missing."""
    for t in range(start, stop):
        available = ["ann", "bob", "dan"] if t % 50 > 38 else ["eve", "bob"] if t % 7 == 0 else None
        router.decide(f"kind {t % 3}", available)
        if t >= 4 and t % 3 != 1:
            router.reward(f"d{t - 4}", ((t * 37) % 101) / 100)


@pytest.mark.parametrize("policy", GUARDED)
@pytest.mark.parametrize("cut", [1, 2, 29, 30, 31, 45, 60, 119])
def test_a_killed_and_reloaded_router_continues_like_one_run(
    policy: str, cut: int, tmp_path: Path
) -> None:
    long_run, first = (Router(make_problem_with_period(60), policy, seed=5) for _ in range(2))
    play_with_outages(long_run, 0, 150)
    play_with_outages(first, 0, cut)
    first.save(tmp_path / "router.bylot")
    first.decide()  # lost in the crash
    second = Router.load(tmp_path / "router.bylot")
    assert len(second.engine.open) > 0
    play_with_outages(second, cut, 150)
    assert snapshot_router(second) == snapshot_router(long_run)
    assert router_data(second) == router_data(long_run)
    assert str(second.status()) == str(long_run.status())


def router_data(router: Router) -> bytes:
    """The content of the saved file of a router."""
    return saved_file.encode_engine(router.engine)


def test_derived_arrays_are_not_saved(tmp_path: Path) -> None:
    router = Router(make_five_expert_problem(), "distinct")
    play_with_outages(router, 0, 50)
    router.save(tmp_path / "router.bylot")
    body = (tmp_path / "router.bylot").read_bytes().partition(b"\n")[2]
    data = msgpack.decode(body)["core"]
    own = set(Distinct.derived)
    assert set(data["state"]) == set(router.core.state._fields) - own
    assert own < set(router.core.state._fields)
    limits = get_limits(router.core)
    derived = {"sets", "mean", "ahead", "quota", "place", "keys", "counts"}
    assert set(data["limits"]) == set(limits.state._fields) - derived
    assert derived < set(limits.state._fields)
    loaded = Router.load(tmp_path / "router.bylot")
    for name in own:
        assert (getattr(loaded.core.state, name) == getattr(router.core.state, name)).all()
    restored = get_limits(loaded.core)
    for name in derived:
        assert_array_equal(getattr(restored.state, name), getattr(limits.state, name))
