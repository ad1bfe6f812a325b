"""A world that never settles: skills that rise and fall, each expert at its own time."""

import numpy as np

from bylot.environments.base import Rounds, generator
from bylot.errors import ValuesError


class Drifting:
    """V^(t)[n, i] = 1/2 + 1/2 sin(2 pi (t / period + phase[n, i])), phases drawn by the seed.

    Nothing is random from round to round, and no fixed expert is best for long: an oblivious
    adversary in the sense of the paper, whose reward functions may be any sequence.
    """

    contexts = 1

    def __init__(self, dimensions: int, size: int, period: float) -> None:
        if dimensions < 1 or size < 1 or not 0 < period < np.inf:
            raise ValuesError(
                f"dimensions={dimensions}, size={size}, period={period} given; "
                "wanted at least one of each and a positive period in rounds"
            )
        self.dimensions, self.size, self.period = dimensions, size, float(period)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.dimensions, self.size

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """The rounds start <= t < stop."""
        phase = generator(seed, 0).random(self.shape)
        turn = np.arange(start, stop)[:, None, None] / self.period
        values = 0.5 + 0.5 * np.sin(2 * np.pi * (turn + phase))
        return Rounds(values, np.zeros(stop - start, np.int64))
