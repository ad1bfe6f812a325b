"""Shadow prices agree with difference quotients where the optimum is smooth; kinks are named."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot.errors import ValuesError
from bylot.numerics.jit import Floats
from bylot.optima import IidOptimum, ShadowPrice, check_shadow_prices, iid_optimum
from bylot.optima.shadow_prices import PriceChecker
from bylot.problem import Limit, Problem, at_least, at_most

PAIR = np.array([[0.0, 1.0]])


def make_pair(bound: float, draws: int = 2) -> Problem:
    """A free expert of value 0, and one that costs 1 and has value 1."""
    return Problem(["a", "b"], {"usd": [0.0, 1.0]}, [at_most("usd", bound)], draws=draws)


def make_problem(limits: list[Limit], draws: int = 3, K: int = 8) -> Problem:
    """K experts with a price and a group."""
    rng = np.random.default_rng(0)
    costs = {"usd": rng.random(K), "junior": np.arange(K) % 3 == 0}
    return Problem([f"expert {i}" for i in range(K)], costs, limits, draws=draws)


def make_values(K: int = 8, T: int = 6) -> Floats:
    return np.random.default_rng(1).random((T, 2, K))


def price_only_limit(problem: Problem, values: Floats, **options: bool) -> ShadowPrice:
    """The only price of a problem."""
    best = iid_optimum(problem, values, floor=False, **options)
    (price,) = check_shadow_prices(problem, values, best, floor=False, **options)
    return price


@pytest.mark.parametrize("bound", [0.2, 0.5, 1.0])
def test_the_price_under_the_surrogate_has_its_closed_form(bound: float) -> None:
    """q <= u/2 of the second expert earns 1 - (1 - u/2)^2, so another unit is worth 1 - u/2."""
    usd = price_only_limit(make_pair(bound), PAIR)
    assert usd.verdict == "agrees"
    assert_allclose([usd.price, usd.central or 0.0], 1 - bound / 2, rtol=1e-5)
    assert usd.step == pytest.approx(1e-3 * bound)


@pytest.mark.parametrize("bound", [0.2, 0.5, 0.9])
def test_the_price_under_exact_costs_has_its_closed_form(bound: float) -> None:
    """The inclusion probability of the second expert is both the cost and the reward."""
    usd = price_only_limit(make_pair(bound), PAIR, exact=True)
    assert usd.verdict == "agrees"
    assert_allclose([usd.price, usd.central or 0.0], 1.0, rtol=1e-5)


def test_a_kink_reports_both_one_sided_prices() -> None:
    """Up to 1, a unit buys 1 of b; beyond it only 0.2, by c instead of b."""
    costs = {"usd": [0.0, 1.0, 2.0]}
    for exact in (False, True):  # which are the same for one draw
        problem = Problem(["a", "b", "c"], costs, [at_most("usd", 1.0)], draws=1)
        usd = price_only_limit(problem, np.array([[0.0, 1.0, 1.2]]), exact=exact)
        assert usd.verdict == "kink"
        assert_allclose([usd.below or 0.0, usd.above or 0.0], [1.0, 0.2], rtol=1e-4)
        assert 0.2 - 1e-6 <= usd.price <= 1.0 + 1e-6


def test_a_smooth_curve_is_not_a_kink_for_any_step() -> None:
    problem, values = make_problem([at_most("usd", 0.9)]), make_values()
    (usd,) = check_shadow_prices(
        problem, values, iid_optimum(problem, values, floor=True), floor=True, step=0.05
    )
    assert usd.below is not None
    assert usd.above is not None
    assert usd.below > 1.02 * usd.above
    assert usd.verdict == "agrees"


def test_a_wrong_price_would_be_noticed() -> None:
    problem, values = make_pair(0.5), PAIR
    best = iid_optimum(problem, values, floor=False)
    wrong = IidOptimum(best.value, best.policy, best.gap, best.prices * 1.03)
    (usd,) = check_shadow_prices(problem, values, wrong, floor=False)
    assert usd.verdict == "differs"


def test_an_optimum_of_the_other_kind_is_refused() -> None:
    best = iid_optimum(make_pair(0.5), PAIR, exact=True, floor=True)
    with pytest.raises(ValuesError, match="pass exact=True here"):
        check_shadow_prices(make_pair(0.5), PAIR, best)


def test_a_bound_that_cannot_be_tightened_has_one_side() -> None:
    """Juniors alone can have a mean of 1 in the draws, and no more is possible."""
    problem, values = make_problem([at_least("junior", 1.0)]), make_values()
    junior = price_only_limit(problem, values)
    assert (junior.verdict, junior.above) == ("edge", None)
    assert junior.central == junior.below


def test_a_bound_of_0_has_only_the_price_of_loosening() -> None:
    usd = price_only_limit(make_pair(0.0), PAIR)
    assert (usd.verdict, usd.below) == ("edge", None)
    assert usd.step == 1e-3  # of the largest cost
    assert usd.above == pytest.approx(1.0, rel=1e-3)


def test_the_gain_of_a_looser_bound_is_that_of_the_looser_side() -> None:
    """A price is not unique at a kink, nor where the bound cannot be tightened."""
    at_zero = price_only_limit(make_pair(0.0), PAIR)
    assert at_zero.gain == pytest.approx(0.01 * 1.0, rel=1e-2)  # 1 % of the largest cost
    limit = at_most("usd", 0.5)
    kink = ShadowPrice(limit, 0.7, 1e-3, 0.9, 0.2, "kink", 1.0)
    assert kink.gain == pytest.approx(0.01 * 0.5 * 0.2)
    assert replace(kink, verdict="agrees").gain == pytest.approx(0.01 * 0.5 * 0.7)
    lower = replace(kink, limit=at_least("usd", 0.5), price=-0.7, below=-0.2, above=-0.9)
    assert lower.gain == pytest.approx(0.01 * 0.5 * 0.2)


@pytest.mark.parametrize("exact", [False, True])
def test_limits_that_meet_have_one_side_each(exact: bool) -> None:
    limits = [at_most("junior", 0.5), at_least("junior", 0.5), at_most("usd", 1.9)]
    problem, values = make_problem(limits), make_values()
    if not exact:  # whose upper end is u / M: these leave one mean cost
        problem = make_problem([at_most("usd", 1.5), at_least("usd", 0.5)])
    best = iid_optimum(problem, values, exact=exact, floor=False)
    upper, lower, *_ = check_shadow_prices(problem, values, best, exact=exact, floor=False)
    assert (upper.verdict, upper.below) == ("edge", None)
    assert (lower.verdict, lower.above) == ("edge", None)


def test_a_bound_at_the_end_of_the_number_range_is_not_moved_beyond_it() -> None:
    """Numbers end at 1e100, and below 1e-100 there is only 0."""
    last = price_only_limit(make_pair(1e100), PAIR)
    assert (last.verdict, last.above) == ("edge", None)
    costs = {"usd": [0.0, 1e-100]}
    first = price_only_limit(Problem(["a", "b"], costs, [at_most("usd", 0.0)], draws=2), PAIR)
    assert (first.verdict, first.below, first.above) == ("edge", None, None)
    assert first.central is None


@pytest.mark.parametrize("exact", [False, True])
def test_prices_of_both_sides_agree_and_slack_limits_have_price_0(exact: bool) -> None:
    junior = 1.3 if exact else 0.8  # the surrogate counts draws, of which there are fewer
    limits = [at_most("usd", 0.9), at_least("junior", junior), at_most("junior", 3.0)]
    problem, values = make_problem(limits), make_values()
    best = iid_optimum(problem, values, exact=exact, starts=4, floor=True)
    prices = check_shadow_prices(problem, values, best, exact=exact, floor=True)
    assert [price.verdict for price in prices] == ["agrees"] * 3
    assert [price.limit for price in prices] == limits
    assert prices[0].price > 1e-2
    assert prices[1].price < -1e-2
    assert abs(prices[2].price) < 1e-8


@pytest.mark.parametrize("each_context", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_prices_of_contexts_agree(each_context: bool, exact: bool) -> None:
    problem, values = make_problem([at_most("usd", 0.9), at_least("junior", 0.5)]), make_values(T=8)
    contexts = np.arange(8) % 2
    best = iid_optimum(
        problem,
        values,
        contexts=contexts,
        each_context=each_context,
        exact=exact,
        starts=2,
        floor=True,
    )
    prices = check_shadow_prices(
        problem,
        values,
        best,
        contexts=contexts,
        each_context=each_context,
        exact=exact,
        floor=True,
    )
    assert {price.verdict for price in prices} == {"agrees"}
    assert prices[0].price > 1e-2


def test_the_problem_with_a_moved_bound_keeps_its_period() -> None:
    pair = Problem(["a", "b"], {"usd": [0.0, 1.0]}, [at_most("usd", 0.5)], draws=2, period=40)
    seen: list[Problem] = []

    def record_problem(problem: Problem) -> float:
        seen.append(problem)
        return 0.0

    PriceChecker(pair, np.zeros(1), np.zeros(1), 1.0, record_problem).value_at(0, 0.1)
    assert [problem.period for problem in seen] == [40]
    assert seen[0].limits == (at_most("usd", 0.6),)
