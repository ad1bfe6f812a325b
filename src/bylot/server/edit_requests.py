"""Builds the next configuration of a running router from a request to edit it."""

from msgspec import UNSET, structs

from bylot.api import EditRouterRequest, ProblemPart
from bylot.errors import InfeasibleLimits, PolicyError, ProblemError
from bylot.eventlog.config_validation import PreparedConfig, prepare_config
from bylot.policies.registry import check_max_contexts
from bylot.problem.validation import suggest_known_name
from bylot.problem_files.document import Document
from bylot.problem_files.experts import (
    ExpertList,
    Group,
    as_list,
    read_expert_costs,
    read_max_costs,
)
from bylot.problem_files.schema import SCHEMA, check_value
from bylot.problem_files.written_limit import read_limits
from bylot.router.config import RouterConfig
from bylot.server.config_requests import check_limit_sizes


def edit_config(config: RouterConfig, body: EditRouterRequest) -> RouterConfig:
    """Return the next configuration of a running router, which may not be playable."""
    problem = dict(config.problem)
    if body.limits is not UNSET:
        problem["limits"] = read_new_limits(problem, body)
    if body.min_draws is not UNSET:
        problem["min_draws"] = body.min_draws
    problem = change_experts(problem, body)
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
    return changed


def prepare_edit(config: RouterConfig, body: EditRouterRequest) -> PreparedConfig:
    """The next configuration of a running router, validated outside the writer."""
    changed = edit_config(config, body)
    try:
        prepared = prepare_config(changed)
    except (InfeasibleLimits, PolicyError) as error:
        raise error.for_running_router() from None
    if changed.max_contexts > config.max_contexts:
        core = prepared.core
        check_max_contexts(core.policy, core.problem.size, changed.max_contexts)
    return prepared


def read_new_limits(problem: ProblemPart, body: EditRouterRequest) -> list[ProblemPart]:
    """The limits of an edit as `Limit.to_data` writes them; a group is a share of old limits."""
    data = {"limits": list(body.limits or ()), "draws": problem["draws"]}
    document = Document(data=data)
    check_value(document, ("limits",), data["limits"], SCHEMA["properties"]["limits"])
    added = [one["name"] for one in body.add if isinstance(one.get("name"), str)]
    shares = {
        one["share"]: Group(tuple(one["members"]), None, None)
        for one in problem["limits"]
        if "share" in one
    }
    pool = ExpertList((*problem["experts"], *added), problem["costs"], shares, None)
    limits = [one.limit for one in read_limits(document, data, pool)]
    check_limit_sizes(document, limits)
    return [limit.to_data() for limit in limits]


def change_experts(problem: ProblemPart, body: EditRouterRequest) -> ProblemPart:
    """The problem without some experts, and with new ones at the end: costs and memberships too."""
    check_experts_exist(problem, body.remove)
    document, removed = Document(data={"add": list(body.add)}), set(body.remove)
    items = {"type": "array", "items": SCHEMA["$defs"]["expert"]}
    check_value(document, ("add",), document.data["add"], items)
    costs = read_expert_costs(document, body.add, list(problem["costs"]), "add")
    kept = [i for i, name in enumerate(problem["experts"]) if name not in removed]
    names = [*(problem["experts"][i] for i in kept), *(one["name"] for one in body.add)]
    if (floor := problem["floor"]) * len(names) > 1:
        what = f"a floor of {floor:.6g} for each of {len(names)} experts exceeds 1"
        remedy = "add fewer experts, or create a new router with a lower floor"
        raise document.error(("add",), what, remedy=remedy)
    members: dict[str, list[str]] = {
        one["share"]: [name for name in one["members"] if name not in removed]
        for one in problem["limits"]
        if "share" in one
    }
    for n, expert in enumerate(body.add):
        for group in dict.fromkeys(as_list(expert.get("group", []))):
            if group not in members:
                what = f"expert {expert['name']!r}: no limit on a group {group!r}"
                remedy = suggest_known_name(group, tuple(members), "limited groups")
                raise document.error(("add", n, "group"), what, remedy=remedy)
            members[group].append(expert["name"])
    largest = problem.get("max_costs", {})
    more = read_max_costs(document, body.add, costs, "add", largest)
    rows = {
        key: {cost: [*(row[i] for i in kept), *new[cost].tolist()] for cost, row in old.items()}
        for key, old, new in (("costs", problem["costs"], costs), ("max_costs", largest, more))
        if old
    }
    return {
        **problem,
        **rows,
        "experts": names,
        "limits": [
            {**one, "members": members[one["share"]]} if "share" in one else one
            for one in problem["limits"]
        ],
    }


def check_experts_exist(problem: ProblemPart, names: tuple[str, ...]) -> None:
    known = set(problem["experts"])
    for name in names:
        if name not in known:
            remedy = suggest_known_name(name, tuple(problem["experts"]), "experts")
            raise ProblemError(f"no expert named {name!r}", remedy=remedy)
