"""Chat completions on the wire: requests are checked, answers are rendered, streams add up."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylot.gateway.answers import Usage
from bylot.gateway.chat import (
    CHUNK_CHARS,
    ChatError,
    ChatRequest,
    ChunkWriter,
    check_chat_request,
    decode_object,
    iterate_chunks,
    make_completion,
)

MESSAGES = [{"role": "user", "content": "hello"}]


def parse(**fields: Any) -> Any:
    body = {"model": "bylot/panel", "messages": MESSAGES, **fields}
    return check_chat_request(decode_object(json.dumps(body).encode()))


def test_the_members_get_what_the_caller_sent_without_what_is_ours() -> None:
    request = parse(temperature=0.5, stream=True, metadata={"bylot_context": "icu", "user": "7"})
    assert request.router == "panel"
    assert request.stream
    assert request.fields == {"messages": MESSAGES, "temperature": 0.5, "metadata": {"user": "7"}}


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "gpt-4"}, 404, "model"),
        ({"model": 7}, 400, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": "hi"}, 400, "messages"),
        ({"messages": [{"content": "hi"}]}, 400, "messages[0]"),
        ({"n": 2}, 400, "n"),
        ({"n": True}, 400, "n"),
        ({"stream": "yes"}, 400, "stream"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
        ({"metadata": "x"}, 400, "metadata"),
    ],
)
def test_a_wrong_request_names_the_field(fields: dict[str, Any], status: int, param: str) -> None:
    with pytest.raises(ChatError) as caught:
        parse(**fields)
    error = caught.value
    assert error.status == status
    assert error.body["error"]["param"] == param
    assert set(error.body["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"x"', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(content: bytes) -> None:
    with pytest.raises(ChatError) as caught:
        check_chat_request(decode_object(content))
    assert caught.value.status == 400


def test_a_body_of_too_many_values_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(ChatError, match="more than 200000 JSON values"):
        parse(tools=[[]] * 100_000)
    text = '\\"[{,' * 100_000
    request = parse(tools=[[]] * 90_000, messages=[{"role": "user", "content": text}])
    assert request.fields["messages"][0]["content"] == text


def join_stream(events: list[bytes]) -> dict[int, dict[str, Any]]:
    """The messages of a stream, as a client adds them up."""
    assert events[-1] == b"data: [DONE]\n\n"
    messages: dict[int, dict[str, Any]] = {}
    for event in events[:-1]:
        assert event.startswith(b"data: ")
        assert event.endswith(b"\n\n")
        for choice in json.loads(event[6:])["choices"]:
            message = messages.setdefault(choice["index"], {})
            for name, part in choice["delta"].items():
                known = message.get(name)
                message[name] = known + part if isinstance(known, str) and part else part
            if choice["finish_reason"]:
                message["finish_reason"] = choice["finish_reason"]
    return messages


def stream(choices: list[dict[str, Any]], usage: Usage, details: dict[str, Any]) -> list[bytes]:
    """The events of a complete answer."""
    request = parse(stream=True, stream_options={"include_usage": True})
    writer = ChunkWriter(request)
    made = make_completion(choices, usage, details)
    text = b"".join(map(writer.write, iterate_chunks(made.choices)))
    text += writer.end(made.usage, made.details)
    return [event + b"\n\n" for event in text.split(b"\n\n")[:-1]]


@given(texts=st.lists(st.text(max_size=50).map(lambda s: s * 300), min_size=1, max_size=3))
def test_the_chunks_of_an_answer_add_up_to_it(texts: list[str]) -> None:
    choices: list[dict[str, Any]] = [
        {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for text in texts
    ]
    events = stream(choices, Usage(1, 2), {"decision": "d"})
    joined = join_stream(events)
    assert [joined[n]["content"] for n in range(len(texts))] == texts
    assert all(len(event) < 10 * CHUNK_CHARS for event in events)
    last, usage = (json.loads(event[6:]) for event in events[-3:-1])
    assert usage["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert usage["choices"] == []
    assert last["bylot"] == {"decision": "d"}
    assert last["choices"][0]["finish_reason"] == "stop"


def test_tool_calls_are_streamed_with_their_places() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    joined = join_stream(stream([{"message": message, "finish_reason": "tool_calls"}], Usage(), {}))
    assert joined[0]["tool_calls"] == [{"index": 0, **call}]
    assert joined[0]["finish_reason"] == "tool_calls"
    assert joined[0]["content"] is None


def test_a_whole_completion_keeps_what_the_model_said() -> None:
    choice = {"message": {"role": "assistant", "content": "x", "refusal": None}, "logprobs": None}
    made = make_completion([{**choice, "finish_reason": "length"}], Usage(3, 4), {"w": 1})
    body = json.loads(ChatRequest("p", {}, {}, False, False).render(made))
    assert body["choices"] == [{**choice, "finish_reason": "length", "index": 0}]
    assert body["model"] == "bylot/p"
    assert body["object"] == "chat.completion"
    assert body["usage"]["total_tokens"] == 7
