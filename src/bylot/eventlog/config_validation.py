"""Validation of router configurations: new ones, and edits of those in force."""

import math
import warnings
from typing import NamedTuple

import numpy as np
from msgspec import structs

from bylot import errors, policies
from bylot.limits.book import ALL_AVAILABLE
from bylot.numerics.jit import Bools
from bylot.policies.registry import fill_auto_contexts
from bylot.policies.validation import RunConfig, check_at_least_one, is_reward_in_range
from bylot.problem import Limit, Problem
from bylot.problem.validation import suggest_known_name
from bylot.problem.window_bounds import mark_totals
from bylot.router.config import RouterConfig, problem_to_data
from bylot.router.core import RouterCore
from bylot.router.core_status import report_status

MAX_WAIT_S = 1e10
IMMUTABLE_CONFIG_FIELDS = ("policy", "seed", "horizon", "rewards", "feedback")


class ConfigParts(NamedTuple):
    """The objects that a configuration describes."""

    problem: Problem
    policy: policies.Policy
    run: RunConfig


def validate_config(config: RouterConfig) -> tuple[RouterConfig, ConfigParts]:
    """Check all but whether the policy can be bound; returns the canonical form, and its parts."""
    policy = config.build_policy()
    problem = config.build_problem()
    filled = fill_auto_contexts(policy, config.max_contexts)
    resolved = policies.resolve_policy(filled, problem, config.feedback)
    parts = ConfigParts(problem, resolved, config.build_run(problem))
    check_at_least_one("memory", config.memory)
    check_at_least_one("max_contexts", config.max_contexts)
    check_wait_and_default(config, parts.run)
    check_paused_experts(config, parts)
    paused = set(config.paused)
    canonical = structs.replace(
        config,
        problem=problem_to_data(problem),
        policy=policies.policy_to_data(resolved),
        rewards=(parts.run.low, parts.run.high),
        wait=None if config.wait is None else float(config.wait),
        default=None if config.default is None else float(config.default),
        paused=tuple(name for name in problem.experts if name in paused),
    )
    return canonical, parts


class PreparedConfig(NamedTuple):
    """A valid configuration in its canonical form, and a new core of it, which takes long."""

    config: RouterConfig
    core: RouterCore


def prepare_config(config: RouterConfig) -> PreparedConfig:
    """Validate a configuration, bind its policy and compile it."""
    canonical, parts = validate_config(config)
    core = RouterCore(*parts, canonical.max_contexts)
    report_status(core)  # compiles what a status needs, too
    return PreparedConfig(canonical, core)


def check_wait_and_default(config: RouterConfig, run: RunConfig) -> None:
    """Check how long rewards are waited for, and what is learned when they do not come."""
    if config.wait is None:
        if config.aggregate != "earliest" or config.default is not None:
            raise errors.RewardError(
                f"aggregate={config.aggregate!r}, default={config.default!r} need a wait",
                remedy="give a wait in seconds",
            )
        return
    if not 0 < config.wait <= MAX_WAIT_S:
        raise errors.RewardError("wait", got=config.wait, expected="seconds above 0, or null")
    default = config.default
    if default is not None and not (
        math.isfinite(default) and is_reward_in_range(default, run.low, run.high)
    ):
        raise errors.RewardError(
            "default", got=default, expected=f"a reward in [{run.low}, {run.high}]"
        )


def check_paused_experts(config: RouterConfig, parts: ConfigParts) -> None:
    """Check that paused experts exist, and that the others can keep the limits."""
    problem, paused, known = parts.problem, config.paused, set(parts.problem.experts)
    for name in paused:
        if name not in known:
            raise errors.ProblemError(
                f"paused: no expert {name!r}",
                remedy=suggest_known_name(name, problem.experts, "experts"),
            )
    if set(paused) == known:
        raise errors.ProblemError("all experts are paused", remedy="keep at least one active")
    if not paused:
        return
    running = known.difference(paused)
    active = [i for i, name in enumerate(problem.experts) if name in running]
    try:
        check_active_experts(parts, active)
    except (errors.InfeasibleLimits, errors.PolicyError) as error:
        raise errors.InfeasibleLimits(
            f"with {', '.join(map(repr, paused))} paused, the active experts cannot keep the "
            f"limits ({error.for_running_router()})",
            remedy="resume one of them, or change the limits",
        ) from error


def check_active_experts(parts: ConfigParts, active: list[int]) -> None:
    """Check that some of the experts can keep the limits.

    A budget of the calendar can be kept by refusing requests.
    """
    problem = parts.problem
    experts = [problem.experts[i] for i in active]
    averages = [(j, problem.limits[j]) for j in np.flatnonzero(~mark_totals(problem))]
    if len(active) == 1:  # its only panel is known
        for j, limit in averages:
            cost = float(problem.rows[j, active[0]])
            if limit.sign * (cost - limit.bound) < 0:
                raise errors.InfeasibleLimits(f"{experts[0]!r} alone costs {cost}, not {limit}")
        return
    costs, most = (
        {name: row[active] for name, row in rows.items()}
        for rows in (problem.costs, problem.max_costs)
    )
    # A share becomes a plain cost of 1, as no member of its group may be left; an average in
    # windows becomes a limit of its own on all requests.
    costs |= {limit.words: problem.rows[j, active] for j, limit in averages}
    limits = [Limit(limit.words, limit.bound, limit.sign) for _, limit in averages]
    with warnings.catch_warnings():  # of policies that do not guard their limits
        warnings.simplefilter("ignore", errors.BylotWarning)
        smaller = problem.replace(experts=experts, costs=costs, limits=limits, max_costs=most)
        parts.policy.bind(smaller, parts.run.horizon, parts.run.feedback)


def check_config_edit(old: RouterConfig, new: RouterConfig) -> None:
    """Refuse changes under which what was learned would mean something else."""
    for name in IMMUTABLE_CONFIG_FIELDS:
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            raise errors.PolicyError(
                f"{name} cannot be changed from {was!r} to {now!r} while a router runs",
                remedy="create a new router",
            )


def mask_active_experts(core: RouterCore, config: RouterConfig) -> Bools:
    """A mask of the experts that are not paused; empty if none is."""
    if not config.paused:
        return ALL_AVAILABLE
    paused = set(config.paused)
    return np.array([name not in paused for name in core.problem.experts])
