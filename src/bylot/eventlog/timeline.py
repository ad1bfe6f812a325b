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
    """Sums over 2^power decisions each, decision t in bin t >> power; rewards and actual costs
    belong to the bin of their decision, whenever they arrive.

    When all bins are full, neighbours are merged, and each has twice as many decisions.
    """

    power: int
    started: list[int]  # microseconds since 1970 of the first decision of each bin
    rewards: list[int]
    total: list[float]  # of these rewards
    spent: dict[str, list[float]]  # settled cost, by name
    unused: list[int]  # decisions that were cancelled

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
        """The bins of so many decisions in all, without the cancelled ones; copies, as they are
        read while the timeline grows.
        """
        width = 1 << self.power
        sizes = [min(width, decisions - i * width) - n for i, n in enumerate(self.unused)]
        return TimelinePoints(
            started=self.started.copy(),
            decisions=sizes,
            rewards=self.rewards.copy(),
            total=self.total.copy(),
            spent={name: sums.copy() for name, sums in self.spent.items()},
        )


def make_empty_timeline(costs: Iterable[str]) -> Timeline:
    """The timeline before the first decision."""
    return Timeline(0, [], [], [], {name: [] for name in costs}, [])


def sum_neighbours(column: list[Any]) -> list[Any]:
    """Sums of pairs.

    >>> sum_neighbours([1, 2, 3, 4])
    [3, 7]
    """
    return [a + b for a, b in zip(column[::2], column[1::2], strict=True)]


def build_router_status(aggregate: "RouterAggregate") -> RouterStatus:
    """The status of a stored router. Limits are judged by settled cost."""
    status = aggregate.core.status(aggregate.active)
    deferred = sum(one.is_deferred for _, one in aggregate.open)
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
    core = aggregate.core
    visits, labels = core.count_visits(), list(core.contexts)
    most = np.argsort(-visits, kind="stable")[:MAX_STATUS_CONTEXTS].tolist()
    return tuple(
        ContextDistribution(
            labels[x],
            int(visits[x]),
            compute_distribution(core.rule, core.state, x, aggregate.active).tolist(),
        )
        for x in most
    )
