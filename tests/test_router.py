"""The router: late, repeated, invalid and missing rewards; unavailable experts; contexts."""

import copy
import math
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bylot import Decision, Problem, Receipt, Router, at_most, iid_optimum, simulate
from bylot.environments import Given
from bylot.environments.synthetic import make_crowd_environment, make_crowd_problem
from bylot.errors import DecisionError, PolicyError, RewardConflict, RewardError
from bylot.numerics.sampling import add_gradient
from bylot.numerics.sum_max import sum_max
from bylot.policies import POLICIES, POLICY_CLASSES, Omd
from bylot.router.core import iterate_arrays
from sample_problem import make_five_expert_problem, make_recorded_environment

POSITION = {name: i for i, name in enumerate(make_five_expert_problem().experts)}


def compute_reward(decision: Decision, values: Any) -> float:
    """The reward of a panel: the sum over dimensions of its best member's value."""
    return float(sum(max(row[POSITION[name]] for name in decision.subset) for row in values))


def snapshot_router(router: Router) -> list[Any]:
    """The whole state of a router, as plain data that can be compared bit for bit."""
    arrays = [
        leaf.tolist()
        for leaf in [*iterate_arrays(router.core.state), *iterate_arrays(router.core.totals)]
    ]
    waiting = {t: opened.ticket for t, opened in router.engine.open}
    return [arrays, list(router.core.contexts), str(waiting)]


def play_router(router: Router, environment: Given, start: int, stop: int) -> list[Decision]:
    """Play rounds of the environment with the router, each with an immediate reward."""
    values, contexts = environment.rounds(start, stop, 0)
    decisions = []
    for V, x in zip(values, contexts.tolist(), strict=True):
        decision = router.decide(context=f"kind {x}")
        assert router.reward(decision.id, compute_reward(decision, V)) is Receipt.LEARNED
        decisions.append(decision)
    return decisions


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("horizon", [None, 300])
def test_router_and_simulator_produce_the_same_trace(policy: str, horizon: int | None) -> None:
    environment = make_recorded_environment(300)
    router = Router(make_five_expert_problem(), policy, seed=9, horizon=horizon)
    decisions = play_router(router, environment, 0, 300)
    trace = simulate(
        make_five_expert_problem(), environment, policy, rounds=300, seed=9, horizon=horizon
    )
    assert_array_equal([[POSITION[n] for n in d.draws] for d in decisions], trace.draws)
    unknown = (math.nan, math.nan)
    assert_array_equal(
        [d.draw_probabilities or unknown for d in decisions], trace.record.draw_probabilities
    )
    status = router.status()
    # Sums in another order of additions: equal to rounding only.
    assert_allclose([one.mean for one in status.limits], trace.mean_spend()[-1], rtol=1e-12)
    assert status.mean_reward is not None
    assert_allclose(status.mean_reward, trace.rewards.mean(), rtol=1e-12)


@pytest.mark.parametrize("policy", ["omd", "distinct", "tangent"])
def test_router_and_simulator_agree_with_many_contexts(policy: str) -> None:
    environment = make_recorded_environment(300, contexts=7)
    first_seen = list(dict.fromkeys(environment.index.tolist()))
    renumbered = Given(environment.values, [first_seen.index(x) for x in environment.index])
    decisions = play_router(Router(make_five_expert_problem(), policy, seed=2), environment, 0, 300)
    trace = simulate(make_five_expert_problem(), renumbered, policy, rounds=300, seed=2)
    unknown = (math.nan, math.nan)
    recorded_probabilities = [d.draw_probabilities or unknown for d in decisions]
    assert_array_equal(recorded_probabilities, trace.record.draw_probabilities)
    if policy != "omd":
        assert_array_equal([d.propensity for d in decisions], trace.record.propensities)


def test_a_repeated_reward_is_a_duplicate_and_another_value_a_conflict() -> None:
    router = Router(make_five_expert_problem())
    decision = router.decide()
    assert router.reward(decision.id, 0.5) == "learned"
    before = snapshot_router(router)
    assert router.reward(decision.id, 0.5) == "duplicate"
    with pytest.raises(RewardConflict, match=r"decision d0 already has reward 0\.5"):
        router.reward(decision.id, 0.6)
    assert snapshot_router(router) == before


@pytest.mark.parametrize(
    "id", ["d1", "d-1", "d01", "1", "", "nonsense", "d" + "9" * 40, "d٣", "d 0", "d+0", "d0_0"]
)
def test_a_reward_for_a_decision_never_made_is_unknown(id: Any) -> None:
    router = Router(make_five_expert_problem())
    router.decide()
    before = snapshot_router(router)
    assert router.reward(id, 0.5) is Receipt.UNKNOWN
    assert snapshot_router(router) == before


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -0.01, 1.01, 10**400, "0.5", None, 1j]
)
def test_an_invalid_reward_is_refused_and_changes_nothing(value: Any) -> None:
    router = Router(make_five_expert_problem())
    decision = router.decide()
    before = snapshot_router(router)
    words = rf"invalid reward {re.escape(repr(value))}: .* for decision d0; nothing was changed"
    with pytest.raises(RewardError, match=words):
        router.reward(decision.id, value)
    assert snapshot_router(router) == before
    assert router.reward(decision.id, np.float64(0.5)) is Receipt.LEARNED


@pytest.mark.parametrize("id", [None, 0, ("d0",)])
def test_an_id_that_is_not_a_string_is_refused_with_a_hint(id: Any) -> None:
    router = Router(make_five_expert_problem())
    router.decide()
    with pytest.raises(RewardError, match=r"pass decision\.id"):
        router.reward(id, 0.5)


def test_a_copy_of_a_router_is_independent() -> None:
    router = Router(make_five_expert_problem(), seed=5)
    play_router(router, make_recorded_environment(40), 0, 40)
    for router_copy in (copy.deepcopy(router), pickle.loads(pickle.dumps(router))):
        assert snapshot_router(router_copy) == snapshot_router(router)
        before = snapshot_router(router)
        play_router(router_copy, make_recorded_environment(60), 40, 60)
        assert snapshot_router(router) == before


@pytest.mark.parametrize("policy", ["omd", "distinct", "tangent"])
def test_the_price_is_in_the_unit_of_the_rewards(policy: str) -> None:
    unit, percent = (
        Router(make_five_expert_problem(), policy),
        Router(make_five_expert_problem(), policy, rewards=(0.0, 64.0)),
    )
    for _ in range(200):
        for router, most in ((unit, 1.0), (percent, 64.0)):
            decision = router.decide()
            # The most expensive are the best
            router.reward(decision.id, most * decision.spend["usd"] / 8)
    prices = [[one.price or 0.0 for one in router.status().limits] for router in (unit, percent)]
    assert max(prices[0]) > 0
    assert_allclose(np.array(prices[1]), 64 * np.array(prices[0]), rtol=1e-9)


def test_a_late_reward_is_credited_to_its_own_decision() -> None:
    router = Router(make_five_expert_problem(), Omd(batch=1, baseline=False, eta=1.0))
    early = router.decide()
    for _ in range(5):
        router.reward(router.decide().id, 0.9)
    before = router.core.state.g[0].copy()
    router.reward(early.id, 0.25)
    expected = before.copy()
    add_gradient(
        expected,
        np.array([POSITION[n] for n in early.draws]),
        np.array(early.draw_probabilities),
        0.25,
    )
    assert_array_equal(router.core.state.g[0], expected)


@given(order=st.permutations(range(6)))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_the_order_of_rewards_within_a_batch_does_not_matter(order: list[int]) -> None:
    routers = [Router(make_five_expert_problem(), Omd(baseline=False)) for _ in range(2)]
    values = [0.1, 0.9, 0.3, 0.7, 0.2, 0.4]
    for router, sequence in zip(routers, (range(6), order), strict=True):
        decisions = [router.decide() for _ in range(6)]
        for n in sequence:
            router.reward(decisions[n].id, values[n])
    assert_allclose(routers[0].core.state.g, routers[1].core.state.g, rtol=1e-12)


@pytest.mark.parametrize("policy", ["omd", "tangent"])
def test_limits_are_kept_even_without_rewards(policy: str) -> None:
    problem = Problem(["cheap", "expensive"], {"usd": [0.1, 1.0]}, [at_most("usd", 0.4)], draws=2)
    router = Router(problem, policy)
    for _ in range(4_000):
        router.decide()
    status = router.status()
    assert status.kept
    assert status.waiting == 4_000


@pytest.mark.parametrize("policy", POLICY_CLASSES)
def test_threads_share_a_router_without_losing_anything(policy: str) -> None:
    router = Router(make_five_expert_problem(), policy)

    def serve_requests(worker: int) -> list[str]:
        ids = []
        for n in range(300):
            decision = router.decide(f"context {(worker * n) % 40}")
            router.reward(decision.id, 0.5)
            ids.append(decision.id)
        return ids

    with ThreadPoolExecutor(4) as pool:
        ids = [id for part in pool.map(serve_requests, range(4)) for id in part]
    assert len(set(ids)) == 1_200
    assert router.status().rewards == 1_200
    assert int(router.core.state.visits.sum()) == 1_200


def test_the_reward_of_a_decision_beyond_memory_is_late() -> None:
    router = Router(make_five_expert_problem(), memory=3)
    ids = [router.decide().id for _ in range(5)]
    assert [router.reward(id, 0.5) for id in ids] == ["late", "late"] + ["learned"] * 3


def test_only_available_experts_are_drawn_with_renormalised_probabilities() -> None:
    router = Router(make_five_expert_problem(), "omd", seed=1)
    play_router(router, make_recorded_environment(50), 0, 50)
    for _ in range(50):
        decision = router.decide("kind 0", available=["bob", "dan", "eve"])
        assert set(decision.subset) <= {"bob", "dan", "eve"}
        q = router.core.state.q[0]
        available_mass = q[[1, 3, 4]].sum()
        assert decision.draw_probabilities is not None
        exact = [q[POSITION[n]] / available_mass for n in decision.draws]
        assert_allclose(decision.draw_probabilities, exact, rtol=1e-14)
        # Only eve is available and junior
        assert_allclose(
            decision.expected["junior"], 1 - (1 - q[4] / available_mass) ** 2, rtol=1e-12
        )


@pytest.mark.parametrize(
    ("available", "words"),
    [
        ([], "no expert is available"),
        (["zoe"], "no expert 'zoe'"),
        (["anne"], "did you mean 'ann'"),
        ("ann", "list of names"),
    ],
)
def test_invalid_availability_is_refused_and_changes_nothing(available: Any, words: str) -> None:
    router = Router(make_five_expert_problem())
    router.decide()
    before = snapshot_router(router)
    with pytest.raises(DecisionError, match=words):
        router.decide("new context", available)
    assert snapshot_router(router) == before


def test_contexts_past_the_declared_maximum_are_refused() -> None:
    router = Router(make_five_expert_problem(), max_contexts=2)
    router.decide("a")
    router.decide("b")
    router.decide("a")
    before = snapshot_router(router)
    with pytest.raises(DecisionError, match=r"number 3.*declared for 2"):
        router.decide("c")
    for label in (7, ["a"]):
        with pytest.raises(DecisionError, match="expected a string or None"):
            router.decide(label)  # type: ignore[arg-type]
    assert snapshot_router(router) == before


def test_each_context_learns_separately() -> None:
    router = Router(make_five_expert_problem(), Omd(eta=5.0, batch=1))
    for _ in range(300):
        for context, star in (("heart", "ann"), ("brain", "dan")):
            decision = router.decide(context)
            router.reward(decision.id, 1.0 if star in decision.subset else 0.0)
    heart, brain = router.core.state.q[0], router.core.state.q[1]
    assert heart[POSITION["ann"]] > 0.3 > brain[POSITION["ann"]]
    assert brain[POSITION["dan"]] > 0.5 > heart[POSITION["dan"]]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"seed": -1}, PolicyError, "seed=-1"),
        ({"seed": 0.5}, PolicyError, r"seed=0\.5"),
        ({"seed": 2**63}, PolicyError, "seed="),
        ({"horizon": 0}, PolicyError, "horizon=0"),
        ({"rewards": (1.0, 1.0)}, RewardError, "low < high"),
        ({"rewards": (0.0, math.inf)}, RewardError, "finite range"),
        (
            {"policy": "best"},
            PolicyError,
            "no policy 'best'; the ones there are: auto, distinct, noisy-or",
        ),
        (
            {"policy": "distinkt"},
            PolicyError,
            "did you mean 'distinct'\\? The ones there are: auto, dist",
        ),
        ({"policy": None}, PolicyError, "None is no policy"),
        ({"policy": Omd}, PolicyError, "<class .* is no policy"),
        ({"rewards": 10}, RewardError, "wanted a pair"),
        ({"rewards": (0, 1, 2)}, RewardError, "wanted a pair"),
        ({"memory": 0}, PolicyError, "memory=0"),
        ({"max_contexts": 0}, PolicyError, "max_contexts=0"),
    ],
)
def test_invalid_settings_of_a_router_are_refused(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Router(make_five_expert_problem(), **settings)


def test_a_declared_range_is_mapped_to_the_unit_interval() -> None:
    unit, percent = (
        Router(make_five_expert_problem(), "omd", rewards=declared)
        for declared in ((0, 1), (-100, 100))
    )
    for n in range(64):
        share = (n % 5) / 4
        assert unit.decide().draws == percent.decide().draws
        unit.reward(f"d{n}", share)
        percent.reward(f"d{n}", 200 * share - 100)
    assert_allclose(unit.core.state.q, percent.core.state.q, rtol=1e-13)
    assert percent.status().mean_reward == pytest.approx(
        200 * (unit.status().mean_reward or 0) - 100
    )


def test_the_status_prints_counts_limits_and_probabilities() -> None:
    router = Router(make_five_expert_problem(), "omd", seed=4)
    play_router(router, make_recorded_environment(200), 0, 200)
    text = str(router.status())
    assert "200 decisions, 200 rewards" in text
    assert "guard" not in text
    assert "usd <=" in text
    assert "junior >=" in text
    assert "draw probabilities now:" in text
    assert str(Router(make_five_expert_problem()).status()).startswith("0 decisions")


def test_prices_approach_the_multipliers_of_the_optimum() -> None:
    pool = make_crowd_problem()
    values = make_crowd_environment(pool).rounds(0, 20_000, seed=0).values
    router = Router(pool, "omd", horizon=20_000)
    position = {name: i for i, name in enumerate(pool.experts)}
    for matrix in values:
        decision = router.decide()
        panel = np.array([position[name] for name in decision.subset])
        router.reward(decision.id, sum_max(matrix, panel))
    learned = [one.price for one in router.status().limits]
    true = np.abs(iid_optimum(pool, values, floor=True).prices)
    # Early steps weigh as much as late ones, so the average approaches the truth from above.
    assert learned[0] == pytest.approx(true[0], abs=1e-3)
    assert true[1] <= learned[1] <= 2 * true[1]
    assert true[2] <= learned[2] <= 2 * true[2]


@pytest.mark.parametrize("value", [True, False, np.True_])
def test_true_and_false_are_the_rewards_1_and_0(value: bool) -> None:
    routers = [Router(make_five_expert_problem(), "omd") for _ in range(2)]
    for router, reward in zip(routers, (value, float(value)), strict=True):
        assert router.reward(router.decide().id, reward) is Receipt.LEARNED
    assert routers[0].status() == routers[1].status()
    assert routers[0].reward("d0", float(value)) is Receipt.DUPLICATE
