"""Optima of large pools: certified, and lazy bounds lead to what all at once do."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot import optima
from bylot.numerics import set_gains
from bylot.numerics.jit import Floats
from bylot.optima.set_search import SetSearch, SetValues
from bylot.problem import Problem, at_least, at_most

SIZE = 90


def make_large_problem() -> Problem:
    """A budget, a cap and a minimum of groups, and a minimum of one expert."""
    rng = np.random.default_rng(0)
    costs = {"usd": rng.lognormal(0, 1, SIZE)}
    costs |= {f"group {g}": np.arange(SIZE) % 3 == g for g in range(3)}
    costs["first"] = np.eye(1, SIZE)[0]
    limits = [at_most("usd", 2.0), at_most("group 0", 1.2), at_least("group 1", 0.6)]
    return Problem(range_names(), costs, [*limits, at_least("first", 0.05)], draws=3)


def range_names() -> list[str]:
    return [f"e{i}" for i in range(SIZE)]


def make_large_values(T: int = 15) -> Floats:
    """The better, the more expensive."""
    rng, problem = np.random.default_rng(1), make_large_problem()
    skill = 0.2 + 0.5 * problem.costs["usd"].argsort().argsort() / SIZE
    return np.asarray(np.clip(skill + 0.25 * rng.standard_normal((T, 2, SIZE)), 0, 1))


@pytest.mark.parametrize("exact", [False, True])
def test_an_optimum_of_a_large_pool_keeps_the_limits_and_has_the_right_prices(exact: bool) -> None:
    problem, values = make_large_problem(), optima.ValueStack(make_large_values())
    if not exact:
        problem = problem.replace(
            limits=[
                limit.at(limit.bound * 0.4) if limit.sign > 0 else limit for limit in problem.limits
            ]
        )
    options: dict[str, Any] = {"floor": False, "exact": exact}
    best = optima.iid_optimum(problem, values, starts=2, **options)
    prices = optima.check_shadow_prices(problem, values, best, **options)
    assert {price.verdict for price in prices} == {"agrees"}
    if exact:
        assert best.value <= optima.optimum(problem, values, fewer=True).ceiling
    else:
        assert best.gap <= 1e-9 * values.reward_of_all
    costs = problem.rows @ (best.inclusion(3)[0] if exact else best.policy)
    bounds = (
        problem.bounds if exact else np.where(problem.signs < 0, problem.bounds / 3, problem.bounds)
    )
    assert (problem.signs * (costs - bounds) >= -1e-8).all()


def test_a_limit_with_room_has_no_price_and_needs_no_other_optimum() -> None:
    problem, values = make_large_problem(), make_large_values(T=10)
    problem = problem.replace(limits=[*problem.limits, at_most("group 2", 2.9)])
    best = optima.optimum(problem, values)
    *_, ample = optima.check_shadow_prices(problem, values, best)
    assert (ample.price, ample.below, ample.above, ample.verdict) == (0.0, 0.0, 0.0, "agrees")
    looser = best_value(problem, values, 2.9 * 1.001)
    assert looser == pytest.approx(best_value(problem, values, 2.9 * 0.999), abs=1e-12)


def best_value(problem: Problem, values: Floats, bound: float) -> float:
    *others, last = problem.limits
    return optima.optimum(problem.replace(limits=[*others, last.at(bound)]), values).value


def make_search(K: int = 9, rows: int = 30, fewest: int = 1) -> SetSearch:
    rng = np.random.default_rng(3)
    worth = rng.random((K, rows)) * rng.random(rows)
    return SetSearch.of(SetValues(worth, fewest, 3))._replace(charges=rng.random(K) * 3)


def test_exchange_gains_are_differences_of_values() -> None:
    search, members = make_search(), (1, 4, 7)
    gains = search.exchange_gains(members)
    for n, i in itertools.product(range(4), range(9)):
        rest = members[:n] + members[n + 1 :]
        added = search.sets.value((*rest, i)) - search.sets.value(rest)
        assert gains[n, i] == pytest.approx(added, abs=1e-12)
    excess = set_gains.compute_excess(search.ranked, search.ranking, search.sets.best_of(members))
    assert_allclose(excess, gains[3], atol=1e-12)


@pytest.mark.parametrize("fewest", [1, 2, 3])
def test_branch_and_bound_finds_the_best_of_all_sets(fewest: int) -> None:
    search = make_search(fewest=fewest)
    every = [a for m in range(fewest, 4) for a in itertools.combinations(range(9), m)]
    best = max(map(search.value, every))
    found, ceiling = search.branch(search.improve(search.greedy(())), 10**6)
    assert search.value(found) == pytest.approx(best, abs=1e-12)
    assert ceiling == pytest.approx(best, abs=1e-12)
    _, early = search.branch(every[0], 3)  # stopped early, the ceiling still holds
    assert early >= best - 1e-12
