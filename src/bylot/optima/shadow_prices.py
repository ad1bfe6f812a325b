"""Prices of limits, checked: the multipliers of an optimum beside what other bounds would earn.

A multiplier is what the theory says a bound is worth, a difference is what it is worth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike

from bylot.errors import ProblemError
from bylot.numerics.jit import Floats
from bylot.optima.exact_costs import ExactCosts
from bylot.optima.exact_search import list_bound_variants, maximise_from_start
from bylot.optima.iid_optimum import (
    RELATIVE_GAP,
    Optimum,
    optimum,
    resolve_floor,
    split_by_context,
    split_subproblems,
    stack_values,
)
from bylot.optima.mixtures import Mixture, MixtureProgram, make_mixture_programs
from bylot.optima.objective import ValueStack
from bylot.problem import Limit, Problem

RELATIVE_BOUND_STEP = 1e-3
"""Bounds are moved by this fraction of themselves; of the largest cost, if the bound is 0."""

PRICE_TOLERANCE = 0.01
"""Prices that differ by less than this fraction of the larger agree."""


@dataclass(frozen=True)
class ShadowPrice:
    """What a bound is worth: d value / d bound, by the multiplier and by moving the bound.

    below:   (value - value at bound - step) / step; None if no policy keeps that bound
    above:   (value at bound + step - value) / step; likewise
    verdict: "agrees": the multiplier is the central difference, to a hundredth, or is if the step
                       shrinks to a tenth
             "kink":   from below and from above the worth differs, and goes on to differ if the
                       step shrinks; any number between the two is a multiplier
             "edge":   the bound cannot be moved both ways, and only one can be compared; none if
                       `central` is None: then there is only the multiplier
             "differs": none of these; under exact costs the way may lead to another local optimum
    """

    limit: Limit
    price: float
    step: float
    below: float | None
    above: float | None
    verdict: str

    @property
    def central(self) -> float | None:
        """The mean of both sides, the one there is at an edge, None if there is none."""
        sides = [side for side in (self.below, self.above) if side is not None]
        return sum(sides) / len(sides) if sides else None


def check_shadow_prices(
    problem: Problem,
    values: ArrayLike | ValueStack,
    best: Optimum | Mixture,
    *,
    floor: bool | float = True,
    contexts: ArrayLike | None = None,
    aggregate: bool = False,
    exact: bool = False,
    step: float = RELATIVE_BOUND_STEP,
) -> tuple[ShadowPrice, ...]:
    """The price of each limit at an optimum, beside differences of the optimal value.

    `best` is what `optimum` or `best_mixture` gave for the same problem, values and options. With
    exact costs its policy is where the optimum for each moved bound is climbed from, so that all
    belong together.

    >>> from bylot.problem import at_most
    >>> pair = Problem(["a", "b"], {"usd": [0.0, 1.0]}, [at_most("usd", 0.5)], draws=2)
    >>> (usd,) = check_shadow_prices(pair, [[0.0, 1.0]], optimum(pair, [[0.0, 1.0]]))
    >>> usd.verdict, round(usd.price, 6), round(usd.central, 6)
    ('agrees', 0.75, 0.75)
    """
    stack = stack_values(problem, values)
    if isinstance(best, Mixture):
        _, parts = split_by_context(stack, contexts)
        mixed = make_mixture_programs(problem, parts, aggregate, best.fewer)
        value: ValueOfProblem = partial(compute_mixture_value, mixed)
    elif exact:
        best.require(exact)
        value = partial(compute_local_exact_value, stack, best, floor, contexts, aggregate)
    else:
        best.require(exact)
        value = partial(compute_surrogate_value, stack, best, floor, contexts, aggregate)
    bench = PriceChecker(problem, best.prices, stack.everyone(), value)
    return tuple(bench.checked(j, step) for j in range(len(problem.limits)))


ValueOfProblem = Callable[[Problem], float | None]
"""The optimal value of a problem that differs in a bound, None if it is not found."""


def compute_mixture_value(mixed: list[MixtureProgram], problem: Problem) -> float:
    """Of mixtures of sets."""
    return sum(mixing.value(problem) for mixing in mixed)


def compute_surrogate_value(
    stack: ValueStack,
    best: Optimum,
    floor: bool | float,
    contexts: ArrayLike | None,
    aggregate: bool,
    problem: Problem,
) -> float:
    """Of draws under the surrogate."""
    start = best.policy
    return optimum(
        problem, stack, floor=floor, contexts=contexts, aggregate=aggregate, start=start
    ).value


def compute_local_exact_value(
    stack: ValueStack,
    best: Optimum,
    floor: bool | float,
    contexts: ArrayLike | None,
    aggregate: bool,
    problem: Problem,
) -> float | None:
    """Of draws under exact costs: the local optimum that is reached from the one we have."""
    _, parts = split_by_context(stack, contexts)
    policy: Floats = np.atleast_2d(best.policy)
    total = 0.0
    for task, rows in split_subproblems(problem, parts, resolve_floor(problem, floor), aggregate):
        costs = ExactCosts.of(problem, task.shares, task.floor)
        ways = (maximise_from_start(task, *one, policy[rows]) for one in list_bound_variants(costs))
        top = next((top for top in ways if top is not None), None)
        if top is None:
            return None
        total += top.value
    return total


@dataclass(frozen=True, eq=False)
class PriceChecker:
    """Prices and what they are prices of, to move bounds of."""

    problem: Problem
    prices: Floats
    everyone: float  # earned by asking everyone: values are known to a fraction of it
    value: ValueOfProblem

    def checked(self, j: int, step: float) -> ShadowPrice:
        """The price of limit j."""
        limit, price = self.problem.limits[j], float(self.prices[j])
        h = step * float(limit.bound or self.problem.peaks[j])
        below, above = self.sides(j, h)
        return ShadowPrice(limit, price, h, below, above, self.verdict(j, price, h, below, above))

    def verdict(
        self, j: int, price: float, h: float, below: float | None, above: float | None
    ) -> str:
        """What the two sides say of the price, see `ShadowPrice`."""
        if below is None or above is None:
            return "edge"
        if self.alike(below, above, h):
            return "agrees" if self.alike(price, (below + above) / 2, h) else "differs"
        low, high = self.sides(j, h / 10)
        if low is None or high is None:
            return "edge"
        # Where the value is smooth, the sides would differ by a tenth of what they did.
        if abs(high - low) > abs(above - below) / 2:
            return "kink"
        near = self.alike(price, (low + high) / 2, h / 10)
        return "agrees" if near or self.alike(price, (below + above) / 2, h) else "differs"

    @cached_property
    def here(self) -> float | None:
        """The optimal value with the bounds as they are."""
        return self.value(self.problem)

    def sides(self, j: int, h: float) -> tuple[float | None, float | None]:
        """What the bound is worth from below and from above."""
        here = self.here
        less, more = self.moved(j, -h), self.moved(j, h)
        return (
            None if less is None or here is None else (here - less) / h,
            None if more is None or here is None else (more - here) / h,
        )

    def alike(self, one: float, other: float, h: float) -> bool:
        """Do two prices agree, but for how well values are known?"""
        noise = 2 * RELATIVE_GAP * self.everyone / h
        return abs(one - other) <= PRICE_TOLERANCE * max(abs(one), abs(other)) + noise

    def moved(self, j: int, by: float) -> float | None:
        """The optimal value with another bound, None if that cannot be kept, or be at all."""
        limits, old = list(self.problem.limits), self.problem
        try:
            limits[j] = limits[j].at(limits[j].bound + by)
            problem = Problem(
                old.experts, dict(old.costs), limits, draws=old.draws, floor=old.floor
            )
            return self.value(problem)
        except ProblemError:  # InfeasibleLimits are some of those
            return None
