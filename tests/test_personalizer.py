"""The API of Azure AI Personalizer on top of a router."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bylot.server.http_errors import ApiError
from bylot.server.other_apis import context_from_features
from live_server import ServerClient, assert_error, live_server

RANK = "/personalizer/v1.1/rank"
ACTIONS = [
    {"id": name, "features": [{"topic": "x"}]} for name in ("ann", "bob", "cat", "dan", "eve")
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerClient]:
    with live_server(tmp_path_factory.mktemp("store")) as client:
        client.headers["bylot-router"] = client.create_router().rpartition("/")[2]
        yield client


def reward_path(event: str) -> str:
    """The path for the reward of an event."""
    return f"/personalizer/v1.1/events/{event}/reward"


def test_a_ranking_is_the_panel_with_its_probabilities(server: ServerClient) -> None:
    features = [{"device": "phone"}, {"hour": 9}]
    body = {"actions": ACTIONS, "contextFeatures": features, "eventId": "visit-1"}
    answer = server.post(RANK, json=body)
    assert answer.status_code == 201
    ranked = answer.json()
    assert set(ranked) == {"ranking", "eventId", "rewardActionId"}
    assert ranked["eventId"] == "visit-1"
    assert ranked["rewardActionId"] == ranked["ranking"][0]["id"]
    assert len(ranked["ranking"]) == 2
    assert all(0 < one["probability"] <= 1 for one in ranked["ranking"])
    assert server.post(RANK, json=body).content == answer.content
    events = server.get(f"/v1/routers/{server.headers['bylot-router']}/events").json()["events"]
    assert events[-1]["body"]["context"] == "device=phone,hour=9"
    assert events[-1]["key"] == "visit-1"


def test_an_event_is_rewarded_under_the_id_of_the_caller(server: ServerClient) -> None:
    slashed = server.post(RANK, json={"actions": ACTIONS, "eventId": "visit 2/b"})
    assert assert_error(slashed, 422)["field"] == "eventId"  # or it could not be rewarded
    accented = server.post(RANK, json={"actions": ACTIONS, "eventId": "visité"})
    assert "printable ASCII characters" in assert_error(accented, 422)["message"]
    server.post(RANK, json={"actions": ACTIONS, "eventId": "visit 3"})
    answer = server.post(reward_path("visit 3"), json={"value": True})
    assert (answer.status_code, answer.content) == (204, b"")
    assert server.post(reward_path("visit 3"), json={"value": 1.0}).status_code == 204
    assert assert_error(server.post(reward_path("visit 3"), json={"value": 0.5}), 409)


def test_an_event_without_an_id_gets_a_decision_id(server: ServerClient) -> None:
    event = server.post(RANK, json={"actions": ACTIONS}).json()["eventId"]
    assert server.get(f"/v1/decisions/{event}").json()["state"] == "waiting"
    assert server.post(reward_path(event), json={"value": 1.0}).status_code == 204
    assert server.get(f"/v1/decisions/{event}").json()["state"] == "rewarded"
    for unknown in ("unknown", "other.1.1.9f3ab01c", "x" * 300):
        answer = server.post(reward_path(unknown), json={"value": 1.0})
        assert assert_error(answer, 404)["code"] == "no_such_decision"


def test_excluded_actions_are_not_drawn(server: ServerClient) -> None:
    body = {"actions": ACTIONS, "excludedActions": ["ann", "bob", "cat"]}
    for _ in range(5):
        ranking = server.post(RANK, json=body).json()["ranking"]
        assert {one["id"] for one in ranking} <= {"dan", "eve"}
    all_excluded = {"actions": ACTIONS[:1], "excludedActions": ["ann"]}
    assert assert_error(server.post(RANK, json=all_excluded), 422)["code"] == "bad_decision"
    unknown_action = {"actions": [{"id": "zoe"}]}
    assert assert_error(server.post(RANK, json=unknown_action), 422)["code"] == "bad_decision"


def test_a_deferred_event_is_activated(server: ServerClient) -> None:
    server.post(RANK, json={"actions": ACTIONS, "eventId": "later", "deferActivation": True})
    activate = "/personalizer/v1.1/events/later/activate"
    assert server.post(activate).status_code == 204
    assert assert_error(server.post(activate), 409)["code"] == "invalid_state"


def test_the_router_must_be_named_unless_it_is_the_only_one(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        body = {"actions": ACTIONS}
        assert assert_error(server.post(RANK, json=body), 404)["code"] == "no_such_router"
        one = server.create_router().rpartition("/")[2]
        assert server.post(RANK, json=body).status_code == 201
        two = server.create_router().rpartition("/")[2]
        assert "several" in assert_error(server.post(RANK, json=body), 404)["message"]
        for name in (one, two):
            event = server.post(f"{RANK}?router={name}", json=body).json()["eventId"]
            assert event.startswith(f"{name}.")


@settings(
    suppress_health_check=[HealthCheck.too_slow]
)  # texts of all characters, on a busy machine
@given(
    st.lists(
        st.dictionaries(
            st.text("ab", max_size=2),
            st.none()
            | st.text(max_size=60)
            | st.integers()
            | st.dictionaries(st.text("c"), st.floats()),
            max_size=3,
        ),
        max_size=3,
    )
)
def test_a_context_is_a_printable_name_or_refused(features: list[dict[str, Any]]) -> None:
    with contextlib.suppress(ApiError):
        name = context_from_features(features)
        assert name is None or (len(name) <= 200 and "\n" not in name)


def test_features_that_are_too_long_are_refused() -> None:
    with pytest.raises(ApiError) as caught:
        context_from_features([{"a": "x" * 199}])
    assert caught.value.field == "contextFeatures"
    assert context_from_features([{"a": "x" * 198}]) == "a=" + "x" * 198


def test_deeply_nested_features_are_refused(server: ServerClient) -> None:
    deep = b'{"actions": [{"id": "ann"}], "contextFeatures": [' + b'{"a":' * 20_000
    answer = server.post(RANK, content=deep, headers={"content-type": "application/json"})
    assert assert_error(answer, 400)["code"] == "malformed"
    closed = deep[: 49 + 5 * 900] + b"1" + b"}" * 900 + b"]}"
    answer = server.post(RANK, content=closed, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
