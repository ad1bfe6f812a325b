"""Authorization: keys, scopes, and a server without keys, which only serves its own machine."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bylot.errors import BylotError
from bylot.server import app
from bylot.server.auth import Credentials, check_bind_address, digest_secret, issue_key
from bylot.server.settings import SCOPES, Scope
from bylot.store import ApiKey, Store, open_store
from live_server import FIVE_EXPERTS, ServerClient, assert_error, live_server, wait_until


def add_key(store: Store, *scopes: Scope, routers: tuple[str, ...] = ()) -> str:
    """A new key in a store."""
    text, row = issue_key("test", scopes, routers, at=time.time_ns() // 1000)
    store.add_key(row)
    return text


def bearer_header(key: str) -> dict[str, str]:
    """The header that carries a key."""
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("keys")
    store = open_store(f"sqlite:///{folder}/bylot.db")
    created: dict[str, str] = {scope: add_key(store, scope) for scope in SCOPES}
    created["one"] = add_key(store, *SCOPES, routers=("one",))
    created["folder"] = str(folder)
    store.close()
    return created


@pytest.fixture(scope="module")
def server(keys: dict[str, str]) -> Iterator[ServerClient]:
    with live_server(Path(keys["folder"])) as client:
        for name in ("one", "two"):
            body = {"name": name, "problem": FIVE_EXPERTS}
            created = client.post("/v1/routers", json=body, headers=bearer_header(keys["admin"]))
            assert created.status_code == 201
        yield client


def test_a_secret_is_long_and_only_its_digest_is_stored() -> None:
    text, row = issue_key("mine", ["read"], [], at=5)
    start, name, secret = text.split("_")
    assert (start, name) == ("bylot", row.id)
    assert len(bytes.fromhex(secret)) * 8 >= 160
    assert row.digest == digest_secret(secret)
    assert secret not in repr(row)
    assert issue_key("mine", ["read"], [], at=5)[0] != text


def test_an_unknown_scope_is_refused() -> None:
    with pytest.raises(BylotError, match="wish"):
        issue_key("x", ["wish"], [], at=0)  # type: ignore[list-item]
    with pytest.raises(BylotError, match="none"):
        issue_key("x", [], [], at=0)


def test_requests_without_a_valid_key_are_unauthorized(
    server: ServerClient, keys: dict[str, str]
) -> None:
    name, secret = keys["read"].split("_")[1:]
    wrong = ["x", "nonsense", f"bylot_{name}_{'0' * 48}", f"bylot__{secret}", f"x_{name}_{secret}"]
    for key in wrong:
        answer = server.get("/v1/routers", headers=bearer_header(key))
        assert assert_error(answer, 401)["code"] == "unauthorized"
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert server.get("/v1/routers").status_code == 401
    assert server.get("/metrics").status_code == 401
    assert server.get("/v1/routers", headers=bearer_header(keys["read"])).status_code == 200
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert server.get(path).status_code == 200


ROUTES = [
    ("GET", "/v1/routers", "read"),
    ("GET", "/v1/routers/one", "read"),
    ("GET", "/v1/routers/one/status", "read"),
    ("GET", "/v1/routers/one/events", "read"),
    ("GET", "/metrics", "read"),
    ("GET", "/v1/decisions/one.1.1.9f3ab01c", "read"),
    ("PATCH", "/v1/routers/one", "admin"),
    ("DELETE", "/v1/routers/three", "admin"),
    ("POST", "/v1/routers", "admin"),
    ("POST", "/v1/routers/one/decisions", "decide"),
    ("POST", "/v1/routers/one/decisions:batch", "decide"),
    ("POST", "/v1/decisions/one.1.1.9f3ab01c/replace", "decide"),
    ("POST", "/v1/decisions/one.1.1.9f3ab01c/activate", "decide"),
    ("POST", "/v1/decisions/one.1.1.9f3ab01c/cancel", "decide"),
    ("POST", "/personalizer/v1.1/rank", "decide"),
    ("POST", "/v1/decisions/one.1.1.9f3ab01c/reward", "reward"),
    ("POST", "/v1/rewards:batch", "reward"),
    ("POST", "/personalizer/v1.1/events/x/reward", "reward"),
    ("POST", "/feedback", "reward"),
    ("POST", "/v1/router/outcomes", "reward"),
]


@pytest.mark.parametrize(("method", "path", "scope"), ROUTES)
def test_a_key_is_for_its_scope_only(
    server: ServerClient, keys: dict[str, str], method: str, path: str, scope: str
) -> None:
    body: dict[str, str] | None = None if method == "GET" else {}
    for other in SCOPES:
        answer = server.request(method, path, json=body, headers=bearer_header(keys[other]))
        if other == scope or (other, scope) == ("admin", "read"):  # admin includes read
            assert answer.status_code not in (401, 403)
        else:
            assert assert_error(answer, 403)["code"] == "forbidden"


def test_a_key_is_for_its_routers_only(server: ServerClient, keys: dict[str, str]) -> None:
    headers_of_one = bearer_header(keys["one"])
    decision = server.post("/v1/routers/one/decisions", json={}, headers=headers_of_one)
    assert decision.status_code == 201
    for method, path in [
        ("GET", "/v1/routers/two"),
        ("GET", "/v1/routers/unknown"),
        ("POST", "/v1/routers/two/decisions"),
        ("DELETE", "/v1/routers/two"),
        ("POST", "/v1/decisions/two.2.1.9f3ab01c/reward"),
        ("POST", "/personalizer/v1.1/rank?router=two"),
    ]:
        body = {"value": 1, "actions": [{"id": "ann"}]} if "rank" in path else {"value": 1}
        answer = server.request(method, path, json=body, headers=headers_of_one)
        assert assert_error(answer, 403)["code"] == "forbidden"
    listed = server.get("/v1/routers", headers=headers_of_one).json()["routers"]
    assert [one["name"] for one in listed] == ["one"]
    rewards = [
        {"decision": decision.json()["id"], "value": 1},
        {"decision": "two.2.1.9f3ab01c", "value": 1},
    ]
    batch = server.post("/v1/rewards:batch", json={"rewards": rewards}, headers=headers_of_one)
    assert [one["status"] for one in batch.json()["results"]] == [200, 403]
    created = server.post(
        "/v1/routers", json={"name": "four", "problem": FIVE_EXPERTS}, headers=headers_of_one
    )
    assert created.status_code == 403


def test_the_author_of_a_reward_is_its_key_and_not_a_field(
    server: ServerClient, keys: dict[str, str]
) -> None:
    decision = server.post(
        "/v1/routers/two/decisions", json={}, headers=bearer_header(keys["decide"])
    )
    path = f"/v1/decisions/{decision.json()['id']}"
    server.post(f"{path}/reward", json={"value": 1}, headers=bearer_header(keys["reward"]))
    rewards = server.get(path, headers=bearer_header(keys["read"])).json()["rewards"]
    assert [one["by"] for one in rewards] == [keys["reward"].split("_")[1]]
    forged = {"value": 1, "by": "another"}
    answer = server.post(f"{path}/reward", json=forged, headers=bearer_header(keys["reward"]))
    assert answer.status_code == 422


def test_a_personalizer_client_sends_its_key_in_another_header(
    server: ServerClient, keys: dict[str, str]
) -> None:
    headers = {"ocp-apim-subscription-key": keys["decide"]}
    body = {"actions": [{"id": "ann"}, {"id": "eve"}]}
    answer = server.post("/personalizer/v1.1/rank?router=one", json=body, headers=headers)
    assert answer.status_code == 201


def test_a_revoked_key_stops_working_within_seconds(
    server: ServerClient, keys: dict[str, str]
) -> None:
    store = open_store(f"sqlite:///{keys['folder']}/bylot.db")
    key = add_key(store, "read")
    wait_until(lambda: server.get("/v1/routers", headers=bearer_header(key)).status_code == 200, 3)
    store.revoke(key.split("_")[1], at=1)
    store.close()
    wait_until(lambda: server.get("/v1/routers", headers=bearer_header(key)).status_code == 401, 3)


def test_the_first_key_protects_a_running_server(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        assert server.get("/v1/routers").status_code == 200
        store = open_store(f"sqlite:///{tmp_path}/bylot.db")
        key = add_key(store, "read")
        wait_until(lambda: server.get("/v1/routers").status_code == 401, 3)
        store.revoke(key.split("_")[1], at=1)
        store.close()
        time.sleep(1.5)
        assert server.get("/v1/routers").status_code == 401  # a revoked key still requires keys


def test_keys_are_refreshed_again_after_one_could_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "KEY_REFRESH_S", 0.02)
    path = tmp_path / "bylot.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        key = add_key(store, "read")
        with live_server(tmp_path) as server, closing(sqlite3.connect(path)) as table:
            assert server.get("/v1/routers", headers=bearer_header(key)).status_code == 200
            damage = "UPDATE keys SET scopes = ?"
            table.execute(damage, ["[not JSON"])
            table.commit()
            wait_until(lambda: server.get("/readyz").status_code == 503)
            assert assert_error(server.get("/readyz"), 503)["code"] == "keys_unreadable"
            assert (
                server.get("/v1/routers", headers=bearer_header(key)).status_code == 200
            )  # as last known
            table.execute(damage, ['["read"]'])
            table.commit()
            store.revoke(key.split("_")[1], at=1)
            wait_until(
                lambda: server.get("/v1/routers", headers=bearer_header(key)).status_code == 401
            )
            assert server.get("/readyz").status_code == 200
    messages = [one.getMessage() for one in caplog.records]
    assert sum(one.startswith("cannot read the API keys") for one in messages) == 1
    assert "the API keys can be read again" in messages


def test_a_key_does_not_learn_the_names_of_other_routers(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/bylot.db")) as store:
        admin, other = add_key(store, "admin"), add_key(store, "decide", routers=("other",))
        several = add_key(store, "decide", routers=("other", "another"))
    with live_server(tmp_path) as server:
        body = {"name": "confidential", "problem": FIVE_EXPERTS}
        assert (
            server.post("/v1/routers", json=body, headers=bearer_header(admin)).status_code == 201
        )
        rank = {"actions": [{"id": "ann"}, {"id": "eve"}]}
        for key in (other, several):  # the only router of the store is none of theirs
            answer = server.post("/personalizer/v1.1/rank", json=rank, headers=bearer_header(key))
            assert assert_error(answer, 404)["code"] == "no_such_router"
            assert "confidential" not in answer.text


@pytest.fixture(scope="module")
def local_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerClient]:
    with live_server(tmp_path_factory.mktemp("open")) as client:
        yield client


@pytest.mark.parametrize("path", ["/v1/routers", "/metrics", "/"])
def test_without_keys_a_server_answers_to_the_names_of_its_machine(
    local_server: ServerClient, path: str
) -> None:
    for host in ("localhost", "127.0.0.1:1", "[::1]:8000", "127.9.9.9"):
        assert local_server.get(path, headers={"host": host}).status_code in (200, 404)
    for host in (
        "evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "127.0.0.1.evil.example",
        "[::1].evil.example",
        "[::1]:8000.evil.example",
        "localhost:80@evil.example",
        "localhost:",
    ):
        answer = local_server.get(path, headers={"host": host})
        assert assert_error(answer, 403)["code"] == "wrong_host"


@pytest.mark.parametrize("path", ["/v1/routers", "/metrics", "/", "/sign-in"])
def test_without_keys_a_proxy_makes_nobody_an_admin(local_server: ServerClient, path: str) -> None:
    """nginx on the same machine connects from the loopback address, with a host of our own."""
    for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Proto"):
        answer = local_server.get(path, headers={name: "203.0.113.9"})
        assert assert_error(answer, 403)["code"] == "proxied"
        assert "bylot keys create" in answer.text


def test_with_keys_a_proxy_is_welcome(server: ServerClient, keys: dict[str, str]) -> None:
    headers = {**bearer_header(keys["read"]), "x-forwarded-for": "203.0.113.9"}
    assert server.get("/v1/routers", headers=headers).status_code == 200


def test_without_keys_cross_origin_requests_are_rejected(local_server: ServerClient) -> None:
    # has no body, so a browser sends no preflight request
    path = "/v1/decisions/one.1.1.9f3ab01c/cancel"
    for origin in ("https://evil.example", "null", "http://localhost:1"):
        answer = local_server.post(path, headers={"origin": origin})
        assert assert_error(answer, 403)["code"] == "wrong_origin"
    own_origin = {"origin": f"http://127.0.0.1:{local_server.port}"}
    assert local_server.post(path, headers=own_origin).status_code == 404


def test_pages_require_the_same_keys_as_the_api(
    local_server: ServerClient, server: ServerClient, keys: dict[str, str]
) -> None:
    page = local_server.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"]
    assert server.get("/").status_code == 303
    assert server.get("/", headers=bearer_header(keys["read"])).status_code == 200
    assert server.get("/", headers=bearer_header(keys["decide"])).status_code == 303
    page_data = server.get("/routers.json", headers=bearer_header(keys["one"])).json()
    assert [one["name"] for one in page_data["routers"]] == ["one"]


KEY = ApiKey("a", b"", "", ("read",), (), 0, None)


def test_listening_beyond_loopback_requires_an_active_key() -> None:
    check_bind_address("127.0.0.1", [])
    check_bind_address("localhost", [])
    check_bind_address("0.0.0.0", [KEY])
    for keys in ([], [KEY._replace(revoked=1)]):
        with pytest.raises(BylotError, match="bylot keys create"):
            check_bind_address("0.0.0.0", keys)


def test_beyond_loopback_every_request_needs_a_key() -> None:
    assert Credentials("0.0.0.0").required
    assert not Credentials("127.0.0.1").required
    assert Credentials("0.0.0.0").find_caller("") is None
