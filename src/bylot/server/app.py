"""The ASGI application: the routes of the API first, then the pages of the dashboard."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from bylot.errors import BylotError
from bylot.server.auth import Credentials, RateLimiter, check_local_request
from bylot.server.compile_pool import compile_default_policy
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
from bylot.server.writer import BatchHandler, Reader, Writer, make_command_handler

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
        if methods is None:
            return await self.serve_page(scope, receive, send)
        endpoint = methods.get(scope["method"])
        if endpoint is None:
            error = method_not_allowed(scope["method"], tuple(methods))
            return await send_response(send, error_response(error))
        return await endpoint(scope, receive, send, target)

    async def serve_page(
        self, scope: MutableMapping[str, Any], receive: AsgiReceive, send: AsgiSend
    ) -> None:
        """Serve a page of the dashboard; its routes authenticate the visitor."""
        if not self.state.credentials.required:
            try:
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
        self.state.credentials.refresh(keys)

    async def refresh_keys_forever(self) -> None:
        """Refresh the keys regularly; while the store is down, the last known ones count."""
        while True:
            await asyncio.sleep(KEY_REFRESH_S)
            with contextlib.suppress(BylotError):
                await self.refresh_keys()


def make_app(
    settings: ServerSettings, *, make_handler: Callable[[], BatchHandler] | None = None
) -> ServerApp:
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


async def respond_to_error(request: Request, error: Exception) -> Response:
    """An error raised by Starlette or by a page, in the shape of the API."""
    if isinstance(error, HTTPException):
        error = error_for_status(error.status_code, request.url.path)
    status, body, headers = error_response(error)
    response = Response(body, status)
    response.raw_headers = [*headers, (b"content-length", str(len(body)).encode())]
    return response
