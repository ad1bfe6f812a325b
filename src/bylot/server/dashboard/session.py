"""Browsers sign in with an API key once, and have a session then.

A session is a random name in a cookie that scripts cannot read and other sites cannot send. The key
stays here, and is asked about at every request: one that was revoked ends its sessions at once.
"""

import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bylot.server.auth import AUTH_CHALLENGE
from bylot.server.dashboard.render import PAGE_HEADERS, render_page
from bylot.server.http_errors import ApiError

SESSION_COOKIE = "bylot_session"
SESSION_HOURS = 12
MAX_SESSIONS = 1_000
"""Sessions at a time; the oldest makes room."""
MAX_FORM_BYTES = 4_096
"""Bytes that a sign-in may have."""


class Visitor(Protocol):
    """Whoever looks at pages: `store.Visitor` is one."""

    @property
    def scopes(self) -> Collection[str]:
        """What they may do."""
        ...

    @property
    def routers(self) -> Collection[str]:
        """The names of those they may do it to; empty: all."""
        ...


Authenticator = Callable[[str], Visitor | None]
"""Whose token this is, None if nobody's. The empty one is that of a visitor without any: whoever
may look where no keys are needed, and nobody where they are.
"""
PageHandler = Callable[[Request, Visitor], Awaitable[Response]]
PageEndpoint = Callable[[Request], Awaitable[Response]]


class SignIn:
    """Lets those in who may read."""

    def __init__(
        self, authenticate: Authenticator, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.authenticate = authenticate
        self.clock = clock
        self.sessions: dict[bytes, tuple[str, float]] = {}  # digest of the name: token, until when

    def open(self, token: str) -> str | None:
        """The name of a new session, None if the token opens nothing."""
        if not token or self.reader(token) is None:
            return None
        while len(self.sessions) >= MAX_SESSIONS:
            del self.sessions[next(iter(self.sessions))]
        name = secrets.token_urlsafe(32)
        self.sessions[digest_session(name)] = (token, self.clock() + SESSION_HOURS * 3600)
        return name

    def close(self, name: str) -> None:
        """End a session."""
        self.sessions.pop(digest_session(name), None)

    def reader(self, token: str) -> Visitor | None:
        """Whose token this is, if they may read."""
        found = self.authenticate(token)
        return found if found is not None and "read" in found.scopes else None

    def visitor(self, request: Request) -> Visitor | None:
        """Whose request this is: by its header, or else by its session."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.reader(token.strip())
        name = request.cookies.get(SESSION_COOKIE, "")
        token, until = self.sessions.get(digest_session(name), ("", 0.0))
        found = self.reader(token if until > self.clock() else "")
        if found is None:
            self.close(name)
        return found

    def guard(self, handler: PageHandler) -> PageEndpoint:
        """The handler, for those who are let in; pages send the others to the sign-in page."""

        async def endpoint(request: Request) -> Response:
            found = self.visitor(request)
            if found is not None:
                return await handler(request, found)
            if request.url.path.endswith(".json"):
                message = "this needs a key with scope read; send it as Authorization: Bearer ..."
                raise ApiError(401, "unauthorized", message, headers=AUTH_CHALLENGE)
            return redirect_to(f"/sign-in?next={quote(request.url.path)}")

        return endpoint

    def routes(self) -> list[Route]:
        """Sign in, sign out."""
        return [
            Route("/sign-in", self.ask, methods=["GET"]),
            Route("/sign-in", self.sign_in, methods=["POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
        ]

    async def ask(self, request: Request) -> Response:
        """The form."""
        return render_page(
            "signin.html",
            next=safe_redirect_path(request.query_params.get("next", "/")),
            wrong=False,
        )

    async def sign_in(self, request: Request) -> Response:
        """Take a key, give a session."""
        if is_cross_site(request):
            return render_page("refused.html", 403, message="This form was sent from another site.")
        form = await read_form_fields(request)
        back = safe_redirect_path(form.get("next", "/"))
        name = self.open(form.get("key", "").strip())
        if name is None:
            return render_page("signin.html", 401, next=back, wrong=True)
        answer = redirect_to(back)
        answer.set_cookie(
            SESSION_COOKIE,
            name,
            max_age=SESSION_HOURS * 3600,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def sign_out(self, request: Request) -> Response:
        """Forget the session."""
        if is_cross_site(request):
            return render_page("refused.html", 403, message="This form was sent from another site.")
        self.close(request.cookies.get(SESSION_COOKIE, ""))
        answer = redirect_to("/sign-in")
        answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
        return answer


def digest_session(name: str) -> bytes:
    """What is remembered of a session's name: looking it up tells nothing by its time."""
    return hashlib.sha256(name.encode()).digest()


def is_cross_site(request: Request) -> bool:
    """Does the browser say that another site sends this? Other programs say nothing."""
    return request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def safe_redirect_path(path: str) -> str:
    """A path of ours to go back to; anything that could lead elsewhere becomes /.

    >>> (
    ...     safe_redirect_path("/routers/a"),
    ...     safe_redirect_path("//evil.example"),
    ...     safe_redirect_path("https://evil.example"),
    ... )
    ('/routers/a', '/', '/')
    """
    fair = path.startswith("/") and not path.startswith("//") and "\\" not in path
    fair = fair and path.isprintable() and not urlsplit(path).netloc
    return path if fair else "/"


async def read_form_fields(request: Request) -> dict[str, str]:
    """The fields of a form; nothing of one that is too long or no text."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            return {}
    parsed = parse_qs(body.decode("utf-8", "replace"))
    return {name: values[0] for name, values in parsed.items()}


def redirect_to(path: str) -> RedirectResponse:
    """Go there."""
    return RedirectResponse(path, 303, PAGE_HEADERS)
