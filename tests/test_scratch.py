"""Arrays on the stack and at an address hold what is written; views are kept alive."""

import sys

import numpy as np
import pytest

from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.philox import LoopKey, RngKey
from bylot.numerics.scratch_arrays import (
    STACK_NUMBERS,
    make_draws,
    make_probabilities,
    no_bools,
    no_floats,
    scratch_floats,
    scratch_ints,
)


@jit
def sum_squares(size: int) -> tuple[int, float]:
    whole, half = scratch_ints(size), scratch_floats(size)
    for i in range(size):
        whole[i], half[i] = i * i, 0.5 * i
    return int(whole.sum()), float(half.sum())


@pytest.mark.parametrize("size", [0, 1, STACK_NUMBERS, STACK_NUMBERS + 1, 1_000])
def test_arrays_on_the_stack_and_larger_ones_hold_what_is_written(size: int) -> None:
    numbers = np.arange(size)
    assert sum_squares(size) == ((numbers**2).sum(), 0.5 * numbers.sum())


def test_empty_arrays_come_back_to_python() -> None:
    assert no_floats().shape == no_bools().shape == (0,)
    assert no_floats().dtype == np.float64
    assert no_bools().dtype == np.bool_


@jit
def fill_ticket(rng: RngKey | LoopKey, count: int) -> tuple[Ints, Floats]:
    draws, probabilities = make_draws(rng, count), make_probabilities(rng, count)
    for j in range(count):
        draws[j], probabilities[j] = rng.t + j, 0.25 * j
    return draws, probabilities


def test_draws_are_written_to_the_address_of_a_loop() -> None:
    draws, probabilities = np.zeros((2, 3), np.int64), np.zeros((2, 3))
    fill_ticket(LoopKey(0, 7, draws[1].ctypes.data, probabilities[1].ctypes.data), 3)
    made = fill_ticket(RngKey(0, 7), 3)
    np.testing.assert_array_equal(draws, [[0, 0, 0], made[0]])
    np.testing.assert_array_equal(probabilities, [[0, 0, 0], made[1]])


@jit
def take_row(values: Floats, i: int) -> Floats:
    row: Floats = values[i]
    return row[1:]


def test_a_view_keeps_its_array_alive_and_no_longer() -> None:
    values = np.arange(6.0).reshape(2, 3)
    before = sys.getrefcount(values)
    parts = [take_row(values, 1) for _ in range(5)]
    assert sys.getrefcount(values) == before + len(parts)
    del parts[1:]
    assert sys.getrefcount(values) == before + 1
    del values
    np.testing.assert_array_equal(parts[0], [4.0, 5.0])
