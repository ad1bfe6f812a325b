"""A real server on a loopback port, for as long as a test needs it."""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from bylot.router.persistence import problem_to_data
from bylot.server.app import ServerApp, make_app
from bylot.server.lifecycle import HttpServer, open_listening_socket
from bylot.server.state import ServerSettings
from bylot.server.writer import BatchHandler
from small import five

FIVE = problem_to_data(five())


class Served(httpx.Client):
    """Asks a server; and the server itself."""

    app: ServerApp
    server: HttpServer
    port: int

    def router(self, **terms: Any) -> str:
        """The path of a new router of five experts, under a name that was never used."""
        name = f"r{secrets.token_hex(6)}"
        made = self.post("/v1/routers", json={"name": name, "problem": FIVE, **terms})
        assert made.status_code == 201, made.text
        return f"/v1/routers/{name}"

    def decide(self, router: str, **ask: Any) -> dict[str, Any]:
        """A decision."""
        made = self.post(f"{router}/decisions", json=ask)
        assert made.status_code == 201, made.text
        return dict(made.json())


@contextlib.contextmanager
def serving(
    folder: Path,
    hire: Callable[[ServerSettings], Callable[[], BatchHandler]] | None = None,
    **options: Any,
) -> Iterator[Served]:
    """A server with its store in a folder."""
    settings = ServerSettings(**{"store": f"sqlite:///{folder}/bylot.db", **options})
    app = make_app(settings, hire=hire and hire(settings))
    server, door = HttpServer(app), open_listening_socket("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: server.run(sockets=[door]))
    port = door.getsockname()[1]
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    try:
        with Served(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            client.app, client.server, client.port = app, server, port
            yield client
    finally:
        server.handle_exit(15, None)
        thread.join()


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for something that happens elsewhere."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def problem_of(answer: httpx.Response, status: int) -> dict[str, str]:
    """The one shape of every refusal."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error = dict(answer.json()["error"])
    assert {"code", "message"} <= set(error) <= {"code", "message", "field"}
    return error
