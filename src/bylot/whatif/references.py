"""What plays are measured against: optima, the best fixed panel, equal shares, prices of limits."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.metrics import measure_worst_excess
from bylot.numerics.jit import Floats
from bylot.optima import (
    Mixture,
    Optimum,
    ShadowPrice,
    ValueStack,
    best_mixture,
    best_set,
    check_shadow_prices,
    optimum,
)
from bylot.problem import Problem
from bylot.whatif.plan import ReferenceJob, WhatifPlan

EXACT_COSTS: Mapping[str, Any] = {"exact": True, "floor": False}
"""The limits themselves, and nobody's probability bounded from below."""

SEARCH_STARTS = 2
"""Of the search: further ones cost a lot and, where it was tried, led to the same law."""


@dataclass(frozen=True, eq=False)
class Reference:
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
    prices: tuple[ShadowPrice, ...] = ()


class MissingReference(NamedTuple):
    """There is no such thing, and why."""

    note: str


def compute_reference(setup: WhatifPlan, job: ReferenceJob) -> Reference | MissingReference:
    """Compute one."""
    problem = setup.at(job.level)
    assert problem is not None, "levels that cannot be kept are not measured"
    try:
        return REFERENCES[job.what](setup, problem, priced=job.level is None)
    except InfeasibleLimits:
        return MissingReference(MISSING_REASONS.get(job.what, "there is none"))


def full_panels_reference(setup: WhatifPlan, problem: Problem, priced: bool) -> Reference:
    """The best lot of panels of M different experts whose expected costs keep the limits."""
    stack, contexts = setup.ground
    given: dict[str, Any] = {"contexts": contexts, "aggregate": contexts is not None}
    best = best_mixture(problem, stack, **given)
    prices = check_shadow_prices(problem, stack, best, **given) if priced else ()
    return reference_from_optimum(setup, problem, best, prices)


def any_panels_reference(setup: WhatifPlan, problem: Problem, priced: bool) -> Reference:
    """The best lot of panels of up to M experts: what no policy exceeds."""
    stack, contexts = setup.ground
    best = best_mixture(
        problem, stack, contexts=contexts, aggregate=contexts is not None, fewer=True
    )
    return reference_from_optimum(setup, problem, best)


def free_panels_reference(setup: WhatifPlan, problem: Problem, priced: bool) -> Reference:
    """The best panels of M different experts, if nothing were limited."""
    stack, contexts = setup.ground
    best = best_mixture(problem.replace(limits=[]), stack, contexts=contexts)
    return reference_from_optimum(setup, problem, best)


def iid_reference(setup: WhatifPlan, problem: Problem, priced: bool) -> Reference:
    """The best fixed law of M independent draws whose exact expected costs keep the limits."""
    stack, contexts = setup.ground
    given = {**EXACT_COSTS, "contexts": contexts, "aggregate": contexts is not None}
    best = optimum(problem, stack, starts=SEARCH_STARTS, **given)
    prices = check_shadow_prices(problem, stack, best, **given) if priced else ()
    return reference_from_optimum(setup, problem, best, prices)


def surrogate_reference(setup: WhatifPlan, problem: Problem, priced: bool) -> Reference:
    """The best fixed law under the paper's stricter stand-in for the limits."""
    stack, contexts = setup.ground
    several = contexts is not None
    best = optimum(problem, stack, floor=False, contexts=contexts, aggregate=several)
    return reference_from_optimum(setup, problem, best)


def free_draws_reference(setup: WhatifPlan, problem: Problem, priced: bool) -> Reference:
    """The best fixed law of M independent draws, if nothing were limited."""
    stack, contexts = setup.ground
    best = optimum(problem.replace(limits=[]), stack, floor=False, contexts=contexts)
    return reference_from_optimum(setup, problem, best)


def reference_from_optimum(
    setup: WhatifPlan,
    problem: Problem,
    best: Optimum | Mixture,
    prices: tuple[ShadowPrice, ...] = (),
) -> Reference:
    """A law, one for each context, and whether it keeps the limits."""
    chances = (
        np.atleast_2d(best.inclusion)
        if isinstance(best, Mixture)
        else best.inclusion(problem.draws)
    )
    asked: Floats = setup.ground.context_shares() @ chances
    return Reference(
        value=setup.reward(best.value),
        ceiling=setup.reward(best.ceiling),
        asked=asked,
        kept=measure_worst_excess(problem, problem.rows @ asked) <= REFERENCE_SLACK,
        prices=prices,
    )


def best_set_reference(
    setup: WhatifPlan, problem: Problem, priced: bool
) -> Reference | MissingReference:
    """The best panel to ask every time."""
    best = best_set(problem, setup.ground.stack)
    members = [name in best.members for name in problem.experts]
    proof = "no better one exists" if best.proved else "the best that a greedy search found"
    if not best.members:
        return MissingReference("no panel keeps the upper limits")
    if not best.feasible:
        proof = "no single panel keeps all limits; this one keeps the upper ones"
    return Reference(
        setup.reward(best.value),
        asked=np.array(members, np.float64),
        kept=best.feasible,
        note=f"{', '.join(best.members)}: {proof}",
    )


def equal_shares_reference(setup: WhatifPlan, problem: Problem, priced: bool) -> Reference:
    """M different experts by lot, all as often."""
    K, M = problem.size, min(problem.draws, problem.size)
    away = measure_worst_excess(problem, problem.rows.sum(axis=1) * M / K)
    value = setup.reward(equal_shares_value(setup.ground.stack, M))
    return Reference(value, asked=np.full(K, M / K), kept=away <= REFERENCE_SLACK)


def equal_shares_value(stack: ValueStack, M: int) -> float:
    """Expected reward of M different experts, every set as likely.

    The r-th best of K (from 0) is the best of the set with chance C(K-1-r, M-1) / C(K, M).

    >>> equal_shares_value(ValueStack([[0.0, 1.0, 0.5]]), 2)
    0.8333333333333333
    """
    K = stack.size
    chance = [math.comb(K - 1 - r, M - 1) / math.comb(K, M) for r in range(K)]
    ranked = np.take_along_axis(stack.values, stack.order.astype(np.int64), axis=2)
    return float(stack.weights @ (ranked @ np.array(chance)).sum(axis=1))


REFERENCE_SLACK = (
    1e-9  # in units of the largest cost: an optimum lies on its limits, up to rounding
)

MISSING_REASONS = {
    "panels": "there is none: full panels of different experts cannot keep the limits",
    "exact": "none was found that keeps the limits",
    "surrogate": "there is none: the stand-in is empty, though the limits are not",
}
"""What is said where there is no such law."""

REFERENCES: Mapping[str, Callable[..., Reference | MissingReference]] = {
    "panels": full_panels_reference,
    "exact": iid_reference,
    "surrogate": surrogate_reference,
    "most": any_panels_reference,
    "set": best_set_reference,
    "equal": equal_shares_reference,
    "free-panels": free_panels_reference,
    "free-draws": free_draws_reference,
}
"""In the order in which they are told of."""
