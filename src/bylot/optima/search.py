"""The search under exact costs: where to start from, and the best of where the starts lead."""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.kernels.compile import Floats
from bylot.optima.costs import Costs
from bylot.optima.exact import SLACK, ceiling_gap, lifted, local_top, reach, relax
from bylot.optima.newton import Peak
from bylot.optima.surrogate import COARSE, STEP, surrogate_top
from bylot.optima.task import Task

MARGIN = 1e-10
"""Bounds are first tightened by so many units, so that the policy found keeps them outright; where
that leaves nothing, they are taken as they are."""


class Search(NamedTuple):
    """How many starts, and the seed of the random ones."""

    starts: int = 8
    seed: int = 0

    def best(self, task: Task, start: Floats | None = None) -> tuple[Peak, list[float]]:
        """The highest of the local tops, with its gap to the ceiling; the values of all of them."""
        costs = Costs.of(task.problem, task.shares, task.floor)
        roof = ceiling(task, costs.tightened(-SLACK))
        if roof is None:
            raise InfeasibleLimits(
                f"no fixed policy with floor {task.floor:.6g} keeps {task.limits} on average; "
                f"use {task.lower_floor}more draws, or looser limits"
            )
        first = [roof.q] if start is None else [start, roof.q]
        for bounded, slack in footings(costs):
            tops = list(self.tops(task, bounded, slack, first, roof.value + roof.gap))
            if tops:
                return max(tops, key=lambda top: top.value), [top.value for top in tops]
        raise InfeasibleLimits(
            f"none of {self.starts} starts led to a policy with floor {task.floor:.6g} that keeps "
            f"{task.limits} on average; that is no proof that there is none: try more starts, "
            f"{task.lower_floor}or looser limits"
        )

    def tops(
        self, task: Task, costs: Costs, slack: float, first: list[Floats], ceiling: float
    ) -> Iterator[Peak]:
        """Where the starts lead, each with its gap, until one is proved to be the best there is."""
        whole = Costs.of(task.problem, task.shares, task.floor)  # bounds as they are
        for place in self.places(task, costs, first):
            top = climbed(task, costs, slack, place)
            if top is not None:
                gap = min(ceiling_gap(task.hill, whole, top.q), ceiling - top.value)
                yield top._replace(gap=max(0.0, gap))
                if gap <= task.tolerance:
                    return

    def places(self, task: Task, costs: Costs, first: list[Floats]) -> Iterator[Floats]:
        """The given places and, if there can be several tops, as many more as are wanted.

        The surrogate's top, uniform play, then by turns one expert alone and a random policy:
        upper limits count the distinct, so that some tops play few experts often.
        """
        yield from first
        if not costs.upper.any() or costs.draws == 1:
            return
        X, K = task.hill.shape
        more = [np.full((X, K), 1.0 / K)]
        with suppress(InfeasibleLimits):  # as the surrogate may be when the limits are not
            more.insert(0, surrogate_top(task).q)
        yield from more[: max(0, self.starts - len(first))]
        chance, single = np.random.default_rng(self.seed), alone(task, costs)
        for n in range(self.starts - len(first) - len(more)):
            mix = chance.dirichlet(np.full(K, 0.3), size=X)
            yield single[n // 2] if n % 2 == 0 and n // 2 < K else lifted(mix, task.floor)


def footings(costs: Costs) -> tuple[tuple[Costs, float], ...]:
    """Bounds to climb within and by how much they may be missed: tightened, then as they are."""
    return (costs.tightened(MARGIN), MARGIN / 2), (costs, SLACK)


def ceiling(task: Task, costs: Costs) -> Peak | None:
    """The top over a superset of what is allowed, by way of few rounds if there are many."""
    start = np.full(task.hill.shape, 1.0 / task.problem.size)
    if task.hill.rounds > COARSE:
        near = relax(task.hill.thinned(STEP), costs, start, task.tolerance)
        start = start if near is None else near.q
    return relax(task.hill, costs, start, task.tolerance)


def alone(task: Task, costs: Costs) -> list[Floats]:
    """Each expert played alone, as far as the floor allows: those within limits first, then best
    first.
    """
    X, K = task.hill.shape
    policies = [lifted(np.tile(e, (X, 1)), task.floor) for e in np.eye(K)]

    def rank(q: Floats) -> tuple[bool, float]:
        return bool(costs.excess(q).max() > 0.0), -task.hill.slope(q)[0]

    return sorted(policies, key=rank)


def climbed(task: Task, costs: Costs, slack: float, start: Floats) -> Peak | None:
    """From a start, by way of an allowed policy, to a local top; None if there is no such way."""
    q = reach(costs, start, slack)
    if q is None:
        return None
    if task.hill.rounds > COARSE:
        q = local_top(task.hill.thinned(STEP), costs, q, slack, task.tolerance).q
    return local_top(task.hill, costs, q, slack, task.tolerance)
