"""Beta variates with the bits of `numpy.random.Generator.beta` on x86-64, in half of its time.

Environments draw their values with NumPy's generator on Philox, which takes longer than playing
most policies on them. `variates` draws faster still, but earlier results are to be reproduced. On
other processors NumPy may fuse products and sums, and differ in the last bit.

NumPy's methods: a Beta is G_a / (G_a + G_b). A gamma of a shape above 1 is by Marsaglia and Tsang
(ACM TOMS 2000) on a ziggurat's normal, of shape 1 a ziggurat's exponential, and of a smaller shape
a power of an exponential power variate by rejection (Devroye, Non-Uniform Random Variate
Generation, 1986). numba has NumPy's tables of both ziggurats.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba.np.random import _constants as tables

from bylot.numerics.jit import Floats, jit, jit_entry, jit_inline
from bylot.numerics.philox import philox_words, uniform_from_word
from bylot.numerics.variates import is_gamma_accepted

Words = npt.NDArray[np.uint64]

WORDS_AT_ONCE = 1024  # a multiple of 4: the processor works on several blocks of Philox at a time
VALUES_AT_ONCE = 256  # so that intermediate numbers stay in the cache
MIN_CONCENTRATION = 2.0  # up to this, NumPy may use a third method: for two shapes of at most 1
NORMAL_WIDTHS, NORMAL_INSIDE, NORMAL_HEIGHTS = tables.wi_double, tables.ki_double, tables.fi_double
NORMAL_TAIL, INVERSE_TAIL = tables.ziggurat_nor_r, tables.ziggurat_nor_inv_r
EXP_WIDTHS, EXP_INSIDE, EXP_HEIGHTS = tables.we_double, tables.ke_double, tables.fe_double
EXP_TAIL = tables.ziggurat_exp_r
LAYER, MANTISSA = np.uint64(0xFF), np.uint64((1 << 52) - 1)
ONE, THREE, EIGHT = np.uint64(1), np.uint64(3), np.uint64(8)


class WordStream(NamedTuple):
    """A buffer of Philox words. Functions take the place `at` of the next word, and return the
    place after those that they have used.
    """

    words: Words
    counter: Words  # (4,) of the last block among them, the lowest word first
    key: Words  # (2,)


def draw_betas(rng: np.random.Generator, means: Floats, concentration: float) -> Floats:
    """Draw `rng.beta(c v, c (1 - v))` for each mean v in (0, 1), c being the concentration.

    Other means, 0 and 1, stay as they are. The generator is on Philox.
    It does not move on: do not draw from it again.

    >>> rng, again = (np.random.Generator(np.random.Philox(7)) for _ in range(2))
    >>> values = draw_betas(rng, np.array([0.5, 1.0, 0.25]), 20.0)
    >>> np.allclose(values[::2], again.beta([10, 5], [10, 15]))
    True
    """
    values = means.flatten()
    if concentration <= MIN_CONCENTRATION:
        inside = (values > 0) & (values < 1)
        v = values[inside]
        values[inside] = rng.beta(concentration * v, concentration * (1 - v))
    else:
        held = rng.bit_generator.state
        left, words = held["buffer"][held["buffer_pos"] :], np.zeros(WORDS_AT_ONCE, np.uint64)
        at = WORDS_AT_ONCE - len(left)
        words[at:] = left
        stream = WordStream(words, held["state"]["counter"], held["state"]["key"])
        fill_numpy_betas(values, float(concentration), stream, at)
    return values.reshape(means.shape)


@jit_entry
def fill_numpy_betas(means: Floats, concentration: float, stream: WordStream, at: int) -> None:
    """`draw_betas` in place, from a stream of words.

    What depends on no draw is computed in loops of their own, which the compiler vectorises.
    """
    places = np.empty(VALUES_AT_ONCE, np.uint64)
    shapes, d = np.empty(2 * VALUES_AT_ONCE), np.empty(2 * VALUES_AT_ONCE)
    spreads, words = np.empty(2 * VALUES_AT_ONCE), stream.words
    for start in range(0, means.size, VALUES_AT_ONCE):
        count = 0
        for i in range(start, min(start + VALUES_AT_ONCE, means.size)):
            places[count] = i
            count += (means[i] > 0.0) & (means[i] < 1.0)
        for k in range(count):
            v = means[places[k]]
            shapes[2 * k], shapes[2 * k + 1] = concentration * v, concentration * (1.0 - v)
        for k in range(2 * count):
            d[k] = shapes[k] - 1.0 / 3.0
            spreads[k] = 1.0 / math.sqrt(9.0 * d[k])  # not used for shapes of at most 1
        for k in range(2 * count):
            if shapes[k] > 1.0 and at + 2 <= words.size:  # the first trial, mostly the last
                _, inside, x = read_normal(words[at])
                u, root = uniform_from_word(words[at + 1]), 1.0 + spreads[k] * x
                if inside & (root > 0.0):
                    v = root * root * root
                    if is_gamma_accepted(d[k], x, u, v):
                        d[k] *= v
                        at += 2
                        continue
            d[k], at = take_gamma(shapes[k], stream, at)
        for k in range(count):
            means[places[k]] = d[2 * k] / (d[2 * k] + d[2 * k + 1])


@jit_inline
def read_normal(word: np.uint64) -> tuple[np.uint64, bool, float]:
    """The layer of the ziggurat, whether the point is inside of its rectangle, and the point."""
    layer, size = word & LAYER, (word >> np.uint64(9)) & MANTISSA
    x = np.float64(np.int64(size)) * NORMAL_WIDTHS[layer]
    return layer, size < NORMAL_INSIDE[layer], (-x if (word >> EIGHT) & ONE else x)


@jit
def take_word(stream: WordStream, at: int) -> tuple[np.uint64, int]:
    """The word at a place, and the next place; makes more words if there are no more."""
    if at == stream.words.size:
        make_words(stream)
        at = 0
    return stream.words[at], at + 1


@jit
def make_words(stream: WordStream) -> None:
    """Replace all words by the next ones."""
    words, counter, key = stream.words, stream.counter, stream.key
    c0, c1, c2, c3 = counter[0], counter[1], counter[2], counter[3]
    for n in range(0, words.size, 4):
        c0 += ONE
        if c0 == 0:
            c1 += ONE
            if c1 == 0:
                c2 += ONE
                c3 += ONE if c2 == 0 else np.uint64(0)
        made = philox_words(c0, c1, c2, c3, key[0], key[1])
        words[n], words[n + 1], words[n + 2], words[n + 3] = made
    counter[0], counter[1], counter[2], counter[3] = c0, c1, c2, c3


@jit
def take_uniform(stream: WordStream, at: int) -> tuple[float, int]:
    """A double in [0, 1)."""
    word, at = take_word(stream, at)
    return uniform_from_word(word), at


@jit
def take_normal(stream: WordStream, at: int) -> tuple[float, int]:
    """Draw from N(0, 1)."""
    while True:
        word, at = take_word(stream, at)
        layer, inside, x = read_normal(word)
        if inside:
            return x, at
        if layer == 0:
            while True:
                u, at = take_uniform(stream, at)
                w, at = take_uniform(stream, at)
                extra, level = -INVERSE_TAIL * math.log1p(-u), -math.log1p(-w)
                if level + level > extra * extra:
                    far = NORMAL_TAIL + extra
                    return (-far if (word >> np.uint64(17)) & ONE else far), at
        u, at = take_uniform(stream, at)
        low, high = NORMAL_HEIGHTS[layer], NORMAL_HEIGHTS[layer - ONE]
        if (high - low) * u + low < math.exp(-0.5 * x * x):
            return x, at


@jit
def take_exponential(stream: WordStream, at: int) -> tuple[float, int]:
    """Draw from the exponential distribution with mean 1."""
    while True:
        word, at = take_word(stream, at)
        layer, size = (word >> THREE) & LAYER, word >> np.uint64(11)
        x = np.float64(np.int64(size)) * EXP_WIDTHS[layer]
        if size < EXP_INSIDE[layer]:
            return x, at
        u, at = take_uniform(stream, at)
        if layer == 0:
            return EXP_TAIL - math.log1p(-u), at
        low, high = EXP_HEIGHTS[layer], EXP_HEIGHTS[layer - ONE]
        if (high - low) * u + low < math.exp(-x):
            return x, at


@jit
def take_gamma(shape: float, stream: WordStream, at: int) -> tuple[float, int]:
    """Draw from Gamma(shape)."""
    if shape == 1.0:
        return take_exponential(stream, at)
    if shape < 1.0:
        return take_small_gamma(shape, stream, at)
    d = shape - 1.0 / 3.0
    spread = 1.0 / math.sqrt(9.0 * d)
    while True:
        x, at = take_normal(stream, at)
        root = 1.0 + spread * x
        if root <= 0.0:
            continue
        v = root * root * root
        u, at = take_uniform(stream, at)
        if is_gamma_accepted(d, x, u, v):
            return d * v, at


@jit
def take_small_gamma(shape: float, stream: WordStream, at: int) -> tuple[float, int]:
    """Draw from Gamma(shape) for a shape below 1."""
    while True:
        u, at = take_uniform(stream, at)
        e, at = take_exponential(stream, at)
        if u <= 1.0 - shape:
            x = math.pow(u, 1.0 / shape)
            if x <= e:
                return x, at
        else:
            y = -math.log((1.0 - u) / shape)
            x = math.pow(1.0 - shape + shape * y, 1.0 / shape)
            if x <= e + y:
                return x, at
