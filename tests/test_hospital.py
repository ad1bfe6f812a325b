"""39 language models under 14 limits, twelve of them minimum shares, on real outcomes."""

import functools
import warnings

import numpy as np
import pytest

import hospital
from bylot import Problem, Trace, iid_optimum, optimum, simulate
from bylot.errors import SurrogateWarning
from bylot.metrics import measure_worst_violation
from bylot.optima import ValueStack

SEEDS = range(6)


@functools.cache
def compute_best_draws_value() -> float:
    """The best expected reward of independent draws under the exact limits."""
    values, weights, _ = hospital.make_environment().expected()
    stack = ValueStack(values, weights=weights)
    return iid_optimum(hospital.make_problem(), stack, exact=True, floor=False, starts=1).value


@functools.cache
def simulate_policy(policy: str, rounds: int = 10_000) -> list[Trace]:
    """Runs of a policy that knows its horizon."""
    problem, environment = hospital.make_problem(), hospital.make_environment()
    with warnings.catch_warnings():
        # The surrogate warning of omd is tested elsewhere.
        warnings.simplefilter("ignore", SurrogateWarning)
        return [
            simulate(
                problem,
                environment,
                policy,
                rounds=rounds,
                seed=s,
                horizon=rounds,
                keep_distributions=False,
            )
            for s in SEEDS
        ]


def compute_regret(policy: str, rounds: int = 10_000) -> float:
    """Regret to the best independent draws, mean over the runs."""
    return compute_best_draws_value() - float(
        np.mean([trace.rewards.mean() for trace in simulate_policy(policy, rounds)])
    )


def test_the_best_independent_draws_are_known() -> None:
    assert compute_best_draws_value() == pytest.approx(0.77775, abs=2e-5)


@pytest.mark.parametrize(
    ("policy", "allowed"), [("tangent", 0.020), ("distinct", 0.0), ("noisy-or", -0.013)]
)
def test_guarded_policies_learn_and_keep_every_limit(policy: str, allowed: float) -> None:
    assert max(measure_worst_violation(trace) for trace in simulate_policy(policy)) == 0.0
    assert compute_regret(policy) <= allowed


def test_noisy_or_comes_near_the_best_mixture_of_sets() -> None:
    values, weights, _ = hospital.make_environment().expected()
    best = optimum(hospital.make_problem(), ValueStack(values, weights=weights)).value
    assert best == pytest.approx(0.8109, abs=2e-4)
    earned = [float(trace.rewards.mean()) for trace in simulate_policy("noisy-or")]
    assert best - np.mean(earned) <= 0.020
    assert best - np.mean([trace.rewards.mean() for trace in simulate_policy("distinct")]) > 0.020


def test_strict_learns_more_slowly_but_learns() -> None:
    assert compute_regret("strict") < 0.045
    assert compute_regret("strict", 50_000) < 0.025


def test_the_policies_of_the_paper_learn_less_or_break_limits() -> None:
    # The surrogate of twelve shares asks for more than the whole mass
    assert compute_regret("omd") > 0.1
    assert compute_regret("ts-bwk") > compute_regret("tangent")
    assert min(measure_worst_violation(trace) for trace in simulate_policy("ts-bwk")) > 0.0


@pytest.mark.parametrize("period", [250, 1_000, 5_000])
@pytest.mark.parametrize("policy", ["tangent", "distinct", "noisy-or"])
def test_no_period_ends_outside_a_limit(policy: str, period: int) -> None:
    given = hospital.make_problem()
    problem = Problem(given.experts, dict(given.costs), given.limits, draws=3, period=period)
    for seed in range(4):
        trace = simulate(
            problem,
            hospital.make_environment(),
            policy,
            rounds=20_000,
            seed=seed,
            keep_distributions=False,
        )
        for spend in np.split(trace.spend, 20_000 // period):
            room = problem.signs * (spend.mean(axis=0) - problem.bounds)
            assert (room >= -1e-12 * problem.bounds).all()
