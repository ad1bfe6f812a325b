"""Fuzzed requests against the served OpenAPI document: no 5xx, only documented answers."""

import contextlib
import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, reject, settings, strategies
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.errors import InvalidSchema
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bylot.server.endpoint import ApiRequest, Endpoint, HttpResponse
from live_server import ServerClient

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
CASES = int(os.environ.get("BYLOT_FUZZ", "6"))  # per operation and mode


def test_fuzzed_requests_get_documented_answers(server: ServerClient) -> None:
    assert send_fuzzed_requests(server, CASES) >= 20 * CASES


def test_the_test_above_would_notice_an_undocumented_answer(
    server: ServerClient,
) -> None:
    schema = schemathesis.openapi.from_url(f"{server.base_url}/openapi.json")
    methods = server.app.table.fixed["/healthz"]
    original = methods["GET"]
    assert isinstance(original, Endpoint)
    methods["GET"] = Endpoint(server.app.state, original.route._replace(function=answer_418))
    with pytest.raises(FailureGroup, match="418"):
        fuzz_operation(schema["/healthz"]["get"], schemathesis.GenerationMode.POSITIVE, 1)
    methods["GET"] = original


async def answer_418(request: ApiRequest[None, None]) -> HttpResponse:
    """An answer that is not documented."""
    return HttpResponse(418)


@pytest.mark.slow
def test_ten_thousand_fuzzed_requests_get_documented_answers(
    server: ServerClient,
) -> None:
    assert send_fuzzed_requests(server, 260) >= 10_000


def send_fuzzed_requests(server: ServerClient, cases: int) -> int:
    """Send requests to every operation, valid and invalid, for known and unknown resources.

    Returns the number of requests.
    """
    schema = schemathesis.openapi.from_url(f"{server.base_url}/openapi.json")
    router = server.create_router()
    known = {"name": router.rpartition("/")[2], "id": server.decide(router)["id"]}
    sent = 0
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        for mode in schemathesis.GenerationMode:
            count = fuzz_operation(operation, mode, cases)
            assert count >= cases or not operation.body, (operation.label, mode)
            sent += count
            path_parameters = {
                name: known[name] for name in known if f"{{{name}}}" in operation.path
            }
            if path_parameters and operation.method != "delete":
                sent += fuzz_operation(operation, mode, cases, path_parameters=path_parameters)
    assert server.get(router).status_code == 200
    return sent


def fuzz_operation(
    operation: Any, mode: schemathesis.GenerationMode, cases: int, **fixed: Any
) -> int:
    """Send fuzzed requests to one operation and return their number."""
    sent = 0
    try:
        strategy = operation.as_strategy(mode, **fixed)
    except Unsatisfiable:  # no request violates this schema
        return 0

    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(draw_case(strategy))
    def send(case: schemathesis.Case[Any]) -> None:
        nonlocal sent
        sent += 1
        case.validate_response(case.call(), checks=CHECKS)

    with contextlib.suppress(Unsatisfiable):
        send()
    return sent


@strategies.composite
def draw_case(
    draw: strategies.DrawFn, cases: strategies.SearchStrategy[schemathesis.Case[Any]]
) -> schemathesis.Case[Any]:
    """A request; another one if schemathesis has changed a schema so that no body conforms to it.

    It tries another change itself, except for arrays that must have a wrong item which cannot be
    wrong in this way: those it reports as an error of our document.
    """
    try:
        return draw(cases)
    except InvalidSchema as error:
        if "demanded elements" not in str(error):
            raise
        reject()
