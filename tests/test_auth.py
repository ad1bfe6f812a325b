"""Who may do what: keys, scopes, and a server without keys that only its own machine can ask."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bylot.errors import BylotError
from bylot.server.auth import (
    SCOPES,
    Credentials,
    Scope,
    check_bind_address,
    digest_secret,
    issue_key,
)
from bylot.store import ApiKey, Store, open_store
from live_server import FIVE_EXPERTS, ServerClient, assert_error, live_server, wait_until


def add(store: Store, *scopes: Scope, routers: tuple[str, ...] = ()) -> str:
    """A new key in a store."""
    text, row = issue_key("test", scopes, routers, at=time.time_ns() // 1000)
    store.add_key(row)
    return text


def bearer(key: str) -> dict[str, str]:
    """The header that carries a key."""
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("keys")
    store = open_store(f"sqlite:///{folder}/bylot.db")
    made: dict[str, str] = {scope: add(store, scope) for scope in SCOPES}
    made["one"] = add(store, *SCOPES, routers=("one",))
    made["folder"] = str(folder)
    store.close()
    return made


@pytest.fixture(scope="module")
def server(keys: dict[str, str]) -> Iterator[ServerClient]:
    with live_server(Path(keys["folder"])) as client:
        for name in ("one", "two"):
            body = {"name": name, "problem": FIVE_EXPERTS}
            made = client.post("/v1/routers", json=body, headers=bearer(keys["admin"]))
            assert made.status_code == 201
        yield client


def test_a_secret_is_long_and_only_its_digest_is_kept() -> None:
    text, row = issue_key("mine", ["read"], [], at=5)
    start, name, secret = text.split("_")
    assert (start, name) == ("bylot", row.id)
    assert len(bytes.fromhex(secret)) * 8 >= 160
    assert row.digest == digest_secret(secret)
    assert secret not in repr(row)
    assert issue_key("mine", ["read"], [], at=5)[0] != text


def test_a_scope_that_there_is_not_is_refused() -> None:
    with pytest.raises(BylotError, match="wish"):
        issue_key("x", ["wish"], [], at=0)  # type: ignore[list-item]
    with pytest.raises(BylotError, match="none"):
        issue_key("x", [], [], at=0)


def test_without_a_key_nobody_enters_where_there_are_keys(
    server: ServerClient, keys: dict[str, str]
) -> None:
    name, secret = keys["read"].split("_")[1:]
    wrong = ["x", "nonsense", f"bylot_{name}_{'0' * 48}", f"bylot__{secret}", f"x_{name}_{secret}"]
    for key in wrong:
        answer = server.get("/v1/routers", headers=bearer(key))
        assert assert_error(answer, 401)["code"] == "unauthorized"
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert server.get("/v1/routers").status_code == 401
    assert server.get("/metrics").status_code == 401
    assert server.get("/v1/routers", headers=bearer(keys["read"])).status_code == 200
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert server.get(path).status_code == 200


ROUTES = [
    ("GET", "/v1/routers", "read"),
    ("GET", "/v1/routers/one", "read"),
    ("GET", "/v1/routers/one/status", "read"),
    ("GET", "/v1/routers/one/events", "read"),
    ("GET", "/metrics", "read"),
    ("GET", "/v1/decisions/one.1.1", "read"),
    ("PATCH", "/v1/routers/one", "admin"),
    ("DELETE", "/v1/routers/three", "admin"),
    ("POST", "/v1/routers", "admin"),
    ("POST", "/v1/routers/one/decisions", "decide"),
    ("POST", "/v1/routers/one/decisions:batch", "decide"),
    ("POST", "/v1/decisions/one.1.1/activate", "decide"),
    ("POST", "/v1/decisions/one.1.1/cancel", "decide"),
    ("POST", "/personalizer/v1.1/rank", "decide"),
    ("POST", "/v1/decisions/one.1.1/reward", "reward"),
    ("POST", "/v1/rewards:batch", "reward"),
    ("POST", "/personalizer/v1.1/events/x/reward", "reward"),
]


@pytest.mark.parametrize(("method", "path", "scope"), ROUTES)
def test_a_key_is_for_its_scope_only(
    server: ServerClient, keys: dict[str, str], method: str, path: str, scope: str
) -> None:
    body: dict[str, str] | None = None if method == "GET" else {}
    for other in SCOPES:
        answer = server.request(method, path, json=body, headers=bearer(keys[other]))
        if other == scope or (other, scope) == ("admin", "read"):  # who edits may look
            assert answer.status_code not in (401, 403)
        else:
            assert assert_error(answer, 403)["code"] == "forbidden"


def test_a_key_is_for_its_routers_only(server: ServerClient, keys: dict[str, str]) -> None:
    mine = bearer(keys["one"])
    decision = server.post("/v1/routers/one/decisions", json={}, headers=mine)
    assert decision.status_code == 201
    for method, path in [
        ("GET", "/v1/routers/two"),
        ("GET", "/v1/routers/nobody"),
        ("POST", "/v1/routers/two/decisions"),
        ("DELETE", "/v1/routers/two"),
        ("POST", "/v1/decisions/two.2.1/reward"),
        ("POST", "/personalizer/v1.1/rank?router=two"),
    ]:
        body = {"value": 1, "actions": [{"id": "ann"}]} if "rank" in path else {"value": 1}
        answer = server.request(method, path, json=body, headers=mine)
        assert assert_error(answer, 403)["code"] == "forbidden"
    listed = server.get("/v1/routers", headers=mine).json()["routers"]
    assert [one["name"] for one in listed] == ["one"]
    rewards = [
        {"decision": decision.json()["id"], "value": 1},
        {"decision": "two.2.1", "value": 1},
    ]
    batch = server.post("/v1/rewards:batch", json={"rewards": rewards}, headers=mine)
    assert [one["status"] for one in batch.json()["results"]] == [200, 403]
    made = server.post("/v1/routers", json={"name": "four", "problem": FIVE_EXPERTS}, headers=mine)
    assert made.status_code == 403


def test_who_told_a_reward_is_its_key_and_not_its_body(
    server: ServerClient, keys: dict[str, str]
) -> None:
    decision = server.post("/v1/routers/two/decisions", json={}, headers=bearer(keys["decide"]))
    path = f"/v1/decisions/{decision.json()['id']}"
    server.post(f"{path}/reward", json={"value": 1}, headers=bearer(keys["reward"]))
    told = server.get(path, headers=bearer(keys["read"])).json()["rewards"]
    assert [one["by"] for one in told] == [keys["reward"].split("_")[1]]
    forged = {"value": 1, "by": "somebody"}
    answer = server.post(f"{path}/reward", json=forged, headers=bearer(keys["reward"]))
    assert answer.status_code == 422


def test_a_client_of_personalizer_sends_its_key_elsewhere(
    server: ServerClient, keys: dict[str, str]
) -> None:
    headers = {"ocp-apim-subscription-key": keys["decide"]}
    body = {"actions": [{"id": "ann"}, {"id": "eve"}]}
    answer = server.post("/personalizer/v1.1/rank?router=one", json=body, headers=headers)
    assert answer.status_code == 201


def test_a_revoked_key_is_none_within_two_seconds(
    server: ServerClient, keys: dict[str, str]
) -> None:
    store = open_store(f"sqlite:///{keys['folder']}/bylot.db")
    key = add(store, "read")
    wait_until(lambda: server.get("/v1/routers", headers=bearer(key)).status_code == 200, 3)
    store.revoke(key.split("_")[1], at=1)
    store.close()
    wait_until(lambda: server.get("/v1/routers", headers=bearer(key)).status_code == 401, 3)


def test_the_first_key_closes_a_server_that_was_open(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        assert server.get("/v1/routers").status_code == 200
        store = open_store(f"sqlite:///{tmp_path}/bylot.db")
        key = add(store, "read")
        wait_until(lambda: server.get("/v1/routers").status_code == 401, 3)
        store.revoke(key.split("_")[1], at=1)
        store.close()
        time.sleep(1.5)
        assert server.get("/v1/routers").status_code == 401  # revoked is not the same as none


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
    for host in ("evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example"):
        answer = local_server.get(path, headers={"host": host})
        assert assert_error(answer, 403)["code"] == "wrong_host"


def test_without_keys_cross_origin_requests_are_rejected(local_server: ServerClient) -> None:
    path = "/v1/decisions/one.1.1/cancel"  # has no body, so that no browser asks us first
    for origin in ("https://evil.example", "null", "http://localhost:1"):
        answer = local_server.post(path, headers={"origin": origin})
        assert assert_error(answer, 403)["code"] == "wrong_origin"
    ours = {"origin": f"http://127.0.0.1:{local_server.port}"}
    assert local_server.post(path, headers=ours).status_code == 404


def test_pages_are_beside_the_api_and_ask_for_the_same_keys(
    local_server: ServerClient, server: ServerClient, keys: dict[str, str]
) -> None:
    page = local_server.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"]
    assert server.get("/").status_code == 303
    assert server.get("/", headers=bearer(keys["read"])).status_code == 200
    assert server.get("/", headers=bearer(keys["decide"])).status_code == 303
    twin = server.get("/routers.json", headers=bearer(keys["one"])).json()
    assert [one["name"] for one in twin["routers"]] == ["one"]


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
