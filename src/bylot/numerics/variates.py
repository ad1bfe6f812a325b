"""Standard normal variates by the ziggurat of Marsaglia and Tsang (J. Stat. Software 2000).

The area under f(x) = exp(-x^2 / 2), x >= 0, is covered by LAYERS pieces of equal area: rectangles
with corners at EDGES, and the tail beyond the outermost. A point of a random piece is mostly under
the curve for certain, and costs one word, one product and one comparison.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, jit
from bylot.numerics.philox import RngKey, philox_block

OPEN_UNIT = 2.0**-52


class Xoshiro(NamedTuple):
    """The four words of a generator's state."""

    a: np.uint64
    b: np.uint64
    c: np.uint64
    d: np.uint64


@jit
def open_stream(chance: RngKey, number: int) -> Xoshiro:
    """The stream of this number in this round."""
    seed, key, t = np.uint64(chance.seed), np.uint64(number), np.uint64(chance.t)
    a, b, c, d = philox_block(np.uint64(0), t, key, seed)
    return Xoshiro(a, b, c, d)


@jit
def rotate_left(word: np.uint64, left: int) -> np.uint64:
    """The bits of a word turned to the left."""
    return (word << np.uint64(left)) | (word >> np.uint64(64 - left))


@jit
def next_word(s: Xoshiro) -> tuple[np.uint64, Xoshiro]:
    """The next 64 bits, and the stream after them."""
    bits = rotate_left(s.a + s.d, 23) + s.a
    c, d = s.c ^ s.a, s.d ^ s.b
    return bits, Xoshiro(s.a ^ d, s.b ^ c, c ^ (s.b << np.uint64(17)), rotate_left(d, 45))


@jit
def open_uniform_from_word(bits: np.uint64) -> float:
    """A double strictly between 0 and 1, whose logarithms are finite: (k + 1/2) / 2^52."""
    return (np.float64(bits >> np.uint64(12)) + 0.5) * OPEN_UNIT


ZIGGURAT_LAYERS = 256
ZIGGURAT_TAIL = (
    3.6541528853610088  # where the tail begins: the number that makes the last layer end at 0
)
NORMAL_UNIT = 2.0**-53


def compute_ziggurat_edges() -> Floats:
    """Right ends x_1 = TAIL > x_2 > ... of the layers; x_0 is as wide as the lowest would need."""
    height = math.exp(-0.5 * ZIGGURAT_TAIL**2)
    area = ZIGGURAT_TAIL * height + math.sqrt(math.pi / 2) * math.erfc(ZIGGURAT_TAIL / math.sqrt(2))
    x = [area / height, ZIGGURAT_TAIL]
    while len(x) < ZIGGURAT_LAYERS:
        x.append(math.sqrt(-2.0 * math.log(area / x[-1] + math.exp(-0.5 * x[-1] ** 2))))
    return np.array([*x, 0.0])


ZIGGURAT_EDGES = compute_ziggurat_edges()
ZIGGURAT_HEIGHTS = np.exp(-0.5 * ZIGGURAT_EDGES**2)


@jit
def draw_normal(s: Xoshiro) -> tuple[float, Xoshiro]:
    """A draw from N(0, 1), and the stream after it."""
    bits, s = next_word(s)
    layer = np.int64(bits & np.uint64(ZIGGURAT_LAYERS - 1))
    x = np.float64(bits >> np.uint64(11)) * NORMAL_UNIT * ZIGGURAT_EDGES[layer]
    if x >= ZIGGURAT_EDGES[layer + 1]:
        x, s = draw_normal_outside(layer, x, s)
    # An own bit for the sign: those above made the size, those below the layer.
    return (-x if bits & np.uint64(ZIGGURAT_LAYERS) else x), s


@jit
def draw_normal_outside(layer: np.int64, x: float, s: Xoshiro) -> tuple[float, Xoshiro]:
    """The size, for a point in the tail or in a corner that sticks out of the curve; 1 in 100."""
    while x >= ZIGGURAT_EDGES[layer + 1]:
        first, s = next_word(s)
        second, s = next_word(s)
        if layer == 0:  # Marsaglia's tail: TAIL + E with E exponential, accepted against f
            extra = -math.log(open_uniform_from_word(first)) / ZIGGURAT_TAIL
            if -2.0 * math.log(open_uniform_from_word(second)) > extra * extra:
                return ZIGGURAT_TAIL + extra, s
            continue
        height = ZIGGURAT_HEIGHTS[layer] + open_uniform_from_word(first) * (
            ZIGGURAT_HEIGHTS[layer + 1] - ZIGGURAT_HEIGHTS[layer]
        )
        if height < math.exp(-0.5 * x * x):
            return x, s
        layer = np.int64(second & np.uint64(ZIGGURAT_LAYERS - 1))
        x = np.float64(second >> np.uint64(11)) * NORMAL_UNIT * ZIGGURAT_EDGES[layer]
    return x, s


MAX_GAMMA_TRIALS = (
    1_000  # never reached, as 19 in 20 are accepted: it stops NaN from looping for ever
)


@jit
def draw_gamma(a: float, s: Xoshiro) -> tuple[float, Xoshiro]:
    """A draw from Gamma(a), a >= 1, and the stream after it.

    d (1 + X / sqrt(9 d))^3 with d = a - 1/3 and X normal, accepted with a chance close to 1.
    """
    d = a - 1.0 / 3.0
    spread, v = 1.0 / math.sqrt(9.0 * d), 1.0
    for _ in range(MAX_GAMMA_TRIALS):
        x, s = draw_normal(s)
        bits, s = next_word(s)
        u, root = open_uniform_from_word(bits), 1.0 + spread * x
        v = root * root * root
        # The first test never accepts what the second would refuse, and spares two logarithms.
        if u < 1.0 - 0.0331 * (x * x) * (x * x) and root > 0.0:
            break
        if root > 0.0 and math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
            break
    return d * v, s


@jit
def fill_betas(out: Floats, a: Floats, b: Floats, chance: RngKey, number: int) -> None:
    """Write a draw from each Beta(a_i, b_i), a_i and b_i >= 1, from the stream of this number."""
    s = open_stream(chance, number)
    for i in range(out.size):
        x, s = draw_gamma(a[i], s)
        y, s = draw_gamma(b[i], s)
        out[i] = x / (x + y)


@jit
def add_gumbels(scores: Floats, chance: RngKey, number: int) -> None:
    """Add -log(-log U) to every score, from the stream of this number in this round.

    The largest of theta_i + Gumbel is i with probability softmax(theta)_i; the M largest are M
    such draws without replacement.
    """
    s = open_stream(chance, number)
    for i in range(scores.size):
        bits, s = next_word(s)
        scores[i] -= math.log(-math.log(open_uniform_from_word(bits)))
