"""Costs that vary 500-fold per call: every period and every day uses its budget to within 1 %."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import bylot
from bylot.environments import CallCosts, Noisy, Traffic
from bylot.limits.costs import compute_reserve
from bylot.limits.guard import guard_panel
from bylot.limits.records import point_to_limits
from bylot.numerics.jit import Floats
from bylot.numerics.set_selection import exchange_dearest
from limit_tables import open_limits

SKILLS = [0.30, 0.34, 0.42, 0.38, 0.50, 0.47, 0.58, 0.66, 0.62, 0.75]
COSTS = np.array([0.05, 0.09, 0.162, 0.292, 0.526, 0.948, 1.709, 3.081, 5.55, 10.0])
BOUND, REQUESTS, DAY_US = 4.0, 5_000, 86_400_000_000
CALLS = CallCosts(noise=2.23)  # lognormal: its 1 % and 99 % quantiles differ 500-fold
SEEDS, ALL = range(3), np.empty(0, np.bool_)


def make_problem(most: float | None = None, daily: bool = False) -> bylot.Problem:
    """Ten experts, three asked, under a budget; a call costs at most `most` times its mean."""
    limit = bylot.at_most("usd", BOUND)
    if daily:
        limit = bylot.at_most("usd", BOUND * REQUESTS, per="day")
    largest = {} if most is None else {"usd": most * COSTS}
    names = [f"e{i}" for i in range(COSTS.size)]
    period = None if daily else REQUESTS
    return bylot.Problem(names, {"usd": COSTS}, [limit], draws=3, period=period, max_costs=largest)


def play_periods(problem: bylot.Problem, policy: str, seed: int) -> Floats:
    """What each of four periods but the first cost, relative to the budget."""
    trace = bylot.simulate(
        problem, Noisy([SKILLS]), policy, rounds=4 * REQUESTS, seed=seed, calls=CALLS
    )
    means = trace.spend[:, 0].reshape(4, REQUESTS).mean(axis=1) / BOUND
    return np.asarray(means[1:])


def test_a_period_is_used_to_within_1_percent_and_by_averages_alone_it_is_not() -> None:
    problem = make_problem()
    used = np.concatenate([play_periods(problem, "noisy-or", seed) for seed in SEEDS])
    assert (np.abs(used - 1.0) < 0.01).all()
    assert np.mean(used > 1.0) < 0.2
    averages = "noisy-or:pace=none,guard=false"  # panels whose mean cost is inside the bound
    blind = np.concatenate([play_periods(problem, averages, seed) for seed in SEEDS])
    assert np.mean(np.abs(blind - 1.0) > 0.01) > 0.4
    assert blind.max() > 1.01


def test_a_day_is_used_to_within_1_percent() -> None:
    problem = make_problem(daily=True)
    for seed in SEEDS:
        times = Traffic("flat", per_day=REQUESTS, start="2027-12-20").arrivals_until(4, seed)
        trace = bylot.simulate(
            problem,
            Noisy([SKILLS]),
            "noisy-or",
            rounds=len(times),
            seed=seed,
            times=times,
            calls=CALLS,
            keep_distributions=False,
        )
        used = np.bincount((times - times[0]) // DAY_US, trace.spend[:, 0])[1:4]
        assert (np.abs(used / (BOUND * REQUESTS) - 1.0) < 0.01).all()
        assert trace.refused.mean() < 0.001


def test_with_largest_costs_no_period_exceeds_its_budget() -> None:
    problem = make_problem(most=20.0)
    for seed in SEEDS:
        used = play_periods(problem, "noisy-or", seed)
        assert (used <= 1.0 + 1e-12).all()


@pytest.mark.parametrize("room", [30.0, 100.0, 250.0])
def test_what_is_left_is_spent_on_calls_that_cannot_exceed_it(room: float) -> None:
    """The less is left, the cheaper are the dearest members; others stay as drawn."""
    problem = make_problem()
    rule, state = open_limits(problem)
    state.learned["reports"][0] = 5_000
    state.learned["peak"][0] = 40.0
    state.weight[:] = 1_000.0
    unit = problem.rows[0, 0] / rule.A[0, 0]
    state.clock["left"][0] = 10
    state.ledgers["spent"][0] = (BOUND * REQUESTS - room) / unit
    panel = guard_panel(point_to_limits(rule, state), np.array([0, 9, 1]), ALL)
    assert panel.replaced
    assert panel.kept
    assert_array_equal(panel.members[[0, 2]], [0, 1])
    asked = panel.members[1]
    assert 0 < COSTS[asked] * 40.0 < room < COSTS[asked + 1] * 90.0


def test_a_reserve_is_for_the_calls_that_may_come() -> None:
    rule, state = open_limits(make_problem())
    state.learned["reports"][0] = 100
    state.learned["peak"][0] = 40.0
    quota, none = np.full(COSTS.size, 0.3), np.empty(0, np.int64)

    def reserve(members: list[int]) -> float:
        panel = np.array(members, np.int64) if members else none
        return compute_reserve(point_to_limits(rule, state), 0, 0, quota, panel)

    assert reserve([]) == 0.0
    assert 0.0 < reserve([0, 1, 2]) < 0.05 * reserve([0, 1, 9])
    state.waiting[0, 9] = 1
    assert reserve([]) > 40.0 * rule.A[0, 9]


def test_members_are_exchanged_for_the_dearest_that_are_allowed() -> None:
    order = np.array([3, 1, 0, 2, 4])
    assert exchange_dearest(np.array([4, 3]), order, 3, ALL).tolist() == [0, 3]
    some = np.array([False, True, True, True, True])
    assert exchange_dearest(np.array([4, 3]), order, 3, some).tolist() == [1, 3]
    assert exchange_dearest(np.array([4, 2, 3]), order, 2, some).size == 0
