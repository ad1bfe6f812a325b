"""Beta variates, the posterior draws of Thompson sampling.

G_a / (G_a + G_b) with two Gamma variates, each by Marsaglia and Tsang's method ("A simple method
for generating gamma variables", ACM TOMS 2000): one normal and one uniform, seldom refused. Cheng's
BB, which needs no normal, takes three times as long: it refuses a quarter, after two logarithms.
"""

import math

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Floats, compiled
from bylot.kernels.normal import normal
from bylot.kernels.stream import Stream, inside, opened, word

TRIALS = 1_000  # never reached, as 19 in 20 are accepted: it stops NaN from looping for ever


@compiled
def gamma(a: float, s: Stream) -> tuple[float, Stream]:
    """A draw from Gamma(a), a >= 1, and the stream after it.

    d (1 + X / sqrt(9 d))^3 with d = a - 1/3 and X normal, accepted with a chance close to 1.
    """
    d = a - 1.0 / 3.0
    spread, v = 1.0 / math.sqrt(9.0 * d), 1.0
    for _ in range(TRIALS):
        x, s = normal(s)
        bits, s = word(s)
        u, root = inside(bits), 1.0 + spread * x
        v = root * root * root
        # The first test never accepts what the second would refuse, and spares two logarithms.
        if u < 1.0 - 0.0331 * (x * x) * (x * x) and root > 0.0:
            break
        if root > 0.0 and math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
            break
    return d * v, s


@compiled
def fill_betas(out: Floats, a: Floats, b: Floats, chance: Chance, number: int) -> None:
    """Write a draw from each Beta(a_i, b_i), a_i and b_i >= 1, from the stream of this number."""
    s = opened(chance, number)
    for i in range(out.size):
        x, s = gamma(a[i], s)
        y, s = gamma(b[i], s)
        out[i] = x / (x + y)
