"""The upstreams for tests of the gateway: what the openai client gets, and what is counted."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

import upstreams
from conformance import make_client
from live_server import wait_until
from recorded_answers import find_recorded_file, read_recorded_questions
from upstreams import LogNormal, ReplayUpstream, refused_address, upstream_process

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    for name in ("weather", "population")
]
HELLO: list[Any] = [{"role": "user", "content": "Grüße, 世界"}]


@pytest.fixture(scope="module")
def upstream() -> Iterator[ReplayUpstream]:
    with ReplayUpstream(("a", "b")) as server:
        yield server


def connect(upstream: ReplayUpstream, **options: Any) -> openai.OpenAI:
    return make_client(upstream.url, **options)


def complete(upstream: ReplayUpstream, **body: Any) -> Any:
    with connect(upstream) as client:
        return client.chat.completions.create(**{"model": "a", "messages": HELLO, **body})


def join_stream(upstream: ReplayUpstream, **body: Any) -> tuple[str, list[Any]]:
    with (
        connect(upstream) as client,
        client.chat.completions.create(
            **{"model": "a", "messages": HELLO, "stream": True, **body}
        ) as stream,
    ):
        chunks = list(stream)
    texts = [one.choices[0].delta.content or "" for one in chunks if one.choices]
    return "".join(texts), chunks


def test_an_answer_depends_on_all_that_the_model_is_sent(upstream: ReplayUpstream) -> None:
    given = complete(upstream)
    assert "Grüße, 世界" in given.choices[0].message.content
    assert given.choices[0].finish_reason == "stop"
    text = given.choices[0].message.content
    assert given.usage.completion_tokens == -(-len(text) // 4)
    assert given.usage.prompt_tokens == 3
    assert given.usage.total_tokens == given.usage.prompt_tokens + given.usage.completion_tokens
    texts = {text}
    for change in (
        {"model": "b"},
        {"temperature": 0.5},
        {"seed": 3},
        {"messages": [{"role": "system", "content": "Be brief."}, *HELLO]},
    ):
        texts.add(complete(upstream, **change).choices[0].message.content)
    assert len(texts) == 5
    assert complete(upstream).choices[0].message.content == text
    assert join_stream(upstream)[0] == text


def test_all_models_with_one_voice_say_the_same() -> None:
    with ReplayUpstream(("a", "b"), voice="a", fields={"reasoning_content": "hm"}) as upstream:
        one, other = (complete(upstream, model=model) for model in ("a", "b"))
    assert one.choices == other.choices
    assert (one.model, other.model) == ("a", "b")
    assert one.choices[0].message.reasoning_content == "hm"


def test_recorded_answers_are_replayed_by_name() -> None:
    recorded = read_recorded_questions(find_recorded_file())
    with ReplayUpstream(recorded=recorded) as upstream, connect(upstream) as client:
        assert [one.id for one in client.models.list()] == list(recorded.models)
        for question in recorded.questions[::60]:
            messages: list[Any] = [{"role": "user", "content": question.prompt}]
            for model in recorded.models[::3]:
                text = complete(upstream, model=model, messages=messages).choices[0].message.content
                assert text == question.answers[model].text
                assert join_stream(upstream, model=model, messages=messages)[0] == text


def test_the_async_client_streams_with_usage(upstream: ReplayUpstream) -> None:
    async def run() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=upstream.url, api_key="any") as client:
            stream = await client.chat.completions.create(
                model="a",
                messages=HELLO,
                stream=True,
                stream_options={"include_usage": True},
            )
            async with stream:
                return [chunk async for chunk in stream]

    chunks = asyncio.run(run())
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage == complete(upstream).usage
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_text_ends_at_a_stop_sequence_and_at_its_most_tokens(upstream: ReplayUpstream) -> None:
    text = complete(upstream).choices[0].message.content
    cut = complete(upstream, max_tokens=3).choices[0]
    assert (cut.message.content, cut.finish_reason) == (text[:12], "length")
    stopped = complete(upstream, stop=["never", "世界"]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == (text.split("世界")[0], "stop")
    several = complete(upstream, n=3).choices
    assert [one.index for one in several] == [0, 1, 2]
    assert len({one.message.content for one in several}) == 3


def test_json_answers_fit_the_format(upstream: ReplayUpstream) -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "tags": {"type": "array", "items": {"enum": ["x", "y"]}},
            "ok": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
    }
    format = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    made = json.loads(complete(upstream, response_format=format).choices[0].message.content)
    assert set(made) == {"n", "tags", "ok"}
    assert (type(made["n"]), made["tags"], made["ok"]) == (int, ["x"], True)
    free = complete(upstream, response_format={"type": "json_object"})
    assert json.loads(free.choices[0].message.content)["answer"] == "Grüße, 世界"


@pytest.mark.parametrize(
    ("options", "called"),
    [
        ({}, ["weather"]),
        ({"tool_choice": "auto"}, ["weather"]),
        ({"tool_choice": "required"}, ["weather", "population"]),
        ({"tool_choice": "required", "parallel_tool_calls": False}, ["weather"]),
        (
            {"tool_choice": {"type": "function", "function": {"name": "population"}}},
            ["population"],
        ),
        ({"tool_choice": "none"}, []),
    ],
)
def test_tools_are_called(
    upstream: ReplayUpstream, options: dict[str, Any], called: list[str]
) -> None:
    choice = complete(upstream, tools=TOOLS, **options).choices[0]
    calls = choice.message.tool_calls or []
    assert [one.function.name for one in calls] == called
    assert choice.finish_reason == ("tool_calls" if called else "stop")
    assert (choice.message.content is None) == bool(called)
    _, chunks = join_stream(upstream, tools=TOOLS, **options)
    pieces = [part for one in chunks for part in one.choices[0].delta.tool_calls or []]
    for index, call in enumerate(calls):
        mine = [piece for piece in pieces if piece.index == index]
        assert (mine[0].id, mine[0].function.name) == (call.id, call.function.name)
        assert "".join(one.function.arguments for one in mine) == call.function.arguments
        assert set(json.loads(call.function.arguments)) == {"city"}
        # A gateway that parses arguments and writes them again is noticed.
        assert json.dumps(json.loads(call.function.arguments)) != call.function.arguments
    result = {"role": "tool", "tool_call_id": "1", "content": "sunny"}
    if called == ["weather"] and options.get("tool_choice", "auto") == "auto":
        after = complete(upstream, tools=TOOLS, messages=[*HELLO, result], **options).choices[0]
        assert after.finish_reason == "stop"


def test_responses_are_the_same_streamed_and_not(upstream: ReplayUpstream) -> None:
    asked: dict[str, Any] = {"model": "a", "input": "Grüße", "instructions": "Be brief."}
    with connect(upstream) as client:
        whole = client.responses.create(**asked)
        with client.responses.create(stream=True, **asked) as stream:
            events = list(stream)
    assert "Grüße" in whole.output_text
    deltas = [one.delta for one in events if one.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == whole.output_text
    assert [one.sequence_number for one in events] == list(range(len(events)))


@pytest.mark.parametrize(
    ("change", "raised"),
    [
        ({"model": "z"}, openai.NotFoundError),
        ({"messages": []}, openai.BadRequestError),
        ({"messages": [{"role": "king", "content": "x"}]}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": 3}]}, openai.BadRequestError),
        ({"temperature": 3}, openai.BadRequestError),
        ({"max_tokens": 0}, openai.BadRequestError),
        ({"stream_options": {"include_usage": True}}, openai.BadRequestError),
    ],
)
def test_refusals_raise_the_errors_of_the_client(
    upstream: ReplayUpstream, change: dict[str, Any], raised: type[openai.APIStatusError]
) -> None:
    with pytest.raises(raised) as caught:
        complete(upstream, **change)
    assert caught.value.body is not None
    assert caught.value.type == "invalid_request_error"


def test_a_key_can_be_required() -> None:
    with ReplayUpstream(key="s3cret") as upstream:
        with connect(upstream) as client, pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key"
        with connect(upstream, api_key="s3cret") as client:
            assert client.models.retrieve("b").id == "b"
        assert upstream.requests[1].headers["authorization"] == "Bearer s3cret"


def test_requests_and_connections_are_counted() -> None:
    with ReplayUpstream(latency=0.3) as upstream:
        with connect(upstream) as client, ThreadPoolExecutor(4) as pool:

            def ask(number: int) -> None:
                client.chat.completions.create(model="a", messages=HELLO, user=f"u{number}")

            list(pool.map(ask, range(8)))
            assert upstream.connections == 4
        assert (upstream.received, upstream.answered, upstream.cancelled) == (8, 8, 0)
        assert (upstream.peak_active, upstream.peak_connections) == (4, 4)
        assert upstream.connections_made == 4
        assert {body["user"] for body in upstream.bodies} == {f"u{n}" for n in range(8)}
        wait_until(lambda: upstream.connections == 0)


def test_a_client_that_leaves_is_counted() -> None:
    with ReplayUpstream() as upstream:
        with (
            upstream.slowed(60.0),
            connect(upstream, timeout=0.3) as client,
            pytest.raises(openai.APITimeoutError),
        ):
            client.chat.completions.create(model="a", messages=HELLO)
        wait_until(lambda: upstream.cancelled == 1)
        with (
            upstream.slowed(0.0, chunk_s=0.1),
            connect(upstream) as client,
            client.chat.completions.create(model="a", messages=HELLO, stream=True) as stream,
        ):
            next(stream)
            assert upstream.active == 1
        wait_until(lambda: upstream.cancelled == 2)
        assert (upstream.active, upstream.answered) == (0, 0)


def test_an_outage_closes_connections_and_ends() -> None:
    with ReplayUpstream() as upstream, connect(upstream) as client:
        client.models.list()
        with upstream.outage():
            assert upstream.connections == 0
            with pytest.raises(openai.APIConnectionError):
                client.models.list()
        client.models.list()
        assert upstream.connections_made == 2


def test_a_refused_address_refuses() -> None:
    with (
        refused_address() as url,
        make_client(url) as client,
        pytest.raises(openai.APIConnectionError),
    ):
        client.models.list()


def test_latencies_follow_their_seed() -> None:
    latency = LogNormal(0.2, 0.5, seed=3)
    drawn = sorted(latency.draw(n) for n in range(2001))
    assert [latency.draw(n) for n in range(3)] == [latency.draw(n) for n in range(3)]
    assert latency.draw(0) != LogNormal(0.2, 0.5, seed=4).draw(0)
    # The median of n draws has a standard error of 1.2533 sigma / sqrt(n) in logarithms: 1.4 %.
    assert drawn[1000] == pytest.approx(0.2, rel=0.07)
    with ReplayUpstream(latency={"a": 0.4}) as upstream:
        for model, least in (("a", 0.4), ("b", 0.0)):
            complete(upstream, model=model)
            complete(upstream, model="b")
            first, second = upstream.requests[-2:]
            assert second.at - first.at >= least


def test_a_process_prints_its_port_and_counts() -> None:
    with upstream_process("--models", "x,y", "--key", "k") as url:
        with make_client(url, api_key="k") as client:
            assert [one.id for one in client.models.list()] == ["x", "y"]
        with urllib.request.urlopen(url.removesuffix("/v1") + "/counts") as answer:
            assert json.load(answer)["received"] == 1


def test_a_process_ends_with_its_input() -> None:
    command = [sys.executable, str(Path(upstreams.__file__))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, input=b"", capture_output=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"port"}
