"""A key that is valid for one router gets nothing of another one, on any route."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from bylot.server.routes import ROUTES
from bylot.server.settings import SCOPES
from bylot.store import open_store
from chat_upstream import chat_upstream, gateway_server
from live_server import ServerClient, wait_until
from test_auth import add_key, bearer_header

OWN, OTHER = "long", "plain"  # names of routers
MESSAGES = [{"role": "user", "content": "Hello"}]
RANK = {"actions": [{"id": f"{OTHER}1"}, {"id": f"{OTHER}2"}]}


class GuardedServer(NamedTuple):
    """A server, the headers of an administrator and of a key for one router, and a decision of the
    other router.
    """

    client: ServerClient
    admin: dict[str, str]
    restricted: dict[str, str]
    id: str

    def read_log(self, router: str) -> list[Any]:
        path = f"/v1/routers/{router}/events?limit=1000"
        return list(self.client.get(path, headers=self.admin).json()["events"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    folder = tmp_path_factory.mktemp("guarded")
    with chat_upstream() as upstream, gateway_server(folder, upstream) as client:
        made = client.decide(f"/v1/routers/{OTHER}", key="event-1", defer=True)
        with closing(open_store(f"sqlite:///{folder}/bylot.db")) as store:
            admin = bearer_header(add_key(store, *SCOPES))
            restricted = bearer_header(add_key(store, *SCOPES, routers=(OWN,)))
        wait_until(lambda: client.get("/v1/routers").status_code == 401)
        yield GuardedServer(client, admin, restricted, made["id"])


def make_attempts(id: str) -> dict[str, list[tuple[str, Any, int]]]:
    """Requests about the other router by the route that they try: path, body and status."""
    router, reward = f"/v1/routers/{OTHER}", {"value": 0.5}
    ids = [id, f"{OTHER}.1.1.00000000", f"{OTHER}.1", OTHER]  # some of which no decision has
    chat = {"model": f"bylot/{OTHER}", "messages": MESSAGES}
    response = {"model": f"bylot/{OTHER}", "input": "Hello"}
    outcome = {"target": "route", "verdict": "failed"}
    event = "/personalizer/v1.1/events"
    return {
        "GET /v1/routers/{name}": [(router, None, 403)],
        "GET /v1/routers/{name}/status": [(f"{router}/status", None, 403)],
        "GET /v1/routers/{name}/events": [(f"{router}/events", None, 403)],
        "PATCH /v1/routers/{name}": [(router, {"pause": [f"{OTHER}1"]}, 403)],
        "DELETE /v1/routers/{name}": [(router, None, 403)],
        "POST /v1/routers": [("/v1/routers", {"name": "new", "problem": {}}, 403)],
        "GET /v1/routers/{name}/tenants": [(f"{router}/tenants", None, 403)],
        "GET /v1/routers/{name}/tenants/{tenant}": [
            (f"{router}/tenants/acme", None, 403),
            (f"{router}/tenants/{OWN}", None, 403),
        ],
        "PUT /v1/routers/{name}/tenants/{tenant}": [(f"{router}/tenants/x", {"limits": []}, 403)],
        "POST /v1/routers/{name}/rounds": [
            (f"{router}/rounds", {"rounds": [{"panel": ["ann"], "reward": 1.0}]}, 403)
        ],
        "POST /v1/routers/{name}/decisions": [(f"{router}/decisions", {}, 403)],
        "POST /v1/routers/{name}/decisions:batch": [
            (f"{router}/decisions:batch", {"decisions": [{}]}, 403)
        ],
        "GET /v1/decisions/{id}": [(f"/v1/decisions/{one}", None, 403) for one in ids],
        "POST /v1/decisions/{id}/reward": [
            (f"/v1/decisions/{one}/reward", reward, 403) for one in ids
        ],
        "POST /v1/decisions/{id}/replace": [
            (f"/v1/decisions/{one}/replace", {"failed": f"{OTHER}1"}, 403) for one in ids
        ],
        "POST /v1/decisions/{id}/activate": [
            (f"/v1/decisions/{one}/activate", None, 403) for one in ids
        ],
        "POST /v1/decisions/{id}/cancel": [
            (f"/v1/decisions/{one}/cancel", None, 403) for one in ids
        ],
        "POST /v1/rewards:batch": [
            ("/v1/rewards:batch", {"rewards": [{"decision": one, **reward}]}, 403) for one in ids
        ],
        "POST /feedback": [
            ("/feedback", {"inference_id": one, "metric_name": "m", "dryrun": dry, **reward}, 403)
            for one in ids
            for dry in (False, True)
        ],
        "POST /v1/router/outcomes": [
            ("/v1/router/outcomes", {"replay_id": one, **outcome}, 403) for one in ids
        ],
        "POST /personalizer/v1.1/rank": [(f"/personalizer/v1.1/rank?router={OTHER}", RANK, 403)],
        "POST /personalizer/v1.1/events/{id}/reward": [
            (f"{event}/event-1/reward?router={OTHER}", reward, 403),
            (f"{event}/event-1/reward", reward, 404),
            (f"{event}/{id}/reward", reward, 404),
        ],
        "POST /personalizer/v1.1/events/{id}/activate": [
            (f"{event}/event-1/activate?router={OTHER}", None, 403),
            (f"{event}/event-1/activate", None, 404),
            (f"{event}/{id}/activate", None, 404),
        ],
        # the model is not said to exist
        "POST /v1/chat/completions": [
            ("/v1/chat/completions", {**chat, "stream": stream}, 404) for stream in (False, True)
        ],
        "POST /v1/responses": [
            ("/v1/responses", {**response, "stream": stream}, 404) for stream in (False, True)
        ],
        "GET /v1/routers": [("/v1/routers", None, 200)],
        "GET /v1/models": [("/v1/models", None, 200)],
        "GET /metrics": [("/metrics", None, 200)],
        # pages
        "GET /": [("/", None, 200)],
        "GET /routers.json": [("/routers.json", None, 200)],
        "GET /routers/{name}": [(f"/routers/{OTHER}", None, 404)],
        "GET /routers/{name}.json": [(f"/routers/{OTHER}.json", None, 404)],
    }


def test_all_routes_that_need_a_key_are_attempted() -> None:
    needed = {f"{one.method} {one.path}" for one in ROUTES if one.scope is not None}
    assert needed <= set(make_attempts(""))


@pytest.mark.parametrize("route", make_attempts(""))
def test_a_key_for_one_router_gets_nothing_of_another(guarded: GuardedServer, route: str) -> None:
    before = guarded.read_log(OTHER)
    for path, body, status in make_attempts(guarded.id)[route]:
        method = route.partition(" ")[0]
        answer = guarded.client.request(method, path, json=body, headers=guarded.restricted)
        found = [answer.status_code]
        if path.endswith("rewards:batch"):
            found = [one["status"] for one in answer.json()["results"]]
        assert found == [status], (path, body, answer.text)
        if status == 200:
            assert OTHER not in answer.text, path
    assert guarded.read_log(OTHER) == before
    assert guarded.client.get(f"/v1/routers/{OTHER}", headers=guarded.admin).status_code == 200


def test_a_rank_that_names_no_router_is_of_the_only_router_of_the_key(
    guarded: GuardedServer,
) -> None:
    before = [guarded.read_log(name) for name in (OWN, OTHER)]
    path, actions = "/personalizer/v1.1/rank", [{"id": f"{OWN}1"}, {"id": f"{OWN}2"}]
    answer = guarded.client.post(path, json={"actions": actions}, headers=guarded.restricted)
    assert answer.status_code == 201
    assert answer.json()["rewardActionId"].startswith(OWN)
    named = {**guarded.restricted, "bylot-router": OTHER}
    assert guarded.client.post(path, json=RANK, headers=named).status_code == 403
    after = [guarded.read_log(name) for name in (OWN, OTHER)]
    assert [len(log) for log in after] == [len(before[0]) + 1, len(before[1])]
