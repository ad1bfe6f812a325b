"""What members are sent of a request: known fields, allowed ones, and a bound on tokens."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bylot.gateway.chat import MEMBER_FIELDS, ChatError, check_chat_request
from bylot.gateway.config import GatewayEntry, ModelEntry, build_models
from bylot.gateway.router_models import ModelPrices, list_gateway_faults
from bylot.gateway.upstream import ChatBody
from bylot.problem import Problem
from gateway_target import RunningGateway, start_gateway
from upstreams import ReplayUpstream

MESSAGES = [{"role": "user", "content": "Where is the Rhine?"}]
PROBLEM = {"experts": ["a", "b"], "costs": {"usd": [1e-4] * 2}, "draws": 1}
DEARER: dict[str, Any] = {
    "n_predict": 100_000,
    "best_of": 20,
    "num_predict": -1,
    "max_new_tokens": 100_000,
    "min_tokens": 100_000,
    "ignore_eos": True,
    "service_tier": "priority",
    "prediction": {"type": "content", "content": "x"},
    "web_search_options": {},
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "wav"},
    "plugins": [{"id": "web"}],
    "extra_body": {"n_predict": 100_000},
}
"""Fields by which a call would cost more than its bound on tokens says."""
HARMLESS: dict[str, Any] = {
    "temperature": 0.5,
    "stop": ["\n"],
    "seed": 7,
    "logit_bias": {"50256": -100},
    "response_format": {"type": "json_object"},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "user": "ann",
    "store": False,
    "n": 1,
}


def chat(gateway: RunningGateway, path: str = "/v1/chat/completions", **body: Any) -> Any:
    """The object `bylot` of an answer."""
    headers = {"authorization": f"Bearer {gateway.key}"}
    body = {"model": gateway.model, **body}
    response = gateway.client.post(path, json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["bylot"]


def test_members_are_sent_known_fields_and_no_others(tmp_path: Path) -> None:
    with (
        ReplayUpstream(("a", "b")) as upstream,
        start_gateway(tmp_path, [upstream], "first", problem=PROBLEM) as gateway,
    ):
        found = chat(gateway, messages=MESSAGES, **HARMLESS, **DEARER)
        (sent,) = upstream.bodies
        assert sent == {"model": sent["model"], "messages": MESSAGES, **HARMLESS}
        assert found["not_sent"] == list(DEARER), "the response names what was left out"
        assert chat(gateway, messages=MESSAGES)["not_sent"] == []


def test_a_response_request_passes_no_dearer_tier_on(tmp_path: Path) -> None:
    with (
        ReplayUpstream(("a", "b")) as upstream,
        start_gateway(tmp_path, [upstream], "first", problem=PROBLEM) as gateway,
    ):
        found = chat(gateway, "/v1/responses", input="hello", service_tier="priority", user="ann")
        (sent,) = upstream.bodies
        assert set(sent) == {"model", "messages", "user"}
        assert found["not_sent"] == ["service_tier"]


def test_a_router_can_allow_further_fields(tmp_path: Path) -> None:
    with (
        ReplayUpstream(("a", "b")) as upstream,
        start_gateway(
            tmp_path, [upstream], "first", problem=PROBLEM, pass_fields=("top_k", "service_tier")
        ) as gateway,
    ):
        found = chat(gateway, messages=MESSAGES, top_k=5, min_p=0.1)
        assert found["not_sent"] == ["min_p"]
        assert upstream.bodies[-1]["top_k"] == 5
        chat(gateway, "/v1/responses", input="hello", service_tier="flex")
        assert upstream.bodies[-1]["service_tier"] == "flex"


@pytest.mark.parametrize("name", ["model", "stream"])
def test_fields_of_the_gateway_cannot_be_allowed(name: str) -> None:
    problem = Problem(["a", "b"], {"usd": [1e-4] * 2}, draws=1)
    prices: ModelPrices = {"a": [], "b": []}
    faults = list(list_gateway_faults(GatewayEntry(pass_fields=(name,)), problem, prices))
    assert [keys for keys, _ in faults] == [("pass_fields",)]
    assert name in str(faults[0][1])


def test_names_that_a_response_lists_are_bounded() -> None:
    many = {f"{number:0300}": 1 for number in range(1_000)}
    request = check_chat_request({"model": "bylot/x", "messages": MESSAGES, **many})
    assert len(str(request.list_unsent(()))) < 3_000


@pytest.mark.parametrize("kind", ["web_search", "openrouter:web_search", None, 7])
def test_tools_that_a_provider_runs_are_refused(kind: Any) -> None:
    tools = [HARMLESS["tools"][0], {"type": kind}]
    with pytest.raises(ChatError) as caught:
        check_chat_request({"model": "bylot/x", "messages": MESSAGES, "tools": tools})
    assert (caught.value.status, caught.value.param) == (400, "tools[1].type")


@pytest.mark.parametrize("configured", ["max_tokens", "max_completion_tokens"])
def test_a_call_has_one_bound_by_the_configured_name_whatever_a_caller_gives(
    configured: str,
) -> None:
    """A model may know only one of both names, so that the other one would bound nothing."""
    params = {"model": "openai/a", "api_base": "http://localhost:1/v1", configured: 100}
    entry = ModelEntry(model_name="a", litellm_params=params)
    (deployment,) = build_models([entry], {})["a"].deployments
    values = (None, 50, 500, 0, -1, True, 50.5, "50", [50])
    for given in itertools.product(values, repeat=2):
        bounds = dict(zip(("max_tokens", "max_completion_tokens"), given, strict=True))
        body = ChatBody({"messages": MESSAGES, **bounds})
        sent = msgspec.json.decode(body.encode_for(deployment, stream=False))
        expected = 50 if any(type(value) is int and value == 50 for value in given) else 100
        assert sent == {"model": "a", "messages": MESSAGES, configured: expected}


def test_the_page_lists_every_field_that_is_passed_on() -> None:
    page = (Path(__file__).parents[1] / "docs/gateway.md").read_text()
    section = page.split("## What members are sent")[1].split("\n## ")[0]
    missing = [name for name in MEMBER_FIELDS if f"`{name}`" not in section]
    assert not missing
    unlisted = [name for name in DEARER if f"`{name}`" not in section]
    assert {"service_tier", "prediction", "web_search_options", "audio"}.isdisjoint(unlisted)


def test_marks_of_caches_are_left_out_and_sound_is_refused() -> None:
    marked = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    message = {"role": "user", "content": [marked], "cache_control": {"type": "ephemeral"}}
    tool = {"type": "function", "function": {"name": "f"}, "cache_control": {"type": "ephemeral"}}
    request = check_chat_request({"model": "bylot/r", "messages": [message], "tools": [tool]})
    assert b"cache_control" not in msgspec.json.encode(request.fields)
    assert request.fields["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    ]
    sound = {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}
    with pytest.raises(ChatError, match="has sound, whose tokens have another price"):
        check_chat_request({"model": "bylot/r", "messages": [sound]})
