"""Logs of simulations, contexts and outages: estimates for other distributions."""

import itertools
from contextlib import suppress

import numpy as np
import pytest

from bylot import Problem, simulate
from bylot.distributions import IidSets, PanelDistribution
from bylot.errors import InsufficientOverlap
from bylot.evaluate import (
    EvaluationTarget,
    LogEntry,
    entries_from_trace,
    evaluate_target,
    log_from_entries,
    make_fixed_size_target,
    make_iid_target,
)
from sample_problem import expected_reward, make_five_expert_problem, make_stationary_environment
from test_distributions import ALL_AVAILABLE, list_panel_probabilities


def compute_exact_reward(
    distribution: PanelDistribution, problem: Problem, rounds: int, seed: int
) -> float:
    """The expected reward of a distribution in a stationary environment, by enumeration."""
    values = make_stationary_environment().rounds(0, rounds, seed).values
    return sum(
        probability * float(values[:, :, members].max(axis=2).sum(axis=1).mean())
        for members, probability in list_panel_probabilities(
            distribution, problem.size, problem.draws
        )
    )


WEIGHTS = {"ann": 0.02, "bob": 0.38, "cat": 0.4, "dan": 0.1, "eve": 0.1}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["distinct", "tangent", "omd"])
def test_the_log_of_a_simulation_estimates_other_distributions(policy: str, seed: int) -> None:
    problem, rounds = make_five_expert_problem(), 4_000
    log = log_from_entries(
        problem,
        entries_from_trace(
            simulate(problem, make_stationary_environment(), policy, rounds=rounds, seed=seed)
        ),
    )
    targets: list[EvaluationTarget] = [make_fixed_size_target(problem, WEIGHTS)]
    if policy != "distinct":
        targets.append(make_iid_target(problem, WEIGHTS))
    for target in targets:
        distribution, found = target.distribution(None, ALL_AVAILABLE), evaluate_target(log, target)
        value = compute_exact_reward(distribution, problem, rounds, seed)
        if isinstance(distribution, IidSets):
            values = make_stationary_environment().rounds(0, rounds, seed).values
            assert value == pytest.approx(expected_reward(distribution.q, values, 2), abs=1e-9)
        for one in found.estimates:
            assert abs(one.value - value) < 4 * one.error, one.name
        low, high = found.estimates[-1].interval
        assert low <= value <= high
        usd = sum(
            p * problem.costs["usd"][a].sum()
            for a, p in list_panel_probabilities(distribution, 5, 2)
        )
        assert found.costs["usd"] == pytest.approx(usd, abs=1e-9)


def test_each_context_and_outage_uses_its_own_distribution() -> None:
    problem = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 4.0]}, draws=1)
    rng, entries = np.random.default_rng(2), []
    for t in range(2_400):
        available, context = ("a", "b") if t % 3 == 0 else ("a", "b", "c"), "xy"[t % 2]
        name = available[rng.integers(len(available))]
        reward = 1.0 if (name == "a") == (context == "x") else 0.0
        q = (1 / len(available),)
        entries.append(LogEntry(f"d{t}", t, (name,), reward, context, q, available=available))
    target = make_iid_target(problem, {"x": {"a": 1}, "y": {"b": 1, "c": 1}})
    found = evaluate_target(log_from_entries(problem, entries), target)
    assert found.costs["usd"] == pytest.approx(0.5 * 1 + 0.5 * (1 / 3 * 2 + 2 / 3 * 3))
    for one in found.estimates:
        assert abs(one.value - 1.0) <= 4 * one.error + 1e-9  # a is correct in x, the others in y
    assert found.estimates[-2].error < 0.5 * found.estimates[0].error  # the model sees contexts


@pytest.mark.slow
def test_intervals_of_set_weights_cover_in_logs_of_simulations() -> None:
    problem, rounds, rng, covered = make_five_expert_problem(), 1_000, np.random.default_rng(7), []
    for policy, seed in itertools.product(("omd", "distinct", "tangent"), range(700, 720)):
        trace = simulate(problem, make_stationary_environment(), policy, rounds=rounds, seed=seed)
        log = log_from_entries(problem, entries_from_trace(trace))
        for _ in range(6):
            shares = rng.dirichlet(np.ones(5)) + 1e-3
            target = make_fixed_size_target(
                problem, dict(zip(problem.experts, shares.tolist(), strict=True))
            )
            with suppress(InsufficientOverlap):
                found = next(
                    e for e in evaluate_target(log, target).estimates if e.name == "set weights"
                )
                value = compute_exact_reward(
                    target.distribution(None, ALL_AVAILABLE), problem, rounds, seed
                )
                covered.append(found.interval.low <= value <= found.interval.high)
    assert len(covered) > 100
    assert np.mean(covered) >= 0.93
