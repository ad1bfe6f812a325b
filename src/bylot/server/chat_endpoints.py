"""Chat completions and responses over HTTP: requests in, answers or server-sent events out.

The gateway does the work. This module authenticates, notices callers that go away, keeps
connections alive meanwhile, and gives every error OpenAI's shape.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct

from bylot.gateway.chat import (
    KEEP_ALIVE_COMMENT,
    MODEL_PREFIX,
    ChatError,
    ChatRequest,
    EventWriter,
    check_chat_request,
    decode_object,
    iterate_chunks,
    unknown_model,
)
from bylot.gateway.chat_run import ChatRun
from bylot.gateway.contexts import find_keys
from bylot.gateway.responses import check_responses_request
from bylot.gateway.stream_run import StreamRun
from bylot.server.auth import Caller
from bylot.server.endpoint import (
    JSON_HEADERS,
    ApiRequest,
    ApiRoute,
    AsgiSend,
    HttpResponse,
    chat_error_response,
    json_response,
    route,
    send_response,
)
from bylot.server.http_errors import RawHeaders, to_chat_error
from bylot.server.request_parsing import (
    AsgiReceive,
    check_duplicate_fields,
    check_duplicate_headers,
    read_body,
)
from bylot.server.state import ServerState
from bylot.server.telemetry import ChatTrace

KEEP_ALIVE_S = 5.0
SEND_TIMEOUT_S = 60.0  # for a caller to read some of a stream
EVENT_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
)
REFUSED = "refused"  # in metrics: codes that models gave
CHAT_ERRORS = (404, 502, 504)  # statuses besides those of all routes
CLIENT_GONE = 499  # in logs and metrics: the caller has closed the connection


class ModelCard(Struct, frozen=True):
    """A model that a request can name."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "bylot"


class ModelList(Struct, frozen=True):
    """All models that the caller may use."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


@route(
    "POST /v1/chat/completions",
    "decide",
    200,
    "ChatCompletion",
    *CHAT_ERRORS,
    is_openai=True,
    chat_body="ChatCompletionBody",
)
def create_chat_completion(body: dict[str, Any]) -> ChatRequest:
    """Ask a panel of models for an answer, whole or streamed, as a chat completion of OpenAI."""
    return check_chat_request(body)


@route(
    "POST /v1/responses",
    "decide",
    200,
    "ResponseObject",
    *CHAT_ERRORS,
    is_openai=True,
    chat_body="ResponsesBody",
)
def create_response(body: dict[str, Any]) -> ChatRequest:
    """Ask a panel of models for an answer, whole or streamed, as a response of OpenAI."""
    return check_responses_request(body)


@route("GET /v1/models", "decide", 200, ModelList, is_openai=True)
async def list_models(request: ApiRequest[None, None]) -> HttpResponse:
    """The models that the caller may use: one for each router with a gateway."""
    names = [one for one in request.state.gateway.routers if request.caller.can_access(one)]
    return json_response(200, ModelList([ModelCard(MODEL_PREFIX + name) for name in names]))


class ChatEndpoint:
    """Serves a route that asks a panel; its function checks the request."""

    def __init__(self, state: ServerState, route: ApiRoute) -> None:
        self.state, self.route = state, route
        self.label = f"{route.method} {route.path}"

    async def __call__(
        self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend, target: str
    ) -> None:
        """Serve one request; every error becomes a response."""
        start, tracer = time.perf_counter(), self.state.tracer
        exchange = Exchange(send)
        trace = tracer and ChatTrace(tracer, self.route.path, exchange, dict(scope["headers"]))
        try:
            await self.respond(scope, receive, exchange)
        except asyncio.CancelledError:  # the server stops, and has waited long enough
            message = "the server stops before there is an answer; members may have been asked"
            await exchange.fail(ChatError(503, "timeout", message, retry_after_s=1.0))
            raise
        except Exception as error:
            await self.fail(exchange, to_chat_error(error))  # a local would make a cycle with it
        finally:
            if trace:
                trace.end(exchange.status)
        seconds = time.perf_counter() - start  # until the last byte of a stream
        self.state.metrics.record_request(self.label, exchange.status, seconds)

    async def fail(self, exchange: "Exchange", error: ChatError) -> None:
        """Count an error and send it."""
        self.state.metrics.errors.labels(REFUSED if error.is_relayed else error.code).inc()
        await exchange.fail(error)

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
        request: ChatRequest = self.route.function(decode_object(content))
        check_duplicate_fields(content)
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
                if not work.cancelled():
                    work.exception()  # that of a caller who does not read is no fault
            elif not work.cancelled():
                try:
                    work.result()
                finally:
                    del work  # with its error it would be a cycle, and keep the whole answer

    async def serve(
        self,
        request: ChatRequest,
        headers: Mapping[bytes, bytes],
        caller: Caller,
        exchange: "Exchange",
    ) -> None:
        """Run the request, streamed or not."""
        gateway = self.state.gateway.find(request.router)
        if not caller.can_access(request.router):
            raise unknown_model(MODEL_PREFIX + request.router)  # it is not said to exist
        self.state.rate_limiter.take(caller.id)
        keys = find_keys(headers, request.body)
        context = gateway.contexts.find(headers.get(b"x-bylot-context"), request.body)
        streams_first = gateway.entry.answer == "first" and gateway.entry.ask == "together"
        kind = StreamRun if request.stream and streams_first else ChatRun
        run = exchange.run = kind(gateway, request, context, caller.id, keys)
        if not request.stream:
            body = request.render(await run.complete())
            await exchange.answer(HttpResponse(200, body, (*JSON_HEADERS, *describe_run(run))))
            return
        exchange.events = events = request.start_events()
        if isinstance(run, StreamRun):
            await stream_first(run, events, exchange)
        else:
            completion = await keep_alive_while(asyncio.create_task(run.complete()), exchange, run)
            for choices in iterate_chunks(completion.choices):
                await exchange.send_event(events.write(choices), run)
        await exchange.send_event(events.end(run.usage, run.details), run)
        await exchange.send({"type": "http.response.body", "body": b""})


async def stream_first(run: StreamRun, events: EventWriter, exchange: "Exchange") -> None:
    """Pass the first member through that starts to answer."""
    try:
        await keep_alive_while(asyncio.create_task(run.begin()), exchange, run)
        async for choices in run.iterate():
            await exchange.send_event(events.write(choices), run)
    finally:
        await run.finish()


async def keep_alive_while(task: "asyncio.Task[Any]", exchange: "Exchange", run: ChatRun) -> Any:
    """The result of a task; comments keep the connection alive until then."""
    try:
        while not task.done():
            await asyncio.wait([task], timeout=KEEP_ALIVE_S)
            if not task.done():
                await exchange.send_event(KEEP_ALIVE_COMMENT, run)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    try:
        return task.result()
    finally:
        del task  # with its error it would be a cycle


class Exchange:
    """The response to one request: whole, or a stream of events.

    events: renders the stream; None: none was asked for
    run:    what serves the request, once it is known to be valid
    """

    def __init__(self, send: AsgiSend) -> None:
        self.send, self.status = send, 0
        self.events: EventWriter | None = None
        self.run: ChatRun | None = None
        self.is_streaming = self.is_gone = False

    async def answer(self, response: HttpResponse) -> None:
        self.status = response.status
        await send_response(self.send, response)

    async def send_event(self, event: bytes, run: ChatRun) -> None:
        """Send events; the first ones start the response. A caller that reads nothing for too long
        counts as gone.
        """
        if not self.is_streaming:
            self.is_streaming, self.status = True, 200
            start = {"type": "http.response.start", "status": 200}
            await self.send({**start, "headers": [*EVENT_HEADERS, *describe_run(run)]})
        if not event:
            return
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self.send({"type": "http.response.body", "body": event, "more_body": True})
        except TimeoutError:
            self.is_gone = True
            raise ChatError(408, "too_slow", "the caller does not read the stream") from None

    async def fail(self, error: ChatError) -> None:
        """Send an error, in a stream as its last event."""
        if self.is_gone:
            return
        if self.is_streaming and self.events is not None:
            await self.send({"type": "http.response.body", "body": self.events.fail(error)})
            return
        await self.answer(chat_error_response(error))


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
    if run.winner is not None and run.knows_cost:
        facts["cost-usd"] = f"{sum(run.spend.values()):.9f}"
    return tuple((f"x-bylot-{name}".encode(), value.encode()) for name, value in facts.items())
