"""The OpenAPI document describes the served routes."""

import functools
import json
import operator
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from schemathesis.specs.openapi.definitions import OPENAPI_31

from bylot.server.routes import ROUTES, build_openapi, error_statuses
from live_server import ServerClient


def test_the_document_is_valid_openapi() -> None:
    document = build_openapi(ROUTES)
    validator = validator_for(OPENAPI_31)(OPENAPI_31)
    assert not [error.message for error in validator.iter_errors(document)]
    broken = {**document, "paths": {"no slash": {"get": {}}}, "info": {}}
    assert list(validator.iter_errors(broken))


def test_every_schema_is_valid_and_every_reference_resolves() -> None:
    document = build_openapi(ROUTES)
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for ref in list_references(document):
        functools.reduce(operator.getitem, ref.removeprefix("#/").split("/"), document)


def test_types_of_the_api_are_freed_without_a_crash() -> None:
    """msgspec frees the pattern of a text twice if the same union has a dict or a list."""
    code = "from bylot.server.routes import openapi_document; openapi_document()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


def list_references(part: Any) -> Iterator[str]:
    """All references below a part of the document."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for inner in part.values():
            yield from list_references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from list_references(inner)


def test_the_served_document_equals_the_built_one(server: ServerClient) -> None:
    answer = server.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == json.loads(msgspec.json.encode(build_openapi(ROUTES)))


def test_every_route_has_an_id_a_summary_and_its_errors() -> None:
    document = build_openapi(ROUTES)
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len(operations) == len(ROUTES)
    assert len({one["operationId"] for one in operations}) == len(ROUTES)
    for route in ROUTES:
        one = document["paths"][route.path][route.method.lower()]
        assert one["summary"]
        assert {str(status) for status in error_statuses(route)} < set(one["responses"])
        if route.scope is not None:
            assert {"401", "403", "429", "500", "503"} <= set(one["responses"])


def test_a_route_with_a_body_is_documented_with_a_body(server: ServerClient) -> None:
    """A body is required in the document exactly if the parser requires it."""
    for route in ROUTES:
        one = build_openapi(ROUTES)["paths"][route.path][route.method.lower()]
        assert ("requestBody" in one) == (route.body is not None)
        if "requestBody" in one and one["requestBody"]["required"]:
            path = route.path.format(name="a", id="a.1.1.9f3ab01c", tenant="t")
            expected = (400,) if route.is_chat else (404, 422)
            assert server.request(route.method, path, json={}).status_code in expected
