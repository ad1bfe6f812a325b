"""Chat completions over HTTP: requests in, completions or server-sent events out.

The gateway does the work. This module authenticates, notices callers that go away, keeps
connections alive meanwhile, and gives every error OpenAI's shape.
"""

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from bylot.gateway.chat import (
    KEEP_ALIVE_COMMENT,
    MODEL_PREFIX,
    ChatError,
    ChatRequest,
    encode,
    iterate_chunks,
    parse_chat_request,
    render_completion,
    render_event,
)
from bylot.gateway.chat_run import ChatRun
from bylot.gateway.stream_run import StreamRun
from bylot.server.auth import Caller
from bylot.server.chat_tracing import ChatTrace
from bylot.server.endpoint import JSON_HEADERS, AsgiSend, HttpResponse, send_response
from bylot.server.http_errors import RawHeaders, to_api_error
from bylot.server.request_parsing import AsgiReceive, check_duplicate_headers, read_body
from bylot.server.state import ServerState

log = logging.getLogger("bylot.server")

KEEP_ALIVE_S = 5.0
EVENT_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
)
CLIENT_GONE = 499  # in logs and metrics: the caller has closed the connection
REFUSED = "refused"  # in metrics: codes that models gave


class ChatEndpoint:
    """Serves `POST /v1/chat/completions`."""

    path = "/v1/chat/completions"
    label = f"POST {path}"

    def __init__(self, state: ServerState) -> None:
        self.state = state
        self.latencies: dict[int, Any] = {}  # Prometheus histograms by status

    async def __call__(
        self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend, target: str
    ) -> None:
        """Serve one request; every error becomes a response."""
        start, tracer = time.perf_counter(), self.state.tracer
        exchange = Exchange(send)
        trace = tracer and ChatTrace(tracer, self.path, exchange, dict(scope["headers"]))
        try:
            await self.respond(scope, receive, exchange)
        except asyncio.CancelledError:
            await exchange.fail(ChatError(503, "draining", "the server is shutting down; retry"))
            raise
        except Exception as error:
            failure = to_chat_error(error)
            code = REFUSED if failure.is_relayed else failure.code
            self.state.metrics.errors.labels(code).inc()
            await exchange.fail(failure)
        finally:
            if trace:
                trace.end(exchange.status)
        self.record(exchange.status, time.perf_counter() - start)

    def record(self, status: int, seconds: float) -> None:
        """Record the latency of one request, until the last byte of a stream."""
        histogram = self.latencies.get(status)
        if histogram is None:
            histogram = self.state.metrics.requests.labels(self.label, str(status))
            self.latencies[status] = histogram
        histogram.observe(seconds)

    async def respond(
        self, scope: Mapping[str, Any], receive: AsgiReceive, exchange: "Exchange"
    ) -> None:
        """Authenticate, read the request, and serve it as long as the caller is there."""
        state, headers = self.state, dict(scope["headers"])
        if len(headers) < len(scope["headers"]):
            check_duplicate_headers(scope["headers"])
        caller = state.credentials.authenticate(headers)
        caller.check("decide")
        content = await read_body(receive, headers, state.settings.max_chat_body_bytes)
        request = parse_chat_request(content)
        with state.gateway.admit(caller.id):
            work = asyncio.create_task(self.serve(request, headers, caller, exchange))
            leaving = asyncio.create_task(wait_for_disconnect(receive))
            try:
                await asyncio.wait([work, leaving], return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    exchange.is_gone = True
            finally:
                leaving.cancel()
                if not work.done():
                    work.cancel()
                    await asyncio.wait([work])
            if exchange.is_gone:
                exchange.status = CLIENT_GONE
            elif not work.cancelled():
                work.result()

    async def serve(
        self,
        request: ChatRequest,
        headers: Mapping[bytes, bytes],
        caller: Caller,
        exchange: "Exchange",
    ) -> None:
        """Run the request, streamed or not."""
        gateway = self.state.gateway.find(request.router)
        caller.check("decide", request.router)
        self.state.rate_limiter.take(caller.id)
        context = gateway.contexts.find(headers.get(b"x-bylot-context"), request.body)
        streams_first = gateway.entry.answer == "first" and gateway.entry.ask == "together"
        kind = StreamRun if request.stream and streams_first else ChatRun
        run = exchange.run = kind(gateway, request, context, caller.id)
        if not request.stream:
            completion = await run.complete()
            body = render_completion(completion)
            await exchange.answer(HttpResponse(200, body, (*JSON_HEADERS, *describe_run(run))))
        elif isinstance(run, StreamRun):
            await self.stream_first(run, exchange)
        else:
            await self.stream_completion(run, exchange)

    async def stream_first(self, run: StreamRun, exchange: "Exchange") -> None:
        """Pass the first member through that starts to answer."""
        try:
            await keep_alive_while(asyncio.create_task(run.begin()), exchange, run)
            async for event in run.iterate():
                await exchange.send_event(event, describe_run(run))
        finally:
            await run.finish()
        await exchange.end()

    async def stream_completion(self, run: ChatRun, exchange: "Exchange") -> None:
        """Collect the panel, then send the answer as a stream."""
        task = asyncio.create_task(run.complete())
        completion = await keep_alive_while(task, exchange, run)
        for event in iterate_chunks(completion, run.request.include_usage):
            await exchange.send_event(event, describe_run(run))
        await exchange.end()


async def keep_alive_while(task: "asyncio.Task[Any]", exchange: "Exchange", run: ChatRun) -> Any:
    """The result of a task; comments keep the connection alive until then."""
    try:
        while not task.done():
            await asyncio.wait([task], timeout=KEEP_ALIVE_S)
            if not task.done():
                await exchange.send_event(KEEP_ALIVE_COMMENT, describe_run(run))
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    return task.result()


class Exchange:
    """The response to one request: whole, or a stream of events.

    run: what serves the request, once it is known to be valid
    """

    def __init__(self, send: AsgiSend) -> None:
        self.send, self.status = send, 0
        self.run: ChatRun | None = None
        self.is_streaming = self.is_gone = False

    async def answer(self, response: HttpResponse) -> None:
        self.status = response.status
        await send_response(self.send, response)

    async def send_event(self, event: bytes, headers: RawHeaders) -> None:
        """Send an event; the first one starts the response."""
        if not self.is_streaming:
            self.is_streaming, self.status = True, 200
            start = {"type": "http.response.start", "status": 200}
            await self.send({**start, "headers": [*EVENT_HEADERS, *headers]})
        await self.send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})

    async def fail(self, error: ChatError) -> None:
        """Send an error, in a stream as its last event."""
        if self.is_gone:
            return
        if self.is_streaming:
            await self.send({"type": "http.response.body", "body": render_event(error.body)})
            return
        await self.answer(error_response(error))


def error_response(error: ChatError) -> HttpResponse:
    """An error in OpenAI's envelope."""
    headers: RawHeaders = JSON_HEADERS
    if error.retry_after_s is not None:
        seconds = str(max(1, math.ceil(error.retry_after_s))).encode()
        headers = (*headers, (b"retry-after", seconds))
    return HttpResponse(error.status, encode(error.body), headers)


def to_chat_error(error: Exception) -> ChatError:
    """Any error in OpenAI's envelope."""
    if isinstance(error, ChatError):
        return error
    found = to_api_error(error)
    status = 400 if found.status == 422 else found.status
    code = "invalid_api_key" if status == 401 else found.code
    return ChatError(status, code, str(found), found.field, found.retry_after)


async def wait_for_disconnect(receive: AsgiReceive) -> None:
    """Return when the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def describe_run(run: ChatRun) -> RawHeaders:
    """The decision in headers, as far as it is known."""
    decision = getattr(run, "decision", None)
    if decision is None:
        return ()
    facts = {
        "decision-id": decision.id,
        "members": ",".join(quote(name) for name in decision.subset),
        "policy-version": str(decision.version),
    }
    if run.winner is not None:
        facts["winner"] = quote(run.winner)
        facts["cost-usd"] = f"{sum(run.spend.values()):.9f}"
    return tuple((f"x-bylot-{name}".encode(), value.encode()) for name, value in facts.items())


class ModelsEndpoint:
    """Serves `GET /v1/models`: the models that the caller may use."""

    def __init__(self, state: ServerState) -> None:
        self.state = state

    async def __call__(
        self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend, target: str
    ) -> None:
        """List the routers that have a gateway."""
        exchange = Exchange(send)
        try:
            caller = self.state.credentials.authenticate(dict(scope["headers"]))
            caller.check("decide")
            names = [one for one in self.state.gateway.routers if caller.can_access(one)]
            data = [
                {"id": MODEL_PREFIX + name, "object": "model", "created": 0, "owned_by": "bylot"}
                for name in names
            ]
            body = encode({"object": "list", "data": data})
            await exchange.answer(HttpResponse(200, body))
        except Exception as error:
            await exchange.fail(to_chat_error(error))
