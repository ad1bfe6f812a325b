"""Models that send without end, or more than any answer has: raw HTTP on a loopback port.

The name of a model is what it sends, such as `informational` or `informational-21`: without end, or
so many before an ordinary answer. As a program, it prints its port and serves until its input ends.
"""

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from functools import cache
from itertools import count, islice
from typing import Any

PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
CALLS_PER_EVENT = 500
BODY_BYTES = 16_000_000
TEXT = "Hello, [you], {there}"


def make_response(message: dict[str, Any], **more: Any) -> bytes:
    """An ordinary completion as a whole response."""
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    content = json.dumps({"choices": [choice], **more}, separators=(",", ":")).encode()
    head = f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    return b"HTTP/1.1 200 OK\r\n" + head.encode() + content


def make_event(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def flood_informational(most: int | None) -> Iterator[bytes]:
    """Informational responses, then an answer."""
    if most is None:
        while True:
            yield PROCESSING * 1_000
    yield PROCESSING * most + make_response({"content": TEXT})


def flood_calls(most: int | None) -> Iterator[bytes]:
    """A stream of tool calls with ever new indices."""
    yield STREAM_HEAD
    indices = count() if most is None else iter(range(most))
    while numbers := list(islice(indices, CALLS_PER_EVENT)):
        function = {"name": "f", "arguments": "{}"}
        calls = [{"index": n, "id": f"call_{n}", "function": function} for n in numbers]
        yield make_event({"tool_calls": calls})
    yield make_event({}, "tool_calls") + b"data: [DONE]\n\n"


def flood_members(most: int | None) -> Iterator[bytes]:
    """A body of so many small objects, by default of 16 MB."""
    yield make_members((BODY_BYTES - 200) // 3 if most is None else most)


@cache  # it takes a second
def make_members(size: int) -> bytes:
    return make_response({"content": TEXT}, x=[{}] * size)


def flood_events(most: int | None) -> Iterator[bytes]:
    """A stream of events of so many small objects each."""
    yield STREAM_HEAD
    objects = json.dumps({"choices": [], "x": [{}] * (4_900 if most is None else most)}).encode()
    while most is None:
        yield b"data: " + objects + b"\n\n"
    yield b"data: " + objects + b"\n\n" + make_event({"content": TEXT}, "stop")
    yield b"data: [DONE]\n\n"


def flood_text(most: int | None) -> Iterator[bytes]:
    """A stream of a long text, 1,000 characters at a time."""
    yield STREAM_HEAD
    for _ in range(most or 100_000):
        yield make_event({"content": "[" * 1_000})
    yield make_event({}, "stop") + b"data: [DONE]\n\n"


def flood_lines(most: int | None) -> Iterator[bytes]:
    """A stream of chunks without content."""
    yield STREAM_HEAD
    for _ in range(most or 10_000):
        yield b'data: {"choices":[]}\n\n' * 1_000


FLOODS = {
    "informational": flood_informational,
    "calls": flood_calls,
    "members": flood_members,
    "events": flood_events,
    "text": flood_text,
    "lines": flood_lines,
}


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection: one request, then the flood of its model."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        model = json.loads(await reader.readexactly(size))["model"]
        name, _, most = model.partition("-")
        for part in FLOODS[name](int(most) if most else None):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
    writer.close()


async def listen() -> asyncio.Server:
    return await asyncio.start_server(answer, "127.0.0.1", 0)


def find_port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


@contextlib.contextmanager
def flooding_model() -> Iterator[str]:
    """The address of the models, in a thread of this process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(20)
    try:
        yield f"http://127.0.0.1:{find_port(server)}/v1"
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def serve() -> None:
    """Print the port, and serve until the input ends."""
    async with await listen() as server:
        print(find_port(server), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    if hasattr(os, "SCHED_IDLE"):  # a model is on another machine: it takes no time from the server
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    asyncio.run(serve())
