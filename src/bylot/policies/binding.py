"""Binding a policy and its limits to a problem, for routers and the simulator alike."""

from typing import Any, NamedTuple

from bylot.limits.binding import start_limits
from bylot.limits.migrate import migrate_limits
from bylot.limits.records import LimitRule, LimitTables
from bylot.policies.base import BoundPolicy, FeedbackKind, Policy
from bylot.problem import Problem
from bylot.problem.change import ProblemChange


class BoundRules(NamedTuple):
    """The rule of a policy, and the limits that are kept for it; None: none are."""

    policy: Any
    limits: LimitRule | None


def bind_policy(
    policy: Policy, problem: Problem, horizon: int | None, feedback: FeedbackKind
) -> BoundRules:
    """Bind a policy and its limits to a problem.

    Limits need the sizes of its panels, its rule needs the limits, and pacing its margin.
    """
    limits = policy.bind_limits(problem, horizon)
    rule = policy.bind(problem, horizon, feedback, limits)
    if limits is not None:
        limits = limits._replace(margin=policy.find_margin(rule, limits))
    return BoundRules(rule, limits)


def start_policy(
    policy: Policy, problem: Problem, rule: Any, limits: LimitRule | None, contexts: int
) -> BoundPolicy:
    """Return a policy before its first request."""
    tables = None if limits is None else LimitTables(limits, start_limits(limits, contexts))
    return BoundPolicy(problem, rule, policy.start(rule, contexts), tables)


def migrate_policy(
    policy: Policy, old: BoundPolicy, problem: Problem, rule: Any, limits: LimitRule | None
) -> BoundPolicy:
    """Return a policy that goes on under another problem, with all that it and the limits know.

    Ledgers of keys are migrated by `KeyLedgers`.
    """
    state = policy.migrate(old, problem, rule)
    if limits is None or old.limits is None:
        return BoundPolicy(problem, rule, state, None)
    contexts = len(state.visits)
    tables = LimitTables(limits, start_limits(limits, contexts))
    change = ProblemChange(old.problem, problem, old.state.visits > 0)
    migrate_limits(change, *old.limits, *tables)
    return BoundPolicy(problem, rule, state, tables)
