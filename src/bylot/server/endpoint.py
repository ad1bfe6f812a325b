"""From a request to its answer: who asks, may they, what do they say; then one function."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from bylot.api import ErrorBody
from bylot.server import request_parsing
from bylot.server.auth import Caller, Scope
from bylot.server.http_errors import ApiError, classify_error, retry_after_value
from bylot.server.state import ServerState

log = logging.getLogger("bylot.server")
encode_json = msgspec.json.Encoder().encode

JSON_HEADERS = ((b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff"))
RawHeaders = tuple[tuple[bytes, bytes], ...]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
FormT = TypeVar("FormT")
QueryT = TypeVar("QueryT")


class HttpResponse(NamedTuple):
    """What is sent back."""

    status: int
    body: bytes = b""
    headers: RawHeaders = JSON_HEADERS


class ApiRequest(msgspec.Struct, Generic[FormT, QueryT], frozen=True, gc=False):
    """A request as its function gets it.

    about: what stands in the path in place of {name} or {id}
    """

    service: ServerState
    who: Caller
    about: str
    headers: Mapping[bytes, bytes]
    form: FormT
    query: QueryT


EndpointFunction = Callable[[ApiRequest[Any, Any]], Awaitable[HttpResponse]]


class ApiRoute(NamedTuple):
    """One thing that can be done over HTTP.

    scope:  what a key must be for; None: no key is needed
    takes:  what its body is; None: it has none
    query:  what its parameters are
    gives:  status of success, and what its body is; None: it has none
    errors: statuses of refusals, besides those that follow from the above
    keyed:  can its key come as header Idempotency-Key?
    """

    method: str
    path: str
    does: EndpointFunction
    scope: Scope | None
    gives: tuple[int, Any]
    takes: type[Any] | None = None
    query: type[Any] | None = None
    errors: tuple[int, ...] = ()
    keyed: bool = False


class Endpoint:
    """A route at work."""

    def __init__(self, service: ServerState, route: ApiRoute) -> None:
        self.service, self.route = service, route
        self.label = f"{route.method} {route.path}"
        self.of_router = route.path.startswith(("/v1/routers/{", "/v1/decisions/{"))
        self.decoder = None if route.takes is None else msgspec.json.Decoder(route.takes)
        self.measured: dict[int, Any] = {}  # by status

    async def __call__(
        self,
        scope: Mapping[str, Any],
        receive: request_parsing.AsgiReceive,
        send: AsgiSend,
        about: str,
    ) -> None:
        """Answer one request, whatever it is."""
        start, spans = time.perf_counter(), self.service.spans
        headers = dict(scope["headers"])
        span = spans and spans.begin(self.route.method, self.route.path, about, headers)
        try:
            if len(headers) < len(scope["headers"]):
                request_parsing.check_duplicate_headers(scope["headers"])
            answer = await self.respond(scope, headers, receive, about)
        except Exception as error:
            answer = error_response(error)
        await send_response(send, answer)
        if spans:
            spans.end(span, answer.status)
        self.measure(about, answer.status, time.perf_counter() - start)

    async def respond(
        self,
        scope: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        receive: request_parsing.AsgiReceive,
        about: str,
    ) -> HttpResponse:
        """What the function of this route says."""
        service, route = self.service, self.route
        who = service.credentials.caller(headers) if route.scope is not None else NO_CALLER
        if route.scope is not None:
            who.check(route.scope, about.partition(".")[0] if self.of_router else None)
            service.rates.take(who.id)
        form = query = None
        if self.decoder is not None:
            body = await request_parsing.read_body(receive, headers, service.settings.body)
            form = request_parsing.parse_json_body(
                self.decoder, body or b"{}", headers.get(b"content-type")
            )
        if route.query is not None:
            query = parse_query(route.query, scope["query_string"])
        return await route.does(ApiRequest(service, who, about, headers, form, query))

    def measure(self, about: str, status: int, taken: float) -> None:
        """Note one request."""
        meter = self.measured.get(status)
        if meter is None:
            meter = self.service.meters.requests.labels(self.label, str(status))
            self.measured[status] = meter
        meter.observe(taken)
        if log.isEnabledFor(logging.DEBUG):
            facts = {"route": self.label, "status": status, "ms": round(1_000 * taken, 3)}
            log.debug("request", extra=facts | ({"about": about} if about else {}))


NO_CALLER = Caller(None, frozenset(), frozenset())


def parse_query(kind: type[QueryT], text: bytes) -> QueryT:
    """The parameters of a request, each at most once."""
    pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True)
    given = dict(pairs)
    if len(given) < len(pairs):
        raise ApiError(422, "invalid", "a parameter is there twice")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise request_parsing.invalid_field_error(error) from None


def json_response(status: int, value: Any) -> HttpResponse:
    """An answer with a value."""
    return HttpResponse(status, encode_json(value))


def error_response(error: Exception) -> HttpResponse:
    """An answer to a failure."""
    status, failure, retry, headers = classify_error(error)
    if retry is not None:
        headers = (*headers, (b"retry-after", retry_after_value(retry)))
    return HttpResponse(status, encode_json(failure), (*JSON_HEADERS, *headers))


async def send_response(send: AsgiSend, answer: HttpResponse) -> None:
    """Send an answer."""
    status, body, headers = answer
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


__all__ = [
    "ApiRequest",
    "ApiRoute",
    "Endpoint",
    "ErrorBody",
    "HttpResponse",
    "error_response",
    "json_response",
    "send_response",
]
