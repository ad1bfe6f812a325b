"""Reports about a decision: the reward, scores of members or the winner, and actual costs.

Reports are checked here, where they enter, and arranged for the policy. Which of several reports
counts is left to `reward_rules`.
"""

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from bylot.errors import RewardConflict, RewardError
from bylot.limits.request import Ticket
from bylot.numerics.jit import Floats
from bylot.policies.base import NO_SCORES, NO_WINNER
from bylot.policies.validation import RunConfig, is_reward_in_range
from bylot.problem import Problem
from bylot.problem.limits import MAX_COST
from bylot.problem.validation import suggest_known_name

MAX_ABS_REWARD = 1e300
MAX_SPEND_FACTOR = 1_000  # actual costs may be so many times the stated ones of the dearest panel
NOTHING_CHANGED = "nothing was changed"
ROUNDING = 1e-9  # relative, of sums of costs

SpendReport = Mapping[str, float | Mapping[str, float]]
"""Actual costs by name: the total of the panel, or what each member cost."""


class RewardReport(Struct, frozen=True, omit_defaults=True):
    """A checked report about a decision.

    value:        the reward of the panel; None: only costs were reported
    members:      scores of members by name; None: not reported
    winner:       the member that earned the reward; None: not reported
    spend:        actual costs of the panel by name; None: as stated
    member_spend: those of them that were reported by member, by cost and name
    from_members: no value was reported: it is the best of the scores
    """

    value: float | None
    members: dict[str, float] | None = None
    winner: str | None = None
    spend: dict[str, float] | None = None
    member_spend: dict[str, dict[str, float]] | None = None
    from_members: bool = False


def check_score(run: RunConfig, value: Any, id: str, what: str = "reward") -> float:
    """A reward or the score of a member as a float, or an error; nothing is changed."""
    low, high, remedy = run.low, run.high, NOTHING_CHANGED
    if type(value) is float and low <= value <= high:  # nearly always
        return value
    if isinstance(value, np.floating | np.bool_):
        value = float(value)  # a narrow type cannot be compared with what is beyond it
    if value is None and run.feedback == "members" and what == "reward":
        expected = "a number, or scores of members,"
    elif not isinstance(value, (int, float, np.integer)):  # True is 1, False is 0
        expected = "a number, True or False"
        if value is None and what != "reward":
            remedy += "; leave out a member whose score is unknown"
    elif not -MAX_ABS_REWARD < value < MAX_ABS_REWARD:  # NaN fails this too
        expected = "a finite number"
    elif not is_reward_in_range(float(value), low, high):
        expected = f"a number in [{low}, {high}]"
        remedy += "; declare a wider range with rewards=(low, high)"
    else:
        return float(value)
    raise RewardError(what, got=value, expected=f"{expected} for decision {id}", remedy=remedy)


def check_report(
    problem: Problem,
    run: RunConfig,
    id: str,
    value: Any,
    members: Any = None,
    winner: Any = None,
    spend: Any = None,
) -> RewardReport:
    """A report, checked except for what depends on the decision and on later edits: names of
    members (`check_panel_names`) and how high its costs may be (`check_spend_range`).
    """
    if members is None and winner is None and spend is None:
        return RewardReport(check_score(run, value, id))
    scores = check_member_scores(run, id, members)
    if winner is not None:
        check_declared(run, "winner", "winner", id)
        if not isinstance(winner, str):
            raise RewardError("winner", got=winner, expected=f"a name for decision {id}")
    settled, by_member = check_spend(spend, problem)
    if settled and value is None and members is None and winner is None:
        return RewardReport(None, None, None, settled, by_member)
    from_members = value is None and scores is not None
    best = max(scores.values()) if value is None and scores is not None else value
    reward = check_score(run, best, id)
    return RewardReport(reward, scores, winner, settled, by_member, from_members)


def check_member_scores(run: RunConfig, id: str, members: Any) -> dict[str, float] | None:
    """Scores by name; None if there are none, as a missing score is not 0."""
    if members is None:
        return None
    check_declared(run, "members", "scores of members", id)
    if type(members) is not dict and not isinstance(members, Mapping):
        raise RewardError(
            "members",
            got=members,
            expected=f"scores by name, such as {{'ann': 1, 'bob': 0}}, for decision {id}",
            remedy=NOTHING_CHANGED,
        )
    low, high, scores = run.low, run.high, dict[str, float]()
    for name, score in members.items():
        usual = type(score) is float and low <= score <= high
        scores[name] = score if usual else check_score(run, score, id, f"score of {name!r}")
    return scores or None


def check_declared(run: RunConfig, kind: str, what: str, id: str) -> None:
    """Refuse feedback that the router was not created for."""
    if run.feedback != kind:
        raise RewardError(
            f"decision {id}: a router with feedback={run.feedback!r} takes no {what}",
            remedy=f"create it with feedback={kind!r}, or report without; {NOTHING_CHANGED}",
        )


def check_panel_names(report: RewardReport, panel: Sequence[str], id: str) -> None:
    """Refuse names that are not of the panel, and costs of only some of its members."""
    named = [] if report.members is None else list(report.members)
    if report.winner is not None:
        named.append(report.winner)
    for cost, parts in (report.member_spend or {}).items():
        named += parts
        missing = [name for name in dict.fromkeys(panel) if name not in parts]
        if missing:
            raise RewardError(
                f"decision {id}: spend on {cost!r} lacks member {missing[0]!r}",
                remedy=f"report all members, or the total; {NOTHING_CHANGED}",
            )
    if set(panel).issuperset(named):  # nearly always
        return
    for name in named:
        if name not in panel:
            raise RewardError(
                f"decision {id} has no member {name!r}",
                expected=f"some of {', '.join(map(repr, dict.fromkeys(panel)))}",
                remedy=NOTHING_CHANGED,
            )


def check_spend(
    spend: Any, problem: Problem
) -> tuple[dict[str, float] | None, dict[str, dict[str, float]] | None]:
    """Actual costs by name, finite and at least 0, and those that were reported by member.

    Derived costs follow from the panel.
    """
    if spend is None:
        return None, None
    if not isinstance(spend, Mapping):
        raise RewardError("spend", got=spend, expected="costs by name, such as {'usd': 2}")
    derived = {one.name for one in problem.limits if one.is_derived}
    costs = [name for name in problem.costs if name not in derived]
    totals: dict[str, float] = {}
    by_member: dict[str, dict[str, float]] = {}
    for name, cost in spend.items():
        if name not in costs:
            remedy = suggest_known_name(name, costs, "costs that can be settled")
            raise RewardError(f"no cost {name!r} to settle", remedy=f"{remedy}; {NOTHING_CHANGED}")
        if isinstance(cost, Mapping):
            parts = {one: check_cost(f"{name!r} by {one!r}", own) for one, own in cost.items()}
            by_member[name], totals[name] = parts, math.fsum(parts.values())
        else:
            totals[name] = check_cost(f"{name!r}", cost)
    return totals, by_member or None


def check_cost(of: str, cost: Any) -> float:
    """An actual cost as a float."""
    if isinstance(cost, np.integer | np.floating):
        cost = cost.item()
    number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
    if not number or not 0 <= cost <= MAX_COST:
        raise RewardError(
            f"spend on {of}",
            got=cost,
            expected=f"a number from 0 to {MAX_COST:g}",
            remedy=NOTHING_CHANGED,
        )
    return float(cost)


def check_spend_range(spend: Mapping[str, float] | None, problem: Problem) -> None:
    """Refuse costs so high that sums would lose the costs of other decisions by rounding."""
    for name, cost in (spend or {}).items():
        dearest = problem.draws * (float(problem.costs[name].max()) or 1.0)
        if name in problem.max_costs and cost <= problem.draws * problem.max_costs[name].max():
            continue
        if cost > MAX_SPEND_FACTOR * dearest:
            raise RewardError(
                f"spend on {name!r}",
                got=cost,
                expected=f"at most {MAX_SPEND_FACTOR * dearest:g}, {MAX_SPEND_FACTOR:,} times the "
                "stated cost of the dearest panel",
                remedy=f"check the unit; {NOTHING_CHANGED}",
            )


def check_corrections(
    spend: Mapping[str, float], known: Mapping[str, float], certain: Container[str], id: str
) -> None:
    """Refuse to raise a known cost if a limit on it is certain: the reserve of the decision was
    released with the first report.
    """
    for name, cost in spend.items():
        most = known.get(name, math.inf)
        if name in certain and cost > most * (1.0 + ROUNDING):
            raise RewardConflict(
                f"decision {id} already has its spend on {name!r}, which cannot be raised from "
                f"{most:g} to {cost:g} under a limit that is certain",
                remedy=f"report all of a cost at first, and lower it if need be; {NOTHING_CHANGED}",
            )


def arrange_feedback(
    members: Mapping[str, float] | None, winner: str | None, panel: Sequence[str], ticket: Ticket
) -> tuple[Floats, int]:
    """Scores and winner as `RouterCore.learn` takes them; panel: the name of each draw."""
    won = NO_WINNER if winner is None else int(ticket.draws[panel.index(winner)])
    if not members:
        return NO_SCORES, won
    return np.array([members.get(name, math.nan) for name in panel]), won
