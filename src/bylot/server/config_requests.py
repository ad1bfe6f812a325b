"""Builds the configuration of a router from requests to create or edit it."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, structs

from bylot import policies
from bylot.api import CreateRouterRequest, EditRouterRequest, LimitBody, NewExpert, PolicyBody
from bylot.errors import InfeasibleLimits, PolicyError, ProblemError
from bylot.eventlog.config_validation import PreparedConfig, prepare_config
from bylot.policies.registry import check_max_contexts, check_setting_names
from bylot.problem import DerivedCost
from bylot.problem.validation import suggest_known_name
from bylot.router.config import RouterConfig, choose_max_contexts
from bylot.server.http_errors import ApiError

MAX_LOAD_S = 1.0  # that a request waits for a policy; enough if it was compiled before
UNCHANGED_FIELDS = ("seed", "horizon", "rewards", "memory", "wait", "default", "aggregate")
"""Of a request to create a router: as in its configuration."""


def prepare_create(
    body: CreateRouterRequest, require: Callable[[policies.Policy, float], None]
) -> PreparedConfig:
    """The configuration of a new router, validated outside the writer.

    require: raises an error if a policy is not compiled within some seconds. Nothing is created
             then: whether a policy can keep the limits is computed by its compiled code
    """
    data, policy = msgspec.to_builtins(body.problem), policy_from_body(body.policy)
    data["limits"] = [limit_from_body(one, n) for n, one in enumerate(body.problem.limits)]
    config = RouterConfig(
        problem=data,
        policy=policies.policy_to_data(policy),
        **{name: getattr(body, name) for name in UNCHANGED_FIELDS},
    )
    problem, contexts = config.build_problem(), body.max_contexts
    resolved = policies.resolve_policy(policy, problem)
    require(resolved, MAX_LOAD_S)
    if contexts is None:
        contexts = choose_max_contexts(resolved, problem.size)
    return prepare_config(structs.replace(config, max_contexts=contexts))


def policy_from_body(body: str | PolicyBody) -> policies.Policy | policies.Auto:
    """A policy from its name or spec, or from a name and settings."""
    if isinstance(body, str):
        return policies.find_policy(body)
    if body.settings and ":" in body.name:
        what = f"policy {body.name!r} has settings in its name and in settings"
        raise PolicyError(what, remedy="use one of them")
    defaults = policies.policy_to_data(policies.find_policy(body.name))
    check_setting_names(body.name, body.settings, [name for name in defaults if name != "name"])
    try:
        return policies.policy_from_data({**defaults, **body.settings})
    except PolicyError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise PolicyError(f"invalid settings of policy {body.name!r}: {error}") from None


def limit_from_body(body: LimitBody, number: int) -> dict[str, Any]:
    """A limit as `Limit.to_data` writes it."""
    data: dict[str, Any] = msgspec.to_builtins(body)
    sides = {"at_most", "at_least"}
    forms = [["cost"], *([key, *kind.data_fields()] for key, kind in DerivedCost.kinds.items())]
    if data.keys() - sides not in map(set, forms) or len(data.keys() & sides) != 1:
        expected = ", or ".join(" and ".join(names) for names in forms)
        message = f"invalid limit: expected {expected}; and at_most or at_least"
        raise ApiError(422, "invalid", message, field=f"limits[{number}]")
    return data


def prepare_edit(config: RouterConfig, body: EditRouterRequest) -> PreparedConfig:
    """The next configuration of a running router, validated outside the writer."""
    problem = dict(config.problem)
    if body.limits is not UNSET:
        problem["limits"] = [limit_from_body(one, n) for n, one in enumerate(body.limits)]
    problem = add_experts(remove_experts(problem, body.remove), body.add)
    check_experts_exist(problem, (*body.pause, *body.resume))
    paused = (set(config.paused) | set(body.pause)) - set(body.resume) - set(body.remove)
    names = ("wait", "default", "aggregate", "max_contexts")
    fields = {name: getattr(body, name) for name in names}
    changed = structs.replace(
        config,
        problem=problem,
        paused=tuple(name for name in problem["experts"] if name in paused),
        **{name: value for name, value in fields.items() if value is not UNSET},
    )
    if changed.max_contexts < config.max_contexts:
        expected = f"at least {config.max_contexts:,}, as many as now"
        raise PolicyError("max_contexts", got=changed.max_contexts, expected=expected)
    try:
        prepared = prepare_config(changed)
    except (InfeasibleLimits, PolicyError) as error:
        raise error.for_running_router() from None
    if changed.max_contexts > config.max_contexts:
        core = prepared.core
        check_max_contexts(core.policy, core.problem.size, changed.max_contexts)
    return prepared


def remove_experts(problem: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The problem without some experts, their costs and their memberships."""
    check_experts_exist(problem, names)
    removed = set(names)
    kept = [i for i, expert in enumerate(problem["experts"]) if expert not in removed]
    return {
        **problem,
        "experts": [problem["experts"][i] for i in kept],
        "costs": {cost: [row[i] for i in kept] for cost, row in problem["costs"].items()},
        "limits": [
            {**one, "members": [m for m in one["members"] if m not in removed]}
            if "members" in one
            else one
            for one in problem["limits"]
        ],
    }


def add_experts(problem: dict[str, Any], experts: tuple[NewExpert, ...]) -> dict[str, Any]:
    """The problem with more experts, at the end."""
    new_members: dict[str, list[str]] = {
        one["share"]: [] for one in problem["limits"] if "share" in one
    }
    for size, expert in enumerate(experts, len(problem["experts"]) + 1):
        check_new_expert(problem, expert, size)
        for share in dict.fromkeys(expert.shares):
            if share not in new_members:
                remedy = suggest_known_name(share, tuple(new_members), "shares")
                raise ProblemError(f"expert {expert.name!r}: no share {share!r}", remedy=remedy)
            new_members[share].append(expert.name)
    return {
        **problem,
        "experts": [*problem["experts"], *(one.name for one in experts)],
        "costs": {
            cost: [*row, *(one.costs[cost] for one in experts)]
            for cost, row in problem["costs"].items()
        },
        "limits": [
            {**one, "members": [*one["members"], *new_members[one["share"]]]}
            if "share" in one
            else one
            for one in problem["limits"]
        ],
    }


def check_new_expert(problem: dict[str, Any], expert: NewExpert, size: int) -> None:
    """Reject an expert with other costs than the problem's, or with which the floor is too high."""
    if problem["floor"] * size > 1:
        raise ProblemError(
            f"cannot add expert {expert.name!r}: a floor of {problem['floor']:.6g} for each of "
            f"{size} experts exceeds 1",
            remedy="add fewer experts, or create a new router with a lower floor",
        )
    if expert.costs.keys() != problem["costs"].keys():
        expected = ", ".join(problem["costs"]) or "none"
        got = ", ".join(expert.costs) or "none"
        raise ProblemError(f"costs of expert {expert.name!r}", got=got, expected=expected)


def check_experts_exist(problem: dict[str, Any], names: tuple[str, ...]) -> None:
    known = set(problem["experts"])
    for name in names:
        if name not in known:
            remedy = suggest_known_name(name, tuple(problem["experts"]), "experts")
            raise ProblemError(f"no expert named {name!r}", remedy=remedy)
