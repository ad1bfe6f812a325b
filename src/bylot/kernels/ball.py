"""The unit Euclidean ball, in which the dual player lives."""

import math

from bylot.kernels.compile import Floats, compiled, inlined


@inlined
def into_ball(w: Floats) -> None:
    """Move w, in place, to the nearest point of the unit ball: w / max(1, |w|).

    >>> import numpy as np
    >>> w = np.array([3.0, 4.0])
    >>> into_ball(w)
    >>> w
    array([0.6, 0.8])
    """
    square = 0.0
    for j in range(w.size):
        square += w[j] * w[j]
    if square > 1.0:
        length = math.sqrt(square)
        for j in range(w.size):
            w[j] /= length


@compiled
def onto_ball(w: Floats) -> Floats:
    """The nearest point of the unit ball, in a new array.

    >>> import numpy as np
    >>> onto_ball(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """
    near = w.copy()
    into_ball(near)
    return near
