"""Requests of OpenAI's Responses API, read as requests for chat completions.

The panel is asked for a chat completion. What a chat completion cannot express is refused with the
name of its field. `response_events` renders what comes back.

| Responses API | chat completion |
|---|---|
| `instructions` | a system message before all others |
| messages of the roles system and developer | system messages: few models know the other role |
| `input_text`, `output_text`, `refusal` | text |
| `function_call`, `function_call_output` | `tool_calls` of a message, a message of the role tool |
| `max_output_tokens` | `max_tokens` |
| `text.format`, `text.verbosity` | `response_format`, `verbosity` |
| `reasoning.effort` | `reasoning_effort` |
| function tools, `tool_choice` | the same, in the nested shape |
| `metadata` | not sent to members; returned with the response |
| `store`, `truncation: disabled`, `stream_options` | ignored: nothing is stored |
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bylot.gateway.chat import (
    ChatError,
    ChatRequest,
    Completion,
    EventWriter,
    bad_request,
    check_model_name,
    check_stream,
    encode,
    select_fields,
)
from bylot.gateway.response_events import ResponseWriter, render_response

ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
TEXT_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
PASSED_FIELDS = (
    *("temperature", "top_p", "user", "service_tier", "safety_identifier", "prompt_cache_key"),
)
TRANSLATED_FIELDS = {
    *("model", "input", "instructions", "max_output_tokens", "text", "reasoning", "metadata"),
    *("tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options"),
}
IGNORED_VALUES: Mapping[str, tuple[Any, ...]] = {
    "store": (True, False),
    "truncation": ("disabled",),
    "background": (False,),
    "include": ([], ["reasoning.encrypted_content"]),  # no response has any
    "top_logprobs": (0,),
}
"""Values that ask for nothing beyond a chat completion; others of these fields are refused."""


class ResponsesRequest(ChatRequest, frozen=True):
    """A request of the Responses API; `body` is that of the chat completion.

    given: as the caller sent it
    """

    given: dict[str, Any]

    def render(self, made: Completion) -> bytes:
        """The body of a response that is not streamed."""
        return render_response(self.router, self.given, made)

    def start_events(self) -> EventWriter:
        """What renders the response as a stream."""
        return ResponseWriter(self.router, self.given)


def check_responses_request(given: dict[str, Any]) -> ResponsesRequest:
    """Translate a request, and refuse what a chat completion cannot express."""
    router, stream = check_model_name(given.get("model")), check_stream(given)
    for name, value in given.items():
        check_supported(name, value)
    body: dict[str, Any] = {"model": given["model"], "messages": list(iterate_messages(given))}
    body |= {name: given[name] for name in PASSED_FIELDS if given.get(name) is not None}
    body |= translate_options(given)
    fields = select_fields(body)
    metadata = check_object(given, "metadata")
    if metadata:
        body["metadata"] = metadata
    return ResponsesRequest(router, body, fields, stream, True, given)


def check_supported(name: str, value: Any) -> None:
    """Refuse a field that has no meaning for the panel; null is as if it were not given."""
    if value is None or name in TRANSLATED_FIELDS or name in PASSED_FIELDS:
        return
    allowed = IGNORED_VALUES.get(name)
    if allowed is None:
        raise unsupported(name, f"{name[:100]} is not supported by this endpoint")
    if encode(value) not in map(encode, allowed):  # in Python, True is 1
        expected = " or ".join(encode(one).decode() for one in allowed)
        raise unsupported(name, f"{name} must be {expected}: nothing else is supported")


def unsupported(param: str, message: str) -> ChatError:
    return ChatError(400, "unsupported_parameter", message, param[:100])


def check_object(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field that is an object; empty if it is not given."""
    found = given.get(name)
    if not isinstance(found, dict | None):
        raise bad_request(f"{name} must be an object", name)
    return found or {}


def iterate_messages(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages of a request: its instructions, then its input."""
    instructions, items = given.get("instructions"), given.get("input")
    if instructions is not None:
        if not isinstance(instructions, str):
            raise bad_request("instructions must be a text", "instructions")
        yield {"role": "system", "content": instructions}
    if isinstance(items, str):
        yield {"role": "user", "content": items}
        return
    if not isinstance(items, list) or not items:
        raise bad_request("input must be a text, or a list of at least one item", "input")
    calls: list[dict[str, Any]] = []  # consecutive calls are one message
    for number, item in enumerate(items):
        place = f"input[{number}]"
        if not isinstance(item, dict):
            raise bad_request(f"{place} must be an object", place)
        kind = read_word(item, "type") if "type" in item else "message"
        if kind == "function_call":
            calls.append(translate_call(item, place))
            continue
        if calls:
            yield {"role": "assistant", "content": None, "tool_calls": calls}
            calls = []
        if kind == "message":
            yield translate_message(item, place)
        elif kind == "function_call_output":
            yield translate_call_output(item, place)
        else:
            raise unsupported(
                f"{place}.type", f"{place}: items of the type {kind[:100]!r} are not supported"
            )
    if calls:
        yield {"role": "assistant", "content": None, "tool_calls": calls}


def translate_message(item: Mapping[str, Any], place: str) -> dict[str, Any]:
    """A message; several parts of text stay several."""
    role = ROLES.get(read_word(item, "role"))
    if role is None:
        raise bad_request(f"{place}.role must be one of {', '.join(ROLES)}", f"{place}.role")
    texts = read_texts(item.get("content"), f"{place}.content")
    if len(texts) == 1:
        return {"role": role, "content": texts[0]}
    return {"role": role, "content": [{"type": "text", "text": one} for one in texts]}


def read_texts(content: Any, place: str) -> list[str]:
    """The texts of a message: a text, or parts that are texts."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list) or not content:
        raise bad_request(f"{place} must be a text, or a list of at least one part", place)
    texts = []
    for number, part in enumerate(content):
        kind = read_word(part, "type")
        field = TEXT_PARTS.get(kind)
        if field is None:
            raise unsupported(
                f"{place}[{number}].type",
                f"{place}[{number}]: parts of the type {kind[:100]!r} are not supported",
            )
        if not isinstance(part.get(field), str):
            where = f"{place}[{number}].{field}"
            raise bad_request(f"{where} must be a text", where)
        texts.append(part[field])
    return texts


def translate_call(item: Mapping[str, Any], place: str) -> dict[str, Any]:
    """A call of a function that a model asked for before."""
    id, name, arguments = (check_text(item, one, place) for one in ("call_id", "name", "arguments"))
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def translate_call_output(item: Mapping[str, Any], place: str) -> dict[str, Any]:
    """What a function returned."""
    texts = read_texts(item.get("output"), f"{place}.output")
    id = check_text(item, "call_id", place)
    return {"role": "tool", "tool_call_id": id, "content": "".join(texts)}


def read_word(item: Any, name: str) -> str:
    """A field of an object that says what it is; empty if there is no such text."""
    found = item.get(name) if isinstance(item, dict) else None
    return found if isinstance(found, str) else ""


def check_text(item: Mapping[str, Any], name: str, place: str) -> str:
    found = item.get(name)
    if not isinstance(found, str):
        raise bad_request(f"{place}.{name} must be a text", f"{place}.{name}")
    return found


def translate_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """All options whose names or shapes differ."""
    made: dict[str, Any] = {}
    most = given.get("max_output_tokens")
    if most is not None:
        if type(most) is not int or most < 1:
            raise bad_request(
                "max_output_tokens must be a whole number of at least 1", "max_output_tokens"
            )
        made["max_tokens"] = most
    text, reasoning = check_object(given, "text"), check_object(given, "reasoning")
    if text.get("format") is not None:
        made |= translate_format(text["format"])
    if text.get("verbosity") is not None:
        made["verbosity"] = text["verbosity"]
    if reasoning.get("effort") is not None:
        made["reasoning_effort"] = reasoning["effort"]
    return made | translate_tools(given)


def translate_format(format: Any) -> dict[str, Any]:
    """The format of the answer, whose schema is nested in a chat completion."""
    kind = read_word(format, "type")
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    if kind != "json_schema":
        raise bad_request(
            "text.format.type must be text, json_object or json_schema", "text.format.type"
        )
    schema = {name: value for name, value in format.items() if name != "type"}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def translate_tools(given: Mapping[str, Any]) -> dict[str, Any]:
    """Functions that a model may ask to call."""
    tools, choice = given.get("tools"), given.get("tool_choice")
    if not isinstance(tools, list | None):
        raise bad_request("tools must be a list", "tools")
    if not tools:
        if choice not in (None, "auto", "none"):
            raise bad_request("tool_choice needs tools", "tool_choice")
        return {}
    made: dict[str, Any] = {"tools": [translate_tool(one, n) for n, one in enumerate(tools)]}
    if given.get("parallel_tool_calls") is not None:
        made["parallel_tool_calls"] = given["parallel_tool_calls"]
    if isinstance(choice, dict) and choice.get("type") == "function":
        made["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif choice in ("auto", "none", "required"):
        made["tool_choice"] = choice
    elif choice is not None:
        raise unsupported("tool_choice", "tool_choice must be auto, none, required or a function")
    return made


def translate_tool(tool: Any, number: int) -> dict[str, Any]:
    """A function; tools that OpenAI itself runs have no counterpart."""
    place = f"tools[{number}]"
    kind = read_word(tool, "type")
    if kind != "function":
        raise unsupported(
            f"{place}.type",
            f"{place}: tools of the type {kind[:100]!r} are not supported, only function",
        )
    check_text(tool, "name", place)
    names = ("name", "description", "parameters", "strict")
    function = {name: tool[name] for name in names if tool.get(name) is not None}
    return {"type": "function", "function": function}
