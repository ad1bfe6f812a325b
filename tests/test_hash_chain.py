"""Decisions of which much was said: looked up in a few questions, and held against their seals."""

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
from small import five

REWARDS = 300


class Counting(SqliteStore):
    """Counts what it is asked."""

    asked = 0

    def _events(self, query: str, *values: int | str) -> list[Event]:
        self.asked += 1
        return super()._events(query, *values)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[CommandHandler]:
    """With a router whose first decision is closed and has very many rewards."""
    made = CommandHandler(RouterRepository(Counting(tmp_path / "bylot.db"), "test"))
    policy = policies.policy_to_data(policies.find_policy("distinct"))
    terms = RouterConfig(problem=persistence.problem_to_data(five()), policy=policy)
    made.perform([CreateRouter("r", terms), MakeDecision("r")], 1)
    rewards = [RecordReward("r.1.1", 0.5, key=f"k{n}") for n in range(REWARDS)]
    assert {one.receipt for one in made.perform(rewards, 2)} == {"learned", "noted"}
    yield made
    made.close()


@pytest.mark.parametrize(
    "command", [RecordReward("r.1.1", 0.5, key="one more"), GetDecision("r.1.1")]
)
def test_a_decision_with_many_rewards_takes_as_few_questions_as_any(
    keeper: CommandHandler, command: RecordReward | GetDecision
) -> None:
    store = keeper.store
    assert isinstance(store, Counting)
    store.asked = 0
    (answer,) = keeper.perform([command], 3)
    assert store.asked == 4
    if isinstance(command, GetDecision):
        assert (answer.state, answer.learned, len(answer.rewards)) == ("rewarded", 0.5, REWARDS)


@pytest.mark.parametrize("seq", [1, 2, REWARDS // 2, REWARDS + 1])
@pytest.mark.parametrize(
    "change",
    ["UPDATE events SET at = at + 1 WHERE seq = ?", "UPDATE events SET seal = x'00' WHERE seq = ?"],
)
def test_any_line_of_it_that_was_changed_is_noticed(
    keeper: CommandHandler, tmp_path: Path, seq: int, change: str
) -> None:
    with sqlite3.connect(tmp_path / "bylot.db") as db:
        db.execute(change, (seq,))
    db.close()
    (answer,) = keeper.perform([GetDecision("r.1.1")], 3)
    assert isinstance(answer, StoreCorrupted)
