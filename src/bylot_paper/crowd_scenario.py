"""A pool of the crowd under the levels of section 6: its problems, its rounds and its optimum.

All policies and levels of a scenario see the same rounds, so that they differ only in what they do.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from bylot.environments import NO_DELAY, Given, Noisy, Regime
from bylot.numerics.jit import Floats
from bylot.numerics.sum_max import expected_rewards_by_round
from bylot.optima import Optimum, ValueStack, optimum
from bylot.problem import Problem, at_most
from bylot.simulation import running_mean
from bylot_paper.crowd import Crowd, WorkerPool

PAPER_DRAWS = 5  # M, in all of section 6
OPTIMUM_STARTS = 2  # of the search under exact costs; 8 found the same optimum in every scenario


class LimitLevel(NamedTuple):
    """How tight the limits are.

    margin, share: the budget is share * M * mean(workload) + margin
    cap: bound on the number of experts per panel
    smoothing: annotations by an average worker that are added to each skill
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
"""Table 1 of the paper. A quarter of the skills is exactly 1, so the optimum is close to N."""

STRESS_LEVEL = LimitLevel(margin=0.0, cap=1.0, share=0.8, smoothing=10)
"""A harder level that separates policies better: no skill is exactly 1, and limits are tighter."""

ALL_LEVELS: dict[str, LimitLevel | None] = {**PAPER_LEVELS, "stress": STRESS_LEVEL}


def find_level_smoothing(level: str) -> int:
    """Smoothing of the skills at a level; 0 for a scenario's own limits."""
    known = ALL_LEVELS.get(level)
    return known.smoothing if known else 0


def make_level_problem(pool: WorkerPool, name: str) -> Problem:
    """Make the problem of a pool at a level."""
    costs, level = {"workload": pool.workload, "expert": pool.expert}, ALL_LEVELS[name]
    limits = []
    if level is not None:
        budget = level.share * PAPER_DRAWS * float(pool.workload.mean()) + level.margin
        limits = [at_most("workload", budget), at_most("expert", level.cap)]
    return Problem(pool.workers, costs, limits, draws=PAPER_DRAWS)


class HindsightOptimum(NamedTuple):
    """The constrained optimum in hindsight, and the running mean of its expected rewards."""

    optimum: Optimum
    mean_rewards: Floats


class CrowdScenario:
    """The rounds of one seed, with everything that depends on nothing else.

    smoothing: of the skills; only levels with the same smoothing are played
    exact: compare with the optimum under exact expected costs, or under the paper's surrogate
    """

    late = NO_DELAY

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
        self.smoothing, self.exact, self.max_reward = smoothing, exact, float(dimensions)
        skills = self.pool.skills
        source = Noisy(skills) if environment == "stochastic" else Regime(skills, horizon=rounds)
        self.given = Given(source.rounds(0, rounds, seed).values)
        self.optima: dict[str, HindsightOptimum] = {}

    @cached_property
    def stack(self) -> ValueStack:
        """The values with sorted rows, as expectations need them."""
        return ValueStack(self.given.values)

    @cached_property
    def problems(self) -> dict[str, Problem]:
        """The problem at each level that is played on these skills."""
        levels = [level for level in ALL_LEVELS if find_level_smoothing(level) == self.smoothing]
        return {level: make_level_problem(self.pool, level) for level in levels}

    def find_optimum(self, level: str) -> HindsightOptimum:
        """Find the best fixed distribution in hindsight at a level."""
        if level not in self.optima:
            found = self.maximise_exact(level) if self.exact else self.maximise_surrogate(level)
            rewards = running_mean(self.expected(found.policy))
            self.optima[level] = HindsightOptimum(found, rewards)
        return self.optima[level]

    def maximise_surrogate(self, level: str) -> Optimum:
        """The paper's optimum, searched from that of the next looser level."""
        order = list(PAPER_LEVELS)
        looser = order[order.index(level) + 1 :][:1]
        start = self.find_optimum(looser[0]).optimum.policy if looser else None
        return optimum(self.problems[level], self.stack, start=start)

    def maximise_exact(self, level: str) -> Optimum:
        """The optimum under the exact costs h_j(q) = sum_i c_ij (1 - (1 - q_i)^M), without the
        floor, which only the paper's policy has.
        """
        problem = self.problems[level]
        return optimum(problem, self.stack, exact=True, floor=False, starts=OPTIMUM_STARTS)

    def expected(self, q: Floats) -> Floats:
        """Expected reward of draws from q in every round."""
        return expected_rewards_by_round(q, self.stack.values, self.stack.order, PAPER_DRAWS)

    @cached_property
    def uniform(self) -> float:
        """Mean expected reward of the uniform distribution."""
        size = self.stack.size
        return float(self.expected(np.full(size, 1 / size)).mean())
