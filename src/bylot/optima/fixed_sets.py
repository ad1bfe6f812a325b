"""The best fixed set of experts: what asking the same few in every request could earn.

Greedy search, swaps, and a branch and bound that proves the result where it can afford to.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, LinearConstraint, milp

from bylot.numerics.jit import Bools, Floats
from bylot.optima.iid_optimum import stack_values
from bylot.optima.objective import ValueStack
from bylot.problem import Problem

SET_COST_SLACK = 1e-9
"""A limit broken by less than this, in units of its largest cost, is kept."""

MAX_BRANCHING_WORK = 10**9
"""Branch and bound gives up after so many values were looked at, a few seconds."""

FixedSet = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class BestSet:
    """The same panel in every request: whom to ask, what they earn and cost.

    members:  names, in the order of the problem; nobody if no set keeps the upper limits
    value:    mean over rounds of r_t(members)
    cost:     (d,), of the set under each limit, in every request
    feasible: does the set keep all limits? If not, no fixed set does, though a law that varies its
              panels may: minimum shares of more groups than M experts can be of exclude all sets.
              Then this is the best set under the upper limits alone, which earns what is not
              allowed: nothing to compare with
    proved:   is there no better set? If not, it is the best that greedy search and swaps found
    """

    members: tuple[str, ...]
    value: float
    cost: Floats
    feasible: bool
    proved: bool


def best_set(problem: Problem, values: ArrayLike | ValueStack) -> BestSet:
    """The best set A of at most M experts: max of mean_t r_t(A), its cost within the limits.

    >>> from bylot.problem import at_most
    >>> trio = Problem(["a", "b", "c"], {"usd": [1, 1, 2]}, [at_most("usd", 2)], draws=2)
    >>> best = best_set(trio, [[0.5, 0.0, 0.9], [0.0, 0.5, 0.0]])
    >>> best.members, best.value, best.feasible
    (('a', 'b'), 1.0, True)
    """
    hunt = FixedSetSearch.of(problem, stack_values(problem, values))
    found = hunt.best()
    if found is None:
        hunt = hunt.within_upper()
        found = hunt.best() or ((), True)
    members, proved = found
    chosen = list(members)
    return BestSet(
        members=tuple(problem.experts[i] for i in chosen),
        value=hunt.value(members),
        cost=problem.rows[:, chosen].sum(axis=1),
        feasible=bool(chosen) and hunt.whole,
        proved=proved,
    )


class FixedSetSearch(NamedTuple):
    """Sets of at most M experts: their value, and whether their cost is within the limits."""

    values: Floats  # (rounds x dimensions, K)
    weights: Floats  # (rounds x dimensions,)
    rows: Floats  # (d, K), in units of the largest cost
    bounds: Floats
    upper: Bools
    draws: int
    whole: bool  # all limits, or only the upper ones?

    @classmethod
    def of(cls, problem: Problem, stack: ValueStack) -> "FixedSetSearch":
        """Under all limits."""
        T, N, K = stack.values.shape
        weights = np.repeat(stack.weights, N)
        rows, bounds = problem.rows / problem.peaks[:, None], problem.bounds / problem.peaks
        draws = min(problem.draws, K)
        return cls(
            stack.values.reshape(T * N, K), weights, rows, bounds, problem.signs < 0, draws, True
        )

    def within_upper(self) -> "FixedSetSearch":
        """Under the upper limits only."""
        rows, bounds = self.rows[self.upper], self.bounds[self.upper]
        return self._replace(rows=rows, bounds=bounds, upper=self.upper[self.upper], whole=False)

    def seed(self) -> FixedSet | None:
        """A set within all limits, by an integer program; None if there is none at all.

        It is one of large sum of what each expert earns alone, a place to start from.
        """
        K = self.values.shape[1]
        low = np.where(self.upper, -np.inf, self.bounds - SET_COST_SLACK)
        high = np.where(self.upper, self.bounds + SET_COST_SLACK, np.inf)
        limits = [LinearConstraint(np.ones((1, K)), 1, self.draws)]
        if len(self.rows):
            limits.append(LinearConstraint(self.rows, low, high))
        best = milp(
            -self.alone(), constraints=limits, integrality=np.ones(K, np.int64), bounds=Bounds(0, 1)
        )
        return None if best.x is None else tuple(np.flatnonzero(best.x > 0.5).tolist())

    def best(self) -> tuple[FixedSet, bool] | None:
        """The best set within the limits and whether that is proved; None if there is none."""
        seed = self.seed()
        if seed is None:
            return None
        found = [self.swapped(self.greedy(start)) for start in ((), seed)]
        members, proved = self.branched(max(found, key=self.merit))
        return (members, proved) if self.merit(members)[0] else None

    def alone(self) -> Floats:
        """(K,), what each expert earns alone."""
        alone: Floats = self.weights @ self.values
        return alone

    def value(self, members: FixedSet) -> float:
        """sum over rounds and dimensions of weight times the best of the members."""
        return float(self.weights @ self.best_of(members))

    def merit(self, members: FixedSet) -> tuple[bool, float]:
        """Sets within the limits first, then by value."""
        return bool(self.kept(self.cost(members))), self.value(members)

    def best_of(self, members: FixedSet) -> Floats:
        """(rounds x dimensions,), the best of the members; 0 of nobody."""
        best: Floats = self.values[:, list(members)].max(axis=1, initial=0.0)
        return best

    def with_each(self, members: FixedSet) -> Floats:
        """(K,), the value of a set with each expert added."""
        best = self.best_of(members)
        total: Floats = self.weights @ np.maximum(best[:, None], self.values)
        return total

    def cost(self, members: FixedSet) -> Floats:
        """(d,), in units."""
        cost: Floats = self.rows[:, list(members)].sum(axis=1)
        return cost

    def kept(self, costs: Floats) -> Bools:
        """Which of the costs (d, ...) keep all limits."""
        shape = (-1, *[1] * (costs.ndim - 1))
        over = np.where(self.upper, 1, -1).reshape(shape) * (costs - self.bounds.reshape(shape))
        return np.asarray((over <= SET_COST_SLACK).all(axis=0))

    def affordable(self, costs: Floats) -> Bools:
        """Which of the costs (d, ...) keep the upper limits, as all that can grow into a set do."""
        return self.within_upper().kept(costs[self.upper])

    def greedy(self, start: FixedSet) -> FixedSet:
        """From a start, whoever adds most to it of those that can be afforded, up to M."""
        members = start
        while len(members) < self.draws:
            gain = self.with_each(members) - self.value(members)
            free = self.affordable(self.cost(members)[:, None] + self.rows)
            free[list(members)] = False
            i = int(np.argmax(np.where(free, gain, -np.inf)))
            if not free[i] or (gain[i] <= 0.0 and members and self.kept(self.cost(members))):
                break
            members = (*members, i)
        return members

    def swapped(self, members: FixedSet) -> FixedSet:
        """One expert for another, or one more, as long as that makes a better set."""
        while True:
            better = max(self.neighbours(members), key=self.merit, default=members)
            if self.merit(better) <= self.merit(members):
                return tuple(sorted(members))
            members = better

    def neighbours(self, members: FixedSet) -> Iterator[FixedSet]:
        """Of each way to make room, the best set within the limits."""
        rooms = [tuple(i for i in members if i != out) for out in members]
        for rest in rooms if len(members) == self.draws else [members, *rooms]:
            fits = self.kept(self.cost(rest)[:, None] + self.rows)
            fits[list(rest)] = False
            if fits.any():
                value = np.where(fits, self.with_each(rest), -np.inf)
                yield (*rest, int(np.argmax(value)))

    def branched(self, best: FixedSet) -> tuple[FixedSet, bool]:
        """The best of all sets and True, or if that is too much WORK the best so far and False.

        A set is grown if its value and the largest gains that it has room for exceed the best:
        gains only shrink when a set grows.
        """
        allowed, value = self.merit(best)
        top, left = value if allowed else -np.inf, MAX_BRANCHING_WORK // self.values.size
        sets: list[tuple[FixedSet, list[int]]] = [((), np.argsort(-self.alone()).tolist())]
        while sets:
            if left == 0:
                return best, False
            members, rest = sets.pop()
            left -= 1
            value, costs = self.value(members), self.cost(members)[:, None] + self.rows
            grown, kept, free = self.with_each(members), self.kept(costs), self.affordable(costs)
            rest = [i for i in rest if free[i]]
            for i in rest:
                if kept[i] and grown[i] > top:
                    best, top = tuple(sorted((*members, i))), float(grown[i])
            room = self.draws - len(members)
            if room > 1 and value + np.sort(grown[rest] - value)[-room:].sum() > top:
                more = [((*members, i), rest[n + 1 :]) for n, i in enumerate(rest)]
                sets.extend(reversed(more))
        return best, True
