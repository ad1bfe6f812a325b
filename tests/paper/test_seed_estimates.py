"""Standard errors of ratios and differences of means over shared seeds, against simulation."""

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

TABLES, SCENARIOS, SEEDS = 1_500, 4, 6  # as few seeds as in most scenarios

LossDraw = Callable[[np.random.Generator], dict[str, np.ndarray]]
"""Losses of policies in one scenario, by seed."""

Estimator = Callable[[list[ResultLine]], SeedEstimate]


def draw_independent_losses(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Losses that are independent between policies."""
    return {name: rng.uniform(0.5, 1.5, SEEDS) for name in (REFERENCE_POLICY, "a", "b")}


def draw_correlated_losses(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Losses with a common part: a seed that is hard for one policy is hard for all."""
    common = rng.uniform(0.5, 1.5, SEEDS)
    own = {name: rng.uniform(-0.2, 0.2, SEEDS) for name in (REFERENCE_POLICY, "a", "b")}
    return {name: common + noise for name, noise in own.items()}


def make_results(draw: LossDraw, rng: np.random.Generator, places: int = 1) -> list[ResultLine]:
    """Every policy loses 1 on average, in every place of every scenario."""
    lines = []
    for scenario in range(SCENARIOS):
        for place in range(places):
            for policy, gaps in draw(rng).items():
                by_seed = dict(enumerate(gaps.tolist()))
                place_name = f"{scenario}, {place}"
                lines.append(
                    ResultLine(
                        str(scenario), place_name, policy, 50, None, by_seed, SEEDS, SEEDS, 0, True
                    )
                )
    return lines


def measure_coverage(draw: LossDraw, truth: float, estimator: Estimator, places: int = 1) -> float:
    """The share of tables in which the truth lies within TIE_STANDARD_ERRORS standard errors."""
    rng = np.random.default_rng(1)
    found = [estimator(make_results(draw, rng, places)) for _ in range(TABLES)]
    return float(
        np.mean([abs(one.value - truth) <= TIE_STANDARD_ERRORS * one.error for one in found])
    )


NOMINAL_COVERAGE = 1 - 2 * float(student.sf(TIE_STANDARD_ERRORS, SCENARIOS * (SEEDS - 1)))
"""Student's share for as many errors as are estimated: 0.941, for a normal error's 0.954."""

# Four standard deviations of a share: 0.024
COVERAGE_TOLERANCE = 4 * math.sqrt(NOMINAL_COVERAGE * (1 - NOMINAL_COVERAGE) / TABLES)


def estimate_score(lines: list[ResultLine]) -> SeedEstimate:
    return estimate_relative_loss(lines, "a")


def estimate_lead(lines: list[ResultLine]) -> SeedEstimate:
    """The difference of two policies, neither of which is the reference."""
    return subtract_estimates(
        estimate_relative_loss(lines, "a"), estimate_relative_loss(lines, "b")
    )


def estimate_score_unpaired(lines: list[ResultLine]) -> SeedEstimate:
    """The score as if the loss of the reference were known and not estimated."""
    reference, own = (
        [line for line in lines if line.policy == name] for name in (REFERENCE_POLICY, "a")
    )
    known = {line.place: float(np.mean(list(line.gaps.values()))) for line in reference}
    return average_estimates(
        estimate_mean(
            {(line.scenario, seed): gap / known[line.place] for seed, gap in line.gaps.items()}
        )
        for line in own
    )


def test_scores_lie_within_two_errors_as_often_as_they_should() -> None:
    assert (
        abs(measure_coverage(draw_independent_losses, 1.0, estimate_score) - NOMINAL_COVERAGE)
        < COVERAGE_TOLERANCE
    )
    assert (
        abs(measure_coverage(draw_correlated_losses, 1.0, estimate_score) - NOMINAL_COVERAGE)
        < COVERAGE_TOLERANCE
    )
    assert (
        abs(
            measure_coverage(draw_independent_losses, 1.0, estimate_score, places=2)
            - NOMINAL_COVERAGE
        )
        < COVERAGE_TOLERANCE
    )


def test_differences_lie_within_two_errors_as_often_as_they_should() -> None:
    assert (
        abs(measure_coverage(draw_independent_losses, 0.0, estimate_lead) - NOMINAL_COVERAGE)
        < COVERAGE_TOLERANCE
    )
    assert (
        abs(measure_coverage(draw_correlated_losses, 0.0, estimate_lead) - NOMINAL_COVERAGE)
        < COVERAGE_TOLERANCE
    )


def test_the_tests_above_would_notice_a_reference_that_is_taken_as_known() -> None:
    assert (
        measure_coverage(draw_independent_losses, 1.0, estimate_score_unpaired)
        < NOMINAL_COVERAGE - 3 * COVERAGE_TOLERANCE
    )
    # The common part cancels in a ratio
    assert (
        measure_coverage(draw_correlated_losses, 1.0, estimate_score_unpaired)
        > NOMINAL_COVERAGE + COVERAGE_TOLERANCE
    )


def test_scenarios_on_one_pool_are_not_independent() -> None:
    rng = np.random.default_rng(2)
    one = make_results(draw_correlated_losses, rng)[:3]
    three = [
        line._replace(scenario=scenario, place=scenario)
        for scenario in ("x", "y", "z")
        for line in one
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
def test_a_mean_has_the_textbook_standard_error(values: list[float]) -> None:
    found = estimate_mean(dict(enumerate(values)))
    standard_error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    assert math.isclose(found.error, standard_error, rel_tol=1e-9, abs_tol=1e-12)
    assert divide_estimates(found, found) == SeedEstimate(
        1.0, dict.fromkeys(range(len(values)), 0.0)
    )
    assert subtract_estimates(found, found).error == 0.0


@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0)), min_size=3, max_size=9))
def test_a_ratio_has_the_error_of_the_delta_method(pairs: list[tuple[float, float]]) -> None:
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
    unpaired = divide_estimates(estimate_mean(values), estimate_mean(others)).error
    assert math.isclose(
        unpaired, math.sqrt(2) * estimate_mean(values).error / estimate_mean(values).value
    )
