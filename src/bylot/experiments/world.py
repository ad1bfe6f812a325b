"""World: a pool and its values, drawn once per (environment, N, seed), and the best one could do.

All policies and levels meet the same rounds, so that they differ by what they do and not by luck.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from bylot.data import Crowd
from bylot.environments import Given, Noisy, Regime
from bylot.experiments.levels import DRAWS, LEVELS, problem
from bylot.kernels.compile import Floats
from bylot.kernels.summax import expected_rewards
from bylot.optima import Optimum, Stack, optimum
from bylot.problem import Problem
from bylot.simulation import running_mean


class Best(NamedTuple):
    """The true constrained optimum, and what it earned on average up to each round."""

    found: Optimum
    earned: Floats


class World:
    """The rounds of one seed, and what depends on nothing else."""

    def __init__(
        self, crowd: Crowd, environment: str, dimensions: int, seed: int, rounds: int
    ) -> None:
        self.pool = crowd.pool(seed, dimensions=dimensions)
        self.seed, self.rounds, self.dimensions = seed, rounds, dimensions
        skills = self.pool.skills
        source = Noisy(skills) if environment == "stochastic" else Regime(skills, horizon=rounds)
        self.given = Given(source.rounds(0, rounds, seed).values)
        self._best: dict[str, Best] = {}

    @cached_property
    def stack(self) -> Stack:
        """The values with their rows sorted, which all expectations need."""
        return Stack(self.given.values)

    @cached_property
    def problems(self) -> dict[str, Problem]:
        """The pool under each level."""
        return {level: problem(self.pool, level) for level in LEVELS}

    def best(self, level: str) -> Best:
        """The best fixed distribution in hindsight, searched from that of the next looser level."""
        if level not in self._best:
            order = list(LEVELS)
            looser = order[order.index(level) + 1 :][:1]
            start = self.best(looser[0]).found.policy if looser else None
            found = optimum(self.problems[level], self.stack, start=start)
            self._best[level] = Best(found, running_mean(self.expected(found.policy)))
        return self._best[level]

    def expected(self, q: Floats) -> Floats:
        """What q would have earned in expectation, in every round."""
        return expected_rewards(q, self.stack.values, self.stack.order, DRAWS)

    @cached_property
    def uniform(self) -> float:
        """What equal shares would have earned on average."""
        size = self.stack.size
        return float(self.expected(np.full(size, 1 / size)).mean())
