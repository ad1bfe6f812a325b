"""The OpenAPI document says what is served."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from schemathesis.specs.openapi.definitions import OPENAPI_31

from bylot.server.openapi import build_openapi, error_statuses
from bylot.server.routes import ROUTES
from live_server import ServerClient


def test_the_document_is_one_of_openapi() -> None:
    made = build_openapi(ROUTES)
    validator = validator_for(OPENAPI_31)(OPENAPI_31)
    assert not [error.message for error in validator.iter_errors(made)]
    broken = {**made, "paths": {"no slash": {"get": {}}}, "info": {}}
    assert list(validator.iter_errors(broken))


def test_every_schema_is_one_and_every_reference_leads_somewhere() -> None:
    made = build_openapi(ROUTES)
    for schema in made["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    names = set(made["components"]["schemas"])
    for ref in references(made):
        assert ref.rpartition("/")[2] in names


def references(part: Any) -> Iterator[str]:
    """All references below a part of the document."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for inner in part.values():
            yield from references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from references(inner)


def test_what_is_served_is_what_is_made(server: ServerClient) -> None:
    answer = server.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == json.loads(msgspec.json.encode(build_openapi(ROUTES)))


def test_every_route_has_a_name_a_sentence_and_its_refusals() -> None:
    made = build_openapi(ROUTES)
    operations = [one for path in made["paths"].values() for one in path.values()]
    assert len(operations) == len(ROUTES)
    assert len({one["operationId"] for one in operations}) == len(ROUTES)
    for route in ROUTES:
        one = made["paths"][route.path][route.method.lower()]
        assert one["summary"]
        assert {str(status) for status in error_statuses(route)} < set(one["responses"])
        if route.scope is not None:
            assert {"401", "403", "429", "500", "503"} <= set(one["responses"])


def test_a_route_that_takes_a_body_says_so(server: ServerClient) -> None:
    """What the document promises of a body is what the parser wants."""
    for route in ROUTES:
        one = build_openapi(ROUTES)["paths"][route.path][route.method.lower()]
        assert ("requestBody" in one) == (route.body is not None)
        if "requestBody" in one and one["requestBody"]["required"]:
            path = route.path.format(name="a", id="a.1.1")
            assert server.request(route.method, path, json={}).status_code in (404, 422)
