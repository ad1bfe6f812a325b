"""Standard normal variates by the ziggurat of Marsaglia and Tsang (J. Stat. Software 2000).

The area under f(x) = exp(-x^2 / 2), x >= 0, is covered by LAYERS pieces of equal area: rectangles
with corners at EDGES, and the tail beyond the outermost. A point of a random piece is mostly under
the curve for certain, and costs one word, one product and one comparison.
"""

import math

import numpy as np

from bylot.kernels.compile import Floats, compiled
from bylot.kernels.stream import Stream, inside, word

LAYERS = 256
TAIL = 3.6541528853610088  # where the tail begins: the number that makes the last layer end at 0
HALF = 2.0**-53


def edges() -> Floats:
    """Right ends x_1 = TAIL > x_2 > ... of the layers; x_0 is as wide as the lowest would need."""
    height = math.exp(-0.5 * TAIL**2)
    area = TAIL * height + math.sqrt(math.pi / 2) * math.erfc(TAIL / math.sqrt(2))
    x = [area / height, TAIL]
    while len(x) < LAYERS:
        x.append(math.sqrt(-2.0 * math.log(area / x[-1] + math.exp(-0.5 * x[-1] ** 2))))
    return np.array([*x, 0.0])


EDGES = edges()
HEIGHTS = np.exp(-0.5 * EDGES**2)


@compiled
def normal(s: Stream) -> tuple[float, Stream]:
    """A draw from N(0, 1), and the stream after it."""
    bits, s = word(s)
    layer = np.int64(bits & np.uint64(LAYERS - 1))
    x = np.float64(bits >> np.uint64(11)) * HALF * EDGES[layer]
    if x >= EDGES[layer + 1]:
        x, s = outside(layer, x, s)
    # An own bit for the sign: those above made the size, those below the layer.
    return (-x if bits & np.uint64(LAYERS) else x), s


@compiled
def outside(layer: np.int64, x: float, s: Stream) -> tuple[float, Stream]:
    """The size, for a point in the tail or in a corner that sticks out of the curve; 1 in 100."""
    while x >= EDGES[layer + 1]:
        first, s = word(s)
        second, s = word(s)
        if layer == 0:  # Marsaglia's tail: TAIL + E with E exponential, accepted against f
            extra = -math.log(inside(first)) / TAIL
            if -2.0 * math.log(inside(second)) > extra * extra:
                return TAIL + extra, s
            continue
        height = HEIGHTS[layer] + inside(first) * (HEIGHTS[layer + 1] - HEIGHTS[layer])
        if height < math.exp(-0.5 * x * x):
            return x, s
        layer = np.int64(second & np.uint64(LAYERS - 1))
        x = np.float64(second >> np.uint64(11)) * HALF * EDGES[layer]
    return x, s
