"""A run of random words inside one round, for samplers that need many and cannot say how many.

xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021) started
from the four Philox words of (seed, stream, t): a tenth of Philox's price a word, and still a pure
function of the round, with nothing to carry to the next one.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.chance import Chance, philox
from bylot.kernels.compile import compiled

NARROW = 2.0**-52


class Stream(NamedTuple):
    """The four words of a generator's state."""

    a: np.uint64
    b: np.uint64
    c: np.uint64
    d: np.uint64


@compiled
def opened(chance: Chance, number: int) -> Stream:
    """The stream of this number in this round."""
    seed, key, t = np.uint64(chance.seed), np.uint64(number), np.uint64(chance.t)
    a, b, c, d = philox(np.uint64(0), t, key, seed)
    return Stream(a, b, c, d)


@compiled
def rotated(word: np.uint64, left: int) -> np.uint64:
    """The bits of a word turned to the left."""
    return (word << np.uint64(left)) | (word >> np.uint64(64 - left))


@compiled
def word(s: Stream) -> tuple[np.uint64, Stream]:
    """The next 64 bits, and the stream after them."""
    bits = rotated(s.a + s.d, 23) + s.a
    c, d = s.c ^ s.a, s.d ^ s.b
    return bits, Stream(s.a ^ d, s.b ^ c, c ^ (s.b << np.uint64(17)), rotated(d, 45))


@compiled
def inside(bits: np.uint64) -> float:
    """A double strictly between 0 and 1, whose logarithms are finite: (k + 1/2) / 2^52."""
    return (np.float64(bits >> np.uint64(12)) + 0.5) * NARROW
