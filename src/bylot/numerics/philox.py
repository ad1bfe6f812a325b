"""Counter-based random numbers: uniforms that are a pure function of (seed, stream, t).

Philox 4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), the same
bits as `numpy.random.Philox`; drawing experts is left to `sampling`.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bylot.numerics.jit import Floats, jit, jit_inline


class RngKey(NamedTuple):
    """The key of the random numbers of one round: the seed and the number of the round."""

    seed: int
    t: int


class LoopKey(NamedTuple):
    """An `RngKey` in a loop that needs the arrays of a ticket for one round only, and where they
    are to be: see `scratch_arrays.make_draws`.
    """

    seed: int
    t: int
    draws_at: int  # the address of M int64
    probabilities_at: int  # the address of M float64


class RngStream(IntEnum):
    """What a policy uses randomness for: each use has its own stream.

    Numbers are part of the bits of a play: never reuse or change one. Streams of environments
    begin at 2^32 (`environments.base`), those of sample problems above them.
    """

    DRAWS = 0  # the panel of i.i.d. draws, or of a uniform set
    WARMUP = 1  # the order of a warm-up
    BELIEFS = 2  # samples of independent beliefs (ts)
    GUMBEL = 3  # noise on logits (moe)
    COIN = 4  # whether to draw from the exploration distribution (distinct)
    PANEL = 5  # the panel drawn as one set (distinct)
    EXPLORE = 6  # whether a round is set aside for exploration (noisy-or)
    MODEL = 7  # samples of a model (noisy-or)
    PLAIN = 8  # whatever a policy in plain Python draws
    SUBSTITUTES = 9  # the experts in place of members that failed, one number each


# Plain integers for compiled code.
DRAW_STREAM, WARMUP_STREAM = RngStream.DRAWS.value, RngStream.WARMUP.value
BELIEF_STREAM, GUMBEL_STREAM = RngStream.BELIEFS.value, RngStream.GUMBEL.value
COIN_STREAM, PANEL_STREAM = RngStream.COIN.value, RngStream.PANEL.value
EXPLORE_STREAM, MODEL_STREAM = RngStream.EXPLORE.value, RngStream.MODEL.value
SUBSTITUTE_STREAM = RngStream.SUBSTITUTES.value

M0, M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)  # multipliers
W0, W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)  # key increments
TWO_TO_MINUS_53 = 2.0**-53


@intrinsic  # type: ignore[untyped-decorator]
def multiply_wide(typing: Any, a: Any, b: Any) -> Any:
    """Emit the upper and the lower 64 bits of the product a * b, one machine instruction."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, wide = ir.IntType(64), ir.IntType(128)
        x, y = (builder.zext(value, wide) for value in arguments)
        product = builder.mul(x, y)
        upper = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        halves = upper, builder.trunc(product, word)
        return context.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), emit


@jit_inline
def philox_words(
    x0: np.uint64, x1: np.uint64, x2: np.uint64, x3: np.uint64, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Compute the four 64-bit words of a counter under a key, the lowest words first."""
    for _ in range(10):
        h0, l0 = multiply_wide(M0, x0)
        h1, l1 = multiply_wide(M1, x2)
        x0, x1, x2, x3 = h1 ^ x1 ^ k0, l1, h0 ^ x3 ^ k1, l0
        k0, k1 = k0 + W0, k1 + W1
    return x0, x1, x2, x3


@jit_inline
def philox_block(
    block: np.uint64, t: np.uint64, stream: np.uint64, seed: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Compute the four 64-bit words of counter (block, t, 0, 0) under the key (seed, stream)."""
    return philox_words(block, t, np.uint64(0), np.uint64(0), seed, stream)


@jit
def uniform_from_word(word: np.uint64) -> float:
    """Convert the upper 53 bits to a double in [0, 1)."""
    return np.float64(word >> np.uint64(11)) * TWO_TO_MINUS_53


@jit
def draw_uniforms(rng: RngKey, stream: int, size: int) -> Floats:
    """Draw the first `size` uniforms of a stream in this round.

    >>> draw_uniforms(RngKey(seed=7, t=0), 0, 2) == draw_uniforms(RngKey(seed=7, t=0), 0, 3)[:2]
    array([ True,  True])
    """
    out = np.empty(size)
    fill_uniforms(out, rng, stream)
    return out


@jit
def draw_uniform(rng: RngKey, stream: int) -> float:
    """Draw the first uniform of a stream in this round."""
    seed, key, t = np.uint64(rng.seed), np.uint64(stream), np.uint64(rng.t)
    return uniform_from_word(philox_block(np.uint64(0), t, key, seed)[0])


@jit
def fill_uniforms(out: Floats, rng: RngKey, stream: int) -> None:
    """Write the first uniforms of a stream in this round."""
    size = out.size
    seed, key, t = np.uint64(rng.seed), np.uint64(stream), np.uint64(rng.t)
    for block in range((size + 3) // 4):
        a, b, c, d = philox_block(np.uint64(block), t, key, seed)
        i = 4 * block
        out[i] = uniform_from_word(a)
        if i + 1 < size:
            out[i + 1] = uniform_from_word(b)
        if i + 2 < size:
            out[i + 2] = uniform_from_word(c)
        if i + 3 < size:
            out[i + 3] = uniform_from_word(d)
