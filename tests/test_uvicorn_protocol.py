"""`server.http_connection` uses private classes of uvicorn: the versions that were tested."""

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from bylot.server.http_connection import CorkedTransport

ROOT = Path(__file__).parent.parent
TESTED_VERSION = "0.54.0"
"""If this fails: run the tests of tests/test_request_limits.py with the new version, compare
uvicorn/protocols/http/httptools_impl.py, then raise this version and the bound in pyproject.toml.
"""


def test_the_installed_uvicorn_is_the_tested_version_and_within_the_bound() -> None:
    assert uvicorn.__version__ == TESTED_VERSION
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    serve = map(Requirement, project["optional-dependencies"]["serve"])
    (bound,) = [one.specifier for one in serve if one.name == "uvicorn"]
    assert "<" in str(bound)
    assert uvicorn.__version__ in bound


def test_uvicorn_has_the_private_names_that_the_server_uses() -> None:
    for name in (
        "connection_made",
        "data_received",
        "on_header",
        "on_body",
        "on_message_begin",
        "on_headers_complete",
        "on_message_complete",
        "on_response_complete",
        "send_400_response",
        "connection_lost",
        "on_url",
        "_start_asgi_task",
    ):
        assert callable(getattr(HttpToolsProtocol, name)), name
    cycle = inspect.getsource(RequestResponseCycle)
    for name in ("response_started", "response_complete", "disconnected", "message_event"):
        assert re.search(rf"self\.{name}\b", cycle), name
    assert vars(httptools_impl)["HIGH_WATER_LIMIT"] > 0
    protocol = inspect.getsource(HttpToolsProtocol)
    for name in ("pipeline", "tasks", "flow", "cycle", "expect_100_continue", "server_state"):
        assert re.search(rf"self\.{name}\b", protocol), name
    assert httptools_impl.STATUS_LINE[200].startswith(b"HTTP/1.1 200")


class RecordingTransport:
    """Records what is written to it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> Any:
        return None


def test_the_head_of_a_response_is_sent_together_with_its_body() -> None:
    transport = RecordingTransport()
    corked = CorkedTransport(transport)
    corked.write(b"HTTP/1.1 200 OK\r\n\r\n")
    assert transport.writes == []
    corked.write(b"body")
    assert transport.writes == [b"HTTP/1.1 200 OK\r\n\r\nbody"]
    corked.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert len(transport.writes) == 2
    corked.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    corked.close()
    assert transport.writes[-1] == b"HTTP/1.1 204 No Content\r\n\r\n"
    assert transport.closed
