"""Load on a server of ours: many connections, each with one request in the air at a time.

Requests are written and answers read by hand: a client library would take more of the machine than
the server that is being measured.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

import numpy as np


class LoadResult(NamedTuple):
    """What some connections came to."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    errors: int  # answers that were not as expected


def format_post(path: str, body: bytes) -> bytes:
    """A request over a connection that stays."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def drive_connections(
    port: int,
    connections: int,
    following: Callable[[], bytes | None],
    heard: Callable[[bytes], bool],
) -> LoadResult:
    """Send what `following` gives, from as many connections, until it gives None; `heard` says
    whether an answer (its status line and body) is as expected.
    """
    took: list[float] = []
    errors = 0

    async def one() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (request := following()) is not None:
            start = time.perf_counter()
            writer.write(request)
            answer = await read_answer(reader)
            took.append(time.perf_counter() - start)
            errors += not heard(answer)
        writer.close()
        await writer.wait_closed()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    seconds = time.perf_counter() - began
    p50, p99 = 1e3 * np.percentile(took, [50, 99])
    return LoadResult(len(took), seconds, float(p50), float(p99), errors)


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """The status line and the body of one answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    status, _, fields = head.partition(b"\r\n")
    for line in fields.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return status + b"\n" + await reader.readexactly(int(line[15:]))
    return status + b"\n"


AsgiMessage = MutableMapping[str, Any]
HELLO_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"5")],
}
HELLO_BODY = {"type": "http.response.body", "body": b"hello"}


async def hello_app(
    scope: AsgiMessage,
    receive: Callable[[], Awaitable[AsgiMessage]],
    send: Callable[[AsgiMessage], Awaitable[None]],
) -> None:
    """Read the request, say hello."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send(HELLO_START)
    await send(HELLO_BODY)
