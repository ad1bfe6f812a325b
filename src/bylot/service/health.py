"""Is the server there, can it work, and how does it do."""

from bylot.durable.commands import RouterView, Show
from bylot.service.endpoint import Answer, Call, told
from bylot.service.errors import Refusal
from bylot.service.types import Health

PLAIN = (
    (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
)


async def alive(call: Call[None, None]) -> Answer:
    """The process is up."""
    return told(200, Health("up"))


async def ready(call: Call[None, None]) -> Answer:
    """The store answers, and the server is not stopping."""
    desk = call.service.desk
    if desk.draining or call.service.stopping:
        raise Refusal(503, "draining", "the server is stopping", retry=1.0)
    if desk.down is not None:
        raise desk.down
    await call.service.reader.read(lambda store: store.routers(limit=1))
    return told(200, Health("ready"))


async def metrics(call: Call[None, None]) -> Answer:
    """Numbers for Prometheus; routers one by one, those that were asked last."""
    service, meters = call.service, call.service.meters
    names = [name for name in meters.recent if call.who.sees(name)]
    views: list[RouterView] = []
    for first in range(0, len(names), 10):  # few at a time: others have requests
        shows = [Show(name) for name in names[first : first + 10]]
        views += [one for one in await service.desk.ask_all(shows) if isinstance(one, RouterView)]
    meters.queue.set(service.desk.waiting)
    return Answer(200, meters.text(views), PLAIN)


async def contract(call: Call[None, None]) -> Answer:
    """The OpenAPI document of all this."""
    return Answer(200, call.service.contract)
