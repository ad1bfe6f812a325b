"""A real server on a loopback port, for as long as a test needs it."""

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from bylot.eventlog.commands import CreateRouter
from bylot.policies import find_policy, policy_to_data
from bylot.problem import Problem
from bylot.router.config import RouterConfig, problem_to_data
from bylot.server.app import HttpServer, ServerApp, open_listening_socket
from bylot.server.settings import ServerSettings
from bylot.server.writer import MakeHandler
from sample_problem import make_five_expert_problem

FIVE_EXPERTS = problem_to_data(make_five_expert_problem())


class ServerClient(httpx.Client):
    """A client of the server, and the server itself."""

    app: ServerApp
    server: HttpServer
    port: int

    def request(self, *arguments: Any, **options: Any) -> httpx.Response:
        """Send a request, again and again while the server compiles a policy for it."""
        end = time.monotonic() + 300
        while is_compiling(response := super().request(*arguments, **options)):
            assert time.monotonic() < end, response.text
            time.sleep(0.02)
        return response

    def create_router(self, **config: Any) -> str:
        """The path of a new router of five experts, under a unique name."""
        name = f"r{secrets.token_hex(6)}"
        body = {"name": name, "problem": FIVE_EXPERTS, **config}
        response = self.post("/v1/routers", json=body)
        assert response.status_code == 201, response.text
        return f"/v1/routers/{name}"

    def store_router(self, problem: Problem, policy: str = "distinct") -> str:
        """The path of a new router, which is stored as it is."""
        name, data = f"r{secrets.token_hex(6)}", policy_to_data(find_policy(policy))
        command = CreateRouter(name, RouterConfig(problem=problem_to_data(problem), policy=data))
        writer = self.app.state.writer
        asyncio.run_coroutine_threadsafe(writer.execute(command), writer.loop).result(300)
        return f"/v1/routers/{name}"

    def decide(self, router: str, **body: Any) -> dict[str, Any]:
        """A decision."""
        response = self.post(f"{router}/decisions", json=body)
        assert response.status_code == 201, response.text
        return dict(response.json())


@contextlib.contextmanager
def live_server(
    folder: Path,
    make_handler: Callable[[ServerSettings], MakeHandler] | None = None,
    **options: Any,
) -> Iterator[ServerClient]:
    """A server with its store in a folder."""
    settings = ServerSettings(**{"store": f"sqlite:///{folder}/bylot.db", **options})
    app = ServerApp(settings, make_handler and make_handler(settings))
    server, socket = HttpServer(app), open_listening_socket("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: server.run(sockets=[socket]))
    port = socket.getsockname()[1]
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    try:
        with ServerClient(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            client.app, client.server, client.port = app, server, port
            yield client
    finally:
        server.handle_exit(15, None)
        thread.join()


def is_compiling(response: httpx.Response) -> bool:
    """Whether the server has refused a request because it compiles a policy."""
    return response.status_code == 503 and '"code":"compiling"' in response.text


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for a condition that another thread fulfils."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.005)


def assert_error(response: httpx.Response, status: int) -> dict[str, str]:
    """Check the shape of an error response and return its detail."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    error = dict(response.json()["error"])
    known = {"code", "message", "field"} | ({"resets_at"} if status == 429 else set())
    assert {"code", "message"} <= set(error) <= known
    return error
