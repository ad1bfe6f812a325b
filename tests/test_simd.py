"""Sums by eight: the order is ours, the bits are everyone's."""

import math

import numpy as np
import pytest

from bylot.numerics.jit import Floats, jit
from bylot.numerics.simd import (
    SIMD_WIDTH,
    keep_lanes,
    load_lanes,
    max_by_lane,
    max_lanes,
    splat,
    sum_lanes,
)


@jit
def summed(x: Floats) -> float:
    acc = splat(0.0)
    for i in range(0, x.size, SIMD_WIDTH):
        acc = acc + load_lanes(x, i, 0.0)
    return sum_lanes(acc)


@jit
def greatest(x: Floats) -> float:
    top = splat(-np.inf)
    for i in range(0, x.size, SIMD_WIDTH):
        top = max_by_lane(top, load_lanes(x, i, -np.inf))
    return max_lanes(top)


@jit
def combined(x: Floats) -> float:
    v = load_lanes(x, 0, -1.0)
    return sum_lanes(keep_lanes(v, 2.0 * v - 1.0) * (v + 0.5))


def by_hand(x: Floats) -> float:
    """Eight running sums, added up as ((0+4)+(2+6)) + ((1+5)+(3+7))."""
    s = [0.0] * SIMD_WIDTH
    for i, value in enumerate(x):
        s[i % SIMD_WIDTH] += value
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 50, 1_000])
def test_a_sum_is_taken_in_the_order_that_is_written_down(size: int) -> None:
    x = np.random.default_rng(size).standard_normal(size)
    assert summed(x) == by_hand(x)
    assert greatest(x) == x.max()


@pytest.mark.parametrize("size", [5, 16, 50])
def test_numbers_apart_in_memory_are_summed_alike(size: int) -> None:
    x = np.random.default_rng(size).standard_normal((size, 3))
    assert summed(x[:, 1]) == summed(x[:, 1].copy())
    assert greatest(x[:, 1]) == x[:, 1].max()


def test_the_order_of_a_sum_shows_in_its_bits() -> None:
    x = np.array([1e16, 1.0, -1e16] + 50 * [0.1])
    assert summed(x) == by_hand(x) != math.fsum(x)


@jit
def summed_all(rows: Floats) -> Floats:
    sums = np.empty(rows.shape[0])
    for n in range(rows.shape[0]):
        sums[n] = summed(rows[n])
    return sums


def test_the_same_bits_come_out_when_the_sum_is_inlined() -> None:
    rows = np.random.default_rng(0).standard_normal((20, 37))
    assert np.array_equal(summed_all(rows), [summed(row) for row in rows])


def test_lanes_are_kept_where_they_are_not_negative() -> None:
    x = np.array([1.0, -1.0, 0.0, 3.0])
    assert combined(x) == (2 * 1 - 1) * 1.5 + (2 * 0 - 1) * 0.5 + (2 * 3 - 1) * 3.5
