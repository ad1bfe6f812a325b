"""A built-in synthetic problem and environment, for the demo and the benchmarks."""

import numpy as np

from bylot.environments import Noisy
from bylot.problem import Problem, at_least, at_most, share


def make_crowd_problem(size: int = 50, draws: int = 5, seed: int = 0) -> Problem:
    """Make a crowd with heavy-tailed workloads: a budget, a cap on the busiest, a novice share."""
    rng = np.random.default_rng(seed)
    workload = rng.lognormal(-1.5, 1.0, size).clip(0.01)
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
