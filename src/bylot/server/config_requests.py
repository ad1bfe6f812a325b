"""Builds the configuration of a new router from a problem file or from a request to create it, and
the next one of a running router from a request to edit it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, structs

from bylot import api, policies
from bylot.errors import InfeasibleLimits, PolicyError, ProblemError
from bylot.eventlog.config_validation import PreparedConfig, prepare_config
from bylot.policies.registry import (
    check_max_contexts,
    check_panel_size,
    check_setting_names,
    fill_auto_contexts,
)
from bylot.problem import Limit, Share
from bylot.problem.validation import suggest_known_name
from bylot.problem_files.document import Document, parse_document
from bylot.problem_files.experts import (
    ExpertList,
    Group,
    as_list,
    read_expert_costs,
    read_max_costs,
)
from bylot.problem_files.problem_file import ProblemFile, read_problem
from bylot.problem_files.schema import SCHEMA, check_value
from bylot.problem_files.written_limit import read_limits
from bylot.router.config import RouterConfig, choose_max_contexts, problem_to_data
from bylot.server.http_errors import invalid
from bylot.server.request_parsing import get_media_type, parse_json_body
from bylot.server.settings import RouterEntry

MAX_LOAD_S = 1.0  # that a request waits for a policy; enough if it was compiled before
UNCHANGED_FIELDS = ("seed", "horizon", "feedback", "memory", "wait", "default", "aggregate")
"""Of a request to create a router: as in its configuration."""

EDITED_FIELDS = ("wait", "default", "aggregate", "max_contexts")
"""Of a configuration: those that an edit changes, beside its problem and who is paused."""

YAML_MEDIA_TYPES = (b"application/yaml", b"application/x-yaml", b"text/yaml", b"text/x-yaml")
MAX_YAML_ENTRIES = 20_000
MAX_MEMBER_CHARS = 1_000_000  # of the names of members, which every limit on a group repeats
MAX_PART_ITEMS = {
    "experts": api.MAX_EXPERTS,
    "costs": api.MAX_COSTS,
    "limits": api.MAX_LIMITS,
    "contexts": api.MAX_CONTEXTS,
}
JSON_PROBLEM_DECODER = msgspec.json.Decoder(api.ProblemPart)


def request_from_file(
    content: bytes, content_type: bytes | None, query: api.CreateRouterQuery
) -> api.CreateRouterRequest | None:
    """The request whose body is a problem file; None if the body is a request in JSON."""
    is_yaml = get_media_type(content_type) in YAML_MEDIA_TYPES
    if query.name is None:
        if is_yaml or query != api.CreateRouterQuery():
            raise invalid(
                "name", "no name for the router: POST a problem file to /v1/routers?name=NAME"
            )
        return None
    problem: Any = content.decode("utf-8-sig", "surrogateescape")  # is parsed in another thread
    if not is_yaml:
        problem = Document(data=parse_json_body(JSON_PROBLEM_DECODER, content, content_type))
    return api.CreateRouterRequest(problem=problem, **structs.asdict(query))


def prepare_create(
    body: api.CreateRouterRequest, require: Callable[[policies.Policy, float], None]
) -> PreparedConfig:
    """The configuration of a new router, validated outside the writer.

    require: raises an error if a policy is not compiled within some seconds. Nothing is created
             then: whether a policy can keep the limits is computed by its compiled code
    """
    config, policy = config_from_file(read_problem_body(body.problem), body)
    require(policy, MAX_LOAD_S)
    return prepare_config(config)


def config_from_file(
    file: ProblemFile, given: api.CreateRouterRequest | RouterEntry
) -> tuple[RouterConfig, policies.Policy]:
    """The configuration of a new router, and its policy; what is not given is as in the file."""
    declared = given.max_contexts or len(file.contexts) or None
    policy = fill_auto_contexts(policy_from_body(given.policy), declared)
    with file.document.locate_errors("draws"):
        check_panel_size(policy, file.problem)
    resolved = policies.resolve_policy(policy, file.problem, given.feedback or "panel")
    config = RouterConfig(
        problem=problem_to_data(file.problem),
        policy=policies.policy_to_data(policy),
        rewards=given.rewards or file.rewards,
        max_contexts=given.max_contexts or choose_max_contexts(resolved, file.problem.size),
        **{name: getattr(given, name) for name in UNCHANGED_FIELDS},
    )
    return config, resolved


def read_problem_body(body: Any) -> ProblemFile:
    """The problem of a request: data of its field `problem`, a document, or a text in YAML."""
    document = body
    if isinstance(body, str):
        document = parse_document(Document(max_entries=MAX_YAML_ENTRIES), body, ".yaml")
    elif not isinstance(body, Document):
        document = Document(data=body, parent="problem.")
    check_part_sizes(document)
    file = read_problem(document)
    check_limit_sizes(document, file.problem.limits)
    return file


def policy_from_body(body: str | api.PolicyBody) -> policies.Policy | policies.Auto:
    """A policy from its name or spec, or from a name and settings."""
    if isinstance(body, str):
        return policies.find_policy(body)
    if body.settings and ":" in body.name:
        raise PolicyError(
            f"policy {body.name!r} has settings in its name and in settings",
            remedy="use one of them",
        )
    defaults = policies.policy_to_data(policies.find_policy(body.name))
    check_setting_names(body.name, body.settings, [name for name in defaults if name != "name"])
    try:
        return policies.policy_from_data({**defaults, **body.settings})
    except PolicyError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise PolicyError(f"invalid settings of policy {body.name!r}: {error}") from None


def check_part_sizes(document: Document) -> None:
    """Refuse a problem with too many parts before any of them is read."""
    data = document.data if isinstance(document.data, dict) else {}
    for key, most in {**MAX_PART_ITEMS, "draws": api.MAX_DRAWS}.items():
        part = data.get(key)
        size = len(part) if isinstance(part, list | dict) else part if key == "draws" else 0
        if isinstance(size, int) and size > most:
            raise document.error((key,), f"{size:,} {key}", expected=f"at most {most:,}")


def check_limit_sizes(document: Document, limits: Sequence[Limit]) -> None:
    """Refuse limits that are too many, or that repeat the names of too many members."""
    members = [limit.cost.members for limit in limits if isinstance(limit.cost, Share)]
    for size, most, what in (
        (len(limits), api.MAX_LIMITS, "upper and lower limits"),
        (sum(sum(map(len, one)) for one in members), MAX_MEMBER_CHARS, "characters of members"),
    ):
        if size > most:
            raise document.error(
                ("limits",),
                f"{size:,} {what} in all limits",
                expected=f"at most {most:,}",
                remedy="limit fewer groups",
            )


def edit_config(config: RouterConfig, body: api.EditRouterRequest) -> RouterConfig:
    """Return the next configuration of a running router, which may not be playable."""
    problem = dict(config.problem)
    if body.limits is not UNSET:
        problem["limits"] = read_new_limits(problem, body)
    if body.min_draws is not UNSET:
        problem["min_draws"] = body.min_draws
    problem = change_experts(problem, body)
    check_experts_exist(problem, (*body.pause, *body.resume))
    paused = (set(config.paused) | set(body.pause)) - set(body.resume) - set(body.remove)
    fields = {name: getattr(body, name) for name in EDITED_FIELDS}
    changed = structs.replace(
        config,
        problem=problem,
        paused=tuple(name for name in problem["experts"] if name in paused),
        **{name: value for name, value in fields.items() if value is not UNSET},
    )
    if changed.max_contexts < config.max_contexts:
        raise PolicyError(
            "max_contexts",
            got=changed.max_contexts,
            expected=f"at least {config.max_contexts:,}, as many as now",
        )
    return changed


def prepare_edit(config: RouterConfig, body: api.EditRouterRequest) -> PreparedConfig:
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


def read_new_limits(problem: api.ProblemPart, body: api.EditRouterRequest) -> list[api.ProblemPart]:
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


def change_experts(problem: api.ProblemPart, body: api.EditRouterRequest) -> api.ProblemPart:
    """The problem without some experts, and with new ones at the end: costs and memberships too."""
    check_experts_exist(problem, body.remove)
    document, removed = Document(data={"add": list(body.add)}), set(body.remove)
    items = {"type": "array", "items": SCHEMA["$defs"]["expert"]}
    check_value(document, ("add",), document.data["add"], items)
    costs = read_expert_costs(document, body.add, list(problem["costs"]), "add")
    kept = [i for i, name in enumerate(problem["experts"]) if name not in removed]
    names = [*(problem["experts"][i] for i in kept), *(one["name"] for one in body.add)]
    if (floor := problem["floor"]) * len(names) > 1:
        raise document.error(
            ("add",),
            f"a floor of {floor:.6g} for each of {len(names)} experts exceeds 1",
            remedy="add fewer experts, or create a new router with a lower floor",
        )
    members: dict[str, list[str]] = {
        one["share"]: [name for name in one["members"] if name not in removed]
        for one in problem["limits"]
        if "share" in one
    }
    for n, expert in enumerate(body.add):
        for group in dict.fromkeys(as_list(expert.get("group", []))):
            if group not in members:
                raise document.error(
                    ("add", n, "group"),
                    f"expert {expert['name']!r}: no limit on a group {group!r}",
                    remedy=suggest_known_name(group, tuple(members), "limited groups"),
                )
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


def check_experts_exist(problem: api.ProblemPart, names: tuple[str, ...]) -> None:
    known = set(problem["experts"])
    for name in names:
        if name not in known:
            raise ProblemError(
                f"no expert named {name!r}",
                remedy=suggest_known_name(name, tuple(problem["experts"]), "experts"),
            )
