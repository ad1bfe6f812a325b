"""The server: the ASGI application, uvicorn around it, and a shutdown that loses nothing.

The routes of the API come first, then the pages of the dashboard.
"""

import asyncio
import contextlib
import gc
import hmac
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Mapping, MutableMapping
from http import HTTPStatus
from types import FrameType
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bylot import __version__
from bylot.errors import BylotError
from bylot.eventlog.repository import release_dead_leases
from bylot.gateway.config import Model, build_models
from bylot.gateway.scoring import SCORER_THREAD_PREFIX
from bylot.server import peers
from bylot.server.auth import check_bind_address, check_local_request
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.source import ServerSource
from bylot.server.endpoint import (
    CLOSE_HEADER,
    AsgiSend,
    Endpoint,
    HttpResponse,
    error_response,
    send_response,
)
from bylot.server.http_connection import HttpConnection
from bylot.server.http_errors import ApiError
from bylot.server.policy_compiler import COMPILE_THREAD_PREFIX
from bylot.server.provision import build_keys
from bylot.server.reconcile import declare_routers, find_used_models, reconcile_routers
from bylot.server.request_parsing import AsgiReceive, read_body
from bylot.server.routes import RouteTable
from bylot.server.settings import CLUSTER_KEY_REMEDY, ServerSettings, check_cluster
from bylot.server.state import PREPARE_THREAD_PREFIX, ServerState
from bylot.server.telemetry import configure_logging
from bylot.server.writer import READER_THREAD, WRITER_THREAD, MakeHandler
from bylot.store import hide_password, open_store, store_exists

MAX_POST_BYTES = 100_000_000
MSGPACK_HEADERS = ((b"content-type", b"application/msgpack"),)


class CommandsEndpoint:
    """Executes the commands of other servers, which know the cluster key."""

    def __init__(self, state: ServerState) -> None:
        self.state, self.key = state, (state.settings.cluster_key or "").encode()

    async def __call__(
        self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend
    ) -> None:
        """Serve one request; a command that fails does not affect the others."""
        headers = dict(scope["headers"])
        try:
            self.check(headers)
            content = await read_body(receive, headers, MAX_POST_BYTES)
            try:
                commands = list(map(peers.decode_command, peers.decode_commands(content)))
            except (msgspec.DecodeError, KeyError):
                raise make_release_error(headers) from None
            results = await self.state.writer.execute_all(commands)  # here, whoever sent them
            sent = peers.encode(list(map(peers.encode_result, results)))
            more = (CLOSE_HEADER,) if self.state.stopping else ()  # they must not use it later
            response = HttpResponse(200, sent, (*MSGPACK_HEADERS, *more))
        except Exception as error:
            response = error_response(error)
        await send_response(send, response)

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a sender with another key, or whose messages have another format."""
        given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if not hmac.compare_digest(given, self.key):
            raise ApiError(
                401,
                peers.KEY_CODE,
                f"two servers have different cluster keys; {CLUSTER_KEY_REMEDY}",
            )
        if headers.get(peers.FORMAT_HEADER.encode()) != peers.MESSAGE_FORMAT.encode():
            raise make_release_error(headers)


def make_release_error(headers: Mapping[bytes, bytes]) -> ApiError:
    """The messages of the sender cannot be read here."""
    sender = headers.get(b"user-agent", b"").decode("ascii", "replace").replace("/", " ")[:50]
    message = f"{sender or 'another server'} and bylot {__version__} cannot exchange commands; "
    return ApiError(400, peers.SKEW_CODE, message + peers.RELEASE_REMEDY)


log = logging.getLogger("bylot.server")

KEY_REFRESH_S = 1.0  # a revoked key may be used this long
PLAIN_PATH_REGEX = re.compile(rb"/[\w/.:-]*", re.ASCII)


class ServerApp:
    """The ASGI callable: the API from its own route table, everything else through Starlette."""

    def __init__(
        self,
        settings: ServerSettings,
        make_handler: MakeHandler | None = None,
        models: Mapping[str, Model] | None = None,
    ) -> None:
        self.state = state = ServerState(settings, make_handler, models)
        self.table = RouteTable(state)
        self.commands = CommandsEndpoint(state) if state.cluster else None
        source = ServerSource(state.commands, state.reader, state.metrics.recent, state.gateway)
        self.starlette = Starlette(
            routes=dashboard_routes(source, state.credentials.find_caller, state.rate_limiter.take),
            lifespan=self.lifespan,
            exception_handlers={HTTPException: respond_to_error, Exception: respond_to_error},
        )

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: AsgiReceive, send: AsgiSend
    ) -> None:
        """Serve one request, or run the lifespan of the server."""
        if scope["type"] != "http":
            return await self.starlette(scope, receive, send)
        if self.commands is not None and scope["path"] == peers.COMMANDS_PATH:
            return await self.commands(scope, receive, send)
        methods, target = self.table.find(scope["path"])
        endpoint = (methods or {}).get(scope["method"])
        if endpoint is not None:
            return await endpoint(scope, receive, send, target)
        try:
            if methods is not None:
                names = ", ".join(methods)
                path = scope["path"][:200]
                message = f"method {scope['method'][:20]} not allowed for {path}; use {names}"
                headers = ((b"allow", names.encode()),)
                raise ApiError(405, "method_not_allowed", message, headers=headers)
            if not self.state.credentials.required:  # otherwise the pages ask for a key
                check_local_request(dict(scope["headers"]))
        except ApiError as error:
            return await send_response(send, error_response(error))
        return await self.starlette(scope, receive, send)

    def find_command(self, method: bytes, url: bytes) -> tuple[Endpoint, str] | None:
        """The endpoint of a request that is one command, and the variable part of its path.

        None if it is not, if its URL is unusual, if requests are traced, or if another server may
        have to execute the command.
        """
        if self.state.cluster is not None or self.state.tracer is not None:
            return None
        if PLAIN_PATH_REGEX.fullmatch(url) is None:
            return None
        methods, target = self.table.find(url.decode())
        endpoint = (methods or {}).get(method.decode())
        return (endpoint, target) if isinstance(endpoint, Endpoint) and endpoint.is_direct else None

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Start the writer before the first request, stop it after the last."""
        state = self.state
        await state.writer.start()
        try:
            await self.refresh_keys()
            state.compiler.start()
            await state.gateway.start()
            refreshing = asyncio.create_task(self.refresh_keys_forever())
            yield
            refreshing.cancel()
        finally:
            await state.gateway.close(state.settings.drain_timeout_s)
            if state.cluster is not None:
                await state.cluster.close()
            await state.reader.close()  # the last to close empties the write-ahead log
            await state.writer.close(state.settings.drain_timeout_s)
            state.compiler.close()
            state.prepare_pool.shutdown(wait=False, cancel_futures=True)
            if state.tracer:
                state.tracer.provider.shutdown()  # sends the spans that are left

    async def refresh_keys(self) -> None:
        keys = await self.state.reader.read(lambda store: store.keys())
        credentials = self.state.credentials
        credentials.keys = {**credentials.declared, **{key.id: key for key in keys}}

    async def refresh_keys_forever(self) -> None:
        """Refresh the keys regularly; while they cannot be read, the last known ones count."""
        credentials = self.state.credentials
        while True:
            await asyncio.sleep(KEY_REFRESH_S)
            try:
                await self.refresh_keys()
            except Exception as error:
                credentials.failed_refreshes += 1
                if credentials.failed_refreshes == 1:
                    log.error("cannot read the API keys: %s", error, exc_info=error)
            else:
                if credentials.failed_refreshes:
                    log.warning("the API keys can be read again")
                credentials.failed_refreshes = 0


async def respond_to_error(request: Request, error: Exception) -> Response:
    """An error raised by Starlette or by a page, in the shape of the API."""
    if isinstance(error, HTTPException) and error.status_code == 404:
        message = f"no such path {request.url.path[:200]!r}; see /openapi.json"
        error = ApiError(404, "not_found", message)
    elif isinstance(error, HTTPException):
        phrase = HTTPStatus(error.status_code).phrase
        error = ApiError(error.status_code, phrase.lower().replace(" ", "_"), phrase)
    status, body, headers = error_response(error)
    response = Response(body, status)
    response.raw_headers = [*headers, (b"content-length", str(len(body)).encode())]
    return response


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
            asyncio.run(peers.check_cluster_key(others, settings.cluster_key))
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
        access = (
            "API keys are required"
            if self.app.state.credentials.required
            else "no API keys: this machine only; `bylot keys create` creates one"
        )
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
