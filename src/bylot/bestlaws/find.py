"""Finding the best laws: under the limits themselves, under the paper's stand-in, and as one set.

Owns what is computed; how it is told is left to `render`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.files import ProblemFile
from bylot.kernels.compile import Floats
from bylot.optima import BestSet, CheckedPrice, Optimum, best_set, checked_prices, optimum
from bylot.problem import Problem
from bylot.problem.limits import listed
from bylot.worlds import Ground, World

LAWS = {"exact": True, "surrogate": False}
"""Under the limits themselves, or under the paper's linear stand-in for them."""


@dataclass(frozen=True, eq=False)
class Law:
    """The best law of M independent draws, one for each context.

    kind:   exact or surrogate
    best:   what `optimum` found, in rewards from 0 to 1
    q:      (X, K), the chance of each expert in a draw
    asked:  (X, K), the chance to be asked in a request, 1 - (1 - q)^M
    costs:  (d,), expected cost of a request under each limit
    prices: of each limit, beside what moving its bound is worth
    """

    kind: str
    best: Optimum
    q: Floats
    asked: Floats
    costs: Floats
    prices: tuple[CheckedPrice, ...]


@dataclass(frozen=True, eq=False)
class Found:
    """All that was asked for.

    laws:    by kind; one that does not exist is missing, and `reasons` has why
    chances: (X,), how often each context comes
    each:    is every context under the limits by itself, or all under one budget?
    """

    file: ProblemFile
    world: World
    laws: dict[str, Law]
    reasons: dict[str, str]
    fixed: BestSet
    chances: Floats
    each: bool
    floor: bool
    rounds: int  # of the values that optima were computed on

    @property
    def span(self) -> float:
        """What a reward from 0 to 1 is multiplied by, to be one of the file."""
        return self.file.rewards[1] - self.file.rewards[0]

    def reward(self, value: float) -> float:
        """In the range of rewards that the file has."""
        return self.file.rewards[0] + self.span * value

    @property
    def contexts(self) -> tuple[str, ...]:
        """Names of the rows of a law; one without a name if contexts are not told apart."""
        return self.world.contexts or ("",)


def find(
    file: ProblemFile,
    world: World,
    *,
    rounds: int = 10_000,
    each: bool = False,
    floor: bool = False,
    starts: int = 8,
    seed: int = 0,
) -> Found:
    """The best laws for a problem file in a world.

    rounds: of a noisy world, on which optima are computed; outcomes need none
    each:   every context keeps the limits by itself, as in the paper, not all of them together
    floor:  nobody has less than the problem's floor, as the paper's policies
    starts: of the search under exact limits, and the seed of the random ones among them
    """
    problem, ground = file.problem, world.ground(rounds, [seed])
    chances = shares(ground)
    options: dict[str, Any] = {"floor": floor, "contexts": ground.contexts}
    options["aggregate"] = ground.contexts is not None and not each
    laws, reasons = {}, {}
    for kind, exact in LAWS.items():
        try:
            best = optimum(problem, ground.stack, exact=exact, starts=starts, seed=seed, **options)
        except InfeasibleLimits as error:
            reasons[kind] = reason(problem, kind, error)
            continue
        q, asked = np.atleast_2d(best.policy), best.asked(problem.draws)
        prices = checked_prices(problem, ground.stack, best, exact=exact, **options)
        laws[kind] = Law(kind, best, q, asked, problem.rows @ (chances @ asked), prices)
    fixed = best_set(problem, ground.stack)
    return Found(file, world, laws, reasons, fixed, chances, each, floor, ground.stack.rounds)


def reason(problem: Problem, kind: str, error: InfeasibleLimits) -> str:
    """Why there is no law of a kind: for the stand-in, the fewest limits that empty it."""
    conflict = problem.surrogate_conflict if kind == "surrogate" else None
    if conflict is None:
        return str(error)
    return f"it is empty, by {listed(conflict.limits)}, though the limits themselves are not"


def shares(ground: Ground) -> Floats:
    """How often each context comes: the weight of its rounds."""
    weights = ground.stack.weights
    if ground.contexts is None:
        return np.ones(1)
    total: Floats = np.bincount(ground.contexts, weights) / weights.sum()
    return total
