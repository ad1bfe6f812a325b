"""When rewards come: at once, some rounds late, or never."""

from dataclasses import dataclass

import numpy as np

from bylot.environments.outcomes import in_blocks
from bylot.errors import ValuesError
from bylot.kernels.compile import Ints

NEVER = 1 << 62  # a round that no play comes to
LATENESS = 2  # the stream of chance that says when a reward comes


@dataclass(frozen=True)
class Late:
    """The reward of round t is told after the decision of round t + d, d uniform on 0, ..., lag;
    with chance `lost` it never is. The panel was asked and its cost is paid all the same.
    """

    lag: int = 0
    lost: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.lag, int) or self.lag < 0:
            raise ValuesError(f"lag={self.lag!r} given; wanted a whole number of rounds, 0 or more")
        if not 0.0 <= self.lost <= 1.0:
            raise ValuesError(f"lost={self.lost!r} given; the part that is lost must lie in [0, 1]")

    def due(self, rounds: int, seed: int) -> Ints:
        """(rounds,) after whose decision each reward is told; NEVER where it is lost.

        >>> Late().due(3, seed=0)
        array([0, 1, 2])
        """
        t = np.arange(rounds)
        if not (self.lag or self.lost):
            return t
        gone, wait = in_blocks(0, rounds, 2, seed, LATENESS).T
        return np.where(gone < self.lost, NEVER, t + (wait * (self.lag + 1)).astype(np.int64))


PROMPT = Late()
