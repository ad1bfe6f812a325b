"""Normal, Beta and Gumbel variates against their distributions, by Kolmogorov and Smirnov."""

import math

import numpy as np
import pytest
from scipy import stats

from bylot.numerics.jit import Floats, jit
from bylot.numerics.philox import RngKey
from bylot.numerics.variates import (
    ZIGGURAT_EDGES,
    ZIGGURAT_HEIGHTS,
    ZIGGURAT_LAYERS,
    ZIGGURAT_TAIL,
    add_gumbels,
    draw_normal,
    fill_betas,
    open_stream,
)

N = 100_000
SHAPES = [
    (1.0, 1.0),
    (1.0, 3.0),
    (3.0, 1.0),
    (1.0 + 1e-9, 5.0),
    (1.3, 1.2),
    (40.0, 2.5),
    (5000.5, 12.25),
    (3e6, 1e6),
]
MIN_P_VALUE = 1e-4  # the seeds are fixed, so a correct sampler never fails


def draw_betas(a: float, b: float) -> Floats:
    """N draws from one Beta."""
    out = np.empty(N)
    fill_betas(out, np.full(N, a), np.full(N, b), RngKey(3, 1), 2)
    return out


@jit
def draw_normals(count: int) -> Floats:
    out, s = np.empty(count), open_stream(RngKey(5, 2), 9)
    for i in range(count):
        out[i], s = draw_normal(s)
    return out


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_betas_follow_their_distribution(a: float, b: float) -> None:
    assert stats.kstest(draw_betas(a, b), stats.beta(a, b).cdf).pvalue > MIN_P_VALUE


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_the_test_above_would_notice_a_mean_off_by_a_thirtieth_of_the_spread(
    a: float, b: float
) -> None:
    distribution = stats.beta(a, b)
    shifted = draw_betas(a, b) + distribution.std() / 30
    assert stats.kstest(shifted, distribution.cdf).pvalue < MIN_P_VALUE


def test_each_beta_has_its_own_parameters_and_its_own_randomness() -> None:
    out, a = np.empty(3), np.array([1.0, 1.0, 1e9])
    fill_betas(out, a, np.array([1.0, 1.0, 1.0]), RngKey(1, 1), 2)
    assert out[0] != out[1]
    assert out[2] > 0.999999


def test_betas_of_extreme_parameters_terminate() -> None:
    out = np.empty(2)
    fill_betas(out, np.array([np.nan, 1e308]), np.array([1.0, 1e308]), RngKey(1, 1), 2)


def test_normals_are_normal_in_the_middle_and_in_the_tail() -> None:
    x = draw_normals(2_000_000)
    assert stats.kstest(x, "norm").pvalue > MIN_P_VALUE
    far = np.abs(x[np.abs(x) > ZIGGURAT_TAIL])  # beyond the last rectangle: some 500 of them
    beyond = stats.norm.sf(ZIGGURAT_TAIL)
    assert abs(far.size - 2 * beyond * x.size) < 5 * math.sqrt(2 * beyond * x.size)
    assert stats.kstest(far, lambda y: 1 - stats.norm.sf(y) / beyond).pvalue > MIN_P_VALUE
    for layer in (1, 2, 128, ZIGGURAT_LAYERS - 1):  # in each rectangle, corner and all
        low, high = ZIGGURAT_EDGES[layer + 1], ZIGGURAT_EDGES[layer]
        expected = 2 * x.size * (stats.norm.cdf(high) - stats.norm.cdf(low))
        count = ((np.abs(x) > low) & (np.abs(x) <= high)).sum()
        assert abs(count - expected) < 5 * math.sqrt(expected)


def test_the_layers_have_equal_areas_and_end_at_the_top() -> None:
    # The lowest layer, with its tail, as a rectangle
    area = ZIGGURAT_EDGES[0] * ZIGGURAT_HEIGHTS[1]
    inner = ZIGGURAT_EDGES[1:-1] * (ZIGGURAT_HEIGHTS[2:] - ZIGGURAT_HEIGHTS[1:-1])
    np.testing.assert_allclose(inner, area, rtol=1e-11)  # the last one too, so TAIL is right


def test_gumbels_follow_their_distribution() -> None:
    x = np.full(N, 7.0)
    add_gumbels(x, RngKey(1, 4), 3)
    assert stats.kstest(x - 7, "gumbel_r").pvalue > MIN_P_VALUE
    assert stats.kstest(x - 7.02, "gumbel_r").pvalue < MIN_P_VALUE
