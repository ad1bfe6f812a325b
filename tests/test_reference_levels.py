"""Reference levels of a log: random panels, and the best fixed mixture that keeps the limits."""

from collections.abc import Mapping

import numpy as np
import pytest

from bylot.errors import InsufficientOverlap
from bylot.evaluate import LogEntry, log_from_entries
from bylot.evaluate.result import estimate_reference_levels, make_best_mixture_target
from bylot.problem import Problem, at_most

PROBLEM = Problem(["a", "b", "c"], {"usd": [3.0, 2.0, 1.0]}, [at_most("usd", 4.0)], draws=2)
PANELS = {("a", "b"): 0.5, ("a", "c"): 0.3, ("b", "c"): 0.2}  # and how often each is drawn
REWARDS = {("a", "b"): 0.9, ("a", "c"): 0.6, ("b", "c"): 0.2}
RANDOM_REWARD = np.mean([*REWARDS.values()])
BEST_REWARD = (
    0.6  # only (a, c) and cheaper mixtures cost at most 4; of (a, b) and (b, c) half: 0.55
)


def make_log(
    rounds: int = 2_000,
    known: bool = True,
    seed: int = 1,
    chances: Mapping[tuple[str, str], float] = PANELS,
) -> list[LogEntry]:
    """Panels drawn by fixed probabilities, with noise on their rewards."""
    rng, names = np.random.default_rng(seed), [*chances]
    return [
        LogEntry(
            id=f"d{t}",
            t=t,
            draws=(panel := names[rng.choice(len(names), p=[*chances.values()])]),
            reward=float(np.clip(REWARDS[panel] + rng.normal(0, 0.05), 0, 1)),
            propensity=chances[panel] if known else None,
        )
        for t in range(rounds)
    ]


def test_both_levels_agree_with_their_exact_values() -> None:
    random, best = estimate_reference_levels(log_from_entries(PROBLEM, make_log()), (0.0, 1.0))
    assert random.name.startswith("random panels")
    assert random.value == pytest.approx(RANDOM_REWARD, abs=0.03)
    assert best.value == pytest.approx(BEST_REWARD, abs=0.02)
    for level in (random, best):
        assert level.reason is None
        numbers = [level.low, level.value, level.high]
        assert numbers == sorted(numbers, key=float)  # type: ignore[arg-type]


def test_a_router_that_has_learned_has_a_level_of_random_panels() -> None:
    learned = {("a", "b"): 0.02, ("a", "c"): 0.96, ("b", "c"): 0.02}
    log = log_from_entries(PROBLEM, make_log(600, chances=learned))
    random, _ = estimate_reference_levels(log, (0.0, 1.0))  # 600 rounds are worth 50 of random ones
    assert random.low is not None
    assert random.high is not None
    assert random.low <= RANDOM_REWARD <= random.high <= random.low + 0.3
    few = log_from_entries(PROBLEM, make_log(100, chances=learned))
    random, _ = estimate_reference_levels(few, (0.0, 1.0))
    assert random.value is None
    assert "an interval needs at least 20" in (random.reason or "")


def test_the_best_mixture_keeps_the_limits() -> None:
    found = make_best_mixture_target(log_from_entries(PROBLEM, make_log()))
    inclusion = found.distribution(None, np.empty(0, np.bool_)).inclusion
    assert inclusion @ PROBLEM.rows[0] <= 4.0 + 1e-9
    loose = PROBLEM.replace(limits=[at_most("usd", 5.0)])
    target = make_best_mixture_target(log_from_entries(loose, make_log()))
    assert target.distribution(None, np.empty(0, np.bool_)).inclusion == pytest.approx([1, 1, 0])


def test_the_mixture_uses_available_panels_only() -> None:
    target = make_best_mixture_target(log_from_entries(PROBLEM, make_log()))
    with pytest.raises(InsufficientOverlap, match="available"):
        target.distribution(None, np.array([False, True, True]))


def test_a_log_without_propensities_has_no_levels_but_reasons() -> None:
    log = log_from_entries(PROBLEM, make_log(known=False))
    for level in estimate_reference_levels(log, (0.0, 1.0)):
        assert level.value is None
        assert "propensity" in (level.reason or "")


def test_a_short_log_has_no_levels_but_reasons() -> None:
    log = log_from_entries(PROBLEM, make_log(rounds=20))
    for level in estimate_reference_levels(log, (0.0, 1.0)):
        assert (level.value, level.low, level.high) == (None, None, None)
        assert level.reason
    assert "no panel was drawn 40 times in 10 decisions" in str(level)


def test_a_log_of_one_decision_has_no_levels_but_reasons() -> None:
    log = log_from_entries(PROBLEM, make_log(rounds=1))  # its first half is empty
    for level in estimate_reference_levels(log, (0.0, 1.0)):
        assert level.value is None
        assert level.reason
