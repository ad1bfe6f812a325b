"""Logs of the policy `random`, in which every set has the same probability."""

from math import comb

import pytest

from bylot import Problem, Router, simulate
from bylot.evaluate import (
    entries_from_trace,
    evaluate_target,
    log_from_entries,
    make_fixed_size_target,
    make_uniform_target,
)
from sample_problem import make_five_expert_problem, make_stationary_environment


@pytest.mark.parametrize("draws", [1, 2, 4, 5])
@pytest.mark.parametrize("available", [None, ["ann", "cat", "dan"], ["bob"]])
def test_every_set_has_the_same_propensity(draws: int, available: list[str] | None) -> None:
    pool = Problem(make_five_expert_problem().experts, {}, draws=draws)
    decision = Router(pool, "random").decide(available=available)
    available_count = len(available or pool.experts)
    members = min(draws, available_count)
    assert decision.propensity == pytest.approx(1 / comb(available_count, members))
    assert decision.inclusion == pytest.approx(
        dict.fromkeys(decision.subset, members / available_count)
    )


def test_the_log_of_random_panels_estimates_other_targets() -> None:
    pool = make_five_expert_problem()
    trace = simulate(pool, make_stationary_environment(), "random", rounds=1_500, seed=1)
    log = log_from_entries(pool, entries_from_trace(trace))
    same_target = evaluate_target(log, make_uniform_target(pool))
    assert same_target.effective == pytest.approx(1_500)
    assert same_target.estimates[0].value == pytest.approx(float(trace.rewards.mean()))
    better = make_fixed_size_target(pool, {"ann": 4, "bob": 4, "cat": 1, "dan": 1, "eve": 1})
    assert evaluate_target(log, better).estimates[0].value > same_target.estimates[0].value + 0.05


def test_the_status_of_random_shows_inclusion_probabilities() -> None:
    router = Router(make_five_expert_problem(), "random")
    router.decide()
    assert "inclusion probabilities now: ann 40.0%" in str(router.status())
