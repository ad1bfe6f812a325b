"""What models send: bodies of bounded size, server-sent events, choices, usage, Retry-After.

Connections pass it on in small parts, with pauses for other work. A transport may read 256 kB at
once. aiohttp parses all of it in one call, which takes 10 ms if it consists of tiny messages or
chunks, and every other request waits meanwhile. An event loop that goes on at once with the next
part would hardly leave the interpreter's lock to other threads.

The keys of an endpoint are hidden in what it sends: errors that quote them, and answers. An
endpoint that wants to give its key away can always do so. This is about those that quote what they
were sent, in whatever encoding.
"""

import asyncio
import re
import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
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


PART_BYTES = 16_384  # takes aiohttp at most 1 ms
PAUSE_S = 0.001  # between two parts of one connection, which may send 8 to 16 MB/s


class PacedConnector(aiohttp.TCPConnector):
    """A pool of connections whose data is passed on in small parts."""

    async def connect(self, *args: Any, **kwargs: Any) -> Any:
        """Return a connection of the pool, or a new one, on which nothing was sent unasked."""
        while True:
            connection = await super().connect(*args, **kwargs)
            transport: Any = connection.transport
            protocol: Any = connection.protocol
            is_new = not isinstance(transport, PacedTransport)
            has_data = protocol is None or protocol.should_close
            if not has_data and (is_new or not transport.parts):
                if is_new:
                    PacedTransport(transport, protocol)
                return connection
            connection.close()
            if is_new:
                raise aiohttp.ServerDisconnectedError


class PacedTransport(asyncio.Protocol):
    """Stands between a transport and a protocol, and is the transport that the protocol sees.

    parts:     data that was received and is not yet passed on
    is_paused: the protocol does not want data now
    turn:      the call that passes on the next part, if there is one
    end:       why the connection has ended, which is passed on after all parts
    """

    def __init__(self, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        self.transport = transport
        self.protocol = protocol
        self.parts: deque[bytes] = deque()
        self.is_paused = False
        self.turn: asyncio.TimerHandle | None = None
        self.end: tuple[Exception | None] | None = None  # the first None: closed in order
        transport.set_protocol(self)
        protocol.connection_made(self)  # type: ignore[arg-type]  # the rest is of `transport`

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def pause_reading(self) -> None:
        """Pass on nothing until `resume_reading` is called."""
        self.is_paused = True
        self.go_on()

    def resume_reading(self) -> None:
        """Pass on data again, after a pause."""
        self.is_paused = False
        self.go_on()

    def is_reading(self) -> bool:
        return not self.is_paused

    def close(self) -> None:
        """Close the connection, and drop what was not passed on."""
        self.parts.clear()
        self.transport.close()
        self.go_on()

    def abort(self) -> None:
        """Close the connection at once, and drop what was not passed on."""
        self.parts.clear()
        self.transport.abort()
        self.go_on()

    def data_received(self, data: bytes) -> None:
        """Pass on the first part now, the others one after the other."""
        self.parts.extend(data[n : n + PART_BYTES] for n in range(0, len(data), PART_BYTES))
        if self.turn is None:
            self.pass_on()

    def pass_on(self) -> None:
        """Pass on a part, or the end of the connection after the last one."""
        self.turn = None
        if self.parts:
            if not self.is_paused:
                self.protocol.data_received(self.parts.popleft())
        elif self.end is not None:
            self.protocol.connection_lost(*self.end)
            self.end = None
        self.go_on()

    def go_on(self) -> None:
        """Plan the next turn if something waits for it, and read more only if nothing does."""
        waits = bool(self.parts) and not self.is_paused
        if self.turn is None and (waits or (self.end is not None and not self.parts)):
            self.turn = asyncio.get_running_loop().call_later(PAUSE_S, self.pass_on)
        if self.is_open:
            if self.parts or self.is_paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    @property
    def is_open(self) -> bool:
        return self.end is None and not self.transport.is_closing()

    def eof_received(self) -> bool | None:
        return self.protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on the end after all parts."""
        self.end = (exc,)
        self.go_on()

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()


REDACTED = "[redacted]"
MIN_SECRET_CHARS = 6  # shorter ones are placeholders, such as `none`
MIN_KEY_CHARS = 16  # in an answer, where a shorter one may be a word
KEY_HEADER = re.compile("auth|key|token|secret|cookie")
SCHEME = re.compile("^(bearer|basic|token) +", re.IGNORECASE)


class Redactor:
    """Hides what an endpoint is sent and no caller may read.

    pattern: values of headers, and the URL, in all encodings; None: there are none
    keys:    values of headers that are keys, as they are
    """

    def __init__(self, headers: Mapping[str, str], base: str) -> None:
        values = {name: SCHEME.sub("", value) for name, value in headers.items()}
        values.pop("content-type", None)
        parts = [part for name in values for part in list_secrets(headers[name])]
        secrets = [text for text in (*parts, base) if len(text) >= MIN_SECRET_CHARS]
        encodings = [encoding for secret in secrets for encoding in list_encodings(secret)]
        self.pattern = re.compile("|".join(encodings), re.IGNORECASE) if encodings else None
        self.keys = [
            value.encode()
            for name, value in values.items()
            if KEY_HEADER.search(name) and len(value) >= MIN_KEY_CHARS
        ]

    def hide(self, text: str) -> str:
        """Return a text of an error without secrets.

        >>> Redactor({"authorization": "Bearer sk-1234567"}, "").hide("wrong key %73k-1234567!")
        'wrong key [redacted]!'
        """
        return text if self.pattern is None else self.pattern.sub(REDACTED, text)

    def hide_keys(self, content: bytes) -> bytes:
        """Return an answer without keys. Encodings are not looked for, as this reads every byte."""
        for key in self.keys:
            content = content.replace(key, REDACTED.encode())
        return content


def list_secrets(value: str) -> Iterator[str]:
    """Yield a header value without its scheme, the parts of a cookie, and a password.

    >>> list(list_secrets("id=s3cret-1; x=s3cret-2"))
    ['id=s3cret-1; x=s3cret-2', 's3cret-1', 's3cret-2']
    >>> list(list_secrets("Basic YW5uOnMzY3JldA=="))
    ['YW5uOnMzY3JldA==', 'ann:s3cret', 's3cret']
    """
    plain = SCHEME.sub("", value)
    yield plain
    yield from re.findall("=([^=;]{6,})(?:;|$)", plain)
    if value[:6].lower() == "basic ":
        with suppress(ValueError):  # it is not Base64 of a text
            login = b64decode(plain, validate=True).decode()
            yield login
            yield login.partition(":")[2]


def list_encodings(secret: str) -> Iterator[str]:
    """Yield patterns of a secret: as it is or with some of its characters escaped, in hexadecimal,
    and in Base64 from each of the three places in a group of bytes at which it may begin.
    """
    yield "".join(map(escape_chars, re.findall(r"\\+|[^\\]", secret)))
    content = secret.encode()
    yield content.hex()
    for before in range(3):
        size = before + len(content)
        text = b64encode(bytes(before) + content).decode()
        own = text[-(-before * 8 // 6) : size * 8 // 6]  # characters without bits of neighbours
        yield re.escape(own).replace(r"\+", "[+-]").replace("/", "[/_]")


def escape_chars(chars: str) -> str:
    """Return the pattern of a character: as it is, or as an escape of JSON, of a URL or of HTML.

    Repetitions are bounded, and a run of backslashes is one of them, so that a search takes linear
    time.
    """
    if chars.startswith("\\"):
        return rf"(?:\\{{{len(chars)},{4 * len(chars)}}}|(?:%(?:25){{0,2}}5c){{{len(chars)}}})"
    code = ord(chars)
    shapes = (
        rf"\\{{0,4}}{re.escape(chars)}",
        rf"\\{{1,4}}u00{code:02x}",
        rf"%(?:25){{0,2}}{code:02x}",
        rf"&#(?:0{{0,4}}{code}|x0{{0,4}}{code:x});",
    )
    return f"(?:{'|'.join(shapes)})"
