"""Rewards that would stall the writer, or spoil the sums of costs, are refused."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from bylot.errors import DecisionStateError, RewardError
from bylot.eventlog.audit import audit_router
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import (
    CreateRouter,
    EditRouter,
    GetDecision,
    GetRouter,
    MakeDecision,
    RecordReward,
)
from bylot.eventlog.repository import RouterRepository
from bylot.router import feedback, reward_rules
from bylot.store import DecisionEvents, open_store
from handlers import SECOND, perform_all
from live_server import ServerClient, assert_error
from logged_aggregate import LoggedRouter, make_config, make_problem_with_frank
from sample_problem import make_five_expert_problem

Restart = Callable[[], CommandHandler]


@pytest.fixture
def restart(tmp_path: Path) -> Restart:
    """A command handler of one store, as a server has after a kill."""
    handlers: list[CommandHandler] = []

    def start() -> CommandHandler:
        for handler in handlers:
            handler.store.close()
        store = open_store(f"sqlite:///{tmp_path}/b.db")
        handlers.append(CommandHandler(RouterRepository(store, "me")))
        return handlers[-1]

    return start


def count_events_read(handler: CommandHandler, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The events that each look at a decision reads from the store."""
    counts: list[int] = []
    read = handler.store.decision_events

    def counting(router: int, seq: int) -> DecisionEvents | None:
        found = read(router, seq)
        counts.append(len(found.since) + 1 if found else 0)
        return found

    monkeypatch.setattr(handler.store, "decision_events", counting)
    return counts


def test_a_decision_takes_a_hundred_rewards_and_repeated_ones_are_duplicates(
    server: ServerClient,
) -> None:
    id = server.decide(server.create_router())["id"]
    items = [{"decision": id, "value": 0.5, "key": f"k{n}"} for n in range(150)]
    results = server.post("/v1/rewards:batch", json={"rewards": items}).json()["results"]
    assert [one["status"] for one in results] == [200] * 100 + [409] * 50
    assert results[-1]["error"]["code"] == "invalid_state"
    assert "has 100 rewards" in results[-1]["error"]["message"]
    path = f"/v1/decisions/{id}/reward"
    again = server.post(path, json={"value": 0.5, "key": "k99"})
    assert again.json()["receipt"] == "duplicate"
    assert_error(server.post(path, json={"value": 0.5, "key": "another"}), 409)
    assert len(server.get(f"/v1/decisions/{id}").json()["rewards"]) == 100


def test_pending_rewards_count_too() -> None:
    router = LoggedRouter(wait=1.0, aggregate="last")
    one = router.decide()
    for n in range(100):
        assert router.reward(one, 0.5, key=str(n)) == "pending"
    before = router.aggregate.fingerprint()
    with pytest.raises(DecisionStateError, match="at most 100"):
        router.reward(one, 0.5, key="one more")
    assert router.aggregate.fingerprint() == before


def test_rewards_of_a_closed_decision_do_not_read_its_history_each_time(
    restart: Restart, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = restart()
    (_, made) = perform_all(
        handler,
        CreateRouter("triage", make_config(make_five_expert_problem())),
        MakeDecision("triage"),
    )
    counts = count_events_read(handler, monkeypatch)
    for n in range(100):
        perform_all(handler, RecordReward(made.id, 0.5, key=str(n)))
    assert sum(counts) <= 3  # each reading all before it: 5,050
    counts.clear()
    perform_all(handler, *[RecordReward(made.id, 0.5, key=str(n)) for n in range(100)])
    assert counts == []


def test_a_log_with_more_rewards_and_any_spend_is_replayed_and_its_sums_are_audited(
    restart: Restart, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = restart()
    monkeypatch.setattr(reward_rules, "MAX_REWARDS_PER_DECISION", 10**9)
    monkeypatch.setattr(feedback, "MAX_SPEND_FACTOR", 1e40)
    _, one, *_ = perform_all(
        handler,
        CreateRouter("triage", make_config(make_five_expert_problem())),
        *[MakeDecision("triage")] * 3,
    )
    perform_all(handler, *[RecordReward(one.id, 0.5, key=str(n)) for n in range(150)])
    assert audit_router(handler.store, "triage").fault is None
    perform_all(handler, RecordReward(one.id, 0.5, {"usd": 1e30}, key="absurd"))
    perform_all(handler, RecordReward(one.id, 0.5, {"usd": 2.0}, key="corrected"))
    live = handler.repository.get("triage", SECOND).fingerprint()
    monkeypatch.undo()
    handler = restart()
    counts = count_events_read(handler, monkeypatch)
    assert handler.repository.get("triage", SECOND).fingerprint() == live
    assert sum(counts) < 200  # not the square of the number of rewards
    audit = audit_router(handler.store, "triage")
    assert audit.fault is not None
    assert "has booked 0.0 of usd, but its log sums to" in audit.fault
    (again,) = perform_all(handler, RecordReward(one.id, 0.5, {"usd": 1e30}, key="absurd"))
    assert again.receipt == "duplicate"


def test_an_absurd_spend_is_refused_and_the_sums_stay_right(server: ServerClient) -> None:
    router = server.create_router()
    ids = [server.decide(router)["id"] for _ in range(5)]
    before = server.get(f"{router}/status").json()["costs"]["usd"]["settled"]
    stated = server.get(f"/v1/decisions/{ids[0]}").json()["decision"]["spend"]["usd"]
    path = f"/v1/decisions/{ids[0]}/reward"
    error = assert_error(server.post(path, json={"value": 0.5, "spend": {"usd": 1e30}}), 422)
    assert error["code"] == "bad_reward"
    assert "at most 8000, 1,000 times" in error["message"]
    for n, spend in enumerate((8000.0, 2.0)):
        body = {"value": 0.5, "spend": {"usd": spend}, "key": str(n)}
        assert server.post(path, json=body).status_code == 200
    after = server.get(f"{router}/status").json()["costs"]["usd"]["settled"]
    assert math.isclose(after, before - stated + 2.0, rel_tol=1e-12)


def test_a_cost_that_is_stated_as_nothing_can_be_settled() -> None:
    free = make_five_expert_problem().replace(
        costs={**make_five_expert_problem().costs, "ms": [0.0] * 5}
    )
    router = LoggedRouter(free)
    assert router.reward(router.decide(), 0.5, spend={"ms": 1999.0}) == "learned"
    with pytest.raises(RewardError, match="at most 2000"):
        router.reward(router.decide(), 0.5, spend={"ms": 2001.0})


def test_the_audit_follows_settled_costs_through_edits(restart: Restart) -> None:
    handler = restart()
    config = make_config(make_five_expert_problem())
    _, one, two = perform_all(
        handler, CreateRouter("triage", config), *[MakeDecision("triage") for _ in range(2)]
    )
    perform_all(handler, RecordReward(one.id, 0.5, {"usd": 7.0}))
    perform_all(
        handler, EditRouter("triage", make_config(make_problem_with_frank(3.0)))
    )  # with a new cost, ms
    (three,) = perform_all(handler, MakeDecision("triage"))
    perform_all(
        handler,
        RecordReward(two.id, 0.5, {"usd": 6.0, "ms": 5.0}),  # from before there was such a cost
        RecordReward(two.id, 0.5, {"ms": 3.0}, key="corrected"),
        RecordReward(three.id, 0.5, {"usd": 2.0, "ms": 4.0}),
    )
    assert audit_router(handler.store, "triage").fault is None
    perform_all(handler, EditRouter("triage", config))
    perform_all(handler, EditRouter("triage", make_config(make_problem_with_frank(3.0))))
    perform_all(handler, MakeDecision("triage"), RecordReward(one.id, 0.5, {"ms": 1.0}, key="late"))
    assert audit_router(handler.store, "triage").fault is None
    core = handler.repository.get("triage", SECOND).core
    core.totals.spent[0] += 0.5
    (view,) = perform_all(handler, GetRouter("triage"))
    assert view.status.decisions == 4
    assert perform_all(handler, GetDecision(one.id))[0].state == "rewarded"
