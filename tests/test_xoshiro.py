"""The generator inside a round: xoshiro256++ as published, seeded by Philox."""

import math

import numpy as np
import pytest

from bylot.numerics.philox import RngKey, philox_block
from bylot.numerics.variates import Xoshiro, next_word, open_stream, open_uniform_from_word

MASK = 2**64 - 1


def rotate_left(x: int, k: int) -> int:
    """Rotate the 64 bits of x to the left by k."""
    return ((x << k) | (x >> (64 - k))) & MASK


def xoshiro_in_python(state: list[int], count: int) -> list[int]:
    """The published algorithm on Python's integers."""
    s0, s1, s2, s3 = state
    words = []
    for _ in range(count):
        words.append((rotate_left((s0 + s3) & MASK, 23) + s0) & MASK)
        t = (s1 << 17) & MASK
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= t
        s3 = rotate_left(s3, 45)
    return words


def draw_words(s: Xoshiro, count: int) -> list[int]:
    """The first words of a stream."""
    words = []
    for _ in range(count):
        bits, s = next_word(Xoshiro(*map(np.uint64, s)))  # come back to Python as plain integers
        words.append(int(bits))
    return words


def test_the_first_words_from_a_known_state() -> None:
    start = Xoshiro(*(np.uint64(n) for n in (1, 2, 3, 4)))
    assert draw_words(start, 3) == [41943041, 58720359, 3588806011781223]


@pytest.mark.parametrize("seed", range(5))
def test_words_are_those_of_the_published_algorithm(seed: int) -> None:
    state = [int(x) for x in np.random.default_rng(seed).integers(0, MASK, 4, np.uint64)]
    start = Xoshiro(*(np.uint64(x) for x in state))
    assert draw_words(start, 200) == xoshiro_in_python(state, 200)


def test_a_stream_starts_from_the_philox_words_of_its_round() -> None:
    block = philox_block(np.uint64(0), np.uint64(11), np.uint64(2), np.uint64(7))
    assert [int(x) for x in open_stream(RngKey(7, 11), 2)] == [int(x) for x in block]
    others = [
        open_stream(RngKey(8, 11), 2),
        open_stream(RngKey(7, 12), 2),
        open_stream(RngKey(7, 11), 3),
    ]
    assert all(draw_words(one, 1) != draw_words(open_stream(RngKey(7, 11), 2), 1) for one in others)


@pytest.mark.parametrize("bits", [0, 1, 4095, 4096, 2**63, MASK - 1, MASK])
def test_an_open_uniform_has_finite_logarithms(bits: int) -> None:
    u = open_uniform_from_word(np.uint64(bits))
    assert 0 < u < 1
    assert math.isfinite(math.log(-math.log(u)))
    assert u == ((bits >> 12) + 0.5) / 2**52
