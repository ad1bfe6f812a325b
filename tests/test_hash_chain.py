"""Decisions with many rewards: looked up in few queries, and checked against their hashes."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bylot import policies
from bylot.errors import StoreCorrupted
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import CreateRouter, GetDecision, MakeDecision, RecordReward
from bylot.eventlog.repository import RouterRepository
from bylot.router import persistence
from bylot.router.config import RouterConfig
from bylot.store import Event
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
    config = RouterConfig(
        problem=persistence.problem_to_data(make_five_expert_problem()), policy=policy
    )
    new_handler.perform([CreateRouter("r", config), MakeDecision("r")], 1)
    rewards = [RecordReward("r.1.1", 0.5, key=f"k{n}") for n in range(REWARDS)]
    assert {one.receipt for one in new_handler.perform(rewards, 2)} == {"learned", "noted"}
    yield new_handler
    new_handler.close()


@pytest.mark.parametrize(
    "command", [RecordReward("r.1.1", 0.5, key="one more"), GetDecision("r.1.1")]
)
def test_a_decision_with_many_rewards_takes_as_few_queries_as_any(
    handler: CommandHandler, command: RecordReward | GetDecision
) -> None:
    store = handler.store
    assert isinstance(store, CountingStore)
    handler.repository.get("r", 3).recent.clear()  # as after a restart
    store.query_count = 0
    (answer,) = handler.perform([command], 3)
    assert store.query_count == 4
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
    with sqlite3.connect(tmp_path / "bylot.db") as db:
        db.execute(change, (seq,))
    db.close()
    (answer,) = handler.perform([GetDecision("r.1.1")], 3)
    assert isinstance(answer, StoreCorrupted)
