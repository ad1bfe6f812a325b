"""The random streams: uniforms are a pure function of (seed, stream, t), so each use has its own.

Numbers are part of the bits of a play: never reuse or change one. Streams of environments begin at
2^32 (`environments.base`), those of sample problems above them.
"""

from enum import IntEnum


class RngStream(IntEnum):
    """What a policy uses randomness for."""

    DRAWS = 0  # the panel of i.i.d. draws, or of a uniform set
    WARMUP = 1  # the order of a warm-up
    BELIEFS = 2  # samples of independent beliefs (ts)
    GUMBEL = 3  # noise on logits (moe)
    COIN = 4  # whether to draw from the exploration distribution (distinct)
    PANEL = 5  # the panel drawn as one set (distinct)
    EXPLORE = 6  # whether a round is set aside for exploration (noisy-or)
    MODEL = 7  # samples of a model (noisy-or)


# Plain integers for compiled code.
DRAW_STREAM, WARMUP_STREAM = RngStream.DRAWS.value, RngStream.WARMUP.value
BELIEF_STREAM, GUMBEL_STREAM = RngStream.BELIEFS.value, RngStream.GUMBEL.value
COIN_STREAM, PANEL_STREAM = RngStream.COIN.value, RngStream.PANEL.value
EXPLORE_STREAM, MODEL_STREAM = RngStream.EXPLORE.value, RngStream.MODEL.value
