"""Limits in an outage: unavailable experts must not push the others over a limit."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot import Problem, Router, at_most
from bylot.limits.request import Ticket
from bylot.numerics.jit import Floats
from bylot.policies import Omd
from bylot.policies.base import learn
from sample_problem import make_reward_feedback

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


Q = np.array([0.1, 0.2, 0.3, 0.4])
AVAILABLE = np.array([True, False, True, True])
VALUES = np.array([[0.9, 0.1, 0.4, 0.2], [0.0, 0.7, 0.6, 0.1]])


def expected_reward(q: Floats) -> float:
    """Expected reward of two draws from q renormalised on the available, by enumeration."""
    p = np.where(AVAILABLE, q, 0.0) / q[AVAILABLE].sum()
    sequences = itertools.product(range(4), repeat=2)
    return sum(float(p[list(a)].prod() * VALUES[:, list(a)].max(axis=1).sum()) for a in sequences)


def mean_gradient(ignore_mask: bool) -> Floats:
    """The exact mean gradient that the policy learns from restricted decisions."""
    policy = Omd(eta=1.0, batch=1, baseline=False)
    rule = policy.bind(Problem(["a", "b", "c", "d"], {}, draws=2))
    p, mean = np.where(AVAILABLE, Q, 0.0) / Q[AVAILABLE].sum(), np.zeros(4)
    for draws_tuple in itertools.product([0, 2, 3], repeat=2):
        draws, state = np.array(draws_tuple), policy.start(rule)
        mask = np.empty(0, np.bool_) if ignore_mask else AVAILABLE
        available_mass, none = float(Q[AVAILABLE].sum()), np.empty(0)
        ticket = Ticket(0, 0, draws, p[draws], none, mask, available_mass, True, np.nan, 1.0, False)
        reward = float(VALUES[:, draws].max(axis=1).sum())
        learn(rule, state, ticket, make_reward_feedback(reward))
        mean += p[draws].prod() * state.g[0]
    return mean


def reward_gradient() -> Floats:
    """The derivative of `expected_reward`, by central differences."""
    h = 1e-6
    return np.array(
        [(expected_reward(Q + h * e) - expected_reward(Q - h * e)) / (2 * h) for e in np.eye(4)]
    )


def test_the_gradient_among_the_available_is_unbiased() -> None:
    assert_allclose(mean_gradient(ignore_mask=False), reward_gradient(), atol=1e-9)


def test_the_test_above_would_notice_a_reward_for_being_available() -> None:
    assert np.abs(mean_gradient(ignore_mask=True) - reward_gradient()).max() > 0.5


def test_the_dual_is_charged_for_the_available_experts() -> None:
    router = Router(POOL, "omd", seed=1)
    for _ in range(30):
        router.decide()
    router.decide(available=["m0", "m5"])
    q = router.core.state.q[0][[0, 5]]
    assert_allclose(router.core.state.dual.u, [(1.0 * q[0] + 0.1 * q[1]) / q.sum()], rtol=1e-12)


@pytest.mark.parametrize("policy", ["omd", "distinct", "tangent", "noisy-or"])
def test_all_experts_available_equals_the_default(policy: str) -> None:
    one, other = (Router(POOL, policy, seed=1) for _ in range(2))
    for _ in range(200):
        assert one.decide() == other.decide(available=POOL.experts)


def test_draws_among_the_available_follow_their_probabilities() -> None:
    router = Router(Problem(POOL.experts, {}, draws=3), "omd", seed=3)
    available = ["m1", "m3", "m4"]
    count = dict.fromkeys(available, 0)
    for _ in range(4_000):
        for name in router.decide(available=available).draws:
            count[name] += 1
    spread = np.sqrt(12_000 * (1 / 3) * (2 / 3))  # nothing was learned: a third each
    assert max(abs(n - 4_000) for n in count.values()) < 5 * spread
    assert abs(count["m1"] - 3_600) > 5 * spread  # a wrong probability would be noticed


def test_a_decision_of_experts_that_cannot_keep_a_limit_is_marked_infeasible() -> None:
    router = Router(POOL, "omd", seed=1)
    for _ in range(500):
        router.reward(router.decide().id, 0.5)
    # A price on dollars, and only the most expensive is available: 5 a draw, and 4/3 is allowed.
    router.core.state.dual.w[:] = 1.0
    before = router.core.state.q.copy()
    decision = router.decide(available=["m0"])
    assert_array_equal(router.core.state.q, before)  # the learned distribution is kept
    assert decision.subset == ("m0",)
    assert decision.draw_probabilities == (1.0, 1.0, 1.0)
    assert not decision.feasible
    assert router.decide().feasible


def test_a_renormalised_distribution_inside_the_constraint_is_unchanged() -> None:
    router = Router(POOL, "omd", seed=1)
    for _ in range(300):
        router.reward(router.decide().id, 0.5)
    router.core.state.dual.w[:] = 0.0
    decision = router.decide(available=["m0", "m1"])
    q = router.core.state.q[0][:2]
    by_name = {"m0": q[0] / q.sum(), "m1": q[1] / q.sum()}
    assert decision.draw_probabilities is not None
    exact = [by_name[name] for name in decision.draws]
    assert_allclose(decision.draw_probabilities, exact, rtol=1e-14)


def test_an_empty_surrogate_is_reported_in_every_round_of_a_batch() -> None:
    with pytest.warns(UserWarning, match="floor of 0.15"):
        router = Router(
            Problem(POOL.experts, dict(POOL.costs), [at_most("usd", 3.0)], draws=3, floor=0.15),
            "omd",
        )
    flags = [router.decide().feasible for _ in range(40)]
    assert not any(flags[20:])
    assert np.isfinite(router.core.state.q).all()
