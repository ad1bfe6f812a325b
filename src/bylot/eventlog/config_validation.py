"""Terms that were checked, and what they stand for."""

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np

from bylot import policies
from bylot.errors import (
    InfeasibleLimits,
    OutOfReachWarning,
    PolicyError,
    ProblemError,
    RewardError,
    SurrogateWarning,
)
from bylot.numerics.jit import Bools
from bylot.policies import validation as run
from bylot.policies.capacity import fill_auto_contexts
from bylot.policies.validation import check_at_least_one, check_run_config, is_reward_in_range
from bylot.problem import Limit, Problem
from bylot.problem.validation import suggest_known_name
from bylot.router import persistence
from bylot.router.config import RouterConfig
from bylot.router.router import Router

MAX_WAIT_S = 1e10  # seconds of a wait: three hundred years
PROBLEM_KEYS = ("experts", "costs", "limits", "draws", "floor", "period")
IMMUTABLE_CONFIG_FIELDS = ("policy", "seed", "horizon", "rewards")


class ValidatedConfig(NamedTuple):
    """Terms as they are written down, and the values they describe."""

    terms: RouterConfig
    problem: Problem
    policy: policies.Policy
    run: run.RunConfig


def validate_config(terms: RouterConfig) -> ValidatedConfig:
    """Check everything about terms but whether the policy can be bound to the problem."""
    asked = policy_from_config(terms)
    if not isinstance(terms.problem, Mapping):
        raise ProblemError(f"problem={terms.problem!r} given; wanted {', '.join(PROBLEM_KEYS)}")
    if set(terms.problem) - set(PROBLEM_KEYS):
        wrong = min(set(terms.problem) - set(PROBLEM_KEYS))
        raise ProblemError(
            f"problem has no part {wrong!r}; {suggest_known_name(wrong, PROBLEM_KEYS, 'parts')}"
        )
    problem = problem_from_config(terms, Problem)
    policy = policies.resolve_policy(fill_auto_contexts(asked, terms.max_contexts), problem)
    found = ValidatedConfig(
        terms, problem, policy, check_run_config(problem, *run_arguments_from_config(terms))
    )
    check_at_least_one("memory", terms.memory)
    check_at_least_one("max_contexts", terms.max_contexts)
    check_wait_and_default(found)
    check_paused_experts(found)
    return normalise_config(found)


def trust_config(terms: RouterConfig) -> ValidatedConfig:
    """Terms that were checked before."""
    problem = problem_from_config(terms, Problem.known)
    policy = policies.resolve_policy(policy_from_config(terms), problem)
    return ValidatedConfig(
        terms, problem, policy, check_run_config(problem, *run_arguments_from_config(terms))
    )


def run_arguments_from_config(terms: RouterConfig) -> tuple[int, int | None, tuple[float, float]]:
    """What a run is started on."""
    return terms.seed, terms.horizon, terms.rewards


def normalise_config(found: ValidatedConfig) -> ValidatedConfig:
    """With the terms in the one form that is kept: nothing in them is left to a default, and what
    is read from a log is written as it was.
    """
    terms = found.terms
    form = msgspec.structs.replace(
        terms,
        problem=persistence.problem_to_data(found.problem),
        policy=policies.policy_to_data(found.policy),
        rewards=(found.run.low, found.run.high),
        wait=None if terms.wait is None else float(terms.wait),
        default=None if terms.default is None else float(terms.default),
        paused=tuple(name for name in found.problem.experts if name in terms.paused),
    )
    return found._replace(terms=form)


def policy_from_config(terms: RouterConfig) -> policies.Policy | policies.Auto:
    """The policy, or an error that says what is wrong with it."""
    try:
        return policies.policy_from_data(terms.policy)
    except (LookupError, TypeError, AttributeError) as error:
        raise PolicyError(
            f"policy={terms.policy!r} is none ({error!r}); give {{'name': ..., settings}}"
        ) from error


def problem_from_config(terms: RouterConfig, make: Any) -> Problem:
    """The problem, made so; or an error that says what is wrong with it."""
    data = {"limits": (), "floor": None, "period": None, **terms.problem}
    try:
        limits = [Limit.from_data(limit) for limit in data["limits"]]
        made: Problem = make(
            experts=data["experts"],
            costs=data["costs"],
            limits=limits,
            draws=data["draws"],
            floor=data["floor"],
            period=data["period"],
        )
        return made
    except KeyError as error:
        raise ProblemError(f"the problem, or a limit of it, lacks {error}") from error
    except (TypeError, AttributeError) as error:
        raise ProblemError(f"the problem cannot be read: {error}") from error


def check_wait_and_default(found: ValidatedConfig) -> None:
    """How long rewards are waited for, and what is learned when they do not come."""
    terms, low, high = found.terms, found.run.low, found.run.high
    if terms.wait is None:
        if terms.aggregate != "earliest" or terms.default is not None:
            what = f"aggregate={terms.aggregate!r}, default={terms.default!r}"
            raise RewardError(f"{what} take effect when the time is up; give a wait in seconds")
        return
    if not 0 < terms.wait <= MAX_WAIT_S:
        raise RewardError(f"wait={terms.wait!r} is no time in seconds; give more than 0, or null")
    fits = terms.default is None or (
        math.isfinite(terms.default) and is_reward_in_range(terms.default, low, high)
    )
    if not fits:
        raise RewardError(f"default={terms.default!r} is no reward in [{low}, {high}]")


def check_paused_experts(found: ValidatedConfig) -> None:
    """Who is not to be asked must be known, and somebody must be left."""
    experts, paused = found.problem.experts, found.terms.paused
    for name in paused:
        if name not in experts:
            raise ProblemError(
                f"paused: no expert {name!r}; {suggest_known_name(name, experts, 'experts')}"
            )
    if set(paused) == set(experts):
        raise ProblemError("all experts are paused, so that nobody could be asked; leave one")
    if paused:
        check_active_experts(found)


def check_active_experts(found: ValidatedConfig) -> None:
    """Those who are not paused must be able to keep the limits, and the policy with them."""
    problem, paused = found.problem, found.terms.paused
    left = [i for i, name in enumerate(problem.experts) if name not in paused]
    try:
        if len(left) == 1:
            check_single_expert(problem, left[0])
        else:
            with warnings.catch_warnings():  # of policies that make no promise to begin with
                warnings.simplefilter("ignore", OutOfReachWarning)
                warnings.simplefilter("ignore", SurrogateWarning)
                found.policy.bind(restrict_problem(problem, left), found.run.horizon)
    except (InfeasibleLimits, PolicyError) as error:
        raise InfeasibleLimits(
            f"with {', '.join(map(repr, paused))} paused, the active experts cannot keep the limits "
            f"({error.for_running_router()})",
            remedy="resume one of them, or change the limits",
        ) from error


def check_single_expert(problem: Problem, one: int) -> None:
    """A single expert is no problem to choose in, but every panel is known."""
    for limit, cost in zip(problem.limits, problem.rows[:, one].tolist(), strict=True):
        if limit.sign * (cost - limit.bound) < 0:
            raise InfeasibleLimits(f"{problem.experts[one]!r} alone costs {cost}, not {limit}")


def restrict_problem(problem: Problem, left: list[int]) -> Problem:
    """The problem of some of the experts. A share is a cost of 1 there, as nobody of its group may
    be left.
    """
    return problem.replace(
        experts=[problem.experts[i] for i in left],
        costs={name: row[left] for name, row in problem.costs.items()},
        limits=[Limit(one.name, one.bound, one.sign) for one in problem.limits],
    )


def check_config_edit(old: RouterConfig, new: ValidatedConfig) -> None:
    """Some terms cannot be changed: what was learned would mean something else."""
    for name in IMMUTABLE_CONFIG_FIELDS:
        was, now = getattr(old, name), getattr(new.terms, name)
        if was != now:
            refuse_config_change(name, was, now)


def refuse_config_change(name: str, was: Any, now: Any) -> NoReturn:
    """Say that a term is fixed."""
    raise PolicyError(
        f"{name} cannot be changed from {was!r} to {now!r} while a router runs; make a new router"
    )


def start_router(found: ValidatedConfig) -> Router:
    """A router on these terms, before its first decision."""
    router = Router(
        found.problem,
        found.policy,
        seed=found.run.seed,
        horizon=found.run.horizon,
        rewards=(found.run.low, found.run.high),
        memory=1,  # it holds no decisions: that is the fold's
    )
    # whether there is room for all of them was asked when the log began, and is not asked again
    router.max_contexts = found.terms.max_contexts
    return router


def mask_active_experts(router: Router, terms: RouterConfig) -> Bools:
    """A mask of the experts that are not paused; empty if none is."""
    if not terms.paused:
        return router.up(None)
    return np.array([name not in terms.paused for name in router.problem.experts])
