"""The endpoints about the server itself, and the table of all operations of the API.

Requests are dispatched by this table; the OpenAPI document and the HTTP reference are made from it
and from the types of `bylot.api`.
"""

import functools
import inspect
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from bylot import __version__, api
from bylot.errors import BylotError
from bylot.problem_files.schema import packaged_text
from bylot.server import chat_endpoints, other_apis, router_endpoints
from bylot.server.chat_endpoints import ChatEndpoint
from bylot.server.endpoint import (
    ApiRequest,
    ApiRoute,
    Endpoint,
    HttpResponse,
    encode_json,
    json_response,
    route,
)
from bylot.server.http_errors import unavailable
from bylot.server.state import ServerState
from bylot.server.writer import timeout_error

MAX_FAILED_REFRESHES = 5  # of the API keys, one a second, until the server is not ready
PROMETHEUS_HEADERS = (
    (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
)
READY_TIMEOUT_S = 2.5  # for the store, and for the oldest batch of the writer


@route("GET /healthz", None, 200, api.HealthResponse)
async def get_liveness(request: ApiRequest[None, None]) -> HttpResponse:
    """The process is up."""
    return json_response(200, api.HealthResponse("up"))


@route("GET /readyz", None, 200, api.HealthResponse, 503)
async def get_readiness(request: ApiRequest[None, None]) -> HttpResponse:
    """Store and keys can be read, policies are compiled, and the server is not shutting down."""
    await check_readiness(request.state)
    return json_response(200, api.HealthResponse("ready"))


async def check_readiness(state: ServerState) -> None:
    """Raise the reason why the server is not ready, if there is one."""
    writer = state.writer
    if writer.draining or state.stopping:
        raise unavailable("draining", "the server is shutting down")
    if writer.store_error is not None:
        raise writer.store_error
    if state.credentials.failed_refreshes >= MAX_FAILED_REFRESHES:
        raise unavailable(
            "keys_unreadable",
            "the API keys of the store cannot be read; the server log has the reason",
        )
    if writer.age_s > READY_TIMEOUT_S:
        raise timeout_error(READY_TIMEOUT_S)
    state.compiler.check_ready()
    await state.reader.read(lambda store: store.routers(limit=1), READY_TIMEOUT_S)


@route("GET /metrics", "read", 200, str)
async def get_metrics(request: ApiRequest[None, None]) -> HttpResponse:
    """Metrics for Prometheus; per router for those that were used last, if the server is ready."""
    state, metrics, views = request.state, request.state.metrics, list[api.RouterView]()
    try:
        await check_readiness(state)
        await state.gateway.load_all_facts()
        names = [name for name in metrics.recent if request.caller.can_access(name)]
        found = (await state.commands.show_routers(names)).values()
        views = [state.gateway.judge(one) for one in found if isinstance(one, api.RouterView)]
        metrics.ready.set(1)
    except BylotError:  # the other metrics say why
        metrics.ready.set(0)
    metrics.queue.set(state.writer.pending)
    metrics.open_chats.set(state.gateway.open_chats)
    gateways = state.gateway.routers.values()
    visible = [one for one in gateways if request.caller.can_access(one.router)]
    return HttpResponse(200, metrics.render(views, visible), PROMETHEUS_HEADERS)


@route("GET /openapi.json", None, 200, dict[str, Any])
async def get_openapi(request: ApiRequest[None, None]) -> HttpResponse:
    """The OpenAPI document of this API."""
    return HttpResponse(200, openapi_document())


ROUTES: tuple[ApiRoute, ...] = (
    *(
        one
        for module in (router_endpoints, chat_endpoints, other_apis)
        for one in vars(module).values()
        if isinstance(one, ApiRoute)
    ),
    get_liveness,
    get_readiness,
    get_metrics,
    get_openapi,
)


@functools.cache
def openapi_document() -> bytes:
    return encode_json(build_openapi(ROUTES))


AnyEndpoint = Endpoint | ChatEndpoint
ITEM = "*"  # in place of a second variable, the last part of a path, which may contain slashes


class RouteTable:
    """Finds the endpoints of a path by look-ups, since every request passes here."""

    def __init__(self, state: ServerState) -> None:
        self.fixed: dict[str, dict[str, AnyEndpoint]] = {}
        self.variable: dict[
            str, dict[str, dict[str, AnyEndpoint]]
        ] = {}  # by prefix, then by suffix
        for one in ROUTES:
            prefix, brace, rest = one.path.partition("{")
            if brace:
                suffixes = self.variable.setdefault(prefix, {})
                methods = suffixes.setdefault(re.sub(r"{\w+}", ITEM, rest.partition("}")[2]), {})
            else:
                methods = self.fixed.setdefault(prefix, {})
            methods[one.method] = (ChatEndpoint if one.is_chat else Endpoint)(state, one)

    def find(self, path: str) -> tuple[dict[str, AnyEndpoint] | None, str]:
        """The endpoints of a path by method, None if there are none; and its variable part."""
        for prefix, suffixes in self.variable.items():
            if path.startswith(prefix):
                target, slash, rest = path[len(prefix) :].partition("/")
                kind, _, item = rest.partition("/")
                with_item = suffixes.get(f"/{kind}/{ITEM}") if item else None
                if with_item is not None:
                    return with_item, f"{target}/{item}"
                return suffixes.get(slash + rest) if target else None, target
        return self.fixed.get(path), ""


Schemas = dict[Any, dict[str, Any]]
SCHEMA_REF = "#/components/schemas/{name}"
OPENAI_SCHEMAS = json.loads(Path(__file__).with_name("openai.schema.json").read_text("utf-8"))
"""Bodies of the gateway as OpenAI's clients send and receive them, with their main fields. Requests
are checked by `gateway.chat` and `gateway.responses`.
"""
JSON_TYPE = "application/json"
STATUS_DESCRIPTIONS = {
    400: "Malformed request: invalid JSON, or a duplicate header",
    401: "No valid API key",
    403: "The API key does not permit this request",
    404: "No such router or decision",
    405: "Method not allowed",
    408: "The body did not arrive in time",
    409: "Conflict with an earlier request or with the current state",
    413: "The body is too large",
    415: "The content type is not supported",
    422: "Invalid request",
    429: "Rate limit of the API key exceeded",
    500: "Internal error; see the server log",
    502: "No member of the panel answered",
    503: "Temporarily unavailable; retry after the seconds of Retry-After",
    504: "No member of the panel answered in time",
}
RETRYABLE_STATUSES = (409, 429, 502, 503)  # may have a header Retry-After
PLAIN_STATUSES = (405, 408)  # found before the route is: errors of the gateway have no other shape
TAG_BY_PREFIX = {
    "/v1/routers/{name}/decisions": "decisions",
    "/v1/routers": "routers",
    "/v1/decisions": "decisions",
    "/v1/rewards": "decisions",
    "/v1/chat": "gateway",
    "/v1/responses": "gateway",
    "/v1/models": "gateway",
    "/feedback": "feedback",
    "/v1/router/outcomes": "feedback",
    "/personalizer": "personalizer",
    "/": "server",
}


def build_openapi(routes: Iterable[ApiRoute]) -> dict[str, Any]:
    routes = tuple(routes)
    kinds = dict[Any, None].fromkeys(
        kind
        for route in routes
        for kind in (route.body, route.query, route.success[1], api.ErrorBody)
        if kind is not None and not isinstance(kind, str)
    )
    found, named = msgspec.json.schema_components(kinds, ref_template=SCHEMA_REF)
    schemas = dict(zip(kinds, found, strict=True))
    schemas |= {name: {"$ref": SCHEMA_REF.format(name=name)} for name in OPENAI_SCHEMAS}
    problem = packaged_text("problem.schema.json").replace("#/$defs/", f"{api.PROBLEM_REF}/$defs/")
    paths: dict[str, dict[str, Any]] = {}
    for operation in routes:
        methods = paths.setdefault(operation.path, {})
        methods[operation.method.lower()] = describe_operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bylot",
            "version": __version__,
            "summary": "Panels of experts drawn at random, under long-run limits",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {**named, **OPENAI_SCHEMAS, "Problem": json.loads(problem)},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key from `bylot keys create`; not needed on the server's "
                    "own machine while no key exists.",
                }
            },
        },
    }


def describe_operation(route: ApiRoute, schemas: Schemas) -> dict[str, Any]:
    summary = (inspect.getdoc(route.function) or "").partition("\n")[0].rstrip(".")
    made: dict[str, Any] = {
        "operationId": getattr(route.function, "__name__", ""),
        "summary": summary,
        "tags": [next(tag for start, tag in TAG_BY_PREFIX.items() if route.path.startswith(start))],
        "parameters": describe_parameters(route),
        "responses": describe_responses(route, schemas),
        "security": [{}] if route.scope is None else [{"key": [route.scope]}, {}],
    }
    if route.body is not None:
        fields = () if route.is_chat else msgspec.structs.fields(route.body)
        required = route.is_chat or any(field.required for field in fields)
        content = {JSON_TYPE: {"schema": schemas[route.body]}}
        if route.read_file is not None:
            problem = {"$ref": api.PROBLEM_REF}
            content[JSON_TYPE]["schema"] = {"anyOf": [schemas[route.body], problem]}
            content["application/yaml"] = {"schema": problem}
        made["requestBody"] = {"required": required, "content": content}
    return made


def describe_parameters(route: ApiRoute) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1}
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": text}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    if route.query is not None:
        shape = msgspec.json.schema(route.query)["$defs"][route.query.__name__]
        found += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in shape["properties"].items()
        ]
    if route.has_key_header:
        schema = msgspec.json.schema(api.IdempotencyKey)
        found.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    return found


def describe_responses(route: ApiRoute, schemas: Schemas) -> dict[str, Any]:
    status, kind = route.success
    good: dict[str, Any] = {"description": "Success"}
    if kind is str:
        good["content"] = {"text/plain": {"schema": {"type": "string"}}}
    elif kind is not None:
        good["content"] = {JSON_TYPE: {"schema": schemas[kind]}}
    if route.is_chat:
        good["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    made = {str(status): good}
    for number in error_statuses(route):
        shape = "OpenAiError" if route.is_openai and number not in PLAIN_STATUSES else api.ErrorBody
        made[str(number)] = bad = {
            "description": STATUS_DESCRIPTIONS[number],
            "content": {JSON_TYPE: {"schema": schemas[shape]}},
        }
        if number in RETRYABLE_STATUSES:
            bad["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 1}}}
    return made


def error_statuses(route: ApiRoute) -> list[int]:
    numbers = {400, 405, 500, *route.errors}
    if route.scope is not None:
        numbers |= {401, 403, 429, 503}
    if "{" in route.path:
        numbers.add(404)
    if route.is_chat:
        numbers |= {408, 413}
    elif route.body is not None:
        numbers |= {408, 413, 415, 422}
    if route.query is not None:
        numbers.add(422)
    return sorted(numbers)
