"""Start and stop the server: the listening socket, uvicorn, and a shutdown that loses nothing."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from types import FrameType

import uvicorn

from bylot.errors import BylotError
from bylot.eventlog.repository import release_dead_leases
from bylot.gateway.config import build_models
from bylot.gateway.scoring import SCORER_THREAD_PREFIX
from bylot.server.app import ServerApp
from bylot.server.auth import check_bind_address
from bylot.server.http_connection import HttpConnection
from bylot.server.peers import check_cluster_key
from bylot.server.policy_compiler import COMPILE_THREAD_PREFIX
from bylot.server.provision import build_keys
from bylot.server.reconcile import declare_routers, find_used_models, reconcile_routers
from bylot.server.settings import ServerSettings, check_cluster
from bylot.server.state import PREPARE_THREAD_PREFIX
from bylot.server.telemetry import configure_logging
from bylot.server.writer import READER_THREAD, WRITER_THREAD
from bylot.store import hide_password, open_store, store_exists

log = logging.getLogger("bylot.server")

GC_THRESHOLD_OBJECTS = 100_000  # open decisions are many objects, and never cyclic garbage


def run_server(settings: ServerSettings) -> int:
    """Serve until interrupted; 0 after a clean shutdown."""
    check_cluster(settings)
    keys, routers = build_keys(settings.keys).values(), declare_routers(settings)
    models = build_models(settings.model_list, only=find_used_models(routers))
    if not store_exists(settings.store):
        check_bind_address(settings.host, keys)  # before a store is created in vain
    configure_logging(settings.log_level)
    with contextlib.closing(open_store(settings.store)) as store:
        check_bind_address(settings.host, (*keys, *store.keys()))
        release_dead_leases(store)  # a store that is not writable fails here, with one line
        if settings.advertise is not None and settings.cluster_key is not None:
            others = [one.address for one in store.servers() if one.address != settings.advertise]
            asyncio.run(check_cluster_key(others, settings.cluster_key))
        reconcile_routers(store, settings, routers)
    server = HttpServer(ServerApp(settings, models=models))
    server.run(sockets=[open_listening_socket(settings.host, settings.port)])
    exit_with_busy_threads()
    return 0


def exit_with_busy_threads(grace_s: float = 1.0) -> None:
    """End the process if a policy is still being compiled, or the store or a scorer hangs: none of
    them can be interrupted, and the requests are gone. All that was answered is in the store.
    """
    prefixes = (
        *(COMPILE_THREAD_PREFIX, PREPARE_THREAD_PREFIX, SCORER_THREAD_PREFIX),
        *(WRITER_THREAD, READER_THREAD),
    )
    workers = [one for one in threading.enumerate() if one.name.startswith(prefixes)]
    for worker in workers:
        worker.join(grace_s)
    if any(worker.is_alive() for worker in workers):
        sys.stderr.flush()
        os._exit(0)


def notify_systemd(state: str) -> None:
    """Report a state to systemd, if it started this process as a service of type notify."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        name = f"\0{address[1:]}" if address.startswith("@") else address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(state.encode(), name)
        except OSError as error:  # the socket may be that of a manager outside a container
            log.warning("systemd was not notified: %s", error)


def open_listening_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise BylotError(
            f"cannot listen on {host}, port {port}: {error.strerror}",
            remedy="choose another --port or --host",
        ) from None


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
                timeout_graceful_shutdown=round(self.settings.drain_timeout_s),
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and print one line."""
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # the objects of today live as long as the server
        gc.set_threshold(GC_THRESHOLD_OBJECTS, *gc.get_threshold()[1:])
        if self.started and sockets:
            print(self.describe(*sockets[0].getsockname()[:2]), file=sys.stderr, flush=True)
            notify_systemd("READY=1")

    def describe(self, host: str, port: int) -> str:
        """Address, store, and who may send requests."""
        place = f"[{host}]" if ":" in host else host
        access = "API keys are required"
        if not self.app.state.credentials.required:
            access = "no API keys: this machine only; `bylot keys create` creates one"
        store, more = hide_password(self.settings.store), ""
        if self.settings.advertise is not None:
            more += f", advertised as {self.settings.advertise}"
        if self.settings.keep is not None:
            more += f", keeping {self.settings.keep}"
        return f"bylot listens on http://{place}:{port}, store {store}{more}; {access}"

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
        is_first, self.app.state.stopping = not self.app.state.stopping, True
        notify_systemd("STOPPING=1")
        if is_first and self.app.state.cluster is not None and self.started:
            self.leaving = asyncio.run_coroutine_threadsafe(self.leave(), self.loop)
        else:
            self.should_exit = True

    async def leave(self) -> None:
        """Hand over all routers, and forward requests for a while, before the port is closed."""
        cluster = self.app.state.cluster
        assert cluster is not None
        try:
            async with asyncio.timeout(self.settings.drain_timeout_s):
                await cluster.stop()
            if self.app.state.writer.store_error is None:  # else nobody can take over
                await asyncio.sleep(self.settings.leave_s)
        except Exception as error:
            log.error("routers were not handed over: %s", error)
        finally:
            self.should_exit = True
