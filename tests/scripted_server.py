"""A local server that follows a script: it answers, delays, drops connections or forwards."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, cycle, repeat
from typing import Any, NamedTuple

from bylot import Client


class Answer(NamedTuple):
    """Send an answer."""

    status: int
    body: Any = None
    headers: Sequence[tuple[str, str]] = ()


class DropConnection(NamedTuple):
    """Close the connection after the request has been read."""


class DelayAnswer(NamedTuple):
    """Send no answer within these seconds."""

    seconds: float


class Forward(NamedTuple):
    """Forward the request; deliver the answer, or drop it and close the connection."""

    url: str
    deliver: bool = True


Action = Answer | DropConnection | DelayAnswer | Forward


class ReceivedRequest(NamedTuple):
    """A request that was received."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]


class ScriptedServer(ThreadingHTTPServer):
    """Performs its actions one by one."""

    daemon_threads = True

    def __init__(self, actions: Iterator[Action]) -> None:
        super().__init__(("127.0.0.1", 0), ScriptedHandler)
        self.actions, self.requests = actions, list[ReceivedRequest]()
        self.stopped = threading.Event()
        self.lock = threading.Lock()
        self.clients = ExitStack()

    def client(self, **options: Any) -> Client:
        """A client that is closed with the server."""
        return self.clients.enter_context(Client(self.url, **options))

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    def next_action(self, request: ReceivedRequest) -> Action:
        """The action for a request."""
        with self.lock:
            self.requests.append(request)
            return next(self.actions)


class ScriptedHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def do_GET(self) -> None:
        """Read the request and perform the next action."""
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.loads(content) if content else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        action = self.server.next_action(ReceivedRequest(self.command, self.path, body, headers))
        if isinstance(action, DelayAnswer):
            self.server.stopped.wait(action.seconds)
        if isinstance(action, Forward):
            answer = forward_request(action.url + self.path, self.command, content, headers)
            action = answer if action.deliver else DropConnection()
        if not isinstance(action, Answer):
            self.close_connection = True
            return
        content = (
            action.body if isinstance(action.body, bytes) else json.dumps(action.body).encode()
        )
        self.send_response(action.status)
        for name, value in (*action.headers, ("content-length", str(len(content)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


def forward_request(url: str, method: str, content: bytes, headers: dict[str, str]) -> Answer:
    """The answer of another server."""
    forwarded = {
        name: headers[name] for name in ("content-type", "authorization") if name in headers
    }
    request = urllib.request.Request(url, content or None, forwarded, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return Answer(answer.status, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read())


@contextmanager
def scripted_server(*actions: Action, repeat_script: bool = False) -> Iterator[ScriptedServer]:
    """A server with a script that repeats, or runs once and then repeats its last action."""
    script = cycle(actions) if repeat_script else chain(actions, repeat(actions[-1]))
    with ScriptedServer(script) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.clients.close()
            server.stopped.set()
            server.shutdown()
            thread.join()


def make_error_answer(status: int, code: str, message: str = "no", **extra: Any) -> Answer:
    """An error answer in the shape of the server."""
    headers = [("retry-after", str(extra.pop("after")))] if "after" in extra else []
    return Answer(status, {"error": {"code": code, "message": message, **extra}}, headers)
