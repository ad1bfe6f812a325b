"""Orders without preference: random panels, and the random order of a warm-up."""

import numpy as np

from bylot.kernels.chance import Chance, uniforms
from bylot.kernels.compile import Bools, Ints, compiled
from bylot.kernels.top import again


@compiled
def shuffle(items: Ints, count: int, chance: Chance, stream: int) -> None:
    """Bring a random `count` of the items to the front, in random order (Fisher and Yates)."""
    u = uniforms(chance, stream, count)
    for j in range(count):
        k = j + int(u[j] * (items.size - j))  # below items.size: u < 1 also after rounding
        items[j], items[k] = items[k], items[j]


@compiled
def some(size: int, count: int, up: Bools, chance: Chance, stream: int) -> Ints:
    """A random `count` of the experts that are up, in random order; an empty mask stands for all.

    If they are fewer, all of them, coming round again as in `top.best`.
    """
    items, n, chosen = np.empty(size, np.int64), 0, np.empty(count, np.int64)
    for i in range(size):
        items[n] = i
        n += 1 if up.size == 0 or up[i] else 0
    n_chosen = min(n, count)
    shuffle(items[:n], n_chosen, chance, stream)
    for j in range(n_chosen):
        chosen[j] = items[j]
    again(chosen, n_chosen)
    return chosen
