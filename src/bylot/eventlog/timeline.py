"""Timeline: the history of a stored router in at most 256 bins, and its RouterStatus."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, structs

from bylot.policies.base import compute_distribution
from bylot.router.status import ContextDistribution, RouterStatus, TimelinePoints

if TYPE_CHECKING:
    from bylot.eventlog.aggregate import RouterAggregate

TIMELINE_BINS = 256
MAX_STATUS_CONTEXTS = 12  # contexts whose distributions a status contains, the most visited


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

    def points(self, decisions: int) -> TimelinePoints:
        """The bins of so many decisions in all, without the cancelled ones; copies, as they are
        read while the timeline grows.
        """
        width = 1 << self.power
        sizes = [min(width, decisions - i * width) - n for i, n in enumerate(self.unused)]
        return TimelinePoints(
            started=self.begun.copy(),
            decisions=sizes,
            rewards=self.rewards.copy(),
            total=self.total.copy(),
            spent={name: sums.copy() for name, sums in self.spent.items()},
        )


def make_empty_timeline(costs: Iterable[str]) -> Timeline:
    """Nothing happened yet."""
    return Timeline(0, [], [], [], {name: [] for name in costs}, [])


def sum_neighbours(column: list[Any]) -> list[Any]:
    """Sums of neighbours.

    >>> sum_neighbours([1, 2, 3, 4])
    [3, 7]
    """
    return [a + b for a, b in zip(column[::2], column[1::2], strict=True)]


def build_router_status(aggregate: "RouterAggregate") -> RouterStatus:
    """The status of the router, with what only its log knows. Limits are judged by settled cost."""
    status = aggregate.router.standing(aggregate.awake)
    deferred = sum(one.deferred for _, one in aggregate.open)
    return structs.replace(
        status,
        waiting=len(aggregate.open) - deferred,
        deferred=deferred,
        costs={
            name: structs.replace(cost, stated=aggregate.stated[name])
            for name, cost in status.costs.items()
        },
        counters=structs.replace(aggregate.counters),
        distributions=list_context_distributions(aggregate),
        timeline=aggregate.timeline.points(status.decisions),
    )


def list_context_distributions(aggregate: "RouterAggregate") -> tuple[ContextDistribution, ...]:
    """The distributions over active experts in the contexts visited most."""
    router = aggregate.router
    visits, labels = router.visits(), list(router.contexts)
    most = np.argsort(-visits, kind="stable")[:MAX_STATUS_CONTEXTS].tolist()
    return tuple(
        ContextDistribution(
            labels[x],
            int(visits[x]),
            compute_distribution(router.rule, router.state, x, aggregate.awake).tolist(),
        )
        for x in most
    )
