"""Functions inside their callers, borrowed rows and arrays on the stack compute what others do."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.scratch_arrays import borrow_row, scratch_floats, scratch_ints


@jit_embedded
def add_to_row(values: Floats, x: int, more: float) -> None:
    row = borrow_row(values, x)
    for i in range(row.size):
        row[i] += more


@jit_apart
def sum_row(values: Floats, x: int) -> float:
    total = 0.0
    for i in range(values.shape[1]):
        total += values[x, i]
    return total


@jit_embedded
def reverse_row(out: Floats, values: Floats, x: int, order: Ints) -> None:
    """By way of arrays on the stack."""
    row, places = scratch_floats(values.shape[1]), scratch_ints(order.size)
    for i in range(order.size):
        places[i] = order[i]
        row[i] = values[x, i]
    for i in range(order.size):
        out[i] = row[places[i]]


@jit
def call_all(out: Floats, values: Floats, x: int, order: Ints, times: int) -> float:
    for _ in range(times):
        add_to_row(values, x, 1.0)
        reverse_row(out, values, x, order)
    return sum_row(values, x)


@pytest.mark.parametrize("x", [0, 2])
def test_rows_are_borrowed_and_arrays_on_the_stack_hold_numbers(x: int) -> None:
    values, out, order = np.arange(12.0).reshape(3, 4), np.empty(4), np.arange(3, -1, -1)
    expected = np.arange(12.0).reshape(3, 4)
    expected[x] += 5.0
    assert call_all(out, values, x, order, 5) == expected[x].sum()
    assert_array_equal(values, expected)
    assert_array_equal(out, expected[x, ::-1])


def test_a_loop_gives_the_stack_back() -> None:
    n = 1000  # a million rounds would otherwise need 16 GB
    values, out, order = np.zeros((1, n)), np.empty(n), np.arange(n)
    assert call_all(out, values, 0, order, 1_000_000) == 1e6 * n
    assert (out == 1e6).all()
