"""Odds as they are found in logs: rounded, absurdly small, or simply wrong."""

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


def alike(chance: float, rounds: int = 501) -> DecisionLog:
    """All pairs equally often, with the chance that the log tells of each."""
    pairs = itertools.cycle(PAIRS)
    return log_from_entries(
        TRIO, (LogEntry(f"d{t}", t, next(pairs), 0.5, propensity=chance) for t in range(rounds))
    )


@pytest.mark.parametrize("chance", [1 / 3, 0.333333333333, 0.3333, 0.33333334])
def test_odds_that_were_rounded_are_good_enough(chance: float) -> None:
    """Weights are then all alike, so that chance alone explains no difference at all."""
    found = evaluate_target(alike(chance), make_uniform_target(TRIO))
    assert found.passed == pytest.approx(1, abs=1e-3)
    assert {round(one.value, 3) for one in found.estimates[:-1]} == {0.5}


@pytest.mark.parametrize("chance", [0.33, 0.34, 0.5])
def test_odds_that_are_wrong_are_refused_with_how_far_they_are_off(chance: float) -> None:
    away = abs(1 / (3 * chance) - 1)
    with pytest.raises(
        InsufficientOverlap, match=f"average .*, {away:.2g} away .* either panels .*, or"
    ):
        evaluate_target(alike(chance), make_uniform_target(TRIO))


@pytest.mark.parametrize("odds", [1e-200, 1e-320])
def test_a_draw_that_could_hardly_be_outweighs_all_others(odds: float) -> None:
    one = LogEntry("d0", 0, ("ann", "bob"), 1.0, draw_probabilities=(odds, odds))
    rest = (
        LogEntry(f"d{t}", t, ("ann", "bob"), 0.5, draw_probabilities=(0.5, 0.5))
        for t in range(1, 300)
    )
    log = log_from_entries(TRIO, [one, *rest])
    with pytest.raises(InsufficientOverlap, match=r"worth only 1\.0 of"):
        evaluate_target(log, make_iid_target(TRIO, {"ann": 1, "bob": 1}))
    with pytest.raises(InsufficientOverlap):
        evaluate_target(log, make_uniform_target(TRIO))
