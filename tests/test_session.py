"""Sessions of the dashboard: sign-in, cookies, expiry and sign-out."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bylot.server.auth import Caller, digest_secret
from bylot.server.dashboard.routes import (
    MAX_SESSIONS,
    SESSION_COOKIE,
    SESSION_S,
    SignIn,
    dashboard_routes,
    safe_redirect_path,
)
from page_client import PageClient
from played_routers import PlayedSource


def make_caller(*scopes: str) -> Caller:
    """The caller of a key with these scopes."""
    return Caller(None, frozenset(scopes), frozenset())


KEYS = {"good": make_caller("read"), "writer": make_caller("decide", "reward")}


def open_dashboard(keys: dict[str, Caller], base: str = "https://bylot.test") -> PageClient:
    """A client of a dashboard with these keys."""
    return PageClient([*dashboard_routes(PlayedSource(), keys.get)], base)


def test_a_page_redirects_to_the_sign_in_page_and_back() -> None:
    client = open_dashboard(KEYS)
    redirect = client.get("/routers/a")
    assert (redirect.status_code, redirect.headers["location"]) == (303, "/sign-in?next=/routers/a")
    form = client.get(redirect.headers["location"])
    assert 'name="next" value="/routers/a"' in form.text
    signed_in = client.post("/sign-in", data={"key": "good", "next": "/routers/a"})
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/routers/a")
    assert client.get("/").status_code == 200
    assert client.get("/routers.json").status_code == 200


def test_the_session_cookie_is_http_only_strict_and_secure() -> None:
    client = open_dashboard(KEYS)
    cookie = client.post("/sign-in", data={"key": "good"}).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" in cookie
    assert "good" not in cookie
    plain = open_dashboard(KEYS, "http://bylot.test").post("/sign-in", data={"key": "good"})
    assert "secure" not in plain.headers["set-cookie"].lower()
    proxied = open_dashboard(KEYS, "http://bylot.test").post(
        "/sign-in", data={"key": "good"}, headers={"x-forwarded-proto": "https"}
    )
    assert "secure" in proxied.headers["set-cookie"].lower()


def test_a_key_without_the_read_scope_cannot_sign_in() -> None:
    client = open_dashboard(KEYS)
    for key in ("writer", "wrong", ""):
        answer = client.post("/sign-in", data={"key": key})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert "This key is invalid" in answer.text
    assert client.get("/").status_code == 303


def test_programs_can_send_the_key_as_bearer_token() -> None:
    client = open_dashboard(KEYS)
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
    client = open_dashboard(keys)
    client.post("/sign-in", data={"key": "good"})
    assert client.get("/").status_code == 200
    del keys["good"]
    assert client.get("/").status_code == 303
    keys.update(KEYS)  # and a restored key does not restore the session
    assert client.get("/").status_code == 303


def test_without_keys_no_sign_in_is_needed() -> None:
    assert open_dashboard({"": make_caller("read")}).get("/").status_code == 200


def test_signing_out_ends_the_session_on_the_server() -> None:
    client = open_dashboard(KEYS)
    client.post("/sign-in", data={"key": "good"})
    name = client.cookies[SESSION_COOKIE]
    assert client.post("/sign-out").status_code == 303
    client.cookies.set(SESSION_COOKIE, name)
    assert client.get("/").status_code == 303


def test_a_form_from_another_site_is_refused() -> None:
    client = open_dashboard(KEYS)
    for path in ("/sign-in", "/sign-out"):
        answer = client.post(path, data={"key": "good"}, headers={"sec-fetch-site": "cross-site"})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_an_invalid_sign_in_form_is_refused() -> None:
    client = open_dashboard(KEYS)
    assert client.post("/sign-in", data={"key": "good", "x": "y" * 5000}).status_code == 401
    assert client.post("/sign-in", content=b"key=\xff\xfe%ff").status_code == 401
    assert client.post("/sign-in", content=b"&".join([b"a=b"] * 50)).status_code == 401


def test_redirects_stay_on_the_site() -> None:
    for path in ("//evil.example", "https://evil.example", "/\\evil", "javascript:alert(1)", "",
                 "/\nSet-Cookie: a=b", "/\t/evil.example"):  # fmt: skip
        assert safe_redirect_path(path) == "/"
    assert safe_redirect_path("/routers/a?b=c") == "/routers/a?b=c"


def test_a_session_expires() -> None:
    now = [0.0]
    sign_in = SignIn(KEYS.get, lambda: now[0])

    async def page(request: Request) -> Response:
        return Response(None, 303 if sign_in.admit(request) is None else 204)

    client = PageClient([*sign_in.routes(), Route("/", page)])
    client.post("/sign-in", data={"key": "good"})
    now[0] = SESSION_S - 1.0
    assert client.get("/").status_code == 204
    now[0] += 1.0
    assert client.get("/").status_code == 303
    assert not sign_in.sessions


def test_the_oldest_session_is_dropped_beyond_the_maximum() -> None:
    sign_in = SignIn(KEYS.get)
    names = [sign_in.open("good") or "" for _ in range(MAX_SESSIONS + 1)]
    assert len(sign_in.sessions) == MAX_SESSIONS
    assert digest_secret(names[0]) not in sign_in.sessions
    assert digest_secret(names[-1]) in sign_in.sessions
