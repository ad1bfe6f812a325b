"""The engine of a router in memory, made from the arguments of a caller.

Its decisions are nowhere else: it remembers the last ones that have their reward.
"""

import warnings

from bylot.errors import DecisionNotFound
from bylot.policies import (
    Auto,
    PlainPolicy,
    Policy,
    describe_ignored_feedback,
    resolve_policy,
)
from bylot.policies.registry import (
    MAX_UNDECLARED_CONTEXTS,
    check_max_contexts,
    check_panel_size,
    describe_smaller_panels,
    fill_auto_contexts,
)
from bylot.policies.validation import FeedbackKind, check_at_least_one, check_run_config
from bylot.problem import Problem
from bylot.router.core import RouterCore
from bylot.router.engine import RouterEngine
from bylot.router.open_decisions import OpenDecision
from bylot.router.reward_rules import RewardTerms

MAX_REMEMBERED_ANSWERS = 200  # of decisions that have their reward; more leave the CPU caches


def create_engine(
    problem: Problem,
    policy: str | Policy | Auto | PlainPolicy,
    seed: int,
    horizon: int | None,
    rewards: tuple[float, float],
    feedback: FeedbackKind,
    guard: bool | None,
    max_contexts: int | None,
    memory: int,
) -> RouterEngine:
    """Check the arguments of `Router`, with its warnings, and return the engine."""
    run = check_run_config(problem, seed, horizon, rewards, feedback)
    filled = fill_auto_contexts(policy, max_contexts)
    check_panel_size(filled, problem)
    resolved = resolve_policy(filled, problem, feedback, guard)
    ignored = describe_ignored_feedback(resolved, feedback)
    smaller = describe_smaller_panels(filled, problem)
    for warning in filter(None, (ignored, smaller)):
        warnings.warn(warning, stacklevel=3)
    if max_contexts is not None:
        check_max_contexts(resolved, problem.size, max_contexts)
    core = RouterCore(problem, resolved, run, max_contexts or MAX_UNDECLARED_CONTEXTS)
    return make_engine(core, RewardTerms(check_at_least_one("memory", memory)))


def make_engine(core: RouterCore, terms: RewardTerms) -> RouterEngine:
    """Return the engine of a router in memory, which has its decisions nowhere else."""
    most = min(terms.memory, MAX_REMEMBERED_ANSWERS)
    return RouterEngine(core, terms, refuse_forgotten, most)


def refuse_forgotten(place: int) -> OpenDecision:
    """Raise the error of a decision that the router does not have, or no longer."""
    raise DecisionNotFound(
        "no decision has this id, or it is no longer remembered",
        remedy="use the id that `decide` returned, or create the router with a larger `memory`",
    )
