"""Logs of a pool that changed: who has left is asked by no target, who came was not up before."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bylot import Problem
from bylot.errors import DataError
from bylot.evaluate import (
    DecisionLog,
    LogEntry,
    evaluate_target,
    find_unknown_experts,
    log_from_entries,
    make_fixed_size_target,
    make_iid_target,
    make_panel_target,
    make_uniform_target,
    measure_agreement,
    read_log,
    write_log,
)
from bylot.evaluate.importance_weights import list_target_distributions, weight_rounds
from bylot.evaluate.report import summarise_log

THEN, NOW = ("a", "b", "c", "z"), ("a", "b", "c", "n")  # z has left, n has joined
POOL = Problem(NOW, {"usd": [1.0, 2.0, 3.0, 4.0]}, draws=2)
WORTH = {"a": 0.1, "b": 0.3, "c": 0.5, "n": 0.9, "z": 0.7}
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 1.0, "n": 2.0}


def earned(members: tuple[str, ...]) -> float:
    """The best member's worth."""
    return max(WORTH[name] for name in members)


def every_pair(change: int = 6) -> list[LogEntry]:
    """All pairs of the first pool, each with its chance, then all of the second: the mean over them
    is an expectation.
    """
    pairs = [*itertools.combinations(THEN, 2), *itertools.combinations(NOW, 2)]
    return [
        LogEntry(
            f"d{t}", t, pair, earned(pair), propensity=1 / 6, available=THEN if t < change else None
        )
        for t, pair in enumerate(pairs)
    ]


def changed() -> DecisionLog:
    return log_from_entries(POOL, every_pair(), gone=["z"])


def test_the_estimate_is_what_the_target_earns_among_those_who_were_there() -> None:
    for target in (make_uniform_target(POOL), make_fixed_size_target(POOL, WEIGHTS)):
        sample = weight_rounds(changed(), list_target_distributions(changed(), target))
        value = 0.0
        for up in (("a", "b", "c"), NOW):
            mass = {
                pair: 1.0 if target.name == "uniform" else math.prod(WEIGHTS[i] for i in pair)
                for pair in itertools.combinations(up, 2)
            }
            value += sum(m * earned(p) for p, m in mass.items()) / sum(mass.values()) / 2
        assert (sample.weights * sample.rewards).mean() == pytest.approx(value, abs=1e-12)
        assert sample.passed == pytest.approx(1.0)
        theirs = [n for n, one in enumerate(changed().entries) if "z" in one.draws]
        assert len(theirs) == 3
        assert not sample.weights[theirs].any()


def test_without_saying_who_was_there_the_estimate_would_be_another() -> None:
    blind = log_from_entries(
        POOL, [one._replace(available=None) for one in every_pair()], gone=["z"]
    )
    assert weight_rounds(
        blind, list_target_distributions(blind, make_uniform_target(POOL))
    ).passed != pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("draws_of", ["sets", "draws"])
def test_a_long_log_of_both_pools_is_evaluated_by_every_estimator(draws_of: str) -> None:
    rng, made = np.random.default_rng(1), []
    for t in range(3_000):
        up = THEN if t < 1_500 else NOW
        if draws_of == "sets":
            pair = tuple(rng.permutation(up)[:2].tolist())
            told = LogEntry(f"d{t}", t, pair, earned(pair), propensity=1 / 6, available=up)
        else:
            pair = tuple(rng.choice(up, 2).tolist())
            told = LogEntry(
                f"d{t}", t, pair, earned(pair), draw_probabilities=(0.25, 0.25), available=up
            )
        made.append(told)
    log = log_from_entries(POOL, made, find_unknown_experts(POOL, made))
    assert log.gone == ("z",)
    target = (
        make_fixed_size_target(POOL, WEIGHTS)
        if draws_of == "sets"
        else make_iid_target(POOL, WEIGHTS)
    )
    found = evaluate_target(log, target)
    laws = list_target_distributions(log, target)
    names = (*NOW, "z")
    value = np.mean(
        [
            sum(
                np.exp(law.log_probability(np.array([names.index(i) for i in members])))
                * earned(members)
                for size in (1, 2)
                for members in itertools.combinations(names, size)
            )
            for law in laws
        ]
    )
    for one in found.estimates:
        assert abs(one.value - value) < 4 * one.error, one.name
    assert len(found.estimates) == (4 if draws_of == "sets" else 5)
    assert found.costs["usd"] < 8  # by the costs of today, of which z has none
    assert any("z: no longer in the pool" in note for note in found.notes)
    assert not any("no longer" in note for note in evaluate_target(log.since(1_500), target).notes)


def test_a_panel_of_somebody_who_left_is_never_a_target_s() -> None:
    always, same = (
        measure_agreement(changed(), make_panel_target(POOL, ["a", "b"])),
        measure_agreement(changed(), make_uniform_target(POOL)),
    )
    assert always.same == pytest.approx(2 / 12)
    assert always.never == 10
    assert same.never == 3
    assert summarise_log(changed())["costs"]["usd"] == pytest.approx(
        np.mean([1 + 2, 1 + 3, 2 + 3, *(i + j for i, j in itertools.combinations(range(1, 5), 2))])
    )


def test_an_unknown_name_is_an_error_until_it_is_said_to_be_gone(tmp_path: Path) -> None:
    write_log(tmp_path / "log.jsonl", every_pair())
    with pytest.raises(DataError, match=r"line 1: available names 'z'.*--gone NAME"):
        read_log(tmp_path / "log.jsonl", POOL)
    with pytest.raises(DataError, match="names 'z'"):
        read_log(tmp_path / "log.jsonl", POOL, gone=["y"])
    assert read_log(tmp_path / "log.jsonl", POOL, gone=["z", "a"]).gone == ("z",)


def test_a_log_can_begin_later_and_not_after_its_end() -> None:
    assert len(changed().since(6).entries) == 6
    assert changed().since(6).gone == ()
    assert changed().since(5).gone == ("z",)
    with pytest.raises(DataError, match="the last one is number 11"):
        changed().since(12)


@pytest.mark.parametrize("field", ["draws", "available", "never"])
def test_whoever_is_named_anywhere_is_known_to_a_part_of_the_log(field: str) -> None:
    """As in a log of which it is said who has left."""
    named: dict[str, Any] = {"draws": ("a", "z"), "available": ("a", "b", "z"), "never": ("z",)}
    entries = [
        LogEntry(f"d{t}", t, ("a", "b"), 0.5, propensity=0.3)._replace(**{field: named[field]})
        for t in range(3)
    ]
    log = log_from_entries(POOL, entries, gone=["z"])
    assert find_unknown_experts(POOL, entries) == log.gone == log.since(1).gone == ("z",)
    assert log.since(1).entries == log.entries[1:]
