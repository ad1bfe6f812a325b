"""Targets are refused if the log contains too little information about them, or is inconsistent."""

import itertools
import math

import numpy as np
import pytest

from bylot import Problem
from bylot.distributions import FixedSizeSets
from bylot.errors import DataError, InsufficientOverlap
from bylot.evaluate import (
    LogEntry,
    evaluate_target,
    log_from_entries,
    make_iid_target,
    make_panel_target,
    make_uniform_target,
)
from logged_decisions import TRIO, log_iid_draws


def test_probability_on_experts_never_drawn_is_refused_with_its_exact_share() -> None:
    log = log_from_entries(TRIO, log_iid_draws([0.5, 0.5, 0.0], 400))
    with pytest.raises(InsufficientOverlap, match=r"43\.8% of the target's panels"):  # 1 - 0.75^2
        evaluate_target(log, make_iid_target(TRIO, {"a": 3, "b": 3, "c": 2}))
    assert evaluate_target(log, make_iid_target(TRIO, {"a": 1, "b": 2})).unsupported == 0.0
    known = [one._replace(excluded=("c",)) for one in log_iid_draws([0.5, 0.5, 0.0], 400)]
    # c could be drawn once
    seen = LogEntry("x", 999, ("c", "c"), 1.0, draw_probabilities=(0.01, 0.01))
    with pytest.raises(InsufficientOverlap, match="of the target's panels"):
        evaluate_target(
            log_from_entries(TRIO, [*known, seen]), make_iid_target(TRIO, {"a": 3, "b": 3, "c": 2})
        )


def test_panel_sizes_that_were_never_drawn_are_refused() -> None:
    distribution, rng = FixedSizeSets(np.zeros(3), 2), np.random.default_rng(1)
    pairs = list(itertools.combinations("abc", 2))
    entries = [
        LogEntry(f"d{t}", t, pairs[rng.integers(3)], 0.5, propensity=1 / 3) for t in range(300)
    ]
    assert math.exp(distribution.log_probability(np.array([0, 1]))) == pytest.approx(1 / 3)
    with pytest.raises(InsufficientOverlap, match=r"33\.3% of the target's panels"):  # 3 (1/3)^2
        evaluate_target(
            log_from_entries(TRIO, entries), make_iid_target(TRIO, {"a": 1, "b": 1, "c": 1})
        )
    assert evaluate_target(
        log_from_entries(TRIO, entries), make_uniform_target(TRIO)
    ).effective == pytest.approx(300)


def test_insufficient_overlap_is_refused_with_a_remedy() -> None:
    log = log_from_entries(TRIO, log_iid_draws([0.9, 0.07, 0.03], 400))
    with pytest.raises(InsufficientOverlap, match=r"400 rounds are worth only .*log more rounds"):
        evaluate_target(log, make_panel_target(TRIO, ["b", "c"]))
    close = evaluate_target(log, make_iid_target(TRIO, {"a": 8, "b": 1, "c": 1}))
    assert 100 < close.effective <= 400
    with pytest.raises(InsufficientOverlap, match="an interval needs at least 399"):
        evaluate_target(log, make_iid_target(TRIO, {"a": 8, "b": 1, "c": 1}), least=399)


def test_weights_whose_mean_is_not_1_are_refused() -> None:
    wrong = [
        one._replace(draw_probabilities=tuple(0.5 * p for p in one.draw_probabilities))
        for one in log_iid_draws([0.4, 0.3, 0.3], 400)
    ]
    with pytest.raises(InsufficientOverlap, match="the mean weight is 4, off by 3,"):
        evaluate_target(
            log_from_entries(TRIO, wrong), make_iid_target(TRIO, {"a": 4, "b": 3, "c": 3})
        )


def test_unusable_rounds_are_counted_and_do_not_change_estimates() -> None:
    usable = log_iid_draws([0.4, 0.3, 0.3], 400)
    unusable = [
        LogEntry("r", 1_000, ("a", "b"), 1.0, replaced=True),
        LogEntry("u", 1_001, ("a", "b"), 1.0),
        LogEntry("m", 1_002, ("a", "b"), None, draw_probabilities=(0.4, 0.3)),
    ]
    target = make_iid_target(TRIO, {"a": 3, "b": 3, "c": 4})
    one, other = (
        evaluate_target(log_from_entries(TRIO, usable), target),
        evaluate_target(log_from_entries(TRIO, usable + unusable), target),
    )
    assert one.estimates == other.estimates
    assert other.counts == (403, 400, 1, 1, 1, 0)
    assert any("guard replaced 1 panels" in note for note in other.notes)
    assert any("1 rounds without a reward" in note for note in other.notes)
    with pytest.raises(InsufficientOverlap, match="none of 3 rounds can be used"):
        evaluate_target(log_from_entries(TRIO, unusable), target)


def test_a_reward_outside_the_declared_range_is_refused() -> None:
    log = log_from_entries(
        TRIO, [*log_iid_draws([0.4, 0.3, 0.3], 400), LogEntry("x", 999, ("a",), 7.0)]
    )
    with pytest.raises(DataError, match="the reward 7 of decision x is outside"):
        evaluate_target(log, make_uniform_target(TRIO))
    target = make_iid_target(TRIO, {"a": 4, "b": 3, "c": 3})
    wide = evaluate_target(log, target, rewards=(0.0, 10.0)).estimates[-1].interval
    narrow = (
        evaluate_target(log_from_entries(TRIO, log.entries[:-1]), target).estimates[-1].interval
    )
    assert wide.high - wide.low > narrow.high - narrow.low


def test_a_log_of_outages_without_available_experts_is_refused() -> None:
    rng, entries = np.random.default_rng(3), []
    for t in range(2_000):
        available = ("a", "b") if t % 2 else ("a", "b", "c")
        name, q = available[rng.integers(len(available))], (1 / len(available),)
        entries.append(
            LogEntry(f"d{t}", t, (name,), 0.5, draw_probabilities=q, available=available)
        )
    problem = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 4.0]}, draws=1)
    target = make_iid_target(problem, {"a": 1, "b": 1, "c": 2})
    assert evaluate_target(log_from_entries(problem, entries), target).mean_weight == pytest.approx(
        1.0, abs=0.1
    )
    with pytest.raises(InsufficientOverlap, match="the mean weight is"):
        evaluate_target(
            log_from_entries(problem, [one._replace(available=None) for one in entries]), target
        )
