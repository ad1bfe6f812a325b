"""Decide and reward over HTTP: guarantees G1 to G6 as a caller sees them."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.repository import RouterRepository
from bylot.server.settings import ServerSettings
from bylot.server.writer import make_command_handler
from bylot.store import open_store
from live_server import ServerClient, assert_error, live_server, wait_until


@pytest.fixture(scope="module")
def router(server: ServerClient) -> str:
    return server.create_router()


def test_a_decision_has_probabilities_costs_and_context(server: ServerClient, router: str) -> None:
    answer = server.decide(router, context="chest pain")
    assert answer["router"] == router.rpartition("/")[2]
    assert len(answer["draws"]) == 2
    assert set(answer["subset"]) == set(answer["draws"]) == set(answer["inclusion"])
    assert all(0 < probability <= 1 for probability in answer["inclusion"].values())
    assert 0 < answer["propensity"] <= 1
    assert set(answer["spend"]) == set(answer["expected"]) == {"usd", "junior"}
    assert answer["context"] == "chest pain"


def test_a_decision_is_stored_before_it_is_answered(server: ServerClient, router: str) -> None:
    answer = server.decide(router, key="in the store")
    store = open_store(server.app.state.settings.store, read_only=True)
    row = store.find(answer["router"])
    assert row is not None
    event = store.decision_by_key(row.number, "in the store")
    store.close()
    assert event is not None
    assert answer["id"] == f"{row.name}.{row.number}.{event.seq}.{event.seal[:4].hex()}"


def test_the_same_key_gives_the_same_decision_byte_for_byte(
    server: ServerClient, router: str
) -> None:
    request = {"context": "a", "key": "k1"}
    first = server.post(f"{router}/decisions", json=request)
    server.decide(router)
    again = server.post(f"{router}/decisions", json=request)
    header = server.post(
        f"{router}/decisions", json={"context": "a"}, headers={"idempotency-key": "k1"}
    )
    other = server.post(f"{router}/decisions", json={**request, "key": "k2"})
    assert first.status_code == again.status_code == header.status_code == 201
    assert first.content == again.content == header.content
    assert other.content != first.content


def test_a_key_cannot_be_used_for_another_request(server: ServerClient, router: str) -> None:
    server.decide(router, context="a", key="used")
    wrong = server.post(f"{router}/decisions", json={"context": "b", "key": "used"})
    assert assert_error(wrong, 422)["code"] == "key_reused"
    mixed = {"json": {"key": "x"}, "headers": {"idempotency-key": "y"}}
    assert assert_error(server.post(f"{router}/decisions", **mixed), 422)["field"] == "key"  # type: ignore[arg-type]


class GatedHandler(CommandHandler):
    """A handler that waits for its gate before it performs commands."""

    gate: threading.Event

    def perform(self, batch: Sequence[Any], at: int) -> list[Any]:
        self.gate.wait()
        return super().perform(batch, at)


def test_a_key_in_flight_is_refused_until_it_is_answered(tmp_path: Path) -> None:
    gate = threading.Event()
    gate.set()

    def make_handler(settings: ServerSettings) -> Any:
        def make() -> GatedHandler:
            handler = GatedHandler(RouterRepository(open_store(settings.store), "gated"))
            handler.gate = gate
            return handler

        return make

    with live_server(tmp_path, make_handler) as server:
        path = f"{server.create_router()}/decisions"
        gate.clear()
        answers: list[httpx.Response] = []
        first = threading.Thread(
            target=lambda: answers.append(
                httpx.post(f"{server.base_url}{path}", json={"key": "k"}, timeout=60)
            )
        )
        first.start()
        wait_until(lambda: server.app.state.writer.pending)
        refused = server.post(path, json={"key": "k"})
        assert assert_error(refused, 409)["code"] == "in_flight"
        assert int(refused.headers["retry-after"]) >= 1
        gate.set()
        first.join()
        again = server.post(path, json={"key": "k"})
        assert again.status_code == 201
        assert again.content == answers[0].content


def test_a_reward_counts_once(server: ServerClient, router: str) -> None:
    path = f"/v1/decisions/{server.decide(router)['id']}/reward"
    first = server.post(path, json={"value": 0.5})
    assert (first.status_code, first.json()["receipt"]) == (200, "learned")
    again = server.post(path, json={"value": 0.5})
    assert (again.status_code, again.json()["receipt"]) == (200, "duplicate")
    assert assert_error(server.post(path, json={"value": 0.6}), 409)["code"] == "reward_conflict"


@pytest.mark.parametrize("value", [True, False])
def test_true_and_false_are_the_rewards_1_and_0(
    server: ServerClient, router: str, value: bool
) -> None:
    id, other = (server.decide(router)["id"] for _ in range(2))
    path = f"/v1/decisions/{id}/reward"
    first = server.post(path, json={"value": value}).json()
    assert (first["receipt"], first["value"]) == ("learned", float(value))
    assert server.post(path, json={"value": float(value)}).json()["receipt"] == "duplicate"
    batch = server.post(
        "/v1/rewards:batch", json={"rewards": [{"decision": other, "value": value}]}
    )
    assert batch.json()["results"][0]["credited"]["value"] == float(value)


@pytest.mark.parametrize(
    "body",
    ['{"value": 1.5}', '{"value": -0.1}', '{"value": "1"}', '{"value": null}', "{}"],
)
def test_an_invalid_reward_changes_nothing(server: ServerClient, router: str, body: str) -> None:
    decision = server.decide(router)["id"]
    before = server.get(f"{router}/status").json()
    headers = {"content-type": "application/json"}
    answer = server.post(f"/v1/decisions/{decision}/reward", content=body, headers=headers)
    assert_error(answer, 422)
    assert server.get(f"{router}/status").json() == before
    assert server.get(f"/v1/decisions/{decision}").json()["state"] == "waiting"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "0x1", "01"])
def test_an_invalid_number_is_refused(server: ServerClient, router: str, number: str) -> None:
    path = f"/v1/decisions/{server.decide(router)['id']}/reward"
    headers = {"content-type": "application/json"}
    answer = server.post(path, content=f'{{"value": {number}}}', headers=headers)
    assert answer.status_code in (400, 422)
    assert "error" in answer.json()


def test_a_value_of_the_wrong_type_is_explained_in_words(server: ServerClient, router: str) -> None:
    said = assert_error(server.post(f"{router}/decisions", json={"context": 7}), 422)
    assert (said["message"], said["field"]) == (
        "expected a text or null, got a whole number",
        "context",
    )
    said = assert_error(server.post(f"{router}/decisions", json={"available": "ann"}), 422)
    assert said["message"] == "expected a list or null, got a text"


def test_unknown_decisions_and_routers_are_not_found(server: ServerClient, router: str) -> None:
    name = router.rpartition("/")[2]
    place, _, tag = server.decide(router)["id"].rpartition(".")
    for id in (
        f"{place}.{int(tag, 16) ^ 1:08x}",
        place,
        f"{place}.{tag}.{tag}",
        f"{name}.1.99999.{tag}",
        f"{name}.999.1.{tag}",
        f"unknown.1.1.{tag}",
        "d7",
        "%00",
        f"é.1.1.{tag}",
    ):
        for action, body in (("reward", {"value": 1.0}), ("activate", None), ("cancel", None)):
            answer = server.post(f"/v1/decisions/{id}/{action}", json=body)
            assert assert_error(answer, 404)["code"] == "no_such_decision"
        assert assert_error(server.get(f"/v1/decisions/{id}"), 404)["code"] == "no_such_decision"
    answer = server.post("/v1/routers/unknown/decisions", json={})
    assert assert_error(answer, 404)["code"] == "no_such_router"


def test_settled_costs_replace_stated_ones(server: ServerClient) -> None:
    router = server.create_router()
    one = server.decide(router)
    server.post(f"/v1/decisions/{one['id']}/reward", json={"value": 1, "spend": {"usd": 2.5}})
    costs = server.get(f"{router}/status").json()["costs"]["usd"]
    assert costs["settled"] == 2.5
    assert costs["stated"] == one["spend"]["usd"]


def test_a_deferred_decision_can_be_activated_or_cancelled(
    server: ServerClient, router: str
) -> None:
    used, unused = (server.decide(router, defer=True)["id"] for _ in range(2))
    assert server.get(f"/v1/decisions/{used}").json()["state"] == "deferred"
    assert server.post(f"/v1/decisions/{used}/activate").status_code == 200
    assert server.get(f"/v1/decisions/{used}").json()["state"] == "waiting"
    assert server.post(f"/v1/decisions/{unused}/cancel").status_code == 200
    assert server.get(f"/v1/decisions/{unused}").json()["state"] == "cancelled"
    answer = server.post(f"/v1/decisions/{unused}/activate")
    assert assert_error(answer, 409)["code"] == "invalid_state"


def test_a_reward_after_the_deadline_is_late(server: ServerClient) -> None:
    router = server.create_router(wait=0.05, default=0.25)
    decision = server.decide(router)["id"]
    wait_until(lambda: server.get(f"/v1/decisions/{decision}").json()["state"] == "closed")
    answer = server.post(f"/v1/decisions/{decision}/reward", json={"value": 1})
    assert answer.json()["receipt"] == "late"
    assert server.get(f"{router}/status").json()["mean_reward"] == 0.25


def test_only_available_experts_are_drawn(server: ServerClient, router: str) -> None:
    available = ["cat", "dan"]
    assert set(server.decide(router, available=available)["subset"]) <= set(available)
    no_experts = server.post(f"{router}/decisions", json={"available": []})
    assert assert_error(no_experts, 422)["code"] == "bad_decision"
    unknown = server.post(f"{router}/decisions", json={"available": ["zoe"]})
    assert "zoe" in assert_error(unknown, 422)["message"]


def test_a_batch_of_decisions_has_a_result_for_each(server: ServerClient, router: str) -> None:
    requests = [{"context": "a"}, {"available": ["zoe"]}, {"key": "b"}, {"key": "b"}]
    requests.append({"key": "b", "context": "another"})
    answer = server.post(f"{router}/decisions:batch", json={"decisions": requests})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [one["status"] for one in results] == [201, 422, 201, 201, 422]
    assert results[0]["decision"]["context"] == "a"
    assert "error" not in results[0]
    assert results[1]["error"]["code"] == "bad_decision"
    assert results[3] == results[2]
    assert results[4]["error"]["code"] == "key_reused"


def test_a_batch_of_rewards_has_a_result_for_each(server: ServerClient, router: str) -> None:
    other = server.create_router()
    one, two = server.decide(router)["id"], server.decide(other)["id"]
    rewards = [
        {"decision": one, "value": 0.5},
        {"decision": two, "value": 0.5},
        {"decision": one, "value": 0.5},
        {"decision": one, "value": 0.9},
        {"decision": "unknown.1.1.9f3ab01c", "value": 0.5},
        {"decision": "nonsense", "value": 0.5},
        {"decision": two, "value": 7},
    ]
    answer = server.post("/v1/rewards:batch", json={"rewards": rewards})
    results = answer.json()["results"]
    assert [one["status"] for one in results] == [200, 200, 200, 409, 404, 404, 422]
    receipts = [one["credited"]["receipt"] for one in results[:3]]
    assert receipts == ["learned", "learned", "duplicate"]


def test_costs_without_a_reward_are_settled_alone_and_in_batches(
    server: ServerClient, router: str
) -> None:
    id, other = server.decide(router)["id"], server.decide(router)["id"]
    path, paid = f"/v1/decisions/{id}/reward", {"spend": {"usd": 1.5}, "key": "gateway"}
    answer = server.post(path, json=paid)
    assert answer.json() == {"decision": id, "receipt": "settled", "value": None}
    batch = [{"decision": one, **paid} for one in (id, other)]
    results = server.post("/v1/rewards:batch", json={"rewards": batch}).json()["results"]
    assert [one["credited"]["receipt"] for one in results] == ["duplicate", "settled"]
    changed = {**paid, "spend": {"usd": 9}}
    assert assert_error(server.post(path, json=changed), 409)["code"] == "reward_conflict"
    assert assert_error(server.post(path, json={"key": "k"}), 422)["code"] == "bad_reward"
    record = server.get(f"/v1/decisions/{id}").json()
    assert (record["state"], record["learned"], record["rewards"][0]["value"]) == (
        "waiting",
        None,
        None,
    )
    assert server.post(path, json={"value": 0.5}).json()["receipt"] == "learned"
    assert 'bylot_rewards_total{receipt="settled"}' in server.get("/metrics").text


def test_a_member_that_failed_is_replaced_over_http(server: ServerClient) -> None:
    costs = {"usd": [1.0, 1.0, 1.0, 3.0]}
    problem = {"experts": ["ann", "bob", "cat", "dan"], "costs": costs, "draws": 2}
    problem["limits"] = [{"cost": "usd", "at_most": 3.0}]
    router = server.create_router(problem=problem)
    decision = server.decide(router, available=["ann", "bob"])
    path = f"/v1/decisions/{decision['id']}/replace"
    error = assert_error(server.post(path, json={"failed": "ann", "available": ["dan"]}), 409)
    assert error["code"] == "no_substitute"
    assert assert_error(server.post(path, json={"failed": "eve"}), 422)["code"] == "bad_decision"
    assert_error(server.post(path, json={"available": ["cat"]}), 422)
    asked = {"failed": "ann", "available": ["cat", "dan"]}
    answer = server.post(path, json=asked)
    changed = answer.json()
    assert answer.status_code == 200
    assert set(changed["subset"]) == {"bob", "cat"}
    assert (changed["failed"], changed["propensity"], changed["inclusion"]) == (["ann"], None, None)
    assert server.post(path, json=asked).json() == changed
    record = server.get(f"/v1/decisions/{decision['id']}").json()
    assert (record["decision"], record["state"]) == (changed, "waiting")
    server.post(f"/v1/decisions/{decision['id']}/reward", json={"value": 1})
    error = assert_error(server.post(path, json={"failed": "bob"}), 409)
    assert error["code"] == "invalid_state"
    log = server.get(f"{router}/events").json()["events"]
    assert [one["kind"] for one in log] == ["created", "decided", "replaced", "rewarded"]
    name = router.rpartition("/")[2]
    assert (
        f'bylot_router_failed_members_total{{router="{name}"}} 1.0' in server.get("/metrics").text
    )


def test_a_repeated_request_returns_the_panel_as_it_is_now(server: ServerClient) -> None:
    router = server.create_router()
    asked = {"key": "visit", "available": ["ann", "dan"]}
    decision = server.decide(router, **asked)
    path = f"/v1/decisions/{decision['id']}"
    changed = server.post(f"{path}/replace", json={"failed": "dan"}).json()
    assert set(changed["subset"]) == {"ann", "cat"}
    assert server.decide(router, **asked) == changed
    assert server.post(f"{path}/cancel").json() == changed
    assert server.get(f"{router}/status").json()["costs"]["usd"]["settled"] == 0.0


@pytest.fixture(scope="module")
def judged(server: ServerClient) -> str:
    """A router that scores of members are reported to."""
    return server.create_router(policy="random", feedback="members")


def test_scores_of_members_are_recorded_with_their_decision(
    server: ServerClient, judged: str
) -> None:
    decision = server.decide(judged)
    id, (first, other) = decision["id"], decision["subset"]
    path = f"/v1/decisions/{id}/reward"
    report = {
        "members": {first: True, other: 0.25},
        "spend": {"usd": {first: 0.5, other: 0.75}, "junior": 2},
    }
    answer = server.post(path, json=report)
    assert answer.json() == {"decision": id, "receipt": "learned", "value": 1.0}
    assert server.post(path, json={**report, "value": 1}).json()["receipt"] == "duplicate"
    other_scores = {**report, "members": {first: True}}
    error = assert_error(server.post(path, json=other_scores), 409)
    assert error["code"] == "reward_conflict"
    record = server.get(f"/v1/decisions/{id}").json()
    assert record["learned_members"] == {first: 1.0, other: 0.25}
    assert record["rewards"][0] | {"at": ""} == {
        "at": "",
        "value": 1.0,
        "receipt": "learned",
        "spend": {"usd": 1.25, "junior": 2.0},
        "key": None,
        "by": None,
        "members": {first: 1.0, other: 0.25},
        "winner": None,
        "member_spend": {"usd": {first: 0.5, other: 0.75}},
        "from_members": True,
    }
    status = server.get(f"{judged}/status").json()
    assert (status["feedback"], status["uses_feedback"]) == ("members", False)
    assert status["counters"]["detailed"] >= 1
    assert server.get(judged).json()["config"]["feedback"] == "members"


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"members": {"zoe": 1}}, "has no member 'zoe'"),
        ({"members": {"ann": "1"}}, "expected a number, true or false"),
        ({"members": {"ann": None}}, "got null; leave out a member whose score is unknown"),
        ({"members": [1]}, "expected an object or null"),
        ({"members": {"": 1}}, "length"),
        ({"members": {}}, "invalid reward None"),
        ({"members": {"ann": 1e300}}, "score of 'ann'"),
        ({"members": {f"e{n}": 1 for n in range(1_001)}}, "an object of length <= 1000"),
        ({"value": 1, "winner": "ann"}, "takes no winner; create it with feedback='winner'"),
        ({"value": 1, "winner": 5}, "expected a text or null"),
        ({"value": 1, "spend": {"usd": {"zoe": 1}}}, "spend on 'usd' lacks member"),
        ({"value": 1, "spend": {"usd": {"ann": -1}}}, "spend on 'usd' by 'ann' -1.0"),
        ({"value": 1, "spend": {"usd": {"ann": {"a": 1}}}}, "expected a number, got an object"),
        ({"value": 1, "spend": {"usd": []}}, "expected a number or an object"),
    ],
)
def test_an_invalid_report_about_members_changes_nothing(
    server: ServerClient, judged: str, report: dict[str, Any], words: str
) -> None:
    id = server.decide(judged)["id"]
    before = server.get(f"{judged}/status").json()
    error = assert_error(server.post(f"/v1/decisions/{id}/reward", json=report), 422)
    assert words in error["message"]
    batch = {"rewards": [{"decision": id, **report}]}
    answer = server.post("/v1/rewards:batch", json=batch)
    found = answer.json()
    assert answer.status_code == 422 or found["results"][0]["status"] == 422
    assert server.get(f"{judged}/status").json() == before


def test_a_batch_takes_scores_and_winners(server: ServerClient, judged: str) -> None:
    won = server.create_router(policy="random", feedback="winner")
    one, two = server.decide(judged), server.decide(won)
    rewards = [
        {"decision": one["id"], "members": dict.fromkeys(one["subset"], 0.5)},
        {"decision": two["id"], "value": 0.5, "winner": two["subset"][0]},
        {"decision": two["id"], "value": 0.5, "winner": two["subset"][1]},
        {"decision": two["id"], "members": dict.fromkeys(two["subset"], 0.5), "key": "k"},
    ]
    results = server.post("/v1/rewards:batch", json={"rewards": rewards}).json()["results"]
    assert [one["status"] for one in results] == [200, 200, 409, 422]
    record = server.get(f"/v1/decisions/{two['id']}").json()
    assert record["learned_winner"] == two["subset"][0]


def test_a_batch_has_one_to_a_thousand_items(server: ServerClient, router: str) -> None:
    path = f"{router}/decisions:batch"
    assert len(server.post(path, json={"decisions": [{}] * 1000}).json()["results"]) == 1000
    assert_error(server.post(path, json={"decisions": [{}] * 1001}), 422)
    assert_error(server.post(path, json={"decisions": []}), 422)


def test_every_command_handler_has_its_own_owner_name(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/x.db"
    one, two = make_command_handler(store, 10.0), make_command_handler(store, 10.0)
    assert isinstance(one, CommandHandler)
    assert isinstance(two, CommandHandler)
    assert one.repository.owner != two.repository.owner
    one.store.close()
    two.store.close()
