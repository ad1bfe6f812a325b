"""The parts that keep limits for any draws: margin, schedule, guard, pacing and max entropy."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bylot import simulate
from bylot.environments import Noisy
from bylot.errors import InfeasibleLimits, PolicyError
from bylot.limits.guard import guard_panel
from bylot.limits.ledger import PANELS_IN_USE
from bylot.limits.pacing import DEFAULT_PACE, fill_paced_bounds
from bylot.limits.panel_replacement import compute_panel_cost
from bylot.limits.records import LimitTables, point_to_limits
from bylot.limits.rows import (
    ConstraintRows,
    find_slater_point,
    make_constraint_rows,
    solve_max_entropy,
)
from bylot.limits.schedule import (
    SCHEDULE_ROUNDS,
    arrange_sets,
    compute_shortest_period,
    make_fallback_schedule,
    round_quotas,
)
from bylot.numerics.jit import Floats, Ints
from bylot.problem import Problem, at_least, at_most
from limit_tables import open_rows
from sample_problem import make_five_expert_problem

ALL = np.empty(0, np.bool_)


@st.composite
def random_problems(draw: st.DrawFn) -> Problem:
    """Pools of a few experts under limits on both sides that can be kept with some room."""
    K = draw(st.integers(2, 7))
    M = draw(st.integers(1, K))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    costs = {"usd": rng.random(K) * 10, "group": (rng.random(K) < 0.5).astype(float)}
    p = rng.dirichlet(np.ones(K)) * M
    list_memberships = np.minimum(p, 1.0)
    room = 1 + draw(st.floats(0.05, 1.0))
    limits = [at_most("usd", float(costs["usd"] @ list_memberships) * room + 0.01)]
    if costs["group"] @ list_memberships > 0.05:
        limits.append(at_least("group", float(costs["group"] @ list_memberships) / room))
    try:
        return Problem([f"e{i}" for i in range(K)], costs, limits, draws=M)
    except InfeasibleLimits:
        return Problem([f"e{i}" for i in range(K)], costs, limits[:1], draws=M)


def count_members(problem: Problem, missing: int) -> tuple[int, int]:
    """The fewest and the most members of a panel that may lack so many."""
    full = min(problem.draws, problem.size)
    return max(1, full - missing), full


@pytest.mark.parametrize("missing", [0, 1, 9])
@given(random_problems())
@settings(deadline=None)
def test_the_quota_keeps_all_limits_tightened_by_the_margin(missing: int, problem: Problem) -> None:
    fewest, full = count_members(problem, missing)
    margin, quota = find_slater_point(problem, fewest)
    A, b = make_constraint_rows(problem)
    assert fewest - 1e-9 <= quota.sum() <= full + 1e-9
    assert ((quota >= 0) & (quota <= 1)).all()
    if margin > 0:
        assert (A @ quota <= b - margin * np.abs(b) + 1e-7).all()


def list_memberships(K: int, sizes: range) -> Floats:
    """The membership vector of every set of one of these sizes."""
    memberships = [members for m in sizes for members in itertools.combinations(range(K), m)]
    return np.array([[i in members for i in range(K)] for members in memberships], float)


@pytest.mark.parametrize("missing", [0, 1, 9])
@given(random_problems())
@settings(max_examples=30, deadline=None)
def test_no_mixture_of_sets_has_a_larger_margin(missing: int, problem: Problem) -> None:
    fewest, full = count_members(problem, missing)
    margin, _ = find_slater_point(problem, fewest)
    A, b = make_constraint_rows(problem)
    memberships = list_memberships(problem.size, range(fewest, full + 1))
    mixtures = (
        np.random.default_rng(0).dirichlet(np.ones(len(memberships)) * 0.3, size=200) @ memberships
    )
    room = ((b - mixtures @ A.T) / np.maximum(np.abs(b), 1e-9)).min(axis=1)
    assert room.max() <= margin + 1e-6


def test_smaller_panels_have_a_margin_where_full_panels_have_none() -> None:
    costs, limits = {"usd": [2.0, 2.0, 2.0]}, [at_most("usd", 3.0)]
    problem = Problem(["a", "b", "c"], costs, limits, draws=2)
    # Infeasible even without a margin: a panel costs four
    assert find_slater_point(problem).margin == 0.0
    margin, quota = find_slater_point(problem, fewest=1)
    assert margin == pytest.approx(1 / 3)
    assert quota.sum() == pytest.approx(1)


def test_the_schedule_has_no_panel_below_the_fewest_members() -> None:
    costs, limits = {"usd": [2.0, 2.0, 2.0, 3.0]}, [at_most("usd", 5.0)]
    problem = Problem(list("abcd"), costs, limits, draws=3)
    margin, quota = find_slater_point(problem, fewest=2)
    assert (margin, quota.sum()) == pytest.approx((0.2, 2.0))
    schedule = make_fallback_schedule(quota, make_constraint_rows(problem).A)
    assert {len(set(members)) for members in schedule.sets.tolist()} == {2}


def test_without_limits_the_margin_is_1() -> None:
    margin, quota = find_slater_point(Problem(["a", "b", "c"], {}, draws=2))
    assert margin == 1.0
    assert quota.sum() == pytest.approx(2)


def test_the_schedule_asks_each_expert_as_often_as_its_quota() -> None:
    quota = np.array([1.0, 0.7, 0.25, 0.05, 0.0])
    schedule = make_fallback_schedule(quota, np.zeros((0, 5)), cycle=200)
    counts = np.bincount(schedule.sets.ravel(), minlength=5)
    assert_array_equal(counts, quota * 200)
    assert all(len(set(members)) == 2 for members in schedule.sets.tolist())
    counts_so_far = np.cumsum(
        [[i in members for i in range(5)] for members in schedule.sets.tolist()], axis=0
    )
    behind = np.arange(1, 201)[:, None] * quota - counts_so_far
    assert np.abs(behind).max() < 1  # no expert is ever a whole round behind or ahead


@pytest.mark.parametrize("missing", [0, 1, 9])
@given(random_problems(), st.integers(5, 60))
@settings(max_examples=60, deadline=None)
def test_no_part_of_the_schedule_costs_more_than_stated(
    missing: int, problem: Problem, cycle: int
) -> None:
    A, _ = make_constraint_rows(problem)
    quota = find_slater_point(problem, count_members(problem, missing)[0]).quota
    schedule = make_fallback_schedule(quota, A, cycle)
    costs = np.array([compute_panel_cost(A, members) for members in schedule.sets])
    assert_allclose(schedule.mean, costs.mean(axis=0), atol=1e-12)
    two_cycles = np.concatenate([costs, costs])
    for start in range(cycle):
        excess_so_far = np.cumsum(two_cycles[start : start + cycle] - schedule.mean, axis=0)
        highest = np.maximum(excess_so_far.max(axis=0), 0.0)
        assert_allclose(schedule.ahead[start], highest, atol=1e-9)  # no more, and no less


@st.composite
def random_quotas(draw: st.DrawFn) -> tuple[Floats, int]:
    """Any quotas of sum 1 or more, and a cycle; many of them are 0, 1 or near it."""
    K, cycle = draw(st.integers(1, 12)), draw(st.integers(1, 120))
    rng, power = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.floats(0.1, 5.0))
    quota = rng.random(K) ** power
    quota[rng.random(K) < 0.2] = 0.0
    quota[rng.random(K) < 0.2] = 1.0
    if quota.sum() < 1.0:
        quota[rng.integers(K)] = 1.0
    return quota, cycle


def is_even_schedule(schedule: Ints, rounds: Ints, cycle: int) -> bool:
    """Whether every expert is asked `rounds` times, by sets of equal size up to one."""
    total, members = int(rounds.sum()), [set(row) for row in schedule.tolist()]
    sizes = [(t + 1) * total // cycle - t * total // cycle for t in range(cycle)]
    counts = np.bincount([i for row in members for i in row], minlength=rounds.size)
    return [len(row) for row in members] == sizes and min(sizes) >= 1 and (counts == rounds).all()


@given(random_quotas())
@settings(max_examples=400, deadline=None)
def test_every_fallback_schedule_is_even(given: tuple[Floats, int]) -> None:
    quota, cycle = given
    rounds = round_quotas(quota, cycle)
    assert np.abs(rounds - quota * cycle).max() < 1
    assert rounds.sum() == round(quota.sum() * cycle)
    schedule = make_fallback_schedule(quota, np.eye(quota.size), cycle)
    assert is_even_schedule(schedule.sets, rounds, cycle)
    assert_allclose(schedule.mean, rounds / cycle, atol=1e-12)


def arrange_by_backlog_only(rounds: Ints, cycle: int) -> Ints:
    """A schedule without the rule that asks an expert who needs all remaining rounds."""
    total, behind = int(rounds.sum()), np.zeros(rounds.size)
    sets = np.empty((cycle, -(-total // cycle)), np.int64)
    for t in range(cycle):
        behind += rounds
        size = (t + 1) * total // cycle - t * total // cycle
        sets[t, :size] = np.argsort(-behind, kind="stable")[:size]
        sets[t, size:] = sets[t, 0]
        behind[sets[t, :size]] -= cycle
    return sets


def test_a_schedule_by_backlog_only_is_not_even() -> None:
    rounds, cycle = np.array([1, 3, 6]), 6
    assert not is_even_schedule(arrange_by_backlog_only(rounds, cycle), rounds, cycle)
    assert is_even_schedule(arrange_sets(rounds, cycle), rounds, cycle)


def draw_adversarial_set(problem: Problem, seed: int) -> Ints:
    """A set of an adversary: the worst under one of the rows, or a random one."""
    A, _ = make_constraint_rows(problem)
    m, rng = min(problem.draws, problem.size), np.random.default_rng(seed)
    weights = rng.random(problem.size) if rng.random() < 0.3 else A[rng.integers(len(A))]
    return np.argsort(-weights, kind="stable")[:m].astype(np.int64)


def simulate_adversary(problem: Problem, tables: LimitTables, rounds: int, seed: int) -> Floats:
    """Total cost of every period under the rows, if an adversary draws the panels."""
    rule, state = tables
    limits = point_to_limits(rule, state)
    totals = [np.zeros(len(rule.rows))]
    for t in range(rounds):
        admitted = guard_panel(limits, draw_adversarial_set(problem, seed + t), ALL)
        assert admitted.kept or not rule.on
        totals[-1] = totals[-1] + compute_panel_cost(rule.A, admitted.members)
        if state.clock["left"][0] == rule.period:
            totals.append(np.zeros(len(rule.rows)))
    return np.array(totals[:-1])


@given(random_problems(), st.integers(0, 10**6), st.integers(0, 40), st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_every_period_keeps_the_limits_for_any_draws(
    problem: Problem, seed: int, extra: int, missing: int
) -> None:
    rows, (fewest, _) = make_constraint_rows(problem), count_members(problem, missing)
    schedule = make_fallback_schedule(find_slater_point(problem, fewest).quota, rows.A, cycle=50)
    shortest = compute_shortest_period(rows, schedule)
    if shortest > 300:
        return
    period = int(shortest) + extra
    tables = open_rows(rows, schedule, period)
    for total in simulate_adversary(problem, tables, 3 * period, seed):
        assert (total <= period * rows.b + 1e-9 * period * np.abs(rows.b)).all()


def test_without_the_guard_the_same_draws_break_the_limits() -> None:
    problem = make_five_expert_problem()
    rows = make_constraint_rows(problem)
    schedule = make_fallback_schedule(find_slater_point(problem).quota, rows.A)
    unguarded = open_rows(rows, schedule, 200, on=False)
    broken = simulate_adversary(problem, unguarded, 600, seed=1) > 200 * rows.b
    assert broken.any()
    kept = simulate_adversary(problem, open_rows(rows, schedule, 200), 600, seed=1)
    assert len(kept) == 3
    assert (kept <= 200 * rows.b * (1 + np.sign(rows.b) * 1e-9)).all()


def test_a_period_that_is_too_short_is_refused_with_the_shortest_that_works() -> None:
    costs, limits = {"a": [1, 0], "b": [0, 1]}, [at_least("a", 0.3), at_least("b", 0.3)]
    problem = Problem(["ann", "bob"], costs, limits, draws=1)
    rows = make_constraint_rows(problem)
    schedule = make_fallback_schedule(find_slater_point(problem).quota, rows.A)
    shortest = compute_shortest_period(rows, schedule)
    assert shortest == 3  # half a round behind, with room for a fifth of one in each
    with pytest.raises(PolicyError, match=f"use at least {shortest}"):
        open_rows(rows, schedule, int(shortest) - 1)
    assert open_rows(rows, schedule, int(shortest)).rule.period == shortest


def test_limits_without_a_margin_have_no_feasible_period() -> None:
    rows = ConstraintRows(np.array([[1.0, 0.0]]), np.array([0.5]))
    schedule = make_fallback_schedule(np.array([0.5, 0.5]), rows.A, cycle=2)
    assert compute_shortest_period(rows, schedule) == math.inf
    with pytest.raises(PolicyError, match="loosen the limits, or use 'omd'"):
        open_rows(rows, schedule, 1_000)


@pytest.mark.parametrize("fewest", [None, 1, 49])
def test_ten_thousand_experts_and_fourteen_limits_have_a_schedule(fewest: int | None) -> None:
    K, M, rng = 10_000, 50, np.random.default_rng(0)
    costs = {f"c{j}": rng.random(K) * (rng.random(K) < 0.2) for j in range(14)}
    means = {name: float(M * cost.mean()) for name, cost in costs.items()}
    limits = [
        at_most(name, 0.9 * mean) if j % 2 else at_least(name, 1.1 * mean)
        for j, (name, mean) in enumerate(means.items())
    ]
    problem = Problem([f"e{i}" for i in range(K)], costs, limits, draws=M)
    rows, (margin, quota) = make_constraint_rows(problem), find_slater_point(problem, fewest)
    assert ((quota > 1e-9) & (quota < 1 - 1e-9)).sum() <= len(limits) + 1
    schedule = make_fallback_schedule(quota, rows.A)
    assert is_even_schedule(schedule.sets, round_quotas(quota, SCHEDULE_ROUNDS), SCHEDULE_ROUNDS)
    assert_allclose(schedule.mean, rows.A @ quota, atol=(len(limits) + 1) / SCHEDULE_ROUNDS)
    _, inclusion = solve_max_entropy(rows, M, margin)
    assert (rows.A @ inclusion <= rows.b - 0.049 * np.abs(rows.b)).all()


def test_pacing_loosens_after_saving_and_tightens_after_overspending() -> None:
    rows = ConstraintRows(np.array([[1.0, 0.0], [0.0, -1.0]]), np.array([1.0, -0.5]))
    plan = make_fallback_schedule(np.array([0.0, 1.0]), rows.A)
    rule, state = open_rows(rows, plan, 100)
    paced = point_to_limits(rule._replace(high=DEFAULT_PACE, margin=0.4), state)
    still = point_to_limits(rule._replace(high=0.0, margin=0.4), state)
    state.clock["left"][0] = 50
    for spent, expected in [
        ((50.0, -25.0), (1.0, -0.5)),  # on schedule half-way
        ((45.0, -30.0), (1.1, -0.4)),  # below the budget, above the minimum
        ((55.0, -20.0), (0.9, -0.6)),
        ((0.0, -49.0), (1.25, -0.375)),  # no further than HI
        ((45.0, -51.0), (1.1, 0.0)),  # a minimum of 50 in total that is reached no longer binds
        ((99.0, 0.0), (0.8, -0.6)),  # nor tighter than half of the margin
    ]:
        state.ledgers["spent"][:2] = spent
        fill_paced_bounds(paced)
        assert_allclose(state.bounds, expected)
        fill_paced_bounds(still)
        assert_allclose(state.bounds, rows.b)


def test_an_expert_that_is_too_dear_to_be_asked_ties_up_no_budget() -> None:
    prices = [0.5, 1.0, 1.5, 2.0, 150.0]
    skills = np.array([[0.2, 0.4, 0.6, 0.8, 0.9]])
    experts = [f"e{i}" for i in range(5)]
    problem = Problem(experts, {"usd": prices}, [at_most("usd", 2.0)], draws=2, period=500)
    trace = simulate(problem, Noisy(skills), "distinct", rounds=5_000, seed=3)
    spend = trace.spend[:, 0].reshape(10, 500).mean(axis=1)
    assert (spend <= 2.0 * (1 + 1e-9)).all()
    assert spend[1:].min() > 0.97 * 2.0  # a reserve of the dearest panel would be .60 of a budget


def test_the_dearest_panel_in_use_is_forgotten_little_by_little() -> None:
    rows = ConstraintRows(np.array([[1.0, 5.0]]), np.array([6.0]))
    plan = make_fallback_schedule(np.array([1.0, 0.0]), rows.A)
    tables = open_rows(rows, plan, 10_000)
    limits = point_to_limits(*tables)
    learned = tables.state.learned
    guard_panel(limits, np.array([1]), ALL)
    assert learned["dearest"][0] == 5.0
    for _ in range(int(PANELS_IN_USE)):
        guard_panel(limits, np.array([0]), ALL)
    assert learned["dearest"][0] == pytest.approx(1.0 + 4.0 * math.exp(-1.0), rel=1e-3)


def test_the_maximum_entropy_distribution_keeps_the_limits_and_is_uniform_without_them() -> None:
    problem = make_five_expert_problem()
    rows = make_constraint_rows(problem)
    _, inclusion = solve_max_entropy(rows, problem.draws, find_slater_point(problem).margin)
    assert inclusion.sum() == pytest.approx(problem.draws)
    assert (rows.A @ inclusion <= rows.b - 0.04 * np.abs(rows.b)).all()
    _, unlimited = solve_max_entropy(ConstraintRows(np.zeros((0, 5)), np.zeros(0)), 2, 1.0)
    assert_allclose(unlimited, 0.4)
    assert (rows.A @ unlimited > rows.b).any()  # equal shares would not keep them
