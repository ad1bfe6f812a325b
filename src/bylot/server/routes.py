"""The endpoints about the server itself, and the table of all operations of the API.

Requests are dispatched by this table; the OpenAPI document and the HTTP reference are made from it.
"""

import functools
import re
from typing import Any

from bylot import api
from bylot.errors import BylotError
from bylot.server import (
    chat_endpoints,
    decision_endpoints,
    feedback_aliases,
    personalizer,
    router_endpoints,
)
from bylot.server.chat_endpoints import ChatEndpoint
from bylot.server.endpoint import (
    ApiRequest,
    ApiRoute,
    Endpoint,
    HttpResponse,
    encode_json,
    json_response,
    route,
)
from bylot.server.http_errors import unavailable
from bylot.server.openapi import build_openapi
from bylot.server.state import ServerState
from bylot.server.writer import timeout_error

MAX_FAILED_REFRESHES = 5  # of the API keys, one a second, until the server is not ready
PROMETHEUS_HEADERS = (
    (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
)
READY_TIMEOUT_S = 2.5  # for the store, and for the oldest batch of the writer


@route("GET /healthz", None, 200, api.HealthResponse)
async def get_liveness(request: ApiRequest[None, None]) -> HttpResponse:
    """The process is up."""
    return json_response(200, api.HealthResponse("up"))


@route("GET /readyz", None, 200, api.HealthResponse, 503)
async def get_readiness(request: ApiRequest[None, None]) -> HttpResponse:
    """Store and keys can be read, policies are compiled, and the server is not shutting down."""
    await check_readiness(request.state)
    return json_response(200, api.HealthResponse("ready"))


async def check_readiness(state: ServerState) -> None:
    """Raise the reason why the server is not ready, if there is one."""
    writer = state.writer
    if writer.draining or state.stopping:
        raise unavailable("draining", "the server is shutting down")
    if writer.store_error is not None:
        raise writer.store_error
    if state.credentials.failed_refreshes >= MAX_FAILED_REFRESHES:
        raise unavailable(
            "keys_unreadable",
            "the API keys of the store cannot be read; the server log has the reason",
        )
    if writer.age_s > READY_TIMEOUT_S:
        raise timeout_error(READY_TIMEOUT_S)
    state.compiler.check_ready()
    await state.reader.read(lambda store: store.routers(limit=1), READY_TIMEOUT_S)


@route("GET /metrics", "read", 200, str)
async def get_metrics(request: ApiRequest[None, None]) -> HttpResponse:
    """Metrics for Prometheus; per router for those that were used last, if the server is ready."""
    state, metrics, views = request.state, request.state.metrics, list[api.RouterView]()
    try:
        await check_readiness(state)
        await state.gateway.load_all_facts()
        names = [name for name in metrics.recent if request.caller.can_access(name)]
        found = (await state.commands.show_routers(names)).values()
        views = [state.gateway.judge(one) for one in found if isinstance(one, api.RouterView)]
        metrics.ready.set(1)
    except BylotError:  # the other metrics say why
        metrics.ready.set(0)
    metrics.queue.set(state.writer.pending)
    metrics.open_chats.set(state.gateway.open_chats)
    gateways = state.gateway.routers.values()
    visible = [one for one in gateways if request.caller.can_access(one.router)]
    return HttpResponse(200, metrics.render(views, visible), PROMETHEUS_HEADERS)


@route("GET /openapi.json", None, 200, dict[str, Any])
async def get_openapi(request: ApiRequest[None, None]) -> HttpResponse:
    """The OpenAPI document of this API."""
    return HttpResponse(200, openapi_document())


ROUTES: tuple[ApiRoute, ...] = (
    *(
        one
        for module in (
            *(router_endpoints, decision_endpoints, chat_endpoints),
            *(feedback_aliases, personalizer),
        )
        for one in vars(module).values()
        if isinstance(one, ApiRoute)
    ),
    get_liveness,
    get_readiness,
    get_metrics,
    get_openapi,
)


@functools.cache
def openapi_document() -> bytes:
    return encode_json(build_openapi(ROUTES))


AnyEndpoint = Endpoint | ChatEndpoint
ITEM = "*"  # in place of a second variable, the last part of a path, which may contain slashes


class RouteTable:
    """Finds the endpoints of a path by look-ups, since every request passes here."""

    def __init__(self, state: ServerState) -> None:
        self.fixed: dict[str, dict[str, AnyEndpoint]] = {}
        self.variable: dict[
            str, dict[str, dict[str, AnyEndpoint]]
        ] = {}  # by prefix, then by suffix
        for one in ROUTES:
            prefix, brace, rest = one.path.partition("{")
            if brace:
                suffixes = self.variable.setdefault(prefix, {})
                suffix = re.sub(r"{\w+}", ITEM, rest.partition("}")[2])
                methods = suffixes.setdefault(suffix, {})
            else:
                methods = self.fixed.setdefault(prefix, {})
            methods[one.method] = (ChatEndpoint if one.is_chat else Endpoint)(state, one)

    def find(self, path: str) -> tuple[dict[str, AnyEndpoint] | None, str]:
        """The endpoints of a path by method, None if there are none; and its variable part."""
        for prefix, suffixes in self.variable.items():
            if path.startswith(prefix):
                target, slash, rest = path[len(prefix) :].partition("/")
                kind, _, item = rest.partition("/")
                with_item = suffixes.get(f"/{kind}/{ITEM}") if item else None
                if with_item is not None:
                    return with_item, f"{target}/{item}"
                return suffixes.get(slash + rest) if target else None, target
        return self.fixed.get(path), ""
