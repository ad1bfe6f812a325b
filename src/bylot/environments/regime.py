"""A noisy world in which some experts have a bad spell: others in every block of the horizon."""

import math

import numpy as np
import numpy.typing as npt

from bylot.environments.base import Rounds, generator
from bylot.environments.noisy import BLOCK, Noisy, in_blocks
from bylot.errors import ValuesError
from bylot.kernels.compile import Floats, Ints

SPELLS = 1  # the stream of chance that says who is shrunk


class Regime:
    """`Noisy`, but in each block of the horizon some experts have their skills shrunk:

    V^(t)[n, i] ~ worth Beta(kappa v, kappa (1 - v)),  v = skills[n, i] (factor if i is shrunk).

    Round t is in block floor(t blocks / horizon), so that blocks differ in length by one round at
    most; past the horizon further ones follow at the same pace. In every block, the first included,
    a share of the K experts (rounded, at least one) is drawn afresh by the seed.
    """

    def __init__(
        self,
        skills: npt.ArrayLike,
        *,
        horizon: int,
        blocks: int = 10,
        share: float = 0.1,
        factor: float = 0.2,
        kappa: float = 20.0,
        worth: float = 1.0,
    ) -> None:
        self.steady = Noisy(skills, kappa, worth)
        if not 1 <= blocks <= horizon:
            raise ValuesError(
                f"blocks={blocks} of a horizon of {horizon} rounds given; "
                "wanted at least one block, and at least one round in each"
            )
        if not 0 < share <= 1:
            raise ValuesError(f"share={share} given; the part that is shrunk must lie in (0, 1]")
        if not 0 <= factor <= 1:
            raise ValuesError(f"factor={factor} given; shrunk skills need one in [0, 1]")
        self.horizon, self.blocks, self.factor = horizon, blocks, float(factor)
        self.count = max(1, math.floor(share * self.shape[1] + 0.5))
        self.contexts = self.steady.contexts

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.steady.shape

    def shrunk(self, block: int, seed: int) -> Ints:
        """The experts that are shrunk in this block of the horizon, in increasing order."""
        chosen = generator(seed, block, SPELLS).permutation(self.shape[1])[: self.count]
        return np.sort(chosen)

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """The rounds start <= t < stop."""

        def block(number: int) -> Rounds:
            return self.steady.block(number, seed, self.scale(number, seed))

        return in_blocks(start, stop, self.shape, block)

    def scale(self, number: int, seed: int) -> Floats:
        """What the skills are multiplied by in each round of a block of drawing, (BLOCK, K)."""
        t = np.arange(number * BLOCK, (number + 1) * BLOCK)
        block = t * self.blocks // self.horizon
        scale = np.ones((BLOCK, self.shape[1]))
        for b in np.unique(block).tolist():
            scale[np.ix_(block == b, self.shrunk(b, seed))] = self.factor
        return scale
