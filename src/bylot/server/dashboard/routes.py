"""The addresses of the dashboard: `/` and `/routers/{name}`, each with its twin in JSON."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bylot.errors import BylotError, RouterNotFound
from bylot.server.dashboard.render import (
    PAGE_HEADERS,
    asset_folder,
    load_assets,
    render_json,
    render_page,
)
from bylot.server.dashboard.router_view import (
    MAX_LATEST_DECISIONS,
    Overview,
    RouterPageView,
    build_overview,
    build_router_page,
)
from bylot.server.dashboard.session import (
    SESSION_COOKIE,
    Authenticator,
    PageEndpoint,
    SignIn,
    Visitor,
)
from bylot.server.dashboard.source import DashboardSource
from bylot.server.http_errors import classify_error, retry_after_value

IMMUTABLE_HEADERS = {**PAGE_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}


def dashboard_routes(source: DashboardSource, authenticate: Authenticator) -> list[Route]:
    """All of them."""
    door, board = SignIn(authenticate), DashboardHandlers(source)
    pages = {
        "/": board.list_page,
        "/routers.json": board.list_twin,
        "/routers/{name}.json": board.router_twin,
        "/routers/{name}": board.router_page,
    }
    return [
        *(Route(path, with_error_pages(door.guard(handler))) for path, handler in pages.items()),
        Route(f"{asset_folder()}/{{name}}", send_asset),
        *door.routes(),
    ]


class DashboardHandlers:
    """What the pages are made of, for a visitor, whose key may be for some routers only."""

    def __init__(self, source: DashboardSource) -> None:
        self.source = source

    async def list_page(self, request: Request, who: Visitor) -> Response:
        """All routers."""
        return await render_page_in_thread("routers.html", request, await self.overview(who))

    async def list_twin(self, request: Request, who: Visitor) -> Response:
        """The same, as data."""
        return render_json(await self.overview(who))

    async def router_page(self, request: Request, who: Visitor) -> Response:
        """One router."""
        return await render_page_in_thread("router.html", request, await self.router(request, who))

    async def router_twin(self, request: Request, who: Visitor) -> Response:
        """The same, as data."""
        return render_json(await self.router(request, who))

    async def overview(self, who: Visitor) -> Overview:
        """The list, of the routers that the visitor may look at."""
        return build_overview(
            [one for one in await self.source.routers() if can_see_router(who, one.name)]
        )

    async def router(self, request: Request, who: Visitor) -> RouterPageView:
        """One router, if there is one that the visitor may look at."""
        name = request.path_params["name"]
        view = await self.source.router(name) if can_see_router(who, name) else None
        if view is None:
            raise RouterNotFound(f"there is no router {name!r}; / lists those there are")
        latest = await self.source.latest(name, MAX_LATEST_DECISIONS)
        return build_router_page(view, latest, await self.source.edits(name))


def with_error_pages(endpoint: PageEndpoint) -> PageEndpoint:
    """The endpoint, with an answer to what went wrong: a page, or what the API would say."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except BylotError as error:
            status, failure, retry, headers = classify_error(error)
        if request.url.path.endswith(".json"):
            answer = render_json(failure, status)
        else:
            answer = render_page("refused.html", status, message=failure.error.message)
        if retry is not None:
            headers = (*headers, (b"retry-after", retry_after_value(retry)))
        answer.raw_headers.extend(headers)
        return answer

    return answered


async def render_page_in_thread(
    template: str, request: Request, data: RouterPageView | Overview
) -> Response:
    """A page, written aside: a long one takes some tenths of a second, and others have requests."""
    signed = SESSION_COOKIE in request.cookies
    return await run_in_threadpool(render_page, template, page=data, signed=signed)


def can_see_router(who: Visitor, name: str) -> bool:
    """May they look at this router?"""
    return not who.routers or name in who.routers


async def send_asset(request: Request) -> Response:
    """Style, script or icon; anybody may have them, the sign-in page has to."""
    asset = load_assets().get(request.path_params["name"])
    if asset is None:
        return render_page("refused.html", 404, message="There is no such file.")
    return Response(asset.content, 200, IMMUTABLE_HEADERS, asset.type)
