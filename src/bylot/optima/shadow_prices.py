"""Shadow prices of limits: multipliers of an optimum, checked by moving the bounds."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from bylot.errors import ProblemError
from bylot.numerics.jit import Floats
from bylot.optima.iid import IidOptimum, iid_optimum, split_subproblems
from bylot.optima.mixtures import Optimum, make_mixture_programs
from bylot.optima.objective import RELATIVE_GAP, ValueStack, split_values, stack_values
from bylot.optima.policy_search import ExactCosts, maximise_from_start
from bylot.problem import Limit, Problem
from bylot.problem.window_bounds import restate_per_request

RELATIVE_BOUND_STEP = 1e-3  # of a bound; of the largest cost, if the bound is 0
MOVED_PRECISION = 10.0  # optima under moved bounds, by exact costs, may be that much less precise
PRICE_TOLERANCE = 0.01  # relative difference up to which prices agree


@dataclass(frozen=True)
class ShadowPrice:
    """d value / d bound of a limit: its multiplier, and finite differences that check it.

    Attributes
    ----------
    price
        The multiplier.
    step
        By how much the bound was moved.
    below, above
        (value - value at bound - step) / step, (value at bound + step - value) / step; None if no
        policy keeps that bound.
    verdict
        "agrees": the multiplier is the central difference to 1 %, at this step or a tenth of it.
        "kink": the sides differ, also at a smaller step; any number between them is a multiplier.
        "edge": the bound cannot be moved both ways.
        "differs": none of these; under exact costs, other bounds may lead to another local optimum.
    peak
        The largest cost of an expert under the limit.
    """

    limit: Limit
    price: float
    step: float
    below: float | None
    above: float | None
    verdict: str
    peak: float = 0.0

    @property
    def unit(self) -> float:
        """What changes of the bound are relative to: the bound or, if it is 0, the largest cost."""
        return self.limit.bound or self.peak

    @property
    def looser(self) -> float | None:
        """The difference quotient on the looser side; None if it is unknown."""
        return self.above if self.limit.sign < 0 else self.below

    @property
    def gain(self) -> float:
        """The value gained by a bound that is 1 % looser: by the price or, at a kink or an edge,
        where it is not unique, by the difference quotient of the looser side.
        """
        measured = self.verdict in ("kink", "edge") and self.looser is not None
        return self.gain_at(self.looser if measured else self.price)

    def gain_at(self, price: float | None) -> float:
        """The value gained by a bound that is 1 % looser, at this price."""
        return 0.01 * self.unit * abs(price or 0.0)

    @property
    def central(self) -> float | None:
        """The mean of both sides, or the one that exists at an edge, or None."""
        sides = [side for side in (self.below, self.above) if side is not None]
        return sum(sides) / len(sides) if sides else None


def check_shadow_prices(
    problem: Problem,
    values: ArrayLike | ValueStack,
    best: IidOptimum | Optimum,
    *,
    floor: bool | float = False,
    contexts: ArrayLike | None = None,
    each_context: bool = False,
    exact: bool = False,
    step: float = RELATIVE_BOUND_STEP,
) -> tuple[ShadowPrice, ...]:
    """Compare the price of each limit at an optimum with differences of the optimal value.

    Parameters
    ----------
    problem, values, floor, contexts, each_context, exact
        As they were given to `optimum` or `iid_optimum`.
    best
        What that returned. Under exact costs its policy is the start for every moved bound.
    step
        Relative change of the bounds.

    Returns
    -------
    tuple of ShadowPrice
        One for each limit of the problem.

    Examples
    --------
    >>> from bylot.problem import at_most
    >>> pair = Problem(["a", "b"], {"usd": [0.0, 1.0]}, [at_most("usd", 0.5)], draws=2)
    >>> (usd,) = check_shadow_prices(pair, [[0.0, 1.0]], iid_optimum(pair, [[0.0, 1.0]]))
    >>> usd.verdict, round(usd.price, 6), round(usd.central, 6)
    ('agrees', 0.75, 0.75)
    """
    problem = restate_per_request(problem)
    stack = stack_values(problem, values)
    _, parts = split_values(problem, stack, contexts)
    if isinstance(best, Optimum):
        fewer = best.sizes[0] < best.sizes[1]
        programs = make_mixture_programs(problem, parts, each_context, fewer)
    else:
        best.require(exact)

    def find_value(moved: Problem) -> float | None:
        """The optimal value under other bounds; None if it is not found."""
        if isinstance(best, Optimum):
            return sum(program.find_value(moved) for program in programs)
        if not exact:
            return iid_optimum(
                moved,
                stack,
                floor=floor,
                contexts=contexts,
                each_context=each_context,
                start=best.policy,
            ).value
        policy, total = np.atleast_2d(best.policy), 0.0
        for task, rows in split_subproblems(moved, parts, floor, each_context):
            task = task._replace(tolerance=task.tolerance * MOVED_PRECISION)
            variants = ExactCosts.of(moved, task.shares, task.floor).variants()
            reached = (maximise_from_start(task, costs, policy[rows]) for costs in variants)
            local = next(filter(None, reached), None)
            if local is None:
                return None
            total += local.value
        return total

    rooms = find_rooms(problem, parts, best, each_context)
    checker = PriceChecker(problem, best.prices, rooms, stack.reward_of_all, find_value)
    return tuple(checker.check(j, step) for j in range(len(problem.limits)))


def find_rooms(
    problem: Problem, parts: tuple[ValueStack, ...], best: IidOptimum | Optimum, each_context: bool
) -> Floats:
    """By how much an optimum is within each limit, in every context or in all together."""
    if isinstance(best, Optimum):
        asked = np.atleast_2d(best.inclusion)
    elif best.exact:
        asked = best.inclusion(problem.draws)
    else:  # the surrogate: u / M for u
        asked = np.atleast_2d(best.policy)
    costs = asked @ problem.rows.T
    if not each_context:
        shares = np.array([part.weights.sum() for part in parts])
        costs = (shares / shares.sum() @ costs)[None]
    if isinstance(best, IidOptimum) and not best.exact:
        costs = np.where(problem.signs < 0, problem.draws, 1) * costs
    return np.asarray((problem.signs * (costs - problem.bounds)).min(axis=0))


@dataclass(frozen=True, eq=False)
class PriceChecker:
    """Moves bounds of a problem and compares its prices with the change of the optimal value."""

    problem: Problem
    prices: Floats
    rooms: Floats  # (d,) by how much the optimum is within each limit
    reward_of_all: float  # values are known to a fraction of it
    find_value: Callable[[Problem], float | None]

    def check(self, j: int, step: float) -> ShadowPrice:
        """The price of limit j."""
        limit, price = self.problem.limits[j], float(self.prices[j])
        peak = float(self.problem.peaks[j])
        h = step * (limit.bound or peak)
        if self.stays_optimal(j, h):
            return ShadowPrice(limit, price, h, 0.0, 0.0, "agrees", peak)
        below, above = self.differences(j, h)
        if below is None or above is None:
            return ShadowPrice(limit, price, h, below, above, "edge", peak)
        verdict = "agrees" if self.is_close(price, (below + above) / 2, h) else "differs"
        if not self.is_close(below, above, h):
            low, high = self.differences(j, h / 10)
            if low is None or high is None:
                verdict = "edge"
            elif abs(high - low) > abs(above - below) / 2:  # if smooth, it would be a tenth
                verdict = "kink"
            elif self.is_close(price, (low + high) / 2, h / 10):
                verdict = "agrees"
        return ShadowPrice(limit, price, h, below, above, verdict, peak)

    def stays_optimal(self, j: int, h: float) -> bool:
        """Whether the optimum keeps limit j with either moved bound, and has no price to gain."""
        limit, noise = self.problem.limits[j], RELATIVE_GAP * self.reward_of_all
        if self.rooms[j] <= h or abs(self.prices[j]) * h > noise:
            return False
        with suppress(ProblemError):  # at the end of the number range
            return bool(limit.at(limit.bound - h) and limit.at(limit.bound + h))
        return False

    @cached_property
    def value(self) -> float | None:
        return self.find_value(self.problem)

    def differences(self, j: int, h: float) -> tuple[float | None, float | None]:
        """The difference quotients below and above bound j."""
        here, less, more = self.value, self.value_at(j, -h), self.value_at(j, h)
        return (
            None if less is None or here is None else (here - less) / h,
            None if more is None or here is None else (more - here) / h,
        )

    def is_close(self, one: float, other: float, h: float) -> bool:
        """Whether two prices agree up to the precision of the values."""
        noise = 2 * MOVED_PRECISION * RELATIVE_GAP * self.reward_of_all / h
        return abs(one - other) <= PRICE_TOLERANCE * max(abs(one), abs(other)) + noise

    def value_at(self, j: int, change: float) -> float | None:
        """The optimal value with another bound j; None if no policy keeps it."""
        limits = list(self.problem.limits)
        try:
            limits[j] = limits[j].at(limits[j].bound + change)
            return self.find_value(self.problem.replace(limits=limits))
        except ProblemError:  # includes InfeasibleLimits
            return None
