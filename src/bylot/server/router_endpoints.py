"""Endpoints of routers: create, list, show, edit and delete them, and read their event logs."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from msgspec import UNSET, Raw

from bylot import api
from bylot.errors import RouterNotFound
from bylot.eventlog.commands import CreateRouter, DeleteRouter, EditRouter, ShowRouter
from bylot.eventlog.events import BODY_DECODERS, format_timestamp
from bylot.router.config import RouterConfig
from bylot.server.config_requests import config_from_create, config_from_edit
from bylot.server.endpoint import ApiRequest, HttpResponse, encode_json, json_response
from bylot.server.request_parsing import ROUTERS_REMEDY, check_router_name
from bylot.server.state import ServerState
from bylot.store import Event, Store

log = logging.getLogger("bylot.server")

PooledT = TypeVar("PooledT")


async def run_in_compile_pool(state: ServerState, work: Callable[[], PooledT]) -> PooledT:
    """Run slow work outside the event loop and the writer thread."""
    return await asyncio.get_running_loop().run_in_executor(state.compile_pool, work)


async def create_router(request: ApiRequest[api.CreateRouterRequest, None]) -> HttpResponse:
    """Create a router; infeasible limits are rejected with a remedy."""
    body, by = request.body, request.caller.id
    request.caller.check("admin", body.name)
    config = await run_in_compile_pool(request.state, lambda: config_from_create(body))
    view = await request.state.writer.execute(CreateRouter(body.name, config, by))
    log.info("router created", extra={"router": body.name, "by": by})
    return json_response(201, view)


async def list_routers(request: ApiRequest[None, api.RouterListQuery]) -> HttpResponse:
    """List routers by name, page by page."""
    after, limit, allowed = request.query.after, request.query.limit, request.caller.routers
    reader = request.state.reader
    if allowed:
        names = sorted(name for name in allowed if name > after)
        found = await reader.read(lambda store: [store.find(name) for name in names])
        rows = [row for row in found if row is not None]
    else:
        rows = await reader.read(lambda store: store.routers(after, limit + 1))
    routers = tuple(
        api.RouterSummary(row.name, row.number, format_timestamp(row.created))
        for row in rows[:limit]
    )
    next_after = routers[-1].name if len(rows) > limit else None
    return json_response(200, api.RouterList(routers, next_after))


async def get_router(request: ApiRequest[None, None]) -> HttpResponse:
    """A router: its configuration and its status."""
    return json_response(200, await view_router(request.state, request.target))


async def get_router_status(request: ApiRequest[None, None]) -> HttpResponse:
    """Status of a router: averages, slack and price of every limit, current distributions."""
    return json_response(200, (await view_router(request.state, request.target)).status)


async def view_router(state: ServerState, name: str) -> api.RouterView:
    """A router as it is now."""
    view: api.RouterView = await state.writer.execute(ShowRouter(check_router_name(name)))
    return view


async def edit_router(request: ApiRequest[api.EditRouterRequest, None]) -> HttpResponse:
    """Edit limits, experts and reward rules of a running router: a new version, in its log."""
    state, name, body, by = request.state, request.target, request.body, request.caller.id
    async with state.edit_lock:  # no edit may undo another one that it has not seen
        old = (await view_router(state, name)).config
        new: RouterConfig = await run_in_compile_pool(state, lambda: config_from_edit(old, body))
        version = old.version if body.version is UNSET else body.version
        view = await state.writer.execute(EditRouter(name, new, version, by))
    log.info("router edited", extra={"router": name, "by": by})
    return json_response(200, view)


async def delete_router(request: ApiRequest[None, None]) -> HttpResponse:
    """Delete a router and its event log."""
    name, by = check_router_name(request.target), request.caller.id
    await request.state.writer.execute(DeleteRouter(name, by))
    log.info("router deleted", extra={"router": name, "by": by})
    return HttpResponse(204, headers=())


async def list_events(request: ApiRequest[None, api.EventListQuery]) -> HttpResponse:
    """The event log of a router, page by page."""
    name = check_router_name(request.target)
    after, limit = request.query.after, request.query.limit
    found = await request.state.reader.read(
        lambda store: read_router_events(store, name, after, limit + 1)
    )
    next_after = found[limit - 1].seq if len(found) > limit else None
    events = tuple(event_record(one) for one in found[:limit])
    return json_response(200, api.EventList(events, next_after))


def read_router_events(store: Store, name: str, after: int, limit: int) -> list[Event]:
    """Events of a router, from the store."""
    row = store.find(name)
    if row is None:
        raise RouterNotFound(f"no router named {name!r}", remedy=ROUTERS_REMEDY)
    return store.events(row.number, after, limit)


def event_record(event: Event) -> api.EventRecord:
    """An event as it is sent."""
    return api.EventRecord(
        event.seq,
        event.kind,
        event.of,
        event.key,
        format_timestamp(event.at),
        Raw(encode_json(BODY_DECODERS[event.kind](event.body))),
        event.seal.hex(),
    )
