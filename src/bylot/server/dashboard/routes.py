"""The paths of the dashboard: `/` and `/routers/{name}`, each also as JSON, and those to sign in.

A browser sends an API key once and gets a session: a random name in a cookie that scripts cannot
read and other sites cannot send. The key stays in the server and is checked at every request:
revoking it ends its sessions.
"""

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bylot.errors import BylotError, RouterNotFound
from bylot.server.auth import AUTH_CHALLENGE, Caller, digest_secret
from bylot.server.dashboard import render, router_view, sections
from bylot.server.dashboard.source import ServerSource
from bylot.server.http_errors import ApiError, to_api_error

SESSION_COOKIE = "bylot_session"
SESSION_S = 12 * 3600
MAX_SESSIONS = 1_000  # the oldest is replaced
MAX_FORM_BYTES = 4_096
CROSS_SITE = "This form was sent from another site."

Authenticator = Callable[[str], Caller | None]
"""The owner of a token, None if it is invalid. The empty token stands for a visitor without a key:
valid only where no keys are required.
"""
TakeToken = Callable[[str | None], None]
"""Counts a request against the rate limit of a key, by its id, or raises error 429."""


class SignIn:
    """Sessions of visitors with scope read."""

    def __init__(
        self,
        authenticate: Authenticator,
        clock: Callable[[], float] = time.monotonic,
        take_token: TakeToken = lambda id: None,
    ) -> None:
        self.authenticate, self.clock, self.take_token = authenticate, clock, take_token
        self.sessions: dict[bytes, tuple[str, float]] = {}  # digest of the name: token, expiry

    def open(self, token: str) -> str | None:
        """The name of a new session, None if the token is invalid."""
        if not token or self.find_reader(token) is None:
            return None
        while len(self.sessions) >= MAX_SESSIONS:
            del self.sessions[next(iter(self.sessions))]
        name = secrets.token_urlsafe(32)
        self.sessions[digest_secret(name)] = (token, self.clock() + SESSION_S)
        return name

    def close(self, name: str) -> None:
        self.sessions.pop(digest_secret(name), None)

    def find_reader(self, token: str) -> Caller | None:
        """The owner of a token, if it has scope read."""
        found = self.authenticate(token)
        return found if found is not None and "read" in found.scopes else None

    def find_visitor(self, request: Request) -> Caller | None:
        """The sender of a request, by its Authorization header or else by its session."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.find_reader(token.strip())
        name = read_session_cookie(request)
        token, expiry = self.sessions.get(digest_secret(name), ("", 0.0))
        found = self.find_reader(token if expiry > self.clock() else "")
        if found is None:
            self.close(name)
        return found

    def admit(self, request: Request) -> Caller | None:
        """The sender of a request, who may read; None if somebody has to sign in, error 401 if a
        program has.
        """
        visitor = self.find_visitor(request)
        if visitor is not None:
            self.take_token(visitor.id)
        elif request.url.path.endswith(".json"):
            raise ApiError(
                401,
                "unauthorized",
                "no valid API key with scope read; send it as Authorization: Bearer …",
                headers=AUTH_CHALLENGE,
            )
        return visitor

    def routes(self) -> list[Route]:
        """Routes to sign in and out."""
        return [
            Route("/sign-in", self.sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
        ]

    async def sign_in(self, request: Request) -> Response:
        """Show the form (GET), or exchange a key for a session (POST)."""
        if request.method != "POST":
            path = safe_redirect_path(request.query_params.get("next", "/"))
            return render.render_page("signin.html", next=path, wrong=False)
        if is_cross_site(request):
            return render.render_page("error.html", 403, message=CROSS_SITE)
        form = await read_form_fields(request)
        path = safe_redirect_path(form.get("next", "/"))
        name = self.open(form.get("key", "").strip())
        if name is None:
            return render.render_page("signin.html", 401, next=path, wrong=True)
        response = redirect_to(path)
        response.set_cookie(
            SESSION_COOKIE,
            name,
            max_age=SESSION_S,
            httponly=True,
            samesite="strict",
            secure=is_encrypted(request),
        )
        return response

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        if is_cross_site(request):
            return render.render_page("error.html", 403, message=CROSS_SITE)
        self.close(read_session_cookie(request))
        response = redirect_to("/sign-in")
        response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
        return response


def read_session_cookie(request: Request) -> str:
    """The name of the session, empty if there is none. `request.cookies` would unquote all other
    cookies too, in quadratic time.
    """
    for cookie in request.headers.get("cookie", "").split(";"):
        name, _, value = cookie.strip().partition("=")
        if name == SESSION_COOKIE:
            return value
    return ""


def is_encrypted(request: Request) -> bool:
    """Return whether the browser uses TLS, as far as we or a proxy can see. Anybody may say so: it
    only keeps the sender's own cookie off unencrypted connections.
    """
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return "https" in (request.url.scheme, forwarded)


def is_cross_site(request: Request) -> bool:
    """Return whether a browser says that another site sent this; other programs say nothing."""
    return request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def safe_redirect_path(path: str) -> str:
    """A path of this server to return to; / for anything that could lead elsewhere.

    >>> [safe_redirect_path(path) for path in ("/routers/a", "//evil.example", "https://evil")]
    ['/routers/a', '/', '/']
    """
    is_local = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if is_local and path.isprintable() and not urlsplit(path).netloc else "/"


async def read_form_fields(request: Request) -> dict[str, str]:
    """The fields of a form; none if it is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            return {}
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def redirect_to(path: str) -> RedirectResponse:
    """Redirect the browser with a GET."""
    return RedirectResponse(path, 303, render.PAGE_HEADERS)


IMMUTABLE = {**render.PAGE_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}


def dashboard_routes(
    source: ServerSource, authenticate: Authenticator, take_token: TakeToken = lambda id: None
) -> list[Route]:
    """All routes; the key of a visitor may be valid for some routers only."""

    async def load_overview(request: Request, visitor: Caller) -> dict[str, Any]:
        routers = (await source.list_routers()).items()
        visible = {name: found for name, found in routers if visitor.can_access(name)}
        return router_view.build_overview(visible, source.gateway.routers)

    async def load_router(request: Request, visitor: Caller) -> dict[str, Any]:
        name = request.path_params["name"]
        view = await source.show_router(name) if visitor.can_access(name) else None
        if view is None:
            raise RouterNotFound(f"no router named {name!r}", remedy="see the list of routers")
        latest = await source.latest_decisions(name, router_view.MAX_LATEST_DECISIONS)
        changes = await source.config_changes(name)
        recent = await source.recent_log(view, changes)
        found = source.gateway.routers.get(name)
        experts = view.config.problem["experts"]
        members = None if found is None else sections.build_members(found, experts)
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
