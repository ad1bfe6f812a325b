"""Limits for each tenant in the gateway: the header and the metadata of chat requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bylot.errors import TenantError
from bylot.gateway.config import GatewayEntry, ModelEntry
from bylot.gateway.contexts import find_keys
from bylot.server.settings import RouterEntry
from chat_upstream import ChatUpstream, chat_upstream
from live_server import ServerClient, live_server

MODELS = ("plain1", "plain2")
HEADER = b"x-bylot-tenant"
LIMIT = {"cost": "calls", "at_most": 3.0, "per": "month", "scope": "tenant"}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ChatUpstream]:
    with chat_upstream() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, upstream: ChatUpstream
) -> Iterator[ServerClient]:
    """A server with a router of two models, each call of which counts for its tenant."""
    models = tuple(
        ModelEntry(model_name=one, litellm_params={"model": one, "api_base": upstream.base})
        for one in MODELS
    )
    entry = RouterEntry(problem=Path("created-below.yaml"), gateway=GatewayEntry(retries=0))
    folder = tmp_path_factory.mktemp("gateway")
    with live_server(folder, model_list=models, routers={"panel": entry}) as client:
        problem = {"experts": list(MODELS), "costs": {"calls": [1, 1]}, "limits": [LIMIT]}
        body = {"name": "panel", "problem": {**problem, "draws": 1}}
        assert client.post("/v1/routers", json=body).status_code == 201
        yield client


def chat(
    client: ServerClient, tenant: str | bytes | None, path: str = "chat/completions", **more: Any
) -> httpx.Response:
    headers = {} if tenant is None else {"x-bylot-tenant": tenant}
    text = {"messages": [{"role": "user", "content": "Hello"}]}
    body = {"model": "bylot/panel", **(text if path != "responses" else {"input": "Hello"}), **more}
    return client.post(f"/v1/{path}", json=body, headers=headers)  # type: ignore[arg-type]


def read_requests(client: ServerClient, tenant: str) -> int:
    (window,) = client.get(f"/v1/routers/panel/tenants/{tenant}").json()["windows"]
    return int(window["requests"])


def test_the_tenant_of_a_chat_is_in_its_header_or_its_metadata(
    gateway: ServerClient, upstream: ChatUpstream
) -> None:
    assert chat(gateway, "acme").status_code == 200
    assert chat(gateway, None, metadata={"bylot_tenant": "acme", "user": "7"}).status_code == 200
    assert upstream.bodies[-1]["metadata"] == {"user": "7"}, "members do not see it"
    assert chat(gateway, "Zürich".encode(), metadata={"bylot_tenant": "acme"}).status_code == 200
    assert chat(gateway, "bob", "responses").status_code == 200
    streamed = chat(gateway, "bob", stream=True)
    assert streamed.status_code == 200
    assert "[DONE]" in streamed.text
    counts = [read_requests(gateway, name) for name in ("acme", "Zürich", "bob", "eve")]
    assert counts == [2, 1, 2, 0]


def test_a_spent_budget_of_a_tenant_is_429_and_others_go_on(gateway: ServerClient) -> None:
    answers = [chat(gateway, "carl") for _ in range(4)]
    assert [one.status_code for one in answers] == [200, 200, 200, 429]
    error = answers[-1].json()["error"]
    assert error["code"] == "budget_spent"
    assert "for tenant 'carl'" in error["message"]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 31 * 86_400
    assert chat(gateway, "dora").status_code == 200


def test_a_chat_without_a_tenant_is_refused_with_the_remedy(gateway: ServerClient) -> None:
    for path in ("chat/completions", "responses"):
        response = chat(gateway, None, path)
        assert response.status_code == 400
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["type"], error["code"]) == ("invalid_request_error", "bad_tenant")
        assert "header x-bylot-tenant, or as metadata.bylot_tenant" in error["message"]
    twice = [("x-bylot-tenant", "a"), ("x-bylot-tenant", "b")]
    body = {"model": "bylot/panel", "messages": [{"role": "user", "content": "Hello"}]}
    response = gateway.post("/v1/chat/completions", json=body, headers=twice)
    assert response.status_code == 400
    assert "duplicate header: x-bylot-tenant" in response.text


@pytest.mark.parametrize("wrong", ["a\nb", "x" * 201, "\u200b", b"\xff", 3, ["acme"]], ids=repr)
def test_a_name_that_no_tenant_has_is_refused(wrong: Any) -> None:
    with pytest.raises(TenantError, match=r"metadata\.bylot_tenant.*1 to 200 printable"):
        find_keys({}, {"metadata": {"bylot_tenant": wrong}})
    if isinstance(wrong, str | bytes):
        with pytest.raises(TenantError, match=r"x-bylot-tenant.*1 to 200 printable"):
            find_keys({HEADER: wrong if isinstance(wrong, bytes) else wrong.encode()}, {})
    assert find_keys({HEADER: "cafe\u0301".encode()}, {}) == {"tenant": "caf\u00e9"}
    assert find_keys({HEADER: b""}, {"metadata": None}) == {}
