"""Reference values: optima, the best fixed panel, equal shares, and the shadow prices of limits."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bylot import optima
from bylot.errors import InfeasibleLimits
from bylot.metrics import measure_worst_excess
from bylot.numerics.jit import Floats
from bylot.optima import Optimum, ShadowPrice, ValueStack
from bylot.problem import Problem
from bylot.problem.window_bounds import has_known_optimum, restate_per_request
from bylot.whatif.plan import WhatifJob, WhatifPlan

SEARCH_STARTS = 2  # under exact costs; more cost a lot and led to the same distribution
REFERENCE_SLACK = 1e-9  # in units of the largest cost: an optimum lies on its limits


class DistributionKind(NamedTuple):
    """A kind of distribution that policies play."""

    best: str  # the best of the kind, in a sentence, with `WhatifPlan.panels`
    plays: str  # what the policies of this kind play
    label: str  # the best of the kind, in a column
    free: str  # the reference for the best of the kind without limits


DISTRIBUTION_KINDS = {
    "panels": DistributionKind(
        "mixture of {panels}", "panels of different experts", "best panels", "free-panels"
    ),
    "exact": DistributionKind(
        "distribution of independent draws", "independent draws", "best draws", "free-draws"
    ),
}
"""By the reference that is the best of the kind under the limits."""


@dataclass(frozen=True, eq=False)
class Reference:
    """What a policy that does not learn would earn."""

    value: float  # expected reward of a request
    ceiling: float | None = None  # proved upper bound of all of its kind
    asked: Floats | None = None  # (K,) share of the requests in which each expert is asked
    kept: bool = True  # whether it keeps all limits
    note: str = ""
    prices: tuple[ShadowPrice, ...] = ()  # of each limit, if computed

    @property
    def cells(self) -> tuple[str, str, str]:
        """Cells of a table: value, ceiling, whether it keeps the limits."""
        ceiling = "-" if self.ceiling is None else f"{self.ceiling:.4f}"
        return f"{self.value:.4f}", ceiling, "yes" if self.kept else "no"


def compute_reference(plan: WhatifPlan, problem: Problem, job: WhatifJob) -> Reference | str:
    """One reference, with shadow prices for the bounds of the file, or why there is none."""
    priced = job.level is None and job.name in DISTRIBUTION_KINDS
    if not has_known_optimum(problem):
        return "not known: limits are on some contexts; leave `where` out to compare"
    try:
        if plan.calls is not None and plan.calls.means:
            problem = problem.replace(costs=plan.mean_costs)
        problem = restate_per_request(problem)
        return REFERENCES[job.name](plan, problem, priced=priced)
    except InfeasibleLimits:
        return MISSING_REASONS.get(job.name, "does not exist").format(panels=plan.panels)


MISSING_REASONS = {
    "panels": "does not exist: {panels} cannot keep the limits",
    "exact": "not found",
    "surrogate": "does not exist: the surrogate is infeasible, although the limits are not",
}


def compute_optimum(
    solve: Callable[..., Any],
    plan: WhatifPlan,
    problem: Problem,
    priced: bool,
    limited: bool = True,
    **options: Any,
) -> Reference:
    """The best distribution by context that `solve` finds, `limited` or not."""
    stack, contexts = plan.optimum_input
    options["contexts"] = contexts
    best = solve(problem if limited else problem.replace(limits=[]), stack, **options)
    is_mixture = isinstance(best, Optimum)
    inclusion = np.atleast_2d(best.inclusion) if is_mixture else best.inclusion(problem.draws)
    asked: Floats = plan.optimum_input.context_shares() @ inclusion
    return Reference(
        value=plan.file.to_reward(best.value),
        ceiling=plan.file.to_reward(best.ceiling),
        asked=asked,
        kept=measure_worst_excess(problem, problem.rows @ asked) <= REFERENCE_SLACK,
        prices=optima.check_shadow_prices(problem, stack, best, **options) if priced else (),
    )


def compute_best_set(plan: WhatifPlan, problem: Problem, priced: bool) -> Reference | str:
    best = optima.best_set(problem, plan.optimum_input.stack)
    if not best.members:
        return "no panel keeps the upper limits"
    proof = "proved optimal" if best.proved else "the best found by a greedy search"
    if not best.feasible:
        proof = "no fixed panel keeps all limits; this one keeps the upper ones"
    return Reference(
        plan.file.to_reward(best.value),
        asked=np.array([float(name in best.members) for name in problem.experts]),
        kept=best.feasible,
        note=f"{', '.join(best.members)}: {proof}",
    )


def compute_equal_shares(plan: WhatifPlan, problem: Problem, priced: bool) -> Reference:
    """M different experts at random, all equally often."""
    K, M = problem.size, min(problem.draws, problem.size)
    away = measure_worst_excess(problem, problem.rows.sum(axis=1) * M / K)
    value = plan.file.to_reward(equal_shares_value(plan.optimum_input.stack, M))
    return Reference(value, asked=np.full(K, M / K), kept=away <= REFERENCE_SLACK)


def equal_shares_value(stack: ValueStack, M: int) -> float:
    """Expected reward of M different experts, every set equally likely.

    The r-th best of K (from 0) is the best of the set with probability C(K-1-r, M-1) / C(K, M).

    >>> equal_shares_value(ValueStack([[0.0, 1.0, 0.5]]), 2)
    0.8333333333333333
    """
    K = stack.size
    probability = [math.comb(K - 1 - r, M - 1) / math.comb(K, M) for r in range(K)]
    ranked = np.take_along_axis(stack.values, stack.order.astype(np.int64), axis=2)
    return float(stack.weights @ (ranked @ np.array(probability)).sum(axis=1))


REFERENCES: Mapping[str, Callable[..., Reference | str]] = {
    "panels": partial(compute_optimum, partial(optima.optimum, fewer=False)),
    "exact": partial(
        compute_optimum, partial(optima.iid_optimum, starts=SEARCH_STARTS), exact=True
    ),
    "surrogate": partial(compute_optimum, optima.iid_optimum),
    "most": partial(compute_optimum, partial(optima.optimum, fewer=True)),
    "set": compute_best_set,
    "equal": compute_equal_shares,
    "free-panels": partial(compute_optimum, partial(optima.optimum, fewer=False), limited=False),
    "free-draws": partial(compute_optimum, optima.iid_optimum, limited=False),
}
"""In the order of the report."""
