"""Connections: uvicorn's HTTP protocol with our timeouts, size limits and error responses, and a
direct path for requests that are one command.

This is the only module that uses uvicorn's private classes. pyproject.toml therefore has an upper
bound on uvicorn, and tests/test_uvicorn_protocol.py names the versions that were tested.
"""

import functools
import time
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from bylot.eventlog.commands import Command
from bylot.server.endpoint import (
    Endpoint,
    HttpResponse,
    RawHeaderMap,
    error_response,
)
from bylot.server.http_errors import ApiError
from bylot.server.request_parsing import MAX_LENGTH_DIGITS, check_duplicate_headers

MAX_HEAD_BYTES = 65_536  # request line and headers
MAX_FRAMING_BYTES = 16 * MAX_HEAD_BYTES  # chunk sizes and trailers of a body
MAX_DIRECT_BYTES = HIGH_WATER_LIMIT  # of a body; after more, uvicorn waits until it is consumed
CLOSE_LINE = b"connection: close\r\n"


class CorkedTransport:
    """Sends the head of a response together with its body, in one system call.

    uvicorn writes them separately. One write instead of two saves 14 of 63 microseconds of CPU per
    request of a minimal application.
    """

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.head = b""
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        """Send data, but hold back the head of a response until its body follows.

        Nothing is sent to a client that is gone: uvicorn knows that of its last request only.
        """
        if self.is_closing():
            self.head = b""
        elif self.head:
            self.transport.write(self.head + data)
            self.head = b""
        elif data.endswith(b"\r\n\r\n") and not data.startswith(b"HTTP/1.1 1"):
            self.head = data
        else:
            self.transport.write(data)

    def flush(self) -> None:
        """Send a head that was held back."""
        if self.head:
            self.write(b"")

    def close(self) -> None:
        """Flush, then close the connection."""
        self.flush()
        self.transport.close()


@functools.lru_cache(32)  # most responses of a second have the same
def format_header_lines(*headers: tuple[bytes, bytes]) -> bytes:
    """Headers as they are sent."""
    return b"".join([b"%s: %s\r\n" % pair for pair in headers])


class NoEvent:
    """An event that nobody waits for."""

    def set(self) -> None:
        """Do nothing."""


class CommandExchange:
    """A request that is one command, and its response: served without ASGI and without a task.

    That takes less than half of the event loop's time for a decision. To uvicorn this is the cycle
    and the task of the request; to the writer, the future of the results of its command.
    """

    __slots__ = (
        *("connection", "endpoint", "target", "headers", "keep_alive", "started", "command"),
        *("body", "more_body", "disconnected", "response_started", "response_complete"),
    )
    message_event = NoEvent()  # uvicorn sets it for the task that reads the body

    def __init__(
        self, connection: "HttpConnection", endpoint: Endpoint, target: str, headers: RawHeaderMap
    ) -> None:
        self.connection, self.endpoint = connection, endpoint
        self.target, self.headers = target, headers
        self.keep_alive = connection.parser.should_keep_alive()
        self.started = time.perf_counter()
        self.command: Command  # set by `run`
        self.body, self.more_body = b"", True
        self.disconnected = self.response_started = self.response_complete = False
        connection.tasks.add(self)  # type: ignore[arg-type]

    def run(self) -> None:
        """The request is complete: give its command to the writer.

        An error is sent later, after the requests that came with this one are queued, and reading
        has stopped: whoever sends wrong requests one after the other must not keep the event loop.
        """
        endpoint, body = self.endpoint, self.body
        self.body = b""  # the connection holds this object until its next request
        try:
            if len(self.headers) < len(self.connection.headers):
                check_duplicate_headers(self.connection.headers)
            self.command = endpoint.make_command(self.headers, body, self.target)
            endpoint.state.writer.submit(self.command, self)
        except Exception as error:
            self.connection.loop.call_soon(self.respond, endpoint.respond_to_error(error))

    def done(self) -> bool:
        """Whether the request was answered."""
        return self.response_complete

    @property
    def awaits_result(self) -> bool:
        """Whether the request is complete, and its response will come."""
        return not (self.more_body or self.response_complete)

    def set_result(self, results: list[Any]) -> None:
        """The command was executed."""
        try:
            response = self.endpoint.respond_to_result(self.command, results[0])
        except Exception as error:
            response = self.endpoint.respond_to_error(error)
        self.respond(response)

    def set_exception(self, error: Exception) -> None:
        """The command was not executed, or nobody knows."""
        self.respond(self.endpoint.respond_to_error(error))

    def cancel(self, msg: str = "") -> None:
        """The server stops, and has waited long enough. uvicorn calls this for all its tasks, and
        none may be removed meanwhile.
        """
        self.connection.loop.call_soon(self.respond, self.endpoint.respond_to_stop())

    def respond(self, response: HttpResponse) -> None:
        """Send the response, unless there was one or the client is gone. The writer logs an
        error of this, and goes on with the next request.
        """
        if self.response_complete:
            return
        self.response_started = self.response_complete = True
        connection, status = self.connection, response.status
        connection.tasks.discard(self)
        if not (self.disconnected or connection.transport.is_closing()):
            connection.send_response(response, keep_alive=self.keep_alive)
            connection.on_response_complete()
        self.endpoint.record(self.target, status, time.perf_counter() - self.started)


class HttpConnection(HttpToolsProtocol):
    """A connection that knows since when it has been waiting for the client.

    waiting_since: when the wait for the next request, the rest of its head or of its body began;
    None while the server is to act. `HttpServer` calls `expire` once a second.
    """

    cycle: RequestResponseCycle | CommandExchange  # type: ignore[assignment]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.transport = self.corked = CorkedTransport(transport)  # type: ignore[assignment]
        self.exchange: CommandExchange | None = None  # the last one; others may wait behind it
        self.waiting_since: float | None = self.loop.time()
        self.head_bytes = 0  # of an unfinished head; -1: the head is complete
        self.parsed_bytes = 0  # of the path and of complete headers
        self.framing_bytes = 0  # since the head, without the body itself

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        cycle, self.cycle = self.cycle, None  # type: ignore[assignment]
        if type(cycle) is CommandExchange and not cycle.awaits_result:
            self.tasks.discard(cycle)
        self.exchange = None

    def data_received(self, data: bytes) -> None:
        """Count the bytes of head and framing, and enforce their limits."""
        if self.head_bytes >= 0:
            self.head_bytes += len(data)
        else:
            self.framing_bytes += len(data)
        super().data_received(data)
        if self.head_bytes > MAX_HEAD_BYTES:
            self.reject_head()
        elif self.framing_bytes > MAX_FRAMING_BYTES:
            message = f"chunks and trailers too large: expected at most {MAX_FRAMING_BYTES} bytes"
            self.reject(ApiError(431, "head_too_large", message))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; trailers are ignored."""
        if self.head_bytes >= 0:
            self.parsed_bytes += len(name) + len(value) + 4  # a colon, a space, a line break
            name = name.lower()  # what follows is as in uvicorn, without a call for every header
            self.headers.append((name, value))
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True

    def on_url(self, url: bytes) -> None:
        self.parsed_bytes += len(url)
        self.url += url

    def on_body(self, body: bytes) -> None:
        self.framing_bytes -= len(body)
        if type(self.cycle) is CommandExchange:
            self.cycle.body += body
        else:
            super().on_body(body)

    def on_message_begin(self) -> None:
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self.waiting_since, self.parsed_bytes = self.loop.time(), 0

    def on_headers_complete(self) -> None:
        if self.parsed_bytes > MAX_HEAD_BYTES:  # it may have arrived in one piece with its end
            self.reject_head()
            raise ValueError("headers too large")  # stops the parser
        exchange = self.make_exchange()
        if exchange is None:
            self.begin_cycle()
        else:
            self.cycle = self.exchange = exchange
        self.waiting_since, self.head_bytes = self.loop.time(), -1

    def make_exchange(self) -> CommandExchange | None:
        """What serves the request if it is one command and nothing about it is unusual. It must
        state the length of its body, which a GET usually does not.
        """
        parser, flow = self.parser, self.flow
        is_next = self.cycle is None or self.cycle.response_complete
        if not is_next or self.expect_100_continue or flow.write_paused or parser.should_upgrade():
            return None
        found = self.app.find_command(parser.get_method(), self.url)
        if found is None or parser.get_http_version() != "1.1":
            return None
        headers = dict(self.headers)
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or len(length) > MAX_LENGTH_DIGITS:
            return None
        endpoint, target = found
        if int(length) > min(endpoint.state.settings.max_body_bytes, MAX_DIRECT_BYTES):
            return None
        return CommandExchange(self, endpoint, target, headers)

    def begin_cycle(self) -> None:
        """Serve the request by ASGI."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()  # makes the scope
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        cycle, self.head_bytes, self.framing_bytes = self.cycle, 0, 0
        if type(cycle) is CommandExchange and not cycle.response_complete:
            self.waiting_since, cycle.more_body = None, False
            cycle.run()
            return
        super().on_message_complete()
        # an error may be sent before the body is read
        self.waiting_since = self.loop.time() if cycle.response_complete else None

    def send_response(self, response: HttpResponse, *, keep_alive: bool) -> None:
        """Write a response at once."""
        status, body, headers = response
        lines = format_header_lines(*self.server_state.default_headers, *headers)
        end = b"content-length: %d\r\n%s\r\n" % (len(body), b"" if keep_alive else CLOSE_LINE)
        self.corked.transport.write(b"".join((STATUS_LINE[status], lines, end, body)))
        if not keep_alive:
            self.transport.close()

    def on_response_complete(self) -> None:
        """The response is complete; it may have no body. The wait for the next request begins;
        `expire` ends it, in place of uvicorn's timer.
        """
        self.corked.flush()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.head_bytes == 0:
            self.waiting_since = self.loop.time()

    def expire(self, now: float, body_timeout_s: float, idle_timeout_s: float) -> None:
        """Close the connection if it has waited for the client for too long."""
        timeout = body_timeout_s if self.head_bytes < 0 else idle_timeout_s
        if self.waiting_since is None or now - self.waiting_since <= timeout:
            return
        if self.head_bytes == 0:  # a response here would be taken for that of a later request
            self.waiting_since = None
            self.transport.close()
            return
        part = "body" if self.head_bytes < 0 else "head"
        message = f"timeout: the {part} of the request did not arrive within {timeout:g} s"
        self.reject(ApiError(408, "too_slow", message))

    def send_400_response(self, msg: str) -> None:
        """Malformed HTTP."""
        self.reject(ApiError(400, "malformed", msg))

    def reject_head(self) -> None:
        message = f"headers too large: expected at most {MAX_HEAD_BYTES} bytes"
        self.reject(ApiError(431, "head_too_large", message))

    def reject(self, error: ApiError) -> None:
        """Send an error, unless a response has begun, and close the connection."""
        self.waiting_since = None
        if self.transport.is_closing():
            return
        exchange = self.exchange
        if exchange is not None and exchange.awaits_result:
            exchange.keep_alive = False  # its own response says what became of it
            self.pipeline.clear()
            self.flow.pause_reading()
            return
        if self.pipeline:  # this would be taken for the response to an earlier request
            self.transport.close()
            return
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.send_response(error_response(error), keep_alive=False)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # ends the wait for the body
            self.cycle.message_event.set()
        self.transport.close()
