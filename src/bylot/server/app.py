"""The ASGI application: the routes of the API first, then the pages of the dashboard."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, MutableMapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from bylot.errors import BylotError
from bylot.problem import Problem, at_most
from bylot.router.router import Router
from bylot.server.auth import Credentials, RateLimiter, check_local_request
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.source import ServerSource
from bylot.server.endpoint import AsgiSend, encode_json, error_response, send_response
from bylot.server.http_errors import ApiError, error_for_status, method_not_allowed
from bylot.server.metrics import ServerMetrics
from bylot.server.openapi import build_openapi
from bylot.server.request_parsing import AsgiReceive
from bylot.server.routes import ROUTES, RouteTable
from bylot.server.state import ServerSettings, ServerState
from bylot.server.telemetry import make_tracer
from bylot.server.writer import MakeHandler, Reader, Writer, make_command_handler

log = logging.getLogger("bylot.server")

KEY_REFRESH_S = 1.0  # a revoked key may be used this long


class ServerApp:
    """The ASGI callable: the API from its own route table, everything else through Starlette."""

    def __init__(self, state: ServerState, pages: Sequence[BaseRoute]) -> None:
        self.state = state
        self.table = RouteTable(state)
        self.starlette = Starlette(
            routes=pages,
            lifespan=self.lifespan,
            exception_handlers={HTTPException: respond_to_error, Exception: respond_to_error},
        )

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: AsgiReceive, send: AsgiSend
    ) -> None:
        """Serve one request, or run the lifespan of the server."""
        if scope["type"] != "http":
            return await self.starlette(scope, receive, send)
        methods, target = self.table.find(scope["path"])
        endpoint = (methods or {}).get(scope["method"])
        if endpoint is not None:
            return await endpoint(scope, receive, send, target)
        try:
            if methods is not None:
                raise method_not_allowed(scope["method"], tuple(methods))
            if not self.state.credentials.required:  # otherwise the pages ask for a key
                check_local_request(dict(scope["headers"]))
        except ApiError as error:
            return await send_response(send, error_response(error))
        return await self.starlette(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Start the writer before the first request, stop it after the last."""
        state = self.state
        await state.writer.start()
        try:
            await self.refresh_keys()
            state.compile_pool.submit(compile_default_policy)
            refreshing = asyncio.create_task(self.refresh_keys_forever())
            yield
            refreshing.cancel()
        finally:
            await state.writer.close()
            await state.reader.close()
            state.compile_pool.shutdown(wait=False, cancel_futures=True)
            if state.tracer:
                state.tracer.close()

    async def refresh_keys(self) -> None:
        """Read the API keys of the store."""
        keys = await self.state.reader.read(lambda store: store.keys())
        self.state.credentials.keys = {key.id: key for key in keys}

    async def refresh_keys_forever(self) -> None:
        """Refresh the keys regularly; while the store is down, the last known ones count."""
        while True:
            await asyncio.sleep(KEY_REFRESH_S)
            with contextlib.suppress(BylotError):
                await self.refresh_keys()


def make_app(settings: ServerSettings, *, make_handler: MakeHandler | None = None) -> ServerApp:
    """The application of a server; make_handler: creates its command handler, for tests."""
    metrics = ServerMetrics()
    writer = Writer(
        make_handler or (lambda: make_command_handler(settings.store, settings.lease_s)),
        on_commit=metrics.record_commit,
        group_commit=settings.group_commit,
        max_queued=settings.max_queued,
        renew_interval_s=settings.lease_s / 3,
    )
    reader = Reader(settings.store)
    credentials = Credentials(settings.host)
    state = ServerState(
        settings=settings,
        writer=writer,
        reader=reader,
        credentials=credentials,
        rate_limiter=RateLimiter(settings.rate, settings.burst),
        metrics=metrics,
        tracer=make_tracer(),
        openapi=encode_json(build_openapi(ROUTES)),
    )
    source = ServerSource(writer, reader, lambda: metrics.recent)
    return ServerApp(state, dashboard_routes(source, credentials.find_caller))


def compile_default_policy() -> None:
    """Load the default policy, or compile it the first time, before the first router needs it."""
    start = time.monotonic()
    Router(Problem(["a", "b"], {"cost": [1.0, 2.0]}, [at_most("cost", 2.0)], draws=1))
    log.info("the default policy is ready after %.1f s", time.monotonic() - start)


async def respond_to_error(request: Request, error: Exception) -> Response:
    """An error raised by Starlette or by a page, in the shape of the API."""
    if isinstance(error, HTTPException):
        error = error_for_status(error.status_code, request.url.path)
    status, body, headers = error_response(error)
    response = Response(body, status)
    response.raw_headers = [*headers, (b"content-length", str(len(body)).encode())]
    return response
