"""Routers over HTTP: create, list, get, edit while they run, delete."""

import logging
import threading
from typing import Any

import pytest

from bylot.policies import noisy_or
from live_server import FIVE_EXPERTS, ServerClient, assert_error


def make_problem_body(**changes: Any) -> dict[str, Any]:
    """The problem of five experts, with changes."""
    return {**FIVE_EXPERTS, **changes}


def test_the_server_logs_created_edited_and_deleted_routers(
    server: ServerClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bylot.server")
    path = server.create_router()
    server.patch(path, json={"wait": 60})
    assert assert_error(server.patch(path, json={"wait": -1}), 422)["message"].startswith(
        "expected a"
    )
    server.delete(path)
    records = [one for one in caplog.records if getattr(one, "router", "") == path.split("/")[-1]]
    assert [one.getMessage().split()[-1] for one in records] == ["created", "edited", "deleted"]


def test_a_new_router_returns_its_config_and_status(server: ServerClient) -> None:
    body = {"name": "new", "problem": FIVE_EXPERTS, "seed": 7, "wait": 60, "aggregate": "sum"}
    created = server.post("/v1/routers", json=body)
    assert created.status_code == 201
    config = created.json()["config"]
    assert config["problem"] == FIVE_EXPERTS
    assert (config["seed"], config["wait"], config["aggregate"]) == (7, 60, "sum")
    assert config["policy"]["name"] == "distinct"
    assert server.get("/v1/routers/new").json() == created.json()
    assert server.get("/v1/routers/new/status").json() == created.json()["status"]
    duplicate = server.post("/v1/routers", json=body)
    assert assert_error(duplicate, 409)["code"] == "name_taken"


def test_a_policy_can_have_settings(server: ServerClient) -> None:
    policy = {"name": "distinct", "settings": {"eps": 0.1}}
    created = server.post(
        "/v1/routers", json={"name": "set", "problem": FIVE_EXPERTS, "policy": policy}
    )
    assert created.json()["config"]["policy"]["eps"] == 0.1


def test_the_policy_selected_by_auto_is_reported(server: ServerClient) -> None:
    policy = {"name": "auto", "settings": {"propensities": False}}
    path = server.create_router(policy=policy)
    view = server.get(path).json()
    assert view["config"]["policy"] == {
        "name": "noisy-or",
        "explore": 0.0,
        "pace": 1.25,
        "guard": True,
        "forget": None,
    }
    created = server.decide(path)
    assert (created["propensity"], created["inclusion"]) == (None, None)
    assert created["draw_probabilities"] is None
    assert server.get(f"/v1/decisions/{created['id']}").json()["decision"] == created
    *_, event = server.get(f"{path}/events").json()["events"]
    assert (event["body"]["propensity"], event["body"]["inclusion"]) == (None, None)
    rewarded = server.post(f"/v1/decisions/{created['id']}/reward", json={"value": 0.5})
    assert rewarded.json()["receipt"] == "learned"


@pytest.mark.parametrize(
    "policy",
    [
        "distinkt",
        {"name": "distinct", "settings": {"nope": 1}},
        {"name": "distinct", "settings": {"eps": "much"}},
        {"name": "distinct", "settings": {"eps": -1}},
        {"name": "distinct:eps=0.1", "settings": {"eps": 0.1}},
        {"name": "omd", "settings": {"dual": {"kind": "none"}}},
    ],
)
def test_an_unknown_policy_or_setting_is_refused(server: ServerClient, policy: Any) -> None:
    answer = server.post(
        "/v1/routers", json={"name": "bad", "problem": FIVE_EXPERTS, "policy": policy}
    )
    assert assert_error(answer, 422)["code"] == "bad_policy"


def test_an_unknown_setting_is_refused_with_a_suggestion(server: ServerClient) -> None:
    for settings, remedy in (
        ({"explor": 0.02}, "policy 'noisy-or' has no setting 'explor'; did you mean 'explore'?"),
        ({"name": "omd"}, "policy 'noisy-or' has no setting 'name'"),
    ):
        policy = {"name": "noisy-or", "settings": settings}
        body = {"name": "bad", "problem": FIVE_EXPERTS, "policy": policy}
        error = assert_error(server.post("/v1/routers", json=body), 422)["message"]
        assert error.startswith(remedy)
    policy = {"name": "noisy-or", "settings": {"explore": 0.02}}
    accepted = server.post(
        "/v1/routers", json={"name": "exploring", "problem": FIVE_EXPERTS, "policy": policy}
    )
    assert accepted.json()["config"]["policy"]["explore"] == 0.02


def test_more_contexts_than_fit_are_refused_at_creation(
    server: ServerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = noisy_or.count_posterior_bytes(6, 5)  # six contexts of five experts
    monkeypatch.setattr(noisy_or, "MAX_POSTERIOR_BYTES", most)
    body = {"name": "wide", "problem": FIVE_EXPERTS, "policy": "noisy-or"}
    error = assert_error(server.post("/v1/routers", json={**body, "max_contexts": 7}), 422)
    assert error["code"] == "bad_policy"
    assert "declare at most 6, or take 'distinct'" in error["message"]
    created = server.post("/v1/routers", json={**body, "max_contexts": 6})
    assert created.json()["status"]["max_contexts"] == 6
    default = server.post("/v1/routers", json={**body, "name": "usual"})
    assert default.json()["config"]["max_contexts"] == 4  # four fifths


@pytest.mark.parametrize(
    ("edit", "remedy"),
    [
        ({"limits": [{"cost": "usd", "at_most": 1.2}]}, "or create a new router: use '"),
        ({"limits": [{"cost": "usd", "at_least": 7.5}]}, ", or create a new router with draws="),
        ({"pause": ["dan", "eve"]}, "resume one of them, or change the limits"),
        ({"min_draws": 9}, "min_draws 9: expected an integer from 1 to 2, the draws"),
        (
            {"add": [{"name": f"n{i}", "usd": 1, "junior": 0} for i in range(99)]},
            "add fewer experts, or create a new router with a lower floor",
        ),
    ],
)
def test_a_refused_edit_has_a_remedy_for_a_running_router(
    server: ServerClient, edit: dict[str, Any], remedy: str
) -> None:
    router = server.create_router()
    message = assert_error(server.patch(router, json=edit), 422)["message"]
    assert remedy in message
    assert "; use '" not in message
    assert "draw more" not in message


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"experts": ["ann", "ann", "cat", "dan", "eve"]}, "bad_problem"),
        ({"costs": {"usd": [1.0]}}, "bad_problem"),
        ({"limits": [{"cost": "usd", "at_most": 0.01}]}, "infeasible_limits"),
        ({"limits": [{"cost": "usd"}]}, "bad_problem"),
        ({"limits": [{"share": "young", "at_most": 1}]}, "bad_problem"),
        ({"limits": [{"cost": "usd", "members": ["ann"], "at_most": 1}]}, "bad_problem"),
        ({"draws": 0}, "bad_problem"),
        ({"draws": 2.5}, "bad_problem"),
        ({"nope": 1}, "bad_problem"),
    ],
)
def test_an_invalid_problem_is_refused(
    server: ServerClient, changes: dict[str, Any], code: str
) -> None:
    answer = server.post(
        "/v1/routers", json={"name": "bad", "problem": make_problem_body(**changes)}
    )
    assert assert_error(answer, 422)["code"] == code
    assert_error(server.get("/v1/routers/bad"), 404)


@pytest.mark.parametrize("name", ["", "Upper", "a.b", "-a", "a" * 64, "a\n", "é", "a/b", "a b"])
def test_an_invalid_name_is_refused(server: ServerClient, name: str) -> None:
    answer = server.post("/v1/routers", json={"name": name, "problem": FIVE_EXPERTS})
    assert assert_error(answer, 422)["field"] == "name"


def test_routers_are_listed_page_by_page(server: ServerClient) -> None:
    names = sorted(server.create_router().rpartition("/")[2] for _ in range(5))
    seen, after = [], ""
    while after is not None:
        page = server.get("/v1/routers", params={"after": after, "limit": 2}).json()
        assert len(page["routers"]) <= 2
        seen += [one["name"] for one in page["routers"]]
        after = page["next"]
    assert seen == sorted(seen)
    assert set(names) <= set(seen)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=1&limit=2",
        "nope=1",
        "after=" + "a" * 64,
        "after=%00",
        "a&" * 99,
    ],
)
def test_an_invalid_page_query_is_refused(server: ServerClient, query: str) -> None:
    assert assert_error(server.get(f"/v1/routers?{query}"), 422)["code"] == "invalid"


def test_the_log_is_read_page_by_page(server: ServerClient) -> None:
    router = server.create_router()
    decisions = [server.decide(router, context=f"c{n}")["id"] for n in range(3)]
    server.post(f"/v1/decisions/{decisions[0]}/reward", json={"value": 0.5})
    events, after = [], -1
    while after is not None:
        page = server.get(f"{router}/events", params={"after": after, "limit": 2}).json()
        events += page["events"]
        after = page["next"]
    assert [one["seq"] for one in events] == [0, 1, 2, 3, 4]
    kinds = ["created", "decided", "decided", "decided", "rewarded"]
    assert [one["kind"] for one in events] == kinds
    assert events[1]["body"]["context"] == "c0"
    assert events[4]["body"]["value"] == 0.5
    assert events[4]["of"] == 1
    assert_error(server.get("/v1/routers/unknown/events"), 404)


def test_a_deleted_router_is_not_found_and_its_name_can_be_reused(server: ServerClient) -> None:
    router = server.create_router()
    decision = server.decide(router)["id"]
    assert server.delete(router).status_code == 204
    assert_error(server.get(router), 404)
    assert_error(server.delete(router), 404)
    name = router.rpartition("/")[2]
    assert (
        server.post("/v1/routers", json={"name": name, "problem": FIVE_EXPERTS}).status_code == 201
    )
    reward = server.post(f"/v1/decisions/{decision}/reward", json={"value": 1})
    assert assert_error(reward, 404)["code"] == "no_such_decision"


def test_a_paused_expert_is_not_asked_until_it_is_resumed(server: ServerClient) -> None:
    router = server.create_router()
    paused = server.patch(router, json={"pause": ["ann", "bob", "cat"]})
    assert paused.json()["config"]["paused"] == ["ann", "bob", "cat"]
    assert {n for _ in range(9) for n in server.decide(router)["subset"]} <= {"dan", "eve"}
    resumed = server.patch(router, json={"resume": ["ann", "bob", "cat"]})
    assert "paused" not in resumed.json()["config"]


def test_experts_can_be_added_and_removed(server: ServerClient) -> None:
    share = {"share": "young", "members": ["cat", "eve"], "at_least": 0.1}
    router = server.create_router(
        problem=make_problem_body(limits=[{"cost": "usd", "at_most": 3.0}, share])
    )
    new_expert = {"name": "fay", "usd": 0.2, "junior": 1, "group": ["young"]}
    added = server.patch(router, json={"add": [new_expert], "remove": ["cat"]})
    assert added.status_code == 200, added.text
    config = added.json()["config"]["problem"]
    assert config["experts"] == ["ann", "bob", "dan", "eve", "fay"]
    assert config["costs"]["usd"] == [4.0, 3.0, 1.0, 0.5, 0.2]
    assert config["limits"][1]["members"] == ["eve", "fay"]
    assert set(server.decide(router, available=["fay"])["subset"]) == {"fay"}
    departed = server.post(f"{router}/decisions", json={"available": ["cat"]})
    assert assert_error(departed, 422)["code"] == "bad_decision"


@pytest.mark.parametrize(
    "edit",
    [
        {"remove": ["zoe"]},
        {"pause": ["zoe"]},
        {"add": [{"name": "fay"}]},
        {"add": [{"name": "ann", "usd": 1, "junior": 0}]},
        {"add": [{"name": "fay", "usd": 1, "junior": 0, "group": "old"}]},
        {"limits": [{"cost": "usd", "at_most": 0.01}]},
        {"aggregate": "median"},
        {"wait": -1},
        {"nope": 1},
    ],
)
def test_an_invalid_edit_changes_nothing(server: ServerClient, edit: dict[str, Any]) -> None:
    router = server.create_router()
    before = server.get(router).json()
    assert_error(server.patch(router, json=edit), 422)
    assert server.get(router).json() == before


def test_an_unknown_word_is_answered_with_those_that_a_field_may_have(server: ServerClient) -> None:
    body = {"name": "new", "problem": FIVE_EXPERTS, "feedback": "both"}
    error = assert_error(server.post("/v1/routers", json=body), 422)
    said = "invalid value 'both': expected 'panel', 'members' or 'winner'"
    assert (error["field"], error["message"]) == ("feedback", said)
    edit = {"aggregate": "median"}
    error = assert_error(server.patch(server.create_router(), json=edit), 422)
    assert error["message"] == "invalid value 'median': expected 'earliest', 'last' or 'sum'"


def test_a_limit_can_be_changed_and_the_version_increases(server: ServerClient) -> None:
    router = server.create_router()
    looser = {"version": 1, "limits": [{"cost": "usd", "at_most": 5.0}], "wait": 9.0}
    changed = server.patch(router, json=looser)
    config = changed.json()["config"]
    assert config["version"] == 2
    assert config["problem"]["limits"] == [{"cost": "usd", "at_most": 5.0}]
    assert config["wait"] == 9.0
    assert assert_error(server.patch(router, json=looser), 409)["code"] == "invalid_state"
    unset = server.patch(router, json={"wait": None})
    assert "wait" not in unset.json()["config"]
    kinds = [one["kind"] for one in server.get(f"{router}/events").json()["events"]]
    assert kinds == ["created", "edited", "edited"]


def test_limits_of_the_calendar_are_created_and_edited(server: ServerClient) -> None:
    day = {"cost": "usd", "at_most": 500.0, "per": "day", "zone": "Europe/Berlin"}
    problem = {**FIVE_EXPERTS, "limits": [day], "traffic": 2_000.0}
    router = server.create_router(problem=problem)
    config = server.get(router).json()["config"]
    assert (config["problem"], config["policy"]["name"]) == (problem, "noisy-or")
    month = {"cost": "usd", "at_most": 9_000.0, "per": "month", "when_spent": "refuse"}
    edited = server.patch(router, json={"limits": [day, month]}).json()["config"]
    assert edited["problem"]["limits"] == [day, month]
    for wrong, field, words in (
        ({"zone": "Berlin"}, "limits[0].zone", "did you mean 'Europe/Berlin'?"),
        ({"per": "year"}, "limits[0].per", "request or draw or hour or day or week or month"),
        ({"zones": "UTC"}, "limits[0].zones", "did you mean 'zone'?"),
    ):
        error = assert_error(server.patch(router, json={"limits": [{**day, **wrong}]}), 422)
        assert error["field"] == field
        assert words in error["message"]
        wrong_problem = {"name": "no", "problem": {**problem, "limits": [{**day, **wrong}]}}
        error = assert_error(server.post("/v1/routers", json=wrong_problem), 422)
        assert error["field"] == f"problem.{field}"
        assert words in error["message"]


def test_concurrent_edits_are_all_applied(server: ServerClient) -> None:
    router = server.create_router(wait=9.0)
    edits = [{"pause": ["ann"]}, {"pause": ["bob"]}, {"wait": 5.0}, {"default": 0.5}]
    codes = []
    threads = [
        threading.Thread(target=lambda e=e: codes.append(server.patch(router, json=e).status_code))
        for e in edits
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    config = server.get(router).json()["config"]
    assert codes == [200] * 4
    assert config["version"] == 5
    assert set(config["paused"]) == {"ann", "bob"}
    assert (config["wait"], config["default"]) == (5.0, 0.5)


def test_unknown_paths_and_methods_are_refused(server: ServerClient) -> None:
    assert assert_error(server.get("/v2/routers"), 404)["code"] == "not_found"
    assert assert_error(server.get("/v1/routers/a/nothing"), 404)["code"] == "not_found"
    assert assert_error(server.get("/v1/routers/"), 404)["code"] == "not_found"
    wrong = server.put("/v1/routers")
    assert assert_error(wrong, 405)["code"] == "method_not_allowed"
    assert wrong.headers["allow"] == "POST, GET"
    assert server.get("/healthz").json() == {"status": "up"}
    assert server.get("/readyz").json() == {"status": "ready"}


def test_answers_have_headers_against_content_sniffing(server: ServerClient) -> None:
    for answer in (server.get("/healthz"), server.get("/nothing"), server.put("/v1/routers")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers
