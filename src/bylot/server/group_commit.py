"""Group commit: when the thread of the writer gets the requests of the next commit."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from bylot.eventlog.commands import Command

MAX_BATCHES_PER_COMMIT = 1_000  # about: a response waits for all that share its commit
MANY_CLIENTS = 12
MAX_WAIT_S = 0.003  # for all clients that were there at the last commit, if these are many
MAX_PAUSE = 64  # commits


class Results(Protocol):
    """What receives the results of commands: a future, or a `CommandExchange`. The thread of the
    writer calls `done`, the event loop calls the others.
    """

    def done(self) -> bool: ...
    def set_result(self, result: list[Any], /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class Batch(NamedTuple):
    """Commands of one request, what receives their results, and since when they wait."""

    commands: Sequence[Command]
    results: Results
    since: float  # by the clock of the event loop


class BatchGatherer:
    """Gathers batches in the event loop, and gives them to the thread.

    Many clients send their next requests just after a commit. One commit for all of them takes less
    time than two for half of them each. Until all are there the thread sleeps: of two threads that
    run Python, each wakes up whenever the other lets go of the interpreter's lock, mostly in vain.
    If some do not come, the next commit does not wait, and twice as many if that happens again.

    With few clients the thread gets every batch at once, also while it is busy.

    put:       gives batches to the thread
    is_shared: whether several batches may share a commit
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        put: Callable[[list[Batch]], None],
        *,
        is_shared: bool = True,
    ) -> None:
        self.loop, self.put, self.is_shared = loop, put, is_shared
        self.gathered: list[Batch] = []
        self.handed = 0  # batches that the thread has
        self.expected = 1  # batches to gather before the thread gets them
        self.pause = 0  # commits to come that do not wait for clients
        self.last_pause = 0  # how many did not after the last wait in vain; 0: it was not in vain
        self.timer: asyncio.TimerHandle | None = None

    def add(self, batch: Batch) -> None:
        """Add a batch, which the thread gets now or later."""
        self.gathered.append(batch)
        self.check()

    def check(self) -> None:
        """Hand over what was gathered, if that is enough, or wait for more."""
        if self.expected == 1:
            self.hand_over()
        elif self.handed:
            return  # until the end of the commit
        elif len(self.gathered) >= self.expected:
            self.last_pause = 0
            self.hand_over()
        elif self.gathered and self.timer is None:
            self.timer = self.loop.call_later(MAX_WAIT_S, self.end_wait)

    def end_wait(self) -> None:
        """Some clients did not come in time."""
        self.pause = self.last_pause = min(max(1, 2 * self.last_pause), MAX_PAUSE)
        self.hand_over()

    def hand_over(self) -> None:
        """Give the thread all that was gathered."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.handed += len(self.gathered)
        for first in range(0, len(self.gathered), MAX_BATCHES_PER_COMMIT):
            self.put(self.gathered[first : first + MAX_BATCHES_PER_COMMIT])
        self.gathered.clear()

    def note_commit(self, batches: int) -> None:
        """The thread has done with so many batches."""
        clients = self.handed + len(self.gathered)
        self.handed -= batches
        waits = self.is_shared and clients >= MANY_CLIENTS and self.pause == 0
        self.expected = clients if waits else 1
        self.pause = max(0, self.pause - 1)
        self.check()
