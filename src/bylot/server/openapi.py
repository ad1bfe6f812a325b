"""The OpenAPI document, made from the table of routes and the types of requests and answers."""

import inspect
from collections.abc import Iterable
from typing import Any

import msgspec

from bylot import api
from bylot.api import ErrorBody
from bylot.server.endpoint import ApiRoute
from bylot.version import __version__

SCHEMA_REF = "#/components/schemas/{name}"
JSON_TYPE = "application/json"
STATUS_DESCRIPTIONS = {
    400: "The body is not JSON, or a header is there twice",
    401: "No valid key came with the request",
    403: "The key is not for this",
    404: "There is no such router or decision",
    405: "This is not done here",
    408: "The body did not come in time",
    409: "This does not go with what was done before",
    413: "The body is too large",
    415: "The body is not declared as JSON",
    422: "The request is understood, and cannot be done",
    429: "Too many requests of this key",
    500: "The server failed; its log says more",
    503: "Not now: try again after the seconds of Retry-After",
}
RETRYABLE_STATUSES = (409, 429, 503)
"""Refusals that may say when to try again."""


def build_openapi(routes: Iterable[ApiRoute]) -> dict[str, Any]:
    """The whole document, of version 3.1."""
    routes = tuple(routes)
    schemas = SchemaIndex(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = describe_operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bylot",
            "version": __version__,
            "summary": "Panels of experts drawn by lot, under long-run limits",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.named,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key of `bylot keys create`; none is needed on the server's "
                    "own machine while there are no keys.",
                }
            },
        },
    }


class SchemaIndex:
    """Schemas of all types that routes speak of."""

    def __init__(self, routes: Iterable[ApiRoute]) -> None:
        kinds = dict[Any, None].fromkeys(
            kind
            for route in routes
            for kind in (route.takes, route.query, route.gives[1], ErrorBody)
            if kind is not None
        )
        made, self.named = msgspec.json.schema_components(kinds, ref_template=SCHEMA_REF)
        self.of = dict(zip(kinds, made, strict=True))


def describe_operation(route: ApiRoute, schemas: SchemaIndex) -> dict[str, Any]:
    """One route."""
    said = inspect.getdoc(route.does) or ""
    made: dict[str, Any] = {
        "operationId": f"{route.does.__module__.rpartition('.')[2]}_{route.does.__name__}",
        "summary": said.partition("\n")[0].rstrip("."),
        "tags": [operation_tag(route)],
        "parameters": describe_parameters(route, schemas),
        "responses": describe_responses(route, schemas),
        "security": [{}] if route.scope is None else [{"key": [route.scope]}, {}],
    }
    if route.takes is not None:
        required = any(field.required for field in msgspec.structs.fields(route.takes))
        content = {JSON_TYPE: {"schema": schemas.of[route.takes]}}
        made["requestBody"] = {"required": required, "content": content}
    return made


def operation_tag(route: ApiRoute) -> str:
    """Under which heading a route is told."""
    for start, heading in TAG_BY_PREFIX.items():
        if route.path.startswith(start):
            return heading
    return "server"


TAG_BY_PREFIX = {
    "/v1/routers/{name}/decisions": "decisions",
    "/v1/routers": "routers",
    "/v1/decisions": "decisions",
    "/v1/rewards": "decisions",
    "/personalizer": "personalizer",
}


def describe_parameters(route: ApiRoute, schemas: SchemaIndex) -> list[dict[str, Any]]:
    """What stands in the path, in the query and in headers."""
    found = []
    _, brace, rest = route.path.partition("{")
    if brace:
        name = rest.partition("}")[0]
        schema = {"type": "string", "minLength": 1}
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    if route.query is not None:
        shape = schemas.named[route.query.__name__]
        for name, schema in shape["properties"].items():
            found.append({"name": name, "in": "query", "required": False, "schema": schema})
    if route.keyed:
        schema = {
            "type": "string",
            "minLength": 1,
            "maxLength": api.MAX_TEXT_CHARS,
            "pattern": api.KEY_PATTERN,
        }
        found.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    return found


def describe_responses(route: ApiRoute, schemas: SchemaIndex) -> dict[str, Any]:
    """What may come back."""
    status, kind = route.gives
    good: dict[str, Any] = {"description": "Done"}
    if kind is str:
        good["content"] = {"text/plain": {"schema": {"type": "string"}}}
    elif kind is not None:
        good["content"] = {JSON_TYPE: {"schema": schemas.of[kind]}}
    made = {str(status): good}
    for number in error_statuses(route):
        made[str(number)] = bad = {
            "description": STATUS_DESCRIPTIONS[number],
            "content": {JSON_TYPE: {"schema": schemas.of[ErrorBody]}},
        }
        if number in RETRYABLE_STATUSES:
            bad["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 1}}}
    return made


def error_statuses(route: ApiRoute) -> list[int]:
    """Statuses of all refusals that a route may give."""
    numbers = {400, 405, 500, *route.errors}
    if route.scope is not None:
        numbers |= {401, 403, 429, 503}
    if "{" in route.path:
        numbers.add(404)
    if route.takes is not None:
        numbers |= {408, 413, 415, 422}
    if route.query is not None:
        numbers.add(422)
    return sorted(numbers)
