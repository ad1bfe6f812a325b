"""Requests of the Responses API become requests for chat completions; choices become items."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot.gateway.answers import Usage
from bylot.gateway.chat import ChatError, decode_object, iterate_chunks, make_completion
from bylot.gateway.response_events import ResponseWriter, render_response
from bylot.gateway.responses import check_responses_request

BASE = {"model": "bylot/a", "input": "Hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def translate(**fields: Any) -> dict[str, Any]:
    """What is sent to members."""
    return check_responses_request({**BASE, **fields}).fields


def refuse(**fields: Any) -> ChatError:
    """The error of a request."""
    with pytest.raises(ChatError) as caught:
        check_responses_request({**BASE, **fields})
    assert caught.value.status == 400
    return caught.value


def test_instructions_and_input_become_messages() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    answer = {"type": "output_text", "text": "c", "annotations": []}
    items = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": parts},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [answer]},
    ]
    assert translate(instructions="be brief", input=items) == {
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "system", "content": "be kind"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {"role": "assistant", "content": "c"},
        ]
    }


def test_consecutive_calls_are_one_message() -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "1", "output": "x"}
    items = [{**call, "call_id": "1"}, {**call, "call_id": "2"}, output]
    messages = translate(input=items)["messages"]
    assert [one["role"] for one in messages] == ["assistant", "tool"]
    assert [one["id"] for one in messages[0]["tool_calls"]] == ["1", "2"]
    assert translate(input=items[:1])["messages"][0]["tool_calls"][0]["id"] == "1"


def test_options_get_the_names_of_chat_completions() -> None:
    schema = {"name": "s", "schema": {"type": "object"}, "strict": True}
    sent = translate(
        max_output_tokens=9,
        temperature=0,
        top_p=None,
        text={"format": {"type": "json_schema", **schema}, "verbosity": "low"},
        reasoning={"effort": "low", "summary": "auto"},
        tools=[{"type": "function", "name": "f", "strict": False, "parameters": None}],
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
        store=True,
        include=[],
        previous_response_id=None,
    )
    assert sent == {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 9,
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": schema},
        "verbosity": "low",
        "reasoning_effort": "low",
        "tools": [{"type": "function", "function": {"name": "f", "strict": False}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
    }


def test_metadata_is_for_scorers_and_not_for_members() -> None:
    request = check_responses_request({**BASE, "metadata": {"bylot_expected": "4", "team": "a"}})
    assert request.metadata == {"bylot_expected": "4", "team": "a"}
    assert "metadata" not in request.fields


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("input", {"input": []}),
        ("input", {"input": None}),
        ("input[0]", {"input": ["Hi"]}),
        ("input[0].type", {"input": [{"type": "item_reference", "id": "x"}]}),
        ("input[0].type", {"input": [{"type": {}, "id": "x"}]}),
        ("input[0].role", {"input": [{"role": "tool", "content": "x"}]}),
        ("input[0].content", {"input": [{"role": "user", "content": []}]}),
        (
            "input[0].content[0].type",
            {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
        ),
        (
            "input[0].content[0].text",
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        ),
        ("input[0].call_id", {"input": [{"type": "function_call", "name": "f"}]}),
        ("instructions", {"instructions": [{"role": "user"}]}),
        ("max_output_tokens", {"max_output_tokens": 0}),
        ("max_output_tokens", {"max_output_tokens": True}),
        ("text", {"text": "short"}),
        ("text.format.type", {"text": {"format": {"type": "xml"}}}),
        ("metadata", {"metadata": "x"}),
        ("stream", {"stream": "yes"}),
        ("tools", {"tools": {}}),
        ("tools[0].type", {"tools": [{"type": "web_search"}]}),
        ("tools[0].name", {"tools": [{"type": "function"}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tools": [{"type": "function", "name": "f"}], "tool_choice": {}}),
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("background", {"background": True}),
        ("prompt", {"prompt": {"id": "p"}}),
        ("include", {"include": ["message.output_text.logprobs"]}),
        ("model", {"model": 5}),
    ],
)
def test_an_error_names_the_field(param: str, fields: dict[str, Any]) -> None:
    assert refuse(**fields).param == param


def test_a_body_that_is_no_request_is_refused() -> None:
    for content in (b"", b"[]", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(ChatError) as caught:
            check_responses_request(decode_object(content))
        assert caught.value.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["input", "instructions", "text", "tools", "tool_choice", "metadata", "reasoning", "store"]
)


@settings(deadline=None)
@given(st.dictionaries(NAMES, JSON))
def test_any_body_is_translated_or_refused(fields: dict[str, Any]) -> None:
    with suppress(ChatError):
        assert check_responses_request({**BASE, **fields}).fields["messages"]


MESSAGES = st.fixed_dictionaries(
    {"content": st.none() | st.text()},
    optional={"refusal": st.none() | st.text(), "tool_calls": st.just([CALL, {**CALL, "id": "b"}])},
)


@settings(deadline=None)
@given(
    st.lists(MESSAGES, min_size=1, max_size=3),
    st.sampled_from(["stop", "length", "content_filter", None]),
)
def test_a_stream_ends_with_the_response_that_is_not_streamed(
    messages: list[dict[str, Any]], reason: str | None
) -> None:
    choices = [{"message": one, "finish_reason": reason} for one in messages]
    made = make_completion(choices, Usage(1, 2), {"decision": "x"})
    whole = json.loads(render_response("a", BASE, made))
    writer = ResponseWriter("a", BASE)
    events = b"".join(writer.write(one) for one in iterate_chunks(made.choices))
    events += writer.end(made.usage, made.details)
    parsed = [json.loads(one.partition(b"data: ")[2]) for one in events.split(b"\n\n")[:-1]]
    last = parsed[-1]
    assert last["type"] == f"response.{whole['status']}"
    for response in (whole, last["response"]):
        del response["id"], response["created_at"]
        for item in response["output"]:
            del item["id"]
    assert last["response"] == whole
    assert [one["sequence_number"] for one in parsed] == list(range(len(parsed)))
    texts: dict[tuple[int, int], str] = {}
    for one in parsed:
        if one["type"] == "response.output_text.delta":
            place = one["output_index"], one["content_index"]
            texts[place] = texts.get(place, "") + one["delta"]
    for (index, part), text in texts.items():
        assert whole["output"][index]["content"][part]["text"] == text
