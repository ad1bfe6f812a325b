"""Decisions of which much was said: looked up in a few questions, and held against their seals."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bylot import codec, policies
from bylot.durable.commands import Create, Decide, Recall, Reward
from bylot.durable.keeper import Keeper
from bylot.durable.terms import Terms
from bylot.errors import StoreDamaged
from bylot.store import Event
from bylot.store.sqlite import SqliteStore
from small import five

REWARDS = 300


class Counting(SqliteStore):
    """Counts what it is asked."""

    asked = 0

    def _lines(self, query: str, *values: int | str) -> list[Event]:
        self.asked += 1
        return super()._lines(query, *values)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """With a router whose first decision is closed and has very many rewards."""
    made = Keeper(Counting(tmp_path / "bylot.db"), "test")
    policy = policies.write(policies.named("distinct"))
    terms = Terms(problem=codec.write_problem(five()), policy=policy)
    made.perform([Create("r", terms), Decide("r")], 1)
    rewards = [Reward("r.1.1", 0.5, key=f"k{n}") for n in range(REWARDS)]
    assert {one.receipt for one in made.perform(rewards, 2)} == {"learned", "noted"}
    yield made
    made.close()


@pytest.mark.parametrize("command", [Reward("r.1.1", 0.5, key="one more"), Recall("r.1.1")])
def test_a_decision_with_many_rewards_takes_as_few_questions_as_any(
    keeper: Keeper, command: Reward | Recall
) -> None:
    store = keeper.store
    assert isinstance(store, Counting)
    store.asked = 0
    (answer,) = keeper.perform([command], 3)
    assert store.asked == 4
    if isinstance(command, Recall):
        assert (answer.state, answer.learned, len(answer.rewards)) == ("rewarded", 0.5, REWARDS)


@pytest.mark.parametrize("seq", [1, 2, REWARDS // 2, REWARDS + 1])
@pytest.mark.parametrize(
    "change",
    ["UPDATE events SET at = at + 1 WHERE seq = ?", "UPDATE events SET seal = x'00' WHERE seq = ?"],
)
def test_any_line_of_it_that_was_changed_is_noticed(
    keeper: Keeper, tmp_path: Path, seq: int, change: str
) -> None:
    with sqlite3.connect(tmp_path / "bylot.db") as db:
        db.execute(change, (seq,))
    db.close()
    (answer,) = keeper.perform([Recall("r.1.1")], 3)
    assert isinstance(answer, StoreDamaged)
