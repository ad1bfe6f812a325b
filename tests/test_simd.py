"""Sums over eight lanes: the order is fixed, so the bits are the same on every machine."""

import math

import numpy as np
import pytest
from numba.core.errors import TypingError

from bylot.numerics.jit import Floats, jit
from bylot.numerics.simd import (
    SIMD_WIDTH,
    dot_product,
    keep_lanes,
    load_inside,
    load_lanes,
    max_by_lane,
    max_lanes,
    min_by_lane,
    min_lanes,
    splat,
    store_inside,
    sum_lanes,
)


@jit
def sum_by_lanes(x: Floats) -> float:
    acc = splat(0.0)
    for i in range(0, x.size, SIMD_WIDTH):
        acc = acc + load_lanes(x, i, 0.0)
    return sum_lanes(acc)


@jit
def max_by_lanes(x: Floats) -> float:
    top = splat(-np.inf)
    for i in range(0, x.size, SIMD_WIDTH):
        top = max_by_lane(top, load_lanes(x, i, -np.inf))
    return max_lanes(top)


@jit
def min_by_lanes(x: Floats) -> float:
    least = splat(np.inf)
    for i in range(0, x.size, SIMD_WIDTH):
        least = min_by_lane(least, load_lanes(x, i, np.inf))
    return min_lanes(least)


@jit
def combine_lanes(x: Floats) -> float:
    v = load_lanes(x, 0, -1.0)
    return sum_lanes(keep_lanes(v, 2.0 * v - 1.0) * (v + 0.5))


def sum_in_python(x: Floats) -> float:
    """Eight running sums, added up as ((0+4)+(2+6)) + ((1+5)+(3+7))."""
    s = [0.0] * SIMD_WIDTH
    for i, value in enumerate(x):
        s[i % SIMD_WIDTH] += value
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 50, 1_000])
def test_a_sum_is_taken_in_the_documented_order(size: int) -> None:
    x = np.random.default_rng(size).standard_normal(size)
    assert sum_by_lanes(x) == sum_in_python(x)
    assert max_by_lanes(x) == x.max()
    assert min_by_lanes(x) == x.min()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 50])
def test_products_are_summed_as_documented(size: int) -> None:
    x, y = np.random.default_rng(size).standard_normal((2, size))
    assert dot_product(x, y) == sum_in_python(x * y)


@pytest.mark.parametrize("size", [5, 16, 50])
def test_strided_numbers_give_the_same_sum(size: int) -> None:
    x = np.random.default_rng(size).standard_normal((size, 3))
    assert sum_by_lanes(x[:, 1]) == sum_by_lanes(x[:, 1].copy())
    assert max_by_lanes(x[:, 1]) == x[:, 1].max()


def test_another_order_gives_other_bits() -> None:
    x = np.array([1e16, 1.0, -1e16] + 50 * [0.1])
    assert sum_by_lanes(x) == sum_in_python(x) != math.fsum(x)


@jit
def sum_rows(rows: Floats) -> Floats:
    sums = np.empty(rows.shape[0])
    for n in range(rows.shape[0]):
        sums[n] = sum_by_lanes(rows[n])
    return sums


def test_an_inlined_sum_gives_the_same_bits() -> None:
    rows = np.random.default_rng(0).standard_normal((20, 37))
    assert np.array_equal(sum_rows(rows), [sum_by_lanes(row) for row in rows])


def test_lanes_are_kept_where_they_are_not_negative() -> None:
    x = np.array([1.0, -1.0, 0.0, 3.0])
    assert combine_lanes(x) == (2 * 1 - 1) * 1.5 + (2 * 0 - 1) * 0.5 + (2 * 3 - 1) * 3.5


@jit
def double_inside(out: Floats, x: Floats, start: int) -> None:
    store_inside(out, start, 2.0 * load_inside(x, start))


@pytest.mark.parametrize("start", [0, 1, 5])
def test_eight_numbers_are_loaded_and_stored_wherever_they_begin(start: int) -> None:
    x, out = np.arange(13.0), np.full(13, -1.0)
    double_inside(out, x, start)
    inside = (np.arange(13) >= start) & (np.arange(13) < start + SIMD_WIDTH)
    assert (out == np.where(inside, 2 * x, -1.0)).all()


def test_numbers_with_gaps_are_not_loaded_as_eight() -> None:
    with pytest.raises(TypingError):
        double_inside(np.zeros(8), np.zeros((8, 2))[:, 0], 0)
