"""Timeline: the history of a stored router in at most 256 bins."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from bylot.router.status import TimelinePoints

TIMELINE_BINS = 256


class Timeline(Struct):
    """Sums over 2^power decisions each, decision t in bin t >> power; rewards and actual costs
    belong to the bin of their decision, whenever they arrive.

    When all bins are full, neighbours are merged, and each has twice as many decisions.
    """

    spent: dict[str, list[float]]  # settled cost, by name
    power: int = 0
    started: list[int] = []  # microseconds since 1970 of the first decision of each bin
    rewards: list[int] = []
    total: list[float] = []  # of these rewards
    unused: list[int] = []  # decisions that were cancelled

    def add_decision(self, t: int, at: int, spend: Mapping[str, float]) -> None:
        """One more decision, of this stated cost."""
        if t >> self.power == TIMELINE_BINS:
            self.merge_bins()
        if t >> self.power == len(self.started):
            self.started.append(at)
            self.rewards.append(0)
            self.total.append(0.0)
            self.unused.append(0)
            for sums in self.spent.values():
                sums.append(0.0)
        self.add_cost(t, spend)

    def add_reward(self, t: int, value: float) -> None:
        """One more reward of decision t."""
        self.rewards[t >> self.power] += 1
        self.total[t >> self.power] += value

    def add_cost(self, t: int, costs: Mapping[str, float]) -> None:
        """Decision t costs so much more."""
        for name, cost in costs.items():
            self.spent[name][t >> self.power] += cost

    def cancel_decision(self, t: int, spend: Mapping[str, float]) -> None:
        """Decision t, of this stated cost, was never used."""
        self.add_cost(t, {name: -cost for name, cost in spend.items()})
        self.unused[t >> self.power] += 1

    def merge_bins(self) -> None:
        """Merge pairs of neighbours."""
        self.power += 1
        self.started = self.started[::2]
        self.rewards, self.total = sum_neighbours(self.rewards), sum_neighbours(self.total)
        self.unused = sum_neighbours(self.unused)
        self.spent = {name: sum_neighbours(sums) for name, sums in self.spent.items()}

    def rename_costs(self, costs: Iterable[str]) -> None:
        """Continue with these costs; nothing was spent of new ones."""
        none = [0.0] * len(self.started)
        self.spent = {name: self.spent.get(name, none.copy()) for name in costs}

    def points(self, decisions: int) -> TimelinePoints:
        """Copies of the bins of so many decisions in all, without the cancelled ones."""
        width = 1 << self.power
        sizes = [min(width, decisions - i * width) - n for i, n in enumerate(self.unused)]
        return TimelinePoints(
            started=self.started.copy(),
            decisions=sizes,
            rewards=self.rewards.copy(),
            total=self.total.copy(),
            spent={name: sums.copy() for name, sums in self.spent.items()},
        )


def skip_decisions(costs: Iterable[str], decisions: int, at: int) -> Timeline:
    """A timeline that continues after so many decisions of which it knows nothing.

    >>> skip_decisions(["usd"], 300, 0).points(300).decisions[:3]
    [0, 0, 0]
    """
    power = max(0, decisions - 1).bit_length() - TIMELINE_BINS.bit_length() + 1
    power = max(0, power)
    starts = range(0, decisions, 1 << power)
    return Timeline(
        {name: [0.0] * len(starts) for name in costs},
        power,
        started=[at] * len(starts),
        rewards=[0] * len(starts),
        total=[0.0] * len(starts),
        unused=[min(1 << power, decisions - start) for start in starts],
    )


def sum_neighbours(column: list[Any]) -> list[Any]:
    """Sums of pairs.

    >>> sum_neighbours([1, 2, 3, 4])
    [3, 7]
    """
    return [a + b for a, b in zip(column[::2], column[1::2], strict=True)]
