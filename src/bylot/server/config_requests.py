"""Builds the configuration of a new router from a problem file or from a request to create it."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import structs

from bylot import api, policies
from bylot.api import CreateRouterRequest, PolicyBody, ProblemPart
from bylot.errors import PolicyError
from bylot.eventlog.config_validation import PreparedConfig, prepare_config
from bylot.policies.registry import check_panel_size, check_setting_names, fill_auto_contexts
from bylot.problem import Limit, Share
from bylot.problem_files.document import Document, parse_document
from bylot.problem_files.problem_file import ProblemFile, read_problem
from bylot.router.config import RouterConfig, choose_max_contexts
from bylot.router.persistence import problem_to_data
from bylot.server.http_errors import ApiError
from bylot.server.request_parsing import get_media_type, parse_json_body
from bylot.server.settings import RouterEntry

MAX_LOAD_S = 1.0  # that a request waits for a policy; enough if it was compiled before
UNCHANGED_FIELDS = ("seed", "horizon", "feedback", "memory", "wait", "default", "aggregate")
"""Of a request to create a router: as in its configuration."""

YAML_MEDIA_TYPES = (b"application/yaml", b"application/x-yaml", b"text/yaml", b"text/x-yaml")
MAX_YAML_ENTRIES = 20_000
MAX_MEMBER_CHARS = 1_000_000  # of the names of members, which every limit on a group repeats
MAX_PART_ITEMS = {
    "experts": api.MAX_EXPERTS,
    "costs": api.MAX_COSTS,
    "limits": api.MAX_LIMITS,
    "contexts": api.MAX_CONTEXTS,
}
JSON_PROBLEM_DECODER = msgspec.json.Decoder(ProblemPart)


def request_from_file(
    content: bytes, content_type: bytes | None, query: api.CreateRouterQuery
) -> CreateRouterRequest | None:
    """The request whose body is a problem file; None if the body is a request in JSON."""
    is_yaml = get_media_type(content_type) in YAML_MEDIA_TYPES
    if query.name is None:
        if is_yaml or query != api.CreateRouterQuery():
            message = "no name for the router: POST a problem file to /v1/routers?name=NAME"
            raise ApiError(422, "invalid", message, field="name")
        return None
    problem: Any = content.decode("utf-8-sig", "surrogateescape")  # is parsed in another thread
    if not is_yaml:
        problem = Document(data=parse_json_body(JSON_PROBLEM_DECODER, content, content_type))
    return CreateRouterRequest(problem=problem, **structs.asdict(query))


def prepare_create(
    body: CreateRouterRequest, require: Callable[[policies.Policy, float], None]
) -> PreparedConfig:
    """The configuration of a new router, validated outside the writer.

    require: raises an error if a policy is not compiled within some seconds. Nothing is created
             then: whether a policy can keep the limits is computed by its compiled code
    """
    config, policy = config_from_file(read_problem_body(body.problem), body)
    require(policy, MAX_LOAD_S)
    return prepare_config(config)


def config_from_file(
    file: ProblemFile, given: CreateRouterRequest | RouterEntry
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
            remedy = "limit fewer groups"
            parts = {"expected": f"at most {most:,}", "remedy": remedy}
            raise document.error(("limits",), f"{size:,} {what} in all limits", **parts)
