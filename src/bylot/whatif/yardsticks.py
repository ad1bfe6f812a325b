"""What plays are measured against: optima, the best fixed panel, equal shares, prices of limits."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bylot.bestlaws.find import shares
from bylot.errors import InfeasibleLimits
from bylot.kernels.compile import Floats
from bylot.metrics import outside
from bylot.optima import (
    CheckedPrice,
    Mixture,
    Optimum,
    Stack,
    best_mixture,
    best_set,
    checked_prices,
    optimum,
)
from bylot.problem import Problem
from bylot.whatif.levels import with_limits
from bylot.whatif.setup import Mark, Setup

EXACT: Mapping[str, Any] = {"exact": True, "floor": False}
"""The limits themselves, and nobody's probability bounded from below."""

STARTS = 2
"""Of the search: further ones cost a lot and, where it was tried, led to the same law."""


@dataclass(frozen=True, eq=False)
class Yardstick:
    """What something that does not learn would earn.

    value:   expected reward of a request
    ceiling: what is proved that nothing of its kind exceeds
    asked:   (K,) the share of requests in which each expert is asked
    kept:    does it keep all limits?
    note:    what else is to be said
    prices:  of each limit, as far as they were asked for
    """

    value: float
    ceiling: float | None = None
    asked: Floats | None = None
    kept: bool = True
    note: str = ""
    prices: tuple[CheckedPrice, ...] = ()


class Nothing(NamedTuple):
    """There is no such thing, and why."""

    note: str


def mark(setup: Setup, job: Mark) -> Yardstick | Nothing:
    """Compute one."""
    problem = setup.at(job.level)
    assert problem is not None, "levels that cannot be kept are not measured"
    try:
        return MARKS[job.what](setup, problem, priced=job.level is None)
    except InfeasibleLimits:
        return Nothing(NONE.get(job.what, "there is none"))


def panels(setup: Setup, problem: Problem, priced: bool) -> Yardstick:
    """The best lot of panels of M different experts whose expected costs keep the limits."""
    stack, contexts = setup.ground
    given: dict[str, Any] = {"contexts": contexts, "aggregate": contexts is not None}
    best = best_mixture(problem, stack, **given)
    prices = checked_prices(problem, stack, best, **given) if priced else ()
    return of_law(setup, problem, best, prices)


def most(setup: Setup, problem: Problem, priced: bool) -> Yardstick:
    """The best lot of panels of up to M experts: what no policy exceeds."""
    stack, contexts = setup.ground
    best = best_mixture(
        problem, stack, contexts=contexts, aggregate=contexts is not None, fewer=True
    )
    return of_law(setup, problem, best)


def free_panels(setup: Setup, problem: Problem, priced: bool) -> Yardstick:
    """The best panels of M different experts, if nothing were limited."""
    stack, contexts = setup.ground
    best = best_mixture(with_limits(problem, []), stack, contexts=contexts)
    return of_law(setup, problem, best)


def exact(setup: Setup, problem: Problem, priced: bool) -> Yardstick:
    """The best fixed law of M independent draws whose exact expected costs keep the limits."""
    stack, contexts = setup.ground
    given = {**EXACT, "contexts": contexts, "aggregate": contexts is not None}
    best = optimum(problem, stack, starts=STARTS, **given)
    prices = checked_prices(problem, stack, best, **given) if priced else ()
    return of_law(setup, problem, best, prices)


def surrogate(setup: Setup, problem: Problem, priced: bool) -> Yardstick:
    """The best fixed law under the paper's stricter stand-in for the limits."""
    stack, contexts = setup.ground
    several = contexts is not None
    best = optimum(problem, stack, floor=False, contexts=contexts, aggregate=several)
    return of_law(setup, problem, best)


def free_draws(setup: Setup, problem: Problem, priced: bool) -> Yardstick:
    """The best fixed law of M independent draws, if nothing were limited."""
    stack, contexts = setup.ground
    best = optimum(with_limits(problem, []), stack, floor=False, contexts=contexts)
    return of_law(setup, problem, best)


def of_law(
    setup: Setup,
    problem: Problem,
    best: Optimum | Mixture,
    prices: tuple[CheckedPrice, ...] = (),
) -> Yardstick:
    """A law, one for each context, and whether it keeps the limits."""
    chances = np.atleast_2d(best.asked) if isinstance(best, Mixture) else best.asked(problem.draws)
    asked: Floats = shares(setup.ground) @ chances
    return Yardstick(
        value=setup.reward(best.value),
        ceiling=setup.reward(best.ceiling),
        asked=asked,
        kept=outside(problem, problem.rows @ asked) <= SLACK,
        prices=prices,
    )


def fixed(setup: Setup, problem: Problem, priced: bool) -> Yardstick | Nothing:
    """The best panel to ask every time."""
    best = best_set(problem, setup.ground.stack)
    members = [name in best.members for name in problem.experts]
    proof = "no better one exists" if best.proved else "the best that a greedy search found"
    if not best.members:
        return Nothing("no panel keeps the upper limits")
    if not best.feasible:
        proof = "no single panel keeps all limits; this one keeps the upper ones"
    return Yardstick(
        setup.reward(best.value),
        asked=np.array(members, np.float64),
        kept=best.feasible,
        note=f"{', '.join(best.members)}: {proof}",
    )


def equal(setup: Setup, problem: Problem, priced: bool) -> Yardstick:
    """M different experts by lot, all as often."""
    K, M = problem.size, min(problem.draws, problem.size)
    away = outside(problem, problem.rows.sum(axis=1) * M / K)
    value = setup.reward(equal_value(setup.ground.stack, M))
    return Yardstick(value, asked=np.full(K, M / K), kept=away <= SLACK)


def equal_value(stack: Stack, M: int) -> float:
    """Expected reward of M different experts, every set as likely.

    The r-th best of K (from 0) is the best of the set with chance C(K-1-r, M-1) / C(K, M).

    >>> equal_value(Stack([[0.0, 1.0, 0.5]]), 2)
    0.8333333333333333
    """
    K = stack.size
    chance = [math.comb(K - 1 - r, M - 1) / math.comb(K, M) for r in range(K)]
    ranked = np.take_along_axis(stack.values, stack.order.astype(np.int64), axis=2)
    return float(stack.weights @ (ranked @ np.array(chance)).sum(axis=1))


SLACK = 1e-9  # in units of the largest cost: an optimum lies on its limits, up to rounding

NONE = {
    "panels": "there is none: full panels of different experts cannot keep the limits",
    "exact": "none was found that keeps the limits",
    "surrogate": "there is none: the stand-in is empty, though the limits are not",
}
"""What is said where there is no such law."""

MARKS: Mapping[str, Callable[..., Yardstick | Nothing]] = {
    "panels": panels,
    "exact": exact,
    "surrogate": surrogate,
    "most": most,
    "set": fixed,
    "equal": equal,
    "free-panels": free_panels,
    "free-draws": free_draws,
}
"""In the order in which they are told of."""
