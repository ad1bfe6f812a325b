"""What every OpenAI-compatible endpoint must do: one set of checks for upstreams and the gateway.

A check is a function of a target and uses the real `openai` client. Answers are compared with those
of the model itself, by `compared_completions.compare`.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from compared_completions import compare, join_chunks
from live_server import wait_until
from upstreams import ReplayUpstream

Messages = list[Any]
Check = Callable[["Target"], None]
CHECKS: dict[str, Check] = {}

HELLO: Messages = [{"role": "user", "content": "Where is the Rhine?"}]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "A fact about a place.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "year": {"type": "integer"}},
                "required": ["place"],
            },
        },
    }
    for name in ("find_river", "find_city")
]
SCHEMA = {
    "type": "object",
    "properties": {"river": {"type": "string"}, "km": {"type": "number"}},
    "required": ["river", "km"],
    "additionalProperties": False,
}
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "plain": {"messages": HELLO},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, *HELLO]},
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, *HELLO]},
    "several turns": {
        "messages": [
            {"role": "system", "content": "You teach geography."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hello! What do you want to know?"},
            *HELLO,
        ]
    },
    "unicode": {
        "messages": [{"role": "user", "content": 'Où est 東京? 🗼🏽 \u0000\u2028\ud7ff "\\'}]
    },
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Where?"}]}]},
    "parameters": {
        "messages": HELLO,
        "temperature": 0.2,
        "top_p": 0.9,
        "seed": 7,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "logit_bias": {"50256": -100},
        "n": 1,
        "user": "u1",
    },
    "stop": {"messages": HELLO, "stop": ["Rhine", "zzz"]},
    "one stop": {"messages": HELLO, "stop": "to:"},
    "max_tokens": {"messages": HELLO, "max_tokens": 5},
    "max_completion_tokens": {"messages": HELLO, "max_completion_tokens": 5},
    "json object": {"messages": HELLO, "response_format": {"type": "json_object"}},
    "json schema": {
        "messages": HELLO,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "river", "strict": True, "schema": SCHEMA},
        },
    },
    "tools": {"messages": HELLO, "tools": TOOLS},
    "two tool calls": {"messages": HELLO, "tools": TOOLS, "tool_choice": "required"},
    "named tool": {
        "messages": HELLO,
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "find_city"}},
    },
    "no tool": {"messages": HELLO, "tools": TOOLS, "tool_choice": "none"},
    "tool results": {
        "messages": [
            *HELLO,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "find_river", "arguments": '{"place" : "Köln"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "in the west"},
        ],
        "tools": TOOLS,
    },
}
"""Requests whose answers are compared, streamed and not."""


@dataclass(frozen=True)
class Target:
    """An endpoint that is checked, and the upstream that answers in the end.

    reference:   a model of the upstream that has the answers of the target
    is_gateway:  whether the upstream is behind a gateway
    passes_chunks: whether chunks are sent on as they come; not if the gateway must score first
    """

    base_url: str
    model: str
    upstream: ReplayUpstream
    key: str = "any"
    reference: str = "a"
    is_gateway: bool = False
    passes_chunks: bool = True

    def client(self, **options: Any) -> openai.OpenAI:
        """A client of the target; it does not retry."""
        return make_client(self.base_url, **{"api_key": self.key, **options})

    def async_client(self, **options: Any) -> openai.AsyncOpenAI:
        """An async client of the target."""
        given = {"api_key": self.key, "max_retries": 0, "timeout": 60.0, **options}
        http = openai.DefaultAsyncHttpxClient(verify=False)
        return openai.AsyncOpenAI(base_url=self.base_url, http_client=http, **given)

    def direct(self) -> "Target":
        """The upstream itself."""
        key = self.upstream.key or "any"
        return Target(self.upstream.url, self.reference, self.upstream, key, self.reference)

    def create(self, **body: Any) -> Any:
        """A chat completion as the client reads it."""
        with self.client() as client:
            return client.chat.completions.create(
                **{"model": self.model, "messages": HELLO, **body}
            )

    def create_raw(self, **body: Any) -> dict[str, Any]:
        """A chat completion as JSON."""
        with self.client() as client:
            raw = client.chat.completions.with_raw_response.create(
                **{"model": self.model, "messages": HELLO, **body}
            )
            return dict(json.loads(raw.text))

    def stream(self, **body: Any) -> list[dict[str, Any]]:
        """All chunks of a stream as JSON."""
        given = {"model": self.model, "messages": HELLO, "stream": True, **body}
        with self.client() as client, closing(client.chat.completions.create(**given)) as stream:
            return [chunk.to_dict() for chunk in stream]


def make_client(base_url: str, **options: Any) -> openai.OpenAI:
    """A client that does not retry; it loads no certificates, which takes a while."""
    given = {"api_key": "any", "max_retries": 0, "timeout": 60.0, **options}
    http = openai.DefaultHttpxClient(verify=False)
    return openai.OpenAI(base_url=base_url, http_client=http, **given)


# Checks


def check(function: Check) -> Check:
    """Add a check to the set, under its name."""
    CHECKS[function.__name__.removeprefix("check_")] = function
    return function


def add_comparisons() -> None:
    """Two checks for each conversation: its answer, and the same as a stream."""
    for name, body in CONVERSATIONS.items():
        CHECKS[f"answer/{name}"] = lambda target, body=body: check_answer(target, body)  # type: ignore[misc]
        CHECKS[f"stream/{name}"] = lambda target, body=body: check_stream(target, body)  # type: ignore[misc]


def check_answer(target: Target, body: Mapping[str, Any]) -> None:
    """The answer is that of the model itself, and the request reaches it unchanged."""
    before = len(target.upstream.bodies)
    compare(target.direct().create_raw(**body), target.create_raw(**body))
    direct, *received = target.upstream.bodies[before:]
    assert received
    for one in received:
        assert {name: one.get(name) for name in body} == {name: direct[name] for name in body}


def check_stream(target: Target, body: Mapping[str, Any]) -> None:
    """A stream adds up to that of the model itself, and ends in good order."""
    given = {**body, "stream_options": {"include_usage": True}}
    real, got = target.direct().stream(**given), target.stream(**given)
    compare(join_chunks(real), join_chunks(got))
    assert {chunk["object"] for chunk in got} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in got}) == len({chunk["created"] for chunk in got}) == 1
    assert got[0]["choices"][0]["delta"]["role"] == "assistant"
    assert got[-1]["choices"] == []
    assert got[-1]["usage"]["completion_tokens"] > 0
    assert all(chunk.get("usage") is None for chunk in got[:-1])
    whole = target.direct().create_raw(**body)["choices"][0]
    streamed = join_chunks(got)["choices"][0]
    assert streamed["finish_reason"] == whole["finish_reason"]
    assert streamed["message"].get("content") == whole["message"]["content"]


add_comparisons()


@check
def check_tool_calls(target: Target) -> None:
    """Tool calls come verbatim: ids, names, and arguments character by character."""
    asked: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required"}
    message = target.create(**asked).choices[0].message
    real = target.direct().create(**asked).choices[0].message
    assert len(message.tool_calls) == 2
    for call, expected in zip(message.tool_calls, real.tool_calls, strict=True):
        assert call.id == expected.id
        assert call.function.name == expected.function.name
        assert call.function.arguments == expected.function.arguments
    assert message.content is None


@check
def check_async_client(target: Target) -> None:
    """The async client gets the same, many requests at a time."""

    async def run() -> list[str]:
        async with target.async_client() as client:

            async def ask(number: int) -> str:
                messages: Messages = [{"role": "user", "content": f"Question {number}?"}]
                if number % 2:
                    answer = await client.chat.completions.create(
                        model=target.model, messages=messages
                    )
                    return answer.choices[0].message.content or ""
                stream = await client.chat.completions.create(
                    model=target.model, messages=messages, stream=True
                )
                async with stream:
                    chunks = [one async for one in stream]
                return "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)

            return await asyncio.gather(*map(ask, range(10)))

    for number, text in enumerate(asyncio.run(run())):
        assert f"Question {number}?" in text


@check
def check_stream_without_usage(target: Target) -> None:
    """A stream has no usage unless it is asked for."""
    chunks = target.stream()
    assert all(chunk.get("usage") is None for chunk in chunks)
    assert all(chunk["choices"] for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@check
def check_stream_framing(target: Target) -> None:
    """A stream is text/event-stream, and its last event is [DONE]."""
    with target.client() as client:
        raw = client.chat.completions.with_raw_response.create(
            model=target.model, messages=HELLO, stream=True
        )
        assert raw.headers["content-type"].startswith("text/event-stream")
        text = raw.http_response.read().decode()
    assert text.endswith("\n\n")
    events = [one for one in text.strip().split("\n\n") if not one.startswith(":")]
    assert events[-1] == "data: [DONE]"
    assert all(one.startswith("data: {") for one in events[:-1])


@check
def check_headers(target: Target) -> None:
    """A response has the headers that callers rely on."""
    with target.client() as client:
        raw = client.chat.completions.with_raw_response.create(model=target.model, messages=HELLO)
    assert raw.headers["content-type"].startswith("application/json")
    body = json.loads(raw.text)
    if target.is_gateway:
        assert raw.headers["x-bylot-decision-id"]
        assert {"decision", "members", "winner", "scores", "cost_usd"} <= set(body["bylot"])
        assert body["bylot"]["winner"] in body["bylot"]["members"]
    else:
        assert raw.headers["x-request-id"]
        assert "bylot" not in body


@check
def check_model_list(target: Target) -> None:
    """The model is in the list of models."""
    with target.client() as client:
        found = {one.id: one for one in client.models.list()}
    assert found[target.model].object == "model"


@check
def check_unknown_model(target: Target) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        target.create(model=f"{target.model}-unknown")
    assert_error_object(caught.value)
    assert caught.value.code == "model_not_found"


@check
def check_wrong_key(target: Target) -> None:
    """A wrong key is refused, if the target requires one."""
    with (
        target.client(api_key="wrong") as client,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        client.chat.completions.create(model=target.model, messages=HELLO)
    assert_error_object(caught.value)


@check
def check_bad_bodies(target: Target) -> None:
    """What is no request is refused before any model is asked, streamed or not."""
    received = target.upstream.answered
    bodies: list[dict[str, Any]] = [
        {"messages": []},
        {"messages": "Hello"},
        {"messages": [{"role": "user"}]},
        {"messages": [3]},
        {"stream": "perhaps"},
        {"n": 0},
    ]
    for body in bodies:
        with pytest.raises(openai.BadRequestError) as caught:
            target.create(**body)
        assert_error_object(caught.value)
    with target.client() as client, pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", cast_to=object, content=b"{no JSON")
    assert_error_object(caught.value)
    if target.is_gateway:
        assert target.upstream.answered == received


def assert_error_object(error: openai.APIStatusError) -> None:
    """The body is an error object of OpenAI's shape."""
    body = error.response.json()
    assert set(body) == {"error"}
    assert {"message", "type", "param", "code"} <= set(body["error"])
    assert isinstance(body["error"]["message"], str)
    assert isinstance(body["error"]["type"], str)


@check
def check_client_timeout(target: Target) -> None:
    """A client that gives up frees the models, and the next request is answered."""
    with target.upstream.slowed(120.0):
        with target.client(timeout=1.0) as client, pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(model=target.model, messages=HELLO)
        wait_until(lambda: target.upstream.active == 0)
    assert target.create().choices[0].message.content


@check
def check_disconnect_in_stream(target: Target) -> None:
    """A client that leaves in the middle of a stream frees the models."""
    cancelled, slow = target.upstream.cancelled, 5.0 if target.passes_chunks else 0.0
    given: dict[str, Any] = {"model": target.model, "messages": HELLO, "stream": True}
    with (
        target.upstream.slowed(0.0, chunk_s=slow),
        target.client() as client,
        closing(client.chat.completions.create(**given)) as stream,
    ):
        next(iter(stream))
    wait_until(lambda: target.upstream.active == 0)
    if target.passes_chunks:
        assert target.upstream.cancelled > cancelled
    assert target.create().choices[0].message.content


@check
def check_response(target: Target) -> None:
    """`client.responses.create` gives a text, with its usage."""
    with target.client() as client:
        response = client.responses.create(
            model=target.model, instructions="Be brief.", input="Where is 東京?"
        )
    assert "Where is 東京?" in response.output_text
    assert (response.object, response.status, response.error) == ("response", "completed", None)
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.usage.output_tokens > 0


@check
def check_response_of_messages(target: Target) -> None:
    """The input may be messages, whose content may be parts."""
    given: list[Any] = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "input_text", "text": "Where is the Rhine?"}]},
    ]
    with target.client() as client:
        response = client.responses.create(model=target.model, input=given, max_output_tokens=1000)
        assert "Where is the Rhine?" in response.output_text
        short = client.responses.create(model=target.model, input=given, max_output_tokens=16)
    assert short.status == "incomplete"
    assert short.incomplete_details is not None
    assert short.incomplete_details.reason == "max_output_tokens"


@check
def check_response_stream(target: Target) -> None:
    """A stream of a response has OpenAI's events in order, and their deltas are the text."""
    with (
        target.client() as client,
        client.responses.create(model=target.model, input="Where is 東京?", stream=True) as stream,
    ):
        events = list(stream)
    kinds = [one.type for one in events]
    deltas = [one.delta for one in events if one.type == "response.output_text.delta"]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * len(deltas),
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    last = events[-1]
    assert last.type == "response.completed"
    assert "Where is 東京?" in "".join(deltas)
    assert "".join(deltas) == last.response.output_text
    assert [one.sequence_number for one in events] == list(range(len(events)))
