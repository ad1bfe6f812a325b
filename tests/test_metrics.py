"""Scores: units, feasibility and benchmarks of simulations with known metrics."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot import Problem, Trace, at_least, at_most, iid_optimum, score, simulate
from bylot.environments import Given
from bylot.errors import ValuesError
from bylot.metrics import (
    compute_running_violations,
    find_regret_bound,
    find_violation_bound,
    format_gap,
    scale_problem_costs,
)
from bylot.optima import optimum
from bylot.policies import Omd
from sample_problem import (
    make_five_expert_problem,
    make_recorded_environment,
    make_stationary_environment,
)

STATIONARY = Omd(eta=1e12, batch=1, baseline=False)  # keeps playing equal shares


def simulate_plain(rounds: int = 500, **settings: object) -> Trace:
    """A short simulation of Algorithm 1."""
    return simulate(
        make_five_expert_problem(),
        make_recorded_environment(rounds),
        Omd.plain(),
        rounds=rounds,
        **settings,  # type: ignore[arg-type]
    )


def test_regret_uses_the_distributions_that_were_played() -> None:
    unlimited = Problem(["a", "b"], {}, draws=1)
    values = np.tile([[[1.0, 0.0]]], (50, 1, 1))
    result = score(simulate(unlimited, Given(values), STATIONARY, rounds=50), values)
    assert result.expected == pytest.approx(0.5)  # equal shares earn half
    assert result.best.value == pytest.approx(1 - unlimited.floor)
    assert result.regret == pytest.approx(0.5 - unlimited.floor)
    assert result.aggregate == result.regret


def test_a_violated_limit_is_reported_at_every_tolerance_it_exceeds() -> None:
    problem = Problem(["a", "b"], {"usd": [2.0, 0.0]}, [at_most("usd", 0.98)], draws=1)
    spend = np.tile([[2.0], [0.0]], (25, 1))  # 1.0 on average: .02 over, .01 of the largest cost
    trace = simulate(problem, Given(np.ones((50, 1, 2))), STATIONARY, rounds=50)
    trace = replace(trace, record=trace.record._replace(spend=spend))
    result = score(trace, np.ones((50, 1, 2)))
    assert result.feasible == {0.0: False, 1e-3: False, 1e-2: True}
    assert result.violation == pytest.approx(0.01)
    kept = replace(trace, record=trace.record._replace(spend=0.9 * spend))
    assert score(kept, np.ones((50, 1, 2))).feasible == {0.0: True, 1e-3: True, 1e-2: True}


def test_one_violated_limit_makes_a_run_infeasible() -> None:
    costs = {"usd": [1.0, 0.0], "gpu": [0.0, 1.0]}
    problem = Problem(["a", "b"], costs, [at_most("usd", 0.9), at_least("gpu", 0.4)], draws=1)
    values = np.ones((40, 1, 2))
    trace = simulate(problem, Given(values), STATIONARY, rounds=40)
    for gpu, kept in ((0.5, True), (0.3, False)):
        record = trace.record._replace(spend=np.tile([0.5, gpu], (40, 1)))
        assert score(replace(trace, record=record), values).feasible[0.0] is kept


def test_a_violation_by_rounding_is_ignored() -> None:
    problem = Problem(["a", "b"], {"usd": [0.1, 0.1]}, [at_most("usd", 0.1)], draws=1)
    values = np.ones((1_000, 1, 2))
    assert score(simulate(problem, Given(values), STATIONARY, rounds=1_000), values).feasible[0.0]


def test_the_bound_on_regret_is_in_the_unit_of_the_rewards() -> None:
    one, three = simulate_plain(horizon=500), simulate_plain(horizon=500, rewards=(0.0, 3.0))
    assert_allclose(find_regret_bound(three)[1], 3 * find_regret_bound(one)[1])
    anytime, wide = simulate_plain(), simulate_plain(rewards=(0.0, 3.0))
    assert anytime.horizon is None
    assert_allclose(find_regret_bound(wide)[1], 3 * find_regret_bound(anytime)[1])


def test_every_further_context_adds_its_eta_to_theorem_1() -> None:
    policy = Omd.plain()
    bounds = [
        find_regret_bound(
            simulate(
                make_five_expert_problem(),
                make_recorded_environment(400, n),
                policy,
                rounds=400,
                horizon=400,
            )
        )[1]
        for n in (1, 3)
    ]
    assert_allclose(
        bounds[1] - bounds[0], 2 * policy.proximal(make_five_expert_problem(), 400) / 400
    )


def test_the_unit_of_a_cost_does_not_change_the_score() -> None:
    cents = Problem(
        make_five_expert_problem().experts,
        {**make_five_expert_problem().costs, "usd": 100 * make_five_expert_problem().costs["usd"]},
        [
            limit.at(100 * limit.bound) if limit.name == "usd" else limit
            for limit in make_five_expert_problem().limits
        ],
        draws=2,
    )
    traces = [
        simulate(p, make_stationary_environment(), "omd", rounds=300, horizon=300)
        for p in (make_five_expert_problem(), cents)
    ]
    assert_allclose(
        compute_running_violations(traces[0]), compute_running_violations(traces[1]), atol=1e-12
    )
    assert_allclose(find_violation_bound(traces[0]), find_violation_bound(traces[1]))
    assert scale_problem_costs(cents).rows.max() == 1.0


def test_an_empty_surrogate_is_scored_against_the_exact_limits() -> None:
    costs = {name: np.eye(4)[i] for i, name in enumerate("abcd")}
    limits = [at_least(name, 0.3) for name in "abcd"]  # 1.2 of one, but two draws can do it
    problem = Problem(list("abcd"), costs, limits, draws=2)
    values = np.random.default_rng(0).random((200, 2, 4)) / 2
    with pytest.warns(UserWarning, match="surrogate"):
        trace = simulate(problem, Given(values), Omd.plain(), rounds=200)
    result = score(trace, values)
    assert not result.applies
    assert result.best.value >= result.expected - 0.05
    assert result.exact
    assert "under the exact limits, as the surrogate is empty" in str(result)


def test_exact_regret_is_against_the_optimum_under_exact_limits() -> None:
    values = make_recorded_environment(500).values
    trace = simulate_plain(horizon=500)
    usual, true = score(trace, values), score(trace, values, exact=True)
    best = iid_optimum(make_five_expert_problem(), values, exact=True, floor=True)
    assert true.best.value == best.value > usual.best.value
    assert true.regret == pytest.approx(best.value - true.expected)
    assert "under the paper's surrogate of the limits, proved to within 1e-9" in str(usual)
    assert f"under the exact limits, proved to within {format_gap(best.gap)}" in str(true)
    assert "Theorem 1 (against the surrogate)" in str(true)
    assert str(score(trace, values, best, exact=True)) == str(true)


def test_with_contexts_both_regrets_use_the_same_kind_of_optimum() -> None:
    environment = make_recorded_environment(300, 3)
    trace = simulate(make_five_expert_problem(), environment, "omd", rounds=300)
    usual, true = (score(trace, environment.values, exact=exact) for exact in (False, True))
    for one, exact in ((usual, False), (true, True)):
        shared = iid_optimum(
            make_five_expert_problem(),
            environment.values,
            contexts=trace.record.contexts,
            each_context=False,
            exact=exact,
            floor=True,
        )
        assert one.aggregate == shared.value - one.expected
    assert true.aggregate > usual.aggregate


def test_an_optimum_of_the_other_kind_is_refused() -> None:
    values, trace = make_recorded_environment(500).values, simulate_plain(horizon=500)
    exact, surrogate = (
        iid_optimum(make_five_expert_problem(), values, exact=one, floor=True)
        for one in (True, False)
    )
    with pytest.raises(ValuesError, match=r"got one under the exact limits; pass exact=True"):
        score(trace, values, exact)
    with pytest.raises(
        ValuesError, match=r"got one under the paper's surrogate .*; pass exact=False"
    ):
        score(trace, values, surrogate, exact=True)
    assert not score(trace, values, surrogate).exact
    assert score(trace, values, exact, exact=True).exact


@pytest.mark.parametrize(
    ("gap", "text"),
    [(0.0, "1e-9"), (2e-8, "1e-7"), (0.0042, "0.0042"), (0.00421, "0.0043"), (0.31, "0.31")],
)
def test_a_gap_is_rounded_up_to_two_digits(gap: float, text: str) -> None:
    assert format_gap(gap) == text


def test_values_of_other_rounds_are_refused() -> None:
    with pytest.raises(ValuesError, match="same rounds"):
        score(simulate_plain(), make_recorded_environment(400).values)
    with pytest.raises(ValuesError, match="keep_distributions=True"):
        score(simulate_plain(keep_distributions=False), make_recorded_environment(500).values)


def test_the_text_marks_bounds_that_do_not_apply() -> None:
    values = make_recorded_environment(500).values
    plain, batched = (
        simulate_plain(horizon=500),
        simulate(make_five_expert_problem(), make_recorded_environment(500), "omd", rounds=500),
    )
    assert "plain algorithm" not in str(score(plain, values))
    assert "Corollary (of the plain algorithm)" in str(score(batched, values))
    several = simulate(
        make_five_expert_problem(), make_recorded_environment(500, 3), "omd", rounds=500
    )
    assert "one budget for all" in str(score(several, make_recorded_environment(500, 3).values))


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (
            "omd",
            "the best independent draws with floor 0.02 under the paper's surrogate of the limits",
        ),
        ("tangent", "the best independent draws under the exact limits"),
        ("distinct", "the best mixture of panels of 2 experts under the limits"),
        ("noisy-or", "the best mixture of panels of 2 experts under the limits"),
    ],
)
@pytest.mark.parametrize("contexts", [1, 3])
def test_no_policy_within_the_limits_earns_more_than_the_optimum_of_its_kind(
    policy: str, name: str, contexts: int
) -> None:
    environment = make_recorded_environment(2_000, contexts)
    trace = simulate(
        make_five_expert_problem(), environment, policy, rounds=2_000, horizon=2_000, seed=1
    )
    result = score(trace, environment.values)
    assert result.feasible[0.0]
    luck = 4 * float(trace.rewards.std()) / math.sqrt(2_000)  # of a policy that soon plays the best
    assert 0.7 * result.best.value < result.expected <= result.best.ceiling + luck
    if contexts > 1:
        name += ", kept in each context" if policy == "omd" else ", kept by all contexts together"
    assert f"% of OPT {result.best.value:.6f}: {name}, proved to within" in str(result)


@pytest.mark.parametrize("policy", ["tangent", "distinct"])
def test_against_the_optimum_of_the_paper_other_policies_would_earn_more_than_all(
    policy: str,
) -> None:
    """The negative control of the test above: the surrogate of this limit is much stricter."""
    usd = np.array([0.2, 0.8, 1.4, 2.0])
    problem = Problem(list("abcd"), {"usd": usd}, [at_most("usd", 2.7)], draws=3)
    values = (np.random.default_rng(0).random((2_000, 1, 4)) < usd / 3).astype(float)
    trace = simulate(problem, Given(values), policy, rounds=2_000, horizon=2_000)
    result = score(trace, values)
    assert result.feasible[0.0]
    assert iid_optimum(problem, values, floor=True).ceiling < result.expected <= result.best.ceiling


def test_full_panels_that_cannot_keep_the_limits_are_compared_with_smaller_ones() -> None:
    problem = Problem(list("abc"), {"usd": [1.0, 1.0, 1.0]}, [at_most("usd", 1.5)], draws=2)
    values = np.random.default_rng(0).random((200, 1, 3))
    result = score(simulate(problem, Given(values), "random", rounds=200), values)
    assert "the best mixture of panels of 1 to 2 experts" in str(result)
    assert not result.feasible[0.01]


def test_the_optimum_of_another_class_of_distributions_is_refused() -> None:
    problem, values = make_five_expert_problem(), make_recorded_environment(500).values
    panels = optimum(problem, values)
    with pytest.raises(
        ValuesError, match=r"draws of omd are independent; give what bylot.iid_optimum returned"
    ):
        score(simulate_plain(), values, panels)
    trace = simulate(problem, make_recorded_environment(500), "distinct", rounds=500)
    assert score(trace, values, panels).best is panels
    with pytest.raises(
        ValuesError, match=r"no independent draws; give what bylot.optimum returned"
    ):
        score(trace, values, iid_optimum(problem, values, floor=True))


@pytest.mark.parametrize("policy", ["random", "cbwk", "ts", "moe"])
def test_a_policy_without_a_theorem_is_scored_by_its_rewards(policy: str) -> None:
    values = make_recorded_environment(300).values
    trace = simulate(
        make_five_expert_problem(),
        make_recorded_environment(300),
        policy,
        rounds=300,
        keep_distributions=False,
    )
    result = score(trace, values)
    assert result.expected == result.reward == trace.rewards.mean()
    assert result.regret == pytest.approx(result.best.value - trace.rewards.mean())
    assert result.theorem is None
    assert not result.applies
    assert np.isnan([result.regret_bound, result.violation_bound]).all()
    text = str(result)
    assert text.count("no theorem") == 2
    assert "nan" not in text


def test_prices_do_not_depend_on_how_a_batch_is_summed() -> None:
    problem, results = make_five_expert_problem(), []
    for policy in (Omd(eta=20.0), Omd(eta=200.0, batch_gradient="sum")):
        rule = policy.bind(problem)
        state = policy.start(rule)
        state.paid[:], state.moves[0] = rule.eta * 0.01, 7
        results.append(policy.prices(problem, rule, state))
    assert_allclose(results[0], results[1])


def test_a_problem_in_units_of_its_largest_costs_keeps_its_period() -> None:
    assert scale_problem_costs(make_five_expert_problem().replace(period=40)).period == 40
