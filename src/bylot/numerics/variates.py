"""Random variates of one round: normal, gamma, Beta and Gumbel, from a stream of random words.

The words come from xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number
generators", 2021), seeded by the four Philox words of (seed, stream, t): ten times as fast as
Philox, and still a pure function of the round, without a state to store.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, jit, jit_inline
from bylot.numerics.philox import TWO_TO_MINUS_53, RngKey, philox_block
from bylot.numerics.scratch_arrays import scratch_floats

TWO_TO_MINUS_52 = 2.0**-52


class Xoshiro(NamedTuple):
    """The four words of the state of a generator."""

    a: np.uint64
    b: np.uint64
    c: np.uint64
    d: np.uint64


@jit
def open_stream(rng: RngKey, stream: int) -> Xoshiro:
    """Start a stream of this round."""
    seed, key, t = np.uint64(rng.seed), np.uint64(stream), np.uint64(rng.t)
    a, b, c, d = philox_block(np.uint64(0), t, key, seed)
    return Xoshiro(a, b, c, d)


@jit
def rotate_left(word: np.uint64, left: int) -> np.uint64:
    """Rotate the bits of a word to the left."""
    return (word << np.uint64(left)) | (word >> np.uint64(64 - left))


@jit
def next_word(s: Xoshiro) -> tuple[np.uint64, Xoshiro]:
    """Return the next 64 bits and the state after them."""
    bits = rotate_left(s.a + s.d, 23) + s.a
    c, d = s.c ^ s.a, s.d ^ s.b
    return bits, Xoshiro(s.a ^ d, s.b ^ c, c ^ (s.b << np.uint64(17)), rotate_left(d, 45))


@jit
def open_uniform_from_word(bits: np.uint64) -> float:
    """Convert to a double strictly between 0 and 1, with a finite logarithm: (k + 1/2) / 2^52."""
    return (np.float64(bits >> np.uint64(12)) + 0.5) * TWO_TO_MINUS_52


# The ziggurat of Marsaglia and Tsang (J. Stat. Software 2000): pieces of equal area cover the area
# under f(x) = exp(-x^2 / 2), x >= 0, namely rectangles with corners at the edges, and the tail. A
# point of a random piece is mostly under the curve, which takes one word and one comparison.
ZIGGURAT_LAYERS = 256
ZIGGURAT_TAIL = 3.6541528853610088  # start of the tail: with it the last layer ends at 0


def compute_ziggurat_edges() -> Floats:
    """Compute the right ends x_1 = tail > x_2 > ... of the layers; x_0 is the lowest's width."""
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
    """Draw from N(0, 1); returns the state after it."""
    bits, s = next_word(s)
    layer = np.int64(bits & np.uint64(ZIGGURAT_LAYERS - 1))
    x = np.float64(bits >> np.uint64(11)) * TWO_TO_MINUS_53 * ZIGGURAT_EDGES[layer]
    if x >= ZIGGURAT_EDGES[layer + 1]:
        x, s = draw_normal_outside(layer, x, s)
    # The bits above this one made the size, those below the layer.
    return (-x if bits & np.uint64(ZIGGURAT_LAYERS) else x), s


@jit
def draw_normal_outside(layer: np.int64, x: float, s: Xoshiro) -> tuple[float, Xoshiro]:
    """Draw the size for a point of the tail or of a corner outside the curve (1 in 100)."""
    while x >= ZIGGURAT_EDGES[layer + 1]:
        first, s = next_word(s)
        second, s = next_word(s)
        if layer == 0:  # Marsaglia's tail: tail + E with E exponential, accepted against f
            extra = -math.log(open_uniform_from_word(first)) / ZIGGURAT_TAIL
            if -2.0 * math.log(open_uniform_from_word(second)) > extra * extra:
                return ZIGGURAT_TAIL + extra, s
            continue
        low, high = ZIGGURAT_HEIGHTS[layer], ZIGGURAT_HEIGHTS[layer + 1]
        if low + open_uniform_from_word(first) * (high - low) < math.exp(-0.5 * x * x):
            return x, s
        layer = np.int64(second & np.uint64(ZIGGURAT_LAYERS - 1))
        x = np.float64(second >> np.uint64(11)) * TWO_TO_MINUS_53 * ZIGGURAT_EDGES[layer]
    return x, s


MAX_GAMMA_TRIALS = 1_000  # not reached, as 19 in 20 are accepted; stops the loop on NaN


@jit_inline
def draw_gamma(a: float, spread: float, s: Xoshiro) -> tuple[float, Xoshiro]:
    """Draw from Gamma(a), a >= 1, with spread = 1 / sqrt(9 d); returns the state after it.

    Marsaglia and Tsang ("A simple method for generating gamma variables", ACM TOMS 2000):
    d (1 + X / sqrt(9 d))^3 with d = a - 1/3 and X normal is accepted with probability near 1.
    """
    d = a - 1.0 / 3.0
    v = 1.0
    for _ in range(MAX_GAMMA_TRIALS):
        x, s = draw_normal(s)
        bits, s = next_word(s)
        u, root = open_uniform_from_word(bits), 1.0 + spread * x
        v = root * root * root
        if root > 0.0 and is_gamma_accepted(d, x, u, v):
            break
    return d * v, s


@jit_inline
def is_gamma_accepted(d: float, x: float, u: float, v: float) -> bool:
    """Is a trial accepted? The first test accepts only what the second would, nearly always, and
    saves two logarithms.
    """
    if u < 1.0 - 0.0331 * (x * x) * (x * x):
        return True
    return math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v))


@jit
def fill_betas(out: Floats, a: Floats, b: Floats, rng: RngKey, stream: int) -> None:
    """Write a draw from each Beta(a_i, b_i) = G_a / (G_a + G_b), a_i and b_i >= 1."""
    size, s = out.size, open_stream(rng, stream)
    shapes, spreads = scratch_floats(2 * size), scratch_floats(2 * size)
    for i in range(size):
        shapes[2 * i], shapes[2 * i + 1] = a[i], b[i]
    for k in range(2 * size):  # not between the draws, so that it is vectorised, as the quotients
        spreads[k] = 1.0 / math.sqrt(9.0 * (shapes[k] - 1.0 / 3.0))
    for k in range(2 * size):
        shapes[k], s = draw_gamma(shapes[k], spreads[k], s)
    for i in range(size):
        out[i] = shapes[2 * i] / (shapes[2 * i] + shapes[2 * i + 1])


@jit
def add_gumbels(scores: Floats, rng: RngKey, stream: int) -> None:
    """Add -log(-log U) to every score.

    The largest of theta_i + Gumbel_i is i with probability softmax(theta)_i; the M largest are M
    draws without replacement.
    """
    s = open_stream(rng, stream)
    for i in range(scores.size):
        bits, s = next_word(s)
        scores[i] -= math.log(-math.log(open_uniform_from_word(bits)))
