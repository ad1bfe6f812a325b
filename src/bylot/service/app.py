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

from bylot.durable import keeper
from bylot.durable.owner import owner_here
from bylot.errors import BylotError
from bylot.service.credentials import Credentials, neighbour
from bylot.service.desk import Desk, Keeper
from bylot.service.endpoint import Answer, Send, encode, refused, write
from bylot.service.errors import Refusal, nothing_here, plain, wrong_method
from bylot.service.limits import Receive
from bylot.service.metrics import Meters
from bylot.service.openapi import document
from bylot.service.pages.routes import routes as pages
from bylot.service.pages.served import Served
from bylot.service.rate import Rates
from bylot.service.reader import Reader
from bylot.service.routes import ROUTES, Table
from bylot.service.settings import Settings
from bylot.service.state import Service
from bylot.service.tracing import spans
from bylot.service.workshop import prepare
from bylot.store import open_store

log = logging.getLogger("bylot.service")

KEYS_EVERY = 1.0  # seconds between looks at the keys: as long may a revoked one still be used


class App:
    """What uvicorn calls: the API straight from its table, all else through Starlette."""

    def __init__(self, service: Service, pages: Sequence[BaseRoute]) -> None:
        self.service = service
        self.table = Table(service)
        self.behind = Starlette(
            routes=pages,
            lifespan=self.lifespan,
            exception_handlers={HTTPException: lost, Exception: failed},
        )
        self.behind.state.service = service

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One request, or the life of the server."""
        if scope["type"] != "http":
            return await self.behind(scope, receive, send)
        methods, about = self.table.find(scope["path"])
        if methods is None:
            return await self.page(scope, receive, send)
        endpoint = methods.get(scope["method"])
        if endpoint is None:
            return await write(send, refused(wrong_method(scope["method"], tuple(methods))))
        return await endpoint(scope, receive, send, about)

    async def page(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """A page, or nothing; who may see it is left to the pages, but for pages of elsewhere."""
        if not self.service.credentials.needed:
            try:
                neighbour(dict(scope["headers"]))
            except Refusal as error:
                return await write(send, refused(error))
        return await self.behind(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """The desk opens before the first request, and closes after the last."""
        service = self.service
        await service.desk.start()
        try:
            service.credentials.learn(await service.reader.read(lambda store: store.keys()))
            service.workshop.submit(prepare)
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
            await asyncio.sleep(KEYS_EVERY)
            with contextlib.suppress(BylotError):
                keys = await self.service.reader.read(lambda store: store.keys())
                self.service.credentials.learn(keys)


def make_app(
    settings: Settings,
    *,
    hire: Callable[[], Keeper] | None = None,
) -> App:
    """An application; hire: makes its keeper, if not the usual one."""
    meters = Meters()
    desk = Desk(
        hire or keeper_of(settings),
        measure=meters.commit,
        group=settings.group,
        size=settings.queue,
        renew_every=settings.lease / 3,
    )
    reader = Reader(lambda: open_store(settings.store, read_only=True))
    credentials = Credentials(settings.host)
    service = Service(
        settings=settings,
        desk=desk,
        reader=reader,
        credentials=credentials,
        rates=Rates(settings.rate, settings.burst),
        meters=meters,
        spans=spans(),
        contract=encode(document(ROUTES)),
    )
    source = Served(desk, reader, lambda: meters.recent)
    return App(service, pages(source, credentials.whose))


def keeper_of(settings: Settings) -> Callable[[], Keeper]:
    """The keeper of a store."""
    return lambda: keeper.Keeper(open_store(settings.store), owner_here(), lease=settings.lease)


async def lost(request: Request, error: Exception) -> Response:
    """What Starlette refuses, in our shape."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path
    return response(refused(nothing_here(path) if status == 404 else plain(status)))


async def failed(request: Request, error: Exception) -> Response:
    """What a page raised, in our shape."""
    return response(refused(error))


def response(answer: Answer) -> Response:
    """An answer as Starlette has it."""
    made = Response(answer.body, answer.status)
    made.raw_headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
    return made
