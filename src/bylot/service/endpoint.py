"""From a request to its answer: who asks, may they, what do they say; then one function."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from bylot.service import limits
from bylot.service.credentials import Caller, Scope
from bylot.service.errors import Failure, Refusal, judge, seconds
from bylot.service.state import Service

log = logging.getLogger("bylot.service")
encode = msgspec.json.Encoder().encode

JSON = ((b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff"))
Headers = tuple[tuple[bytes, bytes], ...]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Form = TypeVar("Form")
Query = TypeVar("Query")


class Answer(NamedTuple):
    """What is sent back."""

    status: int
    body: bytes = b""
    headers: Headers = JSON


class Call(msgspec.Struct, Generic[Form, Query], frozen=True, gc=False):
    """A request as its function gets it.

    about: what stands in the path in place of {name} or {id}
    """

    service: Service
    who: Caller
    about: str
    headers: Mapping[bytes, bytes]
    form: Form
    query: Query


Handler = Callable[[Call[Any, Any]], Awaitable[Answer]]


class Route(NamedTuple):
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
    does: Handler
    scope: Scope | None
    gives: tuple[int, Any]
    takes: type[Any] | None = None
    query: type[Any] | None = None
    errors: tuple[int, ...] = ()
    keyed: bool = False


class Endpoint:
    """A route at work."""

    def __init__(self, service: Service, route: Route) -> None:
        self.service, self.route = service, route
        self.label = f"{route.method} {route.path}"
        self.of_router = route.path.startswith(("/v1/routers/{", "/v1/decisions/{"))
        self.decoder = None if route.takes is None else msgspec.json.Decoder(route.takes)
        self.measured: dict[int, Any] = {}  # by status

    async def __call__(
        self, scope: Mapping[str, Any], receive: limits.Receive, send: Send, about: str
    ) -> None:
        """Answer one request, whatever it is."""
        start, spans = time.perf_counter(), self.service.spans
        headers = dict(scope["headers"])
        span = spans and spans.begin(self.route.method, self.route.path, about, headers)
        try:
            if len(headers) < len(scope["headers"]):
                limits.unequivocal(scope["headers"])
            answer = await self.respond(scope, headers, receive, about)
        except Exception as error:
            answer = refused(error)
        await write(send, answer)
        if spans:
            spans.end(span, answer.status)
        self.measure(about, answer.status, time.perf_counter() - start)

    async def respond(
        self,
        scope: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        receive: limits.Receive,
        about: str,
    ) -> Answer:
        """What the function of this route says."""
        service, route = self.service, self.route
        who = service.credentials.caller(headers) if route.scope is not None else ANYONE
        if route.scope is not None:
            who.check(route.scope, about.partition(".")[0] if self.of_router else None)
            service.rates.take(who.id)
        form = query = None
        if self.decoder is not None:
            body = await limits.read(receive, headers, service.settings.body)
            form = limits.parse(self.decoder, body or b"{}", headers.get(b"content-type"))
        if route.query is not None:
            query = parameters(route.query, scope["query_string"])
        return await route.does(Call(service, who, about, headers, form, query))

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


ANYONE = Caller(None, frozenset(), frozenset())


def parameters(kind: type[Query], text: bytes) -> Query:
    """The parameters of a request, each at most once."""
    pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True)
    given = dict(pairs)
    if len(given) < len(pairs):
        raise Refusal(422, "invalid", "a parameter is there twice")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise limits.invalid(error) from None


def told(status: int, value: Any) -> Answer:
    """An answer with a value."""
    return Answer(status, encode(value))


def refused(error: Exception) -> Answer:
    """An answer to a failure."""
    status, failure, retry, headers = judge(error)
    if retry is not None:
        headers = (*headers, (b"retry-after", seconds(retry)))
    return Answer(status, encode(failure), (*JSON, *headers))


async def write(send: Send, answer: Answer) -> None:
    """Send an answer."""
    status, body, headers = answer
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


__all__ = ["Answer", "Call", "Endpoint", "Failure", "Route", "refused", "told", "write"]
