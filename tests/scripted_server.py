"""A server on this machine that answers by a script, drops connections, or hears nothing."""

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


class Says(NamedTuple):
    """An answer."""

    status: int
    body: Any = None
    headers: Sequence[tuple[str, str]] = ()


class Drops(NamedTuple):
    """The connection is closed after the request has been read."""


class Waits(NamedTuple):
    """No answer within these seconds."""

    seconds: float


class Passes(NamedTuple):
    """Another server answers; told: and the answer is passed on, else the connection is closed."""

    url: str
    told: bool = True


Act = Says | Drops | Waits | Passes


class Heard(NamedTuple):
    """A request that came."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]


class Scripted(ThreadingHTTPServer):
    """Plays its acts one by one."""

    daemon_threads = True

    def __init__(self, acts: Iterator[Act]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.acts, self.heard = acts, list[Heard]()
        self.over = threading.Event()
        self.turn = threading.Lock()
        self.clients = ExitStack()

    def client(self, **options: Any) -> Client:
        """Somebody who asks, for as long as it serves."""
        return self.clients.enter_context(Client(self.url, **options))

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def act(self, heard: Heard) -> Act:
        """What to do with a request."""
        with self.turn:
            self.heard.append(heard)
            return next(self.acts)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_GET(self) -> None:
        """Read the request, then do what the script says."""
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.loads(content) if content else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        act = self.server.act(Heard(self.command, self.path, body, headers))
        if isinstance(act, Waits):
            self.server.over.wait(act.seconds)
        if isinstance(act, Passes):
            said = passed(act.url + self.path, self.command, content, headers)
            act = said if act.told else Drops()
        if not isinstance(act, Says):
            self.close_connection = True
            return
        content = act.body if isinstance(act.body, bytes) else json.dumps(act.body).encode()
        self.send_response(act.status)
        for name, value in (*act.headers, ("content-length", str(len(content)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *told: Any) -> None:
        """Say nothing."""


def passed(url: str, method: str, content: bytes, headers: dict[str, str]) -> Says:
    """What another server says."""
    kept = {name: headers[name] for name in ("content-type", "authorization") if name in headers}
    request = urllib.request.Request(url, content or None, kept, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return Says(answer.status, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Says(error.code, error.read())


@contextmanager
def scripted(*acts: Act, again: bool = False) -> Iterator[Scripted]:
    """A server with a script: played again and again, or once, with its last act for ever."""
    script = cycle(acts) if again else chain(acts, repeat(acts[-1]))
    with Scripted(script) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.clients.close()
            server.over.set()
            server.shutdown()
            thread.join()


def refuses(status: int, code: str, message: str = "no", **more: Any) -> Says:
    """A refusal as the service has it."""
    headers = [("retry-after", str(more.pop("after")))] if "after" in more else []
    return Says(status, {"error": {"code": code, "message": message, **more}}, headers)
