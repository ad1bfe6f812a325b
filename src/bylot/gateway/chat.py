"""Chat completions on the wire: the request, the completion, its chunks, and OpenAI's errors."""

import secrets
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from bylot.gateway.answers import Usage

MODEL_PREFIX = "bylot/"
GATEWAY_FIELDS = {"model", "stream", "stream_options"}
MEMBER_FIELDS = {
    *("messages", "n", "max_tokens", "max_completion_tokens", "stop", "seed", "top_p"),
    *("temperature", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs"),
    *("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
    *("response_format", "reasoning_effort", "verbosity", "metadata", "store"),
    *("top_logprobs", "user", "safety_identifier", "prompt_cache_key"),
}
"""Fields of a request that members are sent: none changes what a token costs, or how many a call
may have beyond its bound. Others must be allowed by name."""
TOOL_KINDS = ("function", "custom")  # others are run by the provider, which bills them
MAX_UNSENT_NAMES = 20  # that a response lists
METADATA_PREFIX = "bylot_"
CHUNK_CHARS = 4_000  # of a text that is sent as a stream after it is complete
MAX_REQUEST_VALUES = 200_000  # in JSON; decoding a body holds the interpreter's lock

encode = msgspec.json.Encoder().encode


class ChatError(Exception):
    """An error in OpenAI's envelope: {"error": {"message", "type", "param", "code"}}.

    is_relayed: message and code are those of a model
    """

    def __init__(
        self,
        status: int,
        code: str | None,
        message: str,
        param: str | None = None,
        retry_after_s: float | None = None,
        is_relayed: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.retry_after_s, self.is_relayed = retry_after_s, is_relayed

    @property
    def body(self) -> dict[str, Any]:
        kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
        usual = "invalid_request_error" if self.status < 500 else "server_error"
        detail = {"message": self.message, "type": kinds.get(self.status, usual)}
        return {"error": {**detail, "param": self.param, "code": self.code}}


def bad_request(message: str, param: str | None = None) -> ChatError:
    return ChatError(400, "invalid_request", message, param)


class ChatRequest(msgspec.Struct, frozen=True):
    """A checked request for a chat completion.

    router: whose panel is asked
    body:   as the caller sent it
    fields: what is sent to the members, whatever their router allows besides
    """

    router: str
    body: dict[str, Any]
    fields: dict[str, Any]
    stream: bool
    include_usage: bool

    @property
    def metadata(self) -> Mapping[str, Any]:
        found = self.body.get("metadata")
        return found if isinstance(found, dict) else {}

    def list_unsent(self, allowed: Container[str]) -> list[str]:
        """List fields that members are not sent: they are neither known nor allowed."""
        known = MEMBER_FIELDS | GATEWAY_FIELDS
        names = [name for name in self.body if name not in known and name not in allowed]
        return [name[:100] for name in names[:MAX_UNSENT_NAMES]]

    def render(self, made: "Completion") -> bytes:
        """The body of a response that is not streamed."""
        head = {**make_head(self.router), "object": "chat.completion", "choices": made.choices}
        return encode({**head, "usage": render_usage(made.usage), "bylot": made.details})

    def start_events(self) -> "EventWriter":
        """What renders the response as a stream."""
        return ChunkWriter(self)


def decode_object(content: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    if has_too_many_values(content, MAX_REQUEST_VALUES):
        raise bad_request(f"the body has more than {MAX_REQUEST_VALUES} JSON values")
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None
    if not isinstance(body, dict):
        raise bad_request("the body must be a JSON object")
    return body


def has_too_many_values(content: bytes, most: int) -> bool:
    r"""Whether a JSON document has more than `most` values, an even number, without decoding it.

    They are counted by commas and opening brackets, outside of the first `most / 2` texts.

    >>> content = b'{"a": [1, 2], "b, \\"[": {}}'
    >>> has_too_many_values(content, 6), has_too_many_values(content, 4)
    (False, True)
    """
    if count_separators(content) <= most:
        return False
    bare = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    return count_separators(b"".join(bare.split(b'"', most)[::2])) > most


def count_separators(content: bytes) -> int:
    """Count the commas and opening brackets of JSON, of which every value but the first has one."""
    return len(content) - len(content.translate(None, b",[{"))


def check_chat_request(body: dict[str, Any]) -> ChatRequest:
    """Check what the gateway itself needs; the rest is checked by the models."""
    router = check_model_name(body.get("model"))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages must be a list of at least one message", "messages")
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        if not is_message(message):
            expected = "an object with a role, and content or tool_calls"
            raise bad_request(f"{place} must be {expected}", place)
        if has_sound(message):
            raise bad_request(f"{place} has sound, whose tokens have another price", place)
    if encode(body.get("n")) not in (b"null", b"1"):  # in Python, True is 1
        raise bad_request("n must be 1: the panel has several members, see `answer: all`", "n")
    check_tools(body.get("tools"))
    stream = check_stream(body)
    options = body.get("stream_options") or {}
    if not isinstance(body.get("metadata"), dict | None):
        raise bad_request("metadata must be an object", "metadata")
    include_usage = bool(options.get("include_usage"))
    return ChatRequest(router, body, select_fields(body), stream, include_usage)


def check_tools(tools: Any) -> None:
    """Refuse tools that the provider of a model runs; shapes are checked by the models."""
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        kind = tool.get("type", "function") if isinstance(tool, dict) else "function"
        if kind not in TOOL_KINDS:
            place = f"tools[{number}].type"
            raise bad_request(f"{place} must be {' or '.join(TOOL_KINDS)}", place)


def check_stream(body: Mapping[str, Any]) -> bool:
    """Whether a stream is wanted; its options are an object."""
    stream, options = body.get("stream"), body.get("stream_options")
    if not isinstance(stream, bool | None):
        raise bad_request("stream must be true or false", "stream")
    if not isinstance(options, dict | None) or (options and not stream):
        raise bad_request(
            "stream_options must be an object, and needs stream: true", "stream_options"
        )
    return bool(stream)


def is_message(data: Any) -> bool:
    """Whether a model can read this as a message."""
    if not isinstance(data, dict) or not isinstance(data.get("role"), str):
        return False
    return any(data.get(name) is not None for name in ("content", "tool_calls", "function_call"))


def has_sound(message: Mapping[str, Any]) -> bool:
    """Whether a message has a part that is sound."""
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    return any(isinstance(part, dict) and part.get("type") == "input_audio" for part in parts)


def check_model_name(model: Any) -> str:
    """The router of a model `bylot/ROUTER`."""
    if not isinstance(model, str) or not model:
        raise bad_request("model must be a text such as bylot/NAME", "model")
    if not model.startswith(MODEL_PREFIX):
        raise unknown_model(model)
    return model.removeprefix(MODEL_PREFIX)


def unknown_model(model: str) -> ChatError:
    message = f"the model {model[:100]!r} does not exist; GET /v1/models lists those that do"
    return ChatError(404, "model_not_found", message, "model")


def select_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is sent to the members, without what the gateway uses of the metadata."""
    fields = {name: value for name, value in body.items() if name in MEMBER_FIELDS}
    for name in fields.keys() & {"messages", "tools"}:
        fields[name] = drop_cache_marks(fields[name])
    metadata = fields.pop("metadata", None)
    if metadata:
        kept = {k: v for k, v in metadata.items() if not k.startswith(METADATA_PREFIX)}
        if kept:
            fields["metadata"] = kept
    return fields


def drop_cache_marks(items: Any) -> Any:
    """Return messages, parts or tools without marks by which a provider bills what it caches.

    >>> drop_cache_marks([{"content": [{"text": "hi", "cache_control": {"type": "ephemeral"}}]}])
    [{'content': [{'text': 'hi'}]}]
    """
    if not isinstance(items, list):
        return items
    return [
        {
            name: drop_cache_marks(value) if name == "content" else value
            for name, value in item.items()
            if name != "cache_control"
        }
        if isinstance(item, dict)
        else item
        for item in items
    ]


class Completion(msgspec.Struct, frozen=True):
    """What the gateway returns for a request, in whatever shape.

    choices: of the answers that are returned, numbered from 0
    usage:   of all members and the judge
    details: the object `bylot` of the response
    """

    choices: list[Mapping[str, Any]]
    usage: Usage
    details: dict[str, Any]


def make_completion(
    choices: Sequence[Mapping[str, Any]], usage: Usage, details: dict[str, Any]
) -> Completion:
    """A completion whose choices are numbered from 0."""
    return Completion([{**one, "index": n} for n, one in enumerate(choices)], usage, details)


def make_head(router: str) -> dict[str, Any]:
    """What a completion, and each of its chunks, begins with."""
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time())}
    return {**head, "model": MODEL_PREFIX + router}


def render_usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def render_event(data: Mapping[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + encode(data) + b"\n\n"


KEEP_ALIVE_COMMENT = b": waiting for the panel\n\n"


class EventWriter(Protocol):
    """Renders one response as server-sent events."""

    def write(self, choices: Sequence[Mapping[str, Any]]) -> bytes:
        """The events of one chunk, given its choices as in a stream of chat completions."""

    def end(self, usage: Usage, details: Mapping[str, Any]) -> bytes:
        """The last events of a response that is complete."""

    def fail(self, error: ChatError) -> bytes:
        """The last events of a response that breaks off."""


class ChunkWriter:
    """The events of a chat completion: its chunks.

    last: the last chunk of a choice, held back. The object `bylot` comes with it: many clients
    cannot read a chunk without choices, unless they asked for usage.
    """

    def __init__(self, request: ChatRequest) -> None:
        self.include_usage = request.include_usage
        self.head = {**make_head(request.router), "object": "chat.completion.chunk"}
        self.last: Sequence[Mapping[str, Any]] = []

    def write(self, choices: Sequence[Mapping[str, Any]]) -> bytes:
        """One chunk, after one that was held back."""
        before = render_event({**self.head, "choices": self.last}) if self.last else b""
        if any(one.get("finish_reason") for one in choices):
            self.last = choices
            return before
        self.last = []
        return before + render_event({**self.head, "choices": choices})

    def end(self, usage: Usage, details: Mapping[str, Any]) -> bytes:
        """The last chunk with the decision, and the usage if the caller asked for it."""
        last = render_event({**self.head, "choices": self.last, "bylot": details})
        if self.include_usage:
            last += render_event({**self.head, "choices": [], "usage": render_usage(usage)})
        return last + b"data: [DONE]\n\n"

    def fail(self, error: ChatError) -> bytes:
        """The error in place of a chunk."""
        return render_event(error.body)


def iterate_chunks(choices: Sequence[Mapping[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Complete choices in chunks, as a model would have streamed them."""
    for choice in choices:
        index, message = choice["index"], choice["message"]
        for delta in iterate_deltas(message):
            yield [{"index": index, "delta": delta, "finish_reason": None}]
        last = {"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")}
        yield [{**last, "logprobs": choice["logprobs"]} if choice.get("logprobs") else last]


def iterate_deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A message in parts: the role, the text in pieces, everything else at once, calls last."""
    content = message.get("content")
    empty = {name: None for name, value in message.items() if value is None}
    role = message.get("role", "assistant")
    yield {**empty, "role": role, "content": "" if content else content}
    if isinstance(content, str):
        for start in range(0, len(content), CHUNK_CHARS):
            yield {"content": content[start : start + CHUNK_CHARS]}
    elif content:
        yield {"content": content}
    rest = {
        name: value
        for name, value in message.items()
        if name not in ("role", "content", "tool_calls") and value
    }
    if rest:
        yield rest
    if message.get("tool_calls"):
        yield {"tool_calls": [{"index": n, **one} for n, one in enumerate(message["tool_calls"])]}
