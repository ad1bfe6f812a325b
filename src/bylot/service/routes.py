"""All that can be done over HTTP, in one table: requests are led by it, and it is what the OpenAPI
document and the page of the reference are made from.
"""

from collections.abc import Iterable
from typing import Any

from bylot.durable.commands import Credited, Decision, Recalled, RouterView
from bylot.service import decisions, health, personalizer, routers, types
from bylot.service.endpoint import Endpoint, Route
from bylot.service.state import Service

V1, AZURE = "/v1", "/personalizer/v1.1"

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        f"{V1}/routers",
        routers.create,
        "admin",
        (201, RouterView),
        takes=types.CreateForm,
        errors=(409,),
    ),
    Route(
        "GET",
        f"{V1}/routers",
        routers.listed,
        "read",
        (200, types.RouterPage),
        query=types.RoutersAfter,
    ),
    Route("GET", f"{V1}/routers/{{name}}", routers.show, "read", (200, RouterView)),
    Route(
        "PATCH",
        f"{V1}/routers/{{name}}",
        routers.edit,
        "admin",
        (200, RouterView),
        takes=types.EditForm,
        errors=(409,),
    ),
    Route("DELETE", f"{V1}/routers/{{name}}", routers.delete, "admin", (204, None)),
    Route("GET", f"{V1}/routers/{{name}}/status", routers.status, "read", (200, dict[str, Any])),
    Route(
        "GET",
        f"{V1}/routers/{{name}}/events",
        routers.events,
        "read",
        (200, types.EventPage),
        query=types.EventsAfter,
    ),
    Route(
        "POST",
        f"{V1}/routers/{{name}}/decisions",
        decisions.decide,
        "decide",
        (201, Decision),
        takes=types.AskForm,
        errors=(409,),
        keyed=True,
    ),
    Route(
        "POST",
        f"{V1}/routers/{{name}}/decisions:batch",
        decisions.decide_all,
        "decide",
        (200, types.DecisionResults),
        takes=types.AskBatch,
    ),
    Route("GET", f"{V1}/decisions/{{id}}", decisions.recall, "read", (200, Recalled)),
    Route(
        "POST",
        f"{V1}/decisions/{{id}}/reward",
        decisions.reward,
        "reward",
        (200, Credited),
        takes=types.RewardForm,
        errors=(409,),
    ),
    Route(
        "POST",
        f"{V1}/decisions/{{id}}/activate",
        decisions.activate,
        "decide",
        (200, Decision),
        errors=(409,),
    ),
    Route(
        "POST",
        f"{V1}/decisions/{{id}}/cancel",
        decisions.cancel,
        "decide",
        (200, Decision),
        errors=(409,),
    ),
    Route(
        "POST",
        f"{V1}/rewards:batch",
        decisions.reward_all,
        "reward",
        (200, types.RewardResults),
        takes=types.RewardBatch,
    ),
    Route(
        "POST",
        f"{AZURE}/rank",
        personalizer.rank,
        "decide",
        (201, personalizer.Ranking),
        takes=personalizer.RankForm,
        query=personalizer.Which,
        errors=(404, 409),
    ),
    Route(
        "POST",
        f"{AZURE}/events/{{id}}/reward",
        personalizer.reward,
        "reward",
        (204, None),
        takes=personalizer.ValueForm,
        query=personalizer.Which,
        errors=(409,),
    ),
    Route(
        "POST",
        f"{AZURE}/events/{{id}}/activate",
        personalizer.activate,
        "decide",
        (204, None),
        query=personalizer.Which,
        errors=(409,),
    ),
    Route("GET", "/healthz", health.alive, None, (200, types.Health)),
    Route("GET", "/readyz", health.ready, None, (200, types.Health), errors=(503,)),
    Route("GET", "/metrics", health.metrics, "read", (200, str)),
    Route("GET", "/openapi.json", health.contract, None, (200, dict[str, Any])),
)


class Table:
    """Where a path leads: a look-up, as every request passes here."""

    def __init__(self, service: Service, routes: Iterable[Route] = ROUTES) -> None:
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
