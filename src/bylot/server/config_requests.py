"""Terms of routers from what was sent: new ones, and edits of those in force."""

from typing import Any

import msgspec
from msgspec import UNSET

from bylot import policies
from bylot.api import CreateRouterRequest, EditRouterRequest, LimitBody, NewExpert, PolicyBody
from bylot.errors import InfeasibleLimits, PolicyError, ProblemError
from bylot.policies.capacity import choose_stored_contexts
from bylot.policies.registry import check_setting_names
from bylot.problem.validation import suggest_known_name
from bylot.router import persistence
from bylot.router.config import RouterConfig
from bylot.router.router import Router
from bylot.server.http_errors import ApiError


def config_from_create(form: CreateRouterRequest) -> RouterConfig:
    """The terms of a new router."""
    problem = msgspec.to_builtins(form.problem)
    problem["limits"] = [limit_from_body(one, n) for n, one in enumerate(form.problem.limits)]
    terms = RouterConfig(
        problem=problem,
        policy=policies.policy_to_data(policy_from_body(form.policy)),
        seed=form.seed,
        horizon=form.horizon,
        rewards=form.rewards,
        memory=form.memory,
        wait=form.wait,
        default=form.default,
        aggregate=form.aggregate,
    )
    made = build_trial_router(terms, form.max_contexts)
    return msgspec.structs.replace(
        terms,
        problem=persistence.problem_to_data(made.problem),
        max_contexts=form.max_contexts or choose_stored_contexts(made.policy, made.problem.size),
    )


def policy_from_body(form: str | PolicyBody) -> policies.Policy | policies.Auto:
    """A policy by its name, or with settings of its own."""
    if isinstance(form, str):
        return policies.find_policy(form)
    if form.settings and ":" in form.name:
        raise PolicyError(
            f"policy {form.name!r} has settings of its own beside its name; give them in one place"
        )
    usual = policies.policy_to_data(policies.find_policy(form.name))
    check_setting_names(form.name, form.settings, [name for name in usual if name != "name"])
    try:
        return policies.policy_from_data({**usual, **form.settings})
    except PolicyError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise PolicyError(f"settings of policy {form.name!r}: {error}") from None


def limit_from_body(form: LimitBody, number: int) -> dict[str, Any]:
    """A limit as `persistence.write_limit` has it."""
    given = msgspec.to_builtins(form)
    of, side = given.keys() & {"cost", "share", "members"}, given.keys() & {"at_most", "at_least"}
    if of not in ({"cost"}, {"share", "members"}) or len(side) != 1:
        message = "a limit is {cost} or {share, members}, with either at_most or at_least"
        raise ApiError(422, "invalid", message, field=f"limits[{number}]")
    return dict(given)


def config_from_edit(terms: RouterConfig, form: EditRouterRequest) -> RouterConfig:
    """The terms in force, with some of them changed."""
    problem = dict(terms.problem)
    if form.limits is not UNSET:
        problem["limits"] = [limit_from_body(one, n) for n, one in enumerate(form.limits)]
    for name in form.remove:
        problem = remove_expert(problem, name)
    for expert in form.add:
        problem = add_expert(problem, expert)
    paused = (set(terms.paused) | set(form.pause)) - set(form.resume) - set(form.remove)
    check_experts_exist(problem, (*form.pause, *form.resume))
    changes = {"wait": form.wait, "default": form.default, "aggregate": form.aggregate}
    given = {name: value for name, value in changes.items() if value is not UNSET}
    order = tuple(name for name in problem["experts"] if name in paused)
    try:
        return normalize_config(
            msgspec.structs.replace(terms, problem=problem, paused=order, **given)
        )
    except (InfeasibleLimits, PolicyError) as error:
        raise error.for_running_router() from None


def remove_expert(problem: dict[str, Any], name: str) -> dict[str, Any]:
    """A problem with one expert less: its costs go, and its place in every share."""
    check_experts_exist(problem, (name,))
    gone = problem["experts"].index(name)
    return {
        **problem,
        "experts": drop_item(problem["experts"], gone),
        "costs": {cost: drop_item(row, gone) for cost, row in problem["costs"].items()},
        "limits": [
            {**one, "members": [m for m in one["members"] if m != name]} if "share" in one else one
            for one in problem["limits"]
        ],
    }


def drop_item(row: list[Any], place: int) -> list[Any]:
    """A list without what is at one place."""
    return [*row[:place], *row[place + 1 :]]


def add_expert(problem: dict[str, Any], expert: NewExpert) -> dict[str, Any]:
    """A problem with one expert more, at the end."""
    floor, size = problem["floor"], len(problem["experts"]) + 1
    if floor * size > 1:
        raise ProblemError(
            f"expert {expert.name!r}: a floor of {floor:.6g} for each of {size} experts is more "
            "than 1 in all; add fewer, or make a new router with a lower floor"
        )
    if set(expert.costs) != set(problem["costs"]):
        wanted = ", ".join(problem["costs"]) or "none"
        given = ", ".join(expert.costs) or "none"
        raise ProblemError(f"expert {expert.name!r}: costs {given} given; give all of: {wanted}")
    shares = {one["share"] for one in problem["limits"] if "share" in one}
    for share in expert.shares:
        if share not in shares:
            remedy = suggest_known_name(share, tuple(shares), "shares")
            raise ProblemError(f"expert {expert.name!r}: there is no share {share!r}; {remedy}")
    return {
        **problem,
        "experts": [*problem["experts"], expert.name],
        "costs": {cost: [*row, expert.costs[cost]] for cost, row in problem["costs"].items()},
        "limits": [
            {**one, "members": [*one["members"], expert.name]}
            if one.get("share") in expert.shares
            else one
            for one in problem["limits"]
        ],
    }


def check_experts_exist(problem: dict[str, Any], names: tuple[str, ...]) -> None:
    """Refuse an expert that the problem does not have."""
    for name in names:
        if name not in problem["experts"]:
            remedy = suggest_known_name(name, tuple(problem["experts"]), "experts")
            raise ProblemError(f"there is no expert {name!r}; {remedy}")


def normalize_config(terms: RouterConfig) -> RouterConfig:
    """Terms that a router can go on with."""
    made = build_trial_router(terms)
    return msgspec.structs.replace(terms, problem=persistence.problem_to_data(made.problem))


def build_trial_router(terms: RouterConfig, max_contexts: int | None = None) -> Router:
    """A router of these terms: it is made once here, so that its policy is compiled before the one
    writer needs it.
    """
    return Router(
        persistence.problem_from_data({"floor": None, **terms.problem}),
        policies.policy_from_data(terms.policy),
        seed=terms.seed,
        horizon=terms.horizon,
        rewards=terms.rewards,
        max_contexts=max_contexts,
        memory=terms.memory,
    )
