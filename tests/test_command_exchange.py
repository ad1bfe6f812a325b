"""Requests that are one command are served without ASGI: with the same responses, in order, and
without a trace of clients that leave (`server.http_connection`).
"""

import gc
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from bylot.eventlog.command_handler import CommandHandler
from bylot.server.http_connection import CommandExchange, HttpConnection
from bylot.store import open_store
from live_server import ServerClient, live_server, wait_until

CANCEL = "/v1/decisions/r.1.1.00000000/cancel"  # a path whose body is ignored
BY_ASGI = "?"  # after a path: the same request, which is not served directly


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerClient]:
    with live_server(tmp_path_factory.mktemp("store"), max_body_bytes=5_000) as client:
        yield client


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were served directly."""
    found, run = list[str](), CommandExchange.run

    def record(exchange: CommandExchange) -> None:
        found.append(exchange.target)
        run(exchange)

    monkeypatch.setattr(CommandExchange, "run", record)
    return found


def format_request(path: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
    given = headers or ("content-type: application/json", f"content-length: {len(body)}")
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", *given, "", ""]
    return "\r\n".join(lines).encode() + body


def read_responses(client: socket.socket, count: int) -> list[tuple[int, dict[str, str], bytes]]:
    """Status, headers and body of so many responses on a connection."""
    responses: list[tuple[int, dict[str, str], bytes]] = []
    data = b""
    while len(responses) < count:
        head, end, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines) if end else {}
        length = int(headers.get("content-length", 0))
        if end and len(rest) >= length:
            responses.append((int(first.split()[1]), headers, rest[:length]))
            data = rest[length:]
        else:
            more = client.recv(65_536)
            assert more, data
            data += more
    return responses


def send(server: ServerClient, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """The response to one request on a connection of its own."""
    with connect(server) as client:
        client.sendall(request)
        (response,) = read_responses(client, 1)
        return response


def connect(server: ServerClient) -> closing[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", server.port), timeout=10))


def read_to_end(client: socket.socket) -> bytes:
    """All that a server sends until it closes the connection."""
    received = b""
    while part := client.recv(65_536):
        received += part
    return received


def describe_requests(router: str, decision: str) -> Iterator[tuple[str, str, bytes, list[str]]]:
    """Method, path, body and headers of requests that change nothing, or the same twice."""
    json, decide, reward = "content-type: application/json", f"{router}/decisions", "/v1/decisions/"
    for path, bodies in (
        (decide, [b"{", b'{"x": 1}', b'{"context": 1}', b'{"key": ""}', b'{"available": ["?"]}']),
        (decide, [b'{"defer": true, "defer": true}', b"[]", b"\xff", b"null"]),
        ("/v1/routers/nobody/decisions", [b"{}"]),
        ("/v1/routers/Wrong/decisions", [b"{}"]),
        (f"{reward}{decision}/reward", [b'{"value": 0.5}', b'{"value": 7}', b'{"value": 1e999}']),
        (f"{reward}nobody.1.1.00000000/reward", [b'{"value": 0.5}']),
        (f"{reward}wrong/reward", [b'{"value": 0.5}']),
        (f"{reward}{decision}/cancel", [b"", b"ignored"]),
        (f"{reward}{decision}/replace", [b'{"failed": "nobody"}']),
    ):
        for body in bodies:
            yield "POST", path, body, [json, f"content-length: {len(body)}"]
    yield "POST", decide, b"{}", ["content-type: text/plain", "content-length: 2"]
    yield "POST", decide, b"{}", [json, json, "content-length: 2"]
    yield "POST", decide, b"{}", [json, "content-length: 2", "forwarded: for=1.2.3.4"]
    yield "POST", decide, b"{}", [json, "content-length: 2", "origin: http://evil.example"]
    yield "POST", decide, b"{}", [json, "content-length: 2", f"idempotency-key: {'k' * 201}"]
    yield "GET", f"{reward}{decision}", b"", ["accept: */*", "content-length: 0"]


def test_a_request_is_answered_as_it_is_by_asgi(server: ServerClient, served: list[str]) -> None:
    router = server.create_router()
    decision = server.decide(router)["id"]
    assert server.post(f"/v1/decisions/{decision}/reward", json={"value": 0.5}).status_code == 200
    served.clear()
    requests = list(describe_requests(router, decision))
    for method, path, body, headers in requests:
        direct, by_asgi = (
            send(server, format_request(path + end, body, *headers, method=method))
            for end in ("", BY_ASGI)
        )
        for _, found, _ in (direct, by_asgi):
            found.pop("date")  # the second may end between the two
        assert direct == by_asgi, (method, path, body)
        assert direct[0] != 500, direct
    assert len(served) == len(requests)


def test_unusual_requests_are_served_by_asgi(server: ServerClient, served: list[str]) -> None:
    path = f"{server.create_router()}/decisions"
    json = "content-type: application/json"
    chunked = format_request(path, b"2\r\n{}\r\n0\r\n\r\n", json, "transfer-encoding: chunked")
    expecting = format_request(path, b"{}", json, "content-length: 2", "expect: 100-continue")
    encoded = format_request(path.replace("decisions", "d%65cisions"), b"{}")
    old = format_request(path, b"{}").replace(b"HTTP/1.1", b"HTTP/1.0")
    for request in (chunked, encoded, old):
        assert send(server, request)[0] == 201
    assert send(server, expecting)[0] == 100
    large = format_request(path, b"{}", json, "content-length: 5001")
    assert send(server, large)[0] == 413
    assert served == []


def test_pipelined_requests_are_answered_in_order(server: ServerClient) -> None:
    path = f"{server.create_router()}/decisions"
    with connect(server) as client:
        bodies = [b'{"context": "%d"}' % n for n in range(20)]
        requests = [format_request(path + BY_ASGI * (n % 3 == 1), b) for n, b in enumerate(bodies)]
        client.sendall(b"".join(requests))
        responses = read_responses(client, len(bodies))
    assert [status for status, _, _ in responses] == [201] * 20
    for n, (_, _, body) in enumerate(responses):
        assert f'"context":"{n}"'.encode() in body


def test_wrong_requests_do_not_keep_the_event_loop(server: ServerClient, served: list[str]) -> None:
    """Those that arrive together are answered one by one, and other clients in between."""
    with connect(server) as client:
        client.sendall(format_request("/v1/decisions/wrong/cancel", b"") * 300)
        assert {status for status, _, _ in read_responses(client, 300)} == {404}
    assert len(served) < 30  # one each time that bytes arrive


def test_a_body_in_pieces_is_one_request(server: ServerClient, served: list[str]) -> None:
    request = format_request(f"{server.create_router()}/decisions", b'{"context": "a"}')
    with connect(server) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for n in range(len(request)):
            client.sendall(request[n : n + 1])
        ((status, _, body),) = read_responses(client, 1)
    assert status == 201
    assert b'"context":"a"' in body
    assert len(served) == 1


def test_a_connection_is_closed_after_the_response_if_the_client_asks(server: ServerClient) -> None:
    headers = "content-type: application/json", "content-length: 2", "connection: close"
    request = format_request(f"{server.create_router()}/decisions", b"{}", *headers)
    with connect(server) as client:
        client.sendall(request)
        ((status, found, _),) = read_responses(client, 1)
        assert (status, found["connection"]) == (201, "close")
        assert client.recv(1) == b""


class GatedHandler:
    """A command handler that waits for a gate, and then for each command says the same."""

    def __init__(self) -> None:
        self.gate, self.performed = threading.Event(), list[Any]()
        self.pause_s = 0.0

    def perform(self, batch: list[Any], at: int) -> list[Any]:
        self.gate.wait(20)
        self.performed += batch
        return [{"n": len(self.performed)}] * len(batch)

    def sweep(self, at: int) -> bool:
        return False

    def maintain(self, at: int) -> bool:
        return False

    def renew(self) -> None: ...
    def close(self) -> None: ...


@contextmanager
def gated_server(folder: Path, **options: Any) -> Iterator[tuple[ServerClient, GatedHandler]]:
    """A server whose commands wait for a gate, and its handler."""
    handler = GatedHandler()
    open_store(f"sqlite:///{folder}/bylot.db").close()
    make = lambda _: lambda: cast(CommandHandler, handler)  # noqa: E731
    with live_server(folder, make, **options) as server:
        try:
            yield server, handler
        finally:
            handler.gate.set()


def test_a_command_is_executed_though_its_client_has_left(tmp_path: Path) -> None:
    handler = GatedHandler()
    open_store(f"sqlite:///{tmp_path}/bylot.db").close()
    make = lambda _: lambda: cast(CommandHandler, handler)  # noqa: E731
    with live_server(tmp_path, make) as server:
        path = "/v1/decisions/r.1.1.00000000/cancel"
        with connect(server) as client:
            client.sendall(format_request(path, b"{}"))
            wait_until(lambda: server.app.state.writer.pending)
        wait_until(lambda: not server.server.server_state.connections)
        handler.gate.set()
        wait_until(lambda: not server.app.state.writer.pending)
        assert len(handler.performed) == 1
        assert not server.server.server_state.tasks
        status, _, body = send(server, format_request(path, b"{}"))
        assert (status, body) == (200, b'{"n":2}')


def test_a_client_that_leaves_several_requests_behind_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with gated_server(tmp_path) as (server, handler):
        connections = server.server.server_state.connections
        with connect(server) as client:
            client.sendall(format_request(CANCEL + BY_ASGI, b"{}") * 2)
            wait_until(lambda: server.app.state.writer.pending)
            (connection,) = connections
            assert isinstance(connection, HttpConnection)
            wait_until(lambda: connection.pipeline)
            server.server.loop.call_soon_threadsafe(connection.corked.transport.abort)
            wait_until(lambda: not connections)
        handler.gate.set()
        wait_until(lambda: not server.server.server_state.tasks)
        assert len(handler.performed) == 1  # nobody waits for the second
    assert not [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]


def test_a_client_that_does_not_read_is_not_served_without_end(tmp_path: Path) -> None:
    handler = GatedHandler()
    handler.gate.set()
    open_store(f"sqlite:///{tmp_path}/bylot.db").close()
    large = {"text": "x" * 100_000}
    handler.perform = lambda batch, at: [large] * len(batch)  # type: ignore[method-assign]
    make = lambda _: lambda: cast(CommandHandler, handler)  # noqa: E731
    with live_server(tmp_path, make) as server:
        request = format_request("/v1/decisions/r.1.1.00000000/cancel", b"{}")
        with closing(socket.create_connection(("127.0.0.1", server.port), timeout=2)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            with pytest.raises(TimeoutError):  # the server stops reading
                client.sendall(request * 400_000)
            (connection,) = server.server.server_state.connections
            assert isinstance(connection, HttpConnection)
            buffered = connection.corked.transport.get_write_buffer_size()
            assert buffered < 10 * len(large["text"])


def test_a_body_that_arrives_slowly_may_be_as_large_as_any(tmp_path: Path) -> None:
    """uvicorn stops reading after 64 KiB, until the body is consumed."""
    with gated_server(tmp_path, body_timeout_s=3.0) as (server, handler), connect(server) as client:
        handler.gate.set()
        for size in (65_536, 65_537, 500_000):
            request = format_request(CANCEL, b" " * size)
            for start in range(0, len(request), 40_000):
                client.sendall(request[start : start + 40_000])
                threading.Event().wait(0.01)
            ((status, _, body),) = read_responses(client, 1)
            assert status == 200, body


def test_a_client_that_sends_nonsense_takes_no_response_from_others(tmp_path: Path) -> None:
    """It gets that of its command, once; what it sent behind the command is not executed."""
    nonsense = format_request(CANCEL, b"") * 2 + b"nonsense\r\n\r\n"
    with gated_server(tmp_path) as (server, handler):
        writer = server.app.state.writer
        with connect(server) as first, connect(server) as client, connect(server) as other:
            first.sendall(format_request(CANCEL, b""))
            wait_until(lambda: writer.pending == 1)
            client.sendall(nonsense)  # shares a commit with the next one
            wait_until(lambda: writer.pending == 2)
            other.sendall(format_request(CANCEL, b""))
            wait_until(lambda: writer.pending == 3)
            handler.gate.set()
            for one in (first, client, other):
                assert read_responses(one, 1)[0][0] == 200
            assert client.recv(1) == b""
            assert len(handler.performed) == 3
        assert not writer.pending
        assert not server.server.server_state.tasks


def test_a_client_that_sends_nonsense_does_not_end_the_timeouts(tmp_path: Path) -> None:
    nonsense = format_request(CANCEL, b"") * 2 + b"nonsense\r\n\r\n"
    with gated_server(tmp_path, request_timeout_s=0.5) as (server, _):
        writer = server.app.state.writer
        with connect(server) as client, connect(server) as other:
            client.sendall(nonsense)
            wait_until(lambda: writer.pending == 1)
            other.sendall(format_request(CANCEL, b""))
            assert read_responses(other, 1)[0][0] == 503
            assert not writer.expiring.done()


def test_the_response_to_a_command_is_sent_though_nonsense_follows(tmp_path: Path) -> None:
    with gated_server(tmp_path) as (server, handler), connect(server) as client:
        client.sendall(format_request(CANCEL, b"{}") + b"nonsense\r\n\r\n")
        wait_until(lambda: server.app.state.writer.pending)
        handler.gate.set()
        received = read_to_end(client)
        assert received.startswith(b"HTTP/1.1 200")
        assert b"\r\nconnection: close\r\n" in received
        assert received.count(b"HTTP/1.1") == 1


def test_a_server_that_stops_answers_a_request_without_the_rest_of_its_body(
    tmp_path: Path,
) -> None:
    for end in ("", BY_ASGI):
        with gated_server(tmp_path, drain_timeout_s=1.0) as (server, _), connect(server) as client:
            client.sendall(format_request(CANCEL.replace("cancel", f"reward{end}"), b"{}")[:-1])
            wait_until(lambda: server.server.server_state.tasks)
            server.server.handle_exit(15, None)
            assert read_to_end(client).startswith(b"HTTP/1.1 503")


def test_a_request_without_the_rest_of_its_body_leaves_nothing_behind(tmp_path: Path) -> None:
    with gated_server(tmp_path, body_timeout_s=0.2) as (server, handler):
        state = server.server.server_state
        incomplete = format_request(CANCEL, b"{}")[:-1]
        with connect(server) as client:
            client.sendall(incomplete)
            wait_until(lambda: state.tasks)
        wait_until(lambda: not state.tasks)
        with connect(server) as client:
            client.sendall(incomplete)
            assert read_to_end(client).startswith(b"HTTP/1.1 408")
        wait_until(lambda: not state.tasks)
        assert handler.performed == []


def test_a_closed_connection_is_no_cyclic_garbage(tmp_path: Path) -> None:
    with gated_server(tmp_path) as (server, handler):
        handler.gate.set()
        gc.disable()
        try:
            with connect(server) as client:
                client.sendall(format_request(CANCEL, b" " * 10_000))
                assert read_responses(client, 1)[0][0] == 200
                client.sendall(format_request("/v1/decisions/wrong/cancel", b" " * 10_000))
                assert read_responses(client, 1)[0][0] == 404
                (connection,) = server.server.server_state.connections
                assert isinstance(connection, HttpConnection)
                assert connection.cycle.body == b""
                found = weakref.ref(connection)
                del connection
            wait_until(lambda: found() is None, 5.0)
        finally:
            gc.enable()


def test_a_malformed_request_does_not_take_the_response_of_an_earlier_one(
    server: ServerClient,
) -> None:
    path = f"{server.create_router()}/decisions"
    malformed = format_request("/x", b"nonsense\r\n", "transfer-encoding: chunked")
    for behind in (malformed, format_request(path + BY_ASGI, b"{}") + malformed):
        with closing(socket.create_connection(("127.0.0.1", server.port), timeout=20)) as client:
            client.sendall(format_request(path, b'{"context": "first"}') + behind)
            ((status, headers, body),) = read_responses(client, 1)
            assert (status, headers["connection"]) == (201, "close")
            assert b'"context":"first"' in body
            assert client.recv(1) == b""
