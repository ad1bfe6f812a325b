"""uvicorn, with our connections and a stop that loses nothing."""

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from types import FrameType

import uvicorn

from bylot.errors import BylotError
from bylot.eventlog.repository import release_dead_leases
from bylot.server import telemetry
from bylot.server.app import ServerApp, make_app
from bylot.server.auth import check_bind_address
from bylot.server.compile_pool import exit_while_compiling
from bylot.server.state import ServerSettings
from bylot.server.uvicorn_protocol import HttpConnection
from bylot.store import hide_password, open_store, store_exists

GC_THRESHOLD_OBJECTS = (
    100_000  # objects more than before, until a look for circles: open decisions are none
)


def run_server(settings: ServerSettings) -> int:
    """Serve until told to stop; 0 if that went well."""
    if not store_exists(settings.store):
        check_bind_address(settings.host, ())  # before a store is made for nothing
    with contextlib.closing(open_store(settings.store)) as store:
        check_bind_address(settings.host, store.keys())
        release_dead_leases(
            store
        )  # here, where a store that cannot be written to is told in one line
    telemetry.configure_logging(settings.log_level)
    server = HttpServer(make_app(settings))
    server.run(sockets=[open_listening_socket(settings.host, settings.port)])
    exit_while_compiling()
    return 0


def open_listening_socket(host: str, port: int) -> socket.socket:
    """A socket to listen on."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
    except OSError as error:
        raise BylotError(f"cannot listen on {host}, port {port}: {error.strerror}") from None


class HttpServer(uvicorn.Server):
    """Says where it listens; told to stop, it says that it is not ready, and finishes its work."""

    def __init__(self, app: ServerApp) -> None:
        self.app, self.settings = app, app.service.settings
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
                timeout_keep_alive=round(self.settings.idle),
                timeout_graceful_shutdown=round(self.settings.drain),
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, and say so in one line."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what is there now will stay: later collections need not look at it
        gc.set_threshold(GC_THRESHOLD_OBJECTS, *gc.get_threshold()[1:])
        if self.started and sockets:
            print(self.line(*sockets[0].getsockname()[:2]), file=sys.stderr, flush=True)

    def line(self, host: str, port: int) -> str:
        """Where it listens, where it keeps things, and who may ask."""
        place = f"[{host}]" if ":" in host else host
        asked = "keys are needed"
        if not self.app.service.credentials.needed:
            asked = "no keys: this machine only; `bylot keys create` makes one"
        store = hide_password(self.settings.store)
        return f"bylot listens on http://{place}:{port}, store {store}; {asked}"

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second; once a second, look for those who let us wait."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, HttpConnection):
                    connection.expire(now, self.settings.body_wait, self.settings.idle)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Told to stop; a second Ctrl-C does not wait."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.app.service.stopping = self.should_exit = True
