"""A connection that does not wait for ever, and refuses in the shape of all refusals."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from bylot.server.endpoint import error_response
from bylot.server.http_errors import ApiError

MAX_HEAD_BYTES = 65_536  # bytes of a request line with its headers
MAX_FRAMING_BYTES = (
    16 * MAX_HEAD_BYTES
)  # bytes that a body in chunks may need beside its own: their sizes, trailers


class CorkedTransport:
    """A transport that sends the head of an answer together with what follows: uvicorn writes them
    one by one, and each write is a call of the system, of 5 us or more.
    """

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.head = b""
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        """Send, or keep for a moment."""
        if self.head:
            self.transport.write(self.head + data)
            self.head = b""
        elif data.endswith(b"\r\n\r\n") and not data.startswith(b"HTTP/1.1 1"):
            self.head = data
        else:
            self.transport.write(data)

    def flush(self) -> None:
        """Send what was kept."""
        if self.head:
            self.write(b"")

    def close(self) -> None:
        """Hang up, once all is sent."""
        self.flush()
        self.transport.close()


class HttpConnection(HttpToolsProtocol):
    """uvicorn's, with an eye on how long the other side has owed us bytes.

    owing: since when a first byte, the rest of a head or the rest of a body is awaited; None while
    it is our turn. Between requests uvicorn's own timer applies. `server.Server` looks at it.
    """

    def connection_made(self, transport: Any) -> None:
        """Somebody is there."""
        super().connection_made(transport)
        self.transport = self.line = CorkedTransport(transport)  # type: ignore[assignment]
        self.owing: float | None = self.loop.time()
        self.head = 0  # bytes of an unfinished head; -1: it is finished
        self.framing = 0  # bytes since the head that were no body

    def data_received(self, data: bytes) -> None:
        """Some bytes."""
        if self.head >= 0:
            self.head += len(data)
        else:
            self.framing += len(data)
        super().data_received(data)
        if self.head > MAX_HEAD_BYTES:
            self.refuse(
                ApiError(431, "head_too_large", f"headers are larger than {MAX_HEAD_BYTES} bytes")
            )
        elif self.framing > MAX_FRAMING_BYTES:
            what = f"chunks and trailers take more than {MAX_FRAMING_BYTES} bytes beside the body"
            self.refuse(ApiError(431, "head_too_large", what))
        elif self.owing is None and (self.cycle is None or self.cycle.response_complete):
            self.owing = self.loop.time()  # bytes of no request, which end uvicorn's own patience

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head; those that follow a body are not looked at."""
        if self.head >= 0:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self.framing -= len(body)
        super().on_body(body)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self.owing = self.loop.time()

    def on_headers_complete(self) -> None:
        """All of a head."""
        super().on_headers_complete()
        self.owing, self.head = self.loop.time(), -1

    def on_message_complete(self) -> None:
        """All of a request."""
        super().on_message_complete()
        self.owing, self.head, self.framing = None, 0, 0

    def on_response_complete(self) -> None:
        """All of an answer, which may have had no body."""
        self.line.flush()
        super().on_response_complete()

    def expire(self, now: float, body_wait: float, idle: float) -> None:
        """Close a connection that owes us bytes for too long."""
        if self.owing is None or now - self.owing <= (body_wait if self.head < 0 else idle):
            return
        if self.head == 0:  # an answer to nothing would be taken for that to a later request
            self.owing = None
            self.transport.close()
            return
        what = "body" if self.head < 0 else "head"
        message = f"the {what} of the request did not come in time; send it at once"
        self.refuse(ApiError(408, "too_slow", message))

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP."""
        self.refuse(ApiError(400, "malformed", msg))

    def refuse(self, refusal: ApiError) -> None:
        """Say why, if nothing else was said, and hang up."""
        self.owing = None
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            status, body, headers = error_response(refusal)
            length = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
            self.transport.write(STATUS_LINE[status] + lines + length + body)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever waits for the body, waits no longer
            self.cycle.message_event.set()
        self.transport.close()
