"""What is booked when: the cost of each member of a panel, and the report to the router.

| a member that ... | is booked at |
|---|---|
| answered | the price of the tokens that the model reported, else of their estimate by length |
| answered, and its model has no price | the declared cost |
| refused (an error status, unreachable, an error in the body) | nothing |
| was cancelled, timed out or broke off after it was sent | the declared cost |
| did so in the middle of a stream | the price of what it had streamed |
| was not asked | nothing |
| was replaced | nothing of its own: what its call cost is booked with its substitute |

What a judge cost is booked in equal parts with the members that it judged; one that did not answer
costs its prompt.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bylot.gateway.answers import Verdict
from bylot.gateway.asking import PanelResult
from bylot.router.feedback import MAX_SPEND_FACTOR

log = logging.getLogger("bylot.gateway")

HOLDER = "gateway"
"""The holder of the gateway's decisions, and the key of its reports; with a scorer, the name of
that follows: `gateway/judge:gpt`."""


class RouterFacts(NamedTuple):
    """What the gateway must know of a router, as of a version of its configuration.

    declared: cost in dollars of one call by expert; empty if the router has no such cost
    """

    version: int
    experts: tuple[str, ...]
    declared: Mapping[str, float]
    feedback: str
    rewards: tuple[float, float]


def compute_spend(
    members: Iterable[str], result: PanelResult, judge_cost: float, facts: RouterFacts
) -> dict[str, float]:
    """Dollars by member of the panel, as the table above says."""
    costs: dict[str, float] = {}
    for one in result.calls:
        known = facts.declared.get(one.member, 0.0) if one.cost is None else one.cost
        costs[one.member] = costs.get(one.member, 0.0) + known
    for one in result.answers:
        costs[one.member] += judge_cost / len(result.answers)
    spend = {name: sum_replaced(name, costs, result.stands_for) for name in members}
    lost = sum(costs.values()) - sum(spend.values())  # of calls that no member stands for
    if spend and lost > 1e-12:
        spend[next(iter(spend))] += lost
    return spend


def cap_spend(spend: Mapping[str, float], declared: Mapping[str, float]) -> dict[str, float]:
    """Costs that a router accepts: it refuses reports of more than `MAX_SPEND_FACTOR` times the
    declared cost of its dearest panel, with all that is in them.

    >>> cap_spend({"a": 30.0, "b": 10.0}, {"a": 0.001, "b": 0.001})
    {'a': 1.5, 'b': 0.5}
    """
    total, most = sum(spend.values()), max(declared.values(), default=0.0) or 1.0
    factor = min(1.0, MAX_SPEND_FACTOR * len(spend) * most / total) if total > 0 else 1.0
    if factor < 1.0:
        log.error("calls cost %g dollars, %g times what is declared", total, total / most)
    return {name: cost * factor for name, cost in spend.items()}


def sum_replaced(name: str, costs: Mapping[str, float], stands_for: Mapping[str, str]) -> float:
    """The cost of a member and of all that it stands for.

    >>> sum_replaced("c", {"a": 1.0, "b": 2.0, "c": 4.0}, {"c": "b", "b": "a"})
    7.0
    """
    total, seen = 0.0, set[str]()
    current: str | None = name
    while current is not None and current not in seen:
        seen.add(current)
        total += costs.get(current, 0.0)
        current = stands_for.get(current)
    return total


def make_report(
    members: Sequence[str],
    result: PanelResult,
    verdict: Verdict | None,
    judge_cost: float,
    facts: RouterFacts,
    cost_name: str,
) -> dict[str, Any]:
    """What is reported to the router, as the arguments of `RecordReward`; at least a key, which
    settles the decision.

    Scores become rewards in the range of the router, in the kind of feedback that it was created
    for. A member that did not answer has no score: missing is not 0.
    """
    report: dict[str, Any] = {"key": HOLDER}
    if facts.declared:
        spend = compute_spend(members, result, judge_cost, facts)
        report["spend"] = {cost_name: cap_spend(spend, facts.declared)}
    low, high = facts.rewards
    scores = {} if verdict is None else verdict.scores
    scores = {k: low + s * (high - low) for k, s in scores.items() if k in members}
    if scores and verdict is not None:
        report["key"] = f"{HOLDER}/{verdict.source}"
        best = max(scores, key=lambda name: (scores[name], name == verdict.winner))
        if facts.feedback == "members":
            report["members"] = scores
        else:
            report["value"] = max(scores.values())
        if facts.feedback == "winner" and scores[best] > low:
            report["winner"] = best
    return report
