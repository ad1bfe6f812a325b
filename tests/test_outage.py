"""Limits through an outage: experts that are down must not push the others over a limit."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot import Problem, Router, at_most
from bylot.policies import Omd

POOL = Problem(
    ["m0", "m1", "m2", "m3", "m4", "m5"],
    {"usd": [5.0, 4.0, 3.0, 2.0, 1.0, 0.5]},
    [at_most("usd", 4.0)],
    draws=3,
)
WORTH = {"m0": 0.9, "m1": 0.8, "m2": 0.6, "m3": 0.5, "m4": 0.3, "m5": 0.2}


@pytest.mark.parametrize("policy", ["omd", "omd-plain", Omd(freeze_dual_in_batch=True)], ids=str)
def test_a_long_outage_of_the_cheapest_does_not_break_the_budget(policy: str | Omd) -> None:
    router = Router(POOL, policy, seed=1)
    for _ in range(20_000):
        decision = router.decide(available=["m0", "m1", "m2", "m3", "m4"])
        assert "m5" not in decision.subset
        router.reward(decision.id, max(WORTH[name] for name in decision.subset))
    assert router.status().kept


def test_experts_that_cannot_keep_a_limit_are_drawn_and_the_decision_says_so() -> None:
    router = Router(POOL, seed=1)
    for _ in range(500):
        router.reward(router.decide().id, 0.5)
    # A price on dollars, and only the dearest is up: 5 a draw where the surrogate allows 4/3.
    router.state.dual.w[:] = 1.0
    decision = router.decide(available=["m0"])
    assert decision.subset == ("m0",)
    assert decision.odds == (1.0, 1.0, 1.0)
    assert not decision.feasible
    assert router.decide().feasible


def test_a_renormalised_law_inside_the_constraint_is_left_as_it_is() -> None:
    router = Router(POOL, seed=1)
    for _ in range(300):
        router.reward(router.decide().id, 0.5)
    router.state.dual.w[:] = 0.0
    decision = router.decide(available=["m0", "m1"])
    q = router.state.q[0][:2]
    odds = {"m0": q[0] / q.sum(), "m1": q[1] / q.sum()}
    assert_allclose(decision.odds, [odds[name] for name in decision.draws], rtol=1e-14)


def test_an_empty_surrogate_is_reported_in_every_round_of_a_batch() -> None:
    with pytest.warns(UserWarning, match="floor of 0.15"):
        router = Router(
            Problem(POOL.experts, dict(POOL.costs), [at_most("usd", 3.0)], draws=3, floor=0.15)
        )
    flags = [router.decide().feasible for _ in range(40)]
    assert not any(flags[20:])
    assert np.isfinite(router.state.q).all()
