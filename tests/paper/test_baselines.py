"""The paper's seven baselines, round by round against a reference of its section 6.3.

The reference keeps lists and dictionaries, sorts, and shares nothing with the compiled policies but
the random inputs: uniforms, Beta and Gumbel draws.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot import Problem, Router, Trace, at_least, at_most, simulate
from bylot.environments import Given, Noisy
from bylot.environments.synthetic import make_crowd_environment, make_crowd_problem
from bylot.errors import PolicyError
from bylot.limits.request import Ticket, Unlimited, View
from bylot.policies import POLICIES, Policy
from bylot.policies.base import Feedback, FeedbackKind, compute_inclusion
from bylot_paper.policies.bandits import Cbwk, Cucb, Greedy, Moe, Ts, TsBwk
from bylot_paper.policies.baselines import EVIDENCE, fill_evidence
from reference_baseline import SEED, ReferenceBaseline
from sample_problem import make_five_expert_problem, make_recorded_environment

WITHOUT_PROPENSITIES = [
    n
    for n, p in POLICIES.items()
    if not (p.draws_iid or p.draws_sets or n in ("noisy-or", "c2mab-v"))
]
CASES: Mapping[str, Policy] = {
    **{n: POLICIES[n] for n in WITHOUT_PROPENSITIES},
    "moe, quick": Moe(rate=0.3, step=0.05),
    "moe, instant": Moe(rate=0.3, step=0.05, dual_on="instant"),
    "cbwk, little bonus": Cbwk(c=0.2, step=3.0, dual_on="instant"),
}
UNLIMITED = Problem(make_five_expert_problem().experts, {}, draws=2)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("contexts", "horizon"), [(1, 400), (3, None)])
def test_the_compiled_policy_plays_what_the_paper_describes(
    case: str, contexts: int, horizon: int | None
) -> None:
    problem, environment, policy = (
        make_five_expert_problem(),
        make_recorded_environment(400, contexts),
        CASES[case],
    )
    trace = simulate(problem, environment, policy, rounds=400, seed=SEED, horizon=horizon)
    reference = ReferenceBaseline(problem, policy, horizon)
    for t, (V, x) in enumerate(zip(environment.values, environment.index.tolist(), strict=True)):
        draws = reference.decide(x, t, set(range(5)))
        assert trace.draws[t].tolist() == draws, t
        reference.learn(x, set(draws), float(V[:, draws].max(axis=1).sum()))


@pytest.mark.parametrize("feedback", ["members", "winner"])
@pytest.mark.parametrize("case", [n for n, p in CASES.items() if "members" in p.feedback])
def test_a_policy_learns_own_scores_or_who_won_if_these_are_reported(
    case: str, feedback: Literal["members", "winner"]
) -> None:
    problem, environment, policy = (
        make_five_expert_problem(),
        make_recorded_environment(400, 2),
        CASES[case],
    )
    settings: Any = {"rounds": 400, "seed": SEED}
    trace = simulate(problem, environment, policy, feedback=feedback, **settings)
    reference = ReferenceBaseline(problem, policy, None)
    for t, (V, x) in enumerate(zip(environment.values, environment.index.tolist(), strict=True)):
        draws = reference.decide(x, t, set(range(5)))
        assert trace.draws[t].tolist() == draws, t
        seen = {i: float(sum(V[:, i].tolist())) for i in draws}
        reward = float(V[:, draws].max(axis=1).sum())
        if feedback == "winner":
            best = max(seen, key=lambda i: seen[i])
            seen = {i: reward if i == best else 0.0 for i in draws}
        reference.learn(x, set(draws), reward, seen)
    panel = simulate(problem, environment, policy, **settings)
    assert (trace.draws != panel.draws).any()


@pytest.mark.parametrize(
    ("kind", "reward", "scores", "winner", "evidence"),
    [
        ("panel", 0.7, [0.1, 0.2, 0.1], 4, [0.7, 0.7, None]),
        ("members", 0.7, [0.1, 0.2, 0.1], -1, [0.1, 0.2, None]),
        ("members", 0.7, [0.1, math.nan, 0.1], -1, [0.1, None, None]),  # missing is not zero
        ("members", 0.7, [], -1, [None, None, None]),
        ("winner", 0.7, [], 4, [0.7, 0.0, None]),
        ("winner", 0.7, [], -1, [None, None, None]),  # somebody won, and nobody knows who
        ("winner", 0.0, [], -1, [0.0, 0.0, None]),
    ],
)
def test_what_a_baseline_sees_of_each_member(
    kind: FeedbackKind,
    reward: float,
    scores: list[float],
    winner: int,
    evidence: list[float | None],
) -> None:
    found, draws = np.empty(3), np.array([4, 1, 4])
    fill_evidence(found, EVIDENCE[kind], draws, Feedback(reward, np.array(scores), winner))
    assert [None if math.isnan(one) else one for one in found.tolist()] == evidence


@pytest.mark.parametrize("case", CASES)
def test_with_outages_and_late_or_missing_rewards_the_policy_equals_the_reference(
    case: str,
) -> None:
    problem, policy, rng = make_five_expert_problem(draws=3), CASES[case], np.random.default_rng(8)
    router, reference = Router(problem, policy, seed=SEED), ReferenceBaseline(problem, policy, None)
    position = {name: i for i, name in enumerate(problem.experts)}
    unrewarded = []
    for t in range(300):
        x, mask = int(rng.integers(2)), rng.random(5) < (0.6 if t % 3 else 2.0)
        mask[rng.integers(5)] = True
        available = {int(i) for i in np.flatnonzero(mask)}
        decision = router.decide(f"context {x}", [problem.experts[i] for i in available])
        draws = reference.decide(x, t, available)
        assert [position[name] for name in decision.draws] == draws, t
        assert set(decision.subset) == {problem.experts[i] for i in draws}
        unrewarded.append((decision.id, x, set(draws), float(rng.random())))
        while len(unrewarded) > 5:
            id, x, panel, reward = unrewarded.pop(int(rng.integers(5)))
            if rng.random() < 0.8:
                router.reward(id, reward)
                reference.learn(x, panel, reward)


def test_the_tests_above_would_notice_another_step() -> None:
    policies: list[Policy] = [Cbwk(step=3.0), Cbwk(step=3.1), Moe(rate=0.3), Moe(rate=0.31)]
    draws = [
        simulate(make_five_expert_problem(), make_recorded_environment(), policy, rounds=400).draws
        for policy in policies
    ]
    assert (draws[0] != draws[1]).any()
    assert (draws[2] != draws[3]).any()


@pytest.mark.parametrize(
    ("aware", "unaware"),
    [(Cbwk(), Cucb()), (TsBwk(), Ts()), (Cbwk(c=0), Greedy()), (Cbwk(c=0.5), Cucb(c=0.5))],
    ids=str,
)
def test_without_limits_a_policy_with_knapsacks_equals_the_one_without(
    aware: Policy, unaware: Policy
) -> None:
    traces = [
        simulate(UNLIMITED, make_recorded_environment(), policy, rounds=400)
        for policy in (aware, unaware)
    ]
    for first_array, second_array in zip(traces[0].record, traces[1].record, strict=True):
        assert_array_equal(first_array, second_array)
    limited = simulate(make_five_expert_problem(), make_recorded_environment(), aware, rounds=400)
    assert (limited.draws != traces[0].draws).any()


@pytest.mark.parametrize("name", [n for n, policy in POLICIES.items() if not policy.uses_limits])
def test_a_policy_without_limits_ignores_them(name: str) -> None:
    traces = [
        simulate(pool, make_recorded_environment(), name, rounds=400)
        for pool in (UNLIMITED, make_five_expert_problem())
    ]
    assert_array_equal(traces[0].draws, traces[1].draws)


def list_panels(trace: Trace, start: int = 0) -> set[frozenset[int]]:
    """The different panels that were played."""
    return {frozenset(panel) for panel in trace.draws[start:].tolist()}


@pytest.mark.parametrize("name", ["greedy", "cucb"])
def test_a_shared_reward_locks_indices_to_the_panels_of_the_warm_up(name: str) -> None:
    unlimited = Problem([f"w{i}" for i in range(50)], {}, draws=5)
    trace = simulate(unlimited, make_crowd_environment(make_crowd_problem()), name, rounds=5_000)
    warmup_panels = {frozenset(panel) for panel in trace.draws[:10].tolist()}
    assert len(warmup_panels) == 10
    assert sorted(i for panel in warmup_panels for i in panel) == list(range(50))
    assert list_panels(trace) == warmup_panels
    # Others are not locked: a draw distinguishes two experts with the same past.
    assert (
        len(
            list_panels(
                simulate(
                    unlimited, make_crowd_environment(make_crowd_problem()), "ts", rounds=5_000
                )
            )
        )
        > 100
    )


EXPENSIVE_EXPERTS = Problem(
    [f"expensive {i}" for i in range(5)] + [f"cheap {i}" for i in range(15)],
    {"usd": [1.0] * 5 + [0.1] * 15},
    [at_most("usd", 0.6)],
    draws=3,
)
EXPENSIVE_ARE_BETTER = Noisy([[0.9] * 5 + [0.5] * 15])


def simulate_mean_cost(
    policy: str, problem: Problem = EXPENSIVE_EXPERTS, environment: Noisy = EXPENSIVE_ARE_BETTER
) -> float:
    """Mean cost under the first limit of 5,000 rounds."""
    trace = simulate(problem, environment, policy, rounds=5_000, horizon=5_000)
    return float(trace.spend[:, 0].mean())


@pytest.mark.parametrize("policy", ["cbwk-instant", "ts-bwk-instant"])
def test_policies_that_use_limits_keep_a_budget(policy: str) -> None:
    # lam sums up 10 / sqrt(T) times the violations, so their mean is at most lam / (10 sqrt(T));
    # and a lam of 2 outweighs any reward.
    assert simulate_mean_cost(policy) <= 0.6 + 2 / (10 * math.sqrt(5_000))


@pytest.mark.parametrize("policy", ["greedy", "cucb", "ts"])
def test_policies_that_ignore_limits_break_a_budget(policy: str) -> None:
    assert simulate_mean_cost(policy) > 0.9


JUNIOR = Problem(
    [f"w{i}" for i in range(20)],
    {"junior": [0.0] * 15 + [2.0] * 5},
    [at_least("junior", 1.0)],
    draws=3,
)
JUNIORS_ARE_WORSE = Noisy([[0.8] * 15 + [0.2] * 5])


@pytest.mark.parametrize("policy", ["cbwk", "ts-bwk", "cbwk-instant", "ts-bwk-instant"])
def test_policies_that_use_limits_approach_a_lower_limit(policy: str) -> None:
    assert simulate_mean_cost(policy, JUNIOR, JUNIORS_ARE_WORSE) > 0.97
    assert simulate_mean_cost("ts", JUNIOR, JUNIORS_ARE_WORSE) < 0.7


def test_moe_learns_rewards_and_limits() -> None:
    unlimited = Problem(EXPENSIVE_EXPERTS.experts, {"usd": EXPENSIVE_EXPERTS.costs["usd"]}, draws=3)
    environment = Noisy([[0.9] * 5 + [0.1] * 15])
    quick = Moe(rate=0.05, step=0.05)
    expensive_shares = [
        float((simulate(pool, environment, quick, rounds=5_000).draws[-1_000:] < 5).mean())
        for pool in (unlimited, EXPENSIVE_EXPERTS)
    ]
    assert expensive_shares[0] > 0.9
    assert expensive_shares[1] < expensive_shares[0] - 0.2


@pytest.mark.parametrize("factor", [1024.0, 1 / 4096])
@pytest.mark.parametrize("policy", ["cbwk", "ts-bwk-instant", Moe(rate=0.3, step=0.05)], ids=str)
def test_the_unit_of_a_cost_changes_no_decision(policy: str | Policy, factor: float) -> None:
    other = Problem(
        make_five_expert_problem().experts,
        {
            **make_five_expert_problem().costs,
            "usd": factor * make_five_expert_problem().costs["usd"],
        },
        [
            one.at(one.bound * factor) if one.name == "usd" else one
            for one in make_five_expert_problem().limits
        ],
        draws=2,
    )
    traces = [
        simulate(pool, make_recorded_environment(), policy, rounds=400)
        for pool in (make_five_expert_problem(), other)
    ]
    assert_array_equal(traces[0].draws, traces[1].draws)


def test_moe_draws_follow_the_gumbel_distribution() -> None:
    theta = np.array([0.0, 0.5, 1.0, -1.0])
    p = np.exp(theta) / np.exp(theta).sum()
    probabilities = {(i, j): p[i] * p[j] / (1 - p[i]) for i in range(4) for j in range(4) if i != j}
    policy, n = Moe(rate=1e-9), 20_000
    router = Router(Problem(list("abcd"), {}, draws=2), policy, seed=2)
    router.core.state.theta[:] = theta
    count = dict.fromkeys(probabilities, 0)
    for _ in range(n):
        draws = router.decide().draws
        count["abcd".index(draws[0]), "abcd".index(draws[1])] += 1
    z = {key: (count[key] - n * q) / math.sqrt(n * q * (1 - q)) for key, q in probabilities.items()}
    assert max(map(abs, z.values())) < 5
    flat = [(n_ij - n / 12) / math.sqrt(n / 12) for n_ij in count.values()]
    assert max(map(abs, flat)) > 5  # equal probabilities would be noticed


def test_an_expert_unavailable_in_the_warm_up_is_tried_later() -> None:
    router = Router(UNLIMITED, "cucb", seed=1)
    for _ in range(3):
        router.reward(router.decide(available=["ann", "bob", "cat", "dan"]).id, 1.0)
    assert "eve" in router.decide().subset


def test_expected_costs_are_of_a_random_panel_for_random_and_of_the_panel_otherwise() -> None:
    pool = make_five_expert_problem(draws=3)
    for available in (None, ["ann", "bob", "cat", "dan"], ["ann", "eve"]):
        names = available or list(pool.experts)
        usd = dict(zip(pool.experts, pool.costs["usd"], strict=True))
        decision = Router(pool, "random").decide(available=available)
        share = min(1.0, 3 / len(names))
        assert decision.expected["usd"] == pytest.approx(share * sum(usd[n] for n in names))
        decision = Router(pool, "cucb").decide(available=available)
        assert decision.expected == pytest.approx(decision.spend)


def test_inclusion_of_omd_is_the_probability_of_being_drawn_at_least_once() -> None:
    policy = POLICIES["omd"]
    rule = policy.bind(UNLIMITED)
    state = policy.start(rule)
    ticket = Ticket(
        0,
        0,
        np.array([0, 0]),
        np.array([0.2, 0.2]),
        np.empty(0),
        np.empty(0, np.bool_),
        1.0,
        True,
        np.nan,
        1.0,
        False,
    )
    view = View(Unlimited(2), 0, ticket.available, False, False)
    assert_allclose(compute_inclusion(rule, state, view, ticket), np.full(5, 1 - 0.8**2))


@pytest.mark.parametrize("name", WITHOUT_PROPENSITIES)
def test_probabilities_are_unknown_and_the_status_shows_who_was_drawn(name: str) -> None:
    router = Router(make_five_expert_problem(), name, seed=3, rewards=(0.0, 8.0))
    assert set(router.status().q.values()) == {0.2}
    decisions = [router.decide() for _ in range(40)]
    assert all((d.draw_probabilities, d.inclusion, d.propensity) == (None,) * 3 for d in decisions)
    assert all(decision.feasible for decision in decisions)
    names = [n for decision in decisions for n in decision.subset]
    if POLICIES[name].uses_limits:
        router.core.state.multipliers.lam[:] = [0.5, 0.25, 1.0]
    status = router.status()
    assert status.q == pytest.approx(
        {n: names.count(n) / 80 for n in make_five_expert_problem().experts}
    )
    assert "drawn so far: " in str(status)
    prices = [one.price for one in status.limits]
    if POLICIES[name].uses_limits:
        # A reward of 8 is 1 to the policy, a dollar a quarter of the largest cost.
        assert prices == pytest.approx([8 * 0.5 / 4, 8 * 0.25, 8 * 1.0 / 4], rel=1e-7)
    else:
        assert set(prices) == {None}
        assert "-  kept" in str(status) or "-  outside" in str(status)
    trace = simulate(make_five_expert_problem(), make_recorded_environment(), name, rounds=40)
    assert np.isnan(trace.record.draw_probabilities).all()
    assert np.isnan(trace.record.propensities).all()


def test_a_range_of_rewards_is_mapped_to_the_unit_interval() -> None:
    values = make_recorded_environment().values
    for policy in ("cbwk", "ts-bwk", "moe"):
        unit = simulate(make_five_expert_problem(), Given(values), policy, rounds=400)
        wide = simulate(
            make_five_expert_problem(), Given(4 * values), policy, rounds=400, rewards=(0.0, 4.0)
        )
        assert_array_equal(unit.draws, wide.draws)


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (Cucb, {"c": -1.0}, "setting c -1.0: expected 0 or a positive number; the default is 2.0"),
        (Cbwk, {"c": math.nan}, "setting c nan: expected"),
        (Cbwk, {"step": 0.0}, "setting step 0.0: expected a positive number; the default is 10.0"),
        (Cbwk, {"dual_on": "mean"}, "setting dual_on 'mean': expected 'average' or 'instant'"),
        (TsBwk, {"step": math.inf}, "setting step inf: expected"),
        (TsBwk, {"step": "10"}, "setting step '10': expected"),
        (Moe, {"rate": True}, "setting rate True: expected"),
        (Moe, {"step": -4e-4}, "setting step -0.0004: expected"),
    ],
)
def test_invalid_settings_are_refused(make: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        make(**settings)


@pytest.mark.parametrize("name", [*WITHOUT_PROPENSITIES, "c2mab-v"])
def test_a_guarded_baseline_counts_the_panels_that_are_played(name: str, tmp_path: Path) -> None:
    """Costs are those of the panels that are asked, and a saved router goes on."""
    problem = make_five_expert_problem()
    limits = [at_most("usd", 2.0), at_least("junior", 0.9), at_least("usd", 1.9)]
    tight = Problem(problem.experts, dict(problem.costs), limits, draws=2, period=50)
    router = Router(tight, name, seed=1, guard=True)
    rng = np.random.default_rng(0)
    decisions = []
    for _ in range(200):
        decision = router.decide()
        router.reward(decision.id, float(rng.random()))
        decisions.append(decision)
    assert any(decision.replaced for decision in decisions)
    state = router.core.state
    asked = [sum(n in decision.subset for decision in decisions) for n in tight.experts]
    assert state.drawn[0].tolist() == asked
    usd = np.array([decision.spend["usd"] for decision in decisions])
    assert (usd.reshape(4, 50).mean(axis=1) <= 2.0 + 1e-12).all()
    if POLICIES[name].uses_limits and name != "c2mab-v":
        peak = tight.peaks[0]
        assert state.multipliers.spent[0] * peak == pytest.approx(usd.sum())
    router.save(tmp_path / "router.bylot")
    loaded = Router.load(tmp_path / "router.bylot")
    assert [loaded.decide() for _ in range(5)] == [router.decide() for _ in range(5)]


def test_the_inclusion_of_a_guarded_random_panel_is_that_of_what_is_played() -> None:
    problem = make_five_expert_problem()
    router = Router(problem, "random", seed=1, horizon=50, guard=True)
    decisions = [router.decide() for _ in range(50)]
    replaced = [decision for decision in decisions if decision.replaced]
    assert replaced
    for decision in replaced:
        assert decision.propensity == 1.0
        assert decision.expected == pytest.approx(decision.spend)
