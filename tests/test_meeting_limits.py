"""Opposite limits that meet, or nearly: the optimum along a thin, bent set of policies."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot.errors import InfeasibleLimits
from bylot.optima import ValueStack, check_shadow_prices, optimum
from bylot.optima.exact_costs import ExactCosts
from bylot.optima.exact_search import LIMIT_SLACK, find_feasible_policy, maximise_locally
from bylot.optima.objective import Objective
from bylot.problem import Problem, at_least, at_most
from test_exact_optimum import by_a_general_solver, kept, pool, skills


def meeting(usd: float, apart: float = 0.0) -> Problem:
    """A pool that has to spend so much, no more and no less."""
    return pool(6, 3, [at_most("usd", usd + apart), at_least("usd", usd)])


@pytest.mark.parametrize("apart", [0.0, 1e-9, 1e-3])
@pytest.mark.parametrize("usd", [0.9, 1.6, 2.6])  # the last is more than the best would spend
def test_where_limits_meet_it_is_as_good_as_what_a_general_solver_finds(
    usd: float, apart: float
) -> None:
    problem = meeting(usd, apart)
    best = optimum(problem, skills(6), exact=True, floor=False)
    found = by_a_general_solver(problem, skills(6), starts=10)
    assert kept(problem, best.policy).min() > -2e-9
    assert_allclose(best.value, found, atol=1e-6)
    assert found <= best.ceiling + 1e-7


def test_two_pairs_of_limits_may_meet() -> None:
    limits = [make(name, 1.2) for name in ("usd", "junior") for make in (at_most, at_least)]
    problem = pool(6, 3, limits)
    best = optimum(problem, skills(6), exact=True, floor=False)
    assert kept(problem, best.policy).min() > -2e-9
    assert_allclose(best.value, by_a_general_solver(problem, skills(6), starts=10), atol=1e-6)


def test_the_way_between_limits_that_meet_is_short() -> None:
    problem, hill = meeting(1.6), Objective((ValueStack(skills(6)),), draws=3)
    costs = ExactCosts.of(problem, np.ones(1), floor=0.0)
    start = find_feasible_policy(costs, np.full((1, 6), 1 / 6), LIMIT_SLACK)
    assert start is not None
    top = maximise_locally(hill, costs, start, LIMIT_SLACK, tolerance=1e-9)
    assert top.gap <= 1e-8
    assert top.steps < 100  # straight steps alone end after 300, far below the top


def test_a_bound_that_meets_its_opposite_can_be_priced_one_way() -> None:
    problem, values = meeting(1.6), skills(6)
    best = optimum(problem, values, exact=True, floor=False)
    most, least = check_shadow_prices(problem, values, best, exact=True, floor=False)
    assert most.verdict == least.verdict == "edge"
    assert most.below is None
    assert least.above is None
    alone = pool(6, 3, [at_most("usd", 1.6)])
    (free,) = check_shadow_prices(
        alone, values, optimum(alone, values, exact=True, floor=False), exact=True, floor=False
    )
    assert most.above == pytest.approx(free.above, abs=1e-5)
    assert least.below == pytest.approx(0.0, abs=1e-5)


def test_limits_that_cross_are_limits_that_nobody_can_keep() -> None:
    with pytest.raises(InfeasibleLimits, match=r"is above .*; swap the two bounds") as refusal:
        meeting(1.6, apart=-0.1)
    assert {limit.side for limit in refusal.value.conflict} == {"at_most", "at_least"}


def test_the_width_between_limits_is_in_units_of_the_largest_cost() -> None:
    limits = [at_least("usd", 1.0), at_most("usd", 1.5), at_most("junior", 1.0)]
    costs = ExactCosts.of(pool(6, 3, limits), np.ones(1), floor=0.0)
    assert_allclose(costs.width(), [0.5 / costs.rows[0].max()])
