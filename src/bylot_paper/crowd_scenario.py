"""World: a pool and its values, drawn once for all cells of a job, and the best one could do.

All policies and levels meet the same rounds, so that they differ by what they do and not by luck.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from bylot.environments import Given, Noisy, Regime
from bylot.numerics.jit import Floats
from bylot.numerics.sum_max import expected_rewards_by_round
from bylot.optima import Optimum, ValueStack, optimum
from bylot.problem import Limit, Problem, at_most
from bylot.simulation import running_mean
from bylot_paper.crowd import Crowd, WorkerPool

PAPER_DRAWS = 5  # M, in all of section 6


class LimitLevel(NamedTuple):
    """How tight: what the budget has above a share of M times the mean workload, and the cap on
    experts; and how many annotations by an average worker smooth the skills that are played on.
    """

    margin: float
    cap: float
    share: float = 1.0
    smoothing: int = 0


PAPER_LEVELS: dict[str, LimitLevel | None] = {
    "tight": LimitLevel(margin=0.0, cap=2.0),
    "medium": LimitLevel(margin=0.1, cap=2.5),
    "loose": LimitLevel(margin=0.5, cap=5.0),
    "none": None,  # no limits at all
}
"""The paper's. A quarter of its skills is exactly 1: the optimum is all but the largest reward."""

STRESS_LEVEL = LimitLevel(margin=0.0, cap=1.0, share=0.8, smoothing=10)
"""Where there is more to tell policies apart by: no skill is exactly 1, and limits are tighter."""

ALL_LEVELS: dict[str, LimitLevel | None] = {**PAPER_LEVELS, "stress": STRESS_LEVEL}


def find_level_smoothing(level: str) -> int:
    """Of the skills that this level is played on; a world's own limits ask for none."""
    known = ALL_LEVELS.get(level)
    return known.smoothing if known else 0


def make_level_problem(pool: WorkerPool, level: str, period: int | None = None) -> Problem:
    """The pool under a level: mean workload <= share M mean(workload) + margin, experts <= cap."""
    costs = {"workload": pool.workload, "expert": pool.expert}
    promised = make_level_limits(pool, ALL_LEVELS[level])
    return Problem(pool.workers, costs, promised, draws=PAPER_DRAWS, period=period)


def make_level_limits(pool: WorkerPool, level: LimitLevel | None) -> list[Limit]:
    """The two limits of a level."""
    if level is None:
        return []
    budget = level.share * PAPER_DRAWS * float(pool.workload.mean()) + level.margin
    return [at_most("workload", budget), at_most("expert", level.cap)]


OPTIMUM_STARTS = 2
"""Of the search under exact costs: eight led to the same place in every world that was tried."""


class HindsightOptimum(NamedTuple):
    """The true constrained optimum, and what it earned on average up to each round."""

    found: Optimum
    earned: Floats


class CrowdScenario:
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
        self._best: dict[str, HindsightOptimum] = {}

    @cached_property
    def stack(self) -> ValueStack:
        """The values with their rows sorted, which all expectations need."""
        return ValueStack(self.given.values)

    @cached_property
    def problems(self) -> dict[str, Problem]:
        """The pool under each level that is played on such skills."""
        fitting = [level for level in ALL_LEVELS if find_level_smoothing(level) == self.smoothing]
        return {level: make_level_problem(self.pool, level) for level in fitting}

    def best(self, level: str) -> HindsightOptimum:
        """The best fixed distribution in hindsight."""
        if level not in self._best:
            found = self.under_exact(level) if self.exact else self.under_surrogate(level)
            self._best[level] = HindsightOptimum(found, running_mean(self.expected(found.policy)))
        return self._best[level]

    def under_surrogate(self, level: str) -> Optimum:
        """The paper's optimum, searched from that of the next looser level."""
        order = list(PAPER_LEVELS)
        looser = order[order.index(level) + 1 :][:1]
        start = self.best(looser[0]).found.policy if looser else None
        return optimum(self.problems[level], self.stack, start=start)

    def under_exact(self, level: str) -> Optimum:
        """The optimum under h_j(q) = sum_i c_ij (1 - (1 - q_i)^M), the limits' own expectation, of
        all laws: the paper's floor is one of its policy, not of ours.
        """
        return optimum(
            self.problems[level], self.stack, exact=True, floor=False, starts=OPTIMUM_STARTS
        )

    def expected(self, q: Floats) -> Floats:
        """What q would have earned in expectation, in every round."""
        return expected_rewards_by_round(q, self.stack.values, self.stack.order, PAPER_DRAWS)

    @cached_property
    def uniform(self) -> float:
        """What equal shares would have earned on average."""
        size = self.stack.size
        return float(self.expected(np.full(size, 1 / size)).mean())
