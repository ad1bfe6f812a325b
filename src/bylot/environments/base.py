"""What an environment is; what its values mean is left to the ones that implement it."""

from typing import NamedTuple, Protocol

import numpy as np

from bylot.kernels.compile import Floats, Ints

WORLD = 1 << 32  # first stream of chance that belongs to environments


class Rounds(NamedTuple):
    """A stretch of rounds: who comes, and what every expert would be worth to them."""

    values: Floats  # (n, N, K), at least 0
    contexts: Ints  # (n,)


class Environment(Protocol):
    """The context and the value matrix V^(t) of round t, the same however often it is asked."""

    contexts: int

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K): dimensions and experts."""
        ...

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """The rounds start <= t < stop under this seed."""
        ...


def generator(seed: int, block: int, stream: int = 0) -> np.random.Generator:
    """Chance for one block of rounds, keyed by (seed, stream, block)."""
    key = seed + ((WORLD + stream) << 64)
    return np.random.Generator(np.random.Philox(counter=block << 192, key=key))
