"""Limits on sizes, formats and rates of requests, and their error responses (G10)."""

import contextlib
import json
import re
import socket
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot.api import PRINTABLE_PATTERN, DecisionRequest, RewardRequest
from bylot.errors import BylotError
from bylot.server import request_parsing
from bylot.server.auth import RateLimiter
from bylot.server.http_errors import ApiError, to_api_error
from live_server import FIVE_EXPERTS, ServerClient, assert_error, live_server

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerClient]:
    with live_server(tmp_path_factory.mktemp("store"), max_body_bytes=20_000) as client:
        yield client


@pytest.fixture(scope="module")
def path(server: ServerClient) -> str:
    return f"{server.create_router()}/decisions"


def test_a_body_that_is_too_large_is_refused(server: ServerClient, path: str) -> None:
    large = server.post(path, content=b" " * 20_001, headers=JSON)
    assert assert_error(large, 413)["code"] == "too_large"
    fits = server.post(path, content=b"{}" + b" " * 19_998, headers=JSON)
    assert fits.status_code == 201


def test_a_chunked_body_that_is_too_large_is_refused(server: ServerClient, path: str) -> None:
    parts = server.post(path, content=iter([b" " * 9_000] * 3), headers=JSON)
    assert assert_error(parts, 413)["code"] == "too_large"
    fits = server.post(path, content=iter([b" " * 9_000, b"{}"]), headers=JSON)
    assert fits.status_code == 201


def test_a_body_of_another_content_type_is_refused(server: ServerClient, path: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/xml"):
        answer = server.post(path, content=b"{}", headers={"content-type": kind})
        assert assert_error(answer, 415)["code"] == "unsupported_media_type"
    with_charset = {"content-type": "application/json; charset=utf-8"}
    assert server.post(path, content=b"{}", headers=with_charset).status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"{}}",
        b"nope",
        b"'a'",
        b'{"context": "\xff"}',
        b'{"context": "\\ud800"}',
        b"\x00",
        b'{"available":' * 1_500,
        b"[" * 9_000 + b"]" * 9_000,
    ],
)
def test_invalid_json_is_refused(server: ServerClient, path: str, body: bytes) -> None:
    answer = server.post(path, content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert assert_error(answer, answer.status_code)


@pytest.mark.parametrize(
    "body",
    [
        b'{"context": "a", "context": "b"}',
        b'{"context": "a", "\\u0063ontext": "a"}',
        b'{"defer": true, "context": ":", "defer": true}',
    ],
)
def test_a_duplicate_field_is_refused(server: ServerClient, path: str, body: bytes) -> None:
    answer = server.post(path, content=body, headers=JSON)
    assert "duplicate" in assert_error(answer, 422)["message"]


@pytest.mark.parametrize(
    ("decision_request", "field"),
    [
        ({"context": "a" * 201}, "context"),
        ({"context": "a\n"}, "context"),
        ({"context": "a\x00"}, "context"),
        ({"context": "a\x9b"}, "context"),  # begins an escape sequence of a terminal
        ({"context": "a\u202e"}, "context"),  # turns the text after it around
        ({"context": "a\u200b"}, "context"),  # cannot be seen
        ({"context": "a\u2028"}, "context"),  # begins a line
        ({"context": "a\u0378"}, "context"),  # is no character
        ({"context": "\u0958" * 150}, "context"),  # too long in NFC
        ({"available": ["a\x9b"]}, "available[0]"),
        ({"context": 1}, "context"),
        ({"key": "a" * 201}, "key"),
        ({"key": ""}, "key"),
        ({"key": "a\x00"}, "key"),
        ({"key": "é"}, "key"),
        ({"key": "a\n"}, "key"),
        ({"available": "ann"}, "available"),
        ({"available": ["a" * 201]}, "available[0]"),
        ({"defer": 1}, "defer"),
        ({"nope": 1}, None),
        ([], None),
    ],
)
def test_the_error_for_an_invalid_request_names_the_field(
    server: ServerClient, path: str, decision_request: Any, field: str | None
) -> None:
    error = assert_error(server.post(path, json=decision_request), 422)
    assert error.get("field") == field


def test_values_at_the_bounds_are_accepted(server: ServerClient, path: str) -> None:
    decision_request = {"context": "é" * 200, "key": "~" * 200, "available": ["ann", "bob"]}
    assert server.post(path, json=decision_request).status_code == 201


def test_a_pattern_accepts_the_characters_that_can_be_printed() -> None:
    numbers = (*range(0x20000), *range(0xE0000, 0xE1000), 0xF0000, 0xFFFFD, 0x100000, 0x10FFFD)
    accepts = re.compile(PRINTABLE_PATTERN).search
    for character in map(chr, numbers):
        if unicodedata.category(character) not in ("Cn", "Cs"):  # unassigned; not in any text
            assert character.isprintable() == bool(accepts(f"a{character}b")), ascii(character)


def test_contexts_that_look_alike_are_one(server: ServerClient) -> None:
    router = server.create_router(max_contexts=1)
    composed, apart = "caf\u00e9", "cafe\u0301"
    assert server.decide(router, context=apart)["context"] == composed
    asks = [{"context": composed}, {"context": apart}]
    batch = server.post(f"{router}/decisions:batch", json={"decisions": asks}).json()["results"]
    assert [one["decision"]["context"] for one in batch] == [composed, composed]
    ranked = {"actions": [{"id": "ann"}, {"id": "bob"}], "contextFeatures": [{"a": apart}]}
    other = server.create_router(max_contexts=1)
    headers = {"bylot-router": other.rpartition("/")[2]}
    for text in (apart, composed):
        ranked["contextFeatures"] = [{"a": text}]
        answer = server.post("/personalizer/v1.1/rank", json=ranked, headers=headers)
        assert answer.status_code == 201
    long = {"decisions": [{}, {"context": "\u0958" * 150}]}
    answer = server.post(f"{router}/decisions:batch", json=long)
    assert assert_error(answer, 422)["field"] == "decisions[1].context"


@pytest.mark.parametrize("key", ["", "a" * 201, "a\tb"])
def test_a_key_in_a_header_has_the_same_bounds(server: ServerClient, path: str, key: str) -> None:
    answer = server.post(path, json={}, headers={"idempotency-key": key})
    assert assert_error(answer, 422)["field"] == "Idempotency-Key"


def test_a_duplicate_header_is_refused_if_it_has_a_meaning(server: ServerClient, path: str) -> None:
    twice = [*JSON.items(), ("idempotency-key", "one"), ("idempotency-key", "two")]
    answer = server.post(path, content=b"{}", headers=twice)
    assert assert_error(answer, 400)["field"] == "idempotency-key"
    others = [*JSON.items(), ("accept-language", "en"), ("accept-language", "fr")]
    assert server.post(path, content=b"{}", headers=others).status_code == 201


def test_a_router_remembers_a_limited_number_of_contexts(server: ServerClient) -> None:
    path = f"{server.create_router(max_contexts=2)}/decisions"
    for context in ("a", "b", "a"):
        assert server.post(path, json={"context": context}).status_code == 201
    assert assert_error(server.post(path, json={"context": "c"}), 422)["code"] == "bad_decision"


def test_a_problem_has_a_limited_size(server: ServerClient) -> None:
    many = {**FIVE_EXPERTS, "costs": {f"c{n}": [1.0] * 5 for n in range(51)}}
    answer = server.post("/v1/routers", json={"name": "many", "problem": many})
    assert assert_error(answer, 422)["field"] == "problem.costs"


@pytest.mark.parametrize("path", ["/v1/routers", "/routers.json"])
def test_requests_per_credential_are_limited(tmp_path: Path, path: str) -> None:
    with live_server(tmp_path, rate=0.5, burst=3) as server:
        codes = [server.get(path).status_code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        refused = server.get(path)
        assert assert_error(refused, 429)["code"] == "too_many_requests"
        assert 1 <= int(refused.headers["retry-after"]) <= 2
        assert server.get("/healthz").status_code == 200


@pytest.mark.parametrize(("rate", "burst"), [(0.1, 10), (5.0, 10), (40.0, 80)])
def test_the_default_burst_follows_the_rate(rate: float, burst: int) -> None:
    rates = RateLimiter(rate, clock=lambda: 0.0)
    for _ in range(burst):
        rates.take("a")
    with pytest.raises(ApiError):
        rates.take("a")


def test_a_rate_limit_refills_with_time_and_a_batch_can_overdraw_it() -> None:
    now = 0.0
    rates = RateLimiter(rate=2.0, burst=4, clock=lambda: now)
    rates.take("a")
    rates.charge("a", 5)
    with pytest.raises(ApiError) as caught:
        rates.take("a")
    assert caught.value.retry_after == 1.5
    rates.take("b")
    now = 1.5
    rates.take("a")
    with pytest.raises(ApiError):
        rates.take("a")


def test_a_batch_needs_no_more_than_one_token(tmp_path: Path) -> None:
    batch = {"rewards": [{"decision": "r.1.1.9f3ab01c", "value": 1}] * 3}
    with live_server(tmp_path, rate=0.01, burst=1) as server:
        answer = server.post("/v1/rewards:batch", json=batch)
        assert [one["status"] for one in answer.json()["results"]] == [404, 404, 404]
        refused = server.post("/v1/rewards:batch", json=batch)
        assert assert_error(refused, 429)["code"] == "too_many_requests"
        assert 200 < int(refused.headers["retry-after"]) <= 300  # three tokens


def test_no_stack_trace_leaves_the_server(caplog: pytest.LogCaptureFixture) -> None:
    found = to_api_error(RuntimeError("secret detail"))
    error = found.body.error
    assert found.status == 500
    assert "secret" not in error.message
    record = caplog.records[-1]
    assert record.error_id in error.message  # type: ignore[attr-defined]
    assert record.exc_info


def test_what_is_wrong_with_the_store_stays_in_the_log(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "bylot.db", tmp_path / "elsewhere.db"
    with live_server(tmp_path) as server:
        path = f"{server.create_router()}/decisions"
        file.rename(elsewhere)
        refused = server.post(path, json={})
        assert assert_error(refused, 503)["code"] == "store_down"
        assert not re.search("bylot.db|gone", refused.text)
        elsewhere.rename(file)
        assert server.post(path, json={}).status_code == 201


def test_every_error_of_a_caller_has_a_client_status() -> None:
    """A new kind of error needs a status: only unexpected errors are a 500."""
    import bylot.errors as kinds

    outside_server = {
        "DataError",
        "SavedFileError",
        "TargetError",
        "InsufficientOverlap",
        "ServiceError",
    }
    server_faults = {
        "BylotError",
        "LocatedError",
        "StoreError",
        "StoreCorrupted",
        "UnsupportedStore",
    }
    for kind in vars(kinds).values():
        if not (isinstance(kind, type) and issubclass(kind, BylotError)):
            continue
        if kind.__name__ in server_faults or outside_server & {
            parent.__name__ for parent in kind.__mro__
        }:
            continue
        assert 400 <= to_api_error(kind("x")).status != 500, kind


def parse_or_status(kind: type[Any], body: bytes) -> type[Any] | int:
    """The type of the parsed body, or the status of the error."""
    try:
        return type(request_parsing.parse_json_body(msgspec.json.Decoder(kind), body, None))
    except ApiError as error:
        return error.status


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_parsing_gives_a_value_or_an_error(body: bytes) -> None:
    for kind in (DecisionRequest, RewardRequest):
        assert parse_or_status(kind, body) in (kind, 400, 422)


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["value", "spend", "key", "context", "x"]), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(TREES)
def test_any_json_gives_a_value_or_an_error_without_duplicate_fields(tree: Any) -> None:
    body = json.dumps(tree).encode()
    request_parsing.DUPLICATE_FIELD_DECODER.decode(body.decode())
    assert parse_or_status(RewardRequest, body) in (RewardRequest, 422)


def send_raw_bytes(port: int, sent: bytes) -> bytes:
    """Send raw bytes and return the answer until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(sent)
        received = b""
        while part := connection.recv(65_536):
            received += part
        return received


def test_malformed_http_is_rejected_in_the_same_shape(server: ServerClient) -> None:
    received = send_raw_bytes(server.port, b"NONSENSE\r\n\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["code"] == "malformed"


def test_an_answer_without_a_body_is_sent_completely(server: ServerClient) -> None:
    """The head must be sent although no body follows."""
    router = server.create_router()
    assert server.delete(router).status_code == 204
    assert server.head("/healthz").status_code == 405
    received = send_raw_bytes(
        server.port, b"HEAD /sign-in HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    assert received.startswith(b"HTTP/1.1 200")
    assert received.endswith(b"\r\n\r\n")


def test_expect_100_continue_is_answered(server: ServerClient, path: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
        connection.sendall(f"{head}content-length: 2\r\nconnection: close\r\n\r\n".encode())
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert connection.recv(100).startswith(b"HTTP/1.1 201")


def test_a_head_that_is_too_long_is_refused(server: ServerClient) -> None:
    received = send_raw_bytes(server.port, b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000)
    assert received.startswith(b"HTTP/1.1 431")


def test_a_head_that_is_too_large_is_refused_also_if_it_has_an_end(server: ServerClient) -> None:
    start, end = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n", b"\r\nconnection: close\r\n\r\n"
    assert send_raw_bytes(server.port, start + b"x: " + b"a" * 60_000 + end).startswith(
        b"HTTP/1.1 200"
    )
    for large in (b"x: " + b"a" * 70_000, b"x: a\r\n" * 12_000 + b"y: b"):
        heard = send_raw_bytes(server.port, start + large + end)
        assert heard.startswith(b"HTTP/1.1 431")
        assert heard.count(b"HTTP/1.1") == 1
    long = b"GET /healthz?%s HTTP/1.1\r\nhost: localhost" % (b"a" * 70_000)
    assert send_raw_bytes(server.port, long + end).startswith(b"HTTP/1.1 431")


def test_connections_that_time_out_are_closed(tmp_path: Path) -> None:
    with live_server(tmp_path, body_timeout_s=0.2, idle_timeout_s=0.2) as server:
        assert send_raw_bytes(server.port, b"") == b""
        assert send_raw_bytes(server.port, b"GET / HT").startswith(b"HTTP/1.1 408")
        incomplete = b"POST /v1/routers HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"
        received = send_raw_bytes(server.port, incomplete)
        assert received.startswith(b"HTTP/1.1 408")
        assert b'"too_slow"' in received
        assert server.get("/readyz").status_code == 200


def test_trailers_that_are_too_long_are_refused(server: ServerClient, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    body = b"2\r\n{}\r\n0\r\n"
    few = b"x: a\r\n" * 10 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head.encode() + body + few)
        assert connection.recv(100).startswith(b"HTTP/1.1 201")
    many = b"".join(b"x%d: %s\r\n" % (n, b"a" * 1000) for n in range(2000))
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        with contextlib.suppress(
            ConnectionError
        ):  # the server closes the connection during the request
            connection.sendall(head.encode() + body + many)
        received = b""
        with contextlib.suppress(ConnectionError):
            received = connection.recv(100)
    assert not received or received.startswith(b"HTTP/1.1 431")


def test_bytes_between_requests_do_not_keep_a_connection_open(tmp_path: Path) -> None:
    with (
        live_server(tmp_path, idle_timeout_s=0.3) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection,
    ):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\n")
        while connection.recv(1000):
            pass


def test_a_body_after_its_response_does_not_keep_a_connection_open(tmp_path: Path) -> None:
    with (
        live_server(tmp_path, idle_timeout_s=0.3) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection,
    ):
        connection.sendall(
            b"POST /v1/routers HTTP/1.1\r\nhost: x.example\r\ncontent-length: 2\r\n\r\n"
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 403")
        connection.sendall(b"{}")
        while connection.recv(1000):
            pass


def test_a_number_of_thousands_of_digits_is_parsed() -> None:
    text = '{"a": 1, "x": ' + "9" * 5_000 + "}"
    request_parsing.DUPLICATE_FIELD_DECODER.decode(text)
