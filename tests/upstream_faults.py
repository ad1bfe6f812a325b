"""An upstream that fails in every way that real ones do, by a script, a mix or a rule.

with FaultUpstream(Fault.STATUS_500, Fault.NONE) as upstream: ...         # then NONE for ever
with FaultUpstream(mix={Fault.HANG: 0.1, Fault.NONE: 0.9}, seed=1) as upstream: ...
with FaultUpstream(choose=lambda body: FAULTS[body["model"]]) as upstream: ...
"""

import asyncio
import json
import random
import socket
import struct
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import Enum
from functools import cache
from itertools import chain, islice, repeat
from typing import Any

from aiohttp import web

from chat_replies import Body, encode_event, make_error
from upstreams import BROKEN, ReplayUpstream, make_json_response

HUGE_BYTES = 33_000_000
BOMB_BYTES = 256 * 1024 * 1024
NESTED_LISTS = 200_000
RESET_AFTER_S = 0.05  # a reset discards what the client has not read yet


class Fault(Enum):
    """What goes wrong with a request; a request that does not stream meets no fault of streams."""

    NONE = "answers as it should"
    HANG = "reads the request and never answers"
    SLOW = "answers after `slow_s` seconds"
    DRIP = "sends a byte of its body every tenth of a second, so that reading never times out"
    CLOSED = "closes the connection before any answer"
    REFUSED = "refuses connections: FaultUpstream(Fault.REFUSED) does not listen at all"
    STATUS_500 = "500 with an error object"
    STATUS_503 = "503 with an HTML page, as a proxy sends it"
    RATE_LIMITED = "429 with Retry-After in seconds"
    RATE_LIMITED_DATE = "429 with Retry-After as an HTTP date"
    UNAUTHORIZED = "401: the key of the gateway is wrong"
    BAD_REQUEST = "400: the model does not take a parameter"
    REDIRECT = "307 to another host, which must not get the key"
    RESET = "resets the connection in the middle of the body"
    CUT = "closes the connection in the middle of the body"
    GARBAGE = "200 and no JSON"
    EMPTY_BODY = "200 and nothing"
    ERROR_IN_200 = "200 with an error object"
    NO_CHOICES = "JSON without choices"
    EMPTY_CHOICES = "JSON with an empty list of choices"
    NULL_MESSAGE = "a choice whose message is null"
    ODD_USAGE = "a completion whose usage has texts and negative numbers"
    NOT_UTF8 = "JSON with bytes that are no UTF-8"
    DEEP_JSON = "JSON of 200,000 nested lists"
    WRONG_TYPE = "a completion that is called text/html"
    HUGE_BODY = "a completion of 33 MB"
    HUGE_CHUNKED = "the same without Content-Length"
    GZIP_BOMB = "256 MB in 256 KB of gzip, which the client may not have asked for"
    STREAM_RESET = "resets the connection in the middle of a stream"
    STREAM_CUT = "closes the connection in the middle of a stream"
    STREAM_NO_DONE = "a stream that ends without [DONE]"
    STREAM_NO_FINISH = "a stream that ends in the middle, in good order but without a finish_reason"
    STREAM_BAD_UTF8 = "a stream with bytes that are no UTF-8"
    STREAM_BAD_JSON = "a stream with a line that is no JSON"
    STREAM_ERROR = "a stream with an error object in the middle, at which it ends"
    STREAM_STALL = "a stream that stops after some chunks, with the connection open"
    STREAM_LONG_LINE = "a stream with a line of 33 MB"
    STREAM_ODD_FRAMES = "a valid stream with comments, CRLF, no space after `data:`, cut anywhere"

    @property
    def of_streams(self) -> bool:
        """Whether only a request that streams can meet it."""
        return self.name.startswith("STREAM_")


LARGE_FAULTS = (Fault.HUGE_BODY, Fault.HUGE_CHUNKED, Fault.GZIP_BOMB, Fault.STREAM_LONG_LINE)
"""They cost the upstream of the test more than the gateway; a few of each are enough."""


def make_fault_mix(share: float) -> dict[Fault, float]:
    """Probabilities of all faults, which this share of the requests meets."""
    weights = {one: 0.02 if one in LARGE_FAULTS else 1.0 for one in Fault}
    del weights[Fault.NONE], weights[Fault.REFUSED]
    total = sum(weights.values())
    faults = {one: share * weight / total for one, weight in weights.items()}
    return {Fault.NONE: 1.0 - share, **faults}


class FaultUpstream(ReplayUpstream):
    """A replay with a fault per chat completion; `applied` lists the faults that were met.

    Parameters
    ----------
    script
        Faults of the requests in their order; the last is repeated.
    mix, seed
        Probabilities of faults instead; the n-th request has the n-th fault of the seed.
    choose
        The fault by the body of the request instead.
    slow_s, retry_after_s
        Seconds of SLOW, and of Retry-After.
    options
        As for ReplayUpstream.
    """

    def __init__(
        self,
        *script: Fault,
        mix: Mapping[Fault, float] | None = None,
        seed: int = 0,
        choose: Callable[[Body], Fault] | None = None,
        slow_s: float = 2.0,
        retry_after_s: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.script, self.choose = list_faults(script, mix, seed), choose
        self.slow_s, self.retry_after_s = slow_s, retry_after_s
        self.applied, self.redirected = list[Fault](), list[dict[str, str]]()

    async def listen(self) -> None:
        """Open the port, unless connections are refused."""
        first = next(self.script)
        self.script = chain([first], self.script)
        await super().listen()
        if first is Fault.REFUSED:
            await self.site.stop()

    async def reply_to_chat(self, request: web.Request, body: Body) -> web.StreamResponse:
        """The next fault."""
        fault = next(self.script) if self.choose is None else self.choose(body)
        if fault.of_streams and not body.get("stream"):
            fault = Fault.NONE
        self.applied.append(fault)
        request[BROKEN] = fault is not Fault.NONE
        if fault in SENDERS:
            await self.wait(request, body["model"])
            return await SENDERS[fault](self, request, body)
        if fault.of_streams:
            await self.wait(request, body["model"])
            return await self.stream_fault(request, body, fault)
        if fault is Fault.SLOW:
            await asyncio.sleep(self.slow_s)
        return await super().reply_to_chat(request, body)

    async def stream_fault(
        self, request: web.Request, body: Body, fault: Fault
    ) -> web.StreamResponse:
        """A stream with a fault after its first half."""
        events = list(self.encode_chunks(body, self.complete(body)))
        half = len(events) // 2
        response = await self.open_stream(request)
        match fault:
            case Fault.STREAM_ODD_FRAMES:
                await write_slowly(response, reframe(events))
            case Fault.STREAM_NO_DONE:
                await write_all(response, events[:-1])
            case _:
                await write_all(response, events[:half])
                if fault in BREAKS:
                    await write_all(response, [BREAKS[fault]()])
                if fault is Fault.STREAM_ERROR:
                    half = len(events)
                if fault in (Fault.STREAM_RESET, Fault.STREAM_CUT):
                    await break_connection(request, reset=fault is Fault.STREAM_RESET)
                if fault is Fault.STREAM_STALL:
                    await wait_for_ever()
                rest = [events[-1]] if fault is Fault.STREAM_NO_FINISH else events[half:]
                await write_all(response, rest)
        await response.write_eof()
        return response

    async def refuse_path(self, request: web.Request) -> web.StreamResponse:
        """Keep the headers of a request that followed a redirect."""
        if request.path == "/elsewhere":
            self.redirected.append({name.lower(): one for name, one in request.headers.items()})
        return await super().refuse_path(request)

    def count_applied(self) -> Counter[Fault]:
        """How often each fault was met."""
        return Counter(self.applied)


def list_faults(
    script: Iterable[Fault], mix: Mapping[Fault, float] | None, seed: int
) -> Iterator[Fault]:
    """The faults of all requests."""
    if mix is not None:
        rng, names, weights = random.Random(seed), list(mix), list(mix.values())
        return (rng.choices(names, weights)[0] for _ in repeat(None))
    listed = list(script) or [Fault.NONE]
    return chain(listed, repeat(listed[-1]))


# Answers


Sender = Callable[[FaultUpstream, web.Request, Body], Awaitable[web.StreamResponse]]
SENDERS: dict[Fault, Sender] = {}


def send(fault: Fault) -> Callable[[Sender], Sender]:
    """Register what sends a fault."""

    def register(sender: Sender) -> Sender:
        SENDERS[fault] = sender
        return sender

    return register


def send_body(
    fault: Fault,
    make: Callable[[Body], Any],
    status: int = 200,
    content_type: str = "application/json",
) -> None:
    """Register a fault that is a body, made from the right completion."""

    async def send_made(
        upstream: FaultUpstream, request: web.Request, body: Body
    ) -> web.StreamResponse:
        made = make(upstream.complete(body))
        content = made if isinstance(made, bytes) else json.dumps(made).encode()
        return web.Response(body=content, status=status, content_type=content_type)

    SENDERS[fault] = send_made


def make_huge_body(completion: Body) -> Body:
    """A completion of 33 MB."""
    completion["choices"][0]["message"]["content"] = "x" * HUGE_BYTES
    return completion


OVERLOADED = make_error("The server had an error.", "server_error")
LIMITED = make_error("Rate limit reached.", "requests", "rate_limit_exceeded")
WRONG_KEY = make_error("Incorrect API key provided: sk-***.", code="invalid_api_key")
UNSUPPORTED = make_error("Unsupported parameter.", code="unsupported_parameter", param="stop")
PAGE = b"<html><body><h1>503 Service Unavailable</h1></body></html>"
ODD_USAGE = {"prompt_tokens": "many", "completion_tokens": -5, "total_tokens": None}

send_body(Fault.STATUS_500, lambda completion: OVERLOADED, 500)
send_body(Fault.STATUS_503, lambda completion: PAGE, 503, "text/html")
send_body(Fault.UNAUTHORIZED, lambda completion: WRONG_KEY, 401)
send_body(Fault.BAD_REQUEST, lambda completion: UNSUPPORTED, 400)
send_body(Fault.GARBAGE, lambda completion: b"It's not JSON {]")
send_body(Fault.EMPTY_BODY, lambda completion: b"")
send_body(Fault.ERROR_IN_200, lambda completion: OVERLOADED)
send_body(Fault.NO_CHOICES, lambda completion: {"id": "1", "object": "chat.completion"})
send_body(Fault.EMPTY_CHOICES, lambda completion: {**completion, "choices": []})
send_body(
    Fault.NULL_MESSAGE,
    lambda completion: {**completion, "choices": [{"index": 0, "message": None}]},
)
send_body(Fault.ODD_USAGE, lambda completion: {**completion, "usage": ODD_USAGE})
send_body(Fault.NOT_UTF8, lambda completion: b'{"choices": "\xff\xfe\xc3"}')
send_body(Fault.DEEP_JSON, lambda completion: b"[" * NESTED_LISTS + b"]" * NESTED_LISTS)
send_body(Fault.WRONG_TYPE, lambda completion: completion, content_type="text/html")
send_body(Fault.HUGE_BODY, make_huge_body)


@send(Fault.HANG)
async def hang(upstream: FaultUpstream, request: web.Request, body: Body) -> web.StreamResponse:
    request[BROKEN] = False  # a client that gives up is counted
    return await wait_for_ever()


@send(Fault.RATE_LIMITED)
async def send_seconds(
    upstream: FaultUpstream, request: web.Request, body: Body
) -> web.StreamResponse:
    return limit_rate(str(upstream.retry_after_s))


@send(Fault.RATE_LIMITED_DATE)
async def send_date(
    upstream: FaultUpstream, request: web.Request, body: Body
) -> web.StreamResponse:
    then = datetime.now(UTC) + timedelta(seconds=upstream.retry_after_s)
    return limit_rate(format_datetime(then, usegmt=True))


def limit_rate(retry_after: str) -> web.Response:
    response = make_json_response(LIMITED, 429)
    response.headers["retry-after"] = retry_after
    return response


@send(Fault.REDIRECT)
async def redirect(upstream: FaultUpstream, request: web.Request, body: Body) -> web.StreamResponse:
    place = f"http://localhost:{upstream.port}/elsewhere"
    return web.Response(status=307, headers={"location": place})


@send(Fault.CLOSED)
async def close(upstream: FaultUpstream, request: web.Request, body: Body) -> web.StreamResponse:
    return await break_connection(request, reset=False)


@send(Fault.RESET)
async def reset(upstream: FaultUpstream, request: web.Request, body: Body) -> web.StreamResponse:
    await write_half(upstream, request, body)
    return await break_connection(request, reset=True)


@send(Fault.CUT)
async def cut(upstream: FaultUpstream, request: web.Request, body: Body) -> web.StreamResponse:
    await write_half(upstream, request, body)
    return await break_connection(request, reset=False)


async def write_half(upstream: FaultUpstream, request: web.Request, body: Body) -> None:
    content = json.dumps(upstream.complete(body)).encode()
    response = await open_body(request, len(content))
    await response.write(content[: len(content) // 2])


async def open_body(request: web.Request, length: int | None) -> web.StreamResponse:
    """The head of a response of JSON."""
    response = web.StreamResponse(headers={"content-type": "application/json"})
    response.content_length = length
    await response.prepare(request)
    return response


@send(Fault.DRIP)
async def drip(upstream: FaultUpstream, request: web.Request, body: Body) -> web.StreamResponse:
    content = json.dumps(upstream.complete(body)).encode()
    response = await open_body(request, len(content))
    request[BROKEN] = False
    for byte in content:
        await response.write(bytes([byte]))
        await asyncio.sleep(0.1)
    return response


@send(Fault.HUGE_CHUNKED)
async def send_chunked(
    upstream: FaultUpstream, request: web.Request, body: Body
) -> web.StreamResponse:
    response = await open_body(request, None)
    content = json.dumps(make_huge_body(upstream.complete(body))).encode()
    for at in range(0, len(content), 1 << 16):
        await response.write(content[at : at + (1 << 16)])
    await response.write_eof()
    return response


@send(Fault.GZIP_BOMB)
async def send_bomb(
    upstream: FaultUpstream, request: web.Request, body: Body
) -> web.StreamResponse:
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    return web.Response(body=make_bomb(), headers=headers)


@cache
def make_bomb() -> bytes:
    """256 MB of JSON, compressed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    block = b"x" * (1 << 20)
    parts = [packer.compress(b'{"choices": "')]
    parts += [packer.compress(block) for _ in range(BOMB_BYTES >> 20)]
    return b"".join([*parts, packer.compress(b'"}'), packer.flush()])


# Streams


BREAKS: dict[Fault, Callable[[], bytes]] = {
    Fault.STREAM_BAD_UTF8: lambda: b'data: {"choices": "\xff\xfe\xc3"}\n\n',
    Fault.STREAM_BAD_JSON: lambda: b'data: {"choices": [{"delta"\n\n',
    Fault.STREAM_ERROR: lambda: encode_event(OVERLOADED),
    Fault.STREAM_LONG_LINE: lambda: b"data: " + b"x" * HUGE_BYTES + b"\n\n",
}
"""What is sent in the middle of a stream."""


async def write_all(response: web.StreamResponse, events: Iterable[bytes]) -> None:
    for event in events:
        await response.write(event)


async def write_slowly(response: web.StreamResponse, content: bytes) -> None:
    """Seven bytes at a time, so that lines and characters arrive in parts."""
    rest = iter(content)
    while piece := bytes(islice(rest, 7)):
        await response.write(piece)
        await asyncio.sleep(0)


def reframe(events: Iterable[bytes]) -> bytes:
    """The same events with comments, CRLF and no space after the colon."""
    framed = [b": waiting\r\n\r\n"]
    for event in events:
        framed += [
            b": still waiting\r\n",
            event.replace(b"data: ", b"data:").replace(b"\n", b"\r\n"),
        ]
    return b"".join(framed)


# Connections


async def break_connection(request: web.Request, reset: bool) -> web.StreamResponse:
    """Close the connection after what was sent has arrived; reset: with a TCP reset."""
    await asyncio.sleep(RESET_AFTER_S)
    transport = request.transport
    if transport is not None:
        if reset:
            linger = struct.pack("ii", 1, 0)
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
        transport.abort()
    return await wait_for_ever()


async def wait_for_ever() -> web.StreamResponse:
    """Until the connection is closed, which cancels the handler."""
    await asyncio.Event().wait()
    raise AssertionError
