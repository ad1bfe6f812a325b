"""The paths of the dashboard: `/` and `/routers/{name}`, each also as JSON."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bylot.errors import BylotError, RouterNotFound
from bylot.server.auth import Caller
from bylot.server.dashboard import render
from bylot.server.dashboard.router_view import (
    MAX_LATEST_DECISIONS,
    Overview,
    RouterPageView,
    build_overview,
    build_router_page,
)
from bylot.server.dashboard.session import SESSION_COOKIE, Authenticator, PageEndpoint, SignIn
from bylot.server.dashboard.source import DashboardSource
from bylot.server.http_errors import to_api_error

IMMUTABLE = {**render.PAGE_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}


def dashboard_routes(source: DashboardSource, authenticate: Authenticator) -> list[Route]:
    """All routes of the dashboard."""
    session, pages = SignIn(authenticate), DashboardHandlers(source)
    handlers = {
        "/": pages.list_page,
        "/routers.json": pages.list_json,
        "/routers/{name}.json": pages.router_json,
        "/routers/{name}": pages.router_page,
    }
    return [
        *(Route(path, with_error_pages(session.require(one))) for path, one in handlers.items()),
        Route(f"{render.asset_folder()}/{{name}}", send_asset),
        *session.routes(),
    ]


class DashboardHandlers:
    """Pages for a visitor, whose key may be valid for some routers only."""

    def __init__(self, source: DashboardSource) -> None:
        self.source = source

    async def list_page(self, request: Request, visitor: Caller) -> Response:
        """All routers, as a page."""
        return await render_in_thread("routers.html", request, await self.overview(visitor))

    async def list_json(self, request: Request, visitor: Caller) -> Response:
        """All routers, as JSON."""
        return render.render_json(await self.overview(visitor))

    async def router_page(self, request: Request, visitor: Caller) -> Response:
        """One router, as a page."""
        return await render_in_thread("router.html", request, await self.router(request, visitor))

    async def router_json(self, request: Request, visitor: Caller) -> Response:
        """One router, as JSON."""
        return render.render_json(await self.router(request, visitor))

    async def overview(self, visitor: Caller) -> Overview:
        """The routers that the visitor may read."""
        routers = await self.source.list_routers()
        return build_overview([one for one in routers if visitor.can_access(one.name)])

    async def router(self, request: Request, visitor: Caller) -> RouterPageView:
        """One router, if it exists and the visitor may read it."""
        name = request.path_params["name"]
        view = await self.source.show_router(name) if visitor.can_access(name) else None
        if view is None:
            raise RouterNotFound(f"no router named {name!r}", remedy="see the list of routers")
        latest = await self.source.latest_decisions(name, MAX_LATEST_DECISIONS)
        return build_router_page(view, latest, await self.source.config_changes(name))


def with_error_pages(endpoint: PageEndpoint) -> PageEndpoint:
    """The endpoint, with errors as a page, or as JSON in the shape of the API."""

    async def wrapped(request: Request) -> Response:
        try:
            return await endpoint(request)
        except BylotError as error:
            found = to_api_error(error)
        if request.url.path.endswith(".json"):
            response = render.render_json(found.body, found.status)
        else:
            response = render.render_page("error.html", found.status, message=str(found))
        response.raw_headers.extend(found.headers)
        return response

    return wrapped


async def render_in_thread(
    template: str, request: Request, data: RouterPageView | Overview
) -> Response:
    """Render a page in a thread: a long one takes some tenths of a second."""
    signed_in = SESSION_COOKIE in request.cookies
    return await run_in_threadpool(render.render_page, template, page=data, signed_in=signed_in)


async def send_asset(request: Request) -> Response:
    """Send a style sheet, script or icon; no key is needed, since the sign-in page uses them."""
    asset = render.load_assets().get(request.path_params["name"])
    if asset is None:
        return render.render_page("error.html", 404, message="No such file.")
    return Response(asset.content, 200, IMMUTABLE, asset.type)
