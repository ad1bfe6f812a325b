"""Logs that say too little of a target, or something else than they seem to, are refused."""

import itertools
import math

import numpy as np
import pytest

from bylot import Problem
from bylot.errors import DataError, ThinOverlap
from bylot.evaluation import Entry, draws, evaluate, gather, panel, uniform
from bylot.evaluation.laws import Exactly
from trio import TRIO, fixed


def test_mass_on_those_without_odds_is_refused_and_told_exactly() -> None:
    log = gather(TRIO, fixed([0.5, 0.5, 0.0], 400))
    with pytest.raises(ThinOverlap, match=r"43\.8% of the target's panels"):  # 1 - 0.75^2
        evaluate(log, draws(TRIO, {"a": 3, "b": 3, "c": 2}))
    assert evaluate(log, draws(TRIO, {"a": 1, "b": 2})).unseen == 0.0
    known = [one._replace(never=("c",)) for one in fixed([0.5, 0.5, 0.0], 400)]
    seen = Entry("x", 999, ("c", "c"), 1.0, odds=(0.01, 0.01))  # c had a chance once
    with pytest.raises(ThinOverlap, match="of the target's panels"):
        evaluate(gather(TRIO, [*known, seen]), draws(TRIO, {"a": 3, "b": 3, "c": 2}))


def test_sizes_that_sets_of_exactly_so_many_never_have_are_refused() -> None:
    law, rng = Exactly(np.zeros(3), 2), np.random.default_rng(1)
    pairs = list(itertools.combinations("abc", 2))
    written = [Entry(f"d{t}", t, pairs[rng.integers(3)], 0.5, chance=1 / 3) for t in range(300)]
    assert math.exp(law.log_chance(np.array([0, 1]))) == pytest.approx(1 / 3)
    with pytest.raises(ThinOverlap, match=r"33\.3% of the target's panels"):  # 3 (1/3)^2
        evaluate(gather(TRIO, written), draws(TRIO, {"a": 1, "b": 1, "c": 1}))
    assert evaluate(gather(TRIO, written), uniform(TRIO)).effective == pytest.approx(300)


def test_thin_overlap_is_refused_and_what_would_help_is_said() -> None:
    log = gather(TRIO, fixed([0.9, 0.07, 0.03], 400))
    with pytest.raises(ThinOverlap, match=r"400 rounds are worth only .*log more rounds"):
        evaluate(log, panel(TRIO, ["b", "c"]))
    near = evaluate(log, draws(TRIO, {"a": 8, "b": 1, "c": 1}))
    assert 100 < near.effective <= 400
    with pytest.raises(ThinOverlap, match="fewer than 399 are no ground"):
        evaluate(log, draws(TRIO, {"a": 8, "b": 1, "c": 1}), least=399)


def test_weights_that_do_not_average_one_are_refused() -> None:
    wrong = [
        one._replace(odds=tuple(0.5 * odds for odds in one.odds))
        for one in fixed([0.4, 0.3, 0.3], 400)
    ]
    with pytest.raises(ThinOverlap, match="weights average 4, 3 away from where they should be"):
        evaluate(gather(TRIO, wrong), draws(TRIO, {"a": 4, "b": 3, "c": 3}))


def test_rounds_that_cannot_be_used_are_counted_and_change_nothing() -> None:
    good = fixed([0.4, 0.3, 0.3], 400)
    bad = [
        Entry("r", 1_000, ("a", "b"), 1.0, replaced=True),
        Entry("u", 1_001, ("a", "b"), 1.0),
        Entry("m", 1_002, ("a", "b"), None, odds=(0.4, 0.3)),
    ]
    target = draws(TRIO, {"a": 3, "b": 3, "c": 4})
    one, other = evaluate(gather(TRIO, good), target), evaluate(gather(TRIO, good + bad), target)
    assert one.estimates == other.estimates
    assert other.counted == (403, 400, 1, 1, 1)
    assert any("guard replaced 1 panels" in note for note in other.notes)
    assert any("1 rounds without a reward" in note for note in other.notes)
    with pytest.raises(ThinOverlap, match="none of 3 rounds can be used"):
        evaluate(gather(TRIO, bad), target)


def test_a_reward_outside_the_declared_range_is_refused() -> None:
    log = gather(TRIO, [*fixed([0.4, 0.3, 0.3], 400), Entry("x", 999, ("a",), 7.0)])
    with pytest.raises(DataError, match="decision x has a reward of 7, outside"):
        evaluate(log, uniform(TRIO))
    target = draws(TRIO, {"a": 4, "b": 3, "c": 3})
    wide = evaluate(log, target, rewards=(0.0, 10.0)).estimates[-1].interval
    narrow = evaluate(gather(TRIO, log.entries[:-1]), target).estimates[-1].interval
    assert wide.high - wide.low > narrow.high - narrow.low


def test_a_log_of_outages_that_does_not_say_who_was_up_is_refused() -> None:
    rng, told = np.random.default_rng(3), []
    for t in range(2_000):
        up = ("a", "b") if t % 2 else ("a", "b", "c")
        name, odds = up[rng.integers(len(up))], (1 / len(up),)
        told.append(Entry(f"d{t}", t, (name,), 0.5, odds=odds, available=up))
    problem = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 4.0]}, draws=1)
    target = draws(problem, {"a": 1, "b": 1, "c": 2})
    assert evaluate(gather(problem, told), target).passed == pytest.approx(1.0, abs=0.1)
    with pytest.raises(ThinOverlap, match="away from where they should be"):
        evaluate(gather(problem, [one._replace(available=None) for one in told]), target)
