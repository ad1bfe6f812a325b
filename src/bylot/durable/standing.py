"""How a stored router stands, as plain data: for answers, pages and metrics."""

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bylot.policies.contract import law
from bylot.status import Standing

if TYPE_CHECKING:
    from bylot.durable.fold import Fold

SHOWN = 12  # contexts whose laws are told, the most visited


def standing(fold: "Fold") -> dict[str, Any]:
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
        "limits": [limit_of(one) for one in status.limits],
        "costs": costs_of(fold, stated),
        "q": dict(status.q),
        "effective_experts": effective(list(status.q.values())),
        "multinomial": status.multinomial,
        "whole": status.whole,
        "period": None
        if period is None
        else {"length": period.length, "played": period.played, "replaced": period.replaced},
        "counts": accounts,
        "laws": laws_of(fold),
        "course": fold.course.points(status.rounds),
    }


def limit_of(one: Standing) -> dict[str, Any]:
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


def costs_of(fold: "Fold", stated: dict[str, float]) -> dict[str, Any]:
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


def laws_of(fold: "Fold") -> list[dict[str, Any]]:
    """The laws of the contexts that were visited most, among those who are not paused, with their
    visits.
    """
    router = fold.router
    visits = router.visits()
    labels = list(router.contexts)
    most = np.argsort(-visits, kind="stable")[:SHOWN].tolist()
    return [
        {
            "context": labels[x],
            "visits": int(visits[x]),
            "law": law(router.rule, router.state, x, fold.awake).tolist(),
        }
        for x in most
    ]


def effective(shares: list[float]) -> float:
    """How many experts are asked equally often would be as hard to guess: e^entropy.

    >>> round(effective([0.5, 0.5, 0.0]), 12)
    2.0
    """
    total = sum(shares)
    return math.exp(-sum(s / total * math.log(s / total) for s in shares if s > 0))
