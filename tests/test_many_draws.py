"""The optimum under exact costs with many draws, and with bounds that are out of scale."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot.optima import iid_optimum
from bylot.optima.polytope import Polytope
from bylot.problem import Problem, at_least, at_most
from test_exact_optimum import room_under_limits

ANSWERS = [[1, 0, 0], [0, 1, 0], [0.5, 0, 1], [1, 0.7, 0.2]]


def make_problem(draws: int, most: float = 0.7) -> Problem:
    """Three experts; the budget does not even allow the two most expensive in every request."""
    costs = {"usd": [4.0, 3.0, 1.0], "junior": [0.0, 0.0, 1.0]}
    limits = [at_most("usd", 4.5), at_least("junior", 0.2), at_most("junior", most)]
    return Problem(["ann", "bob", "cat"], costs, limits, draws=draws)


@pytest.mark.parametrize("draws", [30, 200, 2_500])
def test_many_draws_have_an_optimum_within_the_limits(draws: int) -> None:
    """Asking ann always leaves half a dollar, enough for cat every other time."""
    problem = make_problem(draws)
    best = iid_optimum(problem, np.array(ANSWERS)[:, None], exact=True, floor=False)
    assert room_under_limits(problem, best.policy).min() >= 0.0
    assert_allclose(best.value, 0.6875, atol=1e-6)
    assert best.value <= best.ceiling


def test_an_unreachable_bound_does_not_change_the_optimum() -> None:
    values = np.array(ANSWERS)[:, None]
    loose, huge = (
        iid_optimum(make_problem(2, most), values, exact=True, floor=True) for most in (2.0, 1e100)
    )
    assert_allclose(huge.value, loose.value, rtol=1e-9)


def test_a_row_that_is_tiny_compared_with_its_bound_holds_for_all_or_for_no_policy() -> None:
    row = np.array([[1e-300, 0.0, 0.0]])
    for bound, empty in ((1e10, False), (-1e10, True)):
        polytope = Polytope((1, 3), 0.0, row, np.array([bound]))
        assert (polytope.feasible is None) == empty
        assert polytope.find_least_violation() is not None
