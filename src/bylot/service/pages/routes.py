"""The addresses of the dashboard: `/` and `/routers/{name}`, each with its twin in JSON."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bylot.errors import BylotError, NoSuchRouter
from bylot.service.errors import judge, seconds
from bylot.service.pages.assets import assets, folder
from bylot.service.pages.figures import LATEST, RouterPage, router_page
from bylot.service.pages.overview import Overview, overview
from bylot.service.pages.render import HEADERS, page, twin
from bylot.service.pages.signin import COOKIE, Authenticate, Door, Endpoint, Visitor
from bylot.service.pages.source import Source

FOR_EVER = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}


def routes(source: Source, authenticate: Authenticate) -> list[Route]:
    """All of them."""
    door, board = Door(authenticate), Board(source)
    pages = {
        "/": board.list_page,
        "/routers.json": board.list_twin,
        "/routers/{name}.json": board.router_twin,
        "/routers/{name}": board.router_page,
    }
    return [
        *(Route(path, answering(door.guard(handler))) for path, handler in pages.items()),
        Route(f"{folder()}/{{name}}", send),
        *door.routes(),
    ]


class Board:
    """What the pages are made of, for a visitor, whose key may be for some routers only."""

    def __init__(self, source: Source) -> None:
        self.source = source

    async def list_page(self, request: Request, who: Visitor) -> Response:
        """All routers."""
        return await shown("routers.html", request, await self.overview(who))

    async def list_twin(self, request: Request, who: Visitor) -> Response:
        """The same, as data."""
        return twin(await self.overview(who))

    async def router_page(self, request: Request, who: Visitor) -> Response:
        """One router."""
        return await shown("router.html", request, await self.router(request, who))

    async def router_twin(self, request: Request, who: Visitor) -> Response:
        """The same, as data."""
        return twin(await self.router(request, who))

    async def overview(self, who: Visitor) -> Overview:
        """The list, of the routers that the visitor may look at."""
        return overview([one for one in await self.source.routers() if sees(who, one.name)])

    async def router(self, request: Request, who: Visitor) -> RouterPage:
        """One router, if there is one that the visitor may look at."""
        name = request.path_params["name"]
        view = await self.source.router(name) if sees(who, name) else None
        if view is None:
            raise NoSuchRouter(f"there is no router {name!r}; / lists those there are")
        latest = await self.source.latest(name, LATEST)
        return router_page(view, latest, await self.source.edits(name))


def answering(endpoint: Endpoint) -> Endpoint:
    """The endpoint, with an answer to what went wrong: a page, or what the API would say."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except BylotError as error:
            status, failure, retry, headers = judge(error)
        if request.url.path.endswith(".json"):
            answer = twin(failure, status)
        else:
            answer = page("refused.html", status, message=failure.error.message)
        if retry is not None:
            headers = (*headers, (b"retry-after", seconds(retry)))
        answer.raw_headers.extend(headers)
        return answer

    return answered


async def shown(template: str, request: Request, data: RouterPage | Overview) -> Response:
    """A page, written aside: a long one takes some tenths of a second, and others have requests."""
    signed = COOKIE in request.cookies
    return await run_in_threadpool(page, template, page=data, signed=signed)


def sees(who: Visitor, name: str) -> bool:
    """May they look at this router?"""
    return not who.routers or name in who.routers


async def send(request: Request) -> Response:
    """Style, script or icon; anybody may have them, the sign-in page has to."""
    asset = assets().get(request.path_params["name"])
    if asset is None:
        return page("refused.html", 404, message="There is no such file.")
    return Response(asset.content, 200, FOR_EVER, asset.type)
