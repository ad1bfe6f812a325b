"""The OpenAPI document, generated from the route table and the types of `bylot.api`."""

import inspect
import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from bylot import __version__
from bylot.api import PROBLEM_REF, ErrorBody, IdempotencyKey
from bylot.problem_files.schema import packaged_text
from bylot.server.endpoint import ApiRoute
from bylot.server.openai_types import OpenAiError

Schemas = dict[Any, dict[str, Any]]
SCHEMA_REF = "#/components/schemas/{name}"
JSON_TYPE = "application/json"
EVENTS_TYPE = "text/event-stream"
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
        for kind in (route.body, route.query, route.success[1], ErrorBody, OpenAiError)
        if kind is not None
    )
    found, named = msgspec.json.schema_components(kinds, ref_template=SCHEMA_REF)
    schemas = dict(zip(kinds, found, strict=True))
    problem = packaged_text("problem.schema.json").replace("#/$defs/", f"{PROBLEM_REF}/$defs/")
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = describe_operation(route, schemas)
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
            "schemas": {**named, "Problem": json.loads(problem)},
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
        required = any(field.required for field in msgspec.structs.fields(route.body))
        content = {JSON_TYPE: {"schema": schemas[route.body]}}
        if route.read_file is not None:
            problem = {"$ref": PROBLEM_REF}
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
        schema = msgspec.json.schema(IdempotencyKey)
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
        good["content"][EVENTS_TYPE] = {"schema": {"type": "string"}}
    made = {str(status): good}
    for number in error_statuses(route):
        shape = OpenAiError if route.is_openai and number not in PLAIN_STATUSES else ErrorBody
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
