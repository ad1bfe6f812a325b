"""Logs of a changed pool: no target asks departed experts, and new ones were unavailable before."""

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
from bylot.evaluate.log import find_unknown_experts
from bylot.evaluate.report import summarise_log

THEN, NOW = ("a", "b", "c", "z"), ("a", "b", "c", "n")  # z has left, n has joined
POOL = Problem(NOW, {"usd": [1.0, 2.0, 3.0, 4.0]}, draws=2)
WORTH = {"a": 0.1, "b": 0.3, "c": 0.5, "n": 0.9, "z": 0.7}
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 1.0, "n": 2.0}


def best_worth(members: tuple[str, ...]) -> float:
    """The worth of the best member."""
    return max(WORTH[name] for name in members)


def log_every_pair(change: int = 6) -> list[LogEntry]:
    """All pairs of the first pool, then all of the second, each with its propensity: the mean over
    them is an expectation.
    """
    pairs = [*itertools.combinations(THEN, 2), *itertools.combinations(NOW, 2)]
    return [
        LogEntry(
            f"d{t}",
            t,
            pair,
            best_worth(pair),
            propensity=1 / 6,
            available=THEN if t < change else None,
        )
        for t, pair in enumerate(pairs)
    ]


def make_changed_log() -> DecisionLog:
    return log_from_entries(POOL, log_every_pair(), gone=["z"])


def test_the_estimate_is_the_reward_among_the_experts_of_each_round() -> None:
    for target in (make_uniform_target(POOL), make_fixed_size_target(POOL, WEIGHTS)):
        sample = weight_rounds(
            make_changed_log(), list_target_distributions(make_changed_log(), target)
        )
        value = 0.0
        for available in (("a", "b", "c"), NOW):
            mass = {
                pair: 1.0 if target.name == "uniform" else math.prod(WEIGHTS[i] for i in pair)
                for pair in itertools.combinations(available, 2)
            }
            value += sum(m * best_worth(p) for p, m in mass.items()) / sum(mass.values()) / 2
        assert (sample.weights * sample.rewards).mean() == pytest.approx(value, abs=1e-12)
        assert sample.mean_weight == pytest.approx(1.0)
        departed = [n for n, one in enumerate(make_changed_log().entries) if "z" in one.draws]
        assert len(departed) == 3
        assert not sample.weights[departed].any()


def test_without_available_experts_the_mean_weight_is_wrong() -> None:
    without_available = log_from_entries(
        POOL, [one._replace(available=None) for one in log_every_pair()], gone=["z"]
    )
    assert weight_rounds(
        without_available, list_target_distributions(without_available, make_uniform_target(POOL))
    ).mean_weight != pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("draws_of", ["sets", "draws"])
def test_a_long_log_of_both_pools_is_evaluated_by_every_estimator(draws_of: str) -> None:
    rng, made = np.random.default_rng(1), []
    for t in range(3_000):
        available = THEN if t < 1_500 else NOW
        if draws_of == "sets":
            pair = tuple(rng.permutation(available)[:2].tolist())
            entry = LogEntry(
                f"d{t}", t, pair, best_worth(pair), propensity=1 / 6, available=available
            )
        else:
            pair = tuple(rng.choice(available, 2).tolist())
            entry = LogEntry(
                f"d{t}",
                t,
                pair,
                best_worth(pair),
                draw_probabilities=(0.25, 0.25),
                available=available,
            )
        made.append(entry)
    log = log_from_entries(POOL, made, find_unknown_experts(POOL, made))
    assert log.gone == ("z",)
    target = (
        make_fixed_size_target(POOL, WEIGHTS)
        if draws_of == "sets"
        else make_iid_target(POOL, WEIGHTS)
    )
    found = evaluate_target(log, target)
    distributions = list_target_distributions(log, target)
    names = (*NOW, "z")
    value = np.mean(
        [
            sum(
                np.exp(distribution.log_probability(np.array([names.index(i) for i in members])))
                * best_worth(members)
                for size in (1, 2)
                for members in itertools.combinations(names, size)
            )
            for distribution in distributions
        ]
    )
    for one in found.estimates:
        assert abs(one.value - value) < 4 * one.error, one.name
    assert len(found.estimates) == (4 if draws_of == "sets" else 5)
    assert found.costs["usd"] < 8  # by today's costs, in which z has none
    assert any("z: no longer in the pool" in note for note in found.notes)
    assert not any("no longer" in note for note in evaluate_target(log.since(1_500), target).notes)


def test_no_target_draws_panels_with_departed_experts() -> None:
    always, same = (
        measure_agreement(make_changed_log(), make_panel_target(POOL, ["a", "b"])),
        measure_agreement(make_changed_log(), make_uniform_target(POOL)),
    )
    assert always.same == pytest.approx(2 / 12)
    assert always.impossible == 10
    assert same.impossible == 3
    assert summarise_log(make_changed_log())["costs"]["usd"] == pytest.approx(
        np.mean([1 + 2, 1 + 3, 2 + 3, *(i + j for i, j in itertools.combinations(range(1, 5), 2))])
    )


def test_an_unknown_expert_is_an_error_unless_declared_as_gone(tmp_path: Path) -> None:
    write_log(tmp_path / "log.jsonl", log_every_pair())
    with pytest.raises(
        DataError, match=r"line 1: available contains the unknown expert 'z'.*--gone NAME"
    ):
        read_log(tmp_path / "log.jsonl", POOL)
    with pytest.raises(DataError, match="unknown expert 'z'"):
        read_log(tmp_path / "log.jsonl", POOL, gone=["y"])
    assert read_log(tmp_path / "log.jsonl", POOL, gone=["z", "a"]).gone == ("z",)


def test_since_drops_earlier_decisions_and_refuses_an_empty_rest() -> None:
    assert len(make_changed_log().since(6).entries) == 6
    assert make_changed_log().since(6).gone == ()
    assert make_changed_log().since(5).gone == ("z",)
    with pytest.raises(DataError, match="the last one is number 11"):
        make_changed_log().since(12)


@pytest.mark.parametrize("field", ["draws", "available", "excluded"])
def test_departed_experts_are_found_in_every_field(field: str) -> None:
    named: dict[str, Any] = {"draws": ("a", "z"), "available": ("a", "b", "z"), "excluded": ("z",)}
    entries = [
        LogEntry(f"d{t}", t, ("a", "b"), 0.5, propensity=0.3)._replace(**{field: named[field]})
        for t in range(3)
    ]
    log = log_from_entries(POOL, entries, gone=["z"])
    assert find_unknown_experts(POOL, entries) == log.gone == log.since(1).gone == ("z",)
    assert log.since(1).entries == log.entries[1:]
