"""Decisions with many rewards: looked up in few queries, and checked against their hashes."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bylot import policies
from bylot.errors import StoreCorrupted
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import (
    CreateRouter,
    GetDecision,
    MakeDecision,
    RecordReward,
    format_decision_id,
)
from bylot.eventlog.repository import RouterRepository
from bylot.router.config import RouterConfig, problem_to_data
from bylot.store import Event, Store
from bylot.store.sqlite import SqliteStore
from sample_problem import make_five_expert_problem

REWARDS = 90


class CountingStore(SqliteStore):
    """Counts its queries."""

    query_count = 0

    def _events(self, query: str, *values: int | str) -> list[Event]:
        self.query_count += 1
        return super()._events(query, *values)


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[CommandHandler]:
    """A handler with a router whose first decision is closed and has many rewards."""
    new_handler = CommandHandler(RouterRepository(CountingStore(tmp_path / "bylot.db"), "test"))
    policy = policies.policy_to_data(policies.find_policy("distinct"))
    config = RouterConfig(problem=problem_to_data(make_five_expert_problem()), policy=policy)
    _, decision = new_handler.perform([CreateRouter("r", config), MakeDecision("r")], 1)
    rewards = [RecordReward(decision.id, 0.5, key=f"k{n}") for n in range(REWARDS)]
    assert {one.receipt for one in new_handler.perform(rewards, 2)} == {"learned", "noted"}
    yield new_handler
    new_handler.close()


def find_decision_id(store: Store) -> str:
    """The id of the first decision."""
    event = store.event(1, 1)
    assert event is not None
    return format_decision_id("r", event)


@pytest.mark.parametrize("kind", [RecordReward, GetDecision])
def test_a_decision_with_many_rewards_takes_as_few_queries_as_any(
    handler: CommandHandler, kind: type[RecordReward | GetDecision]
) -> None:
    store = handler.store
    assert isinstance(store, CountingStore)
    handler.repository.get("r", 3).engine.open.recent.clear()  # as after a restart
    id = find_decision_id(store)
    command = GetDecision(id) if kind is GetDecision else RecordReward(id, 0.5, key="one more")
    store.query_count = 0
    (answer,) = handler.perform([command], 3)
    assert store.query_count == 5
    if isinstance(command, GetDecision):
        assert (answer.state, answer.learned, len(answer.rewards)) == ("rewarded", 0.5, REWARDS)


@pytest.mark.parametrize("seq", [1, 2, REWARDS // 2, REWARDS + 1])
@pytest.mark.parametrize(
    "change",
    ["UPDATE events SET at = at + 1 WHERE seq = ?", "UPDATE events SET seal = x'00' WHERE seq = ?"],
)
def test_any_changed_event_of_a_decision_is_detected(
    handler: CommandHandler, tmp_path: Path, seq: int, change: str
) -> None:
    id = find_decision_id(handler.store)
    with sqlite3.connect(tmp_path / "bylot.db") as db:
        db.execute(change, (seq,))
    db.close()
    (answer,) = handler.perform([GetDecision(id)], 3)
    assert isinstance(answer, StoreCorrupted)
