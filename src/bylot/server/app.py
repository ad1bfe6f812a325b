"""The ASGI application: the routes of the API first, then the pages of the dashboard."""

import asyncio
import contextlib
import hmac
import logging
import re
from collections.abc import AsyncIterator, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bylot import __version__
from bylot.gateway.config import Model
from bylot.server import peers
from bylot.server.auth import check_local_request
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
from bylot.server.http_errors import ApiError
from bylot.server.peers import COMMANDS_PATH
from bylot.server.request_parsing import AsgiReceive, read_body
from bylot.server.routes import RouteTable
from bylot.server.settings import CLUSTER_KEY_REMEDY, ServerSettings
from bylot.server.state import ServerState
from bylot.server.writer import MakeHandler

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
        if self.commands is not None and scope["path"] == COMMANDS_PATH:
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
