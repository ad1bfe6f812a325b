"""Errors of what is made of means over shared seeds, against tables drawn many times."""

import math
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from bylot_paper.default_rule import (
    REFERENCE_POLICY,
    TIE_STANDARD_ERRORS,
    ResultLine,
    SeedEstimate,
    average_estimates,
    divide_estimates,
    estimate_mean,
    estimate_relative_loss,
    subtract_estimates,
)

TABLES, WORLDS, SEEDS = 1_500, 4, 6  # as few seeds as most worlds are played with

Draw = Callable[[np.random.Generator], dict[str, np.ndarray]]
"""What policies lose in one world, by seed."""

Measured = Callable[[list[ResultLine]], SeedEstimate]


def apart(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Luck of its own for everybody."""
    return {name: rng.uniform(0.5, 1.5, SEEDS) for name in (REFERENCE_POLICY, "a", "b")}


def together(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A seed that is hard for one is hard for all."""
    common = rng.uniform(0.5, 1.5, SEEDS)
    own = {name: rng.uniform(-0.2, 0.2, SEEDS) for name in (REFERENCE_POLICY, "a", "b")}
    return {name: common + more for name, more in own.items()}


def table(draw: Draw, rng: np.random.Generator, places: int = 1) -> list[ResultLine]:
    """Everybody loses 1 in the mean, in every place of every world."""
    lines = []
    for world in range(WORLDS):
        for place in range(places):
            for policy, gaps in draw(rng).items():
                by_seed = dict(enumerate(gaps.tolist()))
                where = f"{world}, {place}"
                lines.append(
                    ResultLine(str(world), where, policy, 50, None, by_seed, SEEDS, SEEDS, 0, True)
                )
    return lines


def covered(draw: Draw, truth: float, measured: Measured, places: int = 1) -> float:
    """In how large a part of all tables the truth lies within SURE standard errors."""
    rng = np.random.default_rng(1)
    found = [measured(table(draw, rng, places)) for _ in range(TABLES)]
    return float(
        np.mean([abs(one.value - truth) <= TIE_STANDARD_ERRORS * one.error for one in found])
    )


MEANT = 1 - 2 * float(student.sf(TIE_STANDARD_ERRORS, WORLDS * (SEEDS - 1)))
"""Student's share for as many errors as are estimated: 0.941, for a normal error's 0.954."""

LEEWAY = 4 * math.sqrt(MEANT * (1 - MEANT) / TABLES)  # four standard deviations of a share: 0.024


def score(lines: list[ResultLine]) -> SeedEstimate:
    return estimate_relative_loss(lines, "a")


def lead(lines: list[ResultLine]) -> SeedEstimate:
    """Of two that are compared, neither of which is the measure."""
    return subtract_estimates(
        estimate_relative_loss(lines, "a"), estimate_relative_loss(lines, "b")
    )


def unpaired(lines: list[ResultLine]) -> SeedEstimate:
    """As if what the reference loses were known and not measured."""
    measure, mine = (
        [line for line in lines if line.policy == name] for name in (REFERENCE_POLICY, "a")
    )
    known = {line.place: float(np.mean(list(line.gaps.values()))) for line in measure}
    return average_estimates(
        estimate_mean(
            {(line.scenario, seed): gap / known[line.place] for seed, gap in line.gaps.items()}
        )
        for line in mine
    )


def test_scores_lie_within_two_errors_as_often_as_they_should() -> None:
    assert abs(covered(apart, 1.0, score) - MEANT) < LEEWAY
    assert abs(covered(together, 1.0, score) - MEANT) < LEEWAY
    assert abs(covered(apart, 1.0, score, places=2) - MEANT) < LEEWAY


def test_the_lead_of_one_over_another_does_too() -> None:
    assert abs(covered(apart, 0.0, lead) - MEANT) < LEEWAY
    assert abs(covered(together, 0.0, lead) - MEANT) < LEEWAY


def test_the_tests_above_would_notice_a_measure_that_is_taken_for_known() -> None:
    assert covered(apart, 1.0, unpaired) < MEANT - 3 * LEEWAY
    assert covered(together, 1.0, unpaired) > MEANT + LEEWAY  # common luck is no error of a ratio


def test_worlds_on_one_pool_are_one_draw_of_chance() -> None:
    rng = np.random.default_rng(2)
    one = table(together, rng)[:3]
    three = [
        line._replace(scenario=world, place=world) for world in ("x", "y", "z") for line in one
    ]
    pooled = [line._replace(pool="same") for line in three]
    assert math.isclose(
        estimate_relative_loss(pooled, "a").error, estimate_relative_loss(one, "a").error
    )
    assert math.isclose(
        estimate_relative_loss(three, "a").error,
        estimate_relative_loss(one, "a").error / math.sqrt(3),
    )


numbers = st.lists(st.floats(0.1, 10.0), min_size=2, max_size=9)


@given(numbers)
def test_a_mean_has_the_error_that_every_book_gives_it(values: list[float]) -> None:
    found = estimate_mean(dict(enumerate(values)))
    usual = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    assert math.isclose(found.error, usual, rel_tol=1e-9, abs_tol=1e-12)
    assert divide_estimates(found, found) == SeedEstimate(
        1.0, dict.fromkeys(range(len(values)), 0.0)
    )
    assert subtract_estimates(found, found).error == 0.0


@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0)), min_size=3, max_size=9))
def test_a_ratio_moves_as_its_pulls_say(pairs: list[tuple[float, float]]) -> None:
    top, bottom = (dict(enumerate(side)) for side in zip(*pairs, strict=True))
    found, count = divide_estimates(estimate_mean(top), estimate_mean(bottom)), len(pairs)
    residuals = [x - found.value * y for x, y in pairs]
    error = math.sqrt(sum(r * r for r in residuals) / (count * (count - 1)))
    assert math.isclose(
        found.error, error / estimate_mean(bottom).value, rel_tol=1e-9, abs_tol=1e-12
    )


def test_seeds_that_are_not_shared_do_not_cancel() -> None:
    values = {0: 1.0, 1: 2.0, 2: 4.0}
    others = {seed + 3: value for seed, value in values.items()}
    assert divide_estimates(estimate_mean(values), estimate_mean(values)).error == 0.0
    apart = divide_estimates(estimate_mean(values), estimate_mean(others)).error
    assert math.isclose(
        apart, math.sqrt(2) * estimate_mean(values).error / estimate_mean(values).value
    )
