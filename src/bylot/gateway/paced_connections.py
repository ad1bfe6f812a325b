"""Connections to models that pass data on in small parts, with pauses for other work.

A transport may read 256 kB at once. aiohttp parses all of it in one call, which takes 10 ms if it
consists of tiny messages or chunks, and every other request waits meanwhile. An event loop that
goes on at once with the next part would hardly leave the interpreter's lock to other threads.
"""

import asyncio
from collections import deque
from typing import Any

import aiohttp

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
