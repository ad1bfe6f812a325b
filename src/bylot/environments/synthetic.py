"""Synthetic environments: noise around fixed skills, spells of bad skills, and drifting skills.

A made-up crowd, for the demo and the benchmarks, is a problem and an environment.
"""

import math

import numpy as np
import numpy.typing as npt

from bylot.environments.base import (
    BLOCK_ROUNDS,
    Rounds,
    check_count,
    check_number,
    check_positive_value,
    check_value_array,
    copy_floats,
    make_block_generator,
)
from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, Ints
from bylot.problem import Problem, at_least, at_most, share
from bylot.problem.limit_input import float_from_real

REGIME_STREAM = 1


class Drifting:
    """V^(t)[n, i] = 1/2 + 1/2 sin(2 pi (t / period + phase[n, i])), with random phases.

    The values of a round are not random, and no expert stays the best: an oblivious adversary in
    the sense of the paper, whose reward functions may be any sequence.

    Parameters
    ----------
    dimensions, size : int
        N and K.
    period : float
        The period in rounds.

    Raises
    ------
    ValuesError
        If a part is not positive.
    """

    contexts = 1

    def __init__(self, dimensions: int, size: int, period: float) -> None:
        self.shape = check_count("dimensions", dimensions), check_count("size", size)
        self.period = check_positive_value("period", period)

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        phase = make_block_generator(seed, 0).random(self.shape)
        turn = np.arange(start, stop)[:, None, None] / self.period
        values = 0.5 + 0.5 * np.sin(2 * np.pi * (turn + phase))
        return Rounds(values, np.zeros(stop - start, np.int64))


class Noisy:
    """V^(t)[n, i] ~ worth Beta(kappa v, kappa (1 - v)), v = skills[n, i], as in the paper.

    Parameters
    ----------
    skills : array_like, shape (N, K) or (X, N, K)
        Means in [0, 1]; 0 and 1 are point masses. With X contexts, the context of each round is
        drawn uniformly.
    kappa : float
        The concentration of the noise.
    worth : float
        The largest value. With 1/N, rewards lie in [0, 1] as in the theory.

    Raises
    ------
    ValuesError
        If a part is invalid.
    """

    def __init__(self, skills: npt.ArrayLike, kappa: float = 20.0, worth: float = 1.0) -> None:
        stack = copy_floats(skills)
        stack = stack[None] if stack.ndim == 2 else stack
        self.skills = check_value_array(stack, ("context", "dimension", "expert"))
        if self.skills.max() > 1:
            raise ValuesError("skill", got=float(self.skills.max()), expected="a number in [0, 1]")
        self.kappa = check_positive_value("kappa", kappa)
        self.worth = check_positive_value("worth", worth)
        self.contexts, N, K = self.skills.shape
        self.shape = N, K

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        whole = Rounds(np.empty((stop - start, *self.shape)), np.empty(stop - start, np.int64))
        for number in range(start // BLOCK_ROUNDS, -(-stop // BLOCK_ROUNDS)):
            first = number * BLOCK_ROUNDS
            begin, end = max(start, first), min(stop, first + BLOCK_ROUNDS)
            for to, drawn in zip(whole, self.block(number, seed), strict=True):
                to[begin - start : end - start] = drawn[begin - first : end - first]
        return whole

    def block(self, number: int, seed: int) -> Rounds:
        """Draw the rounds from number BLOCK_ROUNDS on, together."""
        rng = make_block_generator(seed, number)
        contexts = rng.integers(0, self.contexts, BLOCK_ROUNDS)
        values = self.skills[contexts] * self.scale(number, seed)[:, None, :]
        noisy = (values > 0) & (values < 1)
        means = values[noisy]
        values[noisy] = rng.beta(self.kappa * means, self.kappa * (1 - means))
        return Rounds(self.worth * values, contexts)

    def scale(self, number: int, seed: int) -> Floats:
        """What the skills of each expert are multiplied by in each round of a block."""
        return np.ones((1, 1))


class Regime(Noisy):
    """`Noisy`, but in each block of the horizon some experts have their skills shrunk.

    V^(t)[n, i] ~ worth Beta(kappa v, kappa (1 - v)),  v = skills[n, i] (factor if i is shrunk).

    Round t is in block floor(t blocks / horizon); after the horizon further blocks follow at the
    same pace. In every block, the first included, other experts are drawn by the seed.

    Parameters
    ----------
    skills, kappa, worth
        As in `Noisy`.
    horizon, blocks : int
        The number of rounds, and of blocks in it.
    share : float
        The fraction of the K experts that is shrunk (rounded, at least one expert).
    factor : float
        What their skills are multiplied by.

    Raises
    ------
    ValuesError
        If a part is invalid.
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
        super().__init__(skills, kappa, worth)
        self.horizon = check_count("horizon", horizon)
        self.blocks = check_count("blocks", blocks)
        if self.blocks > self.horizon:
            raise ValuesError(
                "blocks", got=blocks, expected=f"at most one per round of the horizon {horizon}"
            )
        part = check_number(
            "share", share, float_from_real, lambda x: 0 < x <= 1, "a fraction in (0, 1]"
        )
        self.factor = check_number(
            "factor", factor, float_from_real, lambda x: 0 <= x <= 1, "a number in [0, 1]"
        )
        self.count = max(1, math.floor(part * self.shape[1] + 0.5))

    def shrunk_experts(self, block: int, seed: int) -> Ints:
        """Draw the experts that are shrunk in a block of the horizon, in increasing order."""
        chosen = make_block_generator(seed, block, REGIME_STREAM).permutation(self.shape[1])
        return np.sort(chosen[: self.count])

    def scale(self, number: int, seed: int) -> Floats:
        """The factor where an expert is shrunk; these rounds may span blocks of the horizon."""
        t = np.arange(number * BLOCK_ROUNDS, (number + 1) * BLOCK_ROUNDS)
        block = t * self.blocks // self.horizon
        scale = np.ones((BLOCK_ROUNDS, self.shape[1]))
        for b in np.unique(block).tolist():
            scale[np.ix_(block == b, self.shrunk_experts(b, seed))] = self.factor
        return scale


def make_crowd_problem(size: int = 50, draws: int = 5, seed: int = 0) -> Problem:
    """Make a crowd with heavy-tailed workloads: a budget, a cap on the busiest, a novice share."""
    workload = np.random.default_rng(seed).lognormal(-1.5, 1.0, size).clip(0.01)
    workload /= workload.max()
    names = [f"worker-{i:02d}" for i in range(size)]
    order = np.argsort(workload)
    busy = share("busy", [names[i] for i in order[-size // 5 :]])
    novice = share("novice", [names[i] for i in order[: size // 5]])
    limits = [
        at_most("workload", float(draws * workload.mean())),
        at_most(busy, 0.8),
        at_least(novice, 0.5),
    ]
    return Problem(names, {"workload": workload}, limits, draws=draws)


def make_crowd_environment(problem: Problem, dimensions: int = 3, seed: int = 0) -> Noisy:
    """Make skills that grow with practice: the busier a worker, the better; rewards in [0, 1]."""
    rng = np.random.default_rng(seed + 1)
    practice = problem.costs["workload"].argsort().argsort() / (problem.size - 1)
    level = 0.2 + 0.6 * practice + 0.15 * rng.standard_normal((dimensions, problem.size))
    return Noisy(level.clip(0.0, 1.0), worth=1 / dimensions)
