"""The course of a router: its whole history in at most 256 points, for charts."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

TIMELINE_BINS = 256


class Timeline(Struct):
    """Sums over 2^power decisions each, decision t in bin t >> power; rewards and real costs are
    counted where their decision was made, whenever they are told.

    When all bins are full, neighbours are merged, and each has twice as many decisions.
    """

    power: int
    begun: list[int]  # microseconds since 1970 of the first decision of each bin
    rewards: list[int]
    total: list[float]  # of these rewards
    spent: dict[str, list[float]]  # settled cost, by name
    unused: list[int]  # decisions that were cancelled

    def decided(self, t: int, at: int, spend: Mapping[str, float]) -> None:
        """One more decision, of this stated cost."""
        place = t >> self.power
        if place == TIMELINE_BINS:
            self.merge()
            place = t >> self.power
        if place == len(self.begun):
            self.begun.append(at)
            self.rewards.append(0)
            self.total.append(0.0)
            self.unused.append(0)
            for sums in self.spent.values():
                sums.append(0.0)
        for name, cost in spend.items():
            self.spent[name][place] += cost

    def rewarded(self, t: int, value: float) -> None:
        """One more reward of decision t."""
        self.rewards[t >> self.power] += 1
        self.total[t >> self.power] += value

    def settled(self, t: int, more: Mapping[str, float]) -> None:
        """Decision t has cost so much more than was booked."""
        for name, cost in more.items():
            self.spent[name][t >> self.power] += cost

    def cancelled(self, t: int, spend: Mapping[str, float]) -> None:
        """Decision t, of this stated cost, was never used."""
        self.settled(t, {name: -cost for name, cost in spend.items()})
        self.unused[t >> self.power] += 1

    def merge(self) -> None:
        """Two bins become one."""
        self.power += 1
        self.begun = self.begun[::2]
        self.rewards, self.total = sum_neighbours(self.rewards), sum_neighbours(self.total)
        self.unused = sum_neighbours(self.unused)
        self.spent = {name: sum_neighbours(sums) for name, sums in self.spent.items()}

    def rename(self, costs: Iterable[str]) -> None:
        """Go on with these costs: nothing was spent of new ones."""
        none = [0.0] * len(self.begun)
        self.spent = {name: self.spent.get(name, none.copy()) for name in costs}

    def points(self, decisions: int) -> dict[str, Any]:
        """Plain columns, with the decisions of each bin that were used, of so many in all; copies,
        as they are read while the course goes on.
        """
        width = 1 << self.power
        sizes = [min(width, decisions - i * width) - n for i, n in enumerate(self.unused)]
        return {
            "begun": self.begun.copy(),
            "decisions": sizes,
            "rewards": self.rewards.copy(),
            "total": self.total.copy(),
            "spent": {name: sums.copy() for name, sums in self.spent.items()},
        }


def make_empty_timeline(costs: Iterable[str]) -> Timeline:
    """Nothing happened yet."""
    return Timeline(0, [], [], [], {name: [] for name in costs}, [])


def sum_neighbours(column: list[Any]) -> list[Any]:
    """Sums of neighbours.

    >>> sum_neighbours([1, 2, 3, 4])
    [3, 7]
    """
    return [a + b for a, b in zip(column[::2], column[1::2], strict=True)]
