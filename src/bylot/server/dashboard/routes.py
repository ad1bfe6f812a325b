"""The paths of the dashboard: `/` and `/routers/{name}`, each also as JSON."""

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bylot.errors import BylotError, RouterNotFound
from bylot.server.auth import Caller
from bylot.server.dashboard import render, router_view
from bylot.server.dashboard.session import (
    Authenticator,
    SignIn,
    TakeToken,
    read_session_cookie,
    redirect_to,
)
from bylot.server.dashboard.source import ServerSource
from bylot.server.http_errors import to_api_error

IMMUTABLE = {**render.PAGE_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}


def dashboard_routes(
    source: ServerSource, authenticate: Authenticator, take_token: TakeToken = lambda id: None
) -> list[Route]:
    """All routes; the key of a visitor may be valid for some routers only."""

    async def load_overview(request: Request, visitor: Caller) -> router_view.Overview:
        routers = (await source.list_routers()).items()
        visible = {name: found for name, found in routers if visitor.can_access(name)}
        return router_view.build_overview(visible, source.gateway.routers)

    async def load_router(request: Request, visitor: Caller) -> router_view.RouterPageView:
        name = request.path_params["name"]
        view = await source.show_router(name) if visitor.can_access(name) else None
        if view is None:
            raise RouterNotFound(f"no router named {name!r}", remedy="see the list of routers")
        latest = await source.latest_decisions(name, router_view.MAX_LATEST_DECISIONS)
        changes = await source.config_changes(name)
        recent = await source.recent_log(view, changes)
        members = source.show_members(view)
        return router_view.build_router_page(view, latest, changes, recent, members)

    session = SignIn(authenticate, take_token=take_token)
    overview = make_page(session, "routers.html", load_overview)
    router = make_page(session, "router.html", load_router)
    return [
        Route("/", overview),
        Route("/routers.json", overview),
        Route("/routers/{name}.json", router),
        Route("/routers/{name}", router),
        Route(f"{render.asset_folder()}/{{name}}", send_asset),
        *session.routes(),
    ]


def make_page(
    session: SignIn, template: str, load: Callable[[Request, Caller], Awaitable[object]]
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a page and of its JSON, in which errors also look like that. Visitors who may
    not read are sent to the sign-in page.
    """

    async def endpoint(request: Request) -> Response:
        is_json = request.url.path.endswith(".json")
        try:
            visitor = session.admit(request)
            if visitor is None:
                return redirect_to(f"/sign-in?next={quote(request.url.path)}")
            data = await load(request, visitor)
            if is_json:
                return render.render_json(data)
            content = {"page": data, "signed_in": bool(read_session_cookie(request))}
            # In a thread: a long page takes some tenths of a second.
            return await run_in_threadpool(render.render_page, template, **content)
        except BylotError as error:
            found = to_api_error(error)
        if is_json:
            response = render.render_json(found.body, found.status)
        else:
            response = render.render_page("error.html", found.status, message=str(found))
        response.raw_headers.extend(found.headers)
        return response

    return endpoint


async def send_asset(request: Request) -> Response:
    """Send a style sheet, script or icon; no key is needed, since the sign-in page uses them."""
    asset = render.load_assets().get(request.path_params["name"])
    if asset is None:
        return render.render_page("error.html", 404, message="No such file.")
    return Response(asset.content, 200, IMMUTABLE, asset.type)
