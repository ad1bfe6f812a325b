"""Group commit: many clients share a commit, few do not wait, and nobody waits for long."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import MakeDecision
from bylot.server.group_commit import (
    MAX_BACKOFF_COMMITS,
    MAX_BATCHES_PER_HAND_OVER,
    MIN_BATCHES_TO_GATHER,
    MIN_WAIT_S,
    WAIT_PER_BATCH_S,
    Batch,
    BatchGatherer,
)
from bylot.server.settings import ServerSettings
from bylot.server.writer import Writer
from test_writer import SlowHandler

CLIENTS = 2 * MIN_BATCHES_TO_GATHER


class FakeLoop:
    """An event loop whose timers end when a test says so."""

    def __init__(self) -> None:
        self.timers: dict[int, Callable[[], None]] = {}
        self.delay_s = 0.0  # of the last one

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        self.timers[id(timer := FakeTimer(self))], self.delay_s = callback, delay_s
        return timer

    def end_timers(self) -> None:
        timers, self.timers = self.timers, {}
        for callback in timers.values():
            callback()


class FakeTimer:
    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop

    def cancel(self) -> None:
        self.loop.timers.pop(id(self), None)


class Harness:
    """A gatherer and what a thread does with the batches, which are numbers here."""

    def __init__(self, *, may_share: bool = True) -> None:
        self.loop, self.got, self.added, self.done = FakeLoop(), list[list[Any]](), 0, list[Any]()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.gatherer = BatchGatherer(loop, self.got.append, may_share=may_share)

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.gatherer.add(cast(Batch, self.added))
            self.added += 1

    def commit(self, hand_overs: int | None = None) -> int:
        """The thread does what it has, or some of it; how many batches that was."""
        some = self.got[:hand_overs]
        del self.got[:hand_overs]
        count = sum(map(len, some))
        self.done.extend(one for part in some for one in part)
        self.gatherer.note_done(count)
        return count


def make_busy_harness() -> Harness:
    """Many clients have just shared a commit."""
    made = Harness()
    made.add(CLIENTS)
    assert made.commit() == CLIENTS
    return made


def test_few_clients_do_not_wait_even_if_the_thread_is_busy() -> None:
    one = Harness()
    for n in range(MIN_BATCHES_TO_GATHER - 1):
        one.add()
        assert one.got[-1] == [n]
    assert one.commit() == MIN_BATCHES_TO_GATHER - 1
    one.add()
    assert one.got == [[MIN_BATCHES_TO_GATHER - 1]]
    assert not one.loop.timers


def test_many_clients_that_come_back_share_the_next_commit() -> None:
    one = make_busy_harness()
    for _ in range(3):
        one.add(CLIENTS - 1)
        assert not one.got
        one.add()
        assert [len(some) for some in one.got] == [CLIENTS]
        assert not one.loop.timers
        one.commit()


def test_those_that_come_during_a_commit_wait_for_the_others() -> None:
    one = make_busy_harness()
    one.add(CLIENTS)
    one.add(2)  # new clients; the thread is busy
    assert [len(some) for some in one.got] == [CLIENTS]
    one.commit()
    one.add(CLIENTS - 1)
    assert not one.got
    one.add()
    assert [len(some) for some in one.got] == [CLIENTS + 2]


def test_clients_that_left_are_not_waited_for_again() -> None:
    one, left = make_busy_harness(), CLIENTS - 4
    one.add(left)
    one.loop.end_timers()
    assert [len(some) for some in one.got] == [left]
    one.commit()
    one.add(left)
    assert len(one.got) == left  # after a failed wait the next commit does not wait
    one.commit()
    one.add(left)
    assert [len(some) for some in one.got] == [left]


def test_the_wait_grows_with_the_number_of_clients() -> None:
    for clients in (MIN_BATCHES_TO_GATHER, 1_000):
        one = Harness()
        one.add(clients)
        one.commit()
        one.add()
        assert one.loop.delay_s == max(MIN_WAIT_S, WAIT_PER_BATCH_S * clients)


def test_failed_waits_become_rare_until_one_succeeds() -> None:
    one, waits = make_busy_harness(), 0
    for _ in range(1_000):
        one.add(CLIENTS if one.gatherer.expected == 1 else CLIENTS - 1)
        waits += bool(one.loop.timers)
        one.loop.end_timers()
        one.commit()
    assert 1_000 / MAX_BACKOFF_COMMITS < waits < 30
    while one.gatherer.expected == 1:
        one.add(CLIENTS)
        one.commit()
    for _ in range(10):  # all come back: every commit waits again
        assert one.gatherer.expected > 1
        one.add(one.gatherer.expected)
        one.commit()


@pytest.mark.parametrize("arrivals", [3, 8, 40])
def test_clients_that_do_not_wait_for_answers_are_hardly_waited_for(arrivals: int) -> None:
    one, waits, commits = make_busy_harness(), 0, 0
    for interval in range(3_000):
        one.add(arrivals)  # whatever the thread does
        if interval % 2 and one.got:  # every commit takes an interval or two
            one.commit()
            waits, commits = waits + bool(one.loop.timers), commits + 1
        elif interval % 3 == 0:
            one.loop.end_timers()
    assert commits > 1_000
    assert waits < 60


def test_with_a_commit_for_each_nothing_waits() -> None:
    one = Harness(may_share=False)
    for _ in range(3):
        one.add(CLIENTS)
        assert len(one.got) == CLIENTS
        one.commit()


def test_a_hand_over_does_not_grow_without_bound() -> None:
    one = make_busy_harness()
    one.add(CLIENTS)
    one.add(2 * MAX_BATCHES_PER_HAND_OVER + 1)  # while the store hangs
    one.gatherer.hand_over()
    sizes = [len(some) for some in one.got[1:]]
    assert sizes == [MAX_BATCHES_PER_HAND_OVER, MAX_BATCHES_PER_HAND_OVER, 1]


STEPS = st.sampled_from(["add", "burst", "commit", "commit one", "timer", "hand over"])


@given(steps=st.lists(STEPS, max_size=100))
def test_batches_keep_their_order_and_none_is_left_behind(steps: list[str]) -> None:
    one = Harness()
    for step in steps:
        if step.startswith("commit"):
            one.commit(1 if step == "commit one" else None)
        elif step == "timer":
            one.loop.end_timers()
        elif step == "hand over":
            one.gatherer.hand_over()
        else:
            one.add(CLIENTS if step == "burst" else 1)
        gatherer = one.gatherer
        assert gatherer.in_thread == sum(map(len, one.got))
        # what was gathered waits for the thread or for a timer, and for nothing else
        assert not gatherer.gathered or gatherer.in_thread or one.loop.timers
        assert len(one.loop.timers) <= 1
    for _ in range(3):
        one.loop.end_timers()
        one.commit()
    assert one.done == list(range(one.added))
    assert not one.loop.timers


@pytest.mark.parametrize("end", ["close", "task", "wait"])
def test_a_writer_commits_what_was_gathered(end: str) -> None:
    handler = SlowHandler()

    async def run() -> list[Any]:
        writer = Writer(ServerSettings(), lambda: cast(CommandHandler, handler))
        await writer.start()
        names = [f"r{n}" for n in range(CLIENTS)]
        for _ in range(1_000):  # until all have shared a commit, which is so almost at once
            await asyncio.gather(*[writer.execute(MakeDecision(name)) for name in names])
            if writer.gatherer.expected == CLIENTS:
                break
        tasks = [asyncio.create_task(writer.execute(MakeDecision(name))) for name in names[:-3]]
        await asyncio.sleep(0)
        assert writer.gatherer.timer is not None
        assert len(writer.gatherer.gathered) == CLIENTS - 3
        if end == "task":
            await writer.run_in_thread(lambda _: handler.tasks.append("other"))
        if end != "close":
            assert await asyncio.gather(*tasks) == names[:-3]
        await writer.close()
        assert writer.gatherer.timer is None
        assert writer.pending == writer.gatherer.in_thread == 0
        return await asyncio.gather(*tasks)

    assert len(asyncio.run(run())) == CLIENTS - 3
    assert handler.batches[-2:] == [CLIENTS, CLIENTS - 3]
