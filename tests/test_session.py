"""Signing in to the pages: who gets a session, what it is worth, and when it ends."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bylot.server.auth import Caller, digest_secret
from bylot.server.dashboard import session
from bylot.server.dashboard.routes import dashboard_routes
from bylot.server.dashboard.session import SESSION_COOKIE, SignIn, safe_redirect_path
from page_client import PageClient
from played_routers import PlayedSource


def caller(*scopes: str) -> Caller:
    """The owner of a key with some scopes."""
    return Caller(None, frozenset(scopes), frozenset())


KEYS = {"good": caller("read"), "writer": caller("decide", "reward")}


def browser(keys: dict[str, Caller], base: str = "https://bylot.test") -> PageClient:
    """At a dashboard that these keys open."""
    return PageClient([*dashboard_routes(PlayedSource(), keys.get)], base)


def test_without_a_key_a_page_leads_to_the_sign_in_page_and_back() -> None:
    client = browser(KEYS)
    away = client.get("/routers/a")
    assert (away.status_code, away.headers["location"]) == (303, "/sign-in?next=/routers/a")
    form = client.get(away.headers["location"])
    assert 'name="next" value="/routers/a"' in form.text
    back = client.post("/sign-in", data={"key": "good", "next": "/routers/a"})
    assert (back.status_code, back.headers["location"]) == (303, "/routers/a")
    assert client.get("/").status_code == 200
    assert client.get("/routers.json").status_code == 200


def test_a_session_is_a_cookie_that_neither_scripts_nor_other_sites_can_use() -> None:
    client = browser(KEYS)
    cookie = client.post("/sign-in", data={"key": "good"}).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" in cookie
    assert "good" not in cookie
    plain = browser(KEYS, "http://bylot.test").post("/sign-in", data={"key": "good"})
    assert "secure" not in plain.headers["set-cookie"].lower()


def test_a_key_that_may_not_read_opens_nothing() -> None:
    client = browser(KEYS)
    for key in ("writer", "wrong", ""):
        answer = client.post("/sign-in", data={"key": key})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert "This key is invalid" in answer.text
    assert client.get("/").status_code == 303


def test_programs_send_the_key_itself() -> None:
    client = browser(KEYS)
    assert client.get("/routers.json").status_code == 401
    refused = client.get("/routers.json")
    assert refused.json()["error"]["code"] == "unauthorized"
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert (
        client.get("/routers.json", headers={"authorization": "Bearer good"}).json()["count"] == 0
    )
    assert (
        client.get("/routers.json", headers={"authorization": "Bearer writer"}).status_code == 401
    )


def test_a_revoked_key_ends_its_session_at_once() -> None:
    keys = dict(KEYS)
    client = browser(keys)
    client.post("/sign-in", data={"key": "good"})
    assert client.get("/").status_code == 200
    del keys["good"]
    assert client.get("/").status_code == 303
    keys.update(KEYS)  # and it does not come back with it
    assert client.get("/").status_code == 303


def test_where_no_keys_are_needed_nobody_signs_in() -> None:
    assert browser({"": caller("read")}).get("/").status_code == 200


def test_signing_out_ends_the_session_itself() -> None:
    client = browser(KEYS)
    client.post("/sign-in", data={"key": "good"})
    name = client.cookies[SESSION_COOKIE]
    assert client.post("/sign-out").status_code == 303
    client.cookies.set(SESSION_COOKIE, name)
    assert client.get("/").status_code == 303


def test_a_form_from_another_site_is_refused() -> None:
    client = browser(KEYS)
    for path in ("/sign-in", "/sign-out"):
        answer = client.post(path, data={"key": "good"}, headers={"sec-fetch-site": "cross-site"})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_a_form_that_is_too_long_or_no_text_opens_nothing() -> None:
    client = browser(KEYS)
    assert client.post("/sign-in", data={"key": "good", "x": "y" * 5000}).status_code == 401
    assert client.post("/sign-in", content=b"key=\xff\xfe%ff").status_code == 401
    assert client.post("/sign-in", content=b"&".join([b"a=b"] * 50)).status_code == 401


def test_one_is_never_sent_elsewhere() -> None:
    for path in ("//evil.example", "https://evil.example", "/\\evil", "javascript:alert(1)", "",
                 "/\nSet-Cookie: a=b", "/\t/evil.example"):  # fmt: skip
        assert safe_redirect_path(path) == "/"
    assert safe_redirect_path("/routers/a?b=c") == "/routers/a?b=c"


def test_a_session_ends_with_its_time() -> None:
    now = [0.0]
    sign_in = SignIn(KEYS.get, lambda: now[0])
    client = PageClient([*sign_in.routes(), Route("/", sign_in.require(nothing))])
    client.post("/sign-in", data={"key": "good"})
    now[0] = session.SESSION_S - 1.0
    assert client.get("/").status_code == 204
    now[0] += 1.0
    assert client.get("/").status_code == 303
    assert not sign_in.sessions


async def nothing(request: Request, visitor: Caller) -> Response:
    """A page without content."""
    return Response(None, 204)


def test_of_too_many_sessions_the_oldest_makes_room() -> None:
    sign_in = SignIn(KEYS.get)
    names = [sign_in.open("good") or "" for _ in range(session.MAX_SESSIONS + 1)]
    assert len(sign_in.sessions) == session.MAX_SESSIONS
    assert digest_secret(names[0]) not in sign_in.sessions
    assert digest_secret(names[-1]) in sign_in.sessions
