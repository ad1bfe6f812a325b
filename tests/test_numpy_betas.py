"""Beta variates of compiled code have the bits of NumPy's; NumPy rounds otherwise where it fuses
products and sums, as on processors other than x86-64.
"""

import platform
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylot.numerics.jit import Floats
from bylot.numerics.numpy_betas import WORDS_AT_ONCE, WordStream, draw_betas, take_word

MANY = 60_000  # values: tails of the ziggurats, one in some thousands, are among them
on_x86 = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="NumPy's bits are others"
)


def make_generator(seed: int, counter: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(counter=counter, key=seed))


def draw_with_numpy(rng: np.random.Generator, means: Floats, concentration: float) -> Floats:
    values, inside = means.copy(), (means > 0) & (means < 1)
    v = means[inside]
    values[inside] = rng.beta(concentration * v, concentration * (1 - v))
    return values


@on_x86
@pytest.mark.parametrize("concentration", [0.7, 2.0, 2.000001, 5.0, 20.0, 400.0])
@pytest.mark.parametrize("kind", ["even", "extreme", "one"])
def test_betas_have_the_bits_of_numpy(concentration: float, kind: str) -> None:
    rng = np.random.default_rng(3)
    means = {
        "even": rng.uniform(0, 1, MANY),
        "extreme": rng.beta(0.1, 0.1, MANY).round(12),  # many of 0, of 1, and close to them
        "one": np.full(MANY, min(1 / concentration, 0.5)),  # a shape of 1, up to rounding
    }[kind]
    drawn = draw_betas(make_generator(9), means, concentration)
    assert np.array_equal(drawn, draw_with_numpy(make_generator(9), means, concentration))
    assert not np.array_equal(drawn, draw_betas(make_generator(10), means, concentration))


@on_x86
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
    st.floats(1, 100),
    st.integers(0, 2**64 - 1),
    st.sampled_from([0, 5 << 192, 2**64 - 2, 2**128 - 3, 2**192 - 1, 2**256 - 2]),
    st.integers(0, 9),
)
def test_betas_continue_the_stream_of_a_generator(
    means: list[float], concentration: float, seed: int, counter: int, before: int
) -> None:
    ours, theirs = make_generator(seed, counter), make_generator(seed, counter)
    for rng in (ours, theirs):
        rng.integers(0, 3, before)  # each takes half a word
    drawn = draw_betas(ours, np.array(means), concentration)
    assert np.array_equal(drawn, draw_with_numpy(theirs, np.array(means), concentration))


@pytest.mark.parametrize("counter", [0, 2**64 - 100, 2**128 - 7, 2**192 - 1, 2**256 - 50])
def test_words_are_those_of_philox(counter: int) -> None:
    philox = np.random.Philox(counter=counter, key=77)
    state: Any = philox.state["state"]
    words, at = np.zeros(WORDS_AT_ONCE, np.uint64), WORDS_AT_ONCE
    stream, taken = WordStream(words, state["counter"], state["key"]), []
    for _ in range(2 * WORDS_AT_ONCE + 5):
        word, at = take_word(stream, at)
        taken.append(int(word))
    assert taken == philox.random_raw(len(taken)).tolist()


def test_means_keep_their_shape_and_are_not_changed() -> None:
    means = np.array([[0.5, 0.0], [1.0, 0.25]])[:, ::-1]
    drawn = draw_betas(make_generator(1), means, 20.0)
    assert means.tolist() == [[0.0, 0.5], [0.25, 1.0]]
    assert drawn.shape == means.shape
    assert drawn[0, 0] == 0.0
    assert drawn[1, 1] == 1.0
    assert 0 < drawn[0, 1] < 1
