"""Finding the best laws: of panels, of draws, under the paper's stand-in, and as one set.

Owns what is computed; how it is told is left to `render`.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.files import ProblemFile
from bylot.kernels.compile import Floats
from bylot.optima import (
    BestSet,
    CheckedPrice,
    Mixture,
    Optimum,
    best_mixture,
    best_set,
    checked_prices,
    optimum,
)
from bylot.problem import Problem
from bylot.problem.limits import listed
from bylot.worlds import Ground, World

DRAWS = {"exact": True, "surrogate": False}
"""Laws of draws: under the limits themselves, or under the paper's linear stand-in for them."""

LAWS = ("panels", *DRAWS)
"""All laws, in the order in which they are told of."""


@dataclass(frozen=True, eq=False)
class Law:
    """The best law of its kind, one for each context.

    kind:   panels: M different experts, by lot; exact or surrogate: M independent draws
    best:   what `best_mixture` or `optimum` found, in rewards from 0 to 1
    q:      (X, K), the chance of each expert in a draw; None of panels
    asked:  (X, K), the chance to be asked in a request; of draws, 1 - (1 - q)^M
    costs:  (d,), expected cost of a request under each limit
    prices: of each limit, beside what moving its bound is worth
    """

    kind: str
    best: Optimum | Mixture
    q: Floats | None
    asked: Floats
    costs: Floats
    prices: tuple[CheckedPrice, ...]


@dataclass(frozen=True, eq=False)
class Found:
    """All that was asked for.

    laws:    by kind; one that was not found is missing, and `reasons` has why
    most:    the best panels of up to M experts: no policy at all earns more under the limits
    chances: (X,), how often each context comes
    each:    is every context under the limits by itself, or all under one budget?
    """

    file: ProblemFile
    world: World
    laws: dict[str, Law]
    reasons: dict[str, str]
    most: Mixture
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
    every: dict[str, Any] = {"contexts": ground.contexts}
    every["aggregate"] = ground.contexts is not None and not each
    most = best_mixture(problem, ground.stack, fewer=True, **every)
    laws, reasons = {}, {}
    for kind in LAWS:
        given = every if kind == "panels" else {**every, "floor": floor, "exact": DRAWS[kind]}
        try:
            if kind == "panels":
                best: Optimum | Mixture = best_mixture(problem, ground.stack, **given)
            else:
                best = optimum(problem, ground.stack, starts=starts, seed=seed, **given)
        except InfeasibleLimits as error:
            reasons[kind] = reason(file, kind, error)
            continue
        prices = checked_prices(problem, ground.stack, best, **given)
        laws[kind] = told(problem, kind, replace(best, gap=gap(best, most)), chances, prices)
    fixed = best_set(problem, ground.stack)
    rounds = ground.stack.rounds
    return Found(file, world, laws, reasons, most, fixed, chances, each, floor, rounds)


def gap(best: Optimum | Mixture, most: Mixture) -> float:
    """How much better another law could be: by its own proof, or as no policy is better at all."""
    return max(0.0, min(best.gap, most.ceiling - best.value))


def told(
    problem: Problem,
    kind: str,
    best: Optimum | Mixture,
    chances: Floats,
    prices: tuple[CheckedPrice, ...],
) -> Law:
    """A law, with whom it asks and what it costs."""
    if isinstance(best, Mixture):
        q, asked = None, np.atleast_2d(best.asked)
    else:
        q = np.atleast_2d(best.policy)
        asked = best.asked(problem.draws)
    return Law(kind, best, q, asked, problem.rows @ (chances @ asked), prices)


def reason(file: ProblemFile, kind: str, error: InfeasibleLimits) -> str:
    """Why there is no law of a kind: for the stand-in, the fewest limits that empty it."""
    if kind == "panels":
        full = file.worded(str(file.problem.full_conflict))
        return f"panels that always have {file.problem.draws} members cannot keep {full}"
    conflict = file.problem.surrogate_conflict if kind == "surrogate" else None
    if conflict is None:
        return file.worded(str(error))
    limits = file.worded(listed(conflict.limits))
    return f"it is empty, by {limits}, though the limits themselves are not"


def shares(ground: Ground) -> Floats:
    """How often each context comes: the weight of its rounds."""
    weights = ground.stack.weights
    if ground.contexts is None:
        return np.ones(1)
    total: Floats = np.bincount(ground.contexts, weights) / weights.sum()
    return total
