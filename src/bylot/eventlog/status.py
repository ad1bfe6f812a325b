"""How a stored router stands, as plain data: for answers, pages and metrics."""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct

from bylot.policies.base import compute_distribution
from bylot.router.status import LimitStatus


class Counters(Struct):
    """Counts since the first decision, and sums by the names of costs.

    learned:    rewards that the policy has learned from, those of `defaulted` not among them
    noted:      rewards of decisions that had one already, or were made before the pool changed
    late:       rewards that came when the time was up, or when the decision was no longer held
    missing:    decisions whose time was up without any reward, and nothing was learned
    defaulted:  those of them for which the default was learned
    cancelled:  decisions that were never used, of which nothing is in `stated`
    replaced:   panels that the guard replaced
    infeasible: decisions at which limits were out of reach
    """

    learned: int = 0
    noted: int = 0
    late: int = 0
    missing: int = 0
    defaulted: int = 0
    cancelled: int = 0
    replaced: int = 0
    infeasible: int = 0
    stated: dict[str, float] = {}

    def decided(self, spend: Mapping[str, float], replaced: bool, feasible: bool) -> None:
        """One more decision."""
        stated = self.stated
        for name, cost in spend.items():
            stated[name] += cost
        self.replaced += replaced
        self.infeasible += not feasible

    def take_back(self, spend: Mapping[str, float]) -> None:
        """A decision of this cost was never used."""
        for name, cost in spend.items():
            self.stated[name] -= cost
        self.cancelled += 1

    def rename(self, costs: Iterable[str]) -> None:
        """Go on with these costs: nothing was stated of new ones."""
        self.stated = {name: self.stated.get(name, 0.0) for name in costs}


if TYPE_CHECKING:
    from bylot.eventlog.aggregate import RouterAggregate

MAX_STATUS_CONTEXTS = 12  # contexts whose laws are told, the most visited


def build_router_status(fold: "RouterAggregate") -> dict[str, Any]:
    """Averages, limits and laws now; costs as stated, expected and settled; counts; the course.

    Limits and averages are of settled cost. What is not known is None.
    """
    status = fold.router.standing(fold.awake)
    accounts = msgspec.structs.asdict(fold.accounts)
    stated = accounts.pop("stated")
    deferred = sum(held.deferred for _, held in fold.open)
    period = status.period
    return {
        "decisions": status.rounds,
        "rewards": status.rewards,
        "waiting": len(fold.open) - deferred,
        "deferred": deferred,
        "contexts": status.contexts,
        "max_contexts": status.max_contexts,
        "mean_reward": status.mean_reward,
        "kept": status.kept,
        "limits": [limit_status_to_data(one) for one in status.limits],
        "costs": sum_costs_by_name(fold, stated),
        "q": dict(status.q),
        "effective_experts": count_effective_experts(list(status.q.values())),
        "multinomial": status.multinomial,
        "whole": status.whole,
        "period": None
        if period is None
        else {"length": period.length, "played": period.played, "replaced": period.replaced},
        "counts": accounts,
        "laws": list_context_distributions(fold),
        "course": fold.course.points(status.rounds),
    }


def limit_status_to_data(one: LimitStatus) -> dict[str, Any]:
    """One limit."""
    now = one.current
    return {
        "cost": one.limit.name,
        "side": one.limit.side,
        "bound": one.limit.bound,
        "mean": one.mean,
        "slack": one.slack,
        "price": None if math.isnan(one.price) else one.price,
        "kept": one.kept,
        "kept_since_first": one.kept_since_first,
        "verdict": one.verdict,
        "current": None
        if now is None
        else {
            "mean": now.mean,
            "in_force": now.in_force,
            "within_reach": now.within_reach,
            "short": now.short,
            "lost": now.lost,
            "missed": now.missed,
        },
    }


def sum_costs_by_name(fold: "RouterAggregate", stated: dict[str, float]) -> dict[str, Any]:
    """Every cost: sums since the first decision that it was known for, and how many those are;
    cancelled ones are in neither.
    """
    router = fold.router
    settled, expected = router.by_cost(router.ledger.spent), router.by_cost(router.ledger.expected)
    return {
        name: {
            "stated": stated[name],
            "expected": expected[name],
            "settled": settled[name],
            "decisions": router.owing(name),
        }
        for name in router.problem.costs
    }


def list_context_distributions(fold: "RouterAggregate") -> list[dict[str, Any]]:
    """The laws of the contexts that were visited most, among those who are not paused, with their
    visits.
    """
    router = fold.router
    visits = router.visits()
    labels = list(router.contexts)
    most = np.argsort(-visits, kind="stable")[:MAX_STATUS_CONTEXTS].tolist()
    return [
        {
            "context": labels[x],
            "visits": int(visits[x]),
            "law": compute_distribution(router.rule, router.state, x, fold.awake).tolist(),
        }
        for x in most
    ]


def count_effective_experts(shares: list[float]) -> float:
    """How many experts are asked equally often would be as hard to guess: e^entropy.

    >>> round(count_effective_experts([0.5, 0.5, 0.0]), 12)
    2.0
    """
    total = sum(shares)
    return math.exp(-sum(s / total * math.log(s / total) for s in shares if s > 0))
