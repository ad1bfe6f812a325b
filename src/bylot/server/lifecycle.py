"""Start and stop the server: the listening socket, uvicorn with timeouts, size limits and our error
responses, and a shutdown that loses nothing.

This is the only module that uses uvicorn's private classes. pyproject.toml therefore has an upper
bound on uvicorn, and tests/test_uvicorn_protocol.py names the versions that were tested.
"""

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
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from bylot.errors import BylotError
from bylot.eventlog.repository import release_dead_leases
from bylot.gateway.config import build_models
from bylot.gateway.scoring import SCORER_THREAD_PREFIX
from bylot.server.app import ServerApp
from bylot.server.auth import check_bind_address
from bylot.server.endpoint import error_response
from bylot.server.http_errors import ApiError
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
MAX_HEAD_BYTES = 65_536  # request line and headers
MAX_FRAMING_BYTES = 16 * MAX_HEAD_BYTES  # chunk sizes and trailers of a body


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
        what = f"cannot listen on {host}, port {port}: {error.strerror}"
        raise BylotError(what, remedy="choose another --port or --host") from None


class CorkedTransport:
    """Sends the head of a response together with its body, in one system call.

    uvicorn writes them separately. One write instead of two saves 14 of 63 microseconds of CPU per
    request of a minimal application.
    """

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.head = b""
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        """Send data, but hold back the head of a response until its body follows."""
        if self.head:
            self.transport.write(self.head + data)
            self.head = b""
        elif data.endswith(b"\r\n\r\n") and not data.startswith(b"HTTP/1.1 1"):
            self.head = data
        else:
            self.transport.write(data)

    def flush(self) -> None:
        """Send a head that was held back."""
        if self.head:
            self.write(b"")

    def close(self) -> None:
        """Flush, then close the connection."""
        self.flush()
        self.transport.close()


class HttpConnection(HttpToolsProtocol):
    """A connection that knows since when it has been waiting for the client.

    waiting_since: when the wait for the first byte, the rest of the head or the rest of the body
    began; None while the server is to act. uvicorn's own timer covers the time between requests.
    `HttpServer` calls `expire` once a second.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.transport = self.corked = CorkedTransport(transport)  # type: ignore[assignment]
        self.waiting_since: float | None = self.loop.time()
        self.head_bytes = 0  # of an unfinished head; -1: the head is complete
        self.parsed_bytes = 0  # of the path and of complete headers
        self.framing_bytes = 0  # since the head, without the body itself

    def data_received(self, data: bytes) -> None:
        """Count the bytes of head and framing, and enforce their limits."""
        if self.head_bytes >= 0:
            self.head_bytes += len(data)
        else:
            self.framing_bytes += len(data)
        super().data_received(data)
        if self.head_bytes > MAX_HEAD_BYTES:
            self.reject_head()
        elif self.framing_bytes > MAX_FRAMING_BYTES:
            message = f"chunks and trailers too large: expected at most {MAX_FRAMING_BYTES} bytes"
            self.reject(ApiError(431, "head_too_large", message))
        elif self.waiting_since is None and (self.cycle is None or self.cycle.response_complete):
            self.waiting_since = self.loop.time()  # bytes between requests stop uvicorn's timer

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; trailers are ignored."""
        if self.head_bytes >= 0:
            self.parsed_bytes += len(name) + len(value) + 4  # a colon, a space, a line break
            super().on_header(name, value)

    def on_url(self, url: bytes) -> None:
        self.parsed_bytes += len(url)
        super().on_url(url)

    def on_body(self, body: bytes) -> None:
        self.framing_bytes -= len(body)
        super().on_body(body)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.waiting_since, self.parsed_bytes = self.loop.time(), 0

    def on_headers_complete(self) -> None:
        if self.parsed_bytes > MAX_HEAD_BYTES:  # it may have arrived in one piece with its end
            self.reject_head()
            raise ValueError("headers too large")  # stops the parser
        super().on_headers_complete()
        self.waiting_since, self.head_bytes = self.loop.time(), -1

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.waiting_since, self.head_bytes, self.framing_bytes = None, 0, 0

    def on_response_complete(self) -> None:
        """The response is complete; it may have no body."""
        self.corked.flush()
        super().on_response_complete()

    def expire(self, now: float, body_timeout_s: float, idle_timeout_s: float) -> None:
        """Close the connection if it has waited for the client for too long."""
        timeout = body_timeout_s if self.head_bytes < 0 else idle_timeout_s
        if self.waiting_since is None or now - self.waiting_since <= timeout:
            return
        if self.head_bytes == 0:  # a response here would be taken for that of a later request
            self.waiting_since = None
            self.transport.close()
            return
        part = "body" if self.head_bytes < 0 else "head"
        message = f"timeout: the {part} of the request did not arrive within {timeout:g} s"
        self.reject(ApiError(408, "too_slow", message))

    def send_400_response(self, msg: str) -> None:
        """Malformed HTTP."""
        self.reject(ApiError(400, "malformed", msg))

    def reject_head(self) -> None:
        message = f"headers too large: expected at most {MAX_HEAD_BYTES} bytes"
        self.reject(ApiError(431, "head_too_large", message))

    def reject(self, error: ApiError) -> None:
        """Send an error, unless a response has begun, and close the connection."""
        self.waiting_since = None
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            status, body, headers = error_response(error)
            length = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
            self.transport.write(STATUS_LINE[status] + lines + length + body)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # ends the wait for the body
            self.cycle.message_event.set()
        self.transport.close()


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
            self.loop.call_soon_threadsafe(self.begin_leaving)
        else:
            self.should_exit = True

    def begin_leaving(self) -> None:
        self.leaving = self.loop.create_task(self.leave())

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
