"""A steady world with noise: Beta values around fixed skills, as in the paper's experiments."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bylot.environments.base import Rounds, generator
from bylot.environments.given import checked
from bylot.errors import ValuesError
from bylot.kernels.compile import Floats

BLOCK = 256  # rounds drawn together; a round's values depend on its block, not on who asks


class Noisy:
    """V^(t)[n, i] ~ worth Beta(kappa v, kappa (1 - v)), v = skills[n, i]; a point mass at 0 and 1.

    With worth = 1/N the rewards, sums over N dimensions, lie in [0, 1] as the theory has them.
    With skills of shape X x N x K the context of each round is drawn uniformly from the X.
    """

    def __init__(self, skills: npt.ArrayLike, kappa: float = 20.0, worth: float = 1.0) -> None:
        stack = np.asarray(skills, dtype=np.float64)
        self.skills = checked(stack[None] if stack.ndim == 2 else stack)
        if self.skills.max() > 1:
            raise ValuesError(f"a skill of {self.skills.max()} given; skills must lie in [0, 1]")
        if not 0 < kappa < np.inf:
            raise ValuesError(f"kappa={kappa} given; the concentration must be a positive number")
        if not 0 < worth < np.inf:
            raise ValuesError(f"worth={worth} given; the largest value must be a positive number")
        self.kappa, self.worth = float(kappa), float(worth)
        self.contexts = len(self.skills)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        _, dimensions, size = self.skills.shape
        return dimensions, size

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """The rounds start <= t < stop."""
        return in_blocks(start, stop, self.shape, lambda number: self.block(number, seed))

    def block(self, number: int, seed: int, scale: Floats | None = None) -> Rounds:
        """One whole block; scale (BLOCK, K) multiplies the skills of each expert in each round."""
        rng = generator(seed, number)
        contexts = rng.integers(0, self.contexts, BLOCK)
        means = self.skills[contexts]
        if scale is not None:
            means *= scale[:, None, :]
        return Rounds(self.worth * noise(rng, means, self.kappa), contexts)


def in_blocks(
    start: int, stop: int, shape: tuple[int, int], block: Callable[[int], Rounds]
) -> Rounds:
    """The rounds start <= t < stop: whole blocks are drawn and the ends cut off."""
    whole = Rounds(np.empty((stop - start, *shape)), np.empty(stop - start, np.int64))
    for number in range(start // BLOCK, -(-stop // BLOCK)):
        first = number * BLOCK
        begin, end = max(start, first), min(stop, first + BLOCK)
        for to, drawn in zip(whole, block(number), strict=True):
            to[begin - start : end - start] = drawn[begin - first : end - first]
    return whole


def noise(rng: np.random.Generator, means: Floats, kappa: float) -> Floats:
    """Beta(kappa v, kappa (1 - v)) about the means v; where v is 0 or 1, v itself."""
    values = means.flatten()
    inside = np.flatnonzero((values > 0) & (values < 1))  # drawing is dear: not for the certain
    v = values[inside]
    values[inside] = rng.beta(kappa * v, kappa * (1 - v))
    return values.reshape(means.shape)
