"""What models send: bodies of bounded size, server-sent events, choices, usage, Retry-After."""

import time
from collections.abc import AsyncIterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import msgspec

from bylot.gateway.answers import Usage, join_text

MAX_ANSWER_BYTES = 16_000_000
MAX_STREAM_BYTES = 64_000_000  # every chunk repeats names that a whole answer has once
MAX_EVENT_BYTES = 4_000_000  # of one server-sent event
MAX_ERROR_BYTES = 20_000  # of an error response whose text may be passed on
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_RETRY_AFTER_S = 86_400.0
REASONING_FIELDS = ("reasoning_content", "reasoning")
MAX_TOKENS_OF_CALL = 10_000_000  # more is no count of tokens

decode = msgspec.json.Decoder().decode


async def read_bounded(response: aiohttp.ClientResponse) -> bytes | None:
    """The body of a response; None if it is too large."""
    if (response.content_length or 0) > MAX_ANSWER_BYTES:
        return None
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


async def read_events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of server-sent events; comments and other fields are left out.

    Lines end with LF, CR LF or CR; an event ends with an empty line, the last one with the stream.
    """
    lines: list[bytes] = []  # data of the current event
    parts: list[bytes] = []  # of the current line
    size = total = 0  # bytes of the current event, and of all
    ended_by_cr = False  # so that a LF at the start of the next part belongs to it
    async for part in response.content.iter_any():
        total, size = total + len(part), size + len(part)
        if size > MAX_EVENT_BYTES or total > MAX_STREAM_BYTES:
            raise ValueError("a stream is too large")
        if ended_by_cr and part.startswith(b"\n"):
            part = part[1:]
        ended_by_cr = part.endswith(b"\r") or (ended_by_cr and not part)
        *ends, rest = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ends:
            line = b"".join([*parts, end]).removeprefix(BYTE_ORDER_MARK)
            parts = []
            if line.startswith(b"data:"):
                lines.append(line[5:].strip())
            elif not line and lines:
                yield b"\n".join(lines)
                lines, size = [], len(rest)
        if rest:
            parts.append(rest)
    last = b"".join(parts)
    lines += [last[5:].strip()] if last.startswith(b"data:") else []
    if lines:
        yield b"\n".join(lines)


def decode_json(content: bytes) -> Any:
    """A JSON document; None if it is none."""
    try:
        return decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def find_choice(body: Any) -> Mapping[str, Any] | None:
    """The first choice of a completion, None if it is none."""
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return None
    message = choice["message"]
    calls = message.get("tool_calls")
    if calls and not (isinstance(calls, list) and all(isinstance(one, dict) for one in calls)):
        return None
    usable = ("content", "tool_calls", "refusal", "function_call", "audio")
    return choice if any(message.get(name) is not None for name in usable) else None


def count_chars(message: Mapping[str, Any]) -> int:
    """Characters of a message: text, reasoning and tool calls.

    >>> count_chars({"content": None, "tool_calls": [{"function": {"arguments": "{}"}}]})
    2
    """
    texts = [join_text(message.get(name)) for name in ("content", *REASONING_FIELDS)]
    functions = [one.get("function") for one in message.get("tool_calls") or ()]
    texts += [str(one.get("arguments") or "") for one in functions if isinstance(one, dict)]
    return sum(map(len, texts))


def sum_tokens(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens


def read_usage(data: Any) -> Usage | None:
    """Reported tokens; None if they are missing or make no sense."""
    if not isinstance(data, dict):
        return None
    prompt, completion = data.get("prompt_tokens"), data.get("completion_tokens")
    total = data.get("total_tokens")
    if type(prompt) is not int:
        return None
    if completion is None:
        completion = total - prompt if type(total) is int else 0
    if type(completion) is not int or min(prompt, completion) < 0:
        return None
    return Usage(prompt, completion) if prompt + completion <= MAX_TOKENS_OF_CALL else None


def read_retry_after(text: str | None) -> float | None:
    """Seconds of a Retry-After header, which may be a date.

    >>> read_retry_after("2"), read_retry_after("soon"), read_retry_after(None)
    (2.0, None, None)
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return min(max(0.0, seconds), MAX_RETRY_AFTER_S) if seconds == seconds else None
