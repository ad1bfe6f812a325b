"""The optimum under exact costs where tangents vanish: many draws, and bounds out of all reach."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot.optima import optimum
from bylot.optima.polytope import Polytope
from bylot.problem import Problem, at_least, at_most
from test_exact_optimum import kept

ANSWERS = [[1, 0, 0], [0, 1, 0], [0.5, 0, 1], [1, 0.7, 0.2]]


def three(draws: int, most: float = 0.7) -> Problem:
    """Three experts, of whom not even the two dearer ones can be asked each time."""
    costs = {"usd": [4.0, 3.0, 1.0], "junior": [0.0, 0.0, 1.0]}
    limits = [at_most("usd", 4.5), at_least("junior", 0.2), at_most("junior", most)]
    return Problem(["ann", "bob", "cat"], costs, limits, draws=draws)


@pytest.mark.parametrize("draws", [30, 200, 2_500])
def test_many_draws_have_an_optimum_within_the_limits(draws: int) -> None:
    """Ann, always, leaves half a dollar: for cat, every other time."""
    problem = three(draws)
    best = optimum(problem, np.array(ANSWERS)[:, None], exact=True, floor=False)
    assert kept(problem, best.policy).min() >= 0.0
    assert_allclose(best.value, 0.6875, atol=1e-6)
    assert best.value <= best.ceiling


def test_a_bound_out_of_all_reach_is_as_good_as_none() -> None:
    values = np.array(ANSWERS)[:, None]
    loose, huge = (optimum(three(2, most), values, exact=True) for most in (2.0, 1e100))
    assert_allclose(huge.value, loose.value, rtol=1e-9)


def test_a_row_that_vanishes_beside_its_bound_is_kept_by_all_or_by_none() -> None:
    row = np.array([[1e-300, 0.0, 0.0]])
    for bound, kept_by in ((1e10, "all"), (-1e10, "none")):
        polytope = Polytope((1, 3), 0.0, row, np.array([bound]))
        assert (polytope.face() is None) == (kept_by == "none")
        assert polytope.least_broken() is not None
