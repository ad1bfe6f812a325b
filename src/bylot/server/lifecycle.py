"""Start and stop the server: the listening socket, uvicorn, and a shutdown that loses nothing."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import threading
from types import FrameType

import uvicorn

from bylot.errors import BylotError
from bylot.eventlog.repository import release_dead_leases
from bylot.server.app import ServerApp
from bylot.server.auth import check_bind_address
from bylot.server.state import COMPILE_THREAD_PREFIX, ServerSettings
from bylot.server.telemetry import configure_logging
from bylot.server.uvicorn_protocol import HttpConnection
from bylot.store import hide_password, open_store, store_exists

GC_THRESHOLD_OBJECTS = 100_000  # open decisions are many objects, and never cyclic garbage


def run_server(settings: ServerSettings) -> int:
    """Serve until interrupted; 0 after a clean shutdown."""
    if not store_exists(settings.store):
        check_bind_address(settings.host, ())  # before a store is created in vain
    with contextlib.closing(open_store(settings.store)) as store:
        check_bind_address(settings.host, store.keys())
        release_dead_leases(store)  # a store that is not writable fails here, with one line
    configure_logging(settings.log_level)
    server = HttpServer(ServerApp(settings))
    server.run(sockets=[open_listening_socket(settings.host, settings.port)])
    exit_while_compiling()
    return 0


def exit_while_compiling(grace_s: float = 1.0) -> None:
    """End the process if a policy is still being compiled: compilation cannot be interrupted, and
    its request is gone. Everything that was answered is in the store.
    """
    workers = [one for one in threading.enumerate() if one.name.startswith(COMPILE_THREAD_PREFIX)]
    for worker in workers:
        worker.join(grace_s)
    if any(worker.is_alive() for worker in workers):
        sys.stderr.flush()
        os._exit(0)


def open_listening_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise BylotError(f"cannot listen on {host}, port {port}: {error.strerror}") from None


class HttpServer(uvicorn.Server):
    """Prints where it listens; on SIGTERM it reports not ready and finishes its open requests."""

    def __init__(self, app: ServerApp) -> None:
        self.app, self.settings = app, app.state.settings
        super().__init__(
            uvicorn.Config(
                app,
                http=HttpConnection,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=round(self.settings.idle_timeout_s),
                timeout_graceful_shutdown=round(self.settings.drain_timeout_s),
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and print one line."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # the objects of today live as long as the server
        gc.set_threshold(GC_THRESHOLD_OBJECTS, *gc.get_threshold()[1:])
        if self.started and sockets:
            print(self.describe(*sockets[0].getsockname()[:2]), file=sys.stderr, flush=True)

    def describe(self, host: str, port: int) -> str:
        """Address, store, and who may send requests."""
        place = f"[{host}]" if ":" in host else host
        access = "API keys are required"
        if not self.app.state.credentials.required:
            access = "no API keys: this machine only; `bylot keys create` creates one"
        store = hide_password(self.settings.store)
        return f"bylot listens on http://{place}:{port}, store {store}; {access}"

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second; once a second, close connections that have timed out."""
        if counter % 10 == 0:
            now, settings = asyncio.get_running_loop().time(), self.settings
            for connection in list(self.server_state.connections):
                if isinstance(connection, HttpConnection):
                    connection.expire(now, settings.body_timeout_s, settings.idle_timeout_s)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after open requests; a second Ctrl-C stops at once."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.app.state.stopping = self.should_exit = True
