"""What models send: bodies of bounded size, server-sent events, choices, usage, Retry-After."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any

import aiohttp
import msgspec

from bylot.gateway.answers import Usage, join_text
from bylot.gateway.chat import count_separators

MAX_INFORMATIONAL_RESPONSES = 20  # such as 102 Processing, before the response itself
MAX_ANSWER_BYTES = 16_000_000
MAX_ANSWER_VALUES = 500_000  # counted by separators; decoding them takes up to 0.1 s
MAX_STREAM_BYTES = 64_000_000  # every chunk repeats names that a whole answer has once
MAX_EVENT_BYTES = 4_000_000  # of one server-sent event
MAX_ERROR_BYTES = 20_000  # of an error response whose text may be passed on
MAX_EVENT_VALUES = 10_000
MAX_TOOL_CALLS = 1_000  # of one answer
TURN_BYTES = 16_000  # of a stream, after which other tasks have a turn
LINE_BYTES = 64  # for which the shortest line counts, by the time it takes
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_RETRY_AFTER_S = 86_400.0
REASONING_FIELDS = ("reasoning_content", "reasoning")
MAX_TOKENS_OF_CALL = 10_000_000  # more is no count of tokens

decode = msgspec.json.Decoder().decode


class BoundExceeded(aiohttp.ClientError):
    """A model sends more than an answer has; the text is the reason of its failure."""


class ModelResponse(aiohttp.ClientResponse):
    """A response after a bounded number of informational ones.

    aiohttp skips any number of them without a pause. It has no bound and no hook for them, so that
    the messages which `start` reads from the connection are counted here.
    """

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Read up to the head of the response."""
        protocol = connection.protocol
        read = protocol.read
        numbers = count()

        async def read_message() -> Any:
            if next(numbers) > MAX_INFORMATIONAL_RESPONSES:
                raise BoundExceeded("too_many_responses")
            return await read()

        protocol.read = read_message
        try:
            return await super().start(connection)
        finally:
            del protocol.read


async def read_bounded(response: aiohttp.ClientResponse) -> bytes | None:
    """The body of a response; None if it is too large, or has too many values."""
    if (response.content_length or 0) > MAX_ANSWER_BYTES:
        return None
    parts, size, values = [], 0, 0
    async for part in response.content.iter_any():
        size += len(part)
        values += count_separators(part)
        if size > MAX_ANSWER_BYTES or values > MAX_ANSWER_VALUES:
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
    load = 0  # since other tasks had a turn
    async for part in response.content.iter_any():
        total, size = total + len(part), size + len(part)
        if size > MAX_EVENT_BYTES or total > MAX_STREAM_BYTES:
            raise BoundExceeded("too_large")
        if ended_by_cr and part.startswith(b"\n"):
            part = part[1:]
        ended_by_cr = part.endswith(b"\r") or (ended_by_cr and not part)
        *ends, rest = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ends:
            load += len(end) + LINE_BYTES
            if load > TURN_BYTES:
                await asyncio.sleep(0)
                load = 0
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
