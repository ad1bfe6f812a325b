"""Group commit: many clients share a commit, few do not wait, and nobody waits for long."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from bylot.server.group_commit import (
    MANY_CLIENTS,
    MAX_BATCHES_PER_COMMIT,
    MAX_PAUSE,
    MAX_WAIT_S,
    Batch,
    BatchGatherer,
)

MANY = 2 * MANY_CLIENTS


class FakeLoop:
    """An event loop whose timers end when a test says so."""

    def __init__(self) -> None:
        self.timers: dict[int, Callable[[], None]] = {}

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        assert delay_s == MAX_WAIT_S
        self.timers[id(timer := FakeTimer(self))] = callback
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


class Bench:
    """A gatherer, what the thread got from it, and how many batches were added."""

    def __init__(self, *, is_shared: bool = True) -> None:
        self.loop, self.got, self.added = FakeLoop(), list[list[Any]](), 0
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.gatherer = BatchGatherer(loop, self.got.append, is_shared=is_shared)

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.gatherer.add(cast(Batch, self.added))
            self.added += 1

    def commit(self) -> int:
        """The thread does all that it has; how many batches that was."""
        count = sum(map(len, self.got))
        self.got.clear()
        self.gatherer.note_commit(count)
        return count


def make_busy_bench() -> Bench:
    """Many clients have just shared a commit."""
    bench = Bench()
    bench.add(MANY)
    assert bench.commit() == MANY
    return bench


def test_few_clients_do_not_wait_even_if_the_thread_is_busy() -> None:
    bench = Bench()
    for n in range(1, MANY_CLIENTS):
        bench.add()
        assert bench.got[-1] == [n - 1]
    assert bench.commit() == MANY_CLIENTS - 1
    bench.add()
    assert bench.got == [[MANY_CLIENTS - 1]]
    assert not bench.loop.timers


def test_many_clients_that_come_back_share_the_next_commit() -> None:
    bench = make_busy_bench()
    for _ in range(3):
        bench.add(MANY - 1)
        assert not bench.got
        bench.add()
        assert [len(one) for one in bench.got] == [MANY]
        assert not bench.loop.timers
        bench.commit()


def test_those_that_come_during_a_commit_wait_for_the_others() -> None:
    bench = make_busy_bench()
    bench.add(MANY)
    bench.add(5)  # new clients; the thread is busy
    assert [len(one) for one in bench.got] == [MANY]
    bench.commit()
    bench.add(MANY - 1)
    assert not bench.got
    bench.add()
    assert [len(one) for one in bench.got] == [MANY + 5]


def test_clients_that_left_are_not_waited_for_again() -> None:
    bench = make_busy_bench()
    bench.add(MANY - 4)
    bench.loop.end_timers()
    assert [len(one) for one in bench.got] == [MANY - 4]
    bench.commit()
    for _ in range(MANY - 4):
        bench.add()
    assert len(bench.got) == MANY - 4  # after a wait in vain the next commit does not wait
    bench.commit()
    bench.add(MANY - 4)
    assert [len(one) for one in bench.got] == [MANY - 4]


def test_waits_in_vain_become_rare() -> None:
    bench, waits = make_busy_bench(), 0
    for _ in range(1_000):
        bench.add(MANY_CLIENTS)
        waits += bool(bench.loop.timers)
        bench.loop.end_timers()
        bench.add(MANY_CLIENTS)
        bench.commit()
    assert 1_000 / MAX_PAUSE < waits < 30
    while bench.gatherer.expected == 1:
        bench.add(MANY)
        bench.commit()
    bench.add(bench.gatherer.expected)  # all come back: the next commits wait again
    bench.commit()
    for _ in range(10):
        assert bench.gatherer.expected > 1
        bench.add(bench.gatherer.expected)
        bench.commit()


def test_with_a_commit_for_each_nothing_waits() -> None:
    bench = Bench(is_shared=False)
    for _ in range(3):
        bench.add(MANY)
        assert len(bench.got) == MANY
        bench.commit()


def test_a_commit_does_not_grow_without_bound() -> None:
    bench = make_busy_bench()
    bench.add(MANY)
    bench.add(2 * MAX_BATCHES_PER_COMMIT + 1)  # while the store hangs
    bench.gatherer.hand_over()
    sizes = [len(one) for one in bench.got[1:]]
    assert sizes == [MAX_BATCHES_PER_COMMIT, MAX_BATCHES_PER_COMMIT, 1]


@given(steps=st.lists(st.sampled_from(["add", "burst", "commit", "timer"]), max_size=80))
def test_batches_keep_their_order_and_none_is_left_behind(steps: list[str]) -> None:
    bench, done = Bench(), list[Any]()

    def commit() -> None:
        done.extend(one for some in bench.got for one in some)
        bench.commit()

    for step in steps:
        if step == "commit":
            commit()
        elif step == "timer":
            bench.loop.end_timers()
        else:
            bench.add(MANY if step == "burst" else 1)
        gatherer = bench.gatherer
        assert gatherer.handed == sum(map(len, bench.got))
        # what was gathered waits for the thread or for a timer, and for nothing else
        assert not gatherer.gathered or gatherer.handed or bench.loop.timers
        assert len(bench.loop.timers) <= 1
    for _ in range(3):
        bench.loop.end_timers()
        commit()
    assert done == list(range(bench.added))
    assert not bench.loop.timers
