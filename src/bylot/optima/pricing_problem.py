"""Panels to mix: which sets of experts are worth most at given charges, and a ceiling on all.

Owns f(A) - charge(A) over the sets A of a context; how limits charge for experts is left to
`mixing`. Sets are rows of places, filled up with K, which is nobody and free.
"""

import heapq
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from bylot.numerics.jit import Floats, Ints
from bylot.optima.objective import ValueStack

MAX_LISTED_SETS = 200_000
"""So many sets of a context are listed, more are searched;"""

MAX_LISTING_WORK = 10**9
"""and so many values may be looked at to list them, a second or two."""

MAX_EXPANDED_SETS = 20_000
"""Sets that branch and bound looks at before it leaves the rest to their bounds, some seconds."""

SETS_PER_ITERATION = 50
"""Sets that are handed out at a time: one is enough to go on, more save linear programs."""

SUBGRADIENT_STEPS = 400
"""Of the descent to a ceiling."""

Members = tuple[int, ...]


class PricingProof(NamedTuple):
    """A set (a row) and its f, and what f(A) - charge(A) of no set exceeds."""

    members: Ints
    f: Floats
    ceiling: float


class PricingProblem(Protocol):
    """The sets of one context."""

    def pick(self, charges: Floats, used: Ints) -> tuple[Ints, Floats]:
        """Sets of large f(A) - charge(A), and their f; `used` are some to start from."""
        ...

    def proof(self, charges: Floats) -> PricingProof:
        """The best set that a search finds which minds what it leaves out."""
        ...


class SetValues(NamedTuple):
    """f(A) = sum_r max_{i in A} worth[i, r] over sets of fewest to most experts, worth >= 0."""

    worth: Floats  # (K, rounds x dimensions), weights of rounds included
    fewest: int
    most: int

    @classmethod
    def of(cls, part: ValueStack, draws: int, fewer: bool) -> "SetValues":
        """The sets of min(M, K) experts or, with fewer, of 1 to that many."""
        T, N, K = part.values.shape
        worth = (part.values * part.weights[:, None, None]).reshape(T * N, K)
        most = min(draws, K)
        return cls(np.ascontiguousarray(worth.T), 1 if fewer else most, most)

    @property
    def sizes(self) -> range:
        """How many members a set may have."""
        return range(self.fewest, self.most + 1)

    def panels(self) -> PricingProblem:
        """All sets in a list, if there are not too many."""
        K, rows = self.worth.shape
        count = sum(math.comb(K, size) for size in self.sizes)
        return (
            ListedSets.of(self)
            if count <= MAX_LISTED_SETS and count * rows <= MAX_LISTING_WORK
            else SearchedSets(self)
        )

    def best_of(self, members: Members) -> Floats:
        """(rows,), the best of the members; 0 of nobody."""
        best: Floats = self.worth[list(members)].max(axis=0, initial=0.0)
        return best

    def f(self, members: Members) -> float:
        """sum_r max_{i in A} worth[i, r]."""
        return float(self.best_of(members).sum())

    def row(self, members: Members) -> list[int]:
        """A set as a row."""
        return [*sorted(members), *[len(self.worth)] * (self.most - len(members))]


class ListedSets(NamedTuple):
    """All sets, and what each is worth."""

    members: Ints  # (S, most)
    f: Floats  # (S,)

    @classmethod
    def of(cls, cover: SetValues) -> "ListedSets":
        """Set by set: all that begin alike share the best of what they begin with.

        >>> pair = SetValues(np.array([[1.0, 0.0], [0.0, 2.0]]), 1, 2)
        >>> ListedSets.of(pair).members.tolist(), ListedSets.of(pair).f.tolist()
        ([[0, 2], [1, 2], [0, 1]], [1.0, 2.0, 3.0])
        """
        K = len(cover.worth)
        members, f = [], []
        for size in cover.sizes:
            for first in itertools.combinations(range(K), size - 1):
                last = np.arange(first[-1] + 1 if first else 0, K)
                if last.size:
                    rows = np.full((last.size, cover.most), K)
                    rows[:, : size - 1], rows[:, size - 1] = first, last
                    members.append(rows)
                    f.append(np.maximum(cover.best_of(first), cover.worth[last]).sum(axis=1))
        return cls(np.concatenate(members), np.concatenate(f))

    def merits(self, charges: Floats) -> Floats:
        """(S,), f(A) - charge(A)."""
        merits: Floats = self.f - np.append(charges, 0.0)[self.members].sum(axis=1)
        return merits

    def pick(self, charges: Floats, used: Ints) -> tuple[Ints, Floats]:
        """The best there are."""
        merits, few = self.merits(charges), min(SETS_PER_ITERATION, self.f.size)
        best = np.argpartition(-merits, few - 1)[:few]
        return self.members[best], self.f[best]

    def proof(self, charges: Floats) -> PricingProof:
        """The best there is."""
        merits = self.merits(charges)
        best = int(merits.argmax())
        return PricingProof(self.members[[best]], self.f[[best]], float(merits[best]))


class SearchedSets(NamedTuple):
    """Sets found by greedy search and swaps, under a ceiling proved by branch and bound."""

    cover: SetValues

    def pick(self, charges: Floats, used: Ints) -> tuple[Ints, Floats]:
        """Where greedy search leads, and where swaps lead from each of those used."""
        K = len(self.cover.worth)
        starts = [self.greedy(charges), *(tuple(row[row < K].tolist()) for row in used)]
        found = sorted({self.swapped(start, charges) for start in starts})
        rows = [self.cover.row(members) for members in found]
        return np.array(rows), np.array([self.cover.f(members) for members in found])

    def merit(self, members: Members, charges: Floats) -> float:
        """f(A) - charge(A)."""
        return self.cover.f(members) - float(charges[list(members)].sum())

    def gains(self, members: Members, charges: Floats) -> Floats:
        """(K,), what each expert adds to the merit of a set; nothing to be had from its own."""
        best = self.cover.best_of(members)
        gains: Floats = np.maximum(self.cover.worth - best, 0.0).sum(axis=1) - charges
        gains[list(members)] = -np.inf
        return gains

    def greedy(self, charges: Floats) -> Members:
        """Whoever adds most, as long as a set has to grow or is the better for it."""
        members: Members = ()
        while len(members) < self.cover.most:
            gains = self.gains(members, charges)
            if len(members) >= self.cover.fewest and gains.max() <= 0.0:
                break
            members = (*members, int(gains.argmax()))
        return members

    def swapped(self, members: Members, charges: Floats) -> Members:
        """One expert for another, one more or one less, as long as that makes a better set."""
        merit = self.merit(members, charges)
        while True:
            others = [(self.merit(one, charges), one) for one in self.neighbours(members, charges)]
            better, other = max(others, default=(merit, members))
            if better <= merit + 1e-12 * abs(merit):
                return tuple(sorted(members))
            merit, members = better, other

    def neighbours(self, members: Members, charges: Floats) -> Iterator[Members]:
        """Of each way to make room, the best."""
        rooms = [tuple(i for i in members if i != out) for out in members]
        for rest in rooms if len(members) == self.cover.most else [members, *rooms]:
            gains = self.gains(rest, charges)
            if gains.max() > -np.inf:
                yield (*rest, int(gains.argmax()))
        if len(members) > self.cover.fewest:
            yield from rooms

    def proof(self, charges: Floats) -> PricingProof:
        """Branch and bound: sets grow one by one, those first that may become best; what is not
        grown after GROWN of them has its bound.
        """
        best = self.swapped(self.greedy(charges), charges)
        top, u = self.merit(best, charges), self.level(best, charges)
        order = np.argsort(-self.gains((), charges), kind="stable")
        heap = [(-self.above((), order, u, charges), (), order)]
        left = MAX_EXPANDED_SETS
        while heap and -heap[0][0] > top and left > 0:
            _, members, rest = heapq.heappop(heap)
            left -= len(rest)
            for n, i in enumerate(rest.tolist()):
                grown = (*members, i)
                if len(grown) >= self.cover.fewest and self.merit(grown, charges) > top:
                    best, top = grown, self.merit(grown, charges)
                bound = self.above(grown, rest[n + 1 :], u, charges)
                if bound > top:
                    heapq.heappush(heap, (-bound, grown, rest[n + 1 :]))
        ceiling = max(top, -heap[0][0]) if heap else top
        return PricingProof(
            np.array([self.cover.row(best)]), np.array([self.cover.f(best)]), ceiling
        )

    def above(self, members: Members, rest: Ints, u: Floats, charges: Floats) -> float:
        """What f(B) - charge(B) of no B exceeds that has these members and others of the rest:

        sum_r v_r + max_B sum_{i in B - A} (sum_r (worth[i, r] - v_r)^+ - charge_i) - charge(A)

        for any v that is at least the best of the members, as max_i w_i <= v + sum_i (w_i - v)^+;
        the less of two, with that best itself and with it lifted to u.
        """
        room, need = self.cover.most - len(members), self.cover.fewest - len(members)
        if need > len(rest):
            return -np.inf
        least, best = np.inf, self.cover.best_of(members)
        for v in (best, np.maximum(best, u)):
            over = np.maximum(self.cover.worth[rest] - v, 0.0).sum(axis=1) - charges[rest]
            least = min(least, float(v.sum() + over[choose_largest(over, need, room)].sum()))
        return least - float(charges[list(members)].sum())

    def level(self, best: Members, charges: Floats) -> Floats:
        """The v >= 0 for which `above` is least of nobody, by steps along its subgradients."""
        v, target = self.cover.best_of(best), self.merit(best, charges)
        least, lowest, pace, since = np.inf, v, 1.0, 0
        for _ in range(SUBGRADIENT_STEPS):
            over = self.cover.worth - v
            net = np.maximum(over, 0.0).sum(axis=1) - charges
            chosen = choose_largest(net, self.cover.fewest, self.cover.most)
            bound = float(v.sum() + net[chosen].sum())
            since += 1
            if bound < least:
                least, lowest, since = bound, v, 0
            slope = 1.0 - (over[chosen] > 0.0).sum(axis=0)
            steep = float(slope @ slope)
            if steep == 0.0 or bound <= target:
                break
            if since == 20:  # to and fro: shorter steps
                pace, since = pace / 2, 0
            v = np.maximum(v - pace * (bound - target) / steep * slope, 0.0)
        return lowest


def choose_largest(net: Floats, fewest: int, most: int) -> Ints:
    """Places of the largest sum: so many at least, so many at most.

    >>> choose_largest(np.array([1.0, -1.0, -2.0, 3.0]), 1, 3)
    array([3, 0])
    """
    order = np.argsort(-net, kind="stable")[:most]
    chosen: Ints = order[(net[order] > 0.0) | (np.arange(len(order)) < fewest)]
    return chosen
