"""World: a pool and its values, drawn once for all cells of a job, and the best one could do.

All policies and levels meet the same rounds, so that they differ by what they do and not by luck.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from bylot.data import Crowd
from bylot.environments import Given, Noisy, Regime
from bylot.experiments.levels import DRAWS, KNOWN, LEVELS, problem, smoothing
from bylot.kernels.compile import Floats
from bylot.kernels.summax import expected_rewards
from bylot.optima import Optimum, Stack, optimum
from bylot.problem import Problem
from bylot.simulation import running_mean

STARTS = 2
"""Of the search under exact costs: eight led to the same place in every world that was tried."""


class Best(NamedTuple):
    """The true constrained optimum, and what it earned on average up to each round."""

    found: Optimum
    earned: Floats


class World:
    """The rounds of one seed, and what depends on nothing else.

    smoothing: of the skills, for levels that ask for it
    exact:     is the best one could do that under the exact expected costs, or the paper's?
    """

    def __init__(
        self,
        crowd: Crowd,
        environment: str,
        dimensions: int,
        seed: int,
        rounds: int,
        smoothing: int = 0,
        exact: bool = False,
    ) -> None:
        self.pool = crowd.pool(seed, dimensions=dimensions, smoothing=smoothing)
        self.seed, self.rounds, self.dimensions = seed, rounds, dimensions
        self.smoothing, self.exact = smoothing, exact
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
        """The pool under each level that is played on such skills."""
        fitting = [level for level in KNOWN if smoothing(level) == self.smoothing]
        return {level: problem(self.pool, level) for level in fitting}

    def best(self, level: str) -> Best:
        """The best fixed distribution in hindsight."""
        if level not in self._best:
            found = self.under_exact(level) if self.exact else self.under_surrogate(level)
            self._best[level] = Best(found, running_mean(self.expected(found.policy)))
        return self._best[level]

    def under_surrogate(self, level: str) -> Optimum:
        """The paper's optimum, searched from that of the next looser level."""
        order = list(LEVELS)
        looser = order[order.index(level) + 1 :][:1]
        start = self.best(looser[0]).found.policy if looser else None
        return optimum(self.problems[level], self.stack, start=start)

    def under_exact(self, level: str) -> Optimum:
        """The optimum under h_j(q) = sum_i c_ij (1 - (1 - q_i)^M), the limits' own expectation, of
        all laws: the paper's floor is one of its policy, not of ours.
        """
        return optimum(self.problems[level], self.stack, exact=True, floor=False, starts=STARTS)

    def expected(self, q: Floats) -> Floats:
        """What q would have earned in expectation, in every round."""
        return expected_rewards(q, self.stack.values, self.stack.order, DRAWS)

    @cached_property
    def uniform(self) -> float:
        """What equal shares would have earned on average."""
        size = self.stack.size
        return float(self.expected(np.full(size, 1 / size)).mean())
