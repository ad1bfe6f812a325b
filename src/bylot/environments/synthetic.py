"""A steady world with noise: Beta values around fixed skills, as in the paper's experiments."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bylot.environments.base import Rounds, check_value_stack, make_block_generator
from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, Ints


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
        phase = make_block_generator(seed, 0).random(self.shape)
        turn = np.arange(start, stop)[:, None, None] / self.period
        values = 0.5 + 0.5 * np.sin(2 * np.pi * (turn + phase))
        return Rounds(values, np.zeros(stop - start, np.int64))


BLOCK_ROUNDS = 256  # rounds drawn together; a round's values depend on its block, not on who asks


class Noisy:
    """V^(t)[n, i] ~ worth Beta(kappa v, kappa (1 - v)), v = skills[n, i]; a point mass at 0 and 1.

    With worth = 1/N the rewards, sums over N dimensions, lie in [0, 1] as the theory has them.
    With skills of shape X x N x K the context of each round is drawn uniformly from the X.
    """

    def __init__(self, skills: npt.ArrayLike, kappa: float = 20.0, worth: float = 1.0) -> None:
        stack = np.asarray(skills, dtype=np.float64)
        self.skills = check_value_stack(stack[None] if stack.ndim == 2 else stack)
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
        return assemble_blocks(start, stop, self.shape, lambda number: self.block(number, seed))

    def block(self, number: int, seed: int, scale: Floats | None = None) -> Rounds:
        """One whole block; scale (BLOCK, K) multiplies the skills of each expert in each round."""
        rng = make_block_generator(seed, number)
        contexts = rng.integers(0, self.contexts, BLOCK_ROUNDS)
        means = self.skills[contexts]
        if scale is not None:
            means *= scale[:, None, :]
        return Rounds(self.worth * draw_beta_noise(rng, means, self.kappa), contexts)


def assemble_blocks(
    start: int, stop: int, shape: tuple[int, int], block: Callable[[int], Rounds]
) -> Rounds:
    """The rounds start <= t < stop: whole blocks are drawn and the ends cut off."""
    whole = Rounds(np.empty((stop - start, *shape)), np.empty(stop - start, np.int64))
    for number in range(start // BLOCK_ROUNDS, -(-stop // BLOCK_ROUNDS)):
        first = number * BLOCK_ROUNDS
        begin, end = max(start, first), min(stop, first + BLOCK_ROUNDS)
        for to, drawn in zip(whole, block(number), strict=True):
            to[begin - start : end - start] = drawn[begin - first : end - first]
    return whole


def draw_beta_noise(rng: np.random.Generator, means: Floats, kappa: float) -> Floats:
    """Beta(kappa v, kappa (1 - v)) about the means v; where v is 0 or 1, v itself."""
    values = means.flatten()
    inside = np.flatnonzero((values > 0) & (values < 1))  # drawing is dear: not for the certain
    v = values[inside]
    values[inside] = rng.beta(kappa * v, kappa * (1 - v))
    return values.reshape(means.shape)


REGIME_STREAM = 1  # the stream of chance that says who is shrunk


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
        chosen = make_block_generator(seed, block, REGIME_STREAM).permutation(self.shape[1])[
            : self.count
        ]
        return np.sort(chosen)

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """The rounds start <= t < stop."""

        def block(number: int) -> Rounds:
            return self.steady.block(number, seed, self.scale(number, seed))

        return assemble_blocks(start, stop, self.shape, block)

    def scale(self, number: int, seed: int) -> Floats:
        """What the skills are multiplied by in each round of a block of drawing, (BLOCK, K)."""
        t = np.arange(number * BLOCK_ROUNDS, (number + 1) * BLOCK_ROUNDS)
        block = t * self.blocks // self.horizon
        scale = np.ones((BLOCK_ROUNDS, self.shape[1]))
        for b in np.unique(block).tolist():
            scale[np.ix_(block == b, self.shrunk(b, seed))] = self.factor
        return scale
