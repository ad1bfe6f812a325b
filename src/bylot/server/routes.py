"""All that can be done over HTTP, in one table: requests are led by it, and it is what the OpenAPI
document and the page of the reference are made from.
"""

from collections.abc import Iterable
from typing import Any

from bylot import api
from bylot.api import DecisionRecord, HealthResponse, RewardReceipt, RouterView, StoredDecision
from bylot.eventlog.commands import ShowRouter
from bylot.server import decision_endpoints, personalizer, router_endpoints
from bylot.server.endpoint import ApiRequest, ApiRoute, Endpoint, HttpResponse, json_response
from bylot.server.http_errors import ApiError
from bylot.server.state import ServerState

PROMETHEUS_HEADERS = (
    (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
)


async def get_liveness(call: ApiRequest[None, None]) -> HttpResponse:
    """The process is up."""
    return json_response(200, HealthResponse("up"))


async def get_readiness(call: ApiRequest[None, None]) -> HttpResponse:
    """The store answers, and the server is not stopping."""
    desk = call.service.desk
    if desk.draining or call.service.stopping:
        raise ApiError(503, "draining", "the server is stopping", retry=1.0)
    if desk.down is not None:
        raise desk.down
    await call.service.reader.read(lambda store: store.routers(limit=1))
    return json_response(200, HealthResponse("ready"))


async def get_metrics(call: ApiRequest[None, None]) -> HttpResponse:
    """Numbers for Prometheus; routers one by one, those that were asked last."""
    service, meters = call.service, call.service.meters
    names = [name for name in meters.recent if call.who.sees(name)]
    views: list[RouterView] = []
    for first in range(0, len(names), 10):  # few at a time: others have requests
        shows = [ShowRouter(name) for name in names[first : first + 10]]
        views += [one for one in await service.desk.ask_all(shows) if isinstance(one, RouterView)]
    meters.queue.set(service.desk.waiting)
    return HttpResponse(200, meters.text(views), PROMETHEUS_HEADERS)


async def get_openapi(call: ApiRequest[None, None]) -> HttpResponse:
    """The OpenAPI document of all this."""
    return HttpResponse(200, call.service.contract)


V1_PREFIX, PERSONALIZER_PREFIX = "/v1", "/personalizer/v1.1"

ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "POST",
        f"{V1_PREFIX}/routers",
        router_endpoints.create_router,
        "admin",
        (201, RouterView),
        takes=api.CreateRouterRequest,
        errors=(409,),
    ),
    ApiRoute(
        "GET",
        f"{V1_PREFIX}/routers",
        router_endpoints.list_routers,
        "read",
        (200, api.RouterList),
        query=api.RouterListQuery,
    ),
    ApiRoute(
        "GET",
        f"{V1_PREFIX}/routers/{{name}}",
        router_endpoints.get_router,
        "read",
        (200, RouterView),
    ),
    ApiRoute(
        "PATCH",
        f"{V1_PREFIX}/routers/{{name}}",
        router_endpoints.edit_router,
        "admin",
        (200, RouterView),
        takes=api.EditRouterRequest,
        errors=(409,),
    ),
    ApiRoute(
        "DELETE",
        f"{V1_PREFIX}/routers/{{name}}",
        router_endpoints.delete_router,
        "admin",
        (204, None),
    ),
    ApiRoute(
        "GET",
        f"{V1_PREFIX}/routers/{{name}}/status",
        router_endpoints.get_router_status,
        "read",
        (200, dict[str, Any]),
    ),
    ApiRoute(
        "GET",
        f"{V1_PREFIX}/routers/{{name}}/events",
        router_endpoints.list_events,
        "read",
        (200, api.EventList),
        query=api.EventListQuery,
    ),
    ApiRoute(
        "POST",
        f"{V1_PREFIX}/routers/{{name}}/decisions",
        decision_endpoints.post_decision,
        "decide",
        (201, StoredDecision),
        takes=api.DecisionRequest,
        errors=(409,),
        keyed=True,
    ),
    ApiRoute(
        "POST",
        f"{V1_PREFIX}/routers/{{name}}/decisions:batch",
        decision_endpoints.post_decision_batch,
        "decide",
        (200, api.DecisionBatchResponse),
        takes=api.DecisionBatchRequest,
    ),
    ApiRoute(
        "GET",
        f"{V1_PREFIX}/decisions/{{id}}",
        decision_endpoints.get_decision,
        "read",
        (200, DecisionRecord),
    ),
    ApiRoute(
        "POST",
        f"{V1_PREFIX}/decisions/{{id}}/reward",
        decision_endpoints.post_reward,
        "reward",
        (200, RewardReceipt),
        takes=api.RewardRequest,
        errors=(409,),
    ),
    ApiRoute(
        "POST",
        f"{V1_PREFIX}/decisions/{{id}}/activate",
        decision_endpoints.activate_decision,
        "decide",
        (200, StoredDecision),
        errors=(409,),
    ),
    ApiRoute(
        "POST",
        f"{V1_PREFIX}/decisions/{{id}}/cancel",
        decision_endpoints.cancel_decision,
        "decide",
        (200, StoredDecision),
        errors=(409,),
    ),
    ApiRoute(
        "POST",
        f"{V1_PREFIX}/rewards:batch",
        decision_endpoints.post_reward_batch,
        "reward",
        (200, api.RewardBatchResponse),
        takes=api.RewardBatchRequest,
    ),
    ApiRoute(
        "POST",
        f"{PERSONALIZER_PREFIX}/rank",
        personalizer.personalizer_rank,
        "decide",
        (201, personalizer.RankResponse),
        takes=personalizer.RankRequest,
        query=personalizer.RouterQuery,
        errors=(404, 409),
    ),
    ApiRoute(
        "POST",
        f"{PERSONALIZER_PREFIX}/events/{{id}}/reward",
        personalizer.personalizer_reward,
        "reward",
        (204, None),
        takes=personalizer.RewardValue,
        query=personalizer.RouterQuery,
        errors=(409,),
    ),
    ApiRoute(
        "POST",
        f"{PERSONALIZER_PREFIX}/events/{{id}}/activate",
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
    """Where a path leads: a look-up, as every request passes here."""

    def __init__(self, service: ServerState, routes: Iterable[ApiRoute] = ROUTES) -> None:
        self.whole: dict[str, dict[str, Endpoint]] = {}
        self.parts: dict[str, dict[str, dict[str, Endpoint]]] = {}  # by head, then by tail
        for route in routes:
            head, brace, rest = route.path.partition("{")
            tail = rest.partition("}")[2]
            under = (
                self.parts.setdefault(head, {}).setdefault(tail, {})
                if brace
                else (self.whole.setdefault(head, {}))
            )
            under[route.method] = Endpoint(service, route)

    def find(self, path: str) -> tuple[dict[str, Endpoint] | None, str]:
        """What can be done at a path, by method; and what stands there for its variable part."""
        for head, tails in self.parts.items():
            if path.startswith(head):
                about, slash, rest = path[len(head) :].partition("/")
                return tails.get(slash + rest) if about else None, about
        return self.whole.get(path), ""
