"""All operations of the API in one table, and the endpoints about the server itself.

Requests are dispatched by this table; the OpenAPI document and the HTTP reference are made from it.
"""

from collections.abc import Iterable
from typing import Any

from bylot import api
from bylot.eventlog.commands import ShowRouter
from bylot.router.status import RouterStatus
from bylot.server import decision_endpoints as decisions
from bylot.server import personalizer
from bylot.server import router_endpoints as routers
from bylot.server.endpoint import ApiRequest, ApiRoute, Endpoint, HttpResponse, json_response
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


V1, AZURE = "/v1", "/personalizer/v1.1"

ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "POST",
        f"{V1}/routers",
        routers.create_router,
        "admin",
        (201, api.RouterView),
        body=api.CreateRouterRequest,
        errors=(409,),
    ),
    ApiRoute(
        "GET",
        f"{V1}/routers",
        routers.list_routers,
        "read",
        (200, api.RouterList),
        query=api.RouterListQuery,
    ),
    ApiRoute("GET", f"{V1}/routers/{{name}}", routers.get_router, "read", (200, api.RouterView)),
    ApiRoute(
        "PATCH",
        f"{V1}/routers/{{name}}",
        routers.edit_router,
        "admin",
        (200, api.RouterView),
        body=api.EditRouterRequest,
        errors=(409,),
    ),
    ApiRoute("DELETE", f"{V1}/routers/{{name}}", routers.delete_router, "admin", (204, None)),
    ApiRoute(
        "GET",
        f"{V1}/routers/{{name}}/status",
        routers.get_router_status,
        "read",
        (200, RouterStatus),
    ),
    ApiRoute(
        "GET",
        f"{V1}/routers/{{name}}/events",
        routers.list_events,
        "read",
        (200, api.EventList),
        query=api.EventListQuery,
    ),
    ApiRoute(
        "POST",
        f"{V1}/routers/{{name}}/decisions",
        decisions.create_decision,
        "decide",
        (201, api.StoredDecision),
        body=api.DecisionRequest,
        errors=(409,),
        has_key_header=True,
    ),
    ApiRoute(
        "POST",
        f"{V1}/routers/{{name}}/decisions:batch",
        decisions.create_decisions,
        "decide",
        (200, api.DecisionBatchResponse),
        body=api.DecisionBatchRequest,
    ),
    ApiRoute(
        "GET", f"{V1}/decisions/{{id}}", decisions.get_decision, "read", (200, api.DecisionRecord)
    ),
    ApiRoute(
        "POST",
        f"{V1}/decisions/{{id}}/reward",
        decisions.create_reward,
        "reward",
        (200, api.RewardReceipt),
        body=api.RewardRequest,
        errors=(409,),
    ),
    ApiRoute(
        "POST",
        f"{V1}/decisions/{{id}}/activate",
        decisions.activate_decision,
        "decide",
        (200, api.StoredDecision),
        errors=(409,),
    ),
    ApiRoute(
        "POST",
        f"{V1}/decisions/{{id}}/cancel",
        decisions.cancel_decision,
        "decide",
        (200, api.StoredDecision),
        errors=(409,),
    ),
    ApiRoute(
        "POST",
        f"{V1}/rewards:batch",
        decisions.create_rewards,
        "reward",
        (200, api.RewardBatchResponse),
        body=api.RewardBatchRequest,
    ),
    ApiRoute(
        "POST",
        f"{AZURE}/rank",
        personalizer.personalizer_rank,
        "decide",
        (201, personalizer.RankResponse),
        body=personalizer.RankRequest,
        query=personalizer.RouterQuery,
        errors=(404, 409),
    ),
    ApiRoute(
        "POST",
        f"{AZURE}/events/{{id}}/reward",
        personalizer.personalizer_reward,
        "reward",
        (204, None),
        body=personalizer.RewardValue,
        query=personalizer.RouterQuery,
        errors=(409,),
    ),
    ApiRoute(
        "POST",
        f"{AZURE}/events/{{id}}/activate",
        personalizer.personalizer_activate,
        "decide",
        (204, None),
        query=personalizer.RouterQuery,
        errors=(409,),
    ),
    ApiRoute("GET", "/healthz", get_liveness, None, (200, api.HealthResponse)),
    ApiRoute("GET", "/readyz", get_readiness, None, (200, api.HealthResponse), errors=(503,)),
    ApiRoute("GET", "/metrics", get_metrics, "read", (200, str)),
    ApiRoute("GET", "/openapi.json", get_openapi, None, (200, dict[str, Any])),
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
