"""What keeps limits whatever is drawn: margin, schedule, guard, pacing and the mildest law."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bylot.errors import InfeasibleLimits, PolicyError
from bylot.numerics.jit import Floats, Ints
from bylot.policies.budget import DEFAULT_PACE, Guard, Pace, fill_paced_bounds, open_budget
from bylot.policies.constraint_rows import (
    ConstraintRows,
    find_slater_point,
    make_constraint_rows,
    solve_max_entropy,
)
from bylot.policies.fallback_schedule import (
    SCHEDULE_ROUNDS,
    arrange_sets,
    compute_shortest_period,
    make_fallback_schedule,
    round_quotas,
)
from bylot.policies.guard import compute_panel_cost, guard_panel, make_guard
from bylot.problem import Problem, at_least, at_most
from small import five

ALL = np.empty(0, np.bool_)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Pools of a few experts under limits on both sides that can be kept with some room."""
    K = draw(st.integers(2, 7))
    M = draw(st.integers(1, K))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    costs = {"usd": rng.random(K) * 10, "group": (rng.random(K) < 0.5).astype(float)}
    p = rng.dirichlet(np.ones(K)) * M
    inside = np.minimum(p, 1.0)
    room = 1 + draw(st.floats(0.05, 1.0))
    limits = [at_most("usd", float(costs["usd"] @ inside) * room + 0.01)]
    if costs["group"] @ inside > 0.05:
        limits.append(at_least("group", float(costs["group"] @ inside) / room))
    try:
        return Problem([f"e{i}" for i in range(K)], costs, limits, draws=M)
    except InfeasibleLimits:
        return Problem([f"e{i}" for i in range(K)], costs, limits[:1], draws=M)


@pytest.mark.parametrize("fewer", [False, True])
@given(problems())
def test_the_quota_keeps_all_limits_tightened_by_the_margin(fewer: bool, problem: Problem) -> None:
    margin, quota = find_slater_point(problem, fewer)
    A, b = make_constraint_rows(problem)
    full = min(problem.draws, problem.size)
    assert (1 if fewer else full) - 1e-9 <= quota.sum() <= full + 1e-9
    assert ((quota >= 0) & (quota <= 1)).all()
    if margin > 0:
        assert (A @ quota <= b - margin * np.abs(b) + 1e-7).all()


def inside(K: int, sizes: range) -> Floats:
    """Who is in, for every set of one of these sizes."""
    every = [members for m in sizes for members in itertools.combinations(range(K), m)]
    return np.array([[i in members for i in range(K)] for members in every], float)


@pytest.mark.parametrize("fewer", [False, True])
@given(problems())
@settings(max_examples=30, deadline=None)
def test_no_mixture_of_sets_has_a_larger_margin(fewer: bool, problem: Problem) -> None:
    margin, _ = find_slater_point(problem, fewer)
    A, b = make_constraint_rows(problem)
    full = min(problem.draws, problem.size)
    every = inside(problem.size, range(1 if fewer else full, full + 1))
    mixtures = np.random.default_rng(0).dirichlet(np.ones(len(every)) * 0.3, size=200) @ every
    room = ((b - mixtures @ A.T) / np.maximum(np.abs(b), 1e-9)).min(axis=1)
    assert room.max() <= margin + 1e-6


def test_panels_of_fewer_members_have_room_where_full_ones_have_none() -> None:
    costs, limits = {"usd": [2.0, 2.0, 2.0]}, [at_most("usd", 3.0)]
    problem = Problem(["a", "b", "c"], costs, limits, draws=2)
    assert find_slater_point(problem).margin == 0.0  # not even without a margin: four are spent
    margin, quota = find_slater_point(problem, fewer=True)
    assert margin == pytest.approx(1 / 3)
    assert quota.sum() == pytest.approx(1)


def test_without_limits_everything_is_room() -> None:
    margin, quota = find_slater_point(Problem(["a", "b", "c"], {}, draws=2))
    assert margin == 1.0
    assert quota.sum() == pytest.approx(2)


def test_the_schedule_asks_each_expert_as_often_as_its_quota() -> None:
    quota = np.array([1.0, 0.7, 0.25, 0.05, 0.0])
    made = make_fallback_schedule(quota, np.zeros((0, 5)), cycle=200)
    asked = np.bincount(made.sets.ravel(), minlength=5)
    assert_array_equal(asked, quota * 200)
    assert all(len(set(members)) == 2 for members in made.sets.tolist())
    so_far = np.cumsum([[i in members for i in range(5)] for members in made.sets.tolist()], axis=0)
    behind = np.arange(1, 201)[:, None] * quota - so_far
    assert np.abs(behind).max() < 1  # nobody is ever a whole round behind or ahead


@pytest.mark.parametrize("fewer", [False, True])
@given(problems(), st.integers(5, 60))
@settings(max_examples=60, deadline=None)
def test_no_stretch_of_the_schedule_costs_more_than_it_says(
    fewer: bool, problem: Problem, cycle: int
) -> None:
    A, _ = make_constraint_rows(problem)
    made = make_fallback_schedule(find_slater_point(problem, fewer).quota, A, cycle)
    costs = np.array([compute_panel_cost(A, members) for members in made.sets])
    assert_allclose(made.mean, costs.mean(axis=0), atol=1e-12)
    twice = np.concatenate([costs, costs])
    for start in range(cycle):
        walk = np.cumsum(twice[start : start + cycle] - made.mean, axis=0)
        highest = np.maximum(walk.max(axis=0), 0.0)
        assert_allclose(made.ahead[start], highest, atol=1e-9)  # no more, and no less


@st.composite
def quotas(draw: st.DrawFn) -> tuple[Floats, int]:
    """Any quotas of sum 1 or more, and a cycle; many of them are 0, 1 or near it."""
    K, cycle = draw(st.integers(1, 12)), draw(st.integers(1, 120))
    rng, power = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.floats(0.1, 5.0))
    quota = rng.random(K) ** power
    quota[rng.random(K) < 0.2] = 0.0
    quota[rng.random(K) < 0.2] = 1.0
    if quota.sum() < 1.0:
        quota[rng.integers(K)] = 1.0
    return quota, cycle


def evenly(made: Ints, rounds: Ints, cycle: int) -> bool:
    """Is everybody asked as often as they should be, by sets of the size they should have?"""
    total, members = int(rounds.sum()), [set(row) for row in made.tolist()]
    sizes = [(t + 1) * total // cycle - t * total // cycle for t in range(cycle)]
    asked = np.bincount([i for row in members for i in row], minlength=rounds.size)
    return [len(row) for row in members] == sizes and min(sizes) >= 1 and (asked == rounds).all()


@given(quotas())
@settings(max_examples=400, deadline=None)
def test_every_rota_comes_out_even(given: tuple[Floats, int]) -> None:
    quota, cycle = given
    rounds = round_quotas(quota, cycle)
    assert np.abs(rounds - quota * cycle).max() < 1
    assert rounds.sum() == round(quota.sum() * cycle)
    made = make_fallback_schedule(quota, np.eye(quota.size), cycle)
    assert evenly(made.sets, rounds, cycle)
    assert_allclose(made.mean, rounds / cycle, atol=1e-12)


def furthest_behind_first(rounds: Ints, cycle: int) -> Ints:
    """A rota without the rule that whoever needs all the rounds left is asked."""
    total, behind = int(rounds.sum()), np.zeros(rounds.size)
    sets = np.empty((cycle, -(-total // cycle)), np.int64)
    for t in range(cycle):
        behind += rounds
        size = (t + 1) * total // cycle - t * total // cycle
        sets[t, :size] = np.argsort(-behind, kind="stable")[:size]
        sets[t, size:] = sets[t, 0]
        behind[sets[t, :size]] -= cycle
    return sets


def test_being_behind_alone_does_not_come_out_even() -> None:
    rounds, cycle = np.array([1, 3, 6]), 6
    assert not evenly(furthest_behind_first(rounds, cycle), rounds, cycle)
    assert evenly(arrange_sets(rounds, cycle), rounds, cycle)


def spendthrift(problem: Problem, seed: int) -> Ints:
    """Sets of an adversary: the worst under one row or another, or anything at all."""
    A, _ = make_constraint_rows(problem)
    m, rng = min(problem.draws, problem.size), np.random.default_rng(seed)
    mood = rng.random(problem.size) if rng.random() < 0.3 else A[rng.integers(len(A))]
    return np.argsort(-mood, kind="stable")[:m].astype(np.int64)


def played(problem: Problem, guard: Guard, rounds: int, seed: int) -> Floats:
    """Total cost of every period under the rows, with an adversary at the wheel."""
    account, totals = open_budget(guard), [np.zeros(guard.b.size)]
    for t in range(rounds):
        admitted = guard_panel(guard, account, spendthrift(problem, seed + t), ALL)
        assert admitted.kept or not guard.on
        totals[-1] = totals[-1] + compute_panel_cost(guard.A, admitted.members)
        if account.left[0] == guard.period:
            totals.append(np.zeros(guard.b.size))
    return np.array(totals[:-1])


@given(problems(), st.integers(0, 10**6), st.integers(0, 40), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_period_ends_inside_the_limits_whatever_is_drawn(
    problem: Problem, seed: int, longer: int, fewer: bool
) -> None:
    rows = make_constraint_rows(problem)
    made = make_fallback_schedule(find_slater_point(problem, fewer).quota, rows.A, cycle=50)
    shortest = compute_shortest_period(rows, made)
    if shortest > 300:
        return
    period = int(shortest) + longer
    guard = make_guard(rows, made, period)
    for total in played(problem, guard, 3 * period, seed):
        assert (total <= period * guard.b + 1e-9 * period * np.abs(guard.b)).all()


def test_without_the_guard_the_same_draws_break_the_limits() -> None:
    problem = five()
    rows = make_constraint_rows(problem)
    guard = make_guard(rows, make_fallback_schedule(find_slater_point(problem).quota, rows.A), 200)
    broken = played(problem, guard._replace(on=False), 600, seed=1) > 200 * guard.b
    assert broken.any()
    kept = played(problem, guard, 600, seed=1)
    assert len(kept) == 3
    assert (kept <= 200 * guard.b * (1 + np.sign(guard.b) * 1e-9)).all()


def test_a_period_that_is_too_short_is_refused_with_the_shortest_that_works() -> None:
    costs, limits = {"a": [1, 0], "b": [0, 1]}, [at_least("a", 0.3), at_least("b", 0.3)]
    problem = Problem(["ann", "bob"], costs, limits, draws=1)
    rows = make_constraint_rows(problem)
    made = make_fallback_schedule(find_slater_point(problem).quota, rows.A)
    shortest = compute_shortest_period(rows, made)
    assert shortest == 3  # half a round behind, with room for a fifth of one in each
    with pytest.raises(PolicyError, match=f"use at least {shortest}"):
        make_guard(rows, made, int(shortest) - 1)
    assert make_guard(rows, made, int(shortest)).period == shortest


def test_limits_without_any_room_have_no_period_that_works() -> None:
    rows = ConstraintRows(np.array([[1.0, 0.0]]), np.array([0.5]))
    made = make_fallback_schedule(np.array([0.5, 0.5]), rows.A, cycle=2)
    assert compute_shortest_period(rows, made) == math.inf
    with pytest.raises(PolicyError, match="loosen the limits, or use 'omd'"):
        make_guard(rows, made, 1_000)


@pytest.mark.parametrize("fewer", [False, True])
def test_ten_thousand_experts_and_fourteen_limits_are_prepared_for(fewer: bool) -> None:
    K, M, rng = 10_000, 50, np.random.default_rng(0)
    costs = {f"c{j}": rng.random(K) * (rng.random(K) < 0.2) for j in range(14)}
    means = {name: float(M * cost.mean()) for name, cost in costs.items()}
    limits = [
        at_most(name, 0.9 * mean) if j % 2 else at_least(name, 1.1 * mean)
        for j, (name, mean) in enumerate(means.items())
    ]
    problem = Problem([f"e{i}" for i in range(K)], costs, limits, draws=M)
    rows, (margin, quota) = make_constraint_rows(problem), find_slater_point(problem, fewer)
    assert ((quota > 1e-9) & (quota < 1 - 1e-9)).sum() <= len(limits) + 1
    made = make_fallback_schedule(quota, rows.A)
    assert evenly(made.sets, round_quotas(quota, SCHEDULE_ROUNDS), SCHEDULE_ROUNDS)
    assert_allclose(made.mean, rows.A @ quota, atol=(len(limits) + 1) / SCHEDULE_ROUNDS)
    _, inclusion = solve_max_entropy(rows, M, margin)
    assert (rows.A @ inclusion <= rows.b - 0.049 * np.abs(rows.b)).all()


def test_pacing_gives_back_what_was_saved_and_takes_what_was_overspent() -> None:
    rows = ConstraintRows(np.array([[1.0, 0.0], [0.0, -1.0]]), np.array([1.0, -0.5]))
    guard = make_guard(rows, make_fallback_schedule(np.array([0.0, 1.0]), rows.A), 100)
    account, bounds = open_budget(guard), np.empty(2)
    account.left[0] = 50
    for spent, wanted in [
        ((50.0, -25.0), (1.0, -0.5)),  # as it should be half-way
        ((45.0, -30.0), (1.1, -0.4)),  # frugal, and generous to the minimum
        ((55.0, -20.0), (0.9, -0.6)),
        ((0.0, -49.0), (1.25, -0.375)),  # no further than HI
        ((45.0, -51.0), (1.1, 0.0)),  # a minimum of 50 in all that was reached is none any more
        ((99.0, 0.0), (0.8, -0.6)),  # nor tighter than half of the margin
    ]:
        account.spent[:] = spent
        fill_paced_bounds(bounds, guard, account, Pace(DEFAULT_PACE, 0.4, np.zeros(2)))
        assert_allclose(bounds, wanted)
        fill_paced_bounds(bounds, guard, account, Pace(0.0, 0.4, np.zeros(2)))
        assert_allclose(bounds, rows.b)


def test_the_mildest_law_keeps_the_limits_and_is_equal_where_it_can_be() -> None:
    problem = five()
    rows = make_constraint_rows(problem)
    _, inclusion = solve_max_entropy(rows, problem.draws, find_slater_point(problem).margin)
    assert inclusion.sum() == pytest.approx(problem.draws)
    assert (rows.A @ inclusion <= rows.b - 0.04 * np.abs(rows.b)).all()
    _, free = solve_max_entropy(ConstraintRows(np.zeros((0, 5)), np.zeros(0)), 2, 1.0)
    assert_allclose(free, 0.4)
    assert (rows.A @ free > rows.b).any()  # equal shares would not keep them
