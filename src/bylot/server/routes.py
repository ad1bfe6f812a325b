"""All operations of the API in one table, and the endpoints about the server itself.

Requests are dispatched by this table; the OpenAPI document and the HTTP reference are made from it.
"""

from collections.abc import Iterable
from typing import Any, get_args, get_type_hints

from bylot import api
from bylot.eventlog.commands import ShowRouter
from bylot.router.decision import Decision
from bylot.router.status import RouterStatus
from bylot.server import decision_endpoints as decisions
from bylot.server import personalizer as azure
from bylot.server import router_endpoints as routers
from bylot.server.auth import Scope
from bylot.server.endpoint import (
    ApiRequest,
    ApiRoute,
    Endpoint,
    EndpointFunction,
    HttpResponse,
    json_response,
)
from bylot.server.http_errors import ApiError
from bylot.server.state import ServerState

PROMETHEUS_HEADERS = (
    (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
)


async def get_liveness(request: ApiRequest[None, None]) -> HttpResponse:
    """The process is up."""
    return json_response(200, api.HealthResponse("up"))


async def get_readiness(request: ApiRequest[None, None]) -> HttpResponse:
    """The store is available, and the server is not shutting down."""
    writer = request.state.writer
    if writer.draining or request.state.stopping:
        raise ApiError(503, "draining", "the server is shutting down", retry_after=1.0)
    if writer.store_error is not None:
        raise writer.store_error
    await request.state.reader.read(lambda store: store.routers(limit=1))
    return json_response(200, api.HealthResponse("ready"))


async def get_metrics(request: ApiRequest[None, None]) -> HttpResponse:
    """Metrics for Prometheus; per router for those that were used last."""
    state, metrics = request.state, request.state.metrics
    names = [name for name in metrics.recent if request.caller.can_access(name)]
    views: list[api.RouterView] = []
    for first in range(0, len(names), 10):  # small batches, so that other requests are served
        commands = [ShowRouter(name) for name in names[first : first + 10]]
        found = await state.writer.execute_all(commands)
        views += [one for one in found if isinstance(one, api.RouterView)]
    metrics.queue.set(state.writer.pending)
    return HttpResponse(200, metrics.render(views), PROMETHEUS_HEADERS)


async def get_openapi(request: ApiRequest[None, None]) -> HttpResponse:
    """The OpenAPI document of this API."""
    return HttpResponse(200, request.state.openapi)


def make_route(
    operation: str,
    function: EndpointFunction,
    scope: Scope | None,
    success: tuple[int, Any],
    *errors: int,
    has_key_header: bool = False,
) -> ApiRoute:
    """A route; the types of body and query are those of the function's annotation."""
    method, path = operation.split(" ")
    body, query = (
        None if kind is type(None) else kind
        for kind in get_args(get_type_hints(function)["request"])
    )
    return ApiRoute(method, path, function, scope, success, body, query, errors, has_key_header)


VIEW, DECISION = (200, api.RouterView), (200, Decision)

ROUTES: tuple[ApiRoute, ...] = (
    make_route("POST /v1/routers", routers.create_router, "admin", (201, api.RouterView), 409),
    make_route("GET /v1/routers", routers.list_routers, "read", (200, api.RouterList)),
    make_route("GET /v1/routers/{name}", routers.get_router, "read", VIEW),
    make_route("PATCH /v1/routers/{name}", routers.edit_router, "admin", VIEW, 409),
    make_route("DELETE /v1/routers/{name}", routers.delete_router, "admin", (204, None)),
    make_route(
        "GET /v1/routers/{name}/status", routers.get_router_status, "read", (200, RouterStatus)
    ),
    make_route("GET /v1/routers/{name}/events", routers.list_events, "read", (200, api.EventList)),
    make_route(
        "POST /v1/routers/{name}/decisions",
        decisions.create_decision,
        "decide",
        (201, Decision),
        409,
        has_key_header=True,
    ),
    make_route(
        "POST /v1/routers/{name}/decisions:batch",
        decisions.create_decisions,
        "decide",
        (200, api.DecisionBatchResponse),
    ),
    make_route("GET /v1/decisions/{id}", decisions.get_decision, "read", (200, api.DecisionRecord)),
    make_route(
        "POST /v1/decisions/{id}/reward",
        decisions.create_reward,
        "reward",
        (200, api.RewardReceipt),
        409,
    ),
    make_route(
        "POST /v1/decisions/{id}/activate", decisions.activate_decision, "decide", DECISION, 409
    ),
    make_route(
        "POST /v1/decisions/{id}/cancel", decisions.cancel_decision, "decide", DECISION, 409
    ),
    make_route(
        "POST /v1/rewards:batch", decisions.create_rewards, "reward", (200, api.RewardBatchResponse)
    ),
    make_route(
        "POST /personalizer/v1.1/rank",
        azure.personalizer_rank,
        "decide",
        (201, azure.RankResponse),
        404,
        409,
    ),
    make_route(
        "POST /personalizer/v1.1/events/{id}/reward",
        azure.personalizer_reward,
        "reward",
        (204, None),
        409,
    ),
    make_route(
        "POST /personalizer/v1.1/events/{id}/activate",
        azure.personalizer_activate,
        "decide",
        (204, None),
        409,
    ),
    make_route("GET /healthz", get_liveness, None, (200, api.HealthResponse)),
    make_route("GET /readyz", get_readiness, None, (200, api.HealthResponse), 503),
    make_route("GET /metrics", get_metrics, "read", (200, str)),
    make_route("GET /openapi.json", get_openapi, None, (200, dict[str, Any])),
)


class RouteTable:
    """Finds the endpoints of a path by look-ups, since every request passes here."""

    def __init__(self, state: ServerState, routes: Iterable[ApiRoute] = ROUTES) -> None:
        self.fixed: dict[str, dict[str, Endpoint]] = {}
        self.variable: dict[str, dict[str, dict[str, Endpoint]]] = {}  # by prefix, then by suffix
        for route in routes:
            prefix, brace, rest = route.path.partition("{")
            if brace:
                suffixes = self.variable.setdefault(prefix, {})
                methods = suffixes.setdefault(rest.partition("}")[2], {})
            else:
                methods = self.fixed.setdefault(prefix, {})
            methods[route.method] = Endpoint(state, route)

    def find(self, path: str) -> tuple[dict[str, Endpoint] | None, str]:
        """The endpoints of a path by method, None if there are none; and its variable part."""
        for prefix, suffixes in self.variable.items():
            if path.startswith(prefix):
                target, slash, rest = path[len(prefix) :].partition("/")
                return suffixes.get(slash + rest) if target else None, target
        return self.fixed.get(path), ""
