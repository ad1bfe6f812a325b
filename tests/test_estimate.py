"""Errors of what is made of means over shared seeds, against tables drawn many times."""

import math
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from bylot.experiments.estimate import Estimate, average, difference, mean, ratio
from bylot.experiments.verdict import REFERENCE, SURE, Line, loss

TABLES, WORLDS, SEEDS = 1_500, 4, 6  # as few seeds as most worlds are played with

Draw = Callable[[np.random.Generator], dict[str, np.ndarray]]
"""What policies lose in one world, by seed."""

Measured = Callable[[list[Line]], Estimate]


def apart(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Luck of its own for everybody."""
    return {name: rng.uniform(0.5, 1.5, SEEDS) for name in (REFERENCE, "a", "b")}


def together(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A seed that is hard for one is hard for all."""
    common = rng.uniform(0.5, 1.5, SEEDS)
    own = {name: rng.uniform(-0.2, 0.2, SEEDS) for name in (REFERENCE, "a", "b")}
    return {name: common + more for name, more in own.items()}


def table(draw: Draw, rng: np.random.Generator, places: int = 1) -> list[Line]:
    """Everybody loses 1 in the mean, in every place of every world."""
    lines = []
    for world in range(WORLDS):
        for place in range(places):
            for policy, gaps in draw(rng).items():
                by_seed = dict(enumerate(gaps.tolist()))
                where = f"{world}, {place}"
                lines.append(
                    Line(str(world), where, policy, 50, None, by_seed, SEEDS, SEEDS, 0, True)
                )
    return lines


def covered(draw: Draw, truth: float, measured: Measured, places: int = 1) -> float:
    """In how large a part of all tables the truth lies within SURE standard errors."""
    rng = np.random.default_rng(1)
    found = [measured(table(draw, rng, places)) for _ in range(TABLES)]
    return float(np.mean([abs(one.value - truth) <= SURE * one.error for one in found]))


MEANT = 1 - 2 * float(student.sf(SURE, WORLDS * (SEEDS - 1)))
"""Student's share for as many errors as are estimated: 0.941, for a normal error's 0.954."""

LEEWAY = 4 * math.sqrt(MEANT * (1 - MEANT) / TABLES)  # four standard deviations of a share: 0.024


def score(lines: list[Line]) -> Estimate:
    return loss(lines, "a")


def lead(lines: list[Line]) -> Estimate:
    """Of two that are compared, neither of which is the measure."""
    return difference(loss(lines, "a"), loss(lines, "b"))


def unpaired(lines: list[Line]) -> Estimate:
    """As if what the reference loses were known and not measured."""
    measure, mine = ([line for line in lines if line.policy == name] for name in (REFERENCE, "a"))
    known = {line.place: float(np.mean(list(line.gaps.values()))) for line in measure}
    return average(
        mean({(line.world, seed): gap / known[line.place] for seed, gap in line.gaps.items()})
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
    three = [line._replace(world=world, place=world) for world in ("x", "y", "z") for line in one]
    pooled = [line._replace(pool="same") for line in three]
    assert math.isclose(loss(pooled, "a").error, loss(one, "a").error)
    assert math.isclose(loss(three, "a").error, loss(one, "a").error / math.sqrt(3))


numbers = st.lists(st.floats(0.1, 10.0), min_size=2, max_size=9)


@given(numbers)
def test_a_mean_has_the_error_that_every_book_gives_it(values: list[float]) -> None:
    found = mean(dict(enumerate(values)))
    usual = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    assert math.isclose(found.error, usual, rel_tol=1e-9, abs_tol=1e-12)
    assert ratio(found, found) == Estimate(1.0, dict.fromkeys(range(len(values)), 0.0))
    assert difference(found, found).error == 0.0


@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0)), min_size=3, max_size=9))
def test_a_ratio_moves_as_its_pulls_say(pairs: list[tuple[float, float]]) -> None:
    top, bottom = (dict(enumerate(side)) for side in zip(*pairs, strict=True))
    found, count = ratio(mean(top), mean(bottom)), len(pairs)
    residuals = [x - found.value * y for x, y in pairs]
    error = math.sqrt(sum(r * r for r in residuals) / (count * (count - 1)))
    assert math.isclose(found.error, error / mean(bottom).value, rel_tol=1e-9, abs_tol=1e-12)


def test_seeds_that_are_not_shared_do_not_cancel() -> None:
    values = {0: 1.0, 1: 2.0, 2: 4.0}
    others = {seed + 3: value for seed, value in values.items()}
    assert ratio(mean(values), mean(values)).error == 0.0
    apart = ratio(mean(values), mean(others)).error
    assert math.isclose(apart, math.sqrt(2) * mean(values).error / mean(values).value)
