"""Routers over HTTP: make them, look at them, edit them while they run."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import UNSET, Raw

from bylot.api import (
    CreateRouterRequest,
    EditRouterRequest,
    EventList,
    EventListQuery,
    EventRecord,
    RouterList,
    RouterListQuery,
    RouterSummary,
    RouterView,
)
from bylot.errors import RouterNotFound
from bylot.eventlog.commands import CreateRouter, DeleteRouter, EditRouter, ShowRouter
from bylot.eventlog.history import body_for_readers, format_timestamp
from bylot.router.config import RouterConfig
from bylot.server import config_requests, request_parsing
from bylot.server.endpoint import ApiRequest, HttpResponse, encode_json, json_response
from bylot.server.state import ServerState
from bylot.store import Event, RouterRow, Store

log = logging.getLogger("bylot.server")

PooledT = TypeVar("PooledT")


async def create_router(call: ApiRequest[CreateRouterRequest, None]) -> HttpResponse:
    """Make a router; its limits are checked, and refused with a remedy if nobody can keep them."""
    form = call.form
    call.who.check("admin", form.name)
    agreed = await run_in_compile_pool(
        call.service, lambda: config_requests.config_from_create(form)
    )
    view = await call.service.desk.ask(CreateRouter(form.name, agreed, call.who.id))
    log_change("router created", call, form.name)
    return json_response(201, view)


def log_change(what: str, call: ApiRequest[Any, Any], name: str) -> None:
    """A line in the log of the server: who did this to a router."""
    log.info(what, extra={"router": name, "by": call.who.id})


async def run_in_compile_pool(service: ServerState, make: Callable[[], PooledT]) -> PooledT:
    """What takes long is done aside, not in the event loop and not by the one writer."""
    return await asyncio.get_running_loop().run_in_executor(service.workshop, make)


async def list_routers(call: ApiRequest[None, RouterListQuery]) -> HttpResponse:
    """Routers by name, page by page."""
    after, limit, who = call.query.after, call.query.limit, call.who
    if who.routers:
        names = sorted(name for name in who.routers if name > after)
        found = await call.service.reader.read(lambda store: [store.find(n) for n in names])
        rows = [row for row in found if row is not None]
    else:
        rows = await call.service.reader.read(lambda store: store.routers(after, limit + 1))
    more = rows[limit - 1].name if len(rows) > limit else None
    return json_response(200, RouterList(tuple(router_summary(row) for row in rows[:limit]), more))


def router_summary(row: RouterRow) -> RouterSummary:
    """A router of the list."""
    return RouterSummary(row.name, row.number, format_timestamp(row.created))


async def get_router(call: ApiRequest[None, None]) -> HttpResponse:
    """A router: its terms, and how it stands."""
    return json_response(200, await view_router(call.service, call.about))


async def get_router_status(call: ApiRequest[None, None]) -> HttpResponse:
    """How a router stands: means, the slack and price of every limit, the law in use."""
    return json_response(200, (await view_router(call.service, call.about)).status)


async def view_router(service: ServerState, name: str) -> RouterView:
    """A router at this moment."""
    seen: RouterView = await service.desk.ask(ShowRouter(request_parsing.check_router_name(name)))
    return seen


async def edit_router(call: ApiRequest[EditRouterRequest, None]) -> HttpResponse:
    """Change limits, experts and times of a router that runs: a new version, in its log."""
    service, form = call.service, call.form
    async with service.editing:  # one after another, so that none undoes what it has not seen
        before = await view_router(service, call.about)
        after: RouterConfig = await run_in_compile_pool(
            service, lambda: config_requests.config_from_edit(before.terms, form)
        )
        version = before.terms.version if form.version is UNSET else form.version
        changed = await service.desk.ask(EditRouter(call.about, after, version, call.who.id))
    log_change("router edited", call, call.about)
    return json_response(200, changed)


async def delete_router(call: ApiRequest[None, None]) -> HttpResponse:
    """Forget a router and its log."""
    await call.service.desk.ask(
        DeleteRouter(request_parsing.check_router_name(call.about), call.who.id)
    )
    log_change("router deleted", call, call.about)
    return HttpResponse(204, headers=())


async def list_events(call: ApiRequest[None, EventListQuery]) -> HttpResponse:
    """The log of a router, page by page."""
    name, after, limit = (
        request_parsing.check_router_name(call.about),
        call.query.after,
        call.query.limit,
    )
    lines = await call.service.reader.read(
        lambda store: read_router_events(store, name, after, limit + 1)
    )
    more = lines[limit - 1].seq if len(lines) > limit else None
    return json_response(200, EventList(tuple(event_record(one) for one in lines[:limit]), more))


def read_router_events(store: Store, name: str, after: int, limit: int) -> list[Event]:
    """Lines of the log of a router."""
    row = store.find(name)
    if row is None:
        raise RouterNotFound(f"there is no router {name!r}; GET /v1/routers lists them")
    return store.events(row.number, after, limit)


def event_record(event: Event) -> EventRecord:
    """A line as it is told."""
    return EventRecord(
        event.seq,
        event.kind,  # type: ignore[arg-type]
        event.of,
        event.key,
        format_timestamp(event.at),
        Raw(encode_json(body_for_readers(event))),
        event.seal.hex(),
    )
