"""Propensities in logs that are rounded, extremely small or wrong."""

import itertools

import pytest

from bylot import Problem
from bylot.errors import InsufficientOverlap
from bylot.evaluate import (
    DecisionLog,
    LogEntry,
    evaluate_target,
    log_from_entries,
    make_iid_target,
    make_uniform_target,
)

TRIO = Problem(["ann", "bob", "cat"], {"usd": [1.0, 2.0, 4.0]}, draws=2)
PAIRS = list(itertools.combinations(TRIO.experts, 2))


def log_all_pairs(propensity: float, rounds: int = 501) -> DecisionLog:
    """All pairs equally often, each with this propensity in the log."""
    pairs = itertools.cycle(PAIRS)
    return log_from_entries(
        TRIO, (LogEntry(f"d{t}", t, next(pairs), 0.5, propensity=propensity) for t in range(rounds))
    )


@pytest.mark.parametrize("propensity", [1 / 3, 0.333333333333, 0.3333, 0.33333334])
def test_rounded_propensities_are_accepted(propensity: float) -> None:
    """All weights are equal, so sampling error explains no difference at all."""
    found = evaluate_target(log_all_pairs(propensity), make_uniform_target(TRIO))
    assert found.mean_weight == pytest.approx(1, abs=1e-3)
    assert {round(one.value, 3) for one in found.estimates[:-1]} == {0.5}


@pytest.mark.parametrize("propensity", [0.33, 0.34, 0.5])
def test_wrong_propensities_are_refused_with_the_deviation(propensity: float) -> None:
    deviation = abs(1 / (3 * propensity) - 1)
    with pytest.raises(
        InsufficientOverlap,
        match=f"mean weight is .*, off by {deviation:.2g}, .* either panels .*, or",
    ):
        evaluate_target(log_all_pairs(propensity), make_uniform_target(TRIO))


@pytest.mark.parametrize("probability", [1e-200, 1e-320])
def test_a_draw_of_tiny_probability_outweighs_all_others(probability: float) -> None:
    one = LogEntry("d0", 0, ("ann", "bob"), 1.0, draw_probabilities=(probability, probability))
    rest = (
        LogEntry(f"d{t}", t, ("ann", "bob"), 0.5, draw_probabilities=(0.5, 0.5))
        for t in range(1, 300)
    )
    log = log_from_entries(TRIO, [one, *rest])
    with pytest.raises(InsufficientOverlap, match=r"worth only 1\.0 rounds of the target"):
        evaluate_target(log, make_iid_target(TRIO, {"ann": 1, "bob": 1}))
    with pytest.raises(InsufficientOverlap):
        evaluate_target(log, make_uniform_target(TRIO))
