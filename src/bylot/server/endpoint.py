"""From an HTTP request to its response: authenticate, authorise, parse, call one function."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from inspect import iscoroutinefunction
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from bylot.eventlog.commands import Command
from bylot.gateway.chat import ChatRequest
from bylot.server.auth import Caller
from bylot.server.http_errors import (
    ApiError,
    RawHeaders,
    to_api_error,
    to_chat_error,
    unavailable,
)
from bylot.server.request_parsing import (
    AsgiReceive,
    check_duplicate_headers,
    parse_json_body,
    parse_query,
    read_body,
)
from bylot.server.router_port import count_result
from bylot.server.settings import Scope
from bylot.server.state import ServerState

log = logging.getLogger("bylot.server")
encode_json = msgspec.json.Encoder().encode

JSON_HEADERS = ((b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff"))
CLOSE_HEADER = (b"connection", b"close")
RawHeaderMap = Mapping[bytes, bytes]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
BodyT = TypeVar("BodyT")
QueryT = TypeVar("QueryT")


class HttpResponse(NamedTuple):
    """Status, body and headers of a response."""

    status: int
    body: bytes = b""
    headers: RawHeaders = JSON_HEADERS


class ApiRequest(msgspec.Struct, Generic[BodyT, QueryT], frozen=True, gc=False):
    """A parsed request, as endpoint functions receive it."""

    state: ServerState
    caller: Caller
    target: str  # the part of the path in place of {name} or {id}; of two, name/tenant
    headers: RawHeaderMap
    body: BodyT
    query: QueryT


FileReader = Callable[[bytes, bytes | None, Any], Any]
EndpointFunction = Callable[[ApiRequest[Any, Any]], Awaitable[HttpResponse]]
CommandFunction = Callable[[ApiRequest[Any, Any]], Command]
ChatParser = Callable[[dict[str, Any]], ChatRequest]


class ApiRoute(NamedTuple):
    """One operation of the API.

    function: serves it; if `is_command`, returns the command whose result is the response; of a
              chat route: checks the body, and the gateway serves it
    scope:    scope that the caller's key must have; None: no key is needed
    success:  status of success, and the type of its body, or its name in `openai.schema.json`;
              None: no body
    body:     likewise, of the request
    query:    type of the query parameters
    errors:   error statuses besides those that follow from the other fields
    has_key_header: the header Idempotency-Key is accepted
    read_file: reads a body that is a file, with the query; None if it is JSON of the type `body`
    is_openai: errors have OpenAI's envelope
    is_chat:   a panel is asked, and the response may be a stream
    is_command: the request is one command, and its result the response
    """

    method: str
    path: str
    function: Callable[..., Any]
    scope: Scope | None
    success: tuple[int, Any]
    body: Any = None
    query: type[Any] | None = None
    errors: tuple[int, ...] = ()
    has_key_header: bool = False
    read_file: FileReader | None = None
    is_openai: bool = False
    is_chat: bool = False
    is_command: bool = False


def route(
    operation: str,
    scope: Scope | None,
    status: int,
    kind: Any,
    *errors: int,
    has_key_header: bool = False,
    read_file: FileReader | None = None,
    is_openai: bool = False,
    chat_body: str | None = None,
) -> Callable[[EndpointFunction | CommandFunction | ChatParser], ApiRoute]:
    """Make a route of a function; the types of body and query are those of its annotation.

    A function that is not async returns the command that the request is.

    chat_body: the name in `openai.schema.json` of the body of a request to the gateway, which the
               function checks
    """
    method, path = operation.split(" ")

    def make(function: EndpointFunction | CommandFunction | ChatParser) -> ApiRoute:
        body: Any = chat_body
        query = None
        if chat_body is None:
            types = get_args(get_type_hints(function)["request"])
            body, query = (None if one is NoneType else one for one in types)
        return ApiRoute(
            *(method, path, function, scope, (status, kind), body, query),
            *(errors, has_key_header, read_file, is_openai, chat_body is not None),
            is_command=chat_body is None and not iscoroutinefunction(function),
        )

    return make


class Endpoint:
    """Serves one route."""

    def __init__(self, state: ServerState, route: ApiRoute) -> None:
        self.state, self.route = state, route
        self.label = f"{route.method} {route.path}"
        self.has_router_target = route.path.startswith(("/v1/routers/{", "/v1/decisions/{"))
        self.decoder = None if route.body is None else msgspec.json.Decoder(route.body)
        self.is_direct = route.is_command and route.query is None

    async def __call__(
        self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend, target: str
    ) -> None:
        """Serve one request; every error becomes a response."""
        start, tracer = time.perf_counter(), self.state.tracer
        headers = dict(scope["headers"])
        span = tracer and tracer.begin(self.route.method, self.route.path, target, headers)
        try:
            if len(headers) < len(scope["headers"]):
                check_duplicate_headers(scope["headers"])
            response = await self.respond(scope, headers, receive, target)
        except Exception as error:
            response = self.respond_to_error(error)
        except asyncio.CancelledError:  # the server stops, and has waited long enough
            await send_response(send, self.respond_to_stop())
            raise
        await send_response(send, self.name_owner(response, target))
        if tracer:
            tracer.end(span, response.status)
        self.record(target, response.status, time.perf_counter() - start)

    def name_owner(self, response: HttpResponse, target: str) -> HttpResponse:
        """The response with the server that owns the router: clients may ask it directly. A server
        that is about to stop closes the connection, so that clients turn to others.
        """
        cluster = self.state.cluster
        if cluster is None:
            return response
        if self.state.stopping:
            response = response._replace(headers=(*response.headers, CLOSE_HEADER))
        if not self.has_router_target:
            return response
        owner = cluster.membership.find(find_target_router(target))
        header = (b"x-bylot-owner", owner.address.encode())
        return response._replace(headers=(*response.headers, header))

    async def respond(
        self, scope: Mapping[str, Any], headers: RawHeaderMap, receive: AsgiReceive, target: str
    ) -> HttpResponse:
        """Authenticate and parse the request, then do what the function of the route says."""
        state, route, content, query = self.state, self.route, b"", None
        caller = self.authorize(headers, target)
        if route.query is not None:
            query = parse_query(route.query, scope["query_string"])
        if self.decoder is not None:
            content = await read_body(receive, headers, state.settings.max_body_bytes)
        request = self.parse(caller, target, headers, content, query)
        if not route.is_command:
            function: EndpointFunction = route.function
            return await function(request)
        command = route.function(request)
        (result,) = await state.commands.execute_all((command,))
        return self.respond_to_result(command, result)

    def make_command(self, headers: RawHeaderMap, content: bytes, target: str) -> Command:
        """The command of a request whose route is one, and has no query."""
        caller = self.authorize(headers, target)
        command: Command = self.route.function(self.parse(caller, target, headers, content, None))
        return command

    def authorize(self, headers: RawHeaderMap, target: str) -> Caller:
        """The caller, who may do what the route does."""
        state, scope = self.state, self.route.scope
        if scope is None:
            return NO_CALLER
        caller = state.credentials.authenticate(headers)
        caller.check(scope, find_target_router(target) if self.has_router_target else None)
        state.rate_limiter.take(caller.id)
        return caller

    def parse(
        self, caller: Caller, target: str, headers: RawHeaderMap, content: bytes, query: Any
    ) -> ApiRequest[Any, Any]:
        """The request as the function of the route receives it."""
        body, content_type = None, headers.get(b"content-type")
        if self.decoder is not None:
            content = content or b"{}"
            if self.route.read_file is not None:
                body = self.route.read_file(content, content_type, query)
            if body is None:
                body = parse_json_body(self.decoder, content, content_type)
        return ApiRequest(self.state, caller, target, headers, body, query)

    def respond_to_result(self, command: Command, result: Any) -> HttpResponse:
        """The response to a command; raises its error."""
        counted = count_result(self.state.metrics, command, result)
        return HttpResponse(self.route.success[0], encode_json(counted))

    def respond_to_error(self, error: Exception) -> HttpResponse:
        """The response to a request that failed."""
        found = to_api_error(error)
        self.state.metrics.errors.labels(found.code).inc()
        return self.format_error(found)

    def respond_to_stop(self) -> HttpResponse:
        """The response to a request that outlasts the shutdown: its commands may be executed."""
        message = "the server stops before there is a result; repeat the request with the same key"
        return self.format_error(unavailable("timeout", message))

    def format_error(self, error: ApiError) -> HttpResponse:
        """The response with an error, in the envelope of this route."""
        return (chat_error_response if self.route.is_openai else error_response)(error)

    def record(self, target: str, status: int, seconds: float) -> None:
        """Record the latency of one request, and log it at level debug."""
        self.state.metrics.record_request(self.label, status, seconds)
        if log.isEnabledFor(logging.DEBUG):
            facts = {"route": self.label, "status": status, "ms": round(1_000 * seconds, 3)}
            log.debug("request", extra=facts | ({"target": target} if target else {}))


def find_target_router(target: str) -> str:
    """The router that a request is about.

    >>> find_target_router("triage"), find_target_router("triage.7-2"), find_target_router("a/b.c")
    ('triage', 'triage', 'a')
    """
    return target.partition("/")[0].partition(".")[0]


NO_CALLER = Caller(None, frozenset(), frozenset())


def json_response(status: int, value: Any) -> HttpResponse:
    return HttpResponse(status, encode_json(value))


def error_response(error: Exception) -> HttpResponse:
    found = to_api_error(error)
    return HttpResponse(found.status, encode_json(found.body), (*JSON_HEADERS, *found.headers))


def chat_error_response(error: Exception) -> HttpResponse:
    """An error in OpenAI's envelope."""
    found = to_chat_error(error)
    headers: RawHeaders = JSON_HEADERS
    if found.retry_after_s is not None:
        seconds = str(max(1, math.ceil(found.retry_after_s))).encode()
        headers = (*headers, (b"retry-after", seconds))
    return HttpResponse(found.status, encode_json(found.body), headers)


async def send_response(send: AsgiSend, response: HttpResponse) -> None:
    status, body, headers = response
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
