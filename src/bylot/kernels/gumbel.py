"""Gumbel variates: the noise that turns scores into random choices."""

import math

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Floats, compiled
from bylot.kernels.stream import inside, opened, word


@compiled
def add_gumbels(scores: Floats, chance: Chance, number: int) -> None:
    """Add -log(-log U) to every score, from the stream of this number in this round.

    The largest of theta_i + Gumbel is i with probability softmax(theta)_i; the M largest are M
    such draws without replacement.
    """
    s = opened(chance, number)
    for i in range(scores.size):
        bits, s = word(s)
        scores[i] -= math.log(-math.log(inside(bits)))
