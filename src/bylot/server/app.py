"""The ASGI application: the table of routes in front, pages behind it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from bylot.errors import BylotError
from bylot.eventlog import command_handler
from bylot.eventlog.repository import make_owner_name
from bylot.server.auth import Credentials, RateLimiter, check_local_request
from bylot.server.compile_pool import compile_default_policy
from bylot.server.dashboard.routes import dashboard_routes as pages
from bylot.server.dashboard.source import ServerSource
from bylot.server.endpoint import AsgiSend, HttpResponse, encode_json, error_response, send_response
from bylot.server.http_errors import ApiError, method_not_allowed, path_not_found, plain_http_error
from bylot.server.metrics import ServerMetrics
from bylot.server.openapi import build_openapi
from bylot.server.request_parsing import AsgiReceive
from bylot.server.routes import ROUTES, RouteTable
from bylot.server.state import ServerSettings, ServerState
from bylot.server.telemetry import make_tracer
from bylot.server.writer import BatchHandler, Reader, Writer
from bylot.store import open_store

log = logging.getLogger("bylot.server")

KEY_REFRESH_S = 1.0  # seconds between looks at the keys: as long may a revoked one still be used


class ServerApp:
    """What uvicorn calls: the API straight from its table, all else through Starlette."""

    def __init__(self, service: ServerState, pages: Sequence[BaseRoute]) -> None:
        self.service = service
        self.table = RouteTable(service)
        self.behind = Starlette(
            routes=pages,
            lifespan=self.lifespan,
            exception_handlers={
                HTTPException: respond_to_http_exception,
                Exception: respond_to_page_error,
            },
        )
        self.behind.state.service = service

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: AsgiReceive, send: AsgiSend
    ) -> None:
        """One request, or the life of the server."""
        if scope["type"] != "http":
            return await self.behind(scope, receive, send)
        methods, about = self.table.find(scope["path"])
        if methods is None:
            return await self.page(scope, receive, send)
        endpoint = methods.get(scope["method"])
        if endpoint is None:
            return await send_response(
                send, error_response(method_not_allowed(scope["method"], tuple(methods)))
            )
        return await endpoint(scope, receive, send, about)

    async def page(
        self, scope: MutableMapping[str, Any], receive: AsgiReceive, send: AsgiSend
    ) -> None:
        """A page, or nothing; who may see it is left to the pages, but for pages of elsewhere."""
        if not self.service.credentials.needed:
            try:
                check_local_request(dict(scope["headers"]))
            except ApiError as error:
                return await send_response(send, error_response(error))
        return await self.behind(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """The desk opens before the first request, and closes after the last."""
        service = self.service
        await service.desk.start()
        try:
            service.credentials.learn(await service.reader.read(lambda store: store.keys()))
            service.workshop.submit(compile_default_policy)
            watch = asyncio.create_task(self.watch())
            yield
            watch.cancel()
        finally:
            await service.desk.close()
            await service.reader.close()
            service.workshop.shutdown(wait=False, cancel_futures=True)
            if service.spans:
                service.spans.close()

    async def watch(self) -> None:
        """Look at the keys now and then; while the store is down, those known last hold."""
        while True:
            await asyncio.sleep(KEY_REFRESH_S)
            with contextlib.suppress(BylotError):
                keys = await self.service.reader.read(lambda store: store.keys())
                self.service.credentials.learn(keys)


def make_app(
    settings: ServerSettings,
    *,
    hire: Callable[[], BatchHandler] | None = None,
) -> ServerApp:
    """An application; hire: makes its keeper, if not the usual one."""
    meters = ServerMetrics()
    desk = Writer(
        hire or make_handler_factory(settings),
        measure=meters.commit,
        group=settings.group,
        size=settings.queue,
        renew_every=settings.lease / 3,
    )
    reader = Reader(lambda: open_store(settings.store, read_only=True))
    credentials = Credentials(settings.host)
    service = ServerState(
        settings=settings,
        desk=desk,
        reader=reader,
        credentials=credentials,
        rates=RateLimiter(settings.rate, settings.burst),
        meters=meters,
        spans=make_tracer(),
        contract=encode_json(build_openapi(ROUTES)),
    )
    source = ServerSource(desk, reader, lambda: meters.recent)
    return ServerApp(service, pages(source, credentials.whose))


def make_handler_factory(settings: ServerSettings) -> Callable[[], BatchHandler]:
    """The keeper of a store."""
    return lambda: command_handler.CommandHandler(
        open_store(settings.store), make_owner_name(), lease=settings.lease
    )


async def respond_to_http_exception(request: Request, error: Exception) -> Response:
    """What Starlette refuses, in our shape."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path
    return starlette_response(
        error_response(path_not_found(path) if status == 404 else plain_http_error(status))
    )


async def respond_to_page_error(request: Request, error: Exception) -> Response:
    """What a page raised, in our shape."""
    return starlette_response(error_response(error))


def starlette_response(answer: HttpResponse) -> Response:
    """An answer as Starlette has it."""
    made = Response(answer.body, answer.status)
    made.raw_headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
    return made
