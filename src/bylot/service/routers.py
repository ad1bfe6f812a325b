"""Routers over HTTP: make them, look at them, edit them while they run."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import UNSET

from bylot.durable.commands import Create, Delete, Edit, RouterView, Show
from bylot.durable.history import moment, said_in
from bylot.durable.terms import Terms
from bylot.errors import NoSuchRouter
from bylot.service import limits, terms
from bylot.service.endpoint import Answer, Call, told
from bylot.service.state import Service
from bylot.service.types import (
    CreateForm,
    EditForm,
    EventLine,
    EventPage,
    EventsAfter,
    RouterItem,
    RouterPage,
    RoutersAfter,
)
from bylot.store import Event, RouterRow, Store

log = logging.getLogger("bylot.service")

Made = TypeVar("Made")


async def create(call: Call[CreateForm, None]) -> Answer:
    """Make a router; its limits are checked, and refused with a remedy if nobody can keep them."""
    form = call.form
    call.who.check("admin", form.name)
    agreed = await prepared(call.service, lambda: terms.first(form))
    view = await call.service.desk.ask(Create(form.name, agreed, call.who.id))
    note("router created", call, form.name)
    return told(201, view)


def note(what: str, call: Call[Any, Any], name: str) -> None:
    """A line in the log of the server: who did this to a router."""
    log.info(what, extra={"router": name, "by": call.who.id})


async def prepared(service: Service, make: Callable[[], Made]) -> Made:
    """What takes long is done aside, not in the event loop and not by the one writer."""
    return await asyncio.get_running_loop().run_in_executor(service.workshop, make)


async def listed(call: Call[None, RoutersAfter]) -> Answer:
    """Routers by name, page by page."""
    after, limit, who = call.query.after, call.query.limit, call.who
    if who.routers:
        names = sorted(name for name in who.routers if name > after)
        found = await call.service.reader.read(lambda store: [store.find(n) for n in names])
        rows = [row for row in found if row is not None]
    else:
        rows = await call.service.reader.read(lambda store: store.routers(after, limit + 1))
    more = rows[limit - 1].name if len(rows) > limit else None
    return told(200, RouterPage(tuple(item(row) for row in rows[:limit]), more))


def item(row: RouterRow) -> RouterItem:
    """A router of the list."""
    return RouterItem(row.name, row.number, moment(row.created))


async def show(call: Call[None, None]) -> Answer:
    """A router: its terms, and how it stands."""
    return told(200, await view(call.service, call.about))


async def status(call: Call[None, None]) -> Answer:
    """How a router stands: means, the slack and price of every limit, the law in use."""
    return told(200, (await view(call.service, call.about)).status)


async def view(service: Service, name: str) -> RouterView:
    """A router at this moment."""
    seen: RouterView = await service.desk.ask(Show(limits.router(name)))
    return seen


async def edit(call: Call[EditForm, None]) -> Answer:
    """Change limits, experts and times of a router that runs: a new version, in its log."""
    service, form = call.service, call.form
    async with service.editing:  # one after another, so that none undoes what it has not seen
        before = await view(service, call.about)
        after: Terms = await prepared(service, lambda: terms.edited(before.terms, form))
        version = before.terms.version if form.version is UNSET else form.version
        changed = await service.desk.ask(Edit(call.about, after, version, call.who.id))
    note("router edited", call, call.about)
    return told(200, changed)


async def delete(call: Call[None, None]) -> Answer:
    """Forget a router and its log."""
    await call.service.desk.ask(Delete(limits.router(call.about), call.who.id))
    note("router deleted", call, call.about)
    return Answer(204, headers=())


async def events(call: Call[None, EventsAfter]) -> Answer:
    """The log of a router, page by page."""
    name, after, limit = limits.router(call.about), call.query.after, call.query.limit
    lines = await call.service.reader.read(lambda store: lines_of(store, name, after, limit + 1))
    more = lines[limit - 1].seq if len(lines) > limit else None
    return told(200, EventPage(tuple(line(one) for one in lines[:limit]), more))


def lines_of(store: Store, name: str, after: int, limit: int) -> list[Event]:
    """Lines of the log of a router."""
    row = store.find(name)
    if row is None:
        raise NoSuchRouter(f"there is no router {name!r}; GET /v1/routers lists them")
    return store.events(row.number, after, limit)


def line(event: Event) -> EventLine:
    """A line as it is told."""
    return EventLine(
        event.seq,
        event.kind,  # type: ignore[arg-type]
        event.of,
        event.key,
        moment(event.at),
        said_in(event),
        event.seal.hex(),
    )
