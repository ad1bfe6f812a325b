"""The Responses API and chat completions of a server, used by OpenAI's own client."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from jsonschema import Draft202012Validator
from openai.types.responses import Response

from bylot.server import chat_endpoints
from chat_upstream import PIECES, TOOL_CALL, ChatUpstream, chat_upstream, gateway_server
from live_server import ServerClient

TEXT = "".join(PIECES)
EVENT_ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ChatUpstream]:
    with chat_upstream() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(
    upstream: ChatUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerClient]:
    with gateway_server(tmp_path_factory.mktemp("gateway"), upstream) as client:
        yield client


@pytest.fixture
def client(gateway: ServerClient) -> Iterator[openai.OpenAI]:
    base = f"http://127.0.0.1:{gateway.port}/v1"
    with openai.OpenAI(base_url=base, api_key="none", max_retries=0) as made:
        yield made


def list_events(stream: Any) -> list[Any]:
    """All events, whose numbers count from 0."""
    events = list(stream)
    assert [one.sequence_number for one in events] == list(range(len(events)))
    return events


def drop_repeats(names: list[str]) -> list[str]:
    return [one for n, one in enumerate(names) if n == 0 or names[n - 1] != one]


def test_a_response_has_the_text_the_usage_and_the_decision(
    client: openai.OpenAI, gateway: ServerClient
) -> None:
    raw = client.responses.with_raw_response.create(
        model="bylot/all", input="Hi", temperature=0.5, metadata={"bylot_context": "greeting"}
    )
    response = raw.parse()
    assert (response.status, response.error, response.model) == ("completed", None, "bylot/all")
    assert response.output_text == TEXT + TEXT  # an item for each member
    assert response.usage is not None
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (14, 6, 20)
    assert usage.output_tokens_details.reasoning_tokens == 0
    assert response.temperature == 0.5
    assert response.metadata == {"bylot_context": "greeting"}
    details = json.loads(raw.text)["bylot"]
    assert details["context"] == "greeting"
    assert raw.headers["x-bylot-decision-id"] == details["decision"]
    assert set(raw.headers["x-bylot-members"].split(",")) == {"plain1", "plain2"}
    assert gateway.get(f"/v1/decisions/{details['decision']}").status_code == 200
    Response.model_validate(json.loads(raw.text))  # strictly, unlike the client


def test_what_the_server_sends_has_the_shape_of_its_document(gateway: ServerClient) -> None:
    document = gateway.get("/openapi.json").json()
    bodies: dict[str, dict[str, Any]] = {
        "/v1/responses": {"input": "Hi"},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    }
    for path, body in bodies.items():
        told = document["paths"][path]["post"]["responses"]
        for model, status in (("bylot/plain", 200), ("bylot/none", 404), ("bylot/down", 502)):
            answer = gateway.post(path, json={"model": model, **body})
            assert answer.status_code == status
            schema = told[str(status)]["content"]["application/json"]["schema"]
            resolved = {**schema, "components": document["components"]}
            Draft202012Validator(resolved).validate(answer.json())
            assert "secret" not in answer.text


@pytest.mark.parametrize("router", ["plain", "all"])
def test_a_stream_has_the_events_of_openai_in_order(client: openai.OpenAI, router: str) -> None:
    events = list_events(client.responses.create(model=f"bylot/{router}", input="Hi", stream=True))
    names = [one.type for one in events]
    texts = [one.delta for one in events if one.type == "response.output_text.delta"]
    last = events[-1].response
    if router == "plain":
        assert drop_repeats(names) == EVENT_ORDER
        assert tuple(texts) == PIECES  # passed through as they came
        assert last.usage.output_tokens >= 3  # the other member may have begun as well
    assert "".join(texts) == last.output_text
    assert last.status == "completed"
    assert {one.response.id for one in events if hasattr(one, "response")} == {last.id}
    assert last.bylot["winner"] in ("plain1", "plain2")


def test_the_stream_helper_of_the_client_understands_the_stream(client: openai.OpenAI) -> None:
    for model in ("bylot/plain", "bylot/all", "bylot/silent"):
        with client.responses.stream(model=model, input="Hi") as stream:
            final = stream.get_final_response()
        assert final.output_text == {"bylot/plain": TEXT, "bylot/all": TEXT * 2}.get(model, "")


def test_the_asynchronous_client_gets_the_same(gateway: ServerClient) -> None:
    async def run() -> tuple[str, str]:
        base = f"http://127.0.0.1:{gateway.port}/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
            whole = await client.responses.create(model="bylot/plain", input="Hi")
            stream = await client.responses.create(model="bylot/plain", input="Hi", stream=True)
            pieces = [one.delta async for one in stream if one.type == "response.output_text.delta"]
            return whole.output_text, "".join(pieces)

    assert asyncio.run(run()) == (TEXT, TEXT)


def test_members_are_asked_for_a_chat_completion(
    client: openai.OpenAI, upstream: ChatUpstream
) -> None:
    upstream.bodies.clear()
    client.responses.create(
        model="bylot/plain",
        instructions="Be brief.",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"role": "developer", "content": "Be kind."},
        ],
        max_output_tokens=20,
        text={"format": {"type": "json_object"}},
        metadata={"team": "a"},
        store=True,
    )
    sent = upstream.bodies[0]
    assert sent.pop("model") in ("plain1", "plain2")
    assert sent == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "system", "content": "Be kind."},
        ],
        "max_tokens": 20,
        "response_format": {"type": "json_object"},
    }


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_reaches_its_limit_is_incomplete(
    client: openai.OpenAI, stream: bool
) -> None:
    made: Any = client.responses.create(model="bylot/long", input="Hi", stream=stream)
    if stream:
        events = list_events(made)
        assert events[-1].type == "response.incomplete"
        made = events[-1].response
    assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert made.output_text == TEXT


@pytest.mark.parametrize("stream", [False, True])
def test_a_function_is_called(client: openai.OpenAI, stream: bool) -> None:
    tools: Any = [TOOL]
    made: Any = client.responses.create(
        model="bylot/caller", input="Weather?", tools=tools, stream=stream
    )
    if stream:
        events = list_events(made)
        names = [one.type for one in events]
        assert names.count("response.function_call_arguments.delta") == 2
        assert "response.function_call_arguments.done" in names
        made = events[-1].response
    (call,) = made.output
    assert (call.type, call.call_id, call.name) == ("function_call", "call_1", "get_weather")
    assert call.arguments == TOOL_CALL["function"]["arguments"]  # type: ignore[index]


def test_the_output_of_a_function_is_sent_back(
    client: openai.OpenAI, upstream: ChatUpstream
) -> None:
    tools: Any = [TOOL]
    first = client.responses.create(model="bylot/caller", input="Weather?", tools=tools)
    call: Any = first.output[0]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    again: Any = [{"role": "user", "content": "Weather?"}, call.model_dump(), output]
    upstream.bodies.clear()
    client.responses.create(model="bylot/plain", input=again, tools=tools)
    assert upstream.bodies[0]["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    nested = {key: value for key, value in TOOL.items() if key != "type"}
    assert upstream.bodies[0]["tools"] == [{"type": "function", "function": nested}]


@pytest.mark.parametrize("model", ["bylot/broken", "bylot/odd"])
def test_a_stream_that_breaks_ends_with_an_error_that_the_client_raises(
    client: openai.OpenAI, model: str
) -> None:
    events, error = read_to_error(client, model)
    failed = events[-1]
    assert failed.type == "response.failed"
    assert (failed.response.status, failed.response.error.code) == ("failed", "server_error")
    assert failed.response.output_text == PIECES[0]
    assert error.code == "no_answer"
    assert "no member of the panel answered" in error.message
    chunks = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    with pytest.raises(openai.APIError, match="no member of the panel answered"):
        list(chunks)


def read_to_error(client: openai.OpenAI, model: str) -> tuple[list[Any], openai.APIError]:
    """The events of a stream, and the error that the client raises after them."""
    events: list[Any] = []
    try:
        for one in client.responses.create(model=model, input="Hi", stream=True):
            events.append(one)  # noqa: PERF402 (the iteration raises)
    except openai.APIError as error:
        return events, error
    raise AssertionError("no error")


def test_a_stream_that_fails_after_a_comment_begins_as_others_do(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_endpoints, "KEEP_ALIVE_S", 0.0)  # a comment at once
    names = [one.type for one in read_to_error(client, "bylot/down")[0]]
    assert names == ["response.created", "response.in_progress", "response.failed"]


@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_first_event_have_a_status(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model="gpt-4o", input="Hi", stream=stream)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError, match="bad schema") as wrong:
        client.responses.create(model="bylot/wrong", input="Hi", stream=stream)
    assert wrong.value.param == "response_format"
    with pytest.raises(openai.InternalServerError) as down:
        client.responses.create(model="bylot/down", input="Hi", stream=stream)
    assert down.value.status_code == 502


def test_what_is_not_supported_is_refused_by_name(client: openai.OpenAI) -> None:
    image: Any = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]
    refused: list[tuple[str, dict[str, Any]]] = [
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("conversation", {"conversation": "conv_1"}),
        ("background", {"background": True}),
        ("background", {"extra_body": {"background": 0}}),
        ("store", {"extra_body": {"store": 1}}),
        ("top_logprobs", {"extra_body": {"top_logprobs": False}}),
        ("tools[0].type", {"tools": [{"type": "web_search"}]}),
        ("input[0].content[0].type", {"input": image}),
        ("truncation", {"truncation": "auto"}),
        ("top_k", {"extra_body": {"top_k": 5}}),
    ]
    for param, options in refused:
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**{"model": "bylot/plain", "input": "Hi", **options})
        assert (caught.value.param, caught.value.code) == (param, "unsupported_parameter")


def test_chat_completions_are_streamed_in_chunks(client: openai.OpenAI) -> None:
    for model in ("bylot/plain", "bylot/all"):
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        first = [c for one in chunks for c in one.choices if c.index == 0]
        assert "".join(one.delta.content or "" for one in first) == TEXT
        assert first[-1].finish_reason == "stop"
        assert chunks[-1].usage is not None
        assert len({one.id for one in chunks}) == 1


def test_models_are_listed_in_the_shape_of_openai(
    client: openai.OpenAI, gateway: ServerClient
) -> None:
    assert "bylot/plain" in [one.id for one in client.models.list()]
    twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
    for answer in (
        gateway.get("/v1/models", headers=twice),
        gateway.post("/v1/responses", json={}, headers=twice),
    ):
        assert answer.status_code == 400
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", b'"messages": [{"role": "user", "content": "Hi"}]'),
        ("responses", b'"input": [{"role": "user", "content": "Hi"}]'),
    ],
)
def test_what_is_given_twice_is_refused(gateway: ServerClient, path: str, fields: bytes) -> None:
    body = b'{"model": "bylot/plain", ' + fields + b"}"
    repeated = {
        "model": body.replace(b"{", b'{"model": "bylot/all", ', 1),
        "role": body.replace(b'"role"', b'"role": "system", "\\u0072ole"'),
        "x-bylot-context": body,
    }
    for param, content in repeated.items():
        contexts = ["a", "b"] if content == body else ["a"]
        headers = [("x-bylot-context", context) for context in contexts]
        answer = gateway.post(f"/v1/{path}", content=content, headers=headers)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert error["param"] == param
        assert "duplicate" in error["message"]
    assert gateway.post(f"/v1/{path}", content=body).status_code == 200
    for depth in range(940, 1_000):
        deep = body[:-1] + b', "metadata": {"a": ' + b"[" * depth + b"1" + b"]" * depth + b"}}"
        answer = gateway.post(f"/v1/{path}", content=deep)
        assert answer.status_code in (200, 400), (depth, answer.text)
