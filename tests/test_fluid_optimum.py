"""The fluid optimum: equal to the best mixture where there is one window, and to a linear program
that is written down whole where there are several.
"""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import bylot
from bylot.errors import ValuesError
from bylot.numerics.jit import Floats
from bylot.optima import fluid_optimum, optimum

DAY_US, EXPERTS, COSTS = 86_400_000_000, ["a", "b", "c", "d"], [0.1, 1.0, 2.0, 4.0]
VALUES: Floats = (np.random.default_rng(0).random((50, 1, 4)) < [0.3, 0.5, 0.6, 0.8]).astype(float)


def make_problem(*limits: bylot.Limit) -> bylot.Problem:
    return bylot.Problem(EXPERTS, {"usd": COSTS}, limits, draws=2)


def test_one_window_has_the_value_of_the_best_mixture() -> None:
    budget = make_problem(bylot.at_most("usd", 200.0, per="day"))
    fluid = fluid_optimum(budget, VALUES, np.arange(100))
    mixture = optimum(make_problem(bylot.at_most("usd", 2.0)), VALUES)
    assert fluid.value / 100 == pytest.approx(mixture.value, rel=1e-9)
    assert fluid.gap <= 1e-9 * fluid.value


def test_a_limit_per_request_is_for_all_requests_together() -> None:
    average = make_problem(bylot.at_most("usd", 2.0))
    fluid = fluid_optimum(average, VALUES, np.arange(40) * DAY_US)
    assert fluid.value / 40 == pytest.approx(optimum(average, VALUES).value, rel=1e-9)


def test_nested_windows_equal_the_whole_linear_program() -> None:
    rng = np.random.default_rng(1)
    requests = rng.integers(5, 60, 35)  # on each day from 1 January 1970, over two months
    times = np.repeat(np.arange(35) * DAY_US, requests) + 5
    share = bylot.share("partner", ["c"])
    limits = [
        bylot.at_most("usd", 60.0, per="day"),
        bylot.at_most("usd", 1_000.0, per="month"),
        bylot.at_least(share, 0.3, per="week"),
    ]
    problem = make_problem(*limits)
    fluid = fluid_optimum(problem, VALUES, times)
    panels = list(itertools.combinations(range(4), 2))
    f = [VALUES[:, 0, list(one)].max(axis=1).mean() for one in panels]
    cost = [sum(COSTS[i] for i in one) for one in panels]
    partner = [float(2 in one) for one in panels]
    month, week = (np.arange(35) >= 31).astype(int), (np.arange(35) + 3) // 7  # a Thursday
    rows, right = [], list[float]()
    for day in range(35):
        only = (np.arange(35) == day).astype(float)
        rows += [np.outer(only, np.ones(6)).ravel(), np.outer(only, cost).ravel()]
        right += [float(requests[day]), 60.0]
    for number in range(2):
        rows.append(np.outer(month == number, cost).ravel())
        right.append(1_000.0)
    for number in range(int(week.max()) + 1):
        rows.append(np.outer(week == number, 0.3 - np.array(partner)).ravel())
        right.append(0.0)
    whole = linprog(np.tile(-np.array(f), 35), np.array(rows), np.array(right))
    assert whole.fun is not None
    assert fluid.value == pytest.approx(-whole.fun, rel=1e-9)
    assert fluid.gap <= 1e-9 * fluid.value
    assert fluid.spend[:, 0].max() <= 60.0 * (1 + 1e-9)
    assert (np.bincount(month, fluid.spend[:, 1]) <= 1_000.0 * (1 + 1e-9)).all()


def test_a_budget_that_is_too_small_refuses_some_requests() -> None:
    fluid = fluid_optimum(
        make_problem(bylot.at_most("usd", 11.0, per="hour")), VALUES, np.arange(100)
    )
    assert fluid.refused[0] == pytest.approx(90.0), "the cheapest panel costs 1.1"
    smaller = fluid_optimum(
        make_problem(bylot.at_most("usd", 11.0, per="hour")), VALUES, np.arange(100), fewer=True
    )
    assert smaller.refused[0] == pytest.approx(0.0, abs=1e-6)
    assert smaller.value > fluid.value


def test_the_certificate_notices_a_solution_that_is_not_the_best() -> None:
    problem = make_problem(bylot.at_most("usd", 200.0, per="day"))
    best = fluid_optimum(problem, VALUES, np.arange(100))
    tighter = make_problem(bylot.at_most("usd", 150.0, per="day"))
    assert fluid_optimum(tighter, VALUES, np.arange(100)).value < best.value <= best.ceiling


def test_no_requests_are_an_error() -> None:
    with pytest.raises(ValuesError, match="no requests"):
        fluid_optimum(make_problem(), VALUES, [])
