"""Prices in the status: an average of readings with its spread, which continues bit for bit."""

from pathlib import Path

import numpy as np
import pytest

import bylot
from bylot.optima import ValueStack, optimum
from bylot.problem import Problem, at_most
from bylot.router.core_status import report_status
from bylot.router.edits import change_problem
from bylot.router.price_average import MEMORY_READINGS, PriceAverage
from bylot.server.metrics import ServerMetrics
from played_routers import PlayedRouter
from sample_problem import make_five_expert_problem, make_stationary_environment

PERIOD = 1_000


def play_some(seed: int, rounds: int, policy: str = "distinct") -> bylot.Router:
    router = bylot.Router(make_five_expert_problem().replace(period=PERIOD), policy, seed=seed)
    bylot.play(router, make_stationary_environment(), rounds)
    return router


def test_an_average_price_is_that_of_the_optimum_within_its_spread_and_a_reading_may_not_be() -> (
    None
):
    values = make_stationary_environment().rounds(0, 4_000, seed=99).values
    true = np.abs(optimum(make_five_expert_problem(), ValueStack(values)).prices)
    outside = []
    for seed in range(5):
        router = play_some(seed, 6 * PERIOD)
        usd, *others = router.status().limits
        assert usd.price is not None
        assert usd.price_spread is not None
        assert abs(usd.price - true[0]) <= usd.price_spread <= 0.1 * true[0]
        outside.append(abs(router.core.read_prices()[0] - true[0]) > usd.price_spread)
        assert [one.price for one in others] == [0.0, 0.0]  # these do not bind
    assert any(outside)


@pytest.mark.parametrize("policy", ["noisy-or", "tangent", "cbwk", "omd", "strict"])
def test_every_policy_with_prices_has_an_average_and_a_spread(policy: str) -> None:
    router = play_some(0, 500, policy)
    usd = router.status().limits[0]
    assert usd.price is not None
    assert usd.price >= 0.0
    assert usd.price_spread is not None
    assert usd.price_spread > 0.0
    assert f"{usd.price:.4g} ± {usd.price_spread:.2g}" in str(router.status())


def test_averages_weigh_readings_by_their_number_and_then_exponentially() -> None:
    readings = np.random.default_rng(3).random(3 * MEMORY_READINGS)
    average, weights = PriceAverage(), np.zeros(readings.size)
    for n, price in enumerate(readings):
        average.add(float(price))
        a = max(1 / MEMORY_READINGS, 2 / (n + 2))
        weights *= 1 - a
        weights[n] = a
        mean = weights @ readings
        assert average.mean == pytest.approx(mean)
        assert average.variance == pytest.approx(weights @ (readings - mean) ** 2)
        if n == 9:
            assert weights[:10] == pytest.approx(np.arange(1, 11) / 55)


def test_averages_of_a_saved_router_continue_bit_for_bit(tmp_path: Path) -> None:
    router, environment = play_some(1, 350), make_stationary_environment()
    router.save(tmp_path / "router.bylot")
    loaded = bylot.Router.load(tmp_path / "router.bylot")
    assert loaded.core.prices == router.core.prices
    for one in (router, loaded):
        bylot.play(one, environment, 350)
    assert loaded.core.prices == router.core.prices
    assert router.core.prices[0].readings == 7


def test_a_change_of_a_bound_starts_its_average_anew_and_no_other() -> None:
    core, old = play_some(2, 400).core, make_five_expert_problem().replace(period=PERIOD)
    before = core.prices
    change_problem(core, old.replace(limits=[at_most("usd", 2.5), *old.limits[1:]]))
    assert [one.readings for one in core.prices] == [0, *(one.readings for one in before[1:])]
    assert report_status(core).limits[0].price_spread is None


def test_the_price_of_a_limit_that_leaves_no_choice_stays_unknown() -> None:
    tight = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 3.0]}, [at_most("usd", 3.0)], draws=2)
    router = bylot.Router(tight, "noisy-or")
    for _ in range(220):
        router.reward(router.decide().id, 0.5)
    assert router.status().limits[0].price is None
    assert router.core.prices == [PriceAverage()]


def test_metrics_have_the_price_and_its_spread() -> None:
    view = PlayedRouter("triage", make_five_expert_problem(), [None]).play(300).view()
    text = ServerMetrics().render([view]).decode()
    usd = view.status.limits[0]
    labels = '{cost="usd",per="request",router="triage",scope="",side="at_most",where=""}'
    assert f"bylot_limit_price{labels} {usd.price}" in text
    assert f"bylot_limit_price_spread{labels} {usd.price_spread}" in text
