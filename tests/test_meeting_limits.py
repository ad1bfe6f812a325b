"""The optimum under an upper and a lower limit on the same cost that (nearly) meet."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot.errors import InfeasibleLimits
from bylot.optima import ValueStack, check_shadow_prices, iid_optimum
from bylot.optima.objective import Objective
from bylot.optima.policy_search import ExactCosts, find_feasible_policy, maximise_locally
from bylot.problem import Problem, at_least, at_most
from test_exact_optimum import make_problem, make_values, room_under_limits, solve_by_slsqp


def make_meeting_limits(usd: float, apart: float = 0.0) -> Problem:
    """Expected cost at least usd and at most usd + apart."""
    return make_problem(6, 3, [at_most("usd", usd + apart), at_least("usd", usd)])


@pytest.mark.parametrize("apart", [0.0, 1e-9, 1e-3])
@pytest.mark.parametrize("usd", [0.9, 1.6, 2.6])  # at the last the lower limit binds
def test_with_meeting_limits_the_optimum_is_as_good_as_slsqp_finds(
    usd: float, apart: float
) -> None:
    problem = make_meeting_limits(usd, apart)
    best = iid_optimum(problem, make_values(6), exact=True, floor=False)
    found = solve_by_slsqp(problem, make_values(6), starts=10)
    assert room_under_limits(problem, best.policy).min() > -2e-9
    assert_allclose(best.value, found, atol=1e-6)
    assert found <= best.ceiling + 1e-7


def test_two_pairs_of_limits_can_meet() -> None:
    limits = [make(name, 1.2) for name in ("usd", "junior") for make in (at_most, at_least)]
    problem = make_problem(6, 3, limits)
    best = iid_optimum(problem, make_values(6), exact=True, floor=False)
    assert room_under_limits(problem, best.policy).min() > -2e-9
    assert_allclose(best.value, solve_by_slsqp(problem, make_values(6), starts=10), atol=1e-6)


def test_the_search_between_meeting_limits_takes_few_steps() -> None:
    problem, F = make_meeting_limits(1.6), Objective((ValueStack(make_values(6)),), draws=3)
    costs = ExactCosts.of(problem, np.ones(1), floor=0.0)
    start = find_feasible_policy(costs, np.full((1, 6), 1 / 6))
    assert start is not None
    best = maximise_locally(F, costs, start, tolerance=1e-9)
    assert best.gap <= 1e-8
    assert best.steps < 100  # straight steps alone end after 300, far below the maximum


def test_a_bound_that_meets_its_opposite_has_a_one_sided_price() -> None:
    problem, values = make_meeting_limits(1.6), make_values(6)
    best = iid_optimum(problem, values, exact=True, floor=False)
    most, least = check_shadow_prices(problem, values, best, exact=True, floor=False)
    assert most.verdict == least.verdict == "edge"
    assert most.below is None
    assert least.above is None
    alone = make_problem(6, 3, [at_most("usd", 1.6)])
    (without_lower,) = check_shadow_prices(
        alone, values, iid_optimum(alone, values, exact=True, floor=False), exact=True, floor=False
    )
    assert most.above == pytest.approx(without_lower.above, abs=1e-5)
    assert least.below == pytest.approx(0.0, abs=1e-5)


def test_limits_that_cross_are_infeasible() -> None:
    with pytest.raises(InfeasibleLimits, match=r"is above .*; swap the two bounds") as refusal:
        make_meeting_limits(1.6, apart=-0.1)
    assert {limit.side for limit in refusal.value.limits} == {"at_most", "at_least"}
