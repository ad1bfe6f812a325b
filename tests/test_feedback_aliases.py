"""Feedback in the shapes of TensorZero and of vLLM's semantic router, as rewards of decisions."""

import uuid
from typing import Any

import pytest

from bylot.server.other_apis import OutcomeRequest, make_outcome_key
from live_server import ServerClient, assert_error

FEEDBACK, OUTCOMES = "/feedback", "/v1/router/outcomes"


@pytest.fixture(scope="module")
def panel_router(server: ServerClient) -> str:
    return server.create_router(policy="random")


def get_rewards(server: ServerClient, id: str) -> list[dict[str, Any]]:
    """The reported rewards of a decision."""
    return list(server.get(f"/v1/decisions/{id}").json()["rewards"])


def test_a_metric_is_a_reward_under_its_name(server: ServerClient, panel_router: str) -> None:
    id = server.decide(panel_router)["id"]
    body = {"inference_id": id, "metric_name": "solved", "value": True, "tags": {"team": "a"}}
    answer = server.post(FEEDBACK, json=body)
    assert answer.status_code == 200
    assert str(uuid.UUID(answer.json()["feedback_id"])) == answer.json()["feedback_id"]
    assert server.post(FEEDBACK, json=body).content == answer.content  # once
    (reward,) = get_rewards(server, id)
    assert (reward["key"], reward["value"], reward["receipt"]) == ("solved", 1.0, "learned")
    assert assert_error(server.post(FEEDBACK, json={**body, "value": 0.5}), 409)
    other = server.post(FEEDBACK, json={**body, "metric_name": "rating", "value": 0.25})
    assert other.json() != answer.json()
    assert [one["receipt"] for one in get_rewards(server, id)] == ["learned", "noted"]


def test_a_dry_run_checks_and_stores_nothing(server: ServerClient, panel_router: str) -> None:
    id = server.decide(panel_router)["id"]
    body = {"inference_id": id, "metric_name": "solved", "value": 0.5, "dryrun": True}
    assert server.post(FEEDBACK, json=body).status_code == 200
    assert assert_error(server.post(FEEDBACK, json={**body, "value": 2}), 422)["field"] == "value"
    unknown = {**body, "inference_id": id[:-1] + ("0" if id[-1] != "0" else "1")}
    assert assert_error(server.post(FEEDBACK, json=unknown), 404)["code"] == "no_such_decision"
    assert get_rewards(server, id) == []


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("episode_id", {"episode_id": "x"}),
        ("inference_id", {"inference_id": None}),
        ("metric_name", {"metric_name": "comment", "value": "good"}),
        ("metric_name", {"metric_name": "demonstration", "value": "4"}),
        ("metric_name", {"metric_name": ""}),
        ("value", {"value": "good"}),
        ("value", {"value": None}),
        ("value", {"value": 10**400}),
    ],
)
def test_feedback_that_is_no_reward_is_refused_by_name(
    server: ServerClient, field: str, change: dict[str, Any]
) -> None:
    body = {"inference_id": "a.1.1.9f3ab01c", "metric_name": "solved", "value": 1, **change}
    assert assert_error(server.post(FEEDBACK, json=body), 422)["field"] == field


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"verdict": "good_fit"}, 1.0),
        ({"verdict": "overprovisioned"}, 1.0),
        ({"verdict": "underpowered"}, -1.0),
        ({"verdict": "failed"}, -1.0),
        ({"verdict": "failed", "score": 0.75}, 0.5),
    ],
)
def test_an_outcome_is_a_reward_in_the_range_of_the_router(
    server: ServerClient, given: dict[str, Any], value: float
) -> None:
    decision = server.decide(server.create_router(policy="random", rewards=[-1, 1]))
    body = {"replay_id": decision["id"], "target": "model", "target_ref": decision["subset"][0]}
    answer = server.post(OUTCOMES, json={**body, **given})
    assert answer.status_code == 201, answer.text
    assert (answer.json()["replay_id"], answer.json()["duplicate"]) == (decision["id"], False)
    again = server.post(OUTCOMES, json={**body, **given}).json()
    assert again == {**answer.json(), "duplicate": True}
    (reward,) = get_rewards(server, decision["id"])
    assert reward["value"] == value


def test_an_outcome_of_a_model_is_its_score_or_names_the_winner(server: ServerClient) -> None:
    for feedback in ("members", "winner"):
        decision = server.decide(server.create_router(policy="random", feedback=feedback))
        first, second = decision["subset"]
        body = {"replay_id": decision["id"], "target": "model", "source": "user"}
        for name, verdict in ((first, "good_fit"), (second, "underpowered")):
            outcome = {**body, "target_ref": name, "verdict": verdict}
            assert server.post(OUTCOMES, json=outcome).status_code == 201
        rewards = get_rewards(server, decision["id"])
        if feedback == "members":
            assert [one["members"] for one in rewards] == [{first: 1.0}, {second: 0.0}]
        else:
            assert [one.get("winner") for one in rewards] == [first, None]
            assert [one["value"] for one in rewards] == [1.0, 0.0]


def test_the_idempotency_key_of_an_outcome_is_that_of_the_reward(
    server: ServerClient, panel_router: str
) -> None:
    id = server.decide(panel_router)["id"]
    headers, body = {"idempotency-key": "run-1"}, {"replay_id": id, "target": "route"}
    server.post(OUTCOMES, json={**body, "verdict": "good_fit"}, headers=headers)
    assert [one["key"] for one in get_rewards(server, id)] == ["run-1"]
    other = server.post(OUTCOMES, json={**body, "verdict": "failed"}, headers=headers)
    assert assert_error(other, 409)["code"] == "reward_conflict"
    longest = OutcomeRequest("x", "model", "failed", "é" * 200, source="ü" * 200)
    assert len(make_outcome_key(longest)) <= 200


def test_an_outcome_that_says_nothing_about_the_panel_is_refused(
    server: ServerClient, panel_router: str
) -> None:
    decision = server.decide(panel_router)
    absent = next(n for n in ("ann", "bob", "cat") if n not in decision["subset"])
    body = {"replay_id": decision["id"], "target": "model", "verdict": "failed"}
    changes: list[tuple[str, dict[str, Any]]] = [
        ("target", {"target": "provider"}),
        ("target", {"target": "nonsense"}),
        ("target_ref", {"target_ref": absent}),
        ("verdict", {"verdict": "fine"}),
        ("score", {"score": 1.5}),
    ]
    for field, change in changes:
        answer = server.post(OUTCOMES, json={**body, **change})
        assert assert_error(answer, 422)["field"] == field
    unknown = {**body, "replay_id": "nowhere.1.1.9f3ab01c"}
    assert assert_error(server.post(OUTCOMES, json=unknown), 404)["code"] == "no_such_decision"
    assert get_rewards(server, decision["id"]) == []


def test_a_later_reward_overrules_an_earlier_one_if_the_last_counts(server: ServerClient) -> None:
    """The judge's report comes first, under the key of the gateway; then the caller's."""
    for aggregate, wait, receipts in (
        ("last", 0.5, ["pending", "pending"]),
        ("earliest", None, ["learned", "noted"]),
    ):
        config = {"aggregate": aggregate} | ({} if wait is None else {"wait": wait})
        id = server.decide(server.create_router(policy="random", **config))["id"]
        server.post(f"/v1/decisions/{id}/reward", json={"value": 1, "key": "judge:gpt"})
        body = {"inference_id": id, "metric_name": "thumbs_up", "value": False}
        assert server.post(FEEDBACK, json=body).status_code == 200
        record = server.get(f"/v1/decisions/{id}").json()
        assert [one["receipt"] for one in record["rewards"]] == receipts
        while wait is not None and record["state"] == "waiting":
            record = server.get(f"/v1/decisions/{id}").json()
        assert record["learned"] == (0.0 if aggregate == "last" else 1.0)
