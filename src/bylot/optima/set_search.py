"""Search for the best set of experts: by enumeration, or by greedy search, swaps and bounds.

Owns f(A) - charge(A) over sets A of a context, under linear limits on A if there are any. Mixtures
charge experts by the multipliers of the limits; the best fixed set, what asking the same panel in
every request could earn, has limits and no charges.
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, LinearConstraint, milp

from bylot.numerics import set_gains
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.optima.objective import ValueStack, stack_values
from bylot.problem import Problem

MAX_LISTED_SETS = 200_000  # more sets of a context are searched and not listed,
MAX_LISTING_WORK = 10**9  # as they are if listing takes more operations, a second or two
MAX_EXPANDED_SETS = 20_000  # examined by branch and bound for one pricing problem, some seconds
MAX_BRANCHING_WORK = 10**9  # operations of branch and bound for a fixed set, some seconds
SETS_PER_ITERATION = 50  # of one pricing problem: one is enough, more save linear programs
SUBGRADIENT_STEPS = 400  # of the descent to an upper bound
SET_COST_SLACK = 1e-9  # violation that counts as none, in units of the largest cost

Members = tuple[int, ...]
SearchNode = tuple[float, Members, Ints, Floats, Floats]
"""Of a branch: minus its bound, members, the experts that can join, what these can add, and what
that is added to, for each of two bounds."""


class SetValues(NamedTuple):
    """f(A) = sum_r max_{i in A} worth[i, r] over sets of fewest to most experts, worth >= 0."""

    worth: Floats  # (K, rounds x dimensions), weights of rounds included
    fewest: int
    most: int

    @classmethod
    def of(cls, part: ValueStack, problem: Problem, fewer: bool) -> "SetValues":
        """The sets of `min_draws` to M experts; if no minimum is declared, of M or, with fewer,
        of 1 to M.
        """
        T, N, K = part.values.shape
        worth = (part.values * part.weights[:, None, None]).reshape(T * N, K)
        fewest = 1 if fewer and problem.min_draws is None else problem.min_members
        return cls(np.ascontiguousarray(worth.T), fewest, min(problem.draws, K))

    def pricing_problem(self) -> "ListedSets | SetSearch":
        """All sets in a list, if there are not too many; else a search."""
        K, rows = self.worth.shape
        count = sum(math.comb(K, size) for size in range(self.fewest, self.most + 1))
        few = count <= MAX_LISTED_SETS and count * rows <= MAX_LISTING_WORK
        return ListedSets.of(self) if few else SetSearch.of(self)

    def best_of(self, members: Members) -> Floats:
        """(rows,), the largest worth among the members; 0 for the empty set."""
        return np.asarray(self.worth[list(members)].max(axis=0, initial=0.0))

    def value(self, members: Members) -> float:
        return float(self.best_of(members).sum())

    def columns(self, found: Sequence[Members]) -> tuple[Ints, Floats]:
        """Sets as rows of `most` positions, filled up with K; and their f."""
        K = len(self.worth)
        rows = [[*sorted(members), *[K] * (self.most - len(members))] for members in found]
        return np.array(rows), np.array([self.value(members) for members in found])


def sum_members(rows: Floats, members: Ints) -> Floats:
    """Return the sums of rows (..., K) over the members of sets, where K stands for no expert.

    >>> sum_members(np.array([1.0, 2.0]), np.array([[0, 2], [0, 1]]))
    array([1., 3.])
    """
    padded = np.concatenate([rows, np.zeros((*rows.shape[:-1], 1))], axis=-1)
    return np.asarray(padded[..., members].sum(axis=-1))


class PricingProof(NamedTuple):
    """A set (a row), its f, and an upper bound on f(A) - charge(A) of all sets."""

    members: Ints
    f: Floats
    ceiling: float


class ListedSets(NamedTuple):
    """All sets, and the value of each."""

    members: Ints  # (S, most)
    f: Floats  # (S,)

    @classmethod
    def of(cls, sets: SetValues) -> "ListedSets":
        """Enumerate: sets with the same first members share their maximum.

        >>> pair = SetValues(np.array([[1.0, 0.0], [0.0, 2.0]]), 1, 2)
        >>> ListedSets.of(pair).members.tolist(), ListedSets.of(pair).f.tolist()
        ([[0, 2], [1, 2], [0, 1]], [1.0, 2.0, 3.0])
        """
        K = len(sets.worth)
        members, f = [], []
        for size in range(sets.fewest, sets.most + 1):
            for first in itertools.combinations(range(K), size - 1):
                last = np.arange(first[-1] + 1 if first else 0, K)
                if last.size:
                    rows = np.full((last.size, sets.most), K)
                    rows[:, : size - 1], rows[:, size - 1] = first, last
                    members.append(rows)
                    f.append(np.maximum(sets.best_of(first), sets.worth[last]).sum(axis=1))
        return cls(np.concatenate(members), np.concatenate(f))

    def merits(self, charges: Floats) -> Floats:
        return np.asarray(self.f - sum_members(charges, self.members))

    def find_sets(self, charges: Floats, used: Ints) -> tuple[Ints, Floats]:
        """The sets of largest f(A) - charge(A), and their f."""
        merits, few = self.merits(charges), min(SETS_PER_ITERATION, self.f.size)
        best = np.argpartition(-merits, few - 1)[:few]
        return self.members[best], self.f[best]

    def prove(self, charges: Floats) -> PricingProof:
        merits = self.merits(charges)
        best = int(merits.argmax())
        return PricingProof(self.members[[best]], self.f[[best]], float(merits[best]))


class SetSearch(NamedTuple):
    """Maximise f(A) - charge(A) over sets with rows @ A at most or at least the bounds.

    By greedy search and swaps, with an upper bound by branch and bound.
    """

    sets: SetValues
    charges: Floats  # (K,)
    rows: Floats  # (d, K) of 0 or more, in units of the largest cost
    bounds: Floats
    upper: Bools
    ranked: Floats  # (rows, K) worths in falling order
    ranking: Ints  # (rows, K) whose they are

    @classmethod
    def of(cls, sets: SetValues, problem: Problem | None = None) -> "SetSearch":
        """A search without charges, under the limits of a problem or none."""
        K, upper = len(sets.worth), np.zeros(0, np.bool_)
        rows, bounds = np.zeros((0, K)), np.zeros(0)
        if problem is not None:
            rows, bounds = problem.rows / problem.peaks[:, None], problem.bounds / problem.peaks
            upper = problem.signs < 0
        ranking = np.argsort(-sets.worth.T, axis=1, kind="stable")
        ranked = np.take_along_axis(sets.worth.T, ranking, axis=1)
        return cls(sets, np.zeros(K), rows, bounds, upper, ranked, ranking)

    def find_sets(self, charges: Floats, used: Ints) -> tuple[Ints, Floats]:
        """Where swaps lead from a greedy set and from each of those used; and their f."""
        search, K = self._replace(charges=charges), len(self.charges)
        starts = [search.greedy(()), *(tuple(row[row < K].tolist()) for row in used)]
        return self.sets.columns(sorted({search.improve(start) for start in starts}))

    def prove(self, charges: Floats) -> PricingProof:
        """The best set that branch and bound finds, with its bound."""
        search = self._replace(charges=charges)
        best, ceiling = search.branch(search.improve(search.greedy(())), MAX_EXPANDED_SETS)
        return PricingProof(*self.sets.columns([best]), ceiling)

    def value(self, members: Members) -> float:
        return self.sets.value(members) - float(self.charges[list(members)].sum())

    def merit(self, members: Members) -> tuple[bool, float]:
        """Sort key: sets within the limits first, then by value."""
        return bool(self.is_kept(self.cost(members))), self.value(members)

    def cost(self, members: Members) -> Floats:
        """(d,), the cost of a set."""
        return np.asarray(self.rows[:, list(members)].sum(axis=1))

    def is_kept(self, costs: Floats, lower: bool = True) -> Bools:
        """Which costs (d, ...) keep all limits, or the upper, as all parts of a feasible set do."""
        over = np.where(self.upper, 1, -1) * (costs.T - self.bounds)
        return np.asarray((over <= SET_COST_SLACK)[..., self.upper | lower].all(axis=-1))

    def gains(self, members: Members) -> Floats:
        """(K,), what each expert adds to f(A) - charge(A); -inf for members."""
        best = self.sets.best_of(members)
        gains: Floats = set_gains.compute_excess(self.ranked, self.ranking, best) - self.charges
        gains[list(members)] = -np.inf
        return gains

    def greedy(self, members: Members) -> Members:
        """Add the expert of largest affordable gain while the set must grow or improves."""
        while len(members) < self.sets.most:
            cost = self.cost(members)
            free = self.is_kept(cost[:, None] + self.rows, lower=False)
            gains = np.where(free, self.gains(members), -np.inf)
            enough = len(members) >= self.sets.fewest and self.is_kept(cost)
            if gains.max() == -np.inf or (gains.max() <= 0.0 and enough):
                break
            members = (*members, int(gains.argmax()))
        return members

    def improve(self, members: Members) -> Members:
        """Swap, add or remove one expert as long as that makes a better set."""
        members = tuple(sorted(members))
        while True:
            kept, value = merit = self.merit(members)
            better, other = max(self.neighbours(members, value), default=(merit, members))
            if better <= (kept, value + 1e-12 * abs(value)):
                return members
            members = other

    def neighbours(
        self, members: Members, value: float
    ) -> Iterator[tuple[tuple[bool, float], Members]]:
        """The best addition to the set and to each of its subsets; and those subsets. Each with its
        merit, given the value of the set.
        """
        full, limited = len(members) == self.sets.most, bool(len(self.rows))
        every = self.exchange_gains(members)[: len(members) + (not full)] - self.charges
        for n, gains in enumerate(every):
            rest = members[:n] + members[n + 1 :]  # without the n-th, or all
            left = value - float(gains[members[n]]) if n < len(members) else value
            if limited:
                gains[~self.is_kept(self.cost(rest)[:, None] + self.rows)] = -np.inf
            gains[list(rest)] = -np.inf
            i = int(gains.argmax())
            if gains[i] > -np.inf:
                yield (True, left + float(gains[i])), tuple(sorted((*rest, i)))
            if n < len(members) > self.sets.fewest:
                yield (not limited or bool(self.is_kept(self.cost(rest))), left), rest

    def exchange_gains(self, members: Members) -> Floats:
        """What each expert adds to the members without the n-th, and to all, charges apart."""
        return set_gains.compute_exchange_gains(
            self.ranked, self.ranking, self.sets.worth, np.array(members, np.int64)
        )

    def branch(self, best: Members, limit: int) -> tuple[Members, float]:
        """Branch and bound from a first set: the best set found, and an upper bound on all sets.

        Sets grow one by one, those of largest bound first; after `limit` of them the bounds of the
        others count.
        """
        kept, value = self.merit(best)
        top, u = value if kept else -np.inf, self.find_level(best)
        order = np.argsort(-self.gains(()), kind="stable")
        heap = [self.bound((), order, u)]
        while heap and -heap[0][0] > top and limit > 0:
            _, members, rest, over, bases = heapq.heappop(heap)
            costs = self.cost(members)[:, None] + self.rows
            free = self.is_kept(costs, lower=False)[rest]
            rest = rest[free]
            over = over[:, free]
            limit -= len(rest)
            values, fits = self.value(members) + self.gains(members), self.is_kept(costs)
            room = self.sets.most - len(members) - 1
            others = np.maximum(-np.sort(-over, axis=1)[:, :room], 0.0).sum(axis=1)
            bounds = (bases[:, None] + over + others[:, None]).min(axis=0)
            for n, i in enumerate(rest.tolist()):
                grown = (*members, i)
                if len(grown) >= self.sets.fewest and fits[i] and values[i] > top:
                    best, top = grown, float(values[i])
                if room and bounds[n] > top:
                    node = self.bound(grown, rest[n + 1 :], u)
                    if -node[0] > top:
                        heapq.heappush(heap, node)
        return best, max(top, -heap[0][0]) if heap else top

    def bound(self, members: Members, rest: Ints, u: Floats) -> SearchNode:
        """The node of sets B of these members and others of the rest, with an upper bound on

        f(B) - charge(B) <= sum_r v_r - charge(A) + sum_{i in B - A} over_i,
        over_i = sum_r (w_ir - v_r)^+ - charge_i

        for any v that is at least the best of the members, as max_i w_i <= v + sum_i (w_i - v)^+;
        the smaller of two, with that best itself and with its maximum with u.
        """
        room = self.sets.most - len(members)
        need = self.sets.fewest - len(members)
        best = self.sets.best_of(members)
        levels = np.stack([best, np.maximum(best, u)])
        excess = [set_gains.compute_excess(self.ranked, self.ranking, v) for v in levels]
        over = np.stack(excess)[:, rest] - self.charges[rest]
        bases = levels.sum(axis=1) - self.charges[list(members)].sum()
        chosen = [choose_largest(net, need, room) for net in over]
        tops = [base + net[top].sum() for base, net, top in zip(bases, over, chosen, strict=True)]
        least = min(tops) if need <= len(rest) else -np.inf
        return -float(least), members, rest, over, bases

    def find_level(self, best: Members) -> Floats:
        """The v >= 0 that minimises `bound` for the empty set, by subgradient steps."""
        v, target = self.sets.best_of(best), self.value(best)
        least, lowest, pace, since = np.inf, v, 1.0, 0
        for _ in range(SUBGRADIENT_STEPS):
            net = set_gains.compute_excess(self.ranked, self.ranking, v) - self.charges
            chosen = choose_largest(net, self.sets.fewest, self.sets.most)
            bound = float(v.sum() + net[chosen].sum())
            since += 1
            if bound < least:
                least, lowest, since = bound, v, 0
            slope = 1.0 - (self.sets.worth[chosen] > v).sum(axis=0)
            steep = float(slope @ slope)
            if steep == 0.0 or bound <= target:
                break
            if since == 20:  # oscillation: shorter steps
                pace, since = pace / 2, 0
            v = np.maximum(v - pace * (bound - target) / steep * slope, 0.0)
        return lowest


def choose_largest(net: Floats, fewest: int, most: int) -> Ints:
    """Positions of the largest sum of `fewest` to `most` entries.

    >>> choose_largest(np.array([1.0, -1.0, -2.0, 3.0]), 1, 3)
    array([3, 0])
    """
    order = np.argsort(-net, kind="stable")[:most]
    return np.asarray(order[(net[order] > 0.0) | (np.arange(len(order)) < fewest)])


@dataclass(frozen=True, eq=False)
class BestSet:
    """The same panel in every request: its members, reward and cost.

    Attributes
    ----------
    members
        Names in the order of the problem; empty if no set keeps the upper limits.
    value
        Mean over rounds of r_t(members).
    cost
        (d,) cost of the set under each limit, in every request.
    feasible
        Whether the set keeps all limits. If not, no fixed set does, though a mixture of panels
        may. This is then the best set under the upper limits alone, and no benchmark.
    proved
        Whether no set is better. If False, it is the best that greedy search and swaps found.
    """

    members: tuple[str, ...]
    value: float
    cost: Floats
    feasible: bool
    proved: bool


def best_set(problem: Problem, values: ArrayLike | ValueStack) -> BestSet:
    """Find the set A of at most M experts that maximises mean_t r_t(A) within the limits.

    Parameters
    ----------
    problem, values
        As for `optimum`.

    Returns
    -------
    BestSet
        The set; `.feasible` and `.proved` say what is known about it.

    Examples
    --------
    >>> from bylot.problem import at_most
    >>> trio = Problem(["a", "b", "c"], {"usd": [1, 1, 2]}, [at_most("usd", 2)], draws=2)
    >>> best = best_set(trio, [[0.5, 0.0, 0.9], [0.0, 0.5, 0.0]])
    >>> best.members, best.value, best.feasible
    (('a', 'b'), 1.0, True)
    """
    sets = SetValues.of(stack_values(problem, values), problem, fewer=True)
    search = SetSearch.of(sets, problem)
    rows, bounds, upper = search.rows, search.bounds, search.upper
    found, feasible = search_fixed_set(search), True
    if found is None:
        search = search._replace(rows=rows[upper], bounds=bounds[upper], upper=upper[upper])
        found, feasible = search_fixed_set(search) or ((), True), False
    members, proved = found
    chosen = sorted(members)
    names, cost = tuple(problem.experts[i] for i in chosen), problem.rows[:, chosen].sum(axis=1)
    return BestSet(names, sets.value(members), cost, feasible, proved)


def search_fixed_set(search: SetSearch) -> tuple[Members, bool] | None:
    """The best set within the limits and whether that is proved; None if there is none."""
    seed = find_feasible_set(search)
    if seed is None:
        return None
    first = max((search.improve(search.greedy(start)) for start in ((), seed)), key=search.merit)
    best, ceiling = search.branch(first, MAX_BRANCHING_WORK // search.sets.worth.size)
    kept, value = search.merit(best)
    return (best, ceiling <= value + 1e-12 * abs(value)) if kept else None


def find_feasible_set(search: SetSearch) -> Members | None:
    """A set within all limits with a large sum of single rewards; None if there is none."""
    K = len(search.sets.worth)
    low = np.where(search.upper, -np.inf, search.bounds - SET_COST_SLACK)
    high = np.where(search.upper, search.bounds + SET_COST_SLACK, np.inf)
    limits = [LinearConstraint(np.ones((1, K)), search.sets.fewest, search.sets.most)]
    if len(search.rows):
        limits.append(LinearConstraint(search.rows, low, high))
    alone = -search.sets.worth.sum(axis=1)
    best = milp(alone, constraints=limits, integrality=np.ones(K, np.int64), bounds=Bounds(0, 1))
    return None if best.x is None else tuple(np.flatnonzero(best.x > 0.5).tolist())
