"""What an OpenAI-compatible model replies to a request: checks, completions, chunks.

Pure functions: the same request of the same model has the same reply, up to ids and times. An
answer that is made up depends on all that a model is sent, so that a change on the way shows.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from bylot.gateway.answers import estimate_tokens

Body = dict[str, Any]
ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
COUNTS = {"n": 8, "max_tokens": 100_000, "max_completion_tokens": 100_000}
NOT_PROMPT = {
    *("model", "stream", "stream_options", "n", "stop", "max_tokens", "max_completion_tokens"),
    *("metadata", "store", "user", "service_tier"),
}
"""Parameters on which a made-up answer does not depend."""
numbers = count(1)


class RequestError(Exception):
    """A request that is refused, with the body that OpenAI answers."""

    def __init__(
        self, status: int, message: str, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = make_error(message, code=code, param=param)


class Speaker(NamedTuple):
    """Who answers: a name, and what it says to a message, or None if it must make it up."""

    name: str
    recall: Callable[[str], str | None] = lambda message: None
    fields: Mapping[str, Any] = {}  # more fields of a message, such as `reasoning_content`


def make_error(
    message: str,
    kind: str = "invalid_request_error",
    code: str | None = None,
    param: str | None = None,
) -> Body:
    """The body of an error response."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def make_digest(*parts: Any) -> str:
    """Twelve digits that depend on JSON values, not on the order of their keys."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# Requests


def parse_body(content: bytes) -> Body:
    """The JSON object of a request."""
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise RequestError(400, "We could not parse the JSON body of your request.")
    return body


def check_model(body: Mapping[str, Any], models: Sequence[str]) -> str:
    """The model that a request asks for."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise RequestError(400, "you must provide a model parameter", param="model")
    if model not in models:
        message = f"The model `{model}` does not exist or you do not have access to it."
        raise RequestError(404, message, "model_not_found")
    return model


def check_chat_request(body: Mapping[str, Any]) -> None:
    """Refuse what OpenAI refuses: messages and common parameters of the wrong shape."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "Missing required parameter: 'messages'.", param="messages")
    for number, message in enumerate(messages):
        param = f"messages[{number}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise RequestError(400, "Invalid value for a role.", "invalid_value", f"{param}.role")
        if not isinstance(message.get("content"), str | list) and not message.get("tool_calls"):
            raise RequestError(400, "Invalid content.", "invalid_type", f"{param}.content")
    for name, (low, high) in RANGES.items():
        value = body.get(name)
        if value is not None and not (isinstance(value, int | float) and low <= value <= high):
            raise RequestError(400, f"Invalid '{name}'.", "invalid_value", name)
    for name, most in COUNTS.items():
        value = body.get(name)
        if value is not None and not (isinstance(value, int) and 1 <= value <= most):
            raise RequestError(400, f"Invalid '{name}'.", "integer_below_min_value", name)
    if not isinstance(body.get("stream") or False, bool):
        raise RequestError(400, "Invalid type for 'stream'.", "invalid_type", "stream")
    if body.get("stream_options") and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise RequestError(400, message, param="stream_options")


def join_text(content: Any) -> str:
    """The text of a message: a text, or the texts of its parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content if isinstance(content, str) else ""


def find_last_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the user said last."""
    texts = [join_text(one.get("content")) for one in messages if one["role"] == "user"]
    return texts[-1] if texts else ""


# Completions


def make_completion(body: Mapping[str, Any], speaker: Speaker) -> Body:
    """A chat completion."""
    choices = [make_choice(body, speaker, index) for index in range(body.get("n") or 1)]
    messages = body["messages"]
    prompt = sum(estimate_tokens(len(join_text(one.get("content")))) for one in messages)
    completion = sum(count_tokens(one["message"]) for one in choices)
    return {
        "id": f"chatcmpl-{next(numbers)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": choices,
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        },
        "service_tier": "default",
        "system_fingerprint": "fp_replay",
    }


def make_choice(body: Mapping[str, Any], speaker: Speaker, index: int) -> Body:
    """One choice: tool calls if the request wants some, else a text."""
    calls = make_tool_calls(body)
    message: Body = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
    message.update(speaker.fields)
    if calls:
        message["tool_calls"], finish = calls, "tool_calls"
    else:
        message["content"], finish = cut_text(body, make_text(body, speaker, index))
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}


def count_tokens(message: Mapping[str, Any]) -> int:
    """Tokens of an answer: a quarter of its characters."""
    functions = [call["function"] for call in message.get("tool_calls") or []]
    calls = "".join(one["name"] + one["arguments"] for one in functions)
    return estimate_tokens(len((message["content"] or "") + calls))


def make_text(body: Mapping[str, Any], speaker: Speaker, index: int) -> str:
    """JSON if the request wants it, else what the speaker recalls, else a made-up text."""
    asked = find_last_text(body["messages"])
    prompt = {name: value for name, value in body.items() if name not in NOT_PROMPT}
    digest = make_digest(speaker.name, prompt, index)
    match body.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return json.dumps(make_instance(schema, digest), ensure_ascii=False, indent=1)
        case {"type": "json_object"}:
            return json.dumps({"answer": asked, "of": speaker.name, "digest": digest})
    recalled = speaker.recall(asked)
    if recalled is not None:
        return recalled if index == 0 else f"{recalled} ({index})"
    return (
        f"Answer {digest} of {speaker.name} to: {asked[:200]}\n"
        "It was made up for a test, with π ≈ 3.14159, naïve words, 日本語 and 🙂🏽."
    )


def cut_text(body: Mapping[str, Any], text: str) -> tuple[str, str]:
    """A text up to a stop sequence or to its most tokens, and why it ends."""
    stop = body.get("stop") or []
    ends = [text.find(one) for one in ([stop] if isinstance(stop, str) else stop)]
    text = text[: min((end for end in ends if end >= 0), default=len(text))]
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    if most is not None and estimate_tokens(len(text)) > most:
        return text[: 4 * most], "length"
    return text, "stop"


def make_tool_calls(body: Mapping[str, Any]) -> list[Body]:
    """Calls of tools.

    auto: of the first tool, unless the last message is the result of one; required: of up to two,
    or of one without `parallel_tool_calls`; a named function: of that one; none: no call.
    """
    functions = [one["function"] for one in body.get("tools") or []]
    match body.get("tool_choice", "auto"):
        case {"function": {"name": name}}:
            chosen = [one for one in functions if one["name"] == name]
            if not chosen:
                raise RequestError(400, f"No tool {name!r}.", param="tool_choice")
        case "required":
            chosen = functions[: 1 if body.get("parallel_tool_calls") is False else 2]
        case "auto" if body["messages"][-1]["role"] != "tool":
            chosen = functions[:1]
        case _:
            chosen = []
    prompt = {name: value for name, value in body.items() if name not in NOT_PROMPT}
    return [
        {
            "id": f"call_{make_digest(prompt, number)}",
            "type": "function",
            "function": {"name": one["name"], "arguments": make_arguments(one, prompt)},
        }
        for number, one in enumerate(chosen)
    ]


def make_arguments(function: Mapping[str, Any], prompt: Mapping[str, Any]) -> str:
    """Arguments that fit the parameters, as JSON that no serialiser would write the same way."""
    instance = make_instance(function.get("parameters") or {}, make_digest(prompt))
    return json.dumps(instance, ensure_ascii=False, separators=(" , ", " :"))


def make_instance(schema: Mapping[str, Any], digest: str) -> Any:
    """A value of a JSON schema, of the parts of schemas that tests use."""
    match schema:
        case {"const": value}:
            return value
        case {"enum": [first, *_]}:
            return first
        case {"anyOf": [first, *_]}:
            return make_instance(first, digest)
        case {"type": "array"}:
            return [make_instance(schema.get("items", {}), digest)]
        case {"type": "integer"}:
            return int(digest[:4], 16)
        case {"type": "number"}:
            return int(digest[:4], 16) / 8
        case {"type": "boolean"}:
            return True
        case {"type": "string"}:
            return f"Zürich 🙂 {digest}"
        case _:
            parts = schema.get("properties", {})
            return {name: make_instance(part, digest) for name, part in parts.items()}


# Streams


def make_chunks(completion: Mapping[str, Any], size: int, usage: bool) -> Iterator[Body]:
    """A completion as the chunks of a stream, with `size` characters each."""
    shared = {name: completion[name] for name in completion if name not in ("choices", "usage")}
    shared["object"] = "chat.completion.chunk"
    blank = {"usage": None} if usage else {}
    for choice in completion["choices"]:
        deltas = [*make_deltas(choice["message"], size), {}]
        for number, delta in enumerate(deltas, 1):
            finish = choice["finish_reason"] if number == len(deltas) else None
            part = {"index": choice["index"], "delta": delta}
            part |= {"logprobs": None, "finish_reason": finish}
            yield {**shared, "choices": [part], **blank}
    if usage:
        yield {**shared, "choices": [], "usage": completion["usage"]}


def make_deltas(message: Mapping[str, Any], size: int) -> Iterator[Body]:
    """A message in pieces."""
    first = {
        name: value
        for name, value in message.items()
        if name not in ("content", "tool_calls", "annotations")
    }
    text, calls = message["content"], message.get("tool_calls") or []
    yield {**first, "content": None if text is None else ""}
    for at in range(0, len(text or ""), size):
        yield {"content": text[at : at + size]}
    for index, call in enumerate(calls):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        yield {
            "tool_calls": [{"index": index, **call, "function": {"name": name, "arguments": ""}}]
        }
        for at in range(0, len(arguments), size):
            piece = {"arguments": arguments[at : at + size]}
            yield {"tool_calls": [{"index": index, "function": piece}]}


def encode_event(data: Any, name: str | None = None) -> bytes:
    """An event of a stream."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()
